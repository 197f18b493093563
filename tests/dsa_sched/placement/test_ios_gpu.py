"""The model of a GPU: what it must say whatever its numbers are, and the paper's rule of merging."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.lab.ios.gpu import V100, V100_HALF, gpu_problem, merged_kernel
from benchmarks.lab.ios.network import Kernel, Operator, Slice
from benchmarks.lab.ios.schema import load_network
from benchmarks.lab.ios.tasks import task_parts
from dsa_sched.placement.ios.costs import StageContention
from dsa_sched.placement.ios.search import BOTH, MERGE, PARALLEL, search_stages
from dsa_sched.placement.methods.registry import Search, find_method
from dsa_sched.placement.model.problem import verify_problem
from dsa_sched.placement.schedule.schedule import verify_schedule

INPUT = ((Slice("x", 0, 16),),)


def conv(name: str, kernel: tuple[int, int] = (3, 3), channels: int = 8, **changes: object) -> Operator:
    padding = kernel[0] // 2, kernel[1] // 2
    made = Kernel(name, "conv", INPUT, (channels, 10, 10), kernel, (1, 1), padding, relu=True)
    return Operator(name, (replace(made, **changes),), made.output_shape)  # type: ignore[arg-type]


def test_merged_convolutions_have_the_largest_window_and_all_channels() -> None:
    merged = merged_kernel([conv("a", (1, 3)), conv("b", (3, 1), 5), conv("c", (1, 1), 3)])
    assert merged is not None
    assert (merged.kernel, merged.padding, merged.output_shape) == ((3, 3), (1, 1), (16, 10, 10))
    assert merged.macs == 16 * 100 * 16 * 9


@pytest.mark.parametrize(
    "other",
    [
        conv("b", inputs=((Slice("y", 0, 16),),)),
        conv("b", inputs=((Slice("x", 0, 8),),)),
        conv("b", relu=False),
        conv("b", stride=(2, 2)),
        conv("b", groups=2),
        conv("b", output_shape=(8, 9, 10)),
        conv("b", padding=(0, 0)),
        conv("b", kind="max"),
        Operator("b", (*conv("b1").kernels, *conv("b2").kernels), (8, 10, 10)),
    ],
)
def test_the_rule_of_merging(other: Operator) -> None:
    assert merged_kernel([conv("a"), other]) is None
    assert merged_kernel([other, conv("a")]) is None


def test_sums_and_concatenations_do_not_merge() -> None:
    for inputs in (((Slice("x", 0, 8), Slice("y", 0, 8)),), ((Slice("x", 0, 8),), (Slice("y", 0, 8),))):
        assert merged_kernel([conv("a", inputs=inputs), conv("b", inputs=inputs)]) is None


@pytest.mark.parametrize("gpu", [V100, V100_HALF])
@pytest.mark.parametrize("name", ["squeezenet", "inception_v3"])
def test_larger_batches_take_longer_and_less_an_image(name: str, gpu: object) -> None:
    network = load_network(name)
    times = []
    for batch in (1, 4, 16, 64):
        problem = gpu_problem(network, batch, gpu)  # type: ignore[arg-type]
        verify_problem(problem)
        times.append((batch, find_method("sequential")(problem, Search()).makespan_ns))
    assert all(late >= early for (_, early), (_, late) in pairwise(times))
    assert all(late / b < early / a for (a, early), (b, late) in pairwise(times))


def test_streams_gain_while_kernels_are_small() -> None:
    """Near nothing is left to gain when every kernel fills the GPU."""
    network = load_network("inception_v3")
    gains = []
    for batch in (1, 128):
        problem = gpu_problem(network, batch)
        found = {name: find_method(name)(problem, Search()).makespan_ns for name in ("sequential", "ios")}
        gains.append(found["sequential"] / found["ios"])
    assert gains[0] > 1.2 > gains[1] >= 1


@pytest.mark.parametrize("name", ["squeezenet", "inception_v3", "randwire_large", "nasnet_large"])
def test_ios_on_the_papers_networks(name: str) -> None:
    """Sound schedules; both kinds of stages are no worse than one, the search no worse than its baselines."""
    network = load_network(name)
    problem = gpu_problem(network)
    found = {}
    for kind in (PARALLEL, MERGE, BOTH):
        found[kind.name] = search_stages(problem, StageContention(problem, 0), task_parts(network), V100.streams, kind)
    baselines = {method: find_method(method)(problem, Search()).makespan_ns for method in ("sequential", "greedy")}
    cost = {kind: search.cost_ns for kind, search in found.items()}
    assert cost["ios-both"] <= min(cost["ios"], cost["ios-merge"]) + 1e-3
    assert cost["ios-merge"] <= baselines["sequential"] + 1e-3
    assert cost["ios"] <= min(baselines.values()) + 1e-3


def test_merged_schedules_are_sound() -> None:
    problem = gpu_problem(load_network("squeezenet"))
    outcome = find_method("ios-merge")(problem, Search())
    verify_schedule(outcome.schedule, outcome.problem)
    merged = [task for task in outcome.problem.graph.tasks if len(task.nodes) > 2]
    assert merged
    assert len(outcome.problem.graph.tasks) < len(problem.graph.tasks)
    assert len(outcome.problem.graph.values) == len(problem.graph.values)
