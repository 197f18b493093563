"""A device that exists in numbers only: time is its roofline's, values come from onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsa_sched.devices.device import Array, Compiled
from dsa_sched.devices.onnxruntime_device import SessionPart, open_session, run_session
from dsa_sched.placement.model.from_onnx import Part
from dsa_sched.placement.model.pricing import roofline_ns
from dsa_sched.placement.model.scenario import Roofline

__all__ = ["RooflineSimulator"]


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

    def accepts(self, part: Part) -> str | None:  # noqa: ARG002 - one protocol
        return None

    def compile(self, part: Part) -> Compiled:
        return open_session(part, 1, True, ["CPUExecutionProvider"])

    def profile(self, compiled: Compiled) -> int:
        return sum(roofline_ns(*work, self.roofline)[0] for work in compiled.part.work)

    def run(self, compiled: Compiled, feeds: Mapping[str, Array]) -> dict[str, Array]:
        assert isinstance(compiled, SessionPart)
        return run_session(compiled, feeds)
