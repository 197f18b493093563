"""Level auto: what the levels make of a model, judged by the cycle model; the fastest program is kept.

    model --every level, with spills or without--> plans --cost model--> in order of promise
          --lower, schedule, time, the best so far as limit--> the fastest program, and what was decided against

A plan with which no program can win is not lowered: one whose bytes of the shared memories alone take longer than the
best program so far. Where programs cannot be timed, the cost model decides. What is found is a plan of the level that
made it in every respect but the decisions about `level`, so nothing behind this stage knows of auto.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Generic, TypeVar

from codegen.target import TileTarget
from dsa_sched.frontend import Model
from dsa_sched.pipeline.compilation import CompileOptions, Lowered
from dsa_sched.pipeline.tile_stages import Planned, lower_below
from hw_models.chip import Chip
from hw_models.errors import PlanError
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.cost_model import PlanCost, cost_of
from partitioner.cost.roofline import plan_floors
from partitioner.cost.traffic import plan_traffic
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Plan
from partitioner.ir.target import PlanTarget
from partitioner.memory.memory_plan import (
    FOR_CONSTANTS_AHEAD,
    FOR_SCHEDULING,
    Layout,
    MoveLayout,
    fit_layout,
    lay_out,
)
from partitioner.planners.auto_spill import BEST_POLICY
from partitioner.planners.levels import EFFORTS, LEVELS, NO_SPILLS, NORMAL_EFFORT, O1, O2, O3
from partitioner.planners.registry import make_plan

__all__ = ["PLAIN_WAYS", "WAYS", "Chosen", "Way", "cheapest_level", "fastest_level", "memory_floor_cycles"]

SUBJECT = "level"
"""Of all decisions of the search."""

Progress = Callable[[str], None]
TargetT = TypeVar("TargetT", bound=PlanTarget)


@dataclass(frozen=True, slots=True)
class Way:
    """A level with its options; with `ahead`, its constants arrive as early as the staging memory has room for them."""

    level: str
    spill: str = NO_SPILLS
    ahead: bool = False

    def __str__(self) -> str:
        spills = "" if self.spill == NO_SPILLS else " with spills"
        return f"{self.level}{spills}{', constants ahead' if self.ahead else ''}"

    def of(self, options: CompileOptions) -> CompileOptions:
        """The options that make this program without a search."""
        return replace(options, level=self.level, spill=self.spill, constants_ahead=self.ahead)


PLAIN_WAYS = (*(Way(level) for level in LEVELS), Way(O3.name, BEST_POLICY))
WAYS = (*PLAIN_WAYS, *(Way(level, ahead=True) for level in (O1.name, O2.name, O3.name)))
"""What there is to try; constants ahead only at levels that keep values away from the main memory."""

FAST_WAYS = (Way(O2.name), Way(O3.name))
"""All that effort fast plans where one of them has a plan: the fastest for few images, and for an image a core."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan, its layout where nothing runs ahead, and the cycles that the cost model expects."""

    way: Way
    plan: Plan
    plain: Layout
    expected_cycles: float


@dataclass(frozen=True, slots=True)
class Chosen(Generic[TargetT]):
    """What a search keeps: the plan, with the decisions of the search in front; the options that make this plan without
    a search, and its way; the program, where it could be timed. `cycles` are the program's, else the cost model's,
    whose own are `expected_cycles`."""

    way: Way
    planned: Planned[TargetT]
    options: CompileOptions
    cycles: float
    expected_cycles: float
    lowered: Lowered | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class _Plans(Generic[TargetT]):
    """All candidates, the most promising first; why there are not more; the refusals among these reasons."""

    model: Model
    context: Context[TargetT]
    candidates: tuple[Candidate, ...]
    decisions: tuple[Decision, ...]
    errors: tuple[PlanError, ...]


def cheapest_level(
    model: Model, chip: Chip, target: TargetT, options: CompileOptions, progress: Progress
) -> Chosen[TargetT]:
    """The plan that takes the fewest cycles by the cost model, for targets whose programs cannot be timed; `options`
    are settled. Raises ModelError for operators that cannot be computed, and what the first level raises where none has
    a plan."""
    plans = _plans(model, chip, target, options, progress, frozenset(WAYS) - frozenset(PLAIN_WAYS))
    if not plans.candidates:
        raise plans.errors[0]
    best, *others = plans.candidates
    verdict = Decision(SUBJECT, f"{best.way}, by auto", f"{best.expected_cycles:,.0f} cycles by the cost model")
    losers = (Decision(SUBJECT, f"not {c.way}", f"{c.expected_cycles:,.0f} cycles by the cost model") for c in others)
    plan = _decided(best.plan, (verdict, *losers, *plans.decisions))
    return Chosen(
        best.way, Planned(model, plans.context, plan), best.way.of(options), best.expected_cycles, best.expected_cycles
    )


def fastest_level(
    model: Model,
    chip: Chip,
    target: TileTarget,
    options: CompileOptions,
    progress: Progress,
    limit_cycles: float = inf,
    without: frozenset[Way] = frozenset(),
    promising_cycles: float = inf,
) -> Chosen[TileTarget] | None:
    """The fastest program by the cycle model, which the target must be made for; None where none takes fewer cycles
    than the limit, or nothing is left to try. `options` are settled; `without` names what is not to be tried,
    and what the cost model does not expect below `promising_cycles` is not lowered.

    A search that Ctrl-C ends keeps the best program that it has, and says so among the decisions and warnings; with
    none yet, KeyboardInterrupt goes on. Raises ModelError for operators that cannot be computed, and what the first
    level raises where none has a plan or a program.
    """
    plans = _plans(model, chip, target, options, progress, without)
    search = _Search(plans, options, progress, limit_cycles, promising_cycles)
    search.run()
    errors = (*plans.errors, *search.errors)
    if search.best is None:
        if errors and limit_cycles == inf:
            raise errors[0]
        return None
    candidate, lowered, cycles = search.best
    verdict = Decision(SUBJECT, f"{candidate.way}, by auto", f"{cycles:,.0f} cycles by the cycle model")
    plan = _decided(candidate.plan, (verdict, *search.decisions, *plans.decisions))
    planned, plain = Planned(model, plans.context, plan), candidate.way.of(options)
    found = Chosen(candidate.way, planned, plain, cycles, candidate.expected_cycles, lowered)
    if not search.interrupted:
        return found
    # What was interrupted may have left the context's tables half written.
    warned = replace(model, warnings=(*model.warnings, f"the search of level auto was interrupted: {verdict}"))
    context = Context(model.graph, model.constants, chip, target)
    return replace(found, planned=Planned(warned, context, plan), interrupted=True)


class _Search:
    """Candidates one after the other; the fastest so far is the limit for the next."""

    def __init__(
        self,
        plans: _Plans[TileTarget],
        options: CompileOptions,
        progress: Progress,
        limit_cycles: float,
        promising_cycles: float,
    ) -> None:
        self.plans, self.options, self.progress = plans, options, progress
        self.limit_cycles, self.promising_cycles = limit_cycles, promising_cycles
        self.best: tuple[Candidate, Lowered, float] | None = None
        self.decisions: list[Decision] = []
        self.errors: list[PlanError] = []
        self.interrupted = False

    def run(self) -> None:
        tried = 0
        for number, candidate in enumerate(self.plans.candidates, 1):
            try:
                if reason := self._skipped(candidate, tried):
                    self._against(candidate, reason)
                    continue
                tried += 1
                self._say(f"level auto: {candidate.way}, {number} of {len(self.plans.candidates)}")
                self._try(candidate)
            except PlanError as error:
                self.errors.append(error)
                self._against(candidate, f"no program: {_one_line(error)}")
            except KeyboardInterrupt:
                if self.best is None:
                    raise
                self.interrupted = True
                self._against(candidate, "the search was interrupted")

    def _skipped(self, candidate: Candidate, tried: int) -> str:
        """Why a candidate is not lowered; empty for one that is."""
        if self.interrupted:
            return f"the search was interrupted; {_expects(candidate)}"
        if candidate.expected_cycles >= self.promising_cycles:
            return _expects(candidate)
        if tried >= EFFORTS[self.options.effort]:
            return f"not tried at effort {self.options.effort}; {_expects(candidate)}"
        ctx, limit_cycles = self.plans.context, self.limit_cycles
        if candidate.way.ahead and not _has_region(candidate.plan, ctx):
            return f"values leave no region of {ctx.staging} free throughout; {_expects(candidate)}"
        options = candidate.way.of(self.options)
        floor = memory_floor_cycles(candidate.plan, ctx, options, limit_cycles, candidate.plain)
        if floor >= self.limit_cycles:
            return f"{floor:,.0f} cycles at least, for the bytes of a shared memory"
        return ""

    def _try(self, candidate: Candidate) -> None:
        planned = Planned(self.plans.model, self.plans.context, candidate.plan)
        lowered = lower_below(planned, candidate.way.of(self.options), self._say, self.limit_cycles)
        if lowered is None or lowered.cycles is None:
            self._against(candidate, f"no faster than {self.limit_cycles:,.0f} cycles; {_expects(candidate)}")
            return
        if self.best is not None:
            self._against(self.best[0], f"{self.best[2]:,.0f} cycles by the cycle model")
        self.best, self.limit_cycles = (candidate, lowered, lowered.cycles), lowered.cycles
        self.progress(f"level auto: best so far {candidate.way}, {lowered.cycles:,.0f} cycles")

    def _say(self, step: str) -> None:
        """A step, with what Ctrl-C would keep."""
        found = "" if self.best is None else f" (best so far {self.best[0].way}, {self.best[2]:,.0f} cycles)"
        self.progress(step + found)

    def _against(self, candidate: Candidate, reason: str) -> None:
        self.decisions.append(Decision(SUBJECT, f"not {candidate.way}", reason))


def memory_floor_cycles(
    plan: Plan, ctx: PlanContext, options: CompileOptions, enough_cycles: float = inf, plain: Layout | None = None
) -> float:
    """Cycles that no program of the plan is faster than: what it moves from and to the memory that binds, over that
    memory's bandwidth. Of both layouts that a scheduled program can have the smaller, found only where the first one
    alone is not below `enough_cycles`; who has the plain one already says it."""
    if options.schedule and options.constants_ahead:
        return _floor(plan, ctx, lay_out(plan, ctx, FOR_CONSTANTS_AHEAD))
    first = _floor(plan, ctx, plain or lay_out(plan, ctx))
    if not options.schedule or first < enough_cycles:
        return first
    return min(first, _floor(plan, ctx, lay_out(plan, ctx, FOR_SCHEDULING)))


def _has_region(plan: Plan, ctx: PlanContext) -> bool:
    """Whether rounds of all layers can be staged in one region."""
    layout = fit_layout(plan, ctx, FOR_CONSTANTS_AHEAD)
    if isinstance(layout, Infeasible):
        return False
    entries = (entry for step in layout.steps if not isinstance(step, MoveLayout) for entry in step)
    return len({entry.staging for entry in entries}) == 1


def _floor(plan: Plan, ctx: PlanContext, layout: Layout) -> float:
    traffic = plan_traffic(plan, layout, ctx, tiles=False)
    memories = {memory.name for memory in ctx.chip.memories}
    return max((floor.cycles for floor in plan_floors(traffic, ctx.chip) if floor.name in memories), default=0.0)


def _plans(
    model: Model,
    chip: Chip,
    target: TargetT,
    options: CompileOptions,
    progress: Progress,
    without: frozenset[Way],
) -> _Plans[TargetT]:
    ctx = Context(model.graph, model.constants, chip, target)
    candidates: list[Candidate] = []
    decisions: list[Decision] = []
    errors: list[PlanError] = []
    made: dict[Way, tuple[Plan, Layout, PlanCost]] = {}
    little = EFFORTS[options.effort] < EFFORTS[NORMAL_EFFORT]
    ahead = options.schedule and _may_run_ahead(ctx)
    ways = dict.fromkeys((*FAST_WAYS, *WAYS) if little else WAYS)
    for way in (way for way in ways if way not in without and (ahead or not way.ahead)):
        if little and candidates and way not in FAST_WAYS:
            decisions.append(Decision(SUBJECT, f"not {way}", f"not planned at effort {options.effort}"))
            continue
        plain = replace(way, ahead=False)
        try:
            if plain not in made:
                progress(f"level auto: planning {plain}")
                plan = make_plan(ctx, way.level, way.spill)
                layout = lay_out(plan, ctx)
                made[plain] = plan, layout, cost_of(plan, plan_traffic(plan, layout, ctx), ctx)
            plan, layout, cost = made[plain]
        except PlanError as error:
            errors.append(error)
            decisions.append(Decision(SUBJECT, f"not {way}", f"no plan: {_one_line(error)}"))
            continue
        if way.spill == NO_SPILLS or any(group.spills for group in plan.groups):
            candidates.append(Candidate(way, plan, layout, _expected(cost, options)))
    candidates.sort(key=lambda candidate: candidate.expected_cycles)
    return _Plans(model, ctx, tuple(candidates), tuple(decisions), tuple(errors))


def _may_run_ahead(ctx: PlanContext) -> bool:
    return ctx.staging != ctx.main and any(tensor.constant for tensor in ctx.graph.tensors)


def _expected(cost: PlanCost, options: CompileOptions) -> float:
    """Engines of a scheduled program work at once within a step, of another one they mostly wait for each other."""
    return cost.overlapped_cycles if options.schedule else cost.cycles


def _expects(candidate: Candidate) -> str:
    return f"the cost model expects {candidate.expected_cycles:,.0f} cycles"


def _decided(plan: Plan, decisions: Sequence[Decision]) -> Plan:
    return replace(plan, decisions=(*decisions, *plan.decisions))


def _one_line(error: PlanError) -> str:
    return " ".join(error.line.split())
