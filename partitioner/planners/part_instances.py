"""Hidden values that find no room: the layers from their maker to their reader run in several instances.

plan in which a value goes to the main memory and comes back for a later layer
    --rows, or columns such as heads, of all layers between in as many instances as let it stay--> plan

A feed-forward block of a transformer makes four times as many values as it reads and gives. Where they do not fit the
cores, they go to the main memory and come back. With half of the rows at a time they fit, and the weights of both
layers come twice, which are fewer bytes where there are many rows. Keys and values of attention are read head by head:
half of the heads at a time needs half of their columns, and every weight still comes once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from hw_models.errors import size_text
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.plan import Group, Plan, Spill, Split
from partitioner.ir.regions import Box, box_size, full_box, join
from partitioner.ir.steps import MoveStep, RunStep, Step, ViewStep
from partitioner.ir.value_lifetimes import own_names
from partitioner.memory.memory_plan import fit_layout
from partitioner.memory.memory_plan_types import FOR_SCHEDULING, PLAIN
from partitioner.memory.no_plan import Forbidden, NoPlan, catch_forbidden
from partitioner.tiling.core_partition import cut_axis, cut_granularity
from partitioner.tiling.core_regions import core_boxes

MOST_INSTANCES = 8
"""Largest number of instances of layers together; with more, their weights come too often, or their parts are too
small."""

MOST_TWICE = 1 / 8
"""Largest share of a value that may be computed twice: rows that windows of two instances read."""

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Block:
    """Steps that follow each other, with the values of each: the first step makes a hidden value, only the last reads
    it, and the values of those in between are read only in the block."""

    runs: tuple[RunStep, ...]
    values: tuple[str, ...]

    @property
    def reader(self) -> RunStep:
        return self.runs[-1]


@dataclass(frozen=True, slots=True)
class _Cut:
    """The spans of a block's output along an axis, one per instance, the memory where the output then lies, the groups
    whose values are `left` in the staging memory, the bytes of constants that all instances read, and the bytes of main
    memory traffic beyond reading constants once."""

    axis: int
    spans: Spans
    scope: str
    left: tuple[str, ...]
    constant_bytes: int
    main_bytes: int


def with_part_instances(ctx: PlanContext, plan: Plan) -> Plan:
    """The plan with blocks of layers in instances for which everything finds room, where that moves fewer bytes of the
    main memory than the hidden values do; of those the fewest bytes. Blocks that are alike are treated alike."""
    alike: dict[object, list[_Block]] = {}
    for block in _blocks(ctx, plan):
        layers = [layer for step in block.runs for layer in plan.group_by_name[step.group].layers]
        kind = tuple(ctx.likeness(layer).kind for layer in layers)
        alike.setdefault((kind, block.reader.binding.pieces), []).append(block)
    for blocks in alike.values():
        plan = next((found for found in _attempts(ctx, plan, blocks) if fits(ctx, found)), plan)
    return plan


def fits(ctx: PlanContext, plan: Plan) -> bool:
    """Whether a plan can be laid out, also for work that runs ahead."""
    layouts = (catch_forbidden(partial(fit_layout, plan, ctx, options)) for options in (PLAIN, FOR_SCHEDULING))
    return not any(isinstance(layout, NoPlan) for layout in layouts)


def _blocks(ctx: PlanContext, plan: Plan) -> Iterator[_Block]:
    """Blocks from each run that leaves a value in the main memory to its only reader, if that has equally many rows; no
    run is in two of them."""
    graph = ctx.graph
    steps = [step for step in plan.steps if not isinstance(step, MoveStep)]
    made = [plan.group_by_name[step.group].output for step in steps]
    place = {
        name: number
        for number, step in enumerate(steps)
        for layer in plan.group_by_name[step.group].layers
        for name in layer.ops
    }
    free = 0
    for first, maker in enumerate(steps):
        if first < free or maker.scope != ctx.roles.main or made[first] in graph.outputs:
            continue
        read_at = {place[op.name] for op in graph.consumers[made[first]]}
        if len(read_at) != 1:
            continue
        (last,) = read_at
        runs = tuple(step for step in steps[first : last + 1] if isinstance(step, RunStep))
        hidden, out = graph.by_name[made[first]], graph.by_name[made[last]]
        if len(runs) <= last - first or hidden.shape[:-1] != out.shape[:-1] or len(hidden.shape) < 2:
            continue
        inside = all(
            name not in graph.outputs and all(place[op.name] <= last for op in graph.consumers[name])
            for name in made[first:last]
        )
        if inside:
            free = last + 1
            yield _Block(runs, tuple(made[first : last + 1]))


def _attempts(ctx: PlanContext, plan: Plan, blocks: list[_Block]) -> Iterator[Plan]:
    """Plans in which similar blocks are cut in the same way, the fewest bytes of the main memory first. Values that
    they read and make lie in the staging memory, on cores, or else in the main memory."""
    leave = any(block.values[-1] in ctx.graph.outputs for block in blocks)
    for cut in sorted(_cuts(ctx, plan, blocks[0], leave), key=lambda cut: cut.main_bytes):
        for brought in ((ctx.roles.main,), (ctx.roles.main, ctx.roles.local.memory), ()):
            attempt = plan
            for block in blocks:
                attempt = _merged(ctx, _from_staging(ctx, attempt, block, brought), block, cut)
            yield _with_views(ctx, attempt)


def _cuts(ctx: PlanContext, plan: Plan, block: _Block, leave: bool) -> Iterator[_Cut]:
    """Cuts that move fewer bytes of the main memory than the hidden value does: along the first axis that leaves rows
    to all cores, and along columns. With `leave` the output is one of the network."""
    reader = block.reader
    box, pieces = reader.box, reader.binding.pieces
    sizes = [ctx.graph.by_name[name].size_bytes for name in block.values]
    before = 2 * sizes[0] + (2 * sizes[-1] if reader.scope == ctx.roles.main else 0)
    shared = tuple(run.group for run in block.runs[:-1] if run.scope != ctx.roles.local.memory)
    granule = cut_granularity(ctx, plan.group_by_name[reader.group].layers[-1], box)[-1]
    for count in range(2, MOST_INSTANCES + 1):
        long = (axis for axis, (low, high) in enumerate(box[:-1]) if (high - low) // count >= max(1, pieces[axis]))
        rows = [(axis, cut_axis(*box[axis], count, 1)) for axis in islice(long, 1)]
        for axis, spans in (*rows, (len(box) - 1, cut_axis(*box[-1], count, granule))):
            if len(spans) < count:
                continue
            group = _group(plan, block, axis, spans, ())
            loaded = catch_forbidden(partial(_constant_bytes, ctx, group, reader, axis, spans))
            if loaded is None or isinstance(loaded, Forbidden):
                continue
            for scope in dict.fromkeys((ctx.roles.main,) if leave else (ctx.roles.staging, ctx.roles.main)):
                again = loaded - _whole_bytes(ctx, group) + (2 * sizes[-1] if scope == ctx.roles.main else 0)
                if again < before:
                    yield from (_Cut(axis, spans, scope, left, loaded, again) for left in dict.fromkeys(((), shared)))


def _whole_bytes(ctx: PlanContext, group: Group) -> int:
    """Bytes of all constants that a group reads, counted once."""
    names = {name for layer in group.layers for name in layer.inputs(ctx.graph)}
    return sum(ctx.graph.by_name[name].size_bytes for name in names if ctx.graph.by_name[name].constant)


def _constant_bytes(ctx: PlanContext, group: Group, reader: RunStep, axis: int, spans: Spans) -> int | None:
    """Bytes of constants that all instances of a group read; None where they compute more than a little twice. Raises
    PlanError for a cut that the group cannot have."""
    graph = ctx.graph
    made = dict.fromkeys((layer.output for layer in group.layers), 0)
    loaded = 0
    for number, step in enumerate(_instances(reader, group, axis, spans, reader.scope)):
        read: dict[str, Box] = {}
        for core in core_boxes(ctx, group, replace(step, instance=number)):
            for layer in group.layers:
                box = core.computed.get(layer.output)
                if box is None:
                    continue
                made[layer.output] += box_size(box)
                for name, part in ctx.reads(layer, box).items():
                    if graph.by_name[name].constant and box_size(part):
                        read[name] = join(read[name], part) if name in read else part
        loaded += sum(box_size(part) * graph.by_name[name].item_bytes for name, part in read.items())
    whole = {name: box_size(full_box(graph.by_name[name].shape)) for name in made}
    return loaded if all(size - whole[name] <= MOST_TWICE * whole[name] for name, size in made.items()) else None


def _with_views(ctx: PlanContext, plan: Plan) -> Plan:
    """The plan with each view in the memory of the value that it names."""
    own = own_names(ctx.graph, ctx.layers)
    scopes = {plan.group_by_name[s.group].output: s.scope for s in plan.steps if isinstance(s, RunStep)}
    steps: list[Step] = []
    for step in plan.steps:
        output = plan.group_by_name[step.group].output
        viewed = own.get(output, output) if isinstance(step, ViewStep) else ""
        steps.append(replace(step, scope=scopes[viewed]) if viewed in scopes else step)
    return replace(plan, steps=tuple(steps))


def _from_staging(ctx: PlanContext, plan: Plan, block: _Block, brought: tuple[str, ...]) -> Plan:
    """The plan in which inputs of the block that lie in the memories `brought` lie in the staging memory instead:
    those of the main memory, as there may be room now, or those of cores, which differ for parts of the rows."""
    read = {name for step in block.runs for name in plan.group_by_name[step.group].inputs(ctx.graph)}
    steps: list[Step] = []
    for step in plan.steps:
        output = plan.group_by_name[step.group].output
        moved = isinstance(step, RunStep) and step.scope in brought and output in read
        steps.append(replace(step, scope=ctx.roles.staging) if moved and output not in ctx.graph.outputs else step)
    return replace(plan, steps=tuple(steps))


def _group(plan: Plan, block: _Block, axis: int, spans: Spans, spills: tuple[Spill, ...]) -> Group:
    layers = tuple(layer for run in block.runs for layer in plan.group_by_name[run.group].layers)
    points = (spans[0][0], *(high for _, high in spans))
    return Group(block.reader.group, layers, Split(((axis, points),)), spills)


def _instances(reader: RunStep, group: Group, axis: int, spans: Spans, scope: str) -> Iterator[RunStep]:
    for number, span in enumerate(spans):
        box = (*reader.box[:axis], span, *reader.box[axis + 1 :])
        yield replace(reader, group=group.name, instance=number, box=box, scope=scope)


def _merged(ctx: PlanContext, plan: Plan, block: _Block, cut: _Cut) -> Plan:
    """The plan with one group in place of those of the block; moves to their cores are made for each instance."""
    left = tuple(
        Spill(name, run.binding.pieces, ctx.roles.staging)
        for run, name in zip(block.runs, block.values, strict=True)
        if run.group in cut.left
    )
    group = _group(plan, block, cut.axis, cut.spans, left)
    old = {run.group for run in block.runs}
    brought = [step for step in plan.steps if isinstance(step, MoveStep) and step.group in old]
    moves = [step for step in brought if step.tensor not in block.values]  # cores compute those themselves
    steps: list[Step] = []
    for step in plan.steps:
        if step.group not in old:
            steps.append(step)
        elif step == block.reader:
            for run in _instances(block.reader, group, cut.axis, cut.spans, cut.scope):
                steps += (replace(m, group=group.name, instance=run.instance, binding=run.binding) for m in moves)
                steps.append(run)
    groups = tuple(
        group if each.name == group.name else each for each in plan.groups if each.name not in old - {group.name}
    )
    said = Decision(group.name, f"{len(cut.spans)} instances with {_others(block)}", _reason(ctx, group, block, cut))
    return replace(plan, groups=groups, steps=tuple(steps), decisions=(*plan.decisions, said))


def _others(block: _Block) -> str:
    return ", ".join(run.group for run in block.runs[:-1])


def _reason(ctx: PlanContext, group: Group, block: _Block, cut: _Cut) -> str:
    hidden = ctx.graph.by_name[block.values[0]]
    memory = ctx.roles.staging if cut.left else ctx.roles.local.memory
    stays = f"{size_text(hidden.size_bytes)} of {hidden.name} stay in {memory}"
    whole_bytes = _whole_bytes(ctx, group)
    if cut.constant_bytes == whole_bytes:
        return f"{stays}, a part at a time; {size_text(whole_bytes)} of constants are loaded once"
    if cut.constant_bytes == len(cut.spans) * whole_bytes:
        return f"{stays}; {size_text(whole_bytes)} of constants are loaded {len(cut.spans)} times"
    return f"{stays}; {size_text(cut.constant_bytes)} of constants are loaded, {size_text(whole_bytes)} by one instance"
