"""The loop of the search: candidates become programs one by one, and the cycle model judges them.

    model --every planner, with its options--> plans --cost model--> candidates, the most promising first
          --floor below the best? lower, schedule, time, the best so far as limit--> the fastest program
          --parts of the plans that were timed, or ruled out as a whole--> plans of segments --the same--> the fastest

A plan with which no program can win is not lowered: one whose bytes of the shared memories alone take longer than the
best program so far. Where programs cannot be timed, the cost model decides. What is found is a plan of the planner, or
of the segments, that made it in every respect but the decisions about `level`, so nothing after the search knows of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import inf
from typing import TypeAlias, TypeVar

from codegen.target import ClusterFiles, TileTarget
from dsa_sched.frontend import Model
from dsa_sched.search.ahead import Ahead, Workers
from dsa_sched.search.attempt import Attempt, attempted, is_timed_by_layer, limit_of
from dsa_sched.search.candidates import (
    CONFIGS,
    NOTHING_PRUNED,
    PLAIN_CONFIGS,
    SUBJECT,
    Candidate,
    Config,
    Plans,
    Pruning,
    SearchRequest,
    SearchState,
    chunk_plans_of,
    expects,
    one_line,
    plans_of,
    with_others,
)
from dsa_sched.search.floors import memory_floor_cycles
from dsa_sched.search.image_groups import ImageGroups
from dsa_sched.search.segments import (
    MOST_TIMES,
    RuledOut,
    SegmentCandidate,
    Timed,
    segment_candidates,
    with_ruled_out,
)
from dsa_sched.stages.chunked_model import chunked_model
from dsa_sched.stages.compilation import INTERRUPTED, Compilation, CompileOptions, LevelTime, Lowered
from dsa_sched.stages.tile_stages import Planned
from hw_models.errors import PlanError
from partitioner.context.plan_context import Context
from partitioner.cost.roofline import binding_floor, network_floors
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Plan
from partitioner.ir.target import PlanTarget
from partitioner.planners.levels import PLANNERS, Segments

TargetT = TypeVar("TargetT", bound=PlanTarget)

PLAIN_LEVELS = frozenset(Config(kind()) for kind in PLANNERS.values())
"""Configurations that a user can ask for by the name of the level alone."""

LEAST_PATIENCE, MOST_PATIENCE = 3, 8
"""Number of segment plans in a row without improvement that ends the search at normal effort: the larger number where
programs are small, unless another size of the network was searched before.
"""

PATIENT_INSTRUCTIONS = 60_000
"""Instruction budget for programs that fail in a row (a few seconds); each counts as much as the fastest whole one."""


MOST_EXPECTED = 2.0
"""Largest ratio of expected cycles to the cycles of the best program at which a plan is still lowered, unless effort is
high: the cost model knows nothing of constants that run far ahead.
"""

MOST_EXPECTED_FAST = 1.4
"""The same ratio at effort fast: the end of the range in which the cost model is held to lie (`benchmarks/price.py`).
"""


NEAR_FLOOR = 1.1
"""Largest ratio of the best program's cycles to the floor of all programs at which hidden values are not tried in
chunks: there is little to gain, and trying them doubles the work.
"""


@dataclass(frozen=True, slots=True)
class Fastest:
    """The fastest program that a search has found, compiled with the options that make it without a search; its plan
    begins with the decisions of the search. `cycles` are the program's by the cycle model, `expected_cycles` those of
    the cost model. `interrupted` says whether Ctrl-C ended the search.
    """

    config: Config
    compilation: Compilation
    context: Context[TileTarget]
    cycles: float
    expected_cycles: float
    interrupted: bool = False

    @property
    def planned(self) -> Planned[TileTarget]:
        made = self.compilation
        return Planned(made.model, self.context, made.plan, made.layout.options)


def cheapest_plan(request: SearchRequest[TargetT], model: Model) -> tuple[Planned[TargetT], CompileOptions]:
    """The plan that takes the fewest cycles by the cost model, for targets whose programs cannot be timed, and the
    options that make it without a search. Raises ModelError for operators that cannot be computed, and the error of the
    first level where none has a plan.
    """
    with Workers[SearchState[TargetT]]() as workers:
        plans = plans_of(request, model, frozenset(CONFIGS) - frozenset(PLAIN_CONFIGS), workers)
    if not plans.candidates:
        raise plans.errors[0]
    best, *others = plans.candidates
    verdict = Decision(SUBJECT, f"{best.config}, by auto", f"{best.expected_cycles:,.0f} cycles by the cost model")
    losers = (
        Decision(SUBJECT, f"not {c.config}", f"{c.expected_cycles:,.0f} cycles by the cost model") for c in others
    )
    plan = _decided(best.plan, (verdict, *losers, *plans.decisions))
    return Planned(model, plans.context, plan), best.config.of(request.options)


def fastest_program(
    request: SearchRequest[TileTarget],
    model: Model,
    pruning: Pruning = NOTHING_PRUNED,
    others: ImageGroups | None = None,
) -> Fastest | None:
    """Like `fastest_timed`, with the files emitted: a program whose code overflows its space gives way to the next one.
    Raises PlanError or DoesNotFit where no program is left.
    """
    refused: PlanError | None = None
    while found := fastest_timed(request, model, pruning, others):
        try:
            _ = found.compilation.files
        except PlanError as error:
            pruning = replace(pruning, without=pruning.without | {found.config})
            refused = error
            continue
        return found
    if refused is not None:
        raise refused
    return None


def fastest_timed(
    request: SearchRequest[TileTarget],
    model: Model,
    pruning: Pruning = NOTHING_PRUNED,
    others: ImageGroups | None = None,
) -> Fastest | None:
    """The fastest program by the cycle model, for which the target must be made; None where no candidate is left that
    `pruning` allows.

    A search that Ctrl-C ends keeps the best program that it has, and says so among the decisions and warnings; if there
    is none yet, KeyboardInterrupt goes on. Raises ModelError for operators that cannot be computed, and the error of
    the first level where none has a plan or a program.
    """
    limit = pruning.limit_cycles
    if limit < inf and binding_floor(network_floors(model.graph, request.chip)).cycles >= limit:
        return None
    with Workers[SearchState[TileTarget]]() as workers:
        if others is None:
            plans = plans_of(request, model, pruning.without, workers)
        else:
            plans = plans_of(request, model, pruning.without, workers, others.plan_neighbours)
            plans = with_others(plans, others, pruning.without)
        loop = _TimingLoop(request, plans, pruning, workers)
        loop.run()
        loop.run_segments()
    loop = _of_chunks(model, loop) or loop
    if loop.best is not None:
        return loop.found(loop.best)
    errors = (*loop.plans.errors, *loop.errors)
    if errors and limit == inf:
        raise errors[0]
    return None


def _of_chunks(model: Model, before: _TimingLoop) -> _TimingLoop | None:
    """The loop over plans of the model with its hidden values in chunks, if one of them is faster than the best of
    `before`; otherwise None, and the decisions of `before` say what they take.
    """
    request = before.request
    if request.options.is_hasty or not request.options.schedule or before.interrupted:
        return None
    chunked = chunked_model(model, request.chip, request.target)
    if chunked is None:
        return None
    if request.options.shared:
        reason = "programs of other sizes read the same weights, whole"
        before.decisions.append(Decision(SUBJECT, "not with hidden values in chunks", reason))
        return None
    floor = binding_floor(network_floors(model.graph, request.chip))
    if before.limit_cycles <= NEAR_FLOOR * floor.cycles:
        reason = f"at least {floor.cycles:,.0f} cycles for {floor.name}: little to gain"
        before.decisions.append(Decision(SUBJECT, "not with hidden values in chunks", reason))
        return None
    with Workers[SearchState[TileTarget]]() as workers:
        plans = chunk_plans_of(request, chunked, before.pruning.without, workers)
        pruning = replace(before.pruning, limit_cycles=before.limit_cycles)
        loop = _TimingLoop(request, plans, pruning, workers)
        loop.run()
    if loop.best is None:
        before.decisions += [*loop.decisions, *plans.decisions]
        before.interrupted |= loop.interrupted
        return None
    if before.best is not None:
        loop.against(before.best[0], timed_text(before.best[2]))
    loop.decisions += [*before.decisions, *before.plans.decisions]
    loop.level_times += before.level_times
    return loop


Best: TypeAlias = tuple[Candidate, Lowered, float]
"""The best candidate so far, its program, and its cycles."""

Attempts: TypeAlias = Ahead[Candidate, SearchState[TileTarget], Attempt]


class _TimingLoop:
    """Tries candidates for one model in their order; the fastest so far is the limit for the next. Programs are made
    ahead of their turn by other processes, so with a limit that is higher than in their turn, or as high."""

    def __init__(
        self,
        request: SearchRequest[TileTarget],
        plans: Plans[TileTarget],
        pruning: Pruning,
        workers: Workers[SearchState[TileTarget]],
    ) -> None:
        self.request, self.plans, self.pruning, self.workers = request, plans, pruning, workers
        self.options, self.limit_cycles = request.options, pruning.limit_cycles
        self.best: Best | None = None
        self.decisions: list[Decision] = []
        self.errors: list[PlanError] = []
        self.interrupted = False
        self.tried = 0
        self.timed: list[Timed] = []
        self.ruled_out: list[RuledOut] = []
        self.instructions = 0
        self.of_segments: tuple[Decision, ...] = ()
        self.level_times: list[LevelTime] = []
        self.emitted: tuple[Best, ClusterFiles] | None = None

    def run(self) -> None:
        """Try all whole plans."""
        candidates, number = self.plans.candidates, 0
        try:
            ahead = self._ahead(candidates)
            for number, candidate in enumerate(ahead, 1):
                self._attempt(candidate, f"plan {number} of {len(candidates)}", ahead)
        except KeyboardInterrupt:  # between two candidates
            if self.best is None:
                raise
            self.interrupted = True
            for candidate in candidates[number:]:
                self.against(candidate, self._skipped(candidate))

    def _ahead(self, candidates: Iterable[Candidate]) -> Attempts:
        begun = count(self.tried + 1)

        def worth(candidate: Candidate) -> bool:
            skipped = self._skipped(candidate) or self._expects_too_much(candidate)
            return not skipped and next(begun) <= self._most_tried(candidate)

        return Ahead(candidates, self._work, self.workers, self.plans.state, worth, self._emit_best)

    def _emit_best(self) -> None:
        """Emit the best program so far, which may well be the one that is found in the end."""
        best = self.best
        if best is None or (self.emitted is not None and self.emitted[0] is best):
            return
        candidate, lowered, _ = best
        made = Compilation(
            self.plans.model, self.request.chip, candidate.config.of(self.options), candidate.plan, lowered
        )
        with suppress(PlanError):  # its code overflows its space, which is told when it is found
            self.emitted = best, made.files

    def _work(self, candidate: Candidate) -> partial[Attempt]:
        return partial(attempted, candidate=candidate, options=self.options, best_cycles=self.limit_cycles)

    def run_segments(self) -> None:
        """Plans of segments of those that were timed, then also of those that were ruled out as a whole."""
        if self.options.is_hasty:
            self.decisions.append(Decision(SUBJECT, "not in segments", f"not tried at effort {self.options.effort}"))
        if self.options.is_hasty or self.interrupted:
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
        reasons: dict[int, tuple[Decision, ...]] = {}  # by identity of the candidate

        def allowed() -> Iterator[Candidate]:
            for each in candidates:
                if each.candidate.config not in self.pruning.without:
                    reasons[id(each.candidate)] = each.decisions
                    yield each.candidate

        ahead = self._ahead(allowed())
        for number, candidate in enumerate(ahead, 1):
            if self.interrupted:
                return
            self._attempt(candidate, f"division {number} into segments", ahead)
            better = self.best is not None and self.best[0] is candidate
            failed = 0 if better else failed + 1
            if better:
                self.of_segments = reasons[id(candidate)]
            if failed >= self._patience() and not self.options.is_thorough:
                return

    def _patience(self) -> int:
        """Number of failures in a row after which the search ends."""
        if self.options.is_further:
            return LEAST_PATIENCE
        return min(max(PATIENT_INSTRUCTIONS // max(self.instructions, 1), LEAST_PATIENCE), MOST_PATIENCE)

    def _attempt(self, candidate: Candidate, which: str, ahead: Attempts) -> None:
        try:
            if reason := self._skipped(candidate):
                self.against(candidate, reason)
                return
            if self._expects_too_much(candidate):
                self._rules_out(candidate, 0.0)
                self.against(
                    candidate, f"{expects(candidate)}, more than {self._most_expected:g} times the cycles of the best"
                )
                return
            self._say(which, candidate)
            self._judge(candidate, ahead.result(candidate))
        except PlanError as error:
            self.errors.append(error.with_traceback(None))  # its frames hold the program that was refused
            self.against(candidate, f"no program: {one_line(error)}")
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.interrupted = True
            self.against(candidate, "the search was interrupted")

    def _skipped(self, candidate: Candidate) -> str:
        """Why a candidate is not even looked at; empty for one that is."""
        if self.interrupted:
            return f"the search was interrupted; {expects(candidate)}"
        if candidate.expected_cycles >= self.pruning.promising_cycles:
            return expects(candidate)
        if self.tried >= self._most_tried(candidate):
            return f"not tried at effort {self.options.effort}; {expects(candidate)}"
        return ""

    def _most_tried(self, candidate: Candidate) -> float:
        """Number of programs after which a candidate is not tried."""
        segments = isinstance(candidate.config.planner, Segments) and not self.options.is_thorough
        return inf if segments else self.options.most_plans

    def _expects_too_much(self, candidate: Candidate) -> bool:
        return candidate.expected_cycles > self._most_expected * self.limit_cycles and not self.options.is_thorough

    @property
    def _most_expected(self) -> float:
        return MOST_EXPECTED_FAST if self.options.is_hasty else MOST_EXPECTED

    def _judge(self, candidate: Candidate, attempt: Attempt) -> None:
        ctx = self.plans.context
        if not attempt.has_region:
            reason = f"values leave no region of {ctx.roles.staging} free for the whole run; {expects(candidate)}"
            self.against(candidate, reason)
            return
        floor = attempt.floor_cycles
        if floor >= self.limit_cycles:
            options = candidate.config.of(self.options)
            floor = memory_floor_cycles(candidate.plan, ctx, options, self.limit_cycles, candidate.plain)
        if floor >= self.limit_cycles:
            self._learned(candidate, floor, timed=False)
            self._rules_out(candidate, floor)
            self.against(candidate, f"at least {floor:,.0f} cycles for the bytes of a shared memory")
            return
        self.tried += 1
        if attempt.refused is not None:
            raise attempt.refused
        limit = limit_of(candidate, self.options, self.limit_cycles)
        if attempt.cycles >= limit:
            self._learned(candidate, limit, timed=False)
            self._rules_out(candidate, limit)
            self.against(candidate, f"no faster than {limit:,.0f} cycles; {expects(candidate)}")
            return
        self._learned(candidate, attempt.cycles, timed=True)
        if is_timed_by_layer(candidate, self.options):
            if attempt.cycles < min((each.cycles for each in self.timed), default=inf):
                self.instructions = attempt.instructions
            self.timed.append(Timed(candidate, attempt.cycles, attempt.layer_cycles))
        if attempt.cycles >= self.limit_cycles:
            self.against(candidate, timed_text(attempt.cycles))
            return
        if self.best is not None:
            self.against(self.best[0], timed_text(self.best[2]))
        assert attempt.made is not None  # it is faster than the limit that it was made with
        lowered = Lowered(ctx.target, *attempt.made, attempt.cycles)
        self.best, self.limit_cycles = (candidate, lowered, attempt.cycles), attempt.cycles

    def _rules_out(self, candidate: Candidate, least_cycles: float) -> None:
        if not isinstance(candidate.config.planner, Segments):
            self.ruled_out.append(RuledOut(candidate, least_cycles))

    def _learned(self, candidate: Candidate, cycles: float, timed: bool) -> None:
        if candidate.config in PLAIN_LEVELS:
            self.level_times.append(LevelTime(candidate.config.planner.name, cycles, timed))

    def _say(self, which: str, candidate: Candidate) -> None:
        """Report the step, with the program that Ctrl-C would keep."""
        found = "" if self.best is None else f", best so far {self.best[0].config}: {self.best[2]:,.0f} cycles"
        self.request.progress(f"level auto: {which} ({candidate.config}){found}")

    def against(self, candidate: Candidate, reason: str) -> None:
        self.decisions.append(Decision(SUBJECT, f"not {candidate.config}", reason))

    def found(self, best: Best) -> Fastest:
        """The best program, with all decisions that led to it."""
        candidate, lowered, cycles = best
        verdict = Decision(SUBJECT, f"{candidate.config}, by auto", timed_text(cycles))
        plan = _decided(candidate.plan, (verdict, *self.of_segments, *self.decisions, *self.plans.decisions))
        model, context = self.plans.model, self.plans.context
        if self.interrupted:
            warning = f"{INTERRUPTED}: {verdict}"
            model = replace(model, warnings=(*model.warnings, warning))
            context = self.request.context(model)  # the tables of the other one may be half written
        times, options = tuple(self.level_times), candidate.config.of(self.options)
        made = Compilation(model, self.request.chip, options, plan, lowered, level_times=times)
        if self.emitted is not None and self.emitted[0] is best:
            made = made.with_files(self.emitted[1])
        return Fastest(candidate.config, made, context, cycles, candidate.expected_cycles, self.interrupted)


def timed_text(cycles: float) -> str:
    """Cycles of a program that the search has timed. The machine code that is shipped has loops, so its scalar
    instructions are others, and its cycles may differ by a few."""
    return f"{cycles:,.0f} cycles by the cycle model, before loops are made"


def _decided(plan: Plan, decisions: Sequence[Decision]) -> Plan:
    return replace(plan, decisions=(*decisions, *plan.decisions))
