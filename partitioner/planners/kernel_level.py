"""Plans of kernels that are whole groups, for targets that offer them (`partitioner.ir.kernels`).

    O0    graph --layers--> one kernel per layer
    O3    graph --layers--> all sets that the target has a kernel for --the cover of least cost--> groups
          groups --where that keeps more in the cache (`sliced_kernels`)--> segments, slice by slice of the batch
    auto  as O3: O0 is among the covers

The cost of a cover is the sum of the floors and launches of its kernels, with their hits in the cache that all cores
share (`partitioner.fusion.cache_hits`), and a margin for kernels of several layers. Groups that the user asks for are
made at every level.

Every value that leaves a group lies in the main memory. The hardware places the blocks of a kernel, so steps name no
cores, and their pieces are the grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from partitioner.context.batch_slices import batch_of, slice_for
from partitioner.context.plan_context import KernelContext
from partitioner.fusion.cache_hits import NOTHING, GroupWork, KernelRun, merge_margin, run_of
from partitioner.fusion.kernel_cover import cheapest_covers
from partitioner.fusion.kernel_sets import bits
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.kernels import Kernel, repeated
from partitioner.ir.plan import Group, Plan, Split
from partitioner.ir.regions import Box
from partitioner.ir.slice_segments import batch_points, slice_box, slice_segments, slices_of
from partitioner.ir.steps import Binding, RunStep, Step
from partitioner.planners.kernel_offers import Forced, KernelOffers, forced_sets
from partitioner.planners.levels import FusedKernels, KernelPlanner, LayerKernels
from partitioner.planners.o0 import plan_of, view_step
from partitioner.planners.sliced_kernels import Piece, in_slices, sliced_context

MOST_JUDGED = 4
"""Number of covers that are compared in their order of execution, which the search only guesses."""

MERGED, APART = "one kernel with ", "not one kernel with "
"""Beginnings of verdicts."""

READERS = 8
"""Number of groups after a set that are checked for hits on what it leaves in the cache."""


def kernel_plan(
    ctx: KernelContext, planner: KernelPlanner, forced: Sequence[str] = (), slices: int | None = None
) -> Plan:
    """Plan of a level: at O0 one kernel per layer, at O3 the cover of least cost, some of it in slices of the batch
    where that is faster, at auto that of O3, called O0 where it merges nothing. `slices` are made at any level,
    whatever they cost; with 1 there are none. Raises PlanError for a layer without a kernel, and as `forced_sets` and
    `in_slices` do."""
    offers = KernelOffers(ctx)
    asked = forced_sets(forced, offers)
    if isinstance(planner, LayerKernels):
        run = offers.run(_apart(offers, asked))
        pieces, sliced = in_slices(run, offers, _one_per_layer, _members(asked), slices or 1)
        return _plan(ctx, planner.name, pieces, (*sliced, *merge_decisions(run, offers, asked)))
    run, apart = _cheapest(offers, asked)
    pieces, sliced = in_slices(run, offers, _of_least_cost, _members(asked), slices)
    reasons = (*sliced, *merge_decisions(run, offers, asked))
    if isinstance(planner, FusedKernels):
        return _plan(ctx, planner.name, pieces, reasons)
    placed = [(work, work.best(hits)) for piece in pieces for work, hits in piece.run.groups() if work.kernels]
    merged = any(len(work.layers) > 1 for work, _ in placed)
    level, other = ("O3", "O0") if merged else ("O0", "O3")
    known = all(kernel.measured for _, kernel in placed)
    seconds = sum(piece.seconds for piece in pieces)
    said = f"{_duration(seconds, known)}, by {'measured rates' if known else 'floors and launches'}"
    against = _duration(apart.seconds, known) if merged else "no set of layers is faster as one kernel"
    plan = _plan(ctx, level, pieces, reasons)
    search = (Decision("level", f"{level}, by auto", said), Decision("level", f"not {other}", against))
    return replace(plan, decisions=(*search, *plan.decisions))


def kernels_in_place(plan: Plan, ctx: KernelContext, cold: bool = False) -> Mapping[str, Kernel]:
    """The kernel of each group that has one in a plan of whole groups, with the floors that it has after the kernels
    before it, or with a `cold` cache, for all slices together. Raises PlanError for a kernel that the target does not
    offer."""
    placed = _in_place(plan, KernelOffers(ctx))
    return {name: repeated(work.best(NOTHING if cold else hits), count) for name, work, hits, count in placed}


def candidates_in_place(plan: Plan, ctx: KernelContext, forced: Sequence[str] = ()) -> Mapping[str, tuple[Kernel, ...]]:
    """All kernels for each group of such a plan, the fastest first, with the floors that they have where they run (in a
    slice for groups in slices); for a group that the user asked for, only those of the requested family."""
    offers = KernelOffers(ctx)
    asked = {group.work.layers: group.work for group in forced_sets(forced, offers)}
    found = {}
    for name, work, hits, _ in _in_place(plan, offers, narrow=False):
        candidates = asked.get(work.layers, work).candidates(hits)
        found[name] = tuple(sorted(candidates, key=lambda kernel: kernel.seconds))
    return found


def _in_place(
    plan: Plan, offers: KernelOffers, narrow: bool = True
) -> Iterator[tuple[str, GroupWork, frozenset[str], int]]:
    """The groups that have a kernel, in the plan's order, each with the values that stay in the cache and its number of
    slices; with only the kernel of the plan, or if not `narrow` with all candidates."""
    own = {1: offers}
    for count, groups in _pieces_of(plan):
        if count not in own:
            own[count] = KernelOffers(sliced_context(offers.ctx, slice_for(plan, offers.ctx.graph, count)))
        placed = [group for group in groups if group.kernel]
        run = run_of(own[count].values, (own[count].chosen(group.layers, group.kernel) for group in placed))
        for group, (work, hits) in zip(placed, run.groups(), strict=True):
            yield group.name, work if narrow else own[count].containing(work.layers), hits, count


def _pieces_of(plan: Plan) -> Iterator[tuple[int, list[Group]]]:
    """The segments of a plan, and the whole groups between two of them."""
    whole: list[Group] = []
    for segment in slice_segments(plan):
        if segment.count == 1:
            whole += segment.groups
            continue
        yield 1, whole
        yield segment.count, list(segment.groups)
        whole = []
    yield 1, whole


def with_kernels(plan: Plan, chosen: Mapping[str, Kernel], decisions: tuple[Decision, ...] = ()) -> Plan:
    """The plan with these kernels, by group, and the decisions for them; decisions about the replaced kernels are left
    out."""
    groups = tuple(
        replace(group, kernel=chosen[group.name].text) if group.name in chosen else group for group in plan.groups
    )
    by_name = {group.name: group for group in groups}
    steps = tuple(
        replace(step, binding=_binding(chosen[step.group], step.box))
        if isinstance(step, RunStep) and step.group in chosen
        else step
        for step in plan.steps
    )
    before = {group.name: group.kernel for group in plan.groups}
    changed = [name for name, kernel in chosen.items() if kernel.text != before[name]]
    replaced = {(name, _computed_by(before[name])) for name in changed}
    kept = tuple(each for each in plan.decisions if (each.subject, each.verdict) not in replaced)
    new = tuple(_chosen(by_name[name], repeated(chosen[name], slices_of(by_name[name]))) for name in changed)
    return replace(plan, groups=groups, steps=steps, decisions=(*kept, *new, *decisions))


def _of_least_cost(offers: KernelOffers) -> KernelRun:
    return _cheapest(offers, ())[0]


def _one_per_layer(offers: KernelOffers) -> KernelRun:
    return offers.run(_apart(offers, ()))


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


def _plan(ctx: KernelContext, level: str, pieces: Sequence[Piece], decisions: Sequence[Decision]) -> Plan:
    graph, main, made = ctx.graph, ctx.roles.main, []
    steps: list[Step] = []
    reasons = [*ctx.layer_decisions, *decisions]
    for piece in pieces:
        cut = batch_points(batch_of(graph), piece.count)
        runs: list[tuple[Group, Kernel]] = []
        for work, hits in piece.run.groups():
            name, layers = work.layers[0].name, work.layers
            if not work.kernels:
                made.append(Group(name, layers))
                steps.append(view_step(graph, layers[0], main))
                continue
            kernel = work.best(hits)
            group = Group(name, layers, Split(((0, cut),)) if piece.count > 1 else Split(), kernel=kernel.text)
            made.append(group)
            runs.append((group, kernel))
            steps.append(_run(graph, group, kernel, 0, main))
            reasons.append(_chosen(group, repeated(kernel, piece.count)))
        for instance in range(1, piece.count):
            steps += (_run(graph, group, kernel, instance, main) for group, kernel in runs)
    return plan_of(ctx, level, made, steps, reasons)


def _run(graph: Graph, group: Group, kernel: Kernel, instance: int, main: str) -> RunStep:
    box = slice_box(group, graph.by_name[group.output].shape, instance)
    exports = tuple((name, main) for name in group.outputs(graph) if name != group.output)
    return RunStep(group.name, instance, box, main, _binding(kernel, box), exports=exports)


def _binding(kernel: Kernel, box: Box) -> Binding:
    return Binding(kernel.grid(tuple(high - low for low, high in box)), ())


def _chosen(group: Group, kernel: Kernel) -> Decision:
    """Decision that tells what the kernel occupies and what binds it."""
    launches = f"{kernel.launches} launch{'es' if kernel.launches > 1 else ''}"
    occupies = [f"{size} {name}" for name, size in kernel.resources]
    binding = kernel.binding
    bound = f"{binding.name} binds{f' ({binding.work})' if binding.work else ''}" if binding else "no floor is known"
    reason = ", ".join([launches, *occupies, _time_of(kernel), bound])
    return Decision(group.name, _computed_by(kernel.text), reason)


def _computed_by(kernel: str) -> str:
    return f"computed by {kernel}"


# Decisions about merges.


def microseconds(seconds: float) -> str:
    """Seconds as text in microseconds."""
    return f"{seconds * 1e6:.3f} us"


def _duration(seconds: float, measured: bool) -> str:
    """A time that kernels of this kind were measured to take, or a floor."""
    return f"{microseconds(seconds)} {'expected' if measured else 'at least'}"


def _time_of(kernel: Kernel) -> str:
    """Its time, and of which kernels the rates are where none of its template was measured."""
    speed = kernel.measured
    said = _duration(kernel.seconds, speed is not None)
    return f"{said} by rates of {speed.template}" if speed and speed.template != kernel.template else said


def is_merge(decision: Decision) -> bool:
    """Whether a decision is about a set of layers as one kernel or several."""
    return decision.verdict.startswith((MERGED, APART))


def merge_decisions(run: KernelRun, offers: KernelOffers, asked: Sequence[Forced]) -> tuple[Decision, ...]:
    """Decisions about every set of layers with a kernel, by the first layer: both ways to compute it, with the seconds
    of their floors and what binds them."""
    works = [work for work, _ in run.groups()]
    chosen = {work.members for work in works}
    texts = {forced.work.members: forced for forced in asked}
    runs = [KernelRun(offers.values)]
    for work in works:
        runs.append(runs[-1].then(work))
    found = []
    for candidate in (*(forced.work for forced in asked), *offers.merged_sets()):
        if candidate.members in texts and candidate is not texts[candidate.members].work:
            continue
        if any(candidate.members & members and candidate.members != members for members in texts):
            continue
        merged, apart = _both_ways(candidate, works, runs, offers)
        found.append(_merge_decision(candidate, merged, apart, candidate.members in chosen, candidate.members in texts))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Way:
    """Kernels that compute a set of layers, with the floors that they have in their place of the run."""

    kernels: tuple[tuple[GroupWork, Kernel], ...]

    @property
    def seconds(self) -> float:
        return sum(kernel.seconds for _, kernel in self.kernels)

    def text(self) -> str:
        parts = (
            f"{work.layers[0].name} {microseconds(kernel.seconds)}{_bound(kernel)}" for work, kernel in self.kernels
        )
        return ", ".join(parts)


def _bound(kernel: Kernel) -> str:
    return f" {kernel.binding.name}" if kernel.binding else ""


def _both_ways(
    candidate: GroupWork, works: Sequence[GroupWork], runs: Sequence[KernelRun], offers: KernelOffers
) -> tuple[_Way, _Way]:
    """The set as one kernel and with its layers apart. Both are counted where they would run, with the cache as the
    groups before have left it, and with the hits of the groups after. Groups of the run that contain some of the set's
    layers are taken apart for both."""
    touched = [number for number, work in enumerate(works) if work.members & candidate.members]
    first, last = touched[0], touched[-1]
    apart = list(_taken_apart(works[first : last + 1], candidate, offers))
    inside = [number for number, work in enumerate(apart) if work.members & candidate.members]
    merged = [work for work in apart[: inside[-1]] if not work.members & candidate.members]
    merged += [candidate, *apart[inside[-1] + 1 :]]
    later = works[last + 1 : last + 1 + READERS]
    return _way(candidate, merged, later, runs[first]), _way(candidate, apart, later, runs[first])


def _taken_apart(works: Sequence[GroupWork], candidate: GroupWork, offers: KernelOffers) -> Iterator[GroupWork]:
    for work in works:
        if not work.members & candidate.members:
            yield work
            continue
        yield from (offers.of(1 << number) for number in bits(work.members))


def _way(candidate: GroupWork, works: Sequence[GroupWork], later: Sequence[GroupWork], run: KernelRun) -> _Way:
    for work in (*works, *later):
        run = run.then(work)
    there = run.groups(len(works) + len(later))
    return _Way(tuple((work, work.best(hits)) for work, hits in there if work.members & candidate.members))


def _merge_decision(
    candidate: GroupWork,
    merged: _Way,
    apart: _Way,
    is_chosen: bool,
    is_asked: bool,
) -> Decision:
    subject, *others = (layer.name for layer in candidate.layers)
    kernel = merged.kernels[0][1]
    margin = merge_margin(kernel)
    names = ", ".join(others)
    binds = f" ({kernel.binding.name} binds)" if kernel.binding else ""
    ways = f"{kernel.text} takes {_time_of(kernel)}{binds}"
    against = f"separately they take {microseconds(apart.seconds)} ({apart.text()})"
    if is_asked:
        return Decision(subject, f"{MERGED}{names}, as requested", f"{ways}, {against}")
    if is_chosen:
        return Decision(subject, f"{MERGED}{names}", f"{ways}, {against}")
    if merged.seconds > apart.seconds:
        said = f"the merged kernel is slower: {microseconds(merged.seconds)} against {microseconds(apart.seconds)}"
    elif merged.seconds * (1 + margin) > apart.seconds:
        said = f"the merged kernel saves less than {margin:.0%}"
    else:
        said = "other groups save more"
    return Decision(subject, f"{APART}{names}", f"{said}; {ways}, {against}")
