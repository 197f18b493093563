"""Candidates of level auto for a batch: groups as O3 has them for another batch, in instances of images of this one.

    share --batches beside it, planned by O3--> groups --the share divided among instances--> candidates, by promise

O3 is brittle in the batch: its rules ask for instances of equal size. The groups that it finds for 8 or 16 images are
good for 12, 20 and 24 too (`partitioner/planners/image_groups.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codegen.target import TileTarget
from dsa_sched.frontend import Model
from dsa_sched.pipeline.auto_floors import memory_floor_cycles
from dsa_sched.pipeline.auto_level import Chosen
from dsa_sched.pipeline.auto_ways import Candidate, Progress, Way, costed, expects, one_line
from dsa_sched.pipeline.compilation import CompileOptions
from dsa_sched.pipeline.tile_stages import Planned, lower_below
from hw_models.chip import Chip
from hw_models.errors import PlanError, UserError
from partitioner.context.plan_context import Context
from partitioner.ir.decisions import Decision
from partitioner.memory.no_plan import NoPlan, reason_of
from partitioner.planners.image_groups import plan_like
from partitioner.planners.levels import EFFORTS, IMAGES, NORMAL_EFFORT, O3
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_plan import verify_plan

__all__ = ["ImageSearch", "batches_beside"]

SUBJECT = "batch"

Load = Callable[[int], Model]


def batches_beside(share: int, cores: int, effort: str) -> tuple[int, ...]:
    """Batches of whose groups the share may be made: the power of two below it, an image a core, and the power of two
    above it where the share is none itself; with less effort than normal none. One image is no sum."""
    if share == 1 or EFFORTS[effort] < EFFORTS[NORMAL_EFFORT]:
        return ()
    below, above = 1 << (share - 1).bit_length() - 1, 1 << (share - 1).bit_length()
    found = dict.fromkeys((below, *((cores,) if cores < share else ()), *((above,) if above != share else ())))
    return tuple(found)


@dataclass
class ImageSearch:
    """Plans for a share out of groups for other batches, and programs of those that promise to be faster."""

    model: Model
    chip: Chip
    target: TileTarget
    options: CompileOptions
    progress: Progress
    decisions: list[Decision]

    def run(self, share: int, load: Load, limit_cycles: float, promising_cycles: float) -> Chosen[TileTarget] | None:
        """The fastest that takes fewer cycles than the limit, or None; what the cost model does not expect below
        `promising_cycles` has no program."""
        ctx = Context(self.model.graph, self.model.constants, self.chip, self.target)
        candidates: list[tuple[int, Candidate]] = []
        for batch in batches_beside(share, self.chip.cores_per_cluster, self.options.effort):
            self.progress(f"level auto: groups of {batch} images for {share}")
            found = self._candidate(ctx, batch, load)
            if isinstance(found, str):
                self._against(batch, found)
            elif found.way not in [each.way for _, each in candidates]:
                candidates.append((batch, found))
        best: Chosen[TileTarget] | None = None
        for batch, each in sorted(candidates, key=lambda pair: pair[1].expected_cycles):
            chosen = self._try(ctx, each, limit_cycles, promising_cycles)
            if isinstance(chosen, str):
                self._against(batch, chosen)
                continue
            best, limit_cycles = chosen, chosen.cycles
        return best

    def _candidate(self, ctx: Context[TileTarget], batch: int, load: Load) -> Candidate | str:
        """The plan of a batch's groups for this one, or why there is none."""
        try:
            there = load(batch)
            plan = make_plan(Context(there.graph, there.constants, self.chip, self.target), O3.name)
            found = plan_like(ctx, plan)
            if found is None:
                return "not all of its groups can be cut into images"
            groups, made = found
            if isinstance(made, NoPlan):
                return f"no plan: {reason_of(made)}"
            verify_plan(made, ctx)
            return costed(ctx, Way(IMAGES, image_groups=groups), made, self.options)
        except PlanError as error:
            return f"no plan: {one_line(error)}"
        except UserError:
            return "for this batch there is no model"

    def _try(
        self, ctx: Context[TileTarget], each: Candidate, limit_cycles: float, promising_cycles: float
    ) -> Chosen[TileTarget] | str:
        """Its program, or why it has none or another one is kept."""
        if each.expected_cycles >= promising_cycles:
            return expects(each)
        options = each.way.of(self.options)
        floor = memory_floor_cycles(each.plan, ctx, options, limit_cycles, each.plain)
        if floor >= limit_cycles:
            return f"{floor:,.0f} cycles at least, for the bytes of a shared memory"
        planned = Planned(self.model, ctx, each.plan)
        try:
            lowered = lower_below(planned, options, self.progress, limit_cycles)
        except PlanError as error:
            return f"no program: {one_line(error)}"
        if lowered is None or lowered.cycles is None:
            return f"no faster than {limit_cycles:,.0f} cycles; {expects(each)}"
        return Chosen(each.way, planned, options, lowered.cycles, each.expected_cycles, lowered)

    def _against(self, batch: int, reason: str) -> None:
        self.decisions.append(Decision(SUBJECT, f"not in groups as for {batch}", reason))
