"""Parts through onnxruntime: on the host's processor, or on a provider for another device.

Part --InferenceSession--> SessionPart; runs leave Python's lock, so that devices work at the same time
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsa_sched.devices.device import Array, CompiledPart, Refused, drawn_feeds, host_machine, shortest_ns
from dsa_sched.frontend.network.shapes import first_line
from dsa_sched.placement.model.from_onnx import TaskPart


@dataclass(frozen=True)
class SessionPart:
    part: TaskPart
    session: Any


def open_session(part: TaskPart, threads: int, optimise: bool, providers: list[Any]) -> SessionPart:
    """Open an onnxruntime session for a part. Raises Refused with onnxruntime's own message."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Threads that wait for work must not keep the cores of other devices busy.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return SessionPart(
            part, onnxruntime.InferenceSession(part.model.SerializeToString(), options, providers=providers)
        )
    except Exception as error:  # onnxruntime has a separate class for each reason
        raise Refused(first_line(error)) from error


def run_session(compiled: SessionPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
    names = list(compiled.part.outputs)
    found = compiled.session.run(names, {name: feeds[name] for name in compiled.part.inputs})
    return dict(zip(names, found, strict=True))


@dataclass(frozen=True)
class OnnxruntimeCpu:
    """The host's processor with `threads` threads, 0 for one per core; without `optimise`, nodes run as they are."""

    name: str
    threads: int = 1
    optimise: bool = True
    simulated: bool = False
    launch_ns: int = 0

    @property
    def own_thread(self) -> bool:
        return self.threads == 1

    @property
    def identity(self) -> str:
        import onnxruntime

        settings = f"threads {self.threads}, {'optimised' if self.optimise else 'plain'}"
        return f"onnxruntime {onnxruntime.__version__} on {host_machine()}, {settings}"

    @property
    def time_source(self) -> str:
        return "runs on this machine"

    def accepts(self, part: TaskPart) -> str | None:  # noqa: ARG002 - one protocol
        return None

    def compile(self, part: TaskPart) -> CompiledPart:
        return open_session(part, self.threads, self.optimise, ["CPUExecutionProvider"])

    def profile(self, compiled: CompiledPart) -> int:
        feeds = drawn_feeds(compiled.part)
        return shortest_ns(lambda: self.run(compiled, feeds), one_thread=self.own_thread)

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        assert isinstance(compiled, SessionPart)
        return run_session(compiled, feeds)
