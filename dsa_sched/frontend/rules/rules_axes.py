"""Rules of operators along whole axes, and of operators that only move data.

starts, ends, axes, steps  -->  one start and one step for every axis; negative axes counted from the front

Rules raise Refusal for nodes that cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from dsa_sched.frontend.network.network import NEAREST, Node
from dsa_sched.frontend.network.operation import Refusal, Writer
from dsa_sched.frontend.network.shapes import shape_text
from dsa_sched.frontend.rules.image_windows import OperationSteps
from dsa_sched.frontend.rules.rules_window import whole_pool
from partitioner.ir.graph import Attribute


def _axis(writer: Writer, node: Node, axis: int) -> int:
    return axis % len(writer.shape(node.inputs[0]))


def softmax(writer: Writer, node: Node) -> None:
    shape = writer.shape(node.inputs[0])
    old = writer.network.opset < 13
    axis = _axis(writer, node, node.integer("axis", 1 if old else -1))
    if old:  # until opset 12 all axes from `axis` on were flattened into one
        wide = [i for i in range(axis, len(shape)) if shape[i] > 1]
        if len(wide) > 1:
            raise Refusal(f"opset {writer.network.opset} defines it over axes {wide} together; only one is supported")
        axis = (wide or [axis])[0]
    writer.add(node, "softmax", {"axis": axis})


def concat(writer: Writer, node: Node) -> None:
    writer.add(node, "concat", {"axis": _axis(writer, node, node.integer("axis", 1))}, inputs=node.inputs)


def transpose(writer: Writer, node: Node) -> None:
    rank = len(writer.shape(node.inputs[0]))
    writer.add(node, "transpose", {"perm": node.integers("perm", tuple(reversed(range(rank))))})


def reshape(writer: Writer, node: Node) -> None:
    source, target = writer.shape(node.inputs[0]), writer.shape(node.outputs[0])
    if prod(source) != prod(target):
        raise Refusal(f"{prod(source)} elements into the {prod(target)} of {shape_text(target)}")
    writer.add(node, "view")


def slice_(writer: Writer, node: Node) -> None:
    """Write a slice with starts and steps for every axis; the extents are those of the output."""
    shape = writer.shape(node.inputs[0])
    if len(node.inputs) > 1:
        starts, ends = writer.integers(node, 1, "starts"), writer.integers(node, 2, "ends")
        axes = writer.integers(node, 3, "axes") if node.input(3) else tuple(range(len(starts)))
        steps = writer.integers(node, 4, "steps") if node.input(4) else (1,) * len(starts)
    else:
        starts, ends = node.integers("starts", ()), node.integers("ends", ())
        axes, steps = node.integers("axes", tuple(range(len(starts)))), (1,) * len(starts)
    first, step = [0] * len(shape), [1] * len(shape)
    for axis, start, end, stride in zip(axes, starts, ends, steps, strict=True):
        position = axis % len(shape)
        first[position], _, step[position] = slice(start, end, stride).indices(shape[position])
    writer.add(node, "slice", {"starts": tuple(first), "steps": tuple(step)})


def split(writer: Writer, node: Node) -> None:
    """Write one slice for each output, named after its position."""
    rank = len(writer.shape(node.inputs[0]))
    axis = _axis(writer, node, node.integer("axis", 0))
    start = 0
    for position, name in enumerate(node.outputs):
        if name:
            attributes = _slice_of(rank, axis, start, 1)
            writer.add(node, "slice", attributes, outputs=(name,), suffix=str(position))
            start += writer.shape(name)[axis]
        elif any(node.outputs[position:]):
            raise Refusal("an output has no name, so that its extent is not known")


def _slice_of(rank: int, axis: int, start: int, step: int) -> dict[str, Attribute]:
    """Attributes of a slice along one axis."""
    starts, steps = [0] * rank, [1] * rank
    starts[axis], steps[axis] = start, step
    return {"starts": tuple(starts), "steps": tuple(steps)}


def pad(writer: Writer, node: Node) -> None:
    mode = node.text("mode", "constant")
    rank = len(writer.shape(node.inputs[0]))
    pads = writer.integers(node, 1, "pads") if node.input(1) else node.integers("pads", ())
    if node.input(3):
        axes = [axis % rank for axis in writer.integers(node, 3, "axes")]
        full = [0] * (2 * rank)
        for i, axis in enumerate(axes):
            full[axis], full[rank + axis] = pads[i], pads[len(axes) + i]
        pads = tuple(full)
    extents = zip(writer.shape(node.inputs[0]), pads[:rank], pads[rank:], strict=False)
    for axis, (extent, begin, end) in enumerate(extents):
        if extent + min(begin, 0) + min(end, 0) < 1:
            raise Refusal(f"of the {extent} elements along axis {axis}, padding by {begin} and {end} leaves none")
    if mode == "constant":
        value = writer.scalar(node, 2, "the padding value", node.number("value", 0.0))
        writer.add(node, "pad", {"begins": pads[:rank], "ends": pads[rank:], "value": value})
    elif mode in REPEATED:
        _pad_by_own(writer, node, mode, pads[:rank], pads[rank:])
    else:
        raise Refusal(f"padding mode {mode}; ONNX has constant, {', '.join(REPEATED)}")


REPEATED: Mapping[str, Callable[[int, int], int]] = {
    "edge": lambda place, extent: min(max(place, 0), extent - 1),
    "reflect": lambda place, extent: extent - 1 - abs(place % (2 * extent - 2) - extent + 1) if extent > 1 else 0,
    "wrap": lambda place, extent: place % extent,
}
"""Index of the element of an axis that is repeated at a place before its first or after its last one."""


def _pad_by_own(writer: Writer, node: Node, mode: str, begins: tuple[int, ...], ends: tuple[int, ...]) -> None:
    """Write the elements before, the value, and the elements after, one axis at a time. Elements that negative pads cut
    off are removed first, so that only the rest is repeated.
    """
    steps, shape = OperationSteps(writer, node), writer.shape(node.inputs[0])
    firsts = tuple(max(0, -begin) for begin in begins)
    counts = tuple(extent - first + min(0, end) for extent, first, end in zip(shape, firsts, ends, strict=True))
    x = steps.part(node.inputs[0], firsts, counts)
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        extent = writer.shape(x)[axis]
        before = tuple(REPEATED[mode](place, extent) for place in range(-begin, 0))
        after = tuple(REPEATED[mode](place, extent) for place in range(extent, extent + end))
        pieces = (*steps.taken(x, axis, before), x, *steps.taken(x, axis, after))
        x = steps.concat(pieces, axis)
    steps.finish(x)


def expand(writer: Writer, node: Node) -> None:
    """The one element of an axis as often as the result has it."""
    steps, target = OperationSteps(writer, node), writer.shape(node.outputs[0])
    shape = writer.shape(node.inputs[0])
    x = steps.view(node.inputs[0], *(1,) * (len(target) - len(shape)), *shape)
    for axis, extent in enumerate(target):
        if writer.shape(x)[axis] != extent:
            (x,) = steps.taken(x, axis, (0,) * extent)
    steps.finish(x)


def tile(writer: Writer, node: Node) -> None:
    """Repeat all elements of an axis."""
    steps, x = OperationSteps(writer, node), node.inputs[0]
    for axis, times in enumerate(writer.integers(node, 1, "repeats")):
        if times != 1:
            (x,) = steps.taken(x, axis, tuple(range(writer.shape(x)[axis])) * times)
    steps.finish(x)


def reduce(writer: Writer, node: Node) -> None:
    """A mean over all spatial axes is a whole-image pool; without keepdims a view follows."""
    shape = writer.shape(node.inputs[0])
    rank = len(shape)
    given = writer.integers(node, 1, "axes") if node.input(1) else node.integers("axes", ())
    if not shape or (not given and node.integer("noop_with_empty_axes", 0)):
        writer.add(node, "view")
        return
    axes = tuple(sorted(axis % rank for axis in given)) or tuple(range(rank))
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    suffix = "" if writer.shape(node.outputs[0]) == kept else "kept"
    result = writer.intermediate(node, suffix, kept) if suffix else ""
    kind = {"ReduceMean": "reduce_mean", "ReduceSum": "reduce_sum", "ReduceMax": "reduce_max"}[node.op_type]
    if rank == 4 and axes == (2, 3) and kind != "reduce_sum":
        whole_pool(writer, node, "average_pool" if kind == "reduce_mean" else "max_pool", shape[2:], suffix)
    else:
        writer.add(node, kind, {"axes": axes}, suffix=suffix)
    if suffix:
        writer.add(node, "view", inputs=(result,))


def reduce_line(writer: Writer, node: Node) -> None:
    """Our own two operators, as the decomposition of a norm writes them: axes are counted from the front and stay."""
    axes = node.integers("axes", ())
    if node.op_type == NEAREST:
        writer.add(node, "reduce_nearest", {"axes": axes})
    else:
        writer.add(node, "reduce_power", {"axes": axes, "centred": node.integer("centred", 0)})


def normalise(writer: Writer, node: Node) -> None:
    """Our own as well, of norms along lines."""
    axes, centred = node.integers("axes", ()), node.integer("centred", 0)
    writer.add(node, "normalise", {"axes": axes, "centred": centred, "epsilon": node.number("epsilon", 0.0)})


def attend(writer: Writer, node: Node) -> None:
    """Our own as well, of attention with heads side by side. With `first_sees`, row i sees so many keys and i more;
    with `columns`, heads of q, k and v with `size` elements in a row of q begin at these columns of the operands."""
    attributes: dict[str, Attribute] = {name: node.integer(name, 1) for name in ("heads", "groups", "parts")}
    if first_sees := node.integer("first_sees", 0):
        attributes["first_sees"] = first_sees
    if columns := node.integers("columns", ()):
        attributes |= {"columns": columns, "size": node.integer("size", 0)}
    writer.add(node, "attend", {**attributes, "scale": node.number("scale", 1.0)}, inputs=node.inputs)


def gather(writer: Writer, node: Node) -> None:
    """Constant indices: a slice where they are equally spaced, else `take`. A view gives the result their shape."""
    axis = _axis(writer, node, node.integer("axis", 0))
    indices = writer.constants.get(node.inputs[1])
    if indices is None:
        writer.add(node, "gather", {"axis": axis}, inputs=node.inputs)
        return
    shape = writer.shape(node.inputs[0])
    chosen = tuple(int(i) for i in indices.reshape(-1))
    if outside := [i for i in chosen if not -shape[axis] <= i < shape[axis]]:
        raise Refusal(f"index {outside[0]} of an axis of {shape[axis]} elements")
    chosen = tuple(i % shape[axis] for i in chosen)
    suffix = "" if indices.ndim == 1 else "taken"
    if suffix:
        writer.intermediate(node, suffix, (*shape[:axis], len(chosen), *shape[axis + 1 :]))
    step = chosen[1] - chosen[0] if len(chosen) > 1 else 1
    if step and chosen == tuple(chosen[0] + step * i for i in range(len(chosen))):
        writer.add(node, "slice", _slice_of(len(shape), axis, chosen[0], step), suffix=suffix)
    else:
        writer.add(node, "take", {"axis": axis, "indices": chosen}, suffix=suffix)
    if suffix:
        writer.add(node, "view", inputs=(f"{node.outputs[0]}::{suffix}",))
