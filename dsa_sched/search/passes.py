"""Number of items of a batch in one pass: all of a cluster's share, fewer in several passes, or more with places empty.

    level auto              share --sizes--> the loop for each, the best so far as limit --> the fastest program
    a planner by its name   share --sizes--> plans --cost model--> the cheapest one, or the next if it has no program

Items must be independent unless a pass is the whole share: a batch for which that cannot be shown stays whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

from codegen.target import TileTarget
from dsa_sched.frontend import Model
from dsa_sched.search.candidates import CONFIGS, NOTHING_PRUNED, Config, Progress, Pruning, SearchRequest, one_line
from dsa_sched.search.image_groups import ImageGroups
from dsa_sched.search.loop import Fastest, fastest_program
from dsa_sched.stages.compilation import INTERRUPTED, Compilation, CompileOptions, LevelTime
from dsa_sched.stages.tile_stages import Planned
from hw_models.errors import ModelError, PlanError, UserError
from isched.program.target import Timeable
from isched.program.timed_ops import busiest_engine_cycles, timed_streams
from partitioner.cost.cost_model import PlanCost, plan_cycles
from partitioner.cost.micro_batching import candidate_batches, choose_batch, pass_count
from partitioner.cost.roofline import peak_cycles
from partitioner.ir.batch_independence import batch_problem
from partitioner.ir.decisions import Decision
from partitioner.ir.target import PlanTarget
from partitioner.planners.levels import O0, O3, Auto, Planner, Segments
from partitioner.planners.registry import make_plan

SUBJECT = "batch"

LEAST_BUSY = 0.5
"""Smallest share of the time in which the busiest engine of the best program works at which only the best planner so
far and O3 are tried for other pass sizes. Below it, every planner is.
"""

TargetT = TypeVar("TargetT", bound=PlanTarget)
MadeT = TypeVar("MadeT")
Make: TypeAlias = Callable[[Planned[TargetT]], MadeT]
Load = Callable[[int], Model]
"""Makes the model for this many items per pass."""


@dataclass(frozen=True)
class _Best:
    """The best so far: items per pass, number of passes, and the compiled program."""

    batch: int
    passes: int
    found: Fastest

    @property
    def cycles(self) -> float:
        return self.passes * self.found.cycles

    @property
    def expected_cycles(self) -> float:
        return self.passes * self.found.expected_cycles

    @cached_property
    def is_busy(self) -> bool:
        """Whether its busiest engine works for `LEAST_BUSY` of the time."""
        made = self.found.compilation
        assert isinstance(made.target, Timeable)  # who calls makes sure
        streams = timed_streams(made.program, made.chip, made.target.issue_costs(made.program, made.chip))
        return busiest_engine_cycles(streams) >= LEAST_BUSY * self.found.cycles

    def __str__(self) -> str:
        runs = "1 pass" if self.passes == 1 else f"{self.passes} passes"
        return f"{self.batch} per pass, {runs}"


def fastest_pass(request: SearchRequest[TileTarget], share: int, load: Load) -> Compilation:
    """The program of one pass whose passes over the share take the fewest cycles; the cycle model must be able to time
    the target. Raises ModelError, PlanError or DoesNotFit for the share as one pass, where no smaller pass has a
    program either.

    Ctrl-C keeps the best program there is; before there is one, it ends the compilation.
    """
    request.progress(f"level auto, {share} per pass")
    search = _PassSizes(request, share, load)
    search.whole()
    if not search.interrupted:
        search.other_sizes()
    if search.best is None:
        assert search.refused is not None  # else the share as one pass is the best
        raise search.refused
    return search.result(search.best)


class _PassSizes:
    """Tries pass sizes one by one, each with the loop over its planners; the fastest so far is the limit for the next.
    `model` is that of the share.
    """

    def __init__(self, request: SearchRequest[TileTarget], share: int, load: Load) -> None:
        self.request, self.share, self.load = request, share, load
        self.model = load(share)
        self.neighbours: dict[int, Model] = {}  # by batch, until their own turn
        self.o3_cycles: dict[int, float] = {}  # by batch, the cycles that the cost model expects of O3's own plan
        self.best: _Best | None = None
        self.decisions: list[Decision] = []
        self.refused: PlanError | None = None
        self.interrupted = False
        self.level_times: tuple[LevelTime, ...] = ()

    def whole(self) -> None:
        """The share as one pass."""
        neighbours = ImageGroups(self.request, self.model, self.share, self._neighbour)
        try:
            found = fastest_program(self.request, self.model, others=neighbours)
        except PlanError as error:
            self.refused = error.with_traceback(None)  # its frames hold all that was made
            self._against(self.share, f"no program: {one_line(error)}")
            return
        assert found is not None  # a search without a limit finds a program or raises
        self.best, self.level_times = _Best(self.share, 1, found), found.compilation.level_times
        self.interrupted = found.interrupted
        self.o3_cycles = neighbours.expected_cycles
        self.decisions += neighbours.decisions

    def other_sizes(self) -> None:
        """Try `sizes_to_try`, and keep halving the smallest size for as long as a smaller one pays. Where the share has
        no program, try all powers of two below it, the smallest first: its program is found soon and is a limit for the
        rest.
        """
        sizes = deque(sizes_to_try(self.share, self.request.chip.cores_per_cluster, self.request.options))
        if self.best is None:
            sizes = deque(1 << power for power in range((self.share - 1).bit_length()))
        if sizes and batch_problem(self.model.graph, self.model.constants):
            reason = "the items of the batch are not known to be independent"
            self.decisions.append(Decision(SUBJECT, "neither divided nor padded", reason))
            return
        tried = set(sizes)
        try:
            while sizes and not self.interrupted:
                batch = sizes.popleft()
                pays = self._try(batch)
                if pays and batch < self.share and batch // 2 not in {0, *tried}:
                    tried.add(batch // 2)
                    sizes.appendleft(batch // 2)
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.interrupted = True
            self.decisions.append(Decision(SUBJECT, "search ended", "interrupted"))

    def _try(self, batch: int) -> bool:
        """Whether passes of this many items are faster than the best so far, which they become then."""
        passes, best = pass_count(self.share, batch), self.best
        floor_cycles = passes * batch * peak_cycles(self.model.graph, self.request.chip) / self.share
        if best is not None and floor_cycles >= best.cycles:
            self._against(batch, f"at least {floor_cycles:,.0f} cycles for the engines")
            return False
        self.request.progress(f"level auto, {batch} per pass")
        pruning = self._pruning(batch, passes)
        if not frozenset(CONFIGS) - pruning.without:
            self._against(batch, "the cost model expects no fewer cycles than for the best")
            return False
        request = self.request
        if best is not None:
            request = replace(request, progress=_with(request.progress, best))
        try:
            model = self.neighbours.pop(batch, None) or self.load(batch)
            found = fastest_program(request, model, pruning)
        except UserError:
            self._against(batch, "there is no model, plan or program for this batch")
            return False
        if found is None:
            assert best is not None  # nothing is too slow where there is no limit
            reason = f"no faster than {best}, {best.cycles:,.0f} cycles, by the cycle model or else the cost model"
            self._against(batch, reason)
            return False
        if best is not None:
            self._against(best.batch, f"{best.cycles:,.0f} cycles in all")
        self.best = _Best(batch, passes, found)
        self.interrupted = found.interrupted
        return True

    def _neighbour(self, batch: int) -> Model:
        self.neighbours[batch] = self.load(batch)
        return self.neighbours[batch]

    def _pruning(self, batch: int, passes: int) -> Pruning:
        """Candidates that need not be tried for a size: few are tried where the best program keeps the engines busy."""
        best = self.best
        if best is None:
            return NOTHING_PRUNED
        limit_cycles = best.cycles / passes
        if not best.is_busy:
            return Pruning(limit_cycles)
        without = _without(best, passes * self.o3_cycles.get(batch, 0.0))
        return Pruning(limit_cycles, best.expected_cycles / passes, without)

    def _against(self, batch: int, reason: str) -> None:
        self.decisions.append(Decision(SUBJECT, f"not {batch} per pass", reason))

    def result(self, best: _Best) -> Compilation:
        """The best program with the decisions that led to it."""
        made = best.found.compilation
        taken = f"{best.cycles:,.0f} cycles in all by the cycle model, before loops are made"
        verdict = Decision(SUBJECT, str(best), taken)
        plan = made.plan
        if self.decisions:
            plan = replace(plan, decisions=(verdict, *self.decisions, *plan.decisions))
        warnings: tuple[str, ...] = ()
        if self.interrupted and not best.found.interrupted:  # otherwise it reports this itself
            warnings = (f"{INTERRUPTED}: {verdict}",)
        model = replace(made.model, warnings=(*made.model.warnings, *warnings))
        return made.with_decisions(plan, model, self.share, self.level_times)


def sizes_to_try(share: int, cores: int, options: CompileOptions) -> tuple[int, ...]:
    """Items per pass that are tried. For a planner by its name, those that divide the share well, the smallest first.
    At level auto those other than the share, the most promising first: the power of two below it, one item per core,
    and the power of two above it, whose last places stay empty; at more than normal effort, all that divide it well;
    at less, none. A share of one item is always one pass.
    """
    even = candidate_batches(share)
    if not isinstance(options.planner, Auto):
        return even
    if share == 1 or options.is_hasty:
        return ()
    below, above = 1 << (share - 1).bit_length() - 1, 1 << share.bit_length()
    near = tuple(dict.fromkeys((below, min(below, cores), above)))
    if not options.is_thorough:
        return near
    return (*near, *(size for size in reversed(even) if size not in (*near, share)))


def _without(best: _Best, o3_cycles: float) -> frozenset[Config]:
    """Configurations that are not tried for another pass size: all but the best level so far, or the levels of its
    segments, and O3, whose plans depend most on the batch. O3 is left out too if the cost model expects no less of it
    than of the best.
    """
    config = best.found.config
    parts = config.planner.parts if isinstance(config.planner, Segments) else ()
    tried = {config, Config(O3()), *(Config(each.planner) for each in parts)}
    if o3_cycles >= best.expected_cycles:
        tried.remove(Config(O3()))
    return frozenset(CONFIGS) - tried


def _with(progress: Progress, best: _Best) -> Progress:
    """Progress that names, in each step, the program that Ctrl-C would keep."""
    return lambda step: progress(f"{step}; best so far with {best}: {best.cycles:,.0f} cycles in all")


def cheapest_pass(
    request: SearchRequest[TargetT], planner: Planner, shares: tuple[int, ...], load: Load, make: Make[TargetT, MadeT]
) -> MadeT:
    """Result of `make` for the pass size whose plan takes the fewest cycles by the cost model, with the decisions about
    the batch before those of the plan; a size for which it raises PlanError gives way to the next. Raises the refusal
    of the smallest size where nothing is left. Only the best model, plan and context are kept.
    """
    sizes = sizes_to_try(shares[0], request.chip.cores_per_cluster, request.options)
    costs: dict[int, PlanCost | str] = {}
    errors: dict[int, PlanError] = {}
    base_cycles_per_item: float | None = None
    best: tuple[tuple[float, int], Planned[TargetT]] | None = None
    if sizes[-1] == 1 and len(shares) > 1:
        require_independent_items(load(2), request.options)
    for number, batch in enumerate(sizes, 1):
        request.progress(f"trying batch {batch} per pass ({number} of {len(sizes)})")
        model = load(batch)
        if batch == next((size for size in sizes if size > 1), 0):
            require_independent_items(model, request.options)
        try:
            planned = _planned(request, planner, model)
            cost = costs[batch] = plan_cycles(planned.plan, planned.context)
        except PlanError as error:
            errors[batch], costs[batch] = error, one_line(error)
            continue
        if base_cycles_per_item is None:
            at_o0 = cost if planner == O0() else plan_cycles(make_plan(planned.context), planned.context)
            base_cycles_per_item = at_o0.cycles / batch
        rank = pass_count(shares[0], batch) * cost.cycles, -batch
        if best is None or rank < best[0]:
            best = rank, planned
    while len(errors) < len(costs):
        found = choose_batch(costs, sum(shares), len(shares), base_cycles_per_item)
        batch = found.chosen.batch_per_pass
        if best is None or -best[0][1] != batch:
            request.progress(f"batch {batch} per pass")
            best = (found.chosen.cycles, -batch), _planned(request, planner, load(batch))
        planned = best[1]
        decisions = (*found.decisions, *planned.plan.decisions)
        try:
            return make(replace(planned, plan=replace(planned.plan, decisions=decisions)))
        except PlanError as error:
            request.progress(f"batch {batch} per pass has no program: {one_line(error)}")
            errors[batch], costs[batch] = error, one_line(error)
    raise errors[min(errors)]


def _planned(request: SearchRequest[TargetT], planner: Planner, model: Model) -> Planned[TargetT]:
    ctx = request.context(model)
    return Planned(model, ctx, make_plan(ctx, planner))


def require_independent_items(model: Model, options: CompileOptions) -> None:
    """Raises ModelError for a batch whose items are not computed independently, which cannot be divided."""
    if problem := batch_problem(model.graph, model.constants):
        raise ModelError(
            f"model {model.graph.name}",
            needs="inputs and outputs whose outermost axis counts items that are computed independently",
            has=problem,
            change=f"compile the batch of {options.batch} as a whole, without --clusters and --per-pass",
        )
