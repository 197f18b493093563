"""Stages of one operator of ours: TVM's maps under the user's names, in device axis order, or a rule.

    conv(x, w, b)  -->  n y x f + ry rx rc:  out[n, y, x, f] from %pad[n, y + ry, x + rx, rc], w[ry, rx, rc, f], b[f]

Kinds of one shape of access share one signature (every unary operator is a Relu, every binary one an Add). The rules
are for what TensorIR does not express linearly: views, gathers, resizing and the window of a local response
normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from dsa_sched.frontend.graph.access_maps import INNER, OUTPUT, Signature, stages_of
from dsa_sched.frontend.graph.layout import Axes, row_major
from dsa_sched.frontend.network.network import Setting
from dsa_sched.frontend.network.operation import Operation
from dsa_sched.frontend.rules.rules_elementwise import BINARY_KINDS
from partitioner.ir.access import Access, Full, Grouped, Index, Linear, Scaled, View
from partitioner.ir.graph import Axis, LoopNest

REDUCTIONS = {
    "reduce_mean": "ReduceMean",
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_nearest": "ReduceMax",
    "reduce_power": "ReduceMax",
}
"""Kinds that read whole axes -> the ONNX operator that reads the same elements."""
READABLE_REDUCTIONS = {"rv0": "ry", "rv1": "rx", "k": "k"}


@dataclass(frozen=True, slots=True)
class PlacedOperand:
    """One operand or result: its name in the graph, its ONNX shape, and the ONNX axis that each device axis holds. The
    weights of `groups` lie one group after the other."""

    name: str
    shape: tuple[int, ...]
    axes: Axes
    groups: int = 1

    @property
    def device_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[axis] for axis in self.axes)


def device_stages(
    op: Operation, inputs: Sequence[PlacedOperand], outputs: Sequence[PlacedOperand]
) -> tuple[LoopNest, ...]:
    """Stages of `op` in device axes. Weights, bias, scale and shift are operands like any other."""
    match op.kind:
        case "view":
            return (_view(inputs[0], outputs[0]),)
        case "gather":
            return (_gather(op, inputs, outputs[0]),)
        case "take":
            return (_take(op, inputs[0], outputs[0]),)
        case "resize":
            return (_resize(inputs[0], outputs[0]),)
        case "lrn":
            return _lrn(op, inputs[0], outputs[0])
        case "layer_norm" | "rms_norm" | "normalise":
            return (_lines(op, inputs, outputs[0]),)
        case "attention":
            return (_attention(inputs, outputs[0]),)
        case "attend":
            return (_attend(op, inputs, outputs[0]),)
        case "rotary_embedding":
            return (_rotary(op, inputs, outputs[0]),)
    return _from_tensor_ir(op, inputs, outputs)


# TensorIR ------------------------------------------------------------------------------------------------------------


def _signature(op: Operation, inputs: Sequence[PlacedOperand], outputs: Sequence[PlacedOperand]) -> Signature:
    results = tuple(result.shape for result in outputs)
    shapes = tuple(operand.shape for operand in inputs)

    def of(op_type: str, count: int | None = None, *settings: tuple[str, Setting]) -> Signature:
        return Signature(op_type, settings, shapes[:count], results)

    match op.kind:
        case "conv":
            return of("Conv", 2, *_window(op), ("group", op.integer("groups")))
        case "max_pool":
            return of("MaxPool", 1, *_window(op))
        case "average_pool":
            return of("AveragePool", 1, *_window(op), ("count_include_pad", op.integer("count_include_pad")))
        case "matmul":
            return of("MatMul", 2)
        case "scale_shift":
            spread = (shapes[1][0], *(1,) * (len(shapes[0]) - 2))
            return Signature("Mul", (), (shapes[0], spread), results)
        case "softmax":
            return of("Softmax", 1, ("axis", op.integer("axis")))
        case "concat":
            return of("Concat", None, ("axis", op.integer("axis")))
        case "transpose":
            return of("Transpose", 1, ("perm", op.ints("perm")))
        case "slice":
            return _slice_signature(op, shapes[0], results[0])
        case "pad":
            pads = op.ints("begins") + op.ints("ends")
            return Signature("Pad", (), (shapes[0], (len(pads),)), results, ((1, pads),))
        case kind if kind in REDUCTIONS:
            axes = op.ints("axes")
            return Signature(REDUCTIONS[op.kind], (), (shapes[0], (len(axes),)), results, ((1, axes),))
    return of("Add" if op.kind in (*BINARY_KINDS.values(), "add_scaled") else "Relu")


def _window(op: Operation) -> list[tuple[str, Setting]]:
    names = {"kernel": "kernel_shape", "strides": "strides", "dilations": "dilations", "pads": "pads"}
    plain = {"dilations": (1,) * len(op.ints("kernel"))}
    return [(onnx, op.ints(ours)) for ours, onnx in names.items() if op.ints(ours) != plain.get(ours)]


def _slice_signature(op: Operation, shape: tuple[int, ...], result: tuple[int, ...]) -> Signature:
    starts, steps = op.ints("starts"), op.ints("steps")
    ends = [start + step * extent for start, step, extent in zip(starts, steps, result, strict=True)]
    reached = tuple(end if end >= 0 else -(1 << 31) for end in ends)
    rank = (len(shape),)
    constants = ((1, starts), (2, reached), (3, row_major(len(shape))), (4, steps))
    return Signature("Slice", (), (shape, rank, rank, rank, rank), (result,), constants)


def _from_tensor_ir(
    op: Operation, inputs: Sequence[PlacedOperand], outputs: Sequence[PlacedOperand]
) -> tuple[LoopNest, ...]:
    tensors = {str(position): operand for position, operand in enumerate(inputs)}
    tensors |= {f"{OUTPUT}{position}": result for position, result in enumerate(outputs)}
    raw = stages_of(_signature(op, inputs, outputs))
    inner = _inner_names(raw)
    stages = []
    for stage in raw:
        names = _axis_names(op, stage, outputs[0].axes)
        reads = [
            _placed(op, read, tensors, inner, outputs[0].axes, names)
            for read in stage.reads
            if isinstance(read, Access)
        ]
        writes = _placed(op, stage.writes, tensors, inner, outputs[0].axes, names)
        domain = _domain(stage.domain, names, writes)
        stages.append(LoopNest(stage.name, domain, writes, tuple(reads)))
    return _with_vectors(op, tuple(stages), inputs, outputs[0].axes)


def _inner_names(stages: Sequence[LoopNest]) -> dict[str, str]:
    """`%0.pad_temp` -> `%pad_temp`, where that is unique in the operator."""
    full = [stage.writes.tensor for stage in stages if stage.writes.tensor.startswith(INNER)]
    short = [INNER + name.split(".", 1)[1] for name in full]
    return {name: s if short.count(s) == 1 else name for name, s in zip(full, short, strict=True)}


def _axis_names(op: Operation, stage: LoopNest, axes: Axes) -> dict[str, str]:
    """TIR axis name -> ours: n, y, x and f or c for feature maps, i0, i1, ... by device axis otherwise."""
    indices = stage.writes.indices
    mapped = [device for device, source in enumerate(axes) if source != device]
    images = len(indices) == len(axes) and bool(mapped)
    names: dict[str, str] = {}
    for position, index in enumerate(indices):
        if not isinstance(index, Linear) or len(index.terms) != 1:
            continue
        device = axes.index(position) if len(indices) == len(axes) else position
        names[index.terms[0][0]] = _image_axis(op, stage, position, len(axes)) if images else f"i{device}"
    for axis in stage.domain:
        names.setdefault(axis.name, READABLE_REDUCTIONS.get(axis.name, axis.name))
    unique = len(set(names.values())) == len(names)
    return names if unique else {axis.name: axis.name for axis in stage.domain}


def _image_axis(op: Operation, stage: LoopNest, position: int, rank: int) -> str:
    if position == 0:
        return "n"
    if position == 1:
        return "f" if op.kind == "conv" and any(axis.reduce for axis in stage.domain) else "c"
    return "xyzuvw"[rank - 1 - position]


def _domain(domain: Sequence[Axis], names: Mapping[str, str], writes: Access) -> tuple[Axis, ...]:
    """Axes in the order in which the write names them, then the reduced ones with channels last."""
    order = {index.terms[0][0]: position for position, index in enumerate(writes.indices)
             if isinstance(index, Linear) and index.terms}  # fmt: skip
    renamed = [Axis(names[axis.name], axis.extent, axis.reduce) for axis in domain]
    return tuple(sorted(renamed, key=lambda axis: (axis.reduce, order.get(axis.name, 0), axis.name == "rc")))


def _placed(
    op: Operation,
    access: Access,
    tensors: Mapping[str, PlacedOperand],
    inner: Mapping[str, str],
    output_axes: Axes,
    names: Mapping[str, str],
) -> Access:
    """The access with our tensor and axis names and its indices in device order."""
    indices = tuple(_renamed(index, names) for index in access.indices)
    operand = tensors.get(access.tensor)
    if operand is None:
        axes = output_axes if len(indices) == len(output_axes) else row_major(len(indices))
        return Access(inner[access.tensor], tuple(indices[axis] for axis in axes))
    if op.kind == "conv" and access.tensor == "1":
        return Access(operand.name, _weight_indices(indices, operand))
    if op.kind == "scale_shift" and access.tensor == "1":
        return Access(operand.name, indices[:1])
    return Access(operand.name, tuple(indices[axis] for axis in operand.axes))


def _renamed(index: Index, names: Mapping[str, str]) -> Index:
    match index:
        case Linear():
            return Linear(tuple((names[name], c) for name, c in index.terms), index.constant)
        case Grouped(per_group=1, size=1):
            return Linear(((names[index.axis], 1),))
        case Grouped():
            return Grouped(names[index.axis], index.per_group, index.size, names[index.offset])
    return index


def _weight_indices(indices: tuple[Index, ...], weights: PlacedOperand) -> tuple[Index, ...]:
    """[f, rc, ry, rx] in the order of the weights' axes; of several groups the group first, then f inside it.

    That is the whole axis when a group has several outputs: a box that cuts a group reads all its weights.
    """
    output, *others = indices
    if weights.groups == 1:
        return tuple(indices[axis] for axis in weights.axes)
    if not isinstance(output, Linear) or not output.terms:
        raise ValueError(f"weights of a grouped convolution indexed by {output}")
    per_group = weights.shape[0] // weights.groups
    group, inside = (output, Linear()) if per_group == 1 else (Grouped(output.terms[0][0], per_group, 1), Full())
    by_axis = (inside, *others)
    return (group, *(by_axis[axis] for axis in weights.axes))


def _with_vectors(
    op: Operation, stages: tuple[LoopNest, ...], inputs: Sequence[PlacedOperand], axes: Axes
) -> tuple[LoopNest, ...]:
    """Bias of conv and matmul, shift of scale_shift: one more read of the last stage, along the channels."""
    vectors = inputs[2:] if op.kind in ("conv", "matmul", "scale_shift") else ()
    if not vectors:
        return stages
    last = stages[-1]
    channels = -1 if op.kind == "matmul" else axes.index(1)
    along = (last.writes.indices[channels],)
    none: tuple[Index, ...] = (Linear(),)
    reads = (*last.reads, *(Access(vector.name, along if vector.shape[0] > 1 else none) for vector in vectors))
    return (*stages[:-1], LoopNest(last.name, last.domain, last.writes, reads))


# Rules ---------------------------------------------------------------------------------------------------------------


def _plain(result: PlacedOperand) -> tuple[tuple[Axis, ...], Access]:
    """One axis for each device axis of the result, and the identity write."""
    domain = tuple(Axis(f"i{position}", extent) for position, extent in enumerate(result.device_shape))
    return domain, Access(result.name, tuple(Linear(((axis.name, 1),)) for axis in domain))


def _view(source: PlacedOperand, result: PlacedOperand) -> LoopNest:
    domain, writes = _plain(result)
    return LoopNest("view", domain, writes, (View(source.name),))


def _gather(op: Operation, inputs: Sequence[PlacedOperand], result: PlacedOperand) -> LoopNest:
    """data[..., indices[...], ...]: the whole gathered axis, because the indices are data."""
    data, indices = inputs
    axis, wide = op.integer("axis"), len(indices.shape)
    domain, writes = _plain(result)
    outer, chosen, inner = writes.indices[:axis], writes.indices[axis : axis + wide], writes.indices[axis + wide :]
    return LoopNest(
        "gather", domain, writes, (Access(data.name, (*outer, Full(), *inner)), Access(indices.name, chosen))
    )


def _take(op: Operation, source: PlacedOperand, result: PlacedOperand) -> LoopNest:
    """Constant indices that no linear map describes: the whole axis."""
    domain, writes = _plain(result)
    axis = source.axes.index(op.integer("axis"))
    indices = tuple(Full() if device == axis else index for device, index in enumerate(writes.indices))
    return LoopNest("take", domain, writes, (Access(source.name, indices),))


def _resize(source: PlacedOperand, result: PlacedOperand) -> LoopNest:
    """Two neighbours around the scaled coordinate; the rules of coordinates move it by up to one step of the result."""
    domain, writes = _plain(result)
    indices: list[Index] = []
    for axis, extent, wanted in zip(domain, source.device_shape, result.device_shape, strict=True):
        if extent == wanted:
            indices.append(Linear(((axis.name, 1),)))
        else:
            ratio = Fraction(extent, wanted)
            reach = 2 + ceil(ratio)
            indices.append(Scaled(axis.name, ratio.numerator, ratio.denominator, -reach, reach))
    return LoopNest("resize", domain, writes, (Access(source.name, tuple(indices)),))


def _lrn(op: Operation, source: PlacedOperand, result: PlacedOperand) -> tuple[LoopNest, LoopNest]:
    """Squares summed over a window of channels, then the quotient."""
    size = op.integer("size")
    domain, writes = _plain(result)
    window = Axis("k", size, reduce=True)
    channels = result.axes.index(1)
    shifted = Linear(((domain[channels].name, 1), (window.name, 1)), -((size - 1) // 2))
    read = (*writes.indices[:channels], shifted, *writes.indices[channels + 1 :])
    sums = Access(f"{INNER}square_sum", writes.indices)
    return (
        LoopNest("square_sum", (*domain, window), sums, (Access(source.name, read),)),
        LoopNest("lrn", domain, writes, (Access(source.name, writes.indices), sums)),
    )


def _lines(op: Operation, inputs: Sequence[PlacedOperand], result: PlacedOperand) -> LoopNest:
    """Whole lines of the first operand along `axes`; the others as they meet the result, aligned at the last axis."""
    source, *vectors = inputs
    domain, writes = _plain(result)
    axes = op.ints("axes")
    read = tuple(Full() if axis in axes else index for axis, index in zip(source.axes, writes.indices, strict=True))
    reads = [Access(source.name, read)]
    for vector in vectors:
        ahead = len(result.shape) - len(vector.shape)
        indices = (
            writes.indices[result.axes.index(axis + ahead)] if vector.shape[axis] > 1 else Linear()
            for axis in vector.axes
        )
        reads.append(Access(vector.name, tuple(indices)))
    return LoopNest(op.kind, domain, writes, tuple(reads))


def _attention(inputs: Sequence[PlacedOperand], result: PlacedOperand) -> LoopNest:
    """Stages of attention: a row of q of one head, all of k, a column of v for each element, and a row of the mask."""
    domain, writes = _plain(result)
    batch, head, row, element = (writes.indices[result.axes.index(axis)] for axis in range(4))
    q, k, v, *masks = inputs
    shared = head
    if k.shape[1] != q.shape[1]:
        shared = Grouped(domain[result.axes.index(1)].name, q.shape[1] // k.shape[1], 1)
    reads = [
        _by_axis(q, (batch, head, row, Full())),
        _by_axis(k, (batch, shared, Full(), Full())),
        _by_axis(v, (batch, shared, Full(), element)),
        *(_by_axis(mask, (batch, head, row, Full())) for mask in masks),
    ]
    return LoopNest("attention", domain, writes, tuple(reads))


def _attend(op: Operation, inputs: Sequence[PlacedOperand], result: PlacedOperand) -> LoopNest:
    """A row of q of the head of a column, and of each part of the keys all rows of k and v of the head that it shares,
    and a row of the mask. q, k and v have heads side by side, or an axis of heads; where they are columns of other
    values, all columns are read."""
    domain, writes = _plain(result)
    q, *others = inputs
    item, row, _ = writes.indices
    heads, groups, each = op.integer("heads"), op.integer("groups"), len(others) // op.integer("parts")
    size, width = head_size(op, q.shape), result.shape[2] // heads
    of_columns = "columns" in dict(op.attributes)
    inner = (Axis("k", size, reduce=True), Axis("j", width, reduce=True))
    name, shared = domain[2].name, heads // groups * width

    def rows(operand: PlacedOperand, wanted: Index, columns: int, elements: int, inside: str) -> Access:
        """Rows of the head that `columns` of the result share."""
        if len(operand.shape) == len(domain):
            own = Full() if of_columns else Grouped(name, columns, elements, inside)
            return Access(operand.name, (item, wanted, own))
        return Access(operand.name, (item, Grouped(name, columns, 1), wanted, Linear(((inside, 1),))))

    def read(position: int, operand: PlacedOperand) -> Access:
        if position % each == 2:
            return _by_axis(operand, (item, Grouped(name, width, 1), row, Full()))
        return rows(operand, Full(), shared, *((size, "k"), (width, "j"))[position % each])

    reads = [
        rows(q, row, width, size, "k"),
        *(read(position, operand) for position, operand in enumerate(others)),
    ]
    return LoopNest("attend", (*domain, *inner), writes, tuple(reads))


def head_size(op: Operation, shape: tuple[int, ...]) -> int:
    """Elements of a row of a head of q, an operand of this shape."""
    if "size" in dict(op.attributes):
        return op.integer("size")
    return shape[-1] if len(shape) > len(("item", "row", "column")) else shape[-1] // op.integer("heads")


def _rotary(op: Operation, inputs: Sequence[PlacedOperand], result: PlacedOperand) -> LoopNest:
    """Stages of a rotary embedding: the elements of a row and head, with the cosines and sines of the row."""
    domain, writes = _plain(result)
    indices = tuple(writes.indices[result.axes.index(axis)] for axis in range(3))
    return LoopNest(op.kind, domain, writes, tuple(_by_axis(operand, (*indices, Full())) for operand in inputs))


def _by_axis(operand: PlacedOperand, indices: tuple[Index, ...]) -> Access:
    """Access with an index for each axis of the file, in device order; axes of one element are read as they are."""
    used = (Linear() if operand.shape[axis] == 1 else indices[axis] for axis in operand.axes)
    return Access(operand.name, tuple(used))
