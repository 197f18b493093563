"""The dsa dialect: round trips, verification, mlir-opt as the witness of the generic form."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from dsa_sched.placement.methods.registry import Search, find_method
from dsa_sched.placement.mlir.convert import (
    add_schedule,
    context,
    generic_text,
    group_tasks,
    groups_of,
    module_of,
    parse_module,
    problem_of,
    schedule_of,
    task_graph_of,
)
from dsa_sched.placement.mlir.passes import AnnotateCosts, PlacePass, Prune
from dsa_sched.placement.model.pricing import priced
from dsa_sched.placement.model.problem import Problem
from dsa_sched.placement.model.scenario import read_scenario
from dsa_sched.placement.model.task_graph import Task, TaskGraph
from dsa_sched.placement.schedule.schedule import verify_schedule
from dsa_sched.placement.schedule.simulate import simulate
from hw_models.errors import PlacementError
from tests.dsa_sched.placement.random_placements import random_placement
from tests.placement_problems import random_problem, random_task_graph

NAMES = ("mlir-opt", *(f"mlir-opt-{version}" for version in range(30, 15, -1)))
MLIR_OPT = next((name for name in NAMES if shutil.which(name)), "")


def mixed_problem(seed: int) -> Problem:
    """Three machines of two streams; every second one contends."""
    return random_problem(seed, 8, 3, 2, contended=bool(seed % 2), refusing=True)


@pytest.mark.parametrize("seed", range(8))
def test_problems_and_schedules_survive_the_way_through_text(seed: int) -> None:
    problem = mixed_problem(seed)
    schedule = simulate(problem, random_placement(problem, seed, staged=not seed % 3))
    module = module_of(problem)
    add_schedule(module, schedule, "some method")
    for text in (str(module), generic_text(module)):
        parsed = parse_module(text)
        assert str(parsed) == str(module)
        assert problem_of(parsed) == problem
        assert schedule_of(parsed) == schedule


def test_a_graph_needs_no_devices() -> None:
    graph = random_task_graph(5, 9)
    assert task_graph_of(parse_module(str(module_of(graph)))) == graph
    with pytest.raises(PlacementError, match="task %inputs: needs costs; annotate"):
        problem_of(module_of(graph))


def test_names_may_hold_anything() -> None:
    names = ('/a b/"c"\\', "é", "\n}", "%x", "")
    graph = TaskGraph("\\", tuple(Task(name, (name,)) for name in names), ())
    module = module_of(graph)
    for text in (str(module), generic_text(module)):
        assert task_graph_of(parse_module(text)) == graph


@pytest.mark.skipif(not MLIR_OPT, reason="mlir-opt is not installed")
@pytest.mark.parametrize("seed", range(4))
def test_mlir_opt_reads_the_generic_form(seed: int) -> None:
    problem = mixed_problem(seed)
    module = module_of(problem)
    count = len(problem.graph.tasks)
    group_tasks(module, chains(problem), ["in a row"] * count)
    add_schedule(module, simulate(problem, random_placement(problem, seed)))
    command = [MLIR_OPT, "--allow-unregistered-dialect", "--mlir-print-op-generic"]
    done = subprocess.run(command, input=generic_text(module), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = parse_module(done.stdout)
    assert problem_of(again) == problem_of(module)
    assert schedule_of(again) == schedule_of(module)


def chains(problem: Problem) -> list[tuple[int, ...]]:
    """Neighbours in the order of the graph, two by two where the second reads the first alone and nobody else does."""
    graph, number = problem.graph, 0
    groups: list[tuple[int, ...]] = []
    while number < len(graph.tasks):
        both = graph.successors[number] == (number + 1,) and graph.predecessors[number + 1 : number + 2] == ((number,),)
        groups.append((number, number + 1) if both else (number,))
        number += len(groups[-1])
    return groups


@pytest.mark.parametrize("seed", range(8))
def test_groups_stay_together_when_they_are_placed(seed: int) -> None:
    problem = mixed_problem(seed)
    module = module_of(problem)
    groups = chains(problem)
    group_tasks(module, groups, [f"{len(group)} in a row" for group in groups])
    module = parse_module(str(module))
    assert groups_of(module) == tuple(groups)
    assert problem_of(module) == problem
    try:
        PlacePass(method="single").apply(context(), module)
    except PlacementError as error:
        assert "accepts" in str(error)  # noqa: PT017 - some problems have no such machine
    else:
        verify_schedule(schedule_of(parse_module(str(module))), problem)


def test_a_placed_module_has_what_the_method_found() -> None:
    problem = random_problem(3, 6)
    try:
        found = find_method("single")(problem, Search())
    except PlacementError:
        pytest.fail("a machine that accepts everything was expected")
    module = module_of(problem)
    PlacePass(method="single").apply(context(), module)
    assert schedule_of(module) == found.schedule


GOOD = str(module_of(random_problem(0, 3)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"t1"(', '"t0"(', "names of their own"),
        ("streams 1", "streams 0", "streams from 1 on"),
        ('"m0" to "m1"', '"m0" to "m7"', "there is no m7"),
        ("work_ns = [", "work_ns = [1 : i64, ", "each of 2 devices"),
        ("macs = ", "macs = -", "from 0 on"),
        ("!dsa.value<", "!dsa.value<-", "from 0 on"),
        ("dsa.graph", "dsa.graf", "graf"),
        ("}", "", "expected"),
    ],
)
def test_broken_modules_are_refused(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(PlacementError, match=said):
        parse_module(GOOD.replace(old, new))


def test_a_schedule_that_misses_a_task_is_refused() -> None:
    problem = random_problem(0, 3)
    module = module_of(problem)
    add_schedule(module, simulate(problem, random_placement(problem, 0)))
    lines = [line for line in str(module).splitlines() if 'dsa.run "t1"' not in line]
    with pytest.raises(PlacementError, match="every task of the graph runs once"):
        parse_module("\n".join(lines))


SCENARIOS = Path(__file__).resolve().parents[3] / "samples" / "scenarios"


def test_passes_lead_from_a_task_graph_to_a_schedule() -> None:
    """The same as pricing and placing without MLIR; a second scenario takes the place of the first."""
    graph = random_task_graph(7, 12, 0.1)
    module = module_of(graph)
    for name in ("big_little", "four_clusters"):
        AnnotateCosts(scenario=str(SCENARIOS / f"{name}.yaml")).apply(context(), module)
    module = parse_module(str(module))
    problem = priced(graph, read_scenario(SCENARIOS / "four_clusters.yaml"))
    assert problem_of(module) == problem
    for _ in range(2):  # groups are made anew
        Prune().apply(context(), module)
    module = parse_module(str(module))
    assert any(len(group) > 1 for group in groups_of(module))
    grouped = module.clone()
    PlacePass(method="heft").apply(context(), grouped)
    verify_schedule(schedule_of(parse_module(str(grouped))), problem_of(grouped))
    module = module_of(problem)
    PlacePass(method="heft").apply(context(), module)
    assert schedule_of(module) == find_method("heft")(problem, Search()).schedule
