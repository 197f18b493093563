"""ONNX operators as ours: one small rule for each, which normalises its attributes or says why it cannot.

    Node(Gemm, transB=1)  -->  Operation(matmul, [x, w transposed, bias])

Axes are still ONNX's. A rule may make constants and intermediate values; a refusal is a sentence that the user reads,
and all refusals of a model are reported together. `OPERATORS` is the whole list of what the frontend takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx

from dsa_sched.frontend.network import Array, Network, Node, Value
from dsa_sched.frontend.shapes import known_values, shape_text
from dsa_sched.frontend.simplify import FLOATING, SCALE_SHIFT
from hw_models.errors import ModelError
from partitioner.graph import Attribute

__all__ = ["BINARY_KINDS", "OPERATORS", "Operation", "Operations", "UNARY_KINDS", "operations_of", "require_known"]

FP16_LARGEST = 65504.0


@dataclass(frozen=True, slots=True)
class Operation:
    """One operator of ours with ONNX axes. `source` is the ONNX operator type."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()
    source: str = ""

    def ints(self, name: str) -> tuple[int, ...]:
        value = dict(self.attributes)[name]
        assert isinstance(value, tuple)
        return tuple(int(v) for v in value)

    def integer(self, name: str) -> int:
        value = dict(self.attributes)[name]
        assert isinstance(value, int)
        return value


@dataclass(frozen=True, slots=True)
class Operations:
    """The network in our operators; `constants` and `values` include what rules made."""

    operations: tuple[Operation, ...]
    constants: dict[str, Array]
    values: dict[str, Value]


class Refusal(Exception):
    """Why a rule cannot take a node; becomes one line of the ModelError."""


@dataclass(slots=True)
class _Writer:
    """What the rules of one network have made so far."""

    network: Network
    constants: dict[str, Array]
    values: dict[str, Value]
    operations: list[Operation] = field(default_factory=list)

    def add(
        self,
        node: Node,
        kind: str,
        attributes: Mapping[str, Attribute] | None = None,
        *,
        inputs: tuple[str, ...] = (),
        outputs: tuple[str, ...] = (),
        suffix: str = "",
    ) -> None:
        """Append an operation that writes `outputs`: unless given the node's, or a value of its own with a `suffix`."""
        if not outputs:
            outputs = (f"{node.outputs[0]}::{suffix}",) if suffix else tuple(name for name in node.outputs if name)
        name = f"{node.name}::{suffix}" if suffix else node.name
        self.operations.append(
            Operation(name, kind, inputs or node.inputs[:1], outputs, tuple((attributes or {}).items()), node.op_type)
        )

    def intermediate(self, node: Node, suffix: str, shape: tuple[int, ...]) -> str:
        name = f"{node.outputs[0]}::{suffix}"
        self.values[name] = Value(shape, self.values[node.outputs[0]].dtype)
        return name

    def constant(self, name: str, array: Array) -> str:
        self.constants[name] = array
        self.values[name] = Value(array.shape, onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def integers(self, node: Node, position: int, what: str) -> tuple[int, ...]:
        """A constant input as integers."""
        if node.input(position) not in self.constants:
            raise Refusal(f"{what} is computed at run time; it must be constant")
        return tuple(int(v) for v in self.constants[node.input(position)].reshape(-1))

    def scalar(self, node: Node, position: int, what: str, default: float) -> float:
        if not node.input(position):
            return default
        array = self.constants.get(node.input(position))
        if array is None or array.size != 1:
            raise Refusal(f"{what} is not one constant number")
        return float(array.reshape(-1)[0])


Rule = Callable[[_Writer, Node], None]


def operations_of(network: Network) -> Operations:
    """Every node through its rule. Raises ModelError listing all refusals."""
    values = dict(network.values)
    for name, array in network.constants.items():
        values[name] = Value(tuple(array.shape), onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
    writer = _Writer(network, dict(network.constants), values)
    refusals = []
    for node in network.nodes:
        try:
            _require_types(writer, node)
            OPERATORS[node.op_type](writer, node)
        except Refusal as refusal:
            refusals.append(_line(node, writer.values, str(refusal)))
        except KeyError as error:
            refusals.append(_line(node, writer.values, f"not an operator of this compiler ({error})"))
    if refusals:
        raise _unsupported(network.name, refusals)
    return Operations(tuple(writer.operations), writer.constants, writer.values)


def _require_types(writer: _Writer, node: Node) -> None:
    for name in (*node.inputs, *node.outputs):
        if name and name not in writer.values:
            raise Refusal(f"the shape of {name} is not static; give every input's shape with --shape")
    for name in node.outputs:
        if name and writer.values[name].dtype not in FLOATING:
            raise Refusal(f"{name} is {_type_name(writer.values[name].dtype)}; only floating-point values are computed")
    data = node.input(0)
    if data and writer.values[data].dtype not in FLOATING and node.op_type != "Gather":
        raise Refusal(f"{data} is {_type_name(writer.values[data].dtype)}; only floating-point values are computed")


def _type_name(dtype: int) -> str:
    return str(onnx.TensorProto.DataType.Name(dtype)).lower()


def _line(node: Node, values: dict[str, Value], reason: str) -> str:
    shapes = [shape_text(values[name].shape) if name in values else "?" for name in node.inputs if name]
    return f"{node.op_type} {node.name} ({', '.join(shapes)}): {reason}"


def _unsupported(model: str, lines: list[str]) -> ModelError:
    noun = "operator" if len(lines) == 1 else "operators"
    listed = "\n".join(f"  {line}" for line in lines)
    return ModelError(f"{model}: {len(lines)} unsupported {noun}\n{listed}")


def require_known(model: onnx.ModelProto, who: str) -> None:
    """Before any work: every operator type that can never be compiled, all at once, with names and shapes.

    Nodes that depend on no input of the model may be of any standard type: they become constants.
    """
    values = known_values(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    varying = {item.name for item in model.graph.input} - constants
    lines = []
    for proto in model.graph.node:
        foreign = proto.domain not in ("", "ai.onnx")
        nested = any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in proto.attribute)
        known = onnx.defs.has(proto.op_type) and not foreign
        live = any(name in varying for name in proto.input) and proto.op_type not in SHAPE_ONLY
        if live:
            varying.update(proto.output)
        node = Node(proto.name, proto.op_type, tuple(proto.input), tuple(proto.output))
        if foreign:
            lines.append(_line(node, values, f"domain {proto.domain} is not standard ONNX"))
        elif not known:
            lines.append(_line(node, values, "no such operator in standard ONNX"))
        elif nested:
            lines.append(_line(node, values, "control flow with nested graphs"))
        elif live and proto.op_type not in OPERATORS and proto.op_type not in SIMPLIFIED_AWAY:
            lines.append(_line(node, values, "no rule for this operator"))
    if lines:
        raise _unsupported(who, lines)


SIMPLIFIED_AWAY = frozenset(["Identity", "Dropout", "Cast", "Sum", "Flatten", "Squeeze", "Unsqueeze"])
SHAPE_ONLY = frozenset(["Shape", "Size"])
"""Their results are constants once shapes are static, so that nothing behind them varies."""


# Convolution and pooling ---------------------------------------------------------------------------------------------


def _windows(node: Node, kernel: tuple[int, ...], shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """kernel, strides, dilations and pads (all begins, then all ends) with auto_pad resolved."""
    ones, zeros = (1,) * len(kernel), (0,) * (2 * len(kernel))
    strides, dilations = node.integers("strides", ones), node.integers("dilations", ones)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    match node.text("auto_pad", "NOTSET"):
        case "NOTSET" | "":
            pads = node.integers("pads", zeros)
        case "VALID":
            pads = zeros
        case mode:
            totals = [
                max(0, (-(-extent // s) - 1) * s + span - extent)
                for extent, s, span in zip(shape[2:], strides, spans, strict=True)
            ]
            small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
            pads = (small + large) if mode == "SAME_UPPER" else (large + small)
    return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads}


def _conv(writer: _Writer, node: Node) -> None:
    weights = writer.constants.get(node.input(1))
    if weights is None or (node.input(2) and node.input(2) not in writer.constants):
        raise Refusal("weights and bias must be constant")
    if weights.ndim < 3:
        raise Refusal(f"weights of {weights.ndim} axes")
    channels, groups = writer.shape(node.inputs[0])[1], node.integer("group", 1)
    if channels != weights.shape[1] * groups or weights.shape[0] % groups:
        raise Refusal(f"{channels} channels for weights of {weights.shape[1]} in each of {groups} groups")
    windows = _windows(node, tuple(weights.shape[2:]), writer.shape(node.inputs[0]))
    inputs = tuple(name for name in node.inputs if name)
    writer.add(node, "conv", {**windows, "groups": groups}, inputs=inputs)


def _pool(writer: _Writer, node: Node) -> None:
    shape, out = writer.shape(node.inputs[0]), writer.shape(node.outputs[0])
    if any(node.outputs[1:]):
        raise Refusal("the indices of the maxima are read; only the maxima are computed")
    windows = _windows(node, node.integers("kernel_shape", ()), shape)
    rank = len(windows["kernel"])
    begins, ends = windows["pads"][:rank], windows["pads"][rank:]
    overflow = []
    for axis in range(rank):
        span = (windows["kernel"][axis] - 1) * windows["dilations"][axis] + 1
        reach = (out[2 + axis] - 1) * windows["strides"][axis] + span
        overflow.append(max(0, reach - begins[axis] - shape[2 + axis] - ends[axis]))
    windows["pads"] = begins + tuple(e + o for e, o in zip(ends, overflow, strict=True))
    if node.op_type == "MaxPool":
        writer.add(node, "max_pool", {**windows})
        return
    counted = node.integer("count_include_pad", 0)
    if counted and any(overflow):
        raise Refusal("count_include_pad with a ceil_mode window beyond the padding: its divisor is not representable")
    writer.add(node, "average_pool", {**windows, "count_include_pad": counted})


def _global_pool(writer: _Writer, node: Node) -> None:
    kernel = writer.shape(node.inputs[0])[2:]
    _whole_pool(writer, node, "max_pool" if node.op_type == "GlobalMaxPool" else "average_pool", kernel)


def _whole_pool(writer: _Writer, node: Node, kind: str, kernel: tuple[int, ...], suffix: str = "") -> None:
    ones = (1,) * len(kernel)
    window: dict[str, Attribute] = {
        "kernel": kernel,
        "strides": ones,
        "dilations": ones,
        "pads": (0,) * (2 * len(kernel)),
    }
    counted: dict[str, Attribute] = {"count_include_pad": 0} if kind == "average_pool" else {}
    writer.add(node, kind, window | counted, suffix=suffix)


def _lrn(writer: _Writer, node: Node) -> None:
    size = node.integer("size", 0)
    if size % 2 == 0:
        raise Refusal(f"a window of {size} channels has no middle")
    numbers: dict[str, Attribute] = {
        "size": size,
        "alpha": node.number("alpha", 1e-4),
        "beta": node.number("beta", 0.75),
        "bias": node.number("bias", 1.0),
    }
    writer.add(node, "lrn", numbers)


# Matrix products -----------------------------------------------------------------------------------------------------


def _gemm(writer: _Writer, node: Node) -> None:
    a, b, c = node.inputs[0], node.inputs[1], node.input(2)
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if a in writer.constants and b in writer.constants:
        raise Refusal("both factors are constant")
    a = _transposed(writer, node, a, "transA") if node.integer("transA", 0) else a
    b = _transposed(writer, node, b, "transB") if node.integer("transB", 0) else b
    if alpha != 1.0:
        if b not in writer.constants:
            raise Refusal(f"alpha {alpha} with a computed second factor")
        b = writer.constant(f"{node.name}::alpha", writer.constants[b].astype(np.float64) * alpha)
    rows, columns = writer.shape(node.outputs[0])
    if not c or beta == 0.0:
        writer.add(node, "matmul", inputs=(a, b))
    elif c in writer.constants and writer.constants[c].size in (1, columns):
        bias = writer.constants[c].astype(np.float64) * beta
        name = c if beta == 1.0 and bias.shape == (columns,) else f"{node.name}::bias"
        if name != c:
            writer.constant(name, np.broadcast_to(bias.reshape(-1), columns).copy())
        writer.add(node, "matmul", inputs=(a, b, name))
    else:
        if beta != 1.0:
            raise Refusal(f"beta {beta} with a computed third operand")
        product = writer.intermediate(node, "product", (rows, columns))
        writer.add(node, "matmul", inputs=(a, b), suffix="product")
        _add_binary(writer, node, "add", (product, c))


def _transposed(writer: _Writer, node: Node, name: str, suffix: str) -> str:
    if name in writer.constants:
        return writer.constant(f"{name}::transposed", writer.constants[name].T)
    rows, columns = writer.shape(name)
    result = writer.intermediate(node, suffix, (columns, rows))
    writer.add(node, "transpose", {"perm": (1, 0)}, inputs=(name,), suffix=suffix)
    return result


def _matmul(writer: _Writer, node: Node) -> None:
    a, b = node.inputs[:2]
    if a in writer.constants and b in writer.constants:
        raise Refusal("both factors are constant")
    if min(len(writer.shape(a)), len(writer.shape(b))) < 2:
        raise Refusal("a factor of one axis; both need at least two")
    writer.add(node, "matmul", inputs=node.inputs)


# Element-wise --------------------------------------------------------------------------------------------------------

UNARY_KINDS = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Reciprocal": "reciprocal",
    "Neg": "neg",
    "Abs": "abs",
    "Erf": "erf",
    "Softplus": "softplus",
    "HardSwish": "hard_swish",
}
BINARY_KINDS = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "max", "Min": "min"}


def _unary(writer: _Writer, node: Node) -> None:
    writer.add(node, UNARY_KINDS[node.op_type])


def _leaky_relu(writer: _Writer, node: Node) -> None:
    writer.add(node, "leaky_relu", {"alpha": node.number("alpha", 0.01)})


def _hard_sigmoid(writer: _Writer, node: Node) -> None:
    writer.add(node, "hard_sigmoid", {"alpha": node.number("alpha", 0.2), "beta": node.number("beta", 0.5)})


def _clip(writer: _Writer, node: Node) -> None:
    low = writer.scalar(node, 1, "the lower bound", node.number("min", -FP16_LARGEST))
    high = writer.scalar(node, 2, "the upper bound", node.number("max", FP16_LARGEST))
    writer.add(node, "clip", {"min": max(low, -FP16_LARGEST), "max": min(high, FP16_LARGEST)})


def _binary(writer: _Writer, node: Node) -> None:
    _add_binary(writer, node, BINARY_KINDS[node.op_type], node.inputs)


def _add_binary(writer: _Writer, node: Node, kind: str, inputs: tuple[str, ...]) -> None:
    """Computed operands of lower rank get leading unit axes first, so that layouts can be compared axis by axis."""
    rank = len(writer.shape(node.outputs[0]))
    operands = []
    for position, name in enumerate(inputs):
        shape = writer.shape(name)
        if name in writer.constants or len(shape) == rank:
            operands.append(name)
            continue
        suffix = f"operand{position}"
        operands.append(writer.intermediate(node, suffix, (1,) * (rank - len(shape)) + shape))
        writer.add(node, "view", inputs=(name,), suffix=suffix)
    writer.add(node, kind, inputs=tuple(operands))


def _batch_norm(_writer: _Writer, _node: Node) -> None:
    raise Refusal("batch normalisation in training mode or with computed statistics")


def _left_over(_writer: _Writer, _node: Node) -> None:
    raise Refusal("neither a no-op nor constant here")


def _scale_shift(writer: _Writer, node: Node) -> None:
    writer.add(node, "scale_shift", inputs=node.inputs)


# Whole axes and movement ---------------------------------------------------------------------------------------------


def _axis(writer: _Writer, node: Node, axis: int) -> int:
    return axis % len(writer.shape(node.inputs[0]))


def _softmax(writer: _Writer, node: Node) -> None:
    shape = writer.shape(node.inputs[0])
    old = writer.network.opset < 13
    axis = _axis(writer, node, node.integer("axis", 1 if old else -1))
    if old:  # until opset 12 all axes from `axis` on were flattened into one
        wide = [i for i in range(axis, len(shape)) if shape[i] > 1]
        if len(wide) > 1:
            raise Refusal(f"softmax over axes {wide} together, as opset {writer.network.opset} defines it")
        axis = (wide or [axis])[0]
    writer.add(node, "softmax", {"axis": axis})


def _concat(writer: _Writer, node: Node) -> None:
    if all(name in writer.constants for name in node.inputs):
        raise Refusal("all operands are constant")
    writer.add(node, "concat", {"axis": _axis(writer, node, node.integer("axis", 1))}, inputs=node.inputs)


def _transpose(writer: _Writer, node: Node) -> None:
    rank = len(writer.shape(node.inputs[0]))
    writer.add(node, "transpose", {"perm": node.integers("perm", tuple(reversed(range(rank))))})


def _reshape(writer: _Writer, node: Node) -> None:
    source, target = writer.shape(node.inputs[0]), writer.shape(node.outputs[0])
    if prod(source) != prod(target):
        raise Refusal(f"{prod(source)} elements into the {prod(target)} of {shape_text(target)}")
    writer.add(node, "view")


def _slice(writer: _Writer, node: Node) -> None:
    """starts and steps for every axis; the extents are those of the output."""
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


def _split(writer: _Writer, node: Node) -> None:
    """One slice for each output, named after its position."""
    rank = len(writer.shape(node.inputs[0]))
    axis = _axis(writer, node, node.integer("axis", 0))
    start = 0
    for position, name in enumerate(node.outputs):
        if name:
            attributes = _slice_of(rank, axis, start, 1)
            writer.add(node, "slice", attributes, outputs=(name,), suffix=str(position))
            start += writer.shape(name)[axis]
        elif any(node.outputs[position:]):
            raise Refusal("an output without a name; its extent is not known")


def _slice_of(rank: int, axis: int, start: int, step: int) -> dict[str, Attribute]:
    """Attributes of a slice along one axis."""
    starts, steps = [0] * rank, [1] * rank
    starts[axis], steps[axis] = start, step
    return {"starts": tuple(starts), "steps": tuple(steps)}


def _pad(writer: _Writer, node: Node) -> None:
    if (mode := node.text("mode", "constant")) != "constant":
        raise Refusal(f"padding mode {mode}; only constant is computed")
    rank = len(writer.shape(node.inputs[0]))
    pads = writer.integers(node, 1, "pads") if node.input(1) else node.integers("pads", ())
    if node.input(3):
        axes = [axis % rank for axis in writer.integers(node, 3, "axes")]
        full = [0] * (2 * rank)
        for i, axis in enumerate(axes):
            full[axis], full[rank + axis] = pads[i], pads[len(axes) + i]
        pads = tuple(full)
    value = writer.scalar(node, 2, "the padding value", node.number("value", 0.0))
    writer.add(node, "pad", {"begins": pads[:rank], "ends": pads[rank:], "value": value})


def _reduce(writer: _Writer, node: Node) -> None:
    """A mean over all spatial axes is a whole-image pool; without keepdims a view follows."""
    shape = writer.shape(node.inputs[0])
    rank = len(shape)
    given = writer.integers(node, 1, "axes") if node.input(1) else node.integers("axes", ())
    if not given and node.integer("noop_with_empty_axes", 0):
        writer.add(node, "view")
        return
    axes = tuple(sorted(axis % rank for axis in given)) or tuple(range(rank))
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    suffix = "" if writer.shape(node.outputs[0]) == kept else "kept"
    result = writer.intermediate(node, suffix, kept) if suffix else ""
    kind = {"ReduceMean": "reduce_mean", "ReduceSum": "reduce_sum", "ReduceMax": "reduce_max"}[node.op_type]
    if rank == 4 and axes == (2, 3) and kind != "reduce_sum":
        _whole_pool(writer, node, "average_pool" if kind == "reduce_mean" else "max_pool", shape[2:], suffix)
    else:
        writer.add(node, kind, {"axes": axes}, suffix=suffix)
    if suffix:
        writer.add(node, "view", inputs=(result,))


def _gather(writer: _Writer, node: Node) -> None:
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


def _resize(writer: _Writer, node: Node) -> None:
    shape, out = writer.shape(node.inputs[0]), writer.shape(node.outputs[0])
    if shape[:2] != out[:2]:
        raise Refusal("the batch or the channels are resized; only spatial axes can be")
    if node.op_type == "Upsample":
        coordinates, mode = "asymmetric", node.text("mode", "nearest")
    else:
        coordinates = (
            "asymmetric" if writer.network.opset < 11 else node.text("coordinate_transformation_mode", "half_pixel")
        )
        mode = node.text("mode", "nearest")
    if coordinates not in ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners") or mode == "cubic":
        raise Refusal(f"mode {mode} with coordinates {coordinates}")
    if node.integer("antialias", 0):
        raise Refusal("antialias")
    old = node.op_type == "Upsample" or writer.network.opset < 11
    attributes: dict[str, Attribute] = {
        "mode": mode.replace("bilinear", "linear"),
        "coordinates": coordinates,
        "rounding": "simple" if old else node.text("nearest_mode", "round_prefer_floor"),
    }
    scales = _scales(writer, node, 1 if old else 2)
    if scales and any(s * a != b for s, a, b in zip(scales, shape, out, strict=True)):
        attributes["scales"] = scales
    writer.add(node, "resize", attributes)


def _scales(writer: _Writer, node: Node, position: int) -> tuple[float, ...]:
    """The factor of each axis where the file gives factors instead of extents, else nothing."""
    array = writer.constants.get(node.input(position))
    attribute = node.setting("scales", ())
    listed = attribute if isinstance(attribute, tuple) else ()
    given = tuple(s for s in listed if isinstance(s, (int, float))) if array is None else array.reshape(-1).tolist()
    if not given:
        return ()
    rank = len(writer.shape(node.inputs[0]))
    factors = [1.0] * rank
    for axis, factor in zip(node.integers("axes", tuple(range(rank))), given, strict=True):
        factors[axis % rank] = float(factor)
    return tuple(factors)


OPERATORS: dict[str, Rule] = {
    "Conv": _conv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "LRN": _lrn,
    "Gemm": _gemm,
    "MatMul": _matmul,
    **dict.fromkeys(UNARY_KINDS, _unary),
    **dict.fromkeys(BINARY_KINDS, _binary),
    "LeakyRelu": _leaky_relu,
    "HardSigmoid": _hard_sigmoid,
    "Clip": _clip,
    SCALE_SHIFT: _scale_shift,
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(("Dropout", "Cast"), _left_over),
    "Softmax": _softmax,
    "Concat": _concat,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "ReduceMax": _reduce,
    "Gather": _gather,
    "Resize": _resize,
    "Upsample": _resize,
}
