"""Candidates of level auto for a batch: groups as O3 has them for another batch, in instances of images of this one.

    share --neighbouring batches, planned by O3--> groups --the share divided among instances--> candidates

O3 is brittle in the batch: its rules ask for instances of equal size. The groups that it finds for 8 or 16 images are
good for 12, 20 and 24 too (`partitioner/planners/image_groups.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from codegen.target import TileTarget
from dsa_sched.frontend import Model
from dsa_sched.search.candidates import Candidate, Config, SearchRequest, costed, one_line
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import PlanError, UserError
from partitioner.context.plan_context import Context
from partitioner.ir.batch_independence import batch_problem
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Plan
from partitioner.memory.no_plan import NoPlan, reason_of
from partitioner.planners.image_groups import plan_like
from partitioner.planners.levels import O3, Images
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_plan import verify_plan

SUBJECT = "batch"


def neighbouring_batches(share: int, cores: int, options: CompileOptions) -> tuple[int, ...]:
    """Neighbouring batches whose groups may be used for the share: the power of two below it, one image per core, and
    the power of two above it if the share is no power of two itself; none at less than normal effort. A share of one
    image has no neighbours.
    """
    if share == 1 or options.is_hasty:
        return ()
    below, above = 1 << (share - 1).bit_length() - 1, 1 << (share - 1).bit_length()
    found = (below, *((cores,) if cores < share else ()), *((above,) if above != share else ()))
    return tuple(dict.fromkeys(found))


@dataclass
class ImageGroups:
    """Candidates taken from plans of neighbouring batch sizes; `load` makes the model for another batch.

    Called with the cycles that the cost model expects of the best level, it returns the candidates that may be better.
    Afterwards `decisions` says why there are no more, and `expected_cycles` has the cycles expected of O3's own plan,
    by batch.
    """

    request: SearchRequest[TileTarget]
    model: Model
    share: int
    load: Callable[[int], Model]
    decisions: list[Decision] = field(default_factory=list)
    expected_cycles: dict[int, float] = field(default_factory=dict)
    planned: dict[int, Plan | str] | None = None
    found: dict[Config, Candidate] | None = None

    def plan_neighbours(self) -> None:
        """Make O3's plans for `neighbouring_batches`, or find out why there are none, unless this was done before."""
        if self.planned is not None:
            return
        self.planned = {}
        if self.share == 1 or batch_problem(self.model.graph, self.model.constants):
            return
        for batch in neighbouring_batches(self.share, self.request.chip.cores_per_cluster, self.request.options):
            self.request.progress(f"level auto, groups of {batch} per pass for {self.share}")
            self.planned[batch] = self._neighbour(batch)

    def __call__(self, promising_cycles: float) -> tuple[Candidate, ...]:
        """A candidate for each of `neighbouring_batches`, the same plan once; found when it is asked first."""
        if self.found is None:
            self.found = {}
            self.plan_neighbours()
            ctx = self.request.context(self.model)
            for batch, plan in (self.planned or {}).items():
                candidate = plan if isinstance(plan, str) else self._like(ctx, batch, plan, promising_cycles)
                if isinstance(candidate, str):
                    self.decisions.append(Decision(SUBJECT, f"not in the groups for {batch}", candidate))
                else:
                    self.found.setdefault(candidate.config, candidate)
        return tuple(self.found.values())

    def _neighbour(self, batch: int) -> Plan | str:
        try:
            other = self.request.context(self.load(batch))
            plan = make_plan(other, O3())
            self.expected_cycles[batch] = costed(other, Config(O3()), plan, self.request.options).expected_cycles
        except PlanError as error:
            return f"no plan: {one_line(error)}"
        except UserError:
            return "there is no model for this batch"
        return plan

    def _like(self, ctx: Context[TileTarget], batch: int, plan: Plan, promising_cycles: float) -> Candidate | str:
        """The share in groups as for another batch; or the reason why not, where no plan is expected to take fewer
        cycles per item than the plan for that batch.
        """
        cycles = self.expected_cycles[batch]
        if cycles * self.share / batch >= promising_cycles:
            return f"the cost model expects {cycles:,.0f} cycles for these, no fewer per item than for {self.share}"
        try:
            found = plan_like(ctx, plan)
            if found is None:
                return "not all of them can be cut into items"
            groups, made = found
            if isinstance(made, NoPlan):
                return f"no plan: {reason_of(made)}"
            verify_plan(made, ctx)
            return costed(ctx, Config(Images(groups)), made, self.request.options)
        except PlanError as error:
            return f"no plan: {one_line(error)}"
