"""The devices of a scenario, ready to compile and run, including one that exists only as numbers.

Scenario --open_devices--> (Device or None, ...), None for a host that computes nothing
Scenario --accepting-----> their refusals, without opening them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from dsa_sched.devices.device import Array, CompiledPart, Device
from dsa_sched.devices.onnxruntime_device import SessionPart, open_session, run_session
from dsa_sched.placement.model import scenario as said
from dsa_sched.placement.model.from_onnx import TaskModel, TaskPart
from dsa_sched.placement.model.pricing import Accepts, roofline_ns
from dsa_sched.placement.model.scenario import Roofline, Scenario
from dsa_sched.placement.model.task_graph import Task
from hw_models.loading import load_chip


@dataclass(frozen=True)
class RooflineSimulator:
    """Runs the layers of a part in sequence, each for the time of its roofline."""

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


def open_devices(scenario: Scenario) -> tuple[Device | None, ...]:
    """Devices in the order of the scenario. Raises PlacementError for a device that this machine does not have."""
    return tuple(map(_opened, scenario.devices))


def accepting(tasks: TaskModel) -> Accepts:
    """Function that tells which tasks of a model devices accept, as far as that shows without compiling and on any
    machine: only chips refuse this early, by what their targets compute.
    """
    known: dict[tuple[str, str], str | None] = {}
    chip_of = cache(load_chip)
    part_of = cache(tasks.part)

    def accepts(task: Task, described: said.Device) -> str | None:
        if not isinstance(described, said.ChipDevice):
            return None
        from dsa_sched.devices.chip_device import refusal  # the frontend of their compiler

        chip, part = chip_of(described.chip), part_of(task)
        key = chip.hash, part.hash
        if key not in known:
            known[key] = refusal(part, chip)
        return known[key]

    return accepts


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
