"""What a graph of int8 and fp16 values means, to the bit: whole arrays in numpy, by the formulas of the operators.

graph, constants, inputs as numbers --evaluate_exactly--> every value as float64 numbers that its type can hold

Each fp16 result is computed exactly and rounded once, to nearest with ties away from zero. The sums of products of int8
are taken as whole: graphs whose sums are cut into runs are not for this judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Constants, Graph, Op

__all__ = ["as_numbers", "convolved", "evaluate_exactly", "rounded"]

Values = npt.NDArray[np.float64]
LARGEST = 65504.0


def rounded(exact: npt.NDArray[np.number]) -> Values:
    """fp16 numbers: to nearest, ties away from zero, small ones in steps of 2^-24, infinity beyond the largest."""
    numbers = np.asarray(exact, np.float64)
    sizes = np.abs(numbers)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = 2.0 ** (np.maximum(np.floor(np.log2(np.where(sizes > 0, sizes, 1.0))), -14) - 10)
        near = np.floor(sizes / steps + 0.5) * steps
    return np.copysign(np.where(near > LARGEST, np.inf, near), numbers)


def as_numbers(graph: Graph, name: str, bits: npt.NDArray[np.unsignedinteger]) -> Values:
    return bits.view(graph.by_name[name].dtype).astype(np.float64)


def evaluate_exactly(graph: Graph, constants: Constants, inputs: Mapping[str, Values]) -> dict[str, Values]:
    values = dict(inputs) | {t.name: constants[t.constant].astype(np.float64) for t in graph.tensors if t.constant}
    for op in graph.ops:
        shape = graph.by_name[op.outputs[0]].shape
        values[op.outputs[0]] = _value(op, [values[name] for name in op.inputs]).reshape(shape)
    return values


def _value(op: Op, operands: list[Values]) -> Values:
    x = operands[0]
    match op.kind:
        case "conv" | "matmul":
            factor, *bias = operands[2:]
            sums = convolved(op, x, operands[1]) if op.kind == "conv" else x @ operands[1]
            return rounded(rounded(sums * factor) + bias[0]) if bias else rounded(sums * factor)
        case "widen" | "view":
            return x
        case "narrow":
            return _narrowed(x, str(op.attribute("rounding")), dict(op.attributes).get("centre", 0))
        case "add_scaled":
            return rounded(x + rounded(operands[1] * float(np.float16(op.number("scale")))))
        case "relu":
            return np.maximum(x, 0.0)
        case "clip":
            return np.clip(x, float(np.float16(op.number("min"))), float(np.float16(op.number("max"))))
        case "add":
            return rounded(x + operands[1])
        case "mul":
            return rounded(x * operands[1])
        case "max_pool":
            return np.asarray(np.max([tap for _, tap in _taps(op, x, -np.inf)], axis=0))
        case "slice":
            starts, steps = op.ints("starts"), op.ints("steps")
            return _sliced(x, starts, steps, tuple(axis.extent for axis in op.stages[0].domain))
    raise ValueError(f"no formula of {op.kind}")


def _narrowed(x: Values, rounding: str, centre: object) -> Values:
    if rounding == "nearest":
        assert isinstance(centre, int)
        x = rounded(rounded(x + 1536.0) + (centre - 1536.0))
    return np.clip(np.trunc(np.nan_to_num(x, nan=0.0, posinf=1e9, neginf=-1e9)), -128, 127)


def _sliced(x: Values, starts: tuple[int, ...], steps: tuple[int, ...], shape: tuple[int, ...]) -> Values:
    indices = (start + step * np.arange(extent) for start, step, extent in zip(starts, steps, shape, strict=True))
    return np.asarray(x[np.ix_(*indices)])


def convolved(op: Op, x: Values, weights: Values) -> Values:
    """Exact sums of a convolution with any groups, [N, H, W, C]."""
    groups = int(op.number("groups"))
    per_group = weights if groups > 1 else weights[None]
    channels = x.shape[3] // groups
    parts = []
    for group, own in enumerate(per_group):
        image = x[..., group * channels : (group + 1) * channels]
        parts.append(sum(tap @ own[place] for place, tap in _taps(op, image, 0.0)))
    return np.concatenate(parts, 3)


def _taps(op: Op, x: Values, padding: float) -> list[tuple[tuple[int, int], Values]]:
    """For each tap of a window its place and the elements under it, as a map of the outputs."""
    kernel, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    padded = np.pad(x, ((0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)), constant_values=padding)
    counts = [
        (padded.shape[axis + 1] - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis] + 1 for axis in (0, 1)
    ]

    def reach(axis: int, tap: int) -> slice:
        start = tap * dilations[axis]
        return slice(start, start + strides[axis] * (counts[axis] - 1) + 1, strides[axis])

    return [
        ((row, column), padded[:, reach(0, row), reach(1, column)])
        for row, column in product(range(kernel[0]), range(kernel[1]))
    ]
