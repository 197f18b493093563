"""Plans of kernels that are whole groups, for targets that offer them (`partitioner.ir.kernels`).

    O0    graph --layers--> one kernel per layer
    O3    graph --layers--> all sets that the target has a kernel for --the cover of least cost--> groups
    auto  as O3: O0 is among the covers

The cost of a cover is the sum of the floors and launches of its kernels, with their hits in the cache that all cores
share (`partitioner.fusion.cache_hits`), and a margin for kernels of several layers. Groups that the user asks for are
made at every level.

Every value that leaves a group lies in the main memory. The hardware places the blocks of a kernel, so steps name no
cores, and their pieces are the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from partitioner.context.plan_context import KernelContext
from partitioner.fusion.cache_hits import GroupWork, KernelRun, run_of
from partitioner.fusion.kernel_cover import cheapest_covers
from partitioner.fusion.kernel_sets import bits
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.kernels import Kernel
from partitioner.ir.plan import Group, Plan
from partitioner.ir.regions import full_box
from partitioner.ir.steps import Binding, RunStep, Step
from partitioner.planners.forced_groups import Forced, forced_sets
from partitioner.planners.kernel_merges import merge_decisions, microseconds
from partitioner.planners.kernel_offers import KernelOffers
from partitioner.planners.o0 import batch_of, view_step

MOST_JUDGED = 4
"""Number of covers that are compared in their order of execution, which the search only guesses."""


def kernels_by_layer(ctx: KernelContext, forced: Sequence[str] = ()) -> Plan:
    """Plan of level O0: one kernel per layer. Raises PlanError for a layer without a kernel, and as `forced_sets`
    does."""
    offers = KernelOffers(ctx)
    asked = forced_sets(forced, offers)
    run = offers.run(_apart(offers, asked))
    return _plan(ctx, "O0", run, merge_decisions(run, offers, asked))


def kernels_fused(ctx: KernelContext, forced: Sequence[str] = ()) -> Plan:
    """Plan of level O3: the cover of least cost. Raises as `kernels_by_layer` does."""
    offers = KernelOffers(ctx)
    asked = forced_sets(forced, offers)
    run, _ = _cheapest(offers, asked)
    return _plan(ctx, "O3", run, merge_decisions(run, offers, asked))


def fastest_kernels(ctx: KernelContext, forced: Sequence[str] = ()) -> Plan:
    """Plan of level auto: that of level O3, called O0 where it merges nothing. Raises as `kernels_by_layer` does."""
    offers = KernelOffers(ctx)
    asked = forced_sets(forced, offers)
    run, apart = _cheapest(offers, asked)
    merged = any(len(work.layers) > 1 for work, _ in run.groups())
    level, other = ("O3", "O0") if merged else ("O0", "O3")
    said = f"{microseconds(run.seconds)} at least, by floors and launches"
    against = f"{microseconds(apart.seconds)} at least" if merged else "no set of layers is faster as one kernel"
    plan = _plan(ctx, level, run, merge_decisions(run, offers, asked))
    search = (Decision("level", f"{level}, by auto", said), Decision("level", f"not {other}", against))
    return replace(plan, decisions=(*search, *plan.decisions))


def kernels_in_place(plan: Plan, ctx: KernelContext) -> Mapping[str, Kernel]:
    """The kernel of each group that has one in a plan of whole groups, with the floors that it has after the kernels
    before it. Raises PlanError for a kernel that the target does not offer."""
    offers = KernelOffers(ctx)
    steps = [plan.group_by_name[step.group] for step in plan.steps]
    groups = [group for group in steps if group.kernel]
    run = run_of(offers.values, (offers.chosen(group.layers, group.kernel) for group in groups))
    return {group.name: work.best(hits) for group, (work, hits) in zip(groups, run.groups(), strict=True)}


def candidates_in_place(plan: Plan, ctx: KernelContext, forced: Sequence[str] = ()) -> Mapping[str, tuple[Kernel, ...]]:
    """All kernels for each group of such a plan, the fastest first, with the floors that they have where they run; for
    a group that the user asked for, only those of the requested family."""
    offers = KernelOffers(ctx)
    asked = {group.work.layers: group.work for group in forced_sets(forced, offers)}
    groups = [group for group in (plan.group_by_name[step.group] for step in plan.steps) if group.kernel]
    run = run_of(offers.values, (offers.chosen(group.layers, group.kernel) for group in groups))
    return {
        group.name: tuple(
            sorted(asked.get(group.layers, offers.of(work.members)).candidates(hits), key=lambda kernel: kernel.seconds)
        )
        for group, (work, hits) in zip(groups, run.groups(), strict=True)
    }


def with_kernels(
    plan: Plan, ctx: KernelContext, chosen: Mapping[str, Kernel], decisions: tuple[Decision, ...] = ()
) -> Plan:
    """The plan with these kernels, by group, and the decisions for them; decisions about the replaced kernels are left
    out."""
    groups = tuple(
        replace(group, kernel=chosen[group.name].text) if group.name in chosen else group for group in plan.groups
    )
    by_name = {group.name: group for group in groups}
    steps = tuple(
        _run(ctx.graph, by_name[step.group], chosen[step.group], step.scope)
        if isinstance(step, RunStep) and step.group in chosen
        else step
        for step in plan.steps
    )
    before = {group.name: group.kernel for group in plan.groups}
    changed = [name for name, kernel in chosen.items() if kernel.text != before[name]]
    replaced = {(name, _computed_by(before[name])) for name in changed}
    kept = tuple(each for each in plan.decisions if (each.subject, each.verdict) not in replaced)
    new = tuple(_chosen(by_name[name], chosen[name]) for name in changed)
    return replace(plan, groups=groups, steps=steps, decisions=(*kept, *new, *decisions))


def _cheapest(offers: KernelOffers, asked: Sequence[Forced]) -> tuple[KernelRun, KernelRun]:
    """The cover of least cost in its order of execution, and that of one kernel per layer, which is one of those
    compared."""
    inside = _members(asked)
    options = [[] if inside >> number & 1 else [offers.alone(number)] for number in range(len(offers.layers))]
    for work in (*map(offers.of, offers.sets(inside)), *(group.work for group in asked)):
        options[next(bits(work.members))].append(work)
    covers = cheapest_covers(options, offers.among, offers.values)[:MOST_JUDGED]
    apart = offers.run(_apart(offers, asked))
    runs = [*(offers.run(cover) for cover in covers), apart]
    return min(runs, key=lambda run: (run.cost, len(run.groups()))), apart


def _apart(offers: KernelOffers, asked: Sequence[Forced]) -> tuple[GroupWork, ...]:
    """One kernel per layer, except for groups that have to be made."""
    inside = _members(asked)
    rest = (offers.alone(number) for number in range(len(offers.layers)) if not inside >> number & 1)
    return (*(group.work for group in asked), *rest)


def _members(asked: Sequence[Forced]) -> int:
    found = 0
    for group in asked:
        found |= group.work.members
    return found


def _plan(ctx: KernelContext, level: str, run: KernelRun, decisions: Sequence[Decision]) -> Plan:
    graph, main, made = ctx.graph, ctx.roles.main, []
    steps: list[Step] = []
    reasons = [*ctx.layer_decisions, *decisions]
    for work, hits in run.groups():
        name, layers = work.layers[0].name, work.layers
        if not work.kernels:
            made.append(Group(name, layers))
            steps.append(view_step(graph, layers[0], main))
            continue
        kernel = work.best(hits)
        group = Group(name, layers, kernel=kernel.text)
        made.append(group)
        steps.append(_run(graph, group, kernel, main))
        reasons.append(_chosen(group, kernel))
    return Plan(
        graph.name, level, graph.hash, ctx.chip.hash, batch_of(graph), tuple(made), tuple(steps), tuple(reasons)
    )


def _run(graph: Graph, group: Group, kernel: Kernel, main: str) -> RunStep:
    shape = graph.by_name[group.output].shape
    exports = tuple((name, main) for name in group.outputs(graph) if name != group.output)
    return RunStep(group.name, 0, full_box(shape), main, Binding(kernel.grid(shape), ()), exports=exports)


def _chosen(group: Group, kernel: Kernel) -> Decision:
    """Decision that tells what the kernel occupies and what binds it."""
    launches = f"{kernel.launches} launch{'es' if kernel.launches > 1 else ''}"
    occupies = [f"{size} {name}" for name, size in kernel.resources]
    binding = kernel.binding
    bound = f"{binding.name} binds{f' ({binding.work})' if binding.work else ''}" if binding else "no floor is known"
    reason = ", ".join([launches, *occupies, f"at least {microseconds(kernel.seconds)}", bound])
    return Decision(group.name, _computed_by(kernel.text), reason)


def _computed_by(kernel: str) -> str:
    return f"computed by {kernel}"
