"""Level auto for a batch: all of a cluster's share in one pass, in several smaller ones, or filled up to a larger one.

    share --fastest level, or groups as for batches beside it, in one pass--> program
          --other sizes of a pass, as far as they promise more--> the fastest

Items must not meet where a pass is not the share: a batch of which that cannot be shown stays whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path

from codegen.target import TileTarget
from dsa_sched.frontend import Model, load_model, open_model
from dsa_sched.pipeline.auto_images import ImageGroups
from dsa_sched.pipeline.auto_ways import WAYS, Way
from dsa_sched.pipeline.compilation import Compilation, CompileOptions, LevelTime
from dsa_sched.pipeline.driver import FastestLevel, compile_fastest
from dsa_sched.pipeline.targets import judge_of
from hw_models.chip import Chip
from hw_models.errors import UserError
from isched.program.target import Timeable
from isched.program.timed_ops import busiest_engine_cycles, timed_streams
from partitioner.cost.micro_batching import candidate_batches, pass_count
from partitioner.cost.roofline import peak_cycles
from partitioner.ir.batch_independence import batch_problem
from partitioner.ir.decisions import Decision
from partitioner.planners.levels import EFFORTS, NORMAL_EFFORT, O3

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
    one that the cycle model can ask. Raises as `compile_model` does for the share as one pass.

    Ctrl-C keeps the best program there is; before there is one, it ends the compilation."""
    assert isinstance(target, Timeable)  # as it says above
    progress("reading the model")
    opened = open_model(source)

    def load(batch: int) -> Model:
        return load_model(opened, dict(options.shapes), batch, judge_of(chip, target))

    def at_size(
        batch: int, say: Progress, limit_cycles: float, without: frozenset[Way], promising_cycles: float
    ) -> FastestLevel | None:
        return compile_fastest(load(batch), chip, target, options, say, limit_cycles, without, promising_cycles)

    progress(f"level auto: {share} a pass")
    model = load(share)
    beside = ImageGroups(model, chip, target, options, share, load, progress)
    whole = compile_fastest(model, chip, target, options, progress, others=beside)
    assert whole is not None  # a search without a limit ends with a program or an error
    best, decisions = _Best(share, 1, whole), list(beside.decisions)
    item_cycles = peak_cycles(model.graph, chip) / share
    interrupted = whole.chosen.interrupted
    busy: bool | None = None  # of the best, asked where another size may be tried
    sizes = () if interrupted else sizes_to_try(share, chip.cores_per_cluster, options.effort)
    try:
        if sizes and batch_problem(model.graph, model.constants):
            reason = "items of the batch are not known to be computed apart"
            decisions.append(Decision(SUBJECT, "neither divided nor filled up", reason))
            sizes = ()
        for batch in sizes:
            passes, name = pass_count(share, batch), f"not {batch} a pass"
            floor_cycles = passes * batch * item_cycles
            if floor_cycles >= best.cycles:
                decisions.append(Decision(SUBJECT, name, f"{floor_cycles:,.0f} cycles at least, for the engines"))
                continue
            progress(f"level auto: {batch} a pass")
            without, promising = frozenset[Way](), inf
            if busy is None:
                busy = best.is_busy(chip, target)
            if busy:
                without = _without(best, passes * beside.expected_cycles.get(batch, 0.0))
                promising = best.expected_cycles / passes
            if not frozenset(WAYS) - without:
                decisions.append(Decision(SUBJECT, name, "the cost model expects no less of it than of the best"))
                continue
            search = partial(at_size, batch, _with(progress, best), best.cycles / passes, without, promising)
            found = _tried(search, best)
            if isinstance(found, str):
                decisions.append(Decision(SUBJECT, name, found))
                continue
            decisions.append(Decision(SUBJECT, f"not {best.batch} a pass", f"{best.cycles:,.0f} cycles in all"))
            best, busy = _Best(batch, passes, found), None
            if found.chosen.interrupted:
                break
    except KeyboardInterrupt:
        interrupted = True
        decisions.append(Decision(SUBJECT, "search ended", "interrupted"))
    interrupted &= not best.found.chosen.interrupted
    return _told(best, decisions, share, interrupted, whole.chosen.level_times)


def sizes_to_try(share: int, cores: int, effort: str) -> tuple[int, ...]:
    """Items a pass beside the share, the most promising first: the power of two below it, an item a core, and the power
    of two above it, whose last places stay empty; with more effort than normal all that divide it well, with less none.
    One item alone is one pass."""
    if share == 1 or EFFORTS[effort] < EFFORTS[NORMAL_EFFORT]:
        return ()
    below, above = 1 << (share - 1).bit_length() - 1, 1 << share.bit_length()
    near = tuple(dict.fromkeys((below, min(below, cores), above)))
    if EFFORTS[effort] == EFFORTS[NORMAL_EFFORT]:
        return near
    return (*near, *(size for size in reversed(candidate_batches(share)) if size not in (*near, share)))


def _tried(search: Callable[[], FastestLevel | None], best: _Best) -> FastestLevel | str:
    """A faster program for the share, or why there is none."""
    try:
        found = search()
    except UserError:
        return "cannot be had: for this batch there is no model, plan or program"
    return found or f"no faster than {best}, {best.cycles:,.0f} cycles, by the cycle model or else the cost model"


def _without(best: _Best, o3_cycles: float) -> frozenset[Way]:
    """What is not tried for another size of a pass: all but the level that is best so far, or those of its segments,
    and O3, whose plans depend most on the batch, unless the cost model expects no less of it than of the best."""
    way = best.found.chosen.way
    tried = {way, Way(O3.name), *(Way(each.level, each.spill) for each in way.segments)}
    if o3_cycles >= best.expected_cycles:
        tried.remove(Way(O3.name))
    return frozenset(WAYS) - tried


def _with(progress: Progress, best: _Best) -> Progress:
    """Steps with what Ctrl-C would keep."""
    return lambda step: progress(f"{step} (best so far {best}: {best.cycles:,.0f} cycles in all)")


def _told(
    best: _Best, decisions: list[Decision], share: int, interrupted: bool, level_times: tuple[LevelTime, ...]
) -> Compilation:
    made = best.found.compilation
    verdict = Decision(SUBJECT, str(best), f"{best.cycles:,.0f} cycles in all by the cycle model")
    plan = replace(made.plan, decisions=(verdict, *decisions, *made.plan.decisions)) if decisions else made.plan
    warnings = (f"the search of level auto was interrupted: {verdict}",) if interrupted else ()
    model = replace(made.model, warnings=(*made.model.warnings, *warnings))
    return made.told(plan, model, share, level_times)
