"""The devices of a scenario, ready to compile and run.

Scenario --open_devices--> (Device or None, ...), None for a host that computes nothing
Scenario --accepting-----> what they refuse that need not be there to say so
"""

from __future__ import annotations

from functools import cache

from dsa_sched.devices.device import Device
from dsa_sched.placement.model import scenario as said
from dsa_sched.placement.model.from_onnx import TaskModel
from dsa_sched.placement.model.pricing import Accepts
from dsa_sched.placement.model.scenario import Scenario
from dsa_sched.placement.model.task_graph import Task
from hw_models.loading import load_chip


def open_devices(scenario: Scenario) -> tuple[Device | None, ...]:
    """In the order of the scenario. Raises PlacementError for a device that this machine does not have."""
    return tuple(map(_opened, scenario.devices))


def accepting(tasks: TaskModel) -> Accepts:
    """What devices accept of the tasks of a model, as far as that shows without compiling and on any machine: chips
    alone refuse so early, each what its target does."""
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
            from dsa_sched.devices.roofline_device import RooflineSimulator

            return RooflineSimulator(described.name, described.roofline)
