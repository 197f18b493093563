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
    """Requirements of a target.

    Raises TargetError for types that no graph has, or for a floating-point type that a graph does not have and that has
    no rule.
    """

    stored: tuple[tuple[str, str], ...]
    """For each floating-point type of a file, the type of its values on the device."""
    feature_maps: AxisOrder
    """Order of the axes of values."""
    whole: frozenset[str] = frozenset()
    """ONNX operators that are not taken apart."""
    weights: WeightOrder = "outputs_last"
    """Order of the axes of convolutions' weights."""
    windows: Windows = "any"
    """Axes over which convolutions and pools run."""
    words: bool = False
    """Operators on integers and lookups by them, also of rows of a table that overlap, are prepared in the main memory
    (`Graph.prepared`), else refused."""
    gathers: bool = False
    """Lookups by integers are operators `gather` among all others, which read the indices: next to `words`, which make
    indices that are computed."""
    in_place: bool = False
    """Rows are written into inputs that are caches (`Graph.in_place`); needs `words`."""
    norms_of_lines: bool = False
    """A norm along lines is one operator `normalise`, followed by others for its scale and bias."""
    attention_width: int = 0
    """An attention whose heads have at most so many elements in a row of q, k and v is one operator `attend` of heads
    side by side; 0 for none."""
    attention_rows: int = 1
    """So is one to new and past keys where at least so many rows of q share a head of k."""
    attention_elements: int = 0
    """Largest number of elements of keys, and of values, of such heads; 0 for any number."""
    attention_by_place: bool = False
    """A mask that only hides later keys is the attribute `first_sees` of `attend`."""
    attention_columns: bool = False
    """`attend` reads q, k and v where they are ranges of columns of a value (`columns`, `size`), so that products of
    one value by constants that only it reads become one."""
    products_by_row: bool = False
    """A product by a constant matrix has the axes of the value that it reads, without reshapes around it."""
    full_operand: bool = False
    """One operand of an element-wise operator has the shape of the result."""
    longest_window: int = 0
    """Largest number of taps, of steps and of elements of padding along an axis of convolutions, where windows are over
    images; 0 for any number."""
    int8: bool = False
    """Products of quantised values are products of integers of eight bits, else networks with such values are
    refused."""
    sums_of_integers: bool = False
    """What is added to such a product is an integer of 32 bits, added to its sum before the scale, and all rounds to
    the nearest, ties to even."""
    int8_unit: int = 2
    """Values of int8 have a multiple of so many channels."""
    group_channels: int = 0
    """Products of int8 multiply blocks of so many channels, 0 for no such blocks: groups of a convolution that are
    narrower are made one, with weights of zero between them, as far as that makes fewer blocks, and the weights of all
    groups lie as those of one."""
    int8_moves: frozenset[str] = frozenset()
    """ONNX operators whose results are among the elements of their operands, and which have int8 operands and results
    where these are such values."""
    arithmetic_choices: bool = False
    """Choices and truth values of numbers are arithmetic, as they always are where numbers have a narrow range."""

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
