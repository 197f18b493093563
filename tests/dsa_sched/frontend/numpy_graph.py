"""A slow, plain evaluation of a Graph in float64, device layout, for comparison with onnxruntime.

It shares no code with the frontend: operators are computed from `Op` attributes alone, as a target would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import erf, prod
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from dsa_sched.frontend.network.network import Origin
from partitioner.ir.graph import Graph, Op, Tensor

Array = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]


def to_device(tensor: Tensor, array: Array) -> Doubles:
    return np.asarray(array, np.float64).transpose(tensor.axes)


def from_device(tensor: Tensor, array: Doubles) -> Doubles:
    return array.transpose(np.argsort(tensor.axes)) if tensor.axes else array


def reference_values(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every value of the ONNX model."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {item.name for item in copy.graph.output}
    names = [name for node in copy.graph.node for name in node.output if name and name not in known]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = [item.name for item in session.get_outputs()]
    return dict(inputs) | dict(zip(outputs, session.run(outputs, dict(inputs)), strict=True))


def layer_errors(
    graph: Graph,
    constants: Mapping[str, Array],
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    origins: Mapping[str, Origin] | None = None,
) -> dict[str, float]:
    """Relative L2 error of every comparable tensor, each operator fed with the reference's values where it has them.

    A value with an origin is compared with what that makes of the file's value."""
    reference = reference_values(model, inputs)
    for name, origin in (origins or {}).items():
        reference[name] = origin.to_ours(reference[origin.name])
    values: dict[str, Doubles] = {}
    for tensor in graph.tensors:
        if tensor.constant:
            values[tensor.name] = np.asarray(constants[tensor.constant], np.float64)
        elif tensor.name in inputs:
            values[tensor.name] = to_device(tensor, inputs[tensor.name])
    errors: dict[str, float] = {}
    for op in graph.ops:
        for name, result in zip(op.outputs, evaluate(graph, op, [values[n] for n in op.inputs]), strict=True):
            tensor = graph.by_name[name]
            assert result.shape == tensor.shape, f"{op.name}: {result.shape} instead of {tensor.shape}"
            values[name] = result
            if name in reference and (tensor.axes or not tensor.shape):
                wanted = to_device(tensor, reference[name])
                errors[name] = float(np.linalg.norm(result - wanted) / max(float(np.linalg.norm(wanted)), 1e-9))
                values[name] = wanted
    return errors


def evaluate(graph: Graph, op: Op, operands: list[Doubles]) -> list[Doubles]:
    x = operands[0]
    shape = graph.by_name[op.outputs[0]].shape
    axes = graph.by_name[op.outputs[0]].axes
    channels = axes.index(1) if op.kind in BY_CHANNEL else -1
    if channels not in (-1, len(shape) - 1):
        last = (*shape[:channels], *shape[channels + 1 :], shape[channels])
        results = _channels_last(op, [np.moveaxis(x, channels, -1), *operands[1:]], last)
        return [np.moveaxis(result, -1, channels) for result in results]
    return _channels_last(op, operands, shape)


def _channels_last(op: Op, operands: list[Doubles], shape: tuple[int, ...]) -> list[Doubles]:
    x = operands[0]
    if op.kind in UNARY:
        return [np.asarray(UNARY[op.kind](x))]
    if op.kind in BINARY:
        return [np.asarray(BINARY[op.kind](x, operands[1]))]
    match op.kind:
        case "conv":
            return [_conv(op, operands, shape)]
        case "max_pool":
            return [windows(op, x, -np.inf, shape).max(axis=0)]
        case "average_pool":
            counted = windows(op, np.ones_like(x), float(op.number("count_include_pad")), shape).sum(axis=0)
            return [windows(op, x, 0.0, shape).sum(axis=0) / counted]
        case "matmul":
            return [x @ operands[1] + (operands[2] if len(operands) > 2 else 0.0)]
        case "scale_shift":
            return [x * operands[1] + operands[2]]
        case "leaky_relu":
            return [np.where(x < 0, x * op.number("alpha"), x)]
        case "hard_sigmoid":
            return [np.clip(x * op.number("alpha") + op.number("beta"), 0, 1)]
        case "clip":
            return [np.clip(x, op.number("min"), op.number("max"))]
        case "softmax":
            axis = int(op.number("axis"))
            powers = np.exp(x - x.max(axis=axis, keepdims=True))
            return [powers / powers.sum(axis=axis, keepdims=True)]
        case "concat":
            return [np.concatenate(operands, axis=int(op.number("axis")))]
        case "transpose":
            return [x.transpose(op.ints("perm"))]
        case "view":
            return [x.reshape(shape)]
        case "slice":
            index = [
                np.arange(extent) * step + start
                for extent, step, start in zip(shape, op.ints("steps"), op.ints("starts"), strict=True)
            ]
            return [x[np.ix_(*index)]]
        case "pad":
            edges = list(zip(op.ints("begins"), op.ints("ends"), strict=True))
            return [np.pad(x, edges, constant_values=op.number("value"))]
        case "reduce_mean":
            return [x.mean(axis=op.ints("axes"), keepdims=True)]
        case "reduce_sum":
            return [x.sum(axis=op.ints("axes"), keepdims=True)]
        case "attention":
            return [_attention(op, operands)]
        case "attend":
            return [_attend(op, operands)]
        case "rotary_embedding":
            return [_turned(op, operands)]
        case "reduce_nearest":
            low, high = (f(x, axis=op.ints("axes"), keepdims=True) for f in (np.min, np.max))
            return [np.clip(0.0, low, high)]
        case "reduce_power":
            return [_power(x, op.ints("axes"), centred=bool(op.number("centred")))]
        case "reduce_max":
            return [x.max(axis=op.ints("axes"), keepdims=True)]
        case "gather":
            return [np.take(x, operands[1].astype(np.int64), axis=int(op.number("axis")))]
        case "take":
            return [np.take(x, op.ints("indices"), axis=int(op.number("axis")))]
        case "resize":
            return [_resize(op, x, shape)]
        case "lrn":
            return [_lrn(op, x)]
        case "layer_norm" | "rms_norm":
            centred = x - x.mean(axis=op.ints("axes"), keepdims=True) if op.kind == "layer_norm" else x
            power = np.square(centred).mean(axis=op.ints("axes"), keepdims=True)
            result = centred / np.sqrt(power + op.number("epsilon")) * operands[1]
            return [result + operands[2] if len(operands) > 2 else result]
        case "normalise":
            centred = x - x.mean(axis=op.ints("axes"), keepdims=True) if op.number("centred") else x
            power = np.square(centred).mean(axis=op.ints("axes"), keepdims=True)
            return [centred / np.sqrt(power + op.number("epsilon"))]
        case "gelu":
            inner = UNARY["erf"](x / np.sqrt(2)) if op.attribute("approximate") == "none" else _near_erf(x)
            return [x * (1 + inner) / 2]
        case "elu" | "selu" | "celu":
            alpha, rate = op.number("alpha"), op.number("alpha") if op.kind == "celu" else 1.0
            result = np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / rate))
            return [result * (op.number("gamma") if op.kind == "selu" else 1.0)]
        case "swish":
            return [x / (1 + np.exp(-op.number("alpha") * x))]
        case "power":
            return [np.power(x, op.number("exponent"))]
        case "softsign":
            return [x / (1 + np.abs(x))]
        case "shrink":
            return [np.where(np.abs(x) > op.number("lambd"), x - np.sign(x) * op.number("bias"), 0.0)]
    raise NotImplementedError(op.kind)


BY_CHANNEL = ("conv", "max_pool", "average_pool", "lrn", "scale_shift")
"""Kinds along ONNX axis 1."""


def _near_erf(x: Doubles) -> Doubles:
    return np.asarray(np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


Function = Callable[..., Any]
UNARY: dict[str, Function] = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "reciprocal": lambda x: 1 / x,
    "neg": np.negative,
    "abs": np.abs,
    "erf": np.vectorize(erf, otypes=[np.float64]),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    **{kind: getattr(np, kind) for kind in ("sin", "cos", "tan", "sinh", "cosh", "floor", "ceil", "sign")},
    **{f"a{kind}": getattr(np, f"arc{kind}") for kind in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "round": np.rint,
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}
BINARY: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}


def windows(op: Op, x: Doubles, fill: float, shape: tuple[int, ...]) -> Doubles:
    """[taps, N, out..., C] of the padded map, taps in row-major order. The channel is the last axis."""
    kernel, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    rank = len(kernel)
    edges = [(0, 0), *zip(pads[:rank], pads[rank:], strict=True), (0, 0)]
    padded = np.pad(x, edges, constant_values=fill)
    taps = []
    for tap in product(*map(range, kernel)):
        index = [slice(None)]
        for axis in range(rank):
            start, step = tap[axis] * dilations[axis], strides[axis]
            index.append(slice(start, start + (shape[1 + axis] - 1) * step + 1, step))
        taps.append(padded[tuple(index)])
    return np.stack(taps)


def _attention(op: Op, operands: list[Doubles]) -> Doubles:
    """Of operands in the order of the file's axes, each head of k and v repeated for those of q that share it."""
    q, k, v, *mask = operands
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * op.number("scale")
    if cap := op.number("softcap"):
        scores = np.tanh(scores / cap) * cap
    place = np.arange(scores.shape[3])[None, :] - np.arange(scores.shape[2])[:, None]
    for side, away in (("left", -place), ("right", place)):
        if op.number(side) >= 0:
            scores = np.where(away > op.number(side), -np.inf, scores)
    scores = scores + (mask[0] if mask else 0.0)
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(largest), 0.0, largest))
    total = powers.sum(-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1.0, total) @ v)


def _attend(op: Op, operands: list[Doubles]) -> Doubles:
    """Heads side by side: (item, row, column) each; k and v may have them apart, and come in parts."""
    heads, groups, parts = (int(op.number(name)) for name in ("heads", "groups", "parts"))

    def by_head(x: Doubles, count: int) -> Doubles:
        return x if x.ndim == 4 else x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)

    each = (len(operands) - 1) // parts
    keys, values, *masks = (operands[1 + first :: each] for first in range(each))
    q = by_head(operands[0], heads)
    k, v = (np.concatenate([by_head(x, groups) for x in parts_of], 2) for parts_of in (keys, values))
    k, v = (np.repeat(x, heads // groups, 1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) * op.number("scale")
    if masks:
        shapes = [(*scores.shape[:3], mask.shape[3]) for mask in masks[0]]
        scores = scores + np.concatenate(list(map(np.broadcast_to, masks[0], shapes)), 3)
    if "first_sees" in dict(op.attributes):
        hidden = np.arange(scores.shape[3]) >= np.arange(scores.shape[2])[:, None] + int(op.number("first_sees"))
        scores = np.where(hidden, -np.inf, scores)
    powers = np.exp(scores - scores.max(3, keepdims=True))
    result = powers / powers.sum(3, keepdims=True) @ v
    return np.asarray(result.swapaxes(1, 2).reshape(*q.shape[:1], q.shape[2], -1))


def _turned(op: Op, operands: list[Doubles]) -> Doubles:
    x, cosines, sines = operands
    count = int(op.number("elements"))
    first, second = (slice(0, count, 2), slice(1, count, 2)) if op.number("interleaved") else (
        slice(0, count // 2), slice(count // 2, count)
    )  # fmt: skip
    result = x.copy()
    result[..., first] = x[..., first] * cosines - x[..., second] * sines
    result[..., second] = x[..., second] * cosines + x[..., first] * sines
    return result


def _power(x: Doubles, axes: tuple[int, ...], *, centred: bool) -> Doubles:
    """64 over the power of two at or above the largest magnitude of a line, at most 2^15."""
    low, high = (f(x, axis=axes, keepdims=True) for f in (np.min, np.max))
    nearest = np.clip(0.0, low, high) if centred else 0.0
    largest = np.maximum(np.abs(low - nearest), np.abs(high - nearest))
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(64 / 2.0 ** np.ceil(np.log2(largest)), 2.0**15))


def _conv(op: Op, operands: list[Doubles], shape: tuple[int, ...]) -> Doubles:
    groups = int(op.number("groups"))
    taps = windows(op, operands[0], 0.0, shape)
    weights = operands[1][None] if groups == 1 else operands[1]
    weights = weights.reshape(groups, prod(op.ints("kernel")), *weights.shape[-2:])
    parts = np.split(taps, groups, axis=-1)
    result = np.concatenate(
        [np.einsum("t...c,tcf->...f", part, weight) for part, weight in zip(parts, weights, strict=True)], axis=-1
    )
    return np.asarray(result + (operands[2] if len(operands) > 2 else 0.0))


def _lrn(op: Op, x: Doubles) -> Doubles:
    size = int(op.number("size"))
    before = (size - 1) // 2
    squares = np.pad(x * x, [(0, 0)] * (x.ndim - 1) + [(before, size - 1 - before)])
    sums = sum(squares[..., tap : tap + x.shape[-1]] for tap in range(size))
    return np.asarray(x / (op.number("bias") + op.number("alpha") / size * sums) ** op.number("beta"))


def _resize(op: Op, x: Doubles, shape: tuple[int, ...]) -> Doubles:
    attributes = dict(op.attributes)
    given = attributes.get("scales", ())
    for axis, (extent, wanted) in enumerate(zip(x.shape, shape, strict=True)):
        if extent == wanted:
            continue
        factor = float(given[axis]) if isinstance(given, tuple) and given else wanted / extent
        place = np.arange(wanted)
        match attributes["coordinates"]:
            case "asymmetric":
                source = place / factor
            case "align_corners":
                source = place * (extent - 1) / max(wanted - 1, 1)
            case "pytorch_half_pixel" if wanted == 1:
                source = np.zeros(1)
            case _:
                source = (place + 0.5) / factor - 0.5
        if attributes["mode"] == "nearest":
            match attributes["rounding"]:
                case "floor":
                    near = np.floor(source)
                case "ceil":
                    near = np.ceil(source)
                case "round_prefer_floor":
                    near = np.ceil(source - 0.5)
                case "round_prefer_ceil":
                    near = np.floor(source + 0.5)
                case _:  # before opset 11: up to shrink, down to grow
                    near = np.ceil(source) if factor < 1 else np.floor(source)
            x = np.take(x, np.clip(near, 0, extent - 1).astype(np.int64), axis=axis)
        else:
            source = np.clip(source, 0, extent - 1)
            low = np.floor(source).astype(np.int64)
            high = np.minimum(low + 1, extent - 1)
            weight = (source - low).reshape([-1 if other == axis else 1 for other in range(x.ndim)])
            x = np.take(x, low, axis=axis) * (1 - weight) + np.take(x, high, axis=axis) * weight
    return x
