"""The search over stages, for any cost source: the best stages of each part, one part at a time.

Problem, parts, StageCosts --explore, price, best--> StageSearch(stages, what they cost, decisions)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from dsa_sched.placement.ios.blocks import Part, halves, successors_within, verify_parts
from dsa_sched.placement.ios.costs import StageCosts, StreamStage, stage_of, stage_prices
from dsa_sched.placement.ios.merging import merge_candidates
from dsa_sched.placement.ios.space import SearchLimits, StateSpace, closures, explore
from dsa_sched.placement.ios.stages import greedy_stages, sequential_stages
from dsa_sched.placement.methods.registry import Budget
from dsa_sched.placement.model.problem import Problem
from partitioner.ir.decisions import Decision

MOST_KNOWN = 16
"""Number of search spaces that are kept, of a few megabytes each."""

ROUNDING = 1 - 1e-9
"""Relative tolerance: sums of the same times in another order are not better than each other."""


@dataclass(frozen=True, slots=True)
class StageKinds:
    """Which stages a search may use."""

    name: str
    concurrent: bool
    merged: bool


PARALLEL = StageKinds("ios", concurrent=True, merged=False)
MERGE = StageKinds("ios-merge", concurrent=False, merged=True)
BOTH = StageKinds("ios-both", concurrent=True, merged=True)


@dataclass(frozen=True)
class StageSearch:
    """Result of a search over stages: `cost_ns` by its cost source, barriers included, and the size of the search."""

    stages: tuple[StreamStage, ...]
    cost_ns: float
    states: int = 0
    transitions: int = 0
    priced: int = 0
    decisions: tuple[Decision, ...] = ()


def search_stages(
    problem: Problem,
    costs: StageCosts,
    parts: Sequence[Part],
    streams: int,
    kind: StageKinds = PARALLEL,
    limits: SearchLimits = SearchLimits(),  # noqa: B008 - frozen
    budget: Budget | None = None,
) -> StageSearch:
    """The best stages of each part, in the order of the parts. Any cost source will do.

    A part whose best stages are slower than those of a baseline, which pruning does not limit, gets the baseline's.
    Raises PlacementError for parts that are no order of the tasks.
    """
    verify_parts(problem.graph, parts)
    budget = budget or Budget()
    found = [StageSearch((), 0.0)]
    explorer = _Explorer(problem, kind, limits, streams)
    for part in parts:
        for piece, space in explorer.spaces(part, lambda: budget.spent(_priced(found))):
            found.append(_searched(problem, costs, piece, space, kind, streams, last=piece[-1] == parts[-1][-1]))
    return StageSearch(
        tuple(stage for one in found for stage in one.stages),
        sum(one.cost_ns for one in found),
        sum(one.states for one in found),
        sum(one.transitions for one in found),
        _priced(found),
        tuple(decision for one in found for decision in one.decisions),
    )


def _priced(found: Sequence[StageSearch]) -> int:
    return sum(one.priced for one in found)


@dataclass
class _Explorer:
    """Search spaces of parts. Networks repeat their cells: of equal parts one is explored."""

    problem: Problem
    kind: StageKinds
    limits: SearchLimits
    streams: int
    known: OrderedDict[tuple[bytes, tuple[int, ...]], StateSpace | None] = field(default_factory=OrderedDict)

    def space(self, part: Part) -> StateSpace | None:
        """None where it has more transitions than the limits allow."""
        closure, masks = closures(successors_within(self.problem.graph, part)), self._merges(part)
        key = closure.tobytes(), masks
        if key not in self.known:
            groups = min(self.limits.groups or self.streams, self.streams)
            limits = replace(self.limits, groups=groups)
            self.known[key] = explore(closure, limits, masks, concurrent=self.kind.concurrent)
            if len(self.known) > MOST_KNOWN:
                self.known.popitem(last=False)
        return self.known[key]

    def _merges(self, part: Part) -> tuple[int, ...]:
        """Masks of merged stages, and without concurrent ones of single tasks."""
        place = {task: number for number, task in enumerate(part)}
        candidates = merge_candidates(self.problem, part, self.limits.groups) if self.kind.merged else []
        alone = [] if self.kind.concurrent else [(task,) for task in part]
        return tuple(sum(1 << place[task] for task in tasks) for tasks in (*alone, *candidates))

    def spaces(self, part: Part, spent: Callable[[], bool]) -> Iterator[tuple[Part, StateSpace | None]]:
        """The part with its space, or its halves with theirs, halved as often as needed; no space when time is up."""
        space = None if spent() else self.space(part)
        if space is not None or len(part) == 1 or spent():
            yield part, space
            return
        for half in halves(self.problem.graph, part):
            yield from self.spaces(half, spent)


def _searched(
    problem: Problem,
    costs: StageCosts,
    part: Part,
    space: StateSpace | None,
    kind: StageKinds,
    streams: int,
    *,
    last: bool,
) -> StageSearch:
    """The best stages of one part, from its space or a baseline. No barrier follows the last part."""
    name, known = _baselines(problem, costs, part, kind, streams, last=last)
    beside = ", ".join(f"{other} {found.cost_ns:,.0f} ns" for other, found in known.items())
    subject = problem.graph.tasks[part[0]].name + (f" (+{len(part) - 1})" if len(part) > 1 else "")
    if space is None:
        found, verdict, size = known[name], f"stages of {name}", "not searched"
    else:
        found, verdict, size = _cheapest(problem, costs, part, space, last=last), "stages", _size(space)
        if known[name].cost_ns < found.cost_ns * ROUNDING:
            verdict = f"stages of {name}"
            found = replace(found, stages=known[name].stages, cost_ns=known[name].cost_ns)
    said = Decision(subject, f"{len(found.stages)} {verdict}", f"{found.cost_ns:,.0f} ns, {beside}; {size}")
    return replace(found, decisions=(said,))


def _size(space: StateSpace) -> str:
    return f"{len(space.states)} states, {space.transitions} transitions"


def _baselines(
    problem: Problem, costs: StageCosts, part: Part, kind: StageKinds, streams: int, *, last: bool
) -> tuple[str, dict[str, StageSearch]]:
    """Baselines that have only stages of this kind, and the name of the better one."""
    made = {"sequential": sequential_stages(part)}
    if kind.concurrent:
        made["greedy"] = greedy_stages(problem.graph, part, streams)
    found = {}
    for name, stages in made.items():
        own = (*stages[:-1], replace(stages[-1], last=last))
        found[name] = StageSearch(own, sum(map(costs.stage_ns, own)))
    return min(found, key=lambda name: found[name].cost_ns), found


def _cheapest(problem: Problem, costs: StageCosts, part: Part, space: StateSpace, *, last: bool) -> StageSearch:
    """The dynamic programme over the space of a part."""
    closure = closures(successors_within(problem.graph, part))
    prices = stage_prices(costs, part, closure, space.endings, space.concurrent)
    final = stage_prices(costs, part, closure, space.endings, space.concurrent, last=True) if last else None
    cost_ns, endings = space.best(prices, final)
    stages = [
        stage_of(part, closure, int(space.endings[ending]), merged=ending >= space.concurrent) for ending in endings
    ]
    stages[-1] = replace(stages[-1], last=last)
    return StageSearch(tuple(stages), cost_ns, len(space.states), space.transitions, len(prices))
