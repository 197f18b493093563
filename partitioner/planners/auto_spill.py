"""Whether to spill: the plan of level O3 with spills by bytes moved, or the one without, whichever takes fewer cycles.

context --plan_instances, twice--> plans --plan_cycles--> the better one, and why
"""

from __future__ import annotations

from dataclasses import replace

from hw_models.errors import reason_text
from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.cost.cost_model import plan_cycles
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Plan
from partitioner.memory.no_plan import planned
from partitioner.planners.o3 import fit_instances, plan_instances

BEST_POLICY = "cost"
"""Name of the policy that moves the fewest bytes in `benchmarks/allocation.py` wherever little is missing."""


def plan_with_worthwhile_spills(ctx: PlanContext) -> Plan:
    """The plan with or without spills, whichever takes fewer cycles. Raises DoesNotFit where neither plan finds
    room."""
    spilling = plan_instances(ctx, BEST_POLICY)
    if not any(group.spills for group in spilling.groups):
        return spilling
    found = fit_instances(ctx)
    if isinstance(found, Infeasible):
        return _decided(spilling, "values are spilled", f"no plan without: {reason_text(found)}")
    cutting = planned(found)
    spent, saved = (plan_cycles(plan, ctx).cycles for plan in (spilling, cutting))
    reason = f"{spent:,.0f} cycles with spills, {saved:,.0f} with finer cuts instead"
    if spent < saved:
        return _decided(spilling, "values are spilled", reason)
    return _decided(cutting, "nothing is spilled", reason)


def _decided(plan: Plan, verdict: str, reason: str) -> Plan:
    return replace(plan, decisions=(*plan.decisions, Decision("spilling", verdict, reason)))
