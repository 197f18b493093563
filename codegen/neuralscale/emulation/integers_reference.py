"""Results that prepared operators must have left in memory, in plain numpy: int32 values that wrap around.

    operator + operands as stored  -->  its result as stored

Written independently of the loops that the machine runs: on whole arrays, in int64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.neuralscale.emulation.arithmetic import bits_of, from_bits, stored
from partitioner.ir.graph import Graph, Op

Array = npt.NDArray[np.generic]
Wide = npt.NDArray[np.int64]

LARGEST_FP16 = 65504
FINITE_FP16 = 31 << 10
"""Number of finite fp16 bit patterns without sign."""

FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": lambda a: a ^ 1,
    "min": np.minimum,
    "max": np.maximum,
    "equal": np.equal,
    "less": np.less,
    "greater": np.greater,
    "less_equal": np.less_equal,
    "greater_equal": np.greater_equal,
    "neg": np.negative,
    "abs": np.abs,
    "truth": lambda a: a != 0,
    "copy": lambda a: a,
    "where": lambda c, a, b: np.asarray(np.where(c != 0, a, b)),
    "div": lambda a, b: _toward_zero(a, b),
    "remainder": lambda a, b: a - b * np.where(b == 0, 0, _toward_zero(a, b)),
    "mod": lambda a, b: np.where(b == 0, a, a - b * np.floor_divide(a, np.where(b == 0, 1, b))),
}


def _toward_zero(a: Wide, b: Wide) -> Wide:
    """Quotient toward zero as the machine divides: all ones where the divisor is zero."""
    some = np.where(b == 0, 1, b)
    return np.where(b == 0, -1, np.sign(a) * np.sign(some) * (np.abs(a) // np.abs(some)))


def emulate_prepared(graph: Graph, op: Op, read: Callable[[str], Array]) -> Array:
    """The result of a prepared operator from its operands as `read(name)` gives them, in its shape and type."""
    tensor = graph.by_name[op.outputs[0]]
    operands = [read(name) for name in op.inputs]
    return _made(op, operands, prod(tensor.shape)).astype(tensor.dtype).reshape(tensor.shape)


def _made(op: Op, operands: list[Array], count: int) -> Array:
    match op.kind:
        case "words":
            wide = [np.broadcast_to(own.astype(np.int64).reshape(-1), (count,)) for own in operands]
            return _wrapped(FUNCTIONS[str(op.attribute("function"))](*wide))
        case "take":
            source, index = (own.reshape(-1) for own in operands)
            return source[_inside(index, source.size)]
        case "lookup":
            rows, flat = int(op.number("rows")), operands[0].reshape(-1)
            step = int(op.number("step")) if "step" in dict(op.attributes) else flat.size // rows
            width = flat.size - (rows - 1) * step
            return np.lib.stride_tricks.sliding_window_view(flat, width)[::step][_inside(operands[1].reshape(-1), rows)]
        case "assign":
            return _assigned(op, *operands)
        case "number":
            return _to_fp16(operands[0].astype(np.int64))
        case "ordered":
            values = operands[0].reshape(-1)
            return _ordered(values[_inside(operands[1].reshape(-1), values.size)] if operands[1:] else values)
        case "whole":
            return _whole(operands[0].reshape(-1))
        case "join":
            outer = int(op.number("outer"))
            return np.concatenate([own.reshape(outer, -1) for own in operands], axis=1)
    lines = operands[0].astype(np.int64)
    lines = lines.reshape(int(op.number("outer")), int(op.number("count")), int(op.number("inner")))
    if op.kind == "cumsum":
        return _wrapped(_running_sum(lines, bool(op.number("exclusive")), bool(op.number("reverse"))))
    return _wrapped(_reduced(str(op.attribute("function")), lines, bool(op.number("last"))))


def _assigned(op: Op, cache: Array, update: Array, places: Array) -> Array:
    """The cache with rows of the update at their places, as far as it has these rows."""
    regions, pieces, rows = (int(op.number(name)) for name in ("regions", "pieces", "rows"))
    found = cache.copy().reshape(regions, rows, -1)
    new = update.reshape(regions, pieces, -1, found.shape[2])
    for region, piece in np.ndindex(regions, pieces):
        for row, at in enumerate(int(places.reshape(regions, pieces)[region, piece]) + np.arange(new.shape[2])):
            if 0 <= at < found.shape[1]:
                found[region, at] = new[region, piece, row]
    return found


def _wrapped(wide: Array) -> Array:
    return (wide.astype(np.int64) & 0xFFFF_FFFF).astype(np.uint32).view(np.int32)


def _inside(index: Array, rows: int) -> Wide:
    """Positions of rows inside a table, whatever the indices are."""
    wide = index.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + rows, wide), 0, rows - 1)


def _to_fp16(words: Wide) -> Array:
    """int32 values as fp16, truncated toward zero after the conversion to 24 bits; never infinite."""
    single = np.abs(words).astype(np.float32).astype(np.float64)
    exponent = np.floor(np.log2(np.maximum(single, 1.0)))
    step = np.exp2(np.maximum(exponent - 10, 0))
    cut = np.minimum(np.floor(single / step) * step, LARGEST_FP16)
    return stored(np.where(words < 0, -cut, cut))


def _ordered(values: Array) -> Array:
    """Twice the rank of an fp16 number among all fp16 numbers, counted from zero; NaN lies beyond infinity."""
    sizes = from_bits(np.arange(FINITE_FP16 + 1))
    wide = values.astype(np.float64)
    places = np.searchsorted(sizes, np.abs(np.nan_to_num(wide, nan=0.0, posinf=np.inf, neginf=-np.inf)))
    places = np.where(np.isnan(wide), bits_of(values) & 0x7FFF, places)
    return np.asarray(2 * np.where(np.signbit(wide), -places, places))


def _whole(values: Array) -> Array:
    """fp16 numbers as int32 values, truncated toward zero; numbers out of range become the nearest int32."""
    limits = np.iinfo(np.int32)
    wide = np.nan_to_num(values.astype(np.float64), nan=limits.max, posinf=limits.max, neginf=limits.min)
    return np.asarray(np.clip(np.trunc(wide), limits.min, limits.max).astype(np.int64))


def _running_sum(lines: Wide, exclusive: bool, reverse: bool) -> Wide:
    lines = lines[:, ::-1] if reverse else lines
    sums = np.cumsum(lines, axis=1)
    sums = sums - lines if exclusive else sums
    return sums[:, ::-1] if reverse else sums


def _reduced(function: str, lines: Wide, last: bool) -> Wide:
    match function:
        case "sum":
            return np.asarray(lines.sum(axis=1))
        case "greatest":
            return np.asarray(lines.max(axis=1))
        case "least":
            return np.asarray(lines.min(axis=1))
    signed = lines if function == "place_of_greatest" else -lines
    if last:
        return np.asarray(lines.shape[1] - 1 - signed[:, ::-1].argmax(axis=1))
    return np.asarray(signed.argmax(axis=1))
