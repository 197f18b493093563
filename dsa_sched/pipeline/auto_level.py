"""Level auto: what the levels make of a model, judged by the cycle model; the fastest program is kept.

    model --every level, with spills or without--> plans --cost model--> in order of promise
          --lower, schedule, time, the best so far as limit--> the fastest program, and what was decided against
          --parts of the plans that were timed, or ruled out as a whole--> plans of segments --the same--> the fastest

A plan with which no program can win is not lowered: one whose bytes of the shared memories alone take longer than the
best program so far. Where programs cannot be timed, the cost model decides. What is found is a plan of the level, or of
the segments, that made it in every respect but the decisions about `level`, so nothing behind this stage knows of auto.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Generic, TypeVar

from codegen.target import TileTarget
from dsa_sched.frontend import Model
from dsa_sched.pipeline.auto_floors import has_region, memory_floor_cycles
from dsa_sched.pipeline.auto_segments import (
    MOST_TIMES,
    RuledOut,
    SegmentCandidate,
    Timed,
    segment_candidates,
    timed,
    with_ruled_out,
)
from dsa_sched.pipeline.auto_ways import (
    PLAIN_WAYS,
    SUBJECT,
    WAYS,
    Candidate,
    Plans,
    Progress,
    Way,
    chunk_plans_of,
    expects,
    one_line,
    plans_of,
    with_others,
)
from dsa_sched.pipeline.chunked_model import chunked_model
from dsa_sched.pipeline.compilation import CompileOptions, LevelTime, Lowered
from dsa_sched.pipeline.tile_stages import Planned, lower_below, verified
from hw_models.chip import Chip
from hw_models.errors import PlanError
from partitioner.context.plan_context import Context
from partitioner.cost.roofline import binding_floor, network_floors
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Plan
from partitioner.ir.target import PlanTarget
from partitioner.planners.levels import EFFORTS, IMAGES, LEVELS, NORMAL_EFFORT

__all__ = ["MOST_EXPECTED", "Chosen", "cheapest_level", "fastest_level"]

TargetT = TypeVar("TargetT", bound=PlanTarget)

PLAIN_LEVELS = frozenset(Way(level) for level in LEVELS)
"""Ways that a user can ask for by the level's name alone."""

LEAST_PATIENCE, MOST_PATIENCE = 3, 8
"""So many plans of segments one after the other that are not faster end the search at normal effort, which nothing else
does there: the most where programs are small."""

PATIENT_INSTRUCTIONS = 60_000
"""In all programs that fail one after the other, the size of the fastest whole level taken for each: a few seconds."""


MOST_EXPECTED = 2.0
"""A plan of which the cost model expects more than so many times what the best program takes has none, unless effort is
high: scheduled programs take three quarters of what is expected at the least (SqueezeNet, O2, constants ahead)."""


NEAR_FLOOR = 1.1
"""Where a program takes at most so many times the cycles that none is below, hidden values are not tried in chunks
too: there is little to win, and it is as much work again."""


@dataclass(frozen=True, slots=True)
class Chosen(Generic[TargetT]):
    """What a search keeps: the plan, with the decisions of the search in front; the options that make this plan without
    a search, and its way; the program, where it could be timed. `cycles` are the program's, else the cost model's,
    whose own are `expected_cycles`. `level_times` is what was learned of the plain levels."""

    way: Way
    planned: Planned[TargetT]
    options: CompileOptions
    cycles: float
    expected_cycles: float
    lowered: Lowered | None = None
    interrupted: bool = False
    level_times: tuple[LevelTime, ...] = ()


def cheapest_level(
    model: Model, chip: Chip, target: TargetT, options: CompileOptions, progress: Progress
) -> Chosen[TargetT]:
    """The plan that takes the fewest cycles by the cost model, for targets whose programs cannot be timed; `options`
    are settled. Raises ModelError for operators that cannot be computed, and what the first level raises where none has
    a plan."""
    plans = plans_of(model, chip, target, options, progress, frozenset(WAYS) - frozenset(PLAIN_WAYS))
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
    others: Callable[[float], tuple[Candidate, ...]] = lambda _promising: (),
) -> Chosen[TileTarget] | None:
    """The fastest program by the cycle model, which the target must be made for; None where none takes fewer cycles
    than the limit, or nothing is left to try. `options` are settled; `without` names what is not to be tried,
    and what the cost model does not expect below `promising_cycles` is not lowered. `others` are candidates
    beside the levels, asked for with the cycles that the cost model expects of the best of these.

    A search that Ctrl-C ends keeps the best program that it has, and says so among the decisions and warnings; with
    none yet, KeyboardInterrupt goes on. Raises ModelError for operators that cannot be computed, and what the first
    level raises where none has a plan or a program.
    """
    if limit_cycles < inf and binding_floor(network_floors(model.graph, chip)).cycles >= limit_cycles:
        return None
    plans = with_others(plans_of(model, chip, target, options, progress, without), others, without)
    search = _Search(plans, options, progress, limit_cycles, promising_cycles, without)
    search.run()
    search.run_segments()
    if chunks := _of_chunks(model, chip, target, search):
        plans, search = chunks.plans, chunks
    errors = (*plans.errors, *search.errors)
    if search.best is None:
        if errors and limit_cycles == inf:
            raise errors[0]
        return None
    candidate, lowered, cycles = search.best
    verdict = Decision(SUBJECT, f"{candidate.way}, by auto", f"{cycles:,.0f} cycles by the cycle model")
    plan = _decided(candidate.plan, (verdict, *search.of_segments, *search.decisions, *plans.decisions))
    planned = Planned(plans.model, plans.context, plan, lowered.layout.options)
    plain = candidate.way.of(options)
    times = tuple(search.level_times)
    found = Chosen(candidate.way, planned, plain, cycles, candidate.expected_cycles, lowered, level_times=times)
    if not search.interrupted:
        return found
    # What was interrupted may have left the context's tables half written.
    warned = replace(
        plans.model, warnings=(*plans.model.warnings, f"the search of level auto was interrupted: {verdict}")
    )
    context = Context(warned.graph, warned.constants, chip, target)
    return replace(found, planned=replace(planned, model=warned, context=context), interrupted=True)


def _of_chunks(model: Model, chip: Chip, target: TileTarget, before: _Search) -> _Search | None:
    """The search among plans of the model with its hidden values in chunks, if one of them is faster than what was
    found before; else what they take is said there."""
    options = before.options
    if EFFORTS[options.effort] < EFFORTS[NORMAL_EFFORT] or not options.schedule or before.interrupted:
        return None
    chunked = chunked_model(model, chip, target)
    if chunked is None:
        return None
    floor = binding_floor(network_floors(model.graph, chip))
    if before.limit_cycles <= NEAR_FLOOR * floor.cycles:
        reason = f"{floor.cycles:,.0f} cycles at least, for {floor.name}: little to win"
        before.decisions.append(Decision(SUBJECT, "not with hidden values in chunks", reason))
        return None
    plans = chunk_plans_of(chunked, chip, target, options, before.progress, before.without)
    search = _Search(plans, options, before.progress, before.limit_cycles, before.promising_cycles, before.without)
    search.run()
    if search.best is None:
        before.decisions += [*search.decisions, *plans.decisions]
        before.interrupted |= search.interrupted
        return None
    if before.best is not None:
        search.against(before.best[0], f"{before.best[2]:,.0f} cycles by the cycle model")
    search.decisions += [*before.decisions, *before.plans.decisions]
    search.level_times += before.level_times
    return search


class _Search:
    """Candidates one after the other; the fastest so far is the limit for the next."""

    def __init__(
        self,
        plans: Plans[TileTarget],
        options: CompileOptions,
        progress: Progress,
        limit_cycles: float,
        promising_cycles: float,
        without: frozenset[Way],
    ) -> None:
        self.plans, self.options, self.progress, self.without = plans, options, progress, without
        self.limit_cycles, self.promising_cycles = limit_cycles, promising_cycles
        self.best: tuple[Candidate, Lowered, float] | None = None
        self.decisions: list[Decision] = []
        self.errors: list[PlanError] = []
        self.interrupted = False
        self.tried = 0
        self.timed: list[Timed] = []
        self.ruled_out: list[RuledOut] = []
        self.instructions = 0
        self.of_segments: tuple[Decision, ...] = ()
        self.level_times: list[LevelTime] = []

    def run(self) -> None:
        """All whole plans."""
        for number, candidate in enumerate(self.plans.candidates, 1):
            self._attempt(candidate, f"{number} of {len(self.plans.candidates)}")

    def run_segments(self) -> None:
        """Plans of segments of those that were timed, then also of those that were ruled out as a whole."""
        if EFFORTS[self.options.effort] < EFFORTS[NORMAL_EFFORT] or self.interrupted:
            return
        ctx, options = self.plans.context, self.options
        try:
            limit = MOST_TIMES * self.limit_cycles
            found = [each for each in self.timed if each.cycles < limit]
            if len(found) > 1:
                self._attempt_while_promising(segment_candidates(ctx, found, options))
            best = min(self.limit_cycles, min((each.cycles for each in found), default=inf))
            self._attempt_while_promising(with_ruled_out(ctx, found, self.ruled_out, options, best))
        except KeyboardInterrupt:
            self.interrupted = True

    def _attempt_while_promising(self, candidates: Iterator[SegmentCandidate]) -> None:
        failed = 0
        for each in candidates:
            if self.interrupted:
                return
            if each.candidate.way in self.without:
                continue
            self._attempt(each.candidate, "beside whole levels")
            better = self.best is not None and self.best[0] is each.candidate
            failed = 0 if better else failed + 1
            if better:
                self.of_segments = each.decisions
            if failed >= self._patience() and EFFORTS[self.options.effort] == EFFORTS[NORMAL_EFFORT]:
                return

    def _patience(self) -> int:
        """How many failures one after the other are borne."""
        return min(max(PATIENT_INSTRUCTIONS // max(self.instructions, 1), LEAST_PATIENCE), MOST_PATIENCE)

    def _attempt(self, candidate: Candidate, which: str) -> None:
        try:
            if reason := self._skipped(candidate):
                self.against(candidate, reason)
                return
            self.tried += 1
            self._say(f"level auto: {candidate.way}, {which}")
            self._try(candidate)
        except PlanError as error:
            self.errors.append(error.with_traceback(None))  # its frames hold the program that was refused
            self.against(candidate, f"no program: {one_line(error)}")
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.interrupted = True
            self.against(candidate, "the search was interrupted")

    def _skipped(self, candidate: Candidate) -> str:
        """Why a candidate is not lowered; empty for one that is."""
        if self.interrupted:
            return f"the search was interrupted; {expects(candidate)}"
        if candidate.expected_cycles >= self.promising_cycles:
            return expects(candidate)
        normal = EFFORTS[self.options.effort] == EFFORTS[NORMAL_EFFORT]
        if self.tried >= EFFORTS[self.options.effort] and not (normal and candidate.way.segments):
            return f"not tried at effort {self.options.effort}; {expects(candidate)}"
        ctx, limit_cycles = self.plans.context, self.limit_cycles
        thorough = EFFORTS[self.options.effort] > EFFORTS[NORMAL_EFFORT]
        if candidate.expected_cycles > MOST_EXPECTED * limit_cycles and not thorough:
            self._rules_out(candidate, 0.0)
            return f"{expects(candidate)}, more than {MOST_EXPECTED:g} times what the best takes"
        if candidate.way.ahead and not has_region(candidate.plan, ctx):
            return f"values leave no region of {ctx.roles.staging} free throughout; {expects(candidate)}"
        if limit_cycles == inf:
            return ""
        options = candidate.way.of(self.options)
        floor = memory_floor_cycles(candidate.plan, ctx, options, limit_cycles, candidate.plain)
        if floor >= self.limit_cycles:
            self._learned(candidate, floor, timed=False)
            self._rules_out(candidate, floor)
            return f"{floor:,.0f} cycles at least, for the bytes of a shared memory"
        return ""

    def _try(self, candidate: Candidate) -> None:
        planned = Planned(self.plans.model, self.plans.context, candidate.plan)
        whole = candidate.way.level in LEVELS and EFFORTS[self.options.effort] >= EFFORTS[NORMAL_EFFORT]
        limit = self.limit_cycles * (MOST_TIMES if whole else 1.0)
        found = lower_below(planned, candidate.way.of(self.options), self._say, limit)
        if found is None:
            self._learned(candidate, limit, timed=False)
            self._rules_out(candidate, limit)
            self.against(candidate, f"no faster than {limit:,.0f} cycles; {expects(candidate)}")
            return
        lowered, run = found
        self._learned(candidate, run.cycles, timed=True)
        if run.cycles < self.limit_cycles:
            verified(planned, lowered, self._say)
        if whole or candidate.way.level == IMAGES:
            if run.cycles < min((each.cycles for each in self.timed), default=inf):
                self.instructions = sum(len(stream.instrs) for stream in lowered.program.streams)
            self.timed.append(timed(candidate, run, self.plans.context))
        if run.cycles >= self.limit_cycles:
            self.against(candidate, f"{run.cycles:,.0f} cycles by the cycle model")
            return
        if self.best is not None:
            self.against(self.best[0], f"{self.best[2]:,.0f} cycles by the cycle model")
        self.best, self.limit_cycles = (candidate, lowered, run.cycles), run.cycles
        self.progress(f"level auto: best so far {candidate.way}, {run.cycles:,.0f} cycles")

    def _rules_out(self, candidate: Candidate, least_cycles: float) -> None:
        if not candidate.way.segments:
            self.ruled_out.append(RuledOut(candidate, least_cycles))

    def _learned(self, candidate: Candidate, cycles: float, timed: bool) -> None:
        if candidate.way in PLAIN_LEVELS:
            self.level_times.append(LevelTime(candidate.way.level, cycles, timed))

    def _say(self, step: str) -> None:
        """A step, with what Ctrl-C would keep."""
        found = "" if self.best is None else f" (best so far {self.best[0].way}, {self.best[2]:,.0f} cycles)"
        self.progress(step + found)

    def against(self, candidate: Candidate, reason: str) -> None:
        self.decisions.append(Decision(SUBJECT, f"not {candidate.way}", reason))


def _decided(plan: Plan, decisions: Sequence[Decision]) -> Plan:
    return replace(plan, decisions=(*decisions, *plan.decisions))
