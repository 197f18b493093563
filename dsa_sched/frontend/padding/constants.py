"""What is known of a constant at two sizes: rows, numbers, and what stands besides real rows, as in a triangular mask.

array of few rows, array of many rows  -->  Padded, or why the many do not begin as the few
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.network.network import Array
from dsa_sched.frontend.padding.case import Sizes
from dsa_sched.frontend.padding.linear import LinearNumber
from dsa_sched.frontend.padding.values import PLAIN, Beyond, Extent, Number, Padded, Region, Rest

LARGEST_MASK = 1 << 24
"""Largest number of elements of a constant that is looked at as a mask or as a number."""


def constant_value(few: Array, many: Array, sizes: Sizes) -> Padded | str:
    """What is known of a constant of both sizes; why it cannot be read where it does not begin in the same way."""
    least, most = sizes.rows
    if many.dtype.kind not in "fiub" or (few.shape == many.shape and many.size > LARGEST_MASK):
        return Padded() if _equal(few, many) else "its elements change with the number of rows"
    if few.shape == many.shape:
        number = _number(few, many, sizes)
        uniform = _uniform(many) if np.array_equal(few, many) else None
        if uniform is None and number is None and not _equal(few, many):
            return "its numbers change with the number of rows"
        return Padded(number=number, uniform=uniform)
    if few.ndim != many.ndim:
        return "its rank changes with the number of rows"
    dims = [dim for dim in range(many.ndim) if few.shape[dim] != many.shape[dim]]
    extents: dict[int, Extent] = {}
    for dim in dims:
        more = many.shape[dim] - most
        if few.shape[dim] - least != more:
            return "its extent is not the number of rows and a constant"
        extents[dim] = Extent(more=more)
    if not _equal(few, many[tuple(slice(extent) for extent in few.shape)]):
        return "its numbers change with the number of rows"
    return Padded(extents, dict(_facts(many, extents)), _number(few, many, sizes), uniform=_uniform(many))


def _equal(few: Array, many: Array) -> bool:
    return few.shape == many.shape and bool(np.array_equal(few, many, equal_nan=few.dtype.kind == "f"))


def _uniform(array: Array) -> float | None:
    if array.size and bool((array == array.reshape(-1)[0]).all()):
        return float(array.reshape(-1)[0])
    return None


def _number(few: Array, many: Array, sizes: Sizes) -> Number | None:
    """Integers that are one number, or count along a dimension."""
    if many.dtype.kind not in "iu" or not many.size or not few.size:
        return None
    first = [int(array.reshape(-1)[0]) for array in (few, many)]
    slope, rest = divmod(first[1] - first[0], sizes.rows[1] - sizes.rows[0])
    if rest:
        return None
    base = LinearNumber(first[0] - slope * sizes.rows[0], slope)
    for along in (None, *range(many.ndim)):
        if all(_counts(array, along) for array in (few, many)):
            return Number(base, along)
    return None


def _counts(array: Array, along: int | None) -> bool:
    """Whether an array is one number, or counts from its first along a dimension."""
    steps = 0 if along is None else _along(array, along)
    return bool((array.astype(np.int64) - int(array.reshape(-1)[0]) == steps).all())


def _facts(many: Array, extents: dict[int, Extent]) -> Iterator[tuple[Region, float]]:
    """The number that stands in the rows of padding, next to real rows, and the one after a diagonal."""
    if many.size > LARGEST_MASK:
        return
    dims = [*extents]
    if len(dims) == 1:
        (dim,) = dims
        rest = np.take(many, range(extents[dim].more + 1, many.shape[dim]), dim)
        if (number := _uniform(rest)) is not None:
            yield Rest(dim), number
        if extents[dim] == PLAIN:
            for columns in range(many.ndim):
                if columns != dim and many.shape[columns] > 1:
                    yield from _beyond(many, dim, columns)
    elif len(dims) == 2:
        places = [_along(many, dim) - extents[dim].more for dim in dims]
        for (dim, own), other in zip(zip(dims, places, strict=True), reversed(places), strict=True):
            rest = many[np.broadcast_to((own > other) & (own > 0), many.shape)]
            if (number := _uniform(rest)) is not None:
                yield Rest(dim), number


def _beyond(many: Array, rows: int, columns: int) -> Iterator[tuple[Region, float]]:
    """The number after a diagonal, if it is one, and the diagonal ends before the last column of the first row."""
    number = np.moveaxis(many, (rows, columns), (0, 1))[0, -1].reshape(-1)[0]
    others = tuple(dim for dim in range(many.ndim) if dim not in (rows, columns))
    differ = (many != number).any(axis=others)
    differ = differ if rows < columns else differ.T
    last = np.where(differ.any(axis=1), differ.shape[1] - 1 - np.argmax(differ[:, ::-1], axis=1), -1)
    begin = int((last - np.arange(len(last))).max())
    if begin < differ.shape[1] - 1:
        yield Beyond(rows, columns, LinearNumber(begin)), float(number)


def _along(array: Array, dim: int) -> npt.NDArray[np.int64]:
    return np.arange(array.shape[dim]).reshape([-1 if each == dim else 1 for each in range(array.ndim)])
