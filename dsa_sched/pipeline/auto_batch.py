"""Level auto for a batch: all of a cluster's share in one pass, in several smaller ones, or filled up to a larger one.

    share --fastest level, or groups as for batches beside it, in one pass--> program
          --other sizes of a pass, as far as they promise more--> the fastest

Items must not meet where a pass is not the share: a batch of which that cannot be shown stays whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from codegen.target import TileTarget
from dsa_sched.frontend import Model, load_model, open_model
from dsa_sched.pipeline.driver import FastestLevel, compile_fastest
from dsa_sched.search.candidates import WAYS, Way, one_line
from dsa_sched.search.image_groups import ImageGroups
from dsa_sched.stages.compilation import Compilation, CompileOptions, LevelTime
from dsa_sched.stages.targets import judge_of
from hw_models.chip import Chip
from hw_models.errors import PlanError, UserError
from isched.program.target import Timeable
from isched.program.timed_ops import busiest_engine_cycles, timed_streams
from partitioner.cost.micro_batching import candidate_batches, pass_count
from partitioner.cost.roofline import peak_cycles
from partitioner.ir.batch_independence import batch_problem
from partitioner.ir.decisions import Decision
from partitioner.planners.levels import O3, Segments

__all__ = ["compile_fastest_batch", "sizes_to_try"]

SUBJECT = "batch"

LEAST_BUSY = 0.5
"""Where the busiest engine works for a smaller share of the time, another size of a pass may win much: all is tried of
it that is tried of the share. Else only the level that is best so far and O3 are."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Best:
    """The best so far: items a pass, how often it runs, what was compiled."""

    batch: int
    passes: int
    found: FastestLevel

    @property
    def cycles(self) -> float:
        return self.passes * self.found.chosen.cycles

    @property
    def expected_cycles(self) -> float:
        return self.passes * self.found.chosen.expected_cycles

    def is_busy(self, chip: Chip, target: Timeable) -> bool:
        program = self.found.compilation.program
        streams = timed_streams(program, chip, target.issue_costs(program))
        return busiest_engine_cycles(streams) >= LEAST_BUSY * self.found.chosen.cycles

    def __str__(self) -> str:
        runs = "1 pass" if self.passes == 1 else f"{self.passes} passes"
        return f"{self.batch} a pass, {runs}"


def compile_fastest_batch(
    source: str | Path, chip: Chip, target: TileTarget, options: CompileOptions, share: int, progress: Progress
) -> Compilation:
    """The program of one pass whose passes over the share take the fewest cycles. `options` are settled; the target is
    one that the cycle model can ask. Raises as `compile_model` does for the share as one pass, where no smaller pass
    has a program either.

    Ctrl-C keeps the best program there is; before there is one, it ends the compilation."""
    progress("reading the model")
    opened = open_model(source, dict(options.bindings))

    def load(batch: int) -> Model:
        return load_model(opened, dict(options.shapes), batch, judge_of(chip, target))

    progress(f"level auto: {share} a pass")
    search = _Search(load(share), chip, target, options, share, load, progress)
    search.whole()
    if not search.interrupted:
        search.other_sizes()
    if search.best is None:
        assert search.refused is not None  # else the share as one pass is the best
        raise search.refused
    return search.told(search.best)


class _Search:
    """Sizes of a pass one after the other; the fastest so far is the limit for the next. `model` is that of the share,
    `load` makes those of other sizes."""

    def __init__(
        self,
        model: Model,
        chip: Chip,
        target: TileTarget,
        options: CompileOptions,
        share: int,
        load: Callable[[int], Model],
        progress: Progress,
    ) -> None:
        self.model, self.chip, self.target, self.options, self.share = model, chip, target, options, share
        self.load, self.progress = load, progress
        self.o3_cycles: dict[int, float] = {}  # by batch what the cost model expects of O3's own plan
        self.best: _Best | None = None
        self.busy: bool | None = None  # the best one's, asked where another size may be tried
        self.decisions: list[Decision] = []
        self.refused: PlanError | None = None
        self.interrupted = False
        self.level_times: tuple[LevelTime, ...] = ()

    def whole(self) -> None:
        """The share as one pass."""
        search = self.model, self.chip, self.target, self.options
        beside = ImageGroups(*search, self.share, self.load, self.progress)
        try:
            found = compile_fastest(*search, self.progress, others=beside)
        except PlanError as error:
            self.refused = error.with_traceback(None)  # its frames hold all that was made
            self._against(self.share, f"no program: {one_line(error)}")
            return
        assert found is not None  # a search without a limit ends with a program or an error
        self.best, self.level_times = _Best(self.share, 1, found), found.chosen.level_times
        self.interrupted = found.chosen.interrupted
        self.o3_cycles = beside.expected_cycles
        self.decisions += beside.decisions

    def other_sizes(self) -> None:
        """Those of `sizes_to_try`, and smaller ones by halves for as long as a smaller one pays. Where the share has no
        program, all powers of two below it, the smallest first: its program is soon there, and a limit for the rest."""
        sizes = deque(sizes_to_try(self.share, self.chip.cores_per_cluster, self.options))
        if self.best is None:
            sizes = deque(1 << power for power in range((self.share - 1).bit_length()))
        if sizes and batch_problem(self.model.graph, self.model.constants):
            reason = "items of the batch are not known to be computed apart"
            self.decisions.append(Decision(SUBJECT, "neither divided nor filled up", reason))
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
        """Whether passes of so many items are faster than the best so far, which they become then."""
        passes, best = pass_count(self.share, batch), self.best
        floor_cycles = passes * batch * peak_cycles(self.model.graph, self.chip) / self.share
        if best is not None and floor_cycles >= best.cycles:
            self._against(batch, f"{floor_cycles:,.0f} cycles at least, for the engines")
            return False
        self.progress(f"level auto: {batch} a pass")
        without, promising = self._narrowed(batch, passes)
        if not frozenset(WAYS) - without:
            self._against(batch, "the cost model expects no less of it than of the best")
            return False
        say = self.progress if best is None else _with(self.progress, best)
        limit_cycles = inf if best is None else best.cycles / passes
        search = self.chip, self.target, self.options, say, limit_cycles, without, promising
        try:
            found = compile_fastest(self.load(batch), *search)
        except UserError:
            self._against(batch, "cannot be had: for this batch there is no model, plan or program")
            return False
        if found is None:
            assert best is not None  # nothing is too slow where there is no limit
            reason = f"no faster than {best}, {best.cycles:,.0f} cycles, by the cycle model or else the cost model"
            self._against(batch, reason)
            return False
        if best is not None:
            self._against(best.batch, f"{best.cycles:,.0f} cycles in all")
        self.best, self.busy = _Best(batch, passes, found), None
        self.interrupted = found.chosen.interrupted
        return True

    def _narrowed(self, batch: int, passes: int) -> tuple[frozenset[Way], float]:
        """What need not be tried for a size, and how many cycles the cost model must expect of the rest at most: little
        is tried where the engines are busy in the best program."""
        best = self.best
        if best is None:
            return frozenset(), inf
        if self.busy is None:
            assert isinstance(self.target, Timeable)  # who calls makes sure
            self.busy = best.is_busy(self.chip, self.target)
        if not self.busy:
            return frozenset(), inf
        return _without(best, passes * self.o3_cycles.get(batch, 0.0)), best.expected_cycles / passes

    def _against(self, batch: int, reason: str) -> None:
        self.decisions.append(Decision(SUBJECT, f"not {batch} a pass", reason))

    def told(self, best: _Best) -> Compilation:
        """The best program with what was decided on the way to it."""
        made = best.found.compilation
        verdict = Decision(SUBJECT, str(best), f"{best.cycles:,.0f} cycles in all by the cycle model")
        plan = made.plan
        if self.decisions:
            plan = replace(plan, decisions=(verdict, *self.decisions, *plan.decisions))
        warnings: tuple[str, ...] = ()
        if self.interrupted and not best.found.chosen.interrupted:  # else it says so itself
            warnings = (f"the search of level auto was interrupted: {verdict}",)
        model = replace(made.model, warnings=(*made.model.warnings, *warnings))
        return made.told(plan, model, self.share, self.level_times)


def sizes_to_try(share: int, cores: int, options: CompileOptions) -> tuple[int, ...]:
    """Items a pass beside the share, the most promising first: the power of two below it, an item a core, and the power
    of two above it, whose last places stay empty; with more effort than normal all that divide it well, with less none.
    One item alone is one pass."""
    if share == 1 or options.is_hasty:
        return ()
    below, above = 1 << (share - 1).bit_length() - 1, 1 << share.bit_length()
    near = tuple(dict.fromkeys((below, min(below, cores), above)))
    if not options.is_thorough:
        return near
    return (*near, *(size for size in reversed(candidate_batches(share)) if size not in (*near, share)))


def _without(best: _Best, o3_cycles: float) -> frozenset[Way]:
    """What is not tried for another size of a pass: all but the level that is best so far, or those of its segments,
    and O3, whose plans depend most on the batch, unless the cost model expects no less of it than of the best."""
    way = best.found.chosen.way
    parts = way.planner.parts if isinstance(way.planner, Segments) else ()
    tried = {way, Way(O3()), *(Way(each.planner) for each in parts)}
    if o3_cycles >= best.expected_cycles:
        tried.remove(Way(O3()))
    return frozenset(WAYS) - tried


def _with(progress: Progress, best: _Best) -> Progress:
    """Steps with what Ctrl-C would keep."""
    return lambda step: progress(f"{step} (best so far {best}: {best.cycles:,.0f} cycles in all)")
