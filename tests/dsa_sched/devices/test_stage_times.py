"""Stages timed on a device: what is run beside what, and that the search takes these times."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from benchmarks.lab.ios.gpu import gpu_problem
from benchmarks.lab.ios.network import Network
from benchmarks.lab.ios.onnx_file import onnx_model
from benchmarks.lab.ios.schema import load_network
from benchmarks.lab.ios.stage_times import StageTimes
from benchmarks.lab.ios.tasks import task_graph
from dsa_sched.devices.cuda_device import BoundPart, bound
from dsa_sched.devices.device import Array, CompiledPart, drawn_feeds
from dsa_sched.devices.onnxruntime_device import OnnxruntimeCpu, SessionPart
from dsa_sched.devices.opening import RooflineSimulator
from dsa_sched.placement.ios.costs import StreamStage
from dsa_sched.placement.ios.search import PARALLEL, search_stages
from dsa_sched.placement.ios.space import SearchLimits
from dsa_sched.placement.model.from_onnx import TaskModel, TaskPart, task_model_of
from dsa_sched.placement.model.scenario import Roofline
from hw_models.errors import PlacementError


def first_block() -> tuple[Network, TaskModel]:
    """SqueezeNet's second block with the layers before it: convolution, pooling, and a diamond of six."""
    whole = load_network("squeezenet")
    network = replace(whole, operators=whole.operators[:8], parts=whole.parts[:2])
    return network, replace(task_model_of(onnx_model(network)), graph=task_graph(network))


@dataclass
class Recorder:
    """A device that says which part ran in which thread, in order."""

    name: str = "recorder"
    simulated: bool = False
    own_thread: bool = True
    identity: str = "recorder"
    time_source: str = "its word"
    launch_ns: int = 0
    ran: list[tuple[str, int]] = field(default_factory=list)

    def accepts(self, part: TaskPart) -> str | None:  # noqa: ARG002 - one protocol
        return None

    def compile(self, part: TaskPart) -> CompiledPart:
        return Whole(part)

    def profile(self, compiled: CompiledPart) -> int:  # noqa: ARG002 - one protocol
        return 1

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        assert set(feeds) == set(compiled.part.inputs)
        self.ran.append((compiled.part.task, threading.get_ident()))
        return {}


@dataclass(frozen=True)
class Whole:
    part: TaskPart


def test_groups_run_in_threads_of_their_own_and_in_order() -> None:
    _, model = first_block()
    device = Recorder()
    times = StageTimes(model, device, 2)
    assert times.stage_ns(StreamStage(((4, 6), (7,)))) > 0
    threads = dict(device.ran)
    assert threads["4"] == threads["6"] != threads["7"]
    first = [task for task, _ in device.ran if task != "7"]
    assert first == ["4", "6"] * (len(first) // 2)
    times.close()


def test_a_stage_is_timed_once() -> None:
    _, model = first_block()
    device = Recorder()
    times = StageTimes(model, device, 2)
    taken = times.stage_ns(StreamStage(((4,), (7,))))
    runs = len(device.ran)
    assert times.stage_ns(StreamStage(((7,), (4,)), last=True)) == taken
    assert len(device.ran) == runs
    times.close()


def test_the_search_takes_measured_times() -> None:
    network, model = first_block()
    times = StageTimes(model, OnnxruntimeCpu("cpu"), 2)
    problem = gpu_problem(network)
    parts = tuple(tuple(place + 1 for place in part) for part in network.parts)
    found = search_stages(problem, times, parts, 2, PARALLEL, SearchLimits(3, 8))
    assert found.cost_ns == sum(times.stage_ns(stage) for stage in found.stages)
    assert found.priced <= len(times.times) + 8
    times.close()


class Resident(OnnxruntimeCpu):
    """A device on which inputs and outputs have fixed places."""

    def compile(self, part: TaskPart) -> CompiledPart:
        compiled = super().compile(part)
        assert isinstance(compiled, SessionPart)
        return bound(compiled, "cpu", 0)


def test_values_with_fixed_places_are_not_copied() -> None:
    _, model = first_block()
    device = Resident("cpu")
    compiled = device.compile(model.part(model.graph.tasks[4]))
    assert isinstance(compiled, BoundPart)
    first = compiled.run(drawn_feeds(compiled.part))
    compiled.again()
    for name, place in compiled.outputs.items():
        np.testing.assert_array_equal(place.numpy(), first[name])
    times = StageTimes(model, device, 2)
    assert times.stage_ns(StreamStage(((4, 6), (7,)))) > 0
    times.close()


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        (StreamStage(((4, 7),), merged=True), "merged operators: needs a model of the merged operator"),
        (StreamStage(((4,), (5,), (6,))), "a stage: needs at most 2 groups; has 3"),
    ],
)
def test_stages_that_cannot_be_timed(stage: StreamStage, said: str) -> None:
    _, model = first_block()
    with pytest.raises(PlacementError, match=said):
        StageTimes(model, Recorder(), 2).stage_ns(stage)


def test_simulated_devices_are_not_timed() -> None:
    _, model = first_block()
    simulator = RooflineSimulator("paper", Roofline(flops_per_second=1e9, bytes_per_second=1e9))
    with pytest.raises(PlacementError, match="device paper: needs time that passes on the wall; has a simulator"):
        StageTimes(model, simulator, 2)
