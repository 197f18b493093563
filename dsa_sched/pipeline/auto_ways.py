"""What level auto has to try: every level with its options, planned, the most promising first.

model, levels --plan, lay out, cost model--> candidates in order of promise, and why there are not more
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Generic, TypeVar

from dsa_sched.frontend import Model
from dsa_sched.pipeline.compilation import CompileOptions
from hw_models.chip import Chip
from hw_models.errors import PlanError
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.cost_model import PlanCost, cost_of
from partitioner.cost.traffic import plan_traffic
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Plan
from partitioner.ir.target import PlanTarget
from partitioner.memory.memory_plan import Layout, lay_out
from partitioner.planners.auto_spill import BEST_POLICY
from partitioner.planners.levels import (
    EFFORTS,
    IMAGES,
    LEVELS,
    NO_SPILLS,
    NORMAL_EFFORT,
    O1,
    O2,
    O3,
    ImageGroup,
    Segment,
    Streamed,
)
from partitioner.planners.registry import make_plan

__all__ = [
    "CHUNK_WAYS",
    "PLAIN_WAYS",
    "SUBJECT",
    "WAYS",
    "Candidate",
    "Plans",
    "Progress",
    "Way",
    "chunk_plans_of",
    "costed",
    "expects",
    "one_line",
    "plans_of",
    "with_others",
]

SUBJECT = "level"
"""Of all decisions of the search."""

Progress = Callable[[str], None]
TargetT = TypeVar("TargetT", bound=PlanTarget)


@dataclass(frozen=True, slots=True)
class Way:
    """A level with its options, or groups in instances of given images, or `segments` of several; with `ahead`,
    constants arrive as early as the staging memory has room for them; with `chunks`, hidden values without room on the
    cores are in chunks."""

    level: str
    spill: str = NO_SPILLS
    ahead: bool = False
    segments: tuple[Segment, ...] = ()
    image_groups: tuple[ImageGroup, ...] = ()
    chunks: bool = False

    def __str__(self) -> str:
        whole = f"{self.level}{'' if self.spill == NO_SPILLS else ' with spills'}"
        if self.image_groups:
            most = max(max(group.images) for group in self.image_groups)
            whole = f"groups of up to {most} images an instance"
        if self.segments:
            ways = {Way(segment.level, segment.spill) for segment in self.segments}
            levels = sorted(whole if way.level == IMAGES else str(way) for way in ways)
            whole = f"{len(self.segments)} segments of {', '.join(levels)}"
        chunks = ", hidden values in chunks" if self.chunks else ""
        return f"{whole}{chunks}{', constants ahead' if self.ahead else ''}"

    def of(self, options: CompileOptions) -> CompileOptions:
        """The options that make this program without a search."""
        return replace(
            options,
            level=self.level,
            spill=self.spill,
            constants_ahead=self.ahead,
            segments=self.segments,
            image_groups=self.image_groups,
            chunks=self.chunks,
        )


PLAIN_WAYS = (*(Way(level) for level in LEVELS), Way(O3.name, BEST_POLICY))
WAYS = (*PLAIN_WAYS, *(Way(level, ahead=True) for level in (O1.name, O2.name, O3.name, Streamed.name)))
"""What there is to try; constants ahead only at levels that keep values away from the main memory."""

CHUNK_WAYS = tuple(Way(Streamed.name, ahead=ahead, chunks=True) for ahead in (False, True))
"""What is tried of a model whose hidden values are in chunks: the level that has all rows of a layer together."""

FAST_WAYS = (Way(O2.name), Way(O3.name))
"""All that effort fast plans where one of them has a plan: the fastest for few images, and for an image a core; of
batches with an image for every core the last one alone."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan, its layout where nothing runs ahead, what it costs by the cost model, and the cycles expected for it."""

    way: Way
    plan: Plan
    plain: Layout
    cost: PlanCost
    expected_cycles: float


@dataclass(frozen=True, slots=True)
class Plans(Generic[TargetT]):
    """All candidates, the most promising first; why there are not more; the refusals among these reasons."""

    model: Model
    context: Context[TargetT]
    candidates: tuple[Candidate, ...]
    decisions: tuple[Decision, ...]
    errors: tuple[PlanError, ...]


def plans_of(
    model: Model,
    chip: Chip,
    target: TargetT,
    options: CompileOptions,
    progress: Progress,
    without: frozenset[Way],
) -> Plans[TargetT]:
    """A candidate for each way that is not in `without` and has a plan; `options` are settled. Raises ModelError for
    operators that cannot be computed."""
    ctx = Context(model.graph, model.constants, chip, target)
    candidates: list[Candidate] = []
    decisions: list[Decision] = []
    errors: list[PlanError] = []
    made: dict[Way, Candidate] = {}
    little = EFFORTS[options.effort] < EFFORTS[NORMAL_EFFORT]
    ahead = options.schedule and _may_run_ahead(ctx)
    fast = _fast_ways(ctx)
    ways = dict.fromkeys((*fast, *WAYS) if little else WAYS)
    for way in (way for way in ways if way not in without and (ahead or not way.ahead)):
        if little and candidates and way not in fast:
            decisions.append(Decision(SUBJECT, f"not {way}", f"not planned at effort {options.effort}"))
            continue
        plain = replace(way, ahead=False)
        try:
            if plain not in made:
                progress(f"level auto: planning {plain}")
                made[plain] = costed(ctx, plain, make_plan(ctx, way.level, way.spill), options)
        except PlanError as error:
            errors.append(error.with_traceback(None))  # its frames hold the plan
            decisions.append(Decision(SUBJECT, f"not {way}", f"no plan: {one_line(error)}"))
            continue
        if way.spill == NO_SPILLS or any(group.spills for group in made[plain].plan.groups):
            candidates.append(replace(made[plain], way=way))
    candidates.sort(key=lambda candidate: candidate.expected_cycles)
    return Plans(model, ctx, tuple(candidates), tuple(decisions), tuple(errors))


def chunk_plans_of(
    model: Model,
    chip: Chip,
    target: TargetT,
    options: CompileOptions,
    progress: Progress,
    without: frozenset[Way],
) -> Plans[TargetT]:
    """The same for a model whose hidden values are in chunks already, of `CHUNK_WAYS`."""
    wanted = {replace(way, chunks=False): way for way in CHUNK_WAYS if way not in without}
    plans = plans_of(model, chip, target, options, progress, frozenset(WAYS) - wanted.keys())
    return replace(plans, candidates=tuple(replace(each, way=wanted[each.way]) for each in plans.candidates))


def _fast_ways(ctx: PlanContext) -> tuple[Way, ...]:
    shapes = [ctx.graph.by_name[name].shape for name in ctx.graph.inputs]
    items = min((shape[0] if shape else 1 for shape in shapes), default=1)
    return FAST_WAYS if items < ctx.chip.cores_per_cluster else FAST_WAYS[1:]


def with_others(
    plans: Plans[TargetT], others: Callable[[float], tuple[Candidate, ...]], without: frozenset[Way]
) -> Plans[TargetT]:
    """The same with candidates beside the levels, in their places by what is expected of them."""
    promising = plans.candidates[0].expected_cycles if plans.candidates else inf
    found = (*(other for other in others(promising) if other.way not in without), *plans.candidates)
    return replace(plans, candidates=tuple(sorted(found, key=lambda candidate: candidate.expected_cycles)))


def _may_run_ahead(ctx: PlanContext) -> bool:
    return ctx.roles.has_staging and any(tensor.constant for tensor in ctx.graph.tensors)


def costed(ctx: PlanContext, way: Way, plan: Plan, options: CompileOptions) -> Candidate:
    """A plan with what the cost model expects of it. Raises PlanError or DoesNotFit where it cannot be laid out."""
    layout = lay_out(plan, ctx)
    cost = cost_of(plan, plan_traffic(plan, layout, ctx), ctx)
    return Candidate(way, plan, layout, cost, _expected_cycles(cost, options))


def _expected_cycles(cost: PlanCost, options: CompileOptions) -> float:
    """Engines of a scheduled program work at once within a step, of another one they mostly wait for each other."""
    return cost.overlapped_cycles if options.schedule else cost.cycles


def expects(candidate: Candidate) -> str:
    """For the reason why a candidate has no program."""
    return f"the cost model expects {candidate.expected_cycles:,.0f} cycles"


def one_line(error: PlanError) -> str:
    """A refusal as one line of a decision."""
    return " ".join(error.line.split())
