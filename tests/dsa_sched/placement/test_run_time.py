"""The run-time: real threads, tasks that are Python functions, every way in which a run can end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.model.task_graph import INPUTS
from dsa_sched.placement.schedule.run_time import Executor
from dsa_sched.placement.schedule.schedule import TaskPlacement
from dsa_sched.placement.schedule.simulate import simulate
from hw_models.errors import PlacementError
from tests.dsa_sched.placement.random_placements import random_placement
from tests.placement_problems import random_problem

Array = npt.NDArray[Any]
Tasks = dict[int, Callable[[Mapping[str, Array]], Mapping[str, Array]]]


def tasks_of(problem: Problem) -> Tasks:
    """Each value is the sum of what its task reads, times a number of its own."""

    def run(task: int, reads: Mapping[str, Array]) -> dict[str, Array]:
        total = sum(reads.values(), np.ones(3)) % 97
        return {problem.graph.values[value].name: total * (value + 2) for value in problem.graph.writes[task]}

    return {number: partial(run, number) for number, task in enumerate(problem.graph.tasks) if not task.is_end}


def feeds_of(problem: Problem) -> dict[str, Array]:
    return {value.name: np.arange(3.0) for value in problem.graph.values if value.producer == INPUTS}


def alone(problem: Problem) -> dict[str, Array]:
    """What the network gives out, one task after the other."""
    values: dict[str, Array] = feeds_of(problem)
    for number, run in tasks_of(problem).items():
        values |= run({problem.graph.values[value].name: values[problem.graph.values[value].name]
                       for value in problem.graph.reads[number]})  # fmt: skip
    last = problem.graph.reads[-1]
    return {problem.graph.values[value].name: values[problem.graph.values[value].name] for value in last}


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_any_placement_gives_the_same_results(seed: int, streams: int, staged: bool) -> None:
    problem = random_problem(seed, 12, 3, streams)
    placement = random_placement(problem, seed, staged=staged)
    expected = alone(problem)
    with Executor(problem, placement, tasks_of(problem)) as workers:
        for _ in range(5):
            found = workers.run(feeds_of(problem))
            assert found.outputs.keys() == expected.keys()
            for name, array in expected.items():
                np.testing.assert_array_equal(found.outputs[name], array)
    schedule = found.schedule
    assert {run.task for run in schedule.runs} == set(problem.graph.number)
    assert {(copy.value, copy.target) for copy in schedule.copies} == {
        (copy.value, copy.target) for copy in simulate(problem, placement).copies
    }
    assert_possible(problem, placement, found.schedule.run_of, staged)


def assert_possible(problem: Problem, placement: TaskPlacement, run_of: Mapping[str, Any], staged: bool) -> None:
    """Producers before consumers, one task at a time a stream, stages one after the other."""
    graph = problem.graph
    for task, before in enumerate(graph.predecessors):
        for other in before:
            assert run_of[graph.tasks[other].name].end_ns <= run_of[graph.tasks[task].name].start_ns
    streams: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for name, run in run_of.items():
        if not graph.tasks[graph.number[name]].is_end:
            streams.setdefault((run.machine, run.stream), []).append((run.start_ns, run.end_ns))
    for spans in streams.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    if staged and placement.stage is not None:
        for task, stage in enumerate(placement.stage):
            for other, later in enumerate(placement.stage):
                if stage < later:
                    names = graph.tasks[task].name, graph.tasks[other].name
                    assert run_of[names[0]].end_ns <= run_of[names[1]].start_ns


def test_devices_work_at_the_same_time() -> None:
    """Two tasks on two devices that each wait until the other one has begun."""
    problem = random_problem(0, 2, 2)
    first, second = (number for number, task in enumerate(problem.graph.tasks) if not task.is_end)
    if second in problem.graph.successors[first]:
        pytest.fail("the tasks of this seed are independent")
    both = threading.Barrier(2, timeout=30)
    tasks = tasks_of(problem)

    def meeting(run: Callable[[Mapping[str, Array]], Mapping[str, Array]]) -> Callable[..., Mapping[str, Array]]:
        def inner(reads: Mapping[str, Array]) -> Mapping[str, Array]:
            both.wait()
            return run(reads)

        return inner

    met: Tasks = {number: meeting(run) for number, run in tasks.items()}
    with Executor(problem, TaskPlacement((0, 0, 1, 0), (0,) * 4, (0, 1, 2, 3)), met) as workers:
        assert workers.run(feeds_of(problem)).outputs.keys() == alone(problem).keys()


def failing_at(problem: Problem, task: int, ran: list[int]) -> Tasks:
    def watched(number: int, run: Callable[[Mapping[str, Array]], Mapping[str, Array]]) -> Any:
        def inner(reads: Mapping[str, Array]) -> Mapping[str, Array]:
            if number == task and not ran.count(-1):
                raise RuntimeError("out of paper")
            ran.append(number)
            return run(reads)

        return inner

    return {number: watched(number, run) for number, run in tasks_of(problem).items()}


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_device_that_fails_stops_the_run(seed: int, staged: bool) -> None:
    """The error names device and task; nothing that depends on the task runs; the next run is whole again."""
    problem = random_problem(seed, 12, 3)
    placement = random_placement(problem, seed, staged=staged)
    task = 4
    ran: list[int] = []
    before = threading.active_count()
    with Executor(problem, placement, failing_at(problem, task, ran)) as workers:
        device = problem.machines[placement.machine[task]].name
        name = problem.graph.tasks[task].name
        with pytest.raises(PlacementError, match=f"task {name} on device {device}: .*RuntimeError: out of paper"):
            workers.run(feeds_of(problem))
        assert not set(ran) & set(problem.graph.successors[task])
        ran.append(-1)
        for name, array in alone(problem).items():
            np.testing.assert_array_equal(workers.run(feeds_of(problem)).outputs[name], array)
    assert threading.active_count() == before


@pytest.mark.parametrize("task", [1, 4])
def test_a_user_who_stops_the_run_is_obeyed(task: int) -> None:
    problem = random_problem(1, 6, 3)
    tasks = tasks_of(problem)

    def stopped(_reads: Mapping[str, Array]) -> Mapping[str, Array]:
        raise KeyboardInterrupt

    workers = Executor(problem, random_placement(problem, 1), {**tasks, task: stopped})
    with workers, pytest.raises(KeyboardInterrupt):
        workers.run(feeds_of(problem))


def test_a_task_that_does_not_make_its_values_is_named() -> None:
    problem = random_problem(2, 6, 2)
    tasks = tasks_of(problem)
    tasks[3] = lambda _reads: {}
    said = rf"task {problem.graph.tasks[3].name} on device m\d: .*KeyError"
    with Executor(problem, random_placement(problem, 2), tasks) as workers, pytest.raises(PlacementError, match=said):
        workers.run(feeds_of(problem))


def test_an_input_that_is_not_given_is_named() -> None:
    problem = random_problem(2, 6, 2)
    (name,) = feeds_of(problem)
    workers = Executor(problem, random_placement(problem, 2), tasks_of(problem))
    with workers, pytest.raises(PlacementError, match=f"input {name}: needs an array; has arrays for none"):
        workers.run({})


def test_outputs_belong_to_the_caller() -> None:
    """Copies between devices go through buffers that the next run uses again."""
    problem = random_problem(3, 8, 2)
    placement = random_placement(problem, 3)
    with Executor(problem, placement, tasks_of(problem)) as workers:
        first = workers.run(feeds_of(problem)).outputs
        kept = {name: array.copy() for name, array in first.items()}
        workers.run({name: array + 5 for name, array in feeds_of(problem).items()})
        for name, array in first.items():
            np.testing.assert_array_equal(array, kept[name])


def test_simulated_devices_are_accounted_for() -> None:
    """With all machines simulated, the schedule is the predicted one: no time of the wall is in it."""
    problem = random_problem(5, 10, 2)
    placement = random_placement(problem, 5)
    with Executor(problem, placement, tasks_of(problem), [True, True]) as workers:
        found = workers.run(feeds_of(problem))
        assert found.accounted
        assert found.schedule == workers.predicted == simulate(problem, placement)
    with Executor(problem, placement, tasks_of(problem), [False, True]) as workers:
        mixed = workers.run(feeds_of(problem))
        for run in mixed.schedule.runs:
            task = problem.graph.number[run.task]
            if run.machine == "m1":
                assert run.end_ns - run.start_ns == problem.work_ns[task, 1]


def test_unsound_placements_are_refused() -> None:
    problem = random_problem(1, 5, 2)
    with pytest.raises(PlacementError, match="one entry for each of 7 tasks"):
        Executor(problem, TaskPlacement((0,), (0,), (0,)), {})
