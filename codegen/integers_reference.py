"""Results that prepared operators must have left in memory, in plain numpy: int32 values that wrap around.

    operator + operands as stored  -->  its result as stored

Written independently of the code that any machine runs: on whole arrays, in int64. How numbers become integers and
integers numbers depends on a target's type of numbers, so it gives these conversions itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Op

Array = npt.NDArray[np.generic]
Wide = npt.NDArray[np.int64]
Conversions = Mapping[str, Callable[[Any], Array]]
"""`number`: numbers of integers; `ordered`: integers in the order of numbers; `whole`: numbers without fractions."""

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


def made(op: Op, operands: list[Array], count: int, conversions: Conversions) -> Array:
    """The `count` values of the result, in row-major order."""
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
            return conversions["number"](operands[0].astype(np.int64))
        case "ordered":
            values = operands[0].reshape(-1)
            return conversions["ordered"](
                values[_inside(operands[1].reshape(-1), values.size)] if operands[1:] else values
            )
        case "whole":
            return conversions["whole"](operands[0].reshape(-1))
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
