"""Requirements of a target on a graph, before anything is planned: types, the order of axes, operators that stay whole.

    Wants(floats_as("float32"), "channels_first", frozenset({"LayerNormalization"}))  --frontend-->  Graph

The frontend makes none of these choices by itself: an operator that a target does not want whole is replaced by
operators of a few kinds, and a type for which it gives no rule stays as it is in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log2
from typing import Literal

import numpy as np
import numpy.typing as npt

from hw_models.errors import TargetError
from partitioner.ir.graph import DTYPE_BYTES

AxisOrder = Literal["channels_last", "channels_first"]
WeightOrder = Literal["outputs_last", "outputs_first"]
"""Order of the axes of a convolution's weights: (kernel..., Cin, Cout) or (Cout, kernel..., Cin); those of several
groups lie one after the other."""
Windows = Literal["any", "images"]
"""Axes of windows: any number of them, as in the file; or the two axes of images, where convolutions have one stride
and one dilation for both."""

FLOATS = ("float16", "float32", "float64", "bfloat16")
"""Floating-point types that a file may have."""

MOST_NARROW = 2.0**32
"""Bound of the largest number of a floating-point type: rewrites must mind the range of a type below it."""


def floats_as(dtype: str) -> tuple[tuple[str, str], ...]:
    """Rules that store every floating-point type of a file as this one."""
    return tuple((source, dtype) for source in FLOATS)


@dataclass(frozen=True, slots=True)
class Rounding:
    """Rounding of numbers stored in a floating-point type: rewrites ask for it before they rearrange arithmetic."""

    dtype: str
    largest: float
    smallest_normal: float
    smallest: float
    """Smallest positive number."""

    unit: float
    """Largest relative error of rounding to a normal number."""

    @classmethod
    def to(cls, dtype: str) -> Rounding:
        kind = np.finfo(dtype)
        return cls(
            dtype, float(kind.max), float(kind.smallest_normal), float(kind.smallest_subnormal), float(kind.eps) / 2
        )

    @property
    def largest_power(self) -> float:
        """The largest power of two."""
        return 2.0 ** floor(log2(self.largest))

    @property
    def narrow(self) -> bool:
        """Whether squares of ordinary values leave the range."""
        return self.largest < MOST_NARROW

    def rounded(self, array: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        """The numbers rounded to the type; infinities beyond its range."""
        with np.errstate(over="ignore"):
            return np.asarray(array.astype(self.dtype), np.float64)


@dataclass(frozen=True, slots=True)
class Wants:
    """Requirements of a target. `stored` gives, for each floating-point type of a file, the type of its values on the
    device; `feature_maps` is the order of their axes; `whole` names ONNX operators that are not taken apart; `weights`
    is the order of the axes of convolutions' weights; `windows` says over which axes convolutions and pools run; with
    `words`, operators on integers and lookups by them, also of rows of a table that overlap, are prepared in the main
    memory (`Graph.prepared`), else refused; with `in_place`, which needs `words`, rows are written into inputs that are
    caches (`Graph.in_place`); with `norms_of_lines`, a norm along lines is one operator `normalise`, followed by others
    for its scale and bias; an attention whose heads have at most `attention_width` elements in a row of q, k and v is
    one operator `attend` of heads side by side, 0 for none, unless these have more than `attention_elements` elements
    of keys and values each, 0 for any number; so is one to new and past keys where at least `attention_rows` rows of q
    share a head of k; with `attention_by_place`, a mask that only hides later keys is the attribute `first_sees`; with
    `full_operand`, one operand of an element-wise operator has the shape of the result; where windows are over images,
    those of convolutions have at most `longest_window` taps, steps and elements of padding along an axis, 0 for any
    number; with `int8`, products of quantised values are products of integers of eight bits, else networks with such
    values are refused; with `sums_of_integers`, what is added to such a product is an integer of 32 bits, added to its
    sum before the scale, and all rounds to the nearest, ties to even; int8 values have a multiple of `int8_unit`
    channels.

    Raises TargetError for types that no graph has, or for a floating-point type that a graph does not have and that has
    no rule.
    """

    stored: tuple[tuple[str, str], ...]
    feature_maps: AxisOrder
    whole: frozenset[str] = frozenset()
    weights: WeightOrder = "outputs_last"
    windows: Windows = "any"
    words: bool = False
    in_place: bool = False
    norms_of_lines: bool = False
    attention_width: int = 0
    attention_rows: int = 1
    attention_elements: int = 0
    attention_by_place: bool = False
    full_operand: bool = False
    longest_window: int = 0
    int8: bool = False
    sums_of_integers: bool = False
    int8_unit: int = 2

    def __post_init__(self) -> None:
        for source in FLOATS:
            if self.dtype(source) not in DTYPE_BYTES:
                raise TargetError(
                    f"a target's wants, {source}",
                    needs=f"to be stored as one of {', '.join(DTYPE_BYTES)}",
                    has=self.dtype(source),
                )

    @property
    def rounding(self) -> Rounding:
        """Rounding of values that are fp32 in the file, as most are."""
        return Rounding.to(self.dtype(FLOATS[1]))

    def dtype(self, source: str) -> str:
        """The type on the device of a value that has the type `source` in the file."""
        return dict(self.stored).get(source, source)
