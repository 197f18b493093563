"""DUET: phases of hand-made graphs, corrections that the greedy placement needs, joins, fall-back, the price loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from dsa_sched.placement.methods.coarsening import coarse
from dsa_sched.placement.methods.duet import phases
from dsa_sched.placement.methods.large_parts import joined
from dsa_sched.placement.methods.registry import METHODS, Search, find_method
from dsa_sched.placement.model.problem import NOT_ACCEPTED, CostTable, Machine, Problem, Route, regrouped
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, Task, TaskGraph, TaskValue
from dsa_sched.placing.place import place
from tests.placement_problems import random_problem

Ways = Mapping[str, str]
"""Task -> the tasks that it reads from, separated by blanks; none: the inputs."""


def graph_of(ways: Ways) -> TaskGraph:
    names = [INPUTS, *ways, OUTPUTS]
    readers: dict[str, list[str]] = {name: [] for name in names}
    for task, before in ways.items():
        for other in before.split() or [INPUTS]:
            readers[other].append(task)
    for name in ways:
        if not readers[name]:
            readers[name].append(OUTPUTS)
    values = tuple(TaskValue(f"of {name}", name, tuple(after), 1000) for name, after in readers.items() if after)
    return TaskGraph("g", tuple(Task(name, (name,) if name in ways else ()) for name in names), values)


def problem_of(ways: Ways, costs: Mapping[str, tuple[int, int]], latency_ns: int = 10) -> Problem:
    """Two machines; values take the latency and 1 ns for each KB."""
    graph = graph_of(ways)
    work = tuple(costs.get(task.name, (0, NOT_ACCEPTED)) for task in graph.tasks)
    routes = tuple(Route(a, b, latency_ns, 10**12, f"{a} to {b}") for a, b in (("a", "b"), ("b", "a")))
    return Problem(graph, CostTable((Machine("a"), Machine("b")), routes, work))


def named(graph: TaskGraph, paths: Sequence[Sequence[int]]) -> list[str]:
    return [" ".join(graph.tasks[task].name for task in path) for path in paths]


@pytest.mark.parametrize(
    ("ways", "found"),
    [
        ({"p": "", "q": "p", "r": "q"}, [["p q r"]]),
        ({"p": "", "q": "p", "r": "p", "s": "q r", "t": "s"}, [["p"], ["q", "r"], ["s t"]]),
        ({"p": "", "q": "", "r": "q", "s": "p r"}, [["p", "q r"], ["s"]]),
        ({"p": "", "q": "p", "r": "p"}, [["p"], ["q", "r"]]),
        # a fork inside a path stays in it; nothing separates the tangle of the last one, so runs are its paths
        ({"p": "", "q": "", "r": "q", "s": "q", "t": "r s", "u": "p t"}, [["p", "q r s t"], ["u"]]),
        ({"p": "", "q": "", "r": "p q", "s": "q", "t": "s"}, [["p", "q", "r", "s t"]]),
    ],
)
def test_phases(ways: Ways, found: list[list[str]]) -> None:
    graph = graph_of(ways)
    assert [named(graph, phase.paths) for phase in phases(graph)] == found


FORK: Ways = {"p": "", "q": "p", "r": "p", "s": "q r"}


def test_paths_go_where_the_phase_ends_soonest() -> None:
    """Both paths are faster on a; the longer one stays, the other one ends sooner on b than after it."""
    problem = problem_of(FORK, {"p": (5, 50), "q": (100, 200), "r": (50, 80), "s": (5, 50)})
    outcome = find_method("duet")(problem, Search())
    machine = {run.task: run.machine for run in outcome.schedule.runs}
    assert machine == {INPUTS: "a", "p": "a", "q": "a", "r": "b", "s": "a", OUTPUTS: "a"}
    assert outcome.makespan_ns == 5 + 100 + 5 + max(0, 11 + 80 + 11 - 100)


def test_corrections_are_judged_end_to_end() -> None:
    """The greedy placement puts q on a, where it is faster by a little, and r on b; swapped, the whole ends sooner."""
    problem = problem_of(FORK, {"p": (1, 500), "q": (100, 101), "r": (90, 200), "s": (1, 500)})
    outcome = find_method("duet")(problem, Search())
    assert {run.task: run.machine for run in outcome.schedule.runs}["r"] == "a"
    assert any("moved" in decision.verdict or "swapped" in decision.verdict for decision in outcome.decisions)


def test_slow_links_leave_everything_on_one_device() -> None:
    problem = problem_of(FORK, {"p": (5, 9), "q": (100, 200), "r": (50, 80), "s": (5, 9)}, latency_ns=10**6)
    outcome = find_method("duet")(problem, Search())
    assert outcome.makespan_ns == 160


def test_devices_that_refuse_tasks_cut_paths() -> None:
    problem = problem_of({"p": "", "q": "p", "r": "q"}, {"p": (5, -1), "q": (-1, 5), "r": (5, -1)})
    outcome = find_method("duet")(problem, Search())
    assert [run.machine for run in outcome.schedule.runs] == ["a", "a", "b", "a", "a"]


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_never_slower_than_one_device_and_deterministic(seed: int, streams: int) -> None:
    problem = random_problem(seed, 9, 3, streams, contended=streams > 1)
    outcome = find_method("duet")(problem, Search())
    assert outcome.makespan_ns <= find_method("single")(problem, Search()).makespan_ns
    assert str(find_method("duet")(problem, Search()).schedule) == str(outcome.schedule)
    assert [best for _, best in outcome.history] == sorted((best for _, best in outcome.history), reverse=True)


def test_a_search_of_few_evaluations_still_places() -> None:
    problem = random_problem(1, 20, 3)
    assert find_method("duet")(problem, Search(evaluations=1)).makespan_ns > 0


class Compilers:
    """Prices by the sums of tasks, but several tasks together take 3 ns less on b for each beyond the first."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.asked: list[tuple[tuple[int, ...], ...]] = []

    def __call__(self, groups: tuple[tuple[int, ...], ...]) -> Problem:
        self.asked.append(groups)
        found = coarse(self.problem, groups)
        rows = [list(row) for row in found.problem.costs.work_ns]
        for row, members in zip(rows, found.members, strict=True):
            if row[1] != NOT_ACCEPTED:
                row[1] -= 3 * (len(members) - 1)
        costs = found.problem.costs
        table = CostTable(costs.machines, costs.routes, tuple(map(tuple, rows)))
        return Problem(found.problem.graph, table, price_groups=regrouped(self, found.members))


def compiled(problem: Problem) -> tuple[Problem, Compilers]:
    """The problem with groups priced by `Compilers`."""
    prices = Compilers(problem)
    return replace(problem, price_groups=prices), prices


def test_compilers_in_the_loop_decide() -> None:
    """By sums a is faster, 40 to 42; compiled as one, b takes 36 and two copies of less than that."""
    problem, _ = compiled(
        problem_of({"p": "", "q": "p", "r": "q"}, {"p": (20, 21), "q": (20, 21), "r": (20, 21)}, latency_ns=0)
    )
    outcome = find_method("duet")(problem, Search())
    assert [task.name for task in outcome.problem.graph.tasks] == [INPUTS, "p (+2)", OUTPUTS]
    assert outcome.schedule.run_of["p (+2)"].machine == "b"
    assert outcome.makespan_ns == 57 + 2


def test_neighbours_on_a_device_are_compiled_as_one() -> None:
    """Both branches on b, as a is slow: then everything there can be one sub-graph, priced once more."""
    problem, prices = compiled(problem_of(FORK, {"p": (900, 50), "q": (900, 50), "r": (900, 50), "s": (900, 50)}))
    outcome = joined(find_method("duet")(problem, Search()))
    assert len(outcome.problem.graph.tasks) == 3
    assert outcome.makespan_ns == 4 * 50 - 3 * 3 + 2 * 11
    assert len(prices.asked) >= 2


def test_joins_do_not_keep_other_devices_waiting() -> None:
    """p feeds both machines: joined with q it would give r its input late."""
    problem, _ = compiled(problem_of(FORK, {"p": (10, 500), "q": (100, 500), "r": (500, 100), "s": (10, 500)}))
    outcome = joined(find_method("duet")(problem, Search()))
    assert [task.name for task in outcome.problem.graph.tasks] == [INPUTS, "p", "q", "r", "s", OUTPUTS]


def test_what_one_method_proves_holds_for_the_same_tasks_of_another() -> None:
    """The linear programme shares a fork between the devices; the exact method knows that tasks are whole."""
    problem = problem_of(FORK, dict.fromkeys("pqrs", (20, 25)))
    methods = {name: find_method(name) for name in ("heft", "exact")}
    (heft, _), (exact, _) = place(problem, methods, Search()).found
    ((alone, _),) = place(problem, {"heft": methods["heft"]}, Search()).found
    assert alone.bound_ns < exact.bound_ns == heft.bound_ns == exact.makespan_ns


@pytest.mark.parametrize("name", [name for name in METHODS if "merge" not in name and "both" not in name])
def test_every_method_tries_the_whole_network_as_one_task(name: str) -> None:
    """One by one, a is faster; the compiler of b makes the whole shorter than any schedule of single tasks."""
    chain = {"p": "", "q": "p", "r": "q", "s": "r"}
    problem, _ = compiled(problem_of(chain, dict.fromkeys("pqrs", (20, 21)), latency_ns=0))
    outcome = place(problem, {name: find_method(name)}, Search()).best
    assert [task.name for task in outcome.problem.graph.tasks] == [INPUTS, "p (+3)", OUTPUTS]
    assert outcome.makespan_ns == outcome.bound_ns == 4 * 21 - 3 * 3 + 2
