"""A device that exists in numbers only: time is its roofline's, values come from onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsa_sched.devices.device import Array, CompiledPart
from dsa_sched.devices.onnxruntime_device import SessionPart, open_session, run_session
from dsa_sched.placement.model.from_onnx import TaskPart
from dsa_sched.placement.model.pricing import roofline_ns
from dsa_sched.placement.model.scenario import Roofline


@dataclass(frozen=True)
class RooflineSimulator:
    """Layers of a part run one after the other, each for the time of its roofline."""

    name: str
    roofline: Roofline
    simulated: bool = True
    own_thread: bool = False

    @property
    def identity(self) -> str:
        return f"roofline {self.roofline.model_dump_json()}"

    def accepts(self, part: TaskPart) -> str | None:  # noqa: ARG002 - one protocol
        return None

    def compile(self, part: TaskPart) -> CompiledPart:
        return open_session(part, 1, True, ["CPUExecutionProvider"])

    def profile(self, compiled: CompiledPart) -> int:
        return sum(roofline_ns(*work, self.roofline)[0] for work in compiled.part.work)

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        assert isinstance(compiled, SessionPart)
        return run_session(compiled, feeds)
