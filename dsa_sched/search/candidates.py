"""The candidates of the search: planners with their options, and what the cost model expects of their plans.

model, planners --plan, lay out, cost model--> candidates, the most promising first, and why there are not more
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Generic, TypeVar

from dsa_sched.frontend import Model
from dsa_sched.search.ahead import LEAST_SECONDS, Ahead, Workers, processes_of
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.targets import levels_of
from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.program.target import MovesOperands
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.cost_model import PlanCost, cost_of
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Plan
from partitioner.ir.target import PlanTarget
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import Layout
from partitioner.planners.levels import (
    O0,
    O1,
    O2,
    O3,
    PLANNERS,
    Images,
    Planner,
    Segments,
    Streamed,
    planner_text,
)
from partitioner.planners.o3 import BEST_POLICY
from partitioner.planners.registry import make_plan

SUBJECT = "level"
"""Subject under which decisions of the search are recorded."""

Progress = Callable[[str], None]
TargetT = TypeVar("TargetT", bound=PlanTarget)
RequestedT = TypeVar("RequestedT", bound=PlanTarget, covariant=True)


@dataclass(frozen=True, slots=True)
class SearchRequest(Generic[RequestedT]):
    """Request for the fastest program; every default in `options` is already decided."""

    chip: Chip
    target: RequestedT
    options: CompileOptions
    progress: Progress

    def context(self, model: Model) -> Context[RequestedT]:
        return Context(model.graph, model.constants, self.chip, self.target)


@dataclass(frozen=True, slots=True)
class Config:
    """A planner, and how its plan becomes a program: with `ahead`, constants arrive as early as the staging memory has
    room for them."""

    planner: Planner
    ahead: bool = False

    def __str__(self) -> str:
        return f"{planner_text(self.planner)}{', constants ahead' if self.ahead else ''}"

    @property
    def is_whole(self) -> bool:
        """Whether a level made the plan, for the whole network."""
        return not isinstance(self.planner, Segments | Images)

    def of(self, options: CompileOptions) -> CompileOptions:
        """The options that make this program without a search."""
        return replace(options, planner=self.planner, constants_ahead=self.ahead)


@dataclass(frozen=True, slots=True)
class Pruning:
    """Candidates to leave out: programs that take `limit_cycles` or more, plans of which the cost model expects
    `promising_cycles` or more, and the configurations `without`.
    """

    limit_cycles: float = inf
    promising_cycles: float = inf
    without: frozenset[Config] = frozenset()


NOTHING_PRUNED = Pruning()

PLAIN_CONFIGS = (*(Config(kind()) for kind in PLANNERS.values()), Config(O3(BEST_POLICY)))
CONFIGS = (*PLAIN_CONFIGS, *(Config(planner, ahead=True) for planner in (O1(), O2(), O3(), Streamed())))
"""Configurations to try. Constants arrive ahead only at levels that keep values out of the main memory."""

CHUNK_CONFIGS = tuple(Config(Streamed(chunks=True), ahead) for ahead in (False, True))
"""Configurations for a model whose hidden values are in chunks: the level that keeps all rows of a layer together."""

FAST_CONFIGS = (Config(O0()), Config(O1()), Config(O2()), Config(O3()))
"""The only configurations tried at effort fast, unless none has a plan. Its program is never slower than those of the
levels among them that the cost model does not rule out."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan, its layout where nothing runs ahead, its cost by the cost model, and the cycles expected of it."""

    config: Config
    plan: Plan
    plain: Layout
    cost: PlanCost
    expected_cycles: float


@dataclass(frozen=True, slots=True)
class SearchState(Generic[RequestedT]):
    """What a search looks for programs of; workers have it, with the tables that they fill."""

    model: Model
    context: Context[RequestedT]


@dataclass(frozen=True, slots=True)
class Plans(Generic[TargetT]):
    """All candidates, the most promising first; why there are no more; and those of these reasons that are refusals."""

    model: Model
    context: Context[TargetT]
    candidates: tuple[Candidate, ...]
    decisions: tuple[Decision, ...]
    errors: tuple[PlanError, ...]

    @property
    def state(self) -> SearchState[TargetT]:
        return SearchState(self.model, self.context)


def plans_of(
    request: SearchRequest[TargetT],
    model: Model,
    without: frozenset[Config],
    workers: Workers[SearchState[TargetT]],
    meanwhile: Callable[[], None] = lambda: None,
) -> Plans[TargetT]:
    """A candidate for each configuration that is not in `without` and has a plan. The workers are forked where the
    first plan takes `LEAST_SECONDS`; they plan while this process does what is to be done `meanwhile`. Raises
    ModelError for operators that cannot be computed."""
    ctx, options = request.context(model), request.options
    candidates: list[Candidate] = []
    decisions: list[Decision] = []
    errors: list[PlanError] = []
    little = options.is_hasty
    may_run_ahead = options.schedule and _may_run_ahead(ctx)
    among = list(dict.fromkeys((*FAST_CONFIGS, *CONFIGS) if little else CONFIGS))
    kinds = levels_of(ctx.target) if isinstance(ctx.target, MovesOperands) else (object,)
    among = [config for config in among if isinstance(config.planner, kinds)]
    configs = [config for config in among if config not in without and (may_run_ahead or not config.ahead)]
    plain_configs = tuple(dict.fromkeys(replace(config, ahead=False) for config in configs))
    made: dict[Config, Candidate | PlanError] = {}
    began = time.process_time()
    state = SearchState(model, ctx)
    for first in plain_configs[:1]:
        request.progress(f"level auto: planning, 1 of {len(plain_configs)} ({first})")
        made[first] = _planned(state, first, options)
    if time.process_time() - began >= LEAST_SECONDS:
        workers.fork(processes_of(options.jobs), state)
    ahead = Ahead(
        plain_configs[1:],
        lambda config: partial(_planned, config=config, options=options),
        workers,
        state,
        lambda config: not little or config in FAST_CONFIGS,
    )
    ahead.begin()
    meanwhile()
    turns = iter(ahead)
    for config in configs:
        if little and candidates and config not in FAST_CONFIGS:
            decisions.append(Decision(SUBJECT, f"not {config}", f"not planned at effort {options.effort}"))
            continue
        plain = replace(config, ahead=False)
        if plain not in made:
            request.progress(f"level auto: planning, {len(made) + 1} of {len(plain_configs)} ({plain})")
            next(turn for turn in turns if turn == plain)
            made[plain] = ahead.result(plain)
        found = made[plain]
        if isinstance(found, PlanError):
            errors.append(found)
            decisions.append(Decision(SUBJECT, f"not {config}", f"no plan: {one_line(found)}"))
        elif config.planner != O3(BEST_POLICY) or any(group.spills for group in found.plan.groups):
            candidates.append(replace(found, config=config))
    candidates.sort(key=lambda candidate: candidate.expected_cycles)
    return Plans(model, ctx, tuple(candidates), tuple(decisions), tuple(errors))


def _planned(state: SearchState[PlanTarget], config: Config, options: CompileOptions) -> Candidate | PlanError:
    """The candidate of a configuration without constants ahead, or why it has no plan."""
    ctx = state.context
    try:
        return costed(ctx, config, make_plan(ctx, config.planner), options)
    except PlanError as error:
        return error.with_traceback(None)  # its frames hold the plan


def chunk_plans_of(
    request: SearchRequest[TargetT], model: Model, without: frozenset[Config], workers: Workers[SearchState[TargetT]]
) -> Plans[TargetT]:
    """Like `plans_of`, for a model whose hidden values are already in chunks: the candidates of `CHUNK_CONFIGS`."""
    wanted = {Config(Streamed(), config.ahead): config for config in CHUNK_CONFIGS if config not in without}
    plans = plans_of(request, model, frozenset(CONFIGS) - wanted.keys(), workers)
    return replace(plans, candidates=tuple(replace(each, config=wanted[each.config]) for each in plans.candidates))


Others = Callable[[float], tuple[Candidate, ...]]
"""Function from the cycles that the cost model expects of the best level to candidates that are no whole levels."""


def with_others(plans: Plans[TargetT], others: Others, without: frozenset[Config]) -> Plans[TargetT]:
    """`plans` with the candidates of `others` added, each in its place by the cycles expected of it."""
    promising = plans.candidates[0].expected_cycles if plans.candidates else inf
    found = (*(other for other in others(promising) if other.config not in without), *plans.candidates)
    return replace(plans, candidates=tuple(sorted(found, key=lambda candidate: candidate.expected_cycles)))


def _may_run_ahead(ctx: PlanContext) -> bool:
    return ctx.roles.has_staging and any(tensor.constant for tensor in ctx.graph.tensors)


def costed(ctx: PlanContext, config: Config, plan: Plan, options: CompileOptions) -> Candidate:
    """A plan with its cost by the cost model. Raises PlanError or DoesNotFit where it cannot be laid out."""
    layout = lay_out(plan, ctx)
    cost = cost_of(plan, layout, ctx)
    return Candidate(config, plan, layout, cost, _expected_cycles(cost, options))


def _expected_cycles(cost: PlanCost, options: CompileOptions) -> float:
    """Cycles in the order that the program will have."""
    return cost.overlapped_cycles if options.schedule else cost.cycles


def expects(candidate: Candidate) -> str:
    """For the reason why a candidate has no program."""
    return f"the cost model expects {candidate.expected_cycles:,.0f} cycles"


def one_line(error: PlanError) -> str:
    """A refusal as one line of a decision."""
    return " ".join(error.line.split())
