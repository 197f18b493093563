"""The frame of placement: text forms, the simulator against its independent check, errors."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.lab.readers.schedules import parse_schedule, parse_task_graph
from dsa_sched.placement.methods.coarsening import coarse, expanded
from dsa_sched.placement.methods.registry import Search, find_method
from dsa_sched.placement.model.problem import CostTable, Machine, Problem, Route
from dsa_sched.placement.model.task_graph import Task, TaskGraph, TaskValue, grouped, verify_task_graph
from dsa_sched.placement.schedule.schedule import Schedule, TaskPlacement, TaskRun, verify_schedule
from dsa_sched.placement.schedule.simulate import simulate
from hw_models.errors import PlacementError
from tests.dsa_sched.placement.random_placements import random_placement
from tests.placement_problems import random_problem, random_task_graph

FIELDS = ("task", "machine", "stream", "start_ns", "end_ns")


@pytest.mark.parametrize("seed", range(20))
def test_text_forms_round_trip(seed: int) -> None:
    problem = random_problem(seed, contended=bool(seed % 2), streams=2)
    schedule = simulate(problem, random_placement(problem, seed, staged=bool(seed % 3)))
    assert parse_task_graph(str(problem.graph)) == problem.graph
    assert parse_schedule(str(schedule)) == schedule


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("contended", [False, True])
@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_what_is_simulated_is_a_sound_schedule(seed: int, streams: int, contended: bool, staged: bool) -> None:
    problem = random_problem(seed, 12, 3, streams, contended=contended, refusing=True)
    schedule = simulate(problem, random_placement(problem, seed, staged=staged))
    verify_schedule(schedule, problem)
    assert bool(schedule.stages) is staged


@pytest.mark.parametrize("seed", range(20))
def test_one_machine_may_contend_and_another_not(seed: int) -> None:
    """What comes from streams that slow each other down arrives between nanoseconds; work elsewhere takes no less and
    no more for that."""
    problem = random_problem(seed, 20, 3, 3, contended=True)
    machines = tuple(replace(machine, streams=1) for machine in problem.machines[:2])
    problem = Problem(problem.graph, replace(problem.costs, machines=(*machines, problem.machines[2])))
    verify_schedule(simulate(problem, random_placement(problem, seed)), problem)


def chain(*work_ns: tuple[int, int], size_bytes: int = 100, shares: tuple[float, ...] = ()) -> Problem:
    """Tasks in a row on two machines with 10 ns latency and 1 byte a ns; with shares, side by side on two streams."""
    names = [f"t{number}" for number in range(len(work_ns))]
    values = tuple(TaskValue(f"v{number}", a, (b,), size_bytes) for number, (a, b) in enumerate(pairwise(names)))
    graph = TaskGraph("chain", tuple(map(Task, names)), () if shares else values)
    routes = (Route("a", "b", 10, 10**9, "bus"), Route("b", "a", 10, 10**9, "bus"))
    machines = (Machine("a", 2 if shares else 1), Machine("b"))
    parts = tuple(((share,), (share,)) for share in shares)
    return Problem(graph, CostTable(machines, routes, work_ns, parts))


def test_a_value_travels_for_latency_and_bytes() -> None:
    schedule = simulate(chain((5, 7), (5, 7)), TaskPlacement((0, 1), (0, 0), (0, 1)))
    assert [(run.start_ns, run.end_ns) for run in schedule.runs] == [(0, 5), (115, 122)]
    assert [(copy.start_ns, copy.end_ns) for copy in schedule.copies] == [(5, 115)]


def test_streams_that_ask_for_too_much_slow_each_other_down() -> None:
    """Shares of 0.75 and 0.5 make 1.25: 100 ns each take 125, then the rest of the longer one runs alone."""
    problem = chain((100, 1), (200, 1), shares=(0.75, 0.5))
    schedule = simulate(problem, TaskPlacement((0, 0), (0, 1), (0, 1)))
    assert [(run.task, run.end_ns) for run in schedule.runs] == [("t0", 125), ("t1", 225)]


def test_a_stage_waits_for_the_one_before() -> None:
    problem = chain((100, 1), (200, 1), shares=(0.1, 0.1))
    schedule = simulate(problem, TaskPlacement((0, 0), (0, 1), (0, 1), (0, 1)))
    assert [(run.start_ns, run.end_ns) for run in schedule.runs] == [(0, 100), (100, 300)]
    assert schedule.stages == (("t0",), ("t1",))


def test_barriers_are_for_several_streams() -> None:
    """Three stages of a task, two and one: only the middle one has streams to wait for."""
    names = [f"t{number}" for number in range(4)]
    graph = TaskGraph("apart", tuple(map(Task, names)), ())
    problem = Problem(graph, CostTable((Machine("a", 2, stage_ns=30),), (), ((100,), (10,), (20,), (5,))))
    schedule = simulate(problem, TaskPlacement((0,) * 4, (0, 0, 1, 0), (0, 1, 2, 3), (0, 1, 1, 2)))
    assert [(run.start_ns, run.end_ns) for run in schedule.runs] == [(0, 100), (100, 110), (100, 120), (150, 155)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"task": "t1", "start_ns": 0, "end_ns": 7}, "v0 on b first"),
        ({"task": "t1", "start_ns": 115, "end_ns": 120}, "7 ns of work"),
        ({"task": "t0", "start_ns": 0, "end_ns": 122, "machine": "c"}, "a device and stream"),
    ],
)
def test_unsound_schedules_are_found(wrong: dict[str, object], said: str) -> None:
    problem = chain((5, 7), (5, 7))
    text = str(simulate(problem, TaskPlacement((0, 1), (0, 0), (0, 1))))
    good = parse_schedule(text)
    run = good.run_of[str(wrong["task"])]
    changed = {
        name: wrong.get(name, getattr(run, name)) for name in ("task", "machine", "stream", "start_ns", "end_ns")
    }
    runs = tuple(type(run)(**changed) if other is run else other for other in good.runs)  # type: ignore[arg-type]
    with pytest.raises(PlacementError, match=said):
        verify_schedule(Schedule(good.graph, good.machines, runs, good.copies), problem)


def test_groups_keep_what_crosses_them() -> None:
    graph = random_task_graph(3, 8)
    everything = grouped(graph, [range(len(graph.tasks))])
    assert len(everything.tasks) == 1
    assert everything.values == ()
    assert sum(task.macs for task in graph.tasks) == everything.tasks[0].macs


def test_a_group_that_waits_for_itself_is_refused() -> None:
    graph = chain((1, 1), (1, 1), (1, 1)).graph
    with pytest.raises(PlacementError, match="leads back in"):
        grouped(graph, [(0, 2), (1,)])


def test_tasks_that_no_device_accepts_are_named() -> None:
    problem = chain((-1, -1), (5, 5))
    with pytest.raises(PlacementError, match="tasks t0: needs a device that accepts them; has none of a, b"):
        find_method("single")(problem, Search())


def test_tasks_that_share_a_name_are_named() -> None:
    graph = chain((5, 7), (5, 7)).graph
    with pytest.raises(PlacementError, match=rf"unique names of tasks and of values; has {graph.tasks[0].name} twice"):
        verify_task_graph(replace(graph, tasks=(*graph.tasks, graph.tasks[0])))


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(PlacementError, match="one of single"):
        find_method("magic")


@pytest.mark.parametrize("seed", range(10))
def test_a_placement_of_groups_is_one_of_their_tasks(seed: int) -> None:
    """Neighbours in the order of the graph in groups of three: none can lead back into itself."""
    problem = random_problem(seed, 12, 3, 2, contended=bool(seed % 2))
    count = len(problem.graph.tasks)
    groups = [(0,), *(tuple(range(a, min(a + 3, count - 1))) for a in range(1, count - 1, 3)), (count - 1,)]
    found = coarse(problem, groups)
    placement = random_placement(found.problem, seed)
    verify_schedule(simulate(problem, expanded(found, placement)), problem)
    whole = simulate(found.problem, placement)
    assert sum(run.end_ns - run.start_ns for run in whole.runs) > 0
    if not seed % 2:
        finer = simulate(problem, expanded(found, placement))
        works = [sum(run.end_ns - run.start_ns for run in schedule.runs) for schedule in (whole, finer)]
        assert works[0] == works[1]


@pytest.mark.parametrize("seed", range(8))
def test_a_schedule_without_its_barriers_is_found(seed: int) -> None:
    problem = random_problem(seed, 12, 1, 4)
    slow = tuple(replace(machine, stage_ns=500) for machine in problem.machines)
    honest = replace(problem, costs=replace(problem.costs, machines=slow))
    placement = random_placement(problem, seed, staged=True)
    verify_schedule(simulate(honest, placement), honest)
    if simulate(honest, placement) != simulate(problem, placement):
        with pytest.raises(PlacementError, match="a start after"):
            verify_schedule(simulate(problem, placement), honest)
    else:
        assert all(len({run.stream for run in stage_runs(honest, placement, n)}) < 2 for n in range(len(slow)))


def stage_runs(problem: Problem, placement: TaskPlacement, stage: int) -> list[TaskRun]:
    schedule = simulate(problem, placement)
    return [schedule.run_of[task] for task in schedule.stages[stage]]


@pytest.mark.parametrize("seed", range(8))
def test_a_schedule_without_contention_is_found(seed: int) -> None:
    honest = random_problem(seed, 12, 1, 4, contended=True)
    free = replace(honest, costs=replace(honest.costs, shares=()))
    placement = random_placement(honest, seed)
    verify_schedule(simulate(honest, placement), honest)
    assert simulate(honest, placement) != simulate(free, placement)
    with pytest.raises(PlacementError, match="beside the other streams"):
        verify_schedule(simulate(free, placement), honest)
