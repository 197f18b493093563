"""The devices of a scenario, ready to compile and run, including one that exists only as numbers.

Scenario --open_devices--> (Device or None, ...), None for a host that computes nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from dsa_sched.devices.device import Array, CompiledPart, Device
from dsa_sched.devices.onnxruntime_device import SessionPart, open_session, run_session
from dsa_sched.placement.model import scenario as said
from dsa_sched.placement.model.from_onnx import TaskPart
from dsa_sched.placement.model.pricing import roofline_group_ns
from dsa_sched.placement.model.scenario import Roofline, Scenario


@dataclass(frozen=True)
class RooflinePart:
    """A part whose session is opened when it is run."""

    part: TaskPart

    @cached_property
    def session(self) -> SessionPart:
        return open_session(self.part, 1, True, ["CPUExecutionProvider"])


@dataclass(frozen=True)
class RooflineSimulator:
    """Computes by onnxruntime; a part takes what `roofline_group_ns` says."""

    name: str
    roofline: Roofline
    simulated: bool = True
    launch_ns: int = 0
    own_thread: bool = False

    @property
    def identity(self) -> str:
        return f"roofline {self.roofline.model_dump_json()}"

    @property
    def time_source(self) -> str:
        return "roofline"

    def accepts(self, part: TaskPart) -> str | None:  # noqa: ARG002 - one protocol
        return None

    def compile(self, part: TaskPart) -> CompiledPart:
        return RooflinePart(part)

    def profile(self, compiled: CompiledPart) -> int:
        return roofline_group_ns(compiled.part.work, self.roofline)[0]

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        assert isinstance(compiled, RooflinePart)
        return run_session(compiled.session, feeds)


def open_devices(scenario: Scenario) -> tuple[Device | None, ...]:
    """Devices in the order of the scenario. Raises PlacementError for a device that this machine does not have."""
    return tuple(map(_opened, scenario.devices))


def open_chips(scenario: Scenario) -> tuple[Device | None, ...]:
    """The chips among the devices, which are simulated and so are there on any machine; None for the others."""
    return tuple(_opened(device) if isinstance(device, said.ChipDevice) else None for device in scenario.devices)


def _opened(described: said.Device) -> Device | None:
    """Only the compiler of a device that is asked for is imported: some take a second."""
    match described:
        case said.HostDevice():
            return None
        case said.OnnxruntimeDevice():
            from dsa_sched.devices.onnxruntime_device import OnnxruntimeCpu

            return OnnxruntimeCpu(described.name, described.threads, described.optimise)
        case said.TvmDevice():
            from dsa_sched.devices.tvm_device import TvmCpu

            return TvmCpu(described.name, described.mcpu)
        case said.CudaDevice():
            from dsa_sched.devices.cuda_device import CudaGpu

            return CudaGpu(described.name, described.index, described.graphs)
        case said.ChipDevice():
            from dsa_sched.devices.chip_device import ChipCluster

            return ChipCluster(described.name, described.chip, described.level, described.launch_us)
        case said.RooflineDevice():
            return RooflineSimulator(described.name, described.roofline)
