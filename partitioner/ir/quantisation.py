"""Meaning of the integers of a quantised tensor.

    number = scale * (integer - zero point)        one pair for the whole tensor, or one for each index of an axis

A tensor carries it from the graph to its text and back, and targets see it and refuse what they cannot compute. The
frontend leaves it empty: in its graphs, arithmetic on scales and zero points is made of operators, and int8 tensors
hold plain integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

RANGES: Mapping[str, tuple[int, int]] = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "uint8": (0, (1 << 8) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
}
"""Types that may be quantised, and the range of their zero points."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """`scales` and `zero_points` of a tensor: one of each, or one for each index along its device axis `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None

    def __str__(self) -> str:
        """The text for a message."""
        if self.axis is None and len(self.scales) == len(self.zero_points) == 1:
            return f"quantised with scale {self.scales[0]:g} and zero point {self.zero_points[0]}"
        return f"quantised with {len(self.scales)} scales along axis {self.axis}"

    def json(self) -> dict[str, object]:
        """The text form's field."""
        along = {} if self.axis is None else {"axis": self.axis}
        return {"scales": self.scales, "zero_points": self.zero_points, **along}

    def problem(self, shape: tuple[int, ...], dtype: str) -> str:
        """Requirement that a tensor of this shape and type fails to meet; empty where it meets all."""
        if dtype not in RANGES:
            return f"one of the types {', '.join(RANGES)} to be quantised"
        if self.axis is not None and not 0 <= self.axis < len(shape):
            return f"an axis {self.axis} of its scales"
        count = 1 if self.axis is None else shape[self.axis]
        if len(self.scales) != count or len(self.zero_points) != count:
            return f"as many scales and zero points as indices, {count}"
        if not all(isfinite(scale) and scale > 0 for scale in self.scales):
            return "scales that are positive and finite"
        low, high = RANGES[dtype]
        if not all(low <= zero <= high for zero in self.zero_points):
            return f"zero points from {low} to {high}"
        return ""


def quantisation_of(field: object) -> Quantisation | None:
    """The quantisation of a field of the text form, the converse of `json`; None for none. Raises KeyError, TypeError
    or ValueError."""
    if field is None:
        return None
    if not isinstance(field, dict):
        raise TypeError("quantisation is an object")
    scales, zero_points, axis = field["scales"], field["zero_points"], field.get("axis")
    if not isinstance(scales, list) or not isinstance(zero_points, list):
        raise TypeError("scales and zero_points are lists")
    if not all(type(zero) is int for zero in (*zero_points, *([] if axis is None else [axis]))):
        raise TypeError("zero points and the axis are integers")
    return Quantisation(tuple(float(scale) for scale in scales), tuple(zero_points), axis)
