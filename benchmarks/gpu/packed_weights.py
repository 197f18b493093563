"""Weights as kernels read them, such as filters with padded channels: found here, made there from the weights.

Families of kernels say only bytes. Where these are elements of constants moved about, with zeros between, they are the
same for any values; so the movement is read off constants whose elements are their own numbers, digit by digit, and
goes into the pack as a list of places, which compresses to next to nothing. What is no movement is packed as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.gpu.synthetic import Array

__all__ = ["Movement", "find_movements", "from_bytes", "in_a_row", "moved", "to_bytes"]

BASE = 2047
"""A digit plus 1 is a whole number that a half holds; 0 is what was there before."""
DIGITS = 3
SMALL_BYTES = 4096
"""Not worth a movement."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Movement:
    """Bytes of one packed tensor: elements of type `dtype` that lie at `places` of all constants in a row; -1: zero."""

    dtype: str
    places: Places


def find_movements(
    packings: Callable[[Mapping[str, Array]], Sequence[bytes]], constants: Mapping[str, Array], movable: Sequence[str]
) -> list[Movement | bytes]:
    """For each of what `packings` makes of constants how it moves those named `movable`, or its bytes themselves."""
    actual = packings(constants)
    if all(len(data) <= SMALL_BYTES for data in actual):
        return list(actual)
    numbered = [packings(_numbered(constants, movable, digit)) for digit in range(DIGITS)]
    row = in_a_row(constants[key] for key in movable)
    return [
        data if len(data) <= SMALL_BYTES else _movement(data, digits, row) or data
        for data, *digits in zip(actual, *numbered, strict=True)
    ]


def _numbered(constants: Mapping[str, Array], movable: Sequence[str], digit: int) -> dict[str, Array]:
    found, first = dict(constants), 0
    for key in movable:
        array = constants[key]
        numbers = np.arange(first, first + array.size, dtype=np.int64) // BASE**digit % BASE + 1
        found[key] = numbers.astype(array.dtype).reshape(array.shape)
        first += array.size
    return found


def _movement(data: bytes, digits: Sequence[bytes], row: Array) -> Movement | None:
    for dtype in ("float16", "float32"):
        if any(len(each) != len(data) or len(each) % np.dtype(dtype).itemsize for each in digits):
            continue
        parts = [np.frombuffer(each, dtype).astype(np.float64) for each in digits]
        if not all(((part >= 0) & (part <= BASE) & (part == np.floor(part))).all() for part in parts):
            continue
        empty = parts[0] == 0
        places = sum((part.astype(np.int64) - 1) * BASE**digit for digit, part in enumerate(parts))
        found = Movement(dtype, np.where(empty, -1, places).astype(np.int64))
        least, most = found.places.min(initial=0), found.places.max(initial=-1)
        if most < len(row) - 1 and least >= -1 and moved(found, row) == data:
            return found
    return None


def in_a_row(constants: Iterable[Array]) -> Array:
    """All movable constants one after the other, halves as singles, and a zero, which is that of place -1."""
    wide = [array.reshape(-1).astype(np.float32) for array in constants]
    return np.concatenate([*wide, np.zeros(1, np.float32)])


def moved(movement: Movement, row: Array) -> bytes:
    """The packed bytes, from all movable constants as `in_a_row` has them."""
    return bytes(row[movement.places].astype(movement.dtype).tobytes())


def to_bytes(places: Places) -> bytes:
    """Differences of neighbours, which repeat."""
    return np.diff(places, prepend=0).astype("<i8").tobytes()


def from_bytes(data: bytes) -> Any:
    """The places of `to_bytes`."""
    return np.cumsum(np.frombuffer(data, "<i8"))
