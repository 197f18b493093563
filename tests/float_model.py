"""What a graph means, in float64 and without rounding: the rough judge of the small graphs in the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import erf

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Constants, Graph, Op

__all__ = ["evaluate", "relative_error"]

Values = npt.NDArray[np.float64]


def relative_error(got: npt.NDArray[np.float16], wanted: Values) -> float:
    """L2 of the difference over L2 of what is wanted."""
    error, size = np.linalg.norm(got.astype(np.float64) - wanted), np.linalg.norm(wanted)
    return float(error) / max(float(size), 1e-9)


def evaluate(graph: Graph, constants: Constants, inputs: Mapping[str, npt.NDArray[np.uint16]]) -> dict[str, Values]:
    """Every value of the graph, in device shape; inputs are bits of halves."""
    values = {name: bits.view(np.float16).astype(np.float64) for name, bits in inputs.items()}
    values |= {t.name: constants[t.constant].astype(np.float64) for t in graph.tensors if t.constant}
    for op in graph.ops:
        shape = graph.by_name[op.outputs[0]].shape
        values[op.outputs[0]] = _value(op, [values[name] for name in op.inputs], shape)
    return values


def _value(op: Op, inputs: list[Values], shape: tuple[int, ...]) -> Values:
    match op.kind:
        case "conv":
            return _conv(op, inputs, shape)
        case "matmul":
            return np.asarray(inputs[0] @ inputs[1] + (inputs[2] if len(inputs) > 2 else 0.0))
        case "max_pool":
            return np.asarray(np.max(_taps(op, inputs[0], shape, -np.inf), axis=0))
        case "average_pool":
            ones = np.ones_like(inputs[0])
            inside = _taps(op, ones, shape, 0.0).sum(0)
            if op.number("count_include_pad"):
                inside = np.full_like(inside, np.prod(op.ints("kernel")))
            result: Values = _taps(op, inputs[0], shape, 0.0).sum(0) / inside
            return result
        case "softmax":
            axis = int(op.number("axis"))
            powers = np.exp(inputs[0] - inputs[0].max(axis, keepdims=True))
            return np.asarray(powers / powers.sum(axis, keepdims=True))
        case "concat":
            return np.concatenate(inputs, int(op.number("axis")))
        case "view":
            return inputs[0].reshape(shape)
        case "scale_shift":
            return np.asarray(inputs[0] * inputs[1] + inputs[2])
    if op.kind in BINARY:
        return BINARY[op.kind](inputs[0], inputs[1])
    return _unary(op, inputs[0])


BINARY: Mapping[str, Callable[[Values, Values], Values]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}


def _unary(op: Op, x: Values) -> Values:
    match op.kind:
        case "relu":
            return np.maximum(x, 0)
        case "leaky_relu":
            return np.where(x > 0, x, x * op.number("alpha"))
        case "clip":
            return np.clip(x, op.number("min"), op.number("max"))
        case "sigmoid":
            return np.asarray(1 / (1 + np.exp(-x)))
        case "hard_sigmoid":
            return np.clip(x * op.number("alpha") + op.number("beta"), 0, 1)
        case "hard_swish":
            return np.asarray(x * np.clip(x / 6 + 0.5, 0, 1))
        case "gelu":
            if op.attribute("approximate") == "tanh":
                return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
            return np.asarray(0.5 * x * (1 + UNARY["erf"](x / np.sqrt(2))))
        case "swish":
            return np.asarray(x / (1 + np.exp(-op.number("alpha") * x)))
        case "elu" | "selu" | "celu":
            alpha = op.number("alpha")
            below = alpha * np.expm1(np.minimum(x, 0) / (alpha if op.kind == "celu" else 1))
            return np.asarray((np.maximum(x, 0) + below) * (op.number("gamma") if op.kind == "selu" else 1))
        case "mish":
            return np.asarray(x * np.tanh(np.logaddexp(0, x)))
    return UNARY[op.kind](x)


UNARY: Mapping[str, Callable[[Values], Values]] = {
    "tanh": np.tanh,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "neg": np.negative,
    "abs": np.abs,
    "reciprocal": np.reciprocal,
    "erf": np.vectorize(erf, otypes=[np.float64]),
    "softplus": lambda x: np.logaddexp(0, x),
}


def _taps(op: Op, x: Values, shape: tuple[int, ...], fill: float) -> Values:
    """[taps, N, OH, OW, C]: what each tap of the window reads, `fill` in the padding."""
    kernel, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    margin = max(shape[1] * strides[0], shape[2] * strides[1]) + 8
    padded = np.pad(x, ((0, 0), (pads[0], pads[2] + margin), (pads[1], pads[3] + margin), (0, 0)), constant_values=fill)
    result = []
    for ky, kx in product(range(kernel[0]), range(kernel[1])):
        rows = ky * dilations[0] + np.arange(shape[1]) * strides[0]
        columns = kx * dilations[1] + np.arange(shape[2]) * strides[1]
        result.append(padded[:, rows][:, :, columns])
    return np.array(result)


def _conv(op: Op, inputs: list[Values], shape: tuple[int, ...]) -> Values:
    taps = _taps(op, inputs[0], shape, 0.0)
    groups = int(op.number("groups"))
    weights = inputs[1] if groups > 1 else inputs[1][None]
    channels, outputs = weights.shape[3:]
    parts = []
    for g in range(groups):
        part = weights[g].reshape(-1, channels, outputs)
        parts.append(np.einsum("tnyxc,tcf->nyxf", taps[..., g * channels : (g + 1) * channels], part))
    result = np.concatenate(parts, axis=-1)
    return result + inputs[2] if len(inputs) > 2 else result
