"""IOS as a method: against brute force, its baselines and the simulator."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.lab.ios.gpu import gpu_problem
from benchmarks.lab.ios.schema import load_network
from benchmarks.lab.ios.tasks import task_graph, task_parts
from dsa_sched.placement.ios.blocks import blocks, halves, parts_of, successors_within, verify_parts
from dsa_sched.placement.ios.costs import StageContention, StreamStage, stage_prices
from dsa_sched.placement.ios.search import BOTH, MERGE, PARALLEL, search_stages
from dsa_sched.placement.ios.space import SearchLimits, closures, explore
from dsa_sched.placement.ios.stages import greedy_stages, placed, sequential_stages
from dsa_sched.placement.methods.registry import Search, find_method
from dsa_sched.placement.model.problem import CostTable, Machine, Merged, Problem
from dsa_sched.placement.model.task_graph import TaskGraph
from dsa_sched.placement.schedule.schedule import TaskPlacement
from dsa_sched.placement.schedule.simulate import simulate
from hw_models.errors import PlacementError
from tests.placement_problems import random_problem

PRUNING = ((1, 1), (1, 3), (2, 3), (3, 3), (3, 8), (0, 0))
"""Each allows what the one before allows."""


def one_machine(seed: int, tasks: int, streams: int = 3, stage_ns: int = 50, *, contended: bool = True) -> Problem:
    """A random problem on one machine with a barrier."""
    problem = random_problem(seed, tasks, 1, streams, contended=contended)
    machine = replace(problem.machines[0], stage_ns=stage_ns)
    return Problem(problem.graph, replace(problem.costs, machines=(machine,)))


def inner(problem: Problem) -> tuple[int, ...]:
    return tuple(number for number, task in enumerate(problem.graph.tasks) if not task.is_end)


def simulated_ns(problem: Problem, stage: StreamStage) -> float:
    """A stage alone in the simulator: its tasks and what they read from each other, and nothing else."""
    tasks = stage.tasks
    names = [problem.graph.tasks[task].name for task in tasks]
    values = []
    for value in problem.graph.values:
        readers = tuple(name for name in value.consumers if name in names)
        if value.producer in names and readers:
            values.append(replace(value, consumers=readers))
    graph = TaskGraph("stage", tuple(problem.graph.tasks[task] for task in tasks), tuple(values))
    shares = tuple(problem.costs.shares[task] for task in tasks) if problem.costs.shares else ()
    costs = replace(problem.costs, work_ns=tuple(problem.costs.work_ns[task] for task in tasks), shares=shares)
    stream = {task: number for number, group in enumerate(stage.groups) for task in group}
    placement = TaskPlacement((0,) * len(tasks), tuple(stream[task] for task in tasks), tuple(range(len(tasks))))
    return simulate(Problem(graph, costs), placement).makespan_ns


def cheapest_by_brute_force(problem: Problem, limits: SearchLimits) -> float:
    """The least sum over all sequences of stages, each simulated alone; with a barrier if on several streams.

    A state is what is left counted from the end, so the ending of the full one is the last stage.
    """
    part = inner(problem)
    successors = successors_within(problem.graph, part)
    after: list[set[int]] = [set() for _ in part]
    for place in reversed(range(len(part))):
        after[place] = {place}.union(*(after[other] for other in successors[place]))
    barrier = problem.machines[0].stage_ns

    @cache
    def best(state: frozenset[int]) -> float:
        if not state:
            return 0.0
        found = []
        heads = sorted(state)
        for chosen in range(1, 1 << len(heads)):
            groups = [after[head] & state for number, head in enumerate(heads) if chosen >> number & 1]
            union = frozenset().union(*groups)
            if len(union) < sum(map(len, groups)) or len(groups) > (limits.groups or 99):
                continue
            if max(map(len, groups)) > (limits.group_operators or 99):
                continue
            stage = StreamStage(tuple(tuple(part[place] for place in sorted(group)) for group in groups))
            apart = barrier if len(groups) > 1 and len(state) < len(part) else 0
            found.append(best(state - union) + apart + simulated_ns(problem, stage))
        return min(found)

    return best(frozenset(range(len(part))))


@pytest.mark.parametrize("contended", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_what_a_stage_costs_is_what_the_simulator_says(seed: int, contended: bool) -> None:
    problem = one_machine(seed, 9, 8, contended=contended)
    part = inner(problem)
    closure = closures(successors_within(problem.graph, part))
    space = explore(closure, SearchLimits(3, 8))
    assert space is not None
    costs = StageContention(problem, 0)
    prices = stage_prices(costs, part, closure, space.endings, space.concurrent)
    rng = np.random.default_rng(seed)
    for number in rng.choice(len(prices), min(40, len(prices)), replace=False):
        found = search_stage(part, closure, int(space.endings[number]))
        barrier = 50 if len(found.groups) > 1 else 0
        assert prices[number] == pytest.approx(simulated_ns(problem, found) + barrier, rel=1e-9)
        assert costs.stage_ns(found) == pytest.approx(prices[number], rel=1e-12)


def search_stage(part: tuple[int, ...], closure: np.ndarray, mask: int) -> StreamStage:
    from dsa_sched.placement.ios.costs import stage_of

    return stage_of(part, closure, mask, merged=False)


@pytest.mark.parametrize(
    "limits", [SearchLimits(None, None), SearchLimits(3, 8), SearchLimits(2, 2), SearchLimits(1, 3)]
)
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_cheaper_by_brute_force(seed: int, limits: SearchLimits) -> None:
    problem = one_machine(seed, 5 + seed % 2, streams=3, stage_ns=40 * (seed % 3))
    part = inner(problem)
    closure = closures(successors_within(problem.graph, part))
    within = SearchLimits(limits.group_operators, min(3, limits.groups or 3))
    space = explore(closure, within)
    assert space is not None
    prices = [
        stage_prices(StageContention(problem, 0), part, closure, space.endings, space.concurrent, last=last)
        for last in (False, True)
    ]
    cost, _ = space.best(*prices)
    assert cost == pytest.approx(cheapest_by_brute_force(problem, within), rel=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_the_sum_over_stages_is_the_makespan(seed: int) -> None:
    problem = one_machine(seed, 14, 1 + seed % 5)
    streams = problem.machines[0].streams
    found = search_stages(problem, StageContention(problem, 0), [inner(problem)], streams)
    made, placement = placed(problem, 0, found.stages)
    assert [stage.last for stage in found.stages] == [False] * (len(found.stages) - 1) + [True]
    assert simulate(made, placement).makespan_ns == pytest.approx(found.cost_ns, rel=1e-9)


@pytest.mark.parametrize("contended", [False, True])
@pytest.mark.parametrize("machines", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_never_worse_than_sequential_or_greedy(seed: int, machines: int, contended: bool) -> None:
    problem = random_problem(seed, 16, machines, 1 + seed % 6, contended=contended)
    makespan = {name: find_method(name)(problem, Search()).makespan_ns for name in ("sequential", "greedy", "ios")}
    assert makespan["ios"] <= min(makespan["sequential"], makespan["greedy"])


@pytest.mark.parametrize("seed", range(8))
def test_less_pruning_is_never_worse(seed: int) -> None:
    problem = one_machine(seed, 16, 6)
    found = [find_method("ios")(problem, Search(options={"r": r, "s": s})).makespan_ns for r, s in PRUNING]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(found))


def test_equal_problems_have_equal_outcomes() -> None:
    first, second = (find_method("ios")(one_machine(3, 20, 4), Search(seed=seed)) for seed in (1, 2))
    assert first.schedule == second.schedule
    assert first.decisions == second.decisions


def test_a_stage_has_no_more_groups_than_streams() -> None:
    problem = one_machine(1, 20, 2)
    outcome = find_method("ios")(problem, Search())
    assert {run.stream for run in outcome.schedule.runs} == {0, 1}


def test_one_stream_is_not_searched() -> None:
    """Whatever the stages, the tasks take their sum."""
    outcome = find_method("ios")(one_machine(1, 20, 1), Search())
    assert outcome.makespan_ns == sum(row[0] for row in outcome.problem.costs.work_ns)
    assert outcome.evaluations == 1


def test_parts_that_are_alike_are_searched_alike() -> None:
    """Five cells of NasNet-A with the same edges: one search space."""
    network = load_network("nasnet_large")
    problem = gpu_problem(network)
    found = search_stages(problem, StageContention(problem, 0), task_parts(network), 10)
    sizes = [decision.reason.split("; ")[-1] for decision in found.decisions]
    assert len(set(sizes[4:9])) == 1
    assert len(set(sizes)) > 4


def test_too_wide_parts_are_halved() -> None:
    problem = one_machine(2, 24, 8, contended=False)
    whole = find_method("ios")(problem, Search())
    pieces = find_method("ios")(problem, Search(options={"transitions": 200}))
    assert len(pieces.decisions) > len(whole.decisions)
    assert pieces.makespan_ns >= whole.makespan_ns


@pytest.mark.parametrize("search", [Search(evaluations=0), Search(seconds=0)])
def test_without_time_the_better_baseline_is_taken(search: Search) -> None:
    problem = one_machine(2, 24, 8)
    outcome = find_method("ios")(problem, search)
    baselines = [find_method(name)(problem, Search()).makespan_ns for name in ("sequential", "greedy")]
    assert outcome.makespan_ns <= min(baselines)
    assert all("not searched" in decision.reason for decision in outcome.decisions)


def test_any_cost_source_will_do() -> None:
    """One that charges for stages only: everything in as few of them as there can be."""

    class Flat:
        def stage_ns(self, stage: StreamStage) -> float:  # noqa: ARG002 - the seam's signature
            return 100.0

    problem = one_machine(5, 12, 8)
    found = search_stages(problem, Flat(), [inner(problem)], 8, limits=SearchLimits(None, None))
    assert found.cost_ns == 100 * len(found.stages)
    assert len(found.stages) <= len(greedy_stages(problem.graph, inner(problem), 8))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"r": -1}, "option r: needs a whole number from 0 to 62; has -1"),
        ({"s": 2.5}, "option s"),
        ({"part": 0}, "option part: needs a whole number from 1"),
        ({"part": 63}, "option part"),
        ({"transitions": float("inf")}, "option transitions"),
        ({"transitions": float("nan")}, "option transitions"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(PlacementError, match=said):
        find_method("ios")(one_machine(0, 3), Search(options=options))


def test_no_machine_for_all_tasks_is_said() -> None:
    problem = random_problem(0, 4, 2)
    work = tuple((5, -1) if number % 2 else (0 if number in (0, 5) else -1, 5) for number in range(6))
    table = replace(problem.costs, work_ns=work)
    with pytest.raises(PlacementError, match="a device that accepts every task"):
        find_method("ios")(Problem(problem.graph, table), Search())


@pytest.mark.parametrize("seed", range(20))
def test_blocks_are_an_order_of_all_tasks(seed: int) -> None:
    graph = random_problem(seed, 30, 1).graph
    verify_parts(graph, blocks(graph))
    for part in parts_of(graph, 7):
        assert len(part) <= 7
    verify_parts(graph, parts_of(graph, 7))


@pytest.mark.parametrize("name", ["squeezenet", "inception_v3"])
def test_automatic_blocks_are_those_of_the_authors(name: str) -> None:
    """But for chains, which are joined here."""
    network = load_network(name)
    graph = task_graph(network)
    own = [part for part in task_parts(network) if len(part) > 2]
    assert [block for block in blocks(graph) if len(block) > 2] == own


def test_halves_are_cut_where_the_least_goes_across() -> None:
    """Two diamonds and a link between them: 0 1 2 3 -> 4 5 6 7."""
    graph = random_problem(0, 1, 1).graph
    names = [f"t{number}" for number in range(8)]
    edges = [(0, (1, 2)), (1, (3,)), (2, (3,)), (3, (4,)), (4, (5, 6)), (5, (7,)), (6, (7,))]
    task, value = graph.tasks[1], graph.values[1]
    tasks = tuple(replace(task, name=name) for name in names)
    values = tuple(
        replace(value, name=f"v{a}", producer=names[a], consumers=tuple(names[b] for b in after)) for a, after in edges
    )
    chained = TaskGraph("diamonds", tasks, values)
    assert halves(chained, tuple(range(8))) == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_parts_that_are_no_order_are_refused() -> None:
    problem = one_machine(0, 6)
    tasks = inner(problem)
    with pytest.raises(PlacementError, match="every task once"):
        search_stages(problem, StageContention(problem, 0), [tasks[1:]], 3)
    late = next(task for task in tasks if any(before in tasks for before in problem.graph.predecessors[task]))
    rest = tuple(task for task in tasks if task != late)
    with pytest.raises(PlacementError, match="a place after"):
        search_stages(problem, StageContention(problem, 0), [(late,), rest], 3)


class PairsMerge:
    """Tasks of the same place modulo 3 merge; together they take as long as the longest, and 10 ns."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def merged(self, tasks: tuple[int, ...]) -> Merged | None:
        if any(self.problem.graph.tasks[task].is_end for task in tasks) or len({task % 3 for task in tasks}) > 1:
            return None
        if len({self.problem.graph.predecessors[task] for task in tasks}) > 1:
            return None
        work = max(int(self.problem.work_ns[task, 0]) for task in tasks) + 10
        return Merged((work,), ((0.5, 0.5),), macs=7, constant_bytes=8)


def test_merged_tasks_make_a_problem_of_their_own() -> None:
    """Ten tasks that all read the inputs: three families."""
    plain = one_machine(0, 10, 2)
    names = tuple(task.name for task in plain.graph.tasks[1:-1])
    made, value = plain.graph.values[0], plain.graph.values[1]
    values = [replace(made, consumers=names)]
    values += [replace(value, name=f"o{name}", producer=name, consumers=("%outputs",)) for name in names]
    plain = Problem(replace(plain.graph, values=tuple(values)), plain.costs)
    problem = Problem(plain.graph, plain.costs, PairsMerge(plain))
    outcomes = {name: find_method(name)(problem, Search()) for name in ("sequential", "ios", "ios-merge", "ios-both")}
    merged = outcomes["ios-merge"]
    assert len(merged.problem.graph.tasks) == 3 + 2
    assert {task.macs for task in merged.problem.graph.tasks if not task.is_end} == {7}
    assert len(merged.problem.graph.values) == len(problem.graph.values)
    assert merged.makespan_ns < outcomes["sequential"].makespan_ns
    assert outcomes["ios-both"].makespan_ns <= min(merged.makespan_ns, outcomes["ios"].makespan_ns)


@pytest.mark.parametrize("name", ["ios-merge", "ios-both"])
def test_merging_needs_a_price(name: str) -> None:
    with pytest.raises(PlacementError, match="a device that its roofline prices, also with layers merged; choose ios"):
        find_method(name)(one_machine(0, 3), Search())


@pytest.mark.parametrize("kind", [PARALLEL, MERGE, BOTH])
def test_an_empty_network_has_no_stages(kind: object) -> None:
    empty = Problem(TaskGraph("empty", (), ()), CostTable((Machine("a"),), (), ()))
    assert search_stages(empty, StageContention(empty, 0), blocks(empty.graph), 1, kind).stages == ()  # type: ignore[arg-type]
    assert sequential_stages(()) == []
