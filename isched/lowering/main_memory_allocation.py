"""Places in the main memory: tensors that stay from start to end, and values that share the rest by lifetime.

    plan's layout --who writes and reads the main memory, slot by slot--> lifetimes --pack--> placements
    steps of a plan whose kernels are whole groups, slices once ---------> lifetimes --pack--> placements

Constants, inputs and outputs have places of their own. A value has an address only if the plan really stores it in the
main memory; it shares the address with values that live before it is written or after it was read. A view is an alias,
and a result that is an input's next value, written in its place, is its `state`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hw_models.errors import DoesNotFit
from hw_models.infeasible import Holder, Infeasible
from isched.program.program import TensorPlacement
from isched.program.shared_constants import ALIGNMENT_BYTES, NOT_SHARED, SharedConstants
from partitioner.context.plan_context import GraphContext, KernelContext, PlanContext
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Plan
from partitioner.ir.slice_segments import kept_slices, slice_segments
from partitioner.ir.target import AcceptingTarget
from partitioner.memory.main_memory_check import held_throughout, main_overflow, roots
from partitioner.memory.memory_plan_types import LayerLayout, Layout
from partitioner.memory.offset_assignment import Item, lowest, peak_bytes


def place_tensors(
    ctx: PlanContext,
    base_bytes: int,
    layout: Layout,
    keep_values: bool = False,
    isolated: bool = False,
    absent: Collection[str] = (),
    shared: SharedConstants = NOT_SHARED,
) -> tuple[TensorPlacement, ...]:
    """Placements from `base_bytes` on, constants first, so that the program file holds them as one run of bytes; those
    that are `shared` with other programs lie before all others, where these have them. Values in `absent` get none,
    though they are computed before all layers.

    With `keep_values` no place is reused, so that each value can be read after the run; with `isolated` there is also a
    copy (kind `probe`) of every computed value. Raises DoesNotFit saying what the main memory would have to hold.
    """
    entries = (entry for step in layout.steps if isinstance(step, tuple) for entry in step)
    lives = _Lives(
        main_lifetimes(ctx.graph, layout, ctx.roles.main), {entry.slot: entry.layer.name for entry in entries}
    )
    return _placed(ctx, base_bytes, lives, keep_values, isolated, absent, shared)


def place_group_tensors(
    ctx: KernelContext, base_bytes: int, plan: Plan, keep_values: bool = False, isolated: bool = False
) -> tuple[TensorPlacement, ...]:
    """Placements for a plan whose kernels are whole groups: a value that leaves a group lies in the main memory from
    its step to the last step that reads it. Of a value that only one segment of slices makes and reads there is one
    slice, used again by each, unless values are to be kept. Raises DoesNotFit."""
    graph, named = ctx.graph, roots(ctx.graph)
    kept = {} if keep_values or isolated else kept_slices(plan, graph, named)
    spans: dict[str, tuple[int, int]] = {}
    for segment in slice_segments(plan):
        for slot in range(segment.first, segment.last + 1):
            step = plan.steps[slot]
            group = plan.group_by_name[step.group]
            touched = {named[name] for name in (*group.inputs(graph), *group.outputs(graph))}
            for name in touched if step.instance == 0 else touched - kept.keys():
                spans[name] = (spans.get(name, (slot, slot))[0], slot)
            for name in {named[name] for name in group.outputs(graph)} - kept.keys() if segment.count > 1 else ():
                spans[name] = (min(spans[name][0], segment.first), slot)  # what one slice leaves, the next must spare
    sizes = {name: graph.by_name[name].size_bytes // segment.count for name, segment in kept.items()}
    lives = _Lives(spans, {slot: step.group for slot, step in enumerate(plan.steps)}, sizes)
    return _placed(ctx, base_bytes, lives, keep_values, isolated)


@dataclass(frozen=True, slots=True)
class _Lives:
    """Slots of the first write and last access of each value that is stored in the main memory, the user's names for
    what runs in each slot, and the bytes of values of which only a part is stored at a time."""

    spans: Mapping[str, tuple[int, int]]
    runs: Mapping[int, str]
    parts: Mapping[str, int] = field(default_factory=dict)


def _placed(
    ctx: GraphContext[AcceptingTarget],
    base_bytes: int,
    lives: _Lives,
    keep_values: bool,
    isolated: bool,
    absent: Collection[str] = (),
    shared: SharedConstants = NOT_SHARED,
) -> tuple[TensorPlacement, ...]:
    graph, main, named = ctx.graph, ctx.roles.main, roots(ctx.graph)
    names = sorted(graph.tensors, key=lambda tensor: not tensor.constant)
    words = (name for op in (*graph.prepared, *graph.concluded) for name in op.outputs)
    given = {*graph.fed, *words} - {*absent, *graph.in_place}
    own = [tensor.name for tensor in names if tensor.constant or tensor.name in given]
    ends = {named[name] for name in graph.outputs}
    stored = [tensor.name for tensor in names if tensor.name in lives.spans and tensor.name not in own]
    own += [name for name in stored if keep_values or name in ends]
    offsets: dict[str, int] = {}
    offset = base_bytes + shared.size_bytes
    for name in own:
        if (place := shared.offsets.get(graph.by_name[name].constant)) is not None:
            offsets[name] = base_bytes + place
            continue
        offsets[name] = offset
        offset += _aligned(graph.by_name[name].size_bytes)
    probes: dict[str, int] = {}
    for tensor in graph.tensors if isolated else ():
        if tensor.name in graph.producer:
            probes[tensor.name] = offset
            offset += _aligned(tensor.size_bytes)
    stored_bytes = {tensor.name: lives.parts.get(named[tensor.name], tensor.size_bytes) for tensor in graph.tensors}
    sharing = [Item(name, *lives.spans[name], stored_bytes[name]) for name in stored if name not in offsets]
    packing, height = lowest(sharing, ALIGNMENT_BYTES)
    offsets |= {name: offset + low for name, low in packing.items()}
    if offset + height > ctx.chip.memory(main).size_bytes:
        raise DoesNotFit(_overflow(ctx, lives, offset + height, own, sharing))
    placements = [
        TensorPlacement(tensor.name, _kind(graph, named, tensor.name), main, offsets[root], stored_bytes[tensor.name],
                  "" if root == tensor.name else root)
        for tensor in names
        if (root := named[tensor.name]) in offsets
    ]  # fmt: skip
    return (
        *placements,
        *(
            TensorPlacement(f"{n}::probe", "probe", main, low, graph.by_name[n].size_bytes, n)
            for n, low in probes.items()
        ),
    )


def main_lifetimes(graph: Graph, layout: Layout, main: str) -> dict[str, tuple[int, int]]:
    """For every value that a plan writes to the memory `main`, the slots of its first write and its last access. A read
    of a view counts as a read of its source."""
    named = roots(graph)
    lives: dict[str, tuple[int, int]] = {}
    entries = [entry for step in layout.steps if isinstance(step, tuple) for entry in step]
    for entry in sorted(entries, key=lambda entry: entry.slot):
        for name in _written(entry, main):
            root = named[name]
            lives[root] = (lives.get(root, (entry.slot, 0))[0], entry.slot)
        for name, places in entry.sources.items():
            root = named[name]
            if root in lives and any(place.memory == main for place in places):
                lives[root] = (lives[root][0], entry.slot)
    return lives


def _written(entry: LayerLayout, main: str) -> list[str]:
    """Values that a layer, or a store after it, leaves in the main memory."""
    names = [entry.layer.output] if entry.destination is not None and entry.destination.memory == main else []
    return names + [store.tensor for store in entry.stores if store.destination.memory == main]


def _kind(graph: Graph, named: Mapping[str, str], name: str) -> str:
    if name in graph.in_place:
        return "state"
    if named[name] != name:
        return "alias"
    if graph.by_name[name].constant:
        return "constant"
    if name in graph.fed:
        return "input"
    return "output" if name in graph.results else "value"


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _overflow(
    ctx: GraphContext[AcceptingTarget], lives: _Lives, demand_bytes: int, own: Sequence[str], sharing: Sequence[Item]
) -> Infeasible:
    """Content that the main memory would need in the fullest slot, the largest first."""
    _, slot = peak_bytes(sharing)
    live = (item for item in sharing if item.first <= slot <= item.last)
    held = [Holder(item.name, item.size_bytes, lives.runs[item.first], lives.runs[item.last]) for item in live]
    return main_overflow(ctx, demand_bytes, (*held_throughout(ctx.graph, own), *held))
