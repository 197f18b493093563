"""Segments between cuts: where they end, that each takes what it takes whatever the others do, and what it is for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsa_sched.placement.methods.exact import exact
from dsa_sched.placement.methods.registry import Search
from dsa_sched.placement.methods.search_space import DecoderSpace, random_state
from dsa_sched.placement.methods.segments import cuts
from dsa_sched.placement.methods.sphinx import CRITICAL, Sphinx, sphinx
from dsa_sched.placement.model.problem import NOT_ACCEPTED, CostTable, Machine, Problem, Route
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, Task, TaskGraph, TaskValue


def row_of_forks(forks: int, ways: int = 3, skip: tuple[str, str] | None = None) -> TaskGraph:
    """After each fork tasks side by side, which the next one joins; `skip` is an edge more."""
    readers: dict[str, list[str]] = {INPUTS: ["f0"]}
    for fork in range(forks):
        beside = [f"f{fork} w{way}" for way in range(ways)]
        readers[f"f{fork}"] = beside
        readers |= {name: [f"f{fork + 1}"] for name in beside}
    readers[f"f{forks}"] = [OUTPUTS]
    if skip is not None:
        readers[skip[0]].append(skip[1])
    values = [TaskValue(f"{name} out", name, tuple(after), 500) for name, after in readers.items()]
    return TaskGraph("forks", (*map(Task, readers), Task(OUTPUTS)), tuple(values))


def drawn_problem(graph: TaskGraph, seed: int, machines: int, streams: int) -> Problem:
    """Work drawn for each machine; all values on one wire, or on one for each way."""
    rng = np.random.default_rng(seed)
    names = [f"m{number}" for number in range(machines)]
    host = (0, *[NOT_ACCEPTED] * (machines - 1))
    work = tuple(host if task.is_end else tuple(map(int, rng.integers(50, 1000, machines))) for task in graph.tasks)
    routes = tuple(Route(a, b, 40, 10**10, "bus" if seed % 2 else f"{a} {b}") for a in names for b in names if a != b)
    return Problem(graph, CostTable(tuple(Machine(name, streams) for name in names), routes, work))


def names_of_cuts(graph: TaskGraph) -> list[str]:
    return [graph.tasks[task].name for task in cuts(graph)]


def test_a_network_is_cut_where_all_ways_meet() -> None:
    assert names_of_cuts(row_of_forks(2)) == [INPUTS, "f0", "f1", "f2", OUTPUTS]


def test_a_value_that_goes_past_a_task_leaves_no_cut_there() -> None:
    assert names_of_cuts(row_of_forks(3, skip=("f0 w1", "f2"))) == [INPUTS, "f0", "f2", "f3", OUTPUTS]
    assert names_of_cuts(row_of_forks(2, skip=(INPUTS, OUTPUTS))) == [INPUTS, OUTPUTS]


def test_a_task_that_reads_nothing_may_run_before_a_cut() -> None:
    graph = row_of_forks(2)
    made = TaskValue("c out", "c", ("f2",), 4)
    before, after = graph.tasks[:5], graph.tasks[5:]
    assert names_of_cuts(TaskGraph("own", (*before, Task("c"), *after), (*graph.values, made)))[0] == "f2"


@pytest.mark.parametrize("seed", range(6))
def test_a_segment_takes_the_same_in_any_network_that_enters_it_on_the_same_device(seed: int) -> None:
    problem = drawn_problem(row_of_forks(5), seed, 3, 1 + seed % 3)
    space, last = DecoderSpace.of(problem), cuts(problem.graph)
    genes, priorities = space.random(40, random_state(Search(seed)))
    _, _, ends = space.decoder.watch(genes, priorities, last, paths=False)
    compared = 0
    for one, other in zip(range(20), range(20, 40), strict=True):
        for segment in range(1, len(last)):
            if genes[one, last[segment - 1]] != genes[other, last[segment - 1]]:
                continue
            own = slice(last[segment - 1] + 1, last[segment] + 1)
            gene, priority = genes[[one]], priorities[[one]]
            gene[0, own], priority[0, own] = genes[other, own], priorities[other, own]
            _, _, mixed = space.decoder.watch(gene, priority, last, paths=False)
            assert mixed[0, segment] - mixed[0, segment - 1] == ends[other, segment] - ends[other, segment - 1]
            compared += 1
    assert compared > 20


@pytest.mark.spread(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.commit
def test_a_row_of_segments_is_solved_by_few_evaluations(seed: int, listed: bool) -> None:
    """As many as find the best of one segment, although there are ten; without segments they are not enough."""
    problem = drawn_problem(row_of_forks(10), seed, 2, 1)
    best = exact(problem, Search()).makespan_ns
    few = Search(seed, 1000)
    with_segments = sphinx(problem, few, Sphinx(listed=listed))
    without = sphinx(problem, few, Sphinx(replace(CRITICAL, segment_share=0.0), listed=listed))
    assert with_segments.makespan_ns == best
    assert with_segments.makespan_ns <= without.makespan_ns


def test_devices_that_are_alike_share_what_is_known() -> None:
    """Three equal devices: found on one, a segment is as good on the others. The search ends at the proven best."""
    graph = row_of_forks(6)
    drawn = drawn_problem(graph, 1, 4, 1)
    alike = tuple((row[0], *[row[1]] * 3) for row in drawn.costs.work_ns)
    costs = CostTable(drawn.machines, drawn.costs.routes, alike)
    problem = Problem(graph, costs)
    found = sphinx(problem, Search(3, 2000))
    assert found.makespan_ns == exact(problem, Search()).makespan_ns
