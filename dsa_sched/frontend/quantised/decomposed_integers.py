"""The integers that primitive operators make of a number by rounding, shifts and bounds, and the grid that holds them.

Round(x / scale) -> Add(3) -> Clip(0, 255) -> Sub(3)   -->   bounds [-3, 252] about zero, uint8 with zero point 3
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from dsa_sched.frontend.quantised.grids import GRID_TYPES

Array = npt.NDArray[np.generic]
Float32s = npt.NDArray[np.float32]

HELD_BY_CASTS: Mapping[int, tuple[float, float]] = {
    **GRID_TYPES,
    TensorProto.INT16: (-(2**15), 2**15 - 1),
    TensorProto.INT32: (-np.inf, np.inf),
    TensorProto.INT64: (-np.inf, np.inf),
    TensorProto.FLOAT: (-np.inf, np.inf),
}
"""Types that integers may be cast to and what they hold; the cast of a number beyond int32 is undefined in the file."""

LARGEST_LEFT = 16
"""Integers of the largest range that stays in floating point: four bits."""

MOST_INTEGERS = 256
"""Integers that eight bits have."""

LARGEST_SHIFT = 2.0**16
"""Largest zero point in a chain: fp32 adds it to integers of every bound without rounding."""


@dataclass(frozen=True, slots=True)
class ChainIntegers:
    """What a chain has made of n = Round(x / scale): clip(n, `low`, `high`) + `shift`, in a type. `zero` is the shift
    at the last bounds, which is the zero point."""

    low: float = -np.inf
    high: float = np.inf
    shift: float = 0.0
    zero: float = 0.0
    dtype: int = TensorProto.FLOAT

    def plus(self, number: float) -> ChainIntegers | None:
        return replace(self, shift=self.shift + number)._held()

    def bounded(self, low: float, high: float) -> ChainIntegers | None:
        if low > high or not all(bound == np.rint(bound) for bound in (low, high)):
            return None
        least, most = low - self.shift, high - self.shift
        inner = [min(max(bound, least), most) for bound in (self.low, self.high)]
        return replace(self, low=inner[0], high=inner[1], zero=self.shift)

    def cast(self, dtype: int) -> ChainIntegers | None:
        return replace(self, dtype=dtype)._held() if dtype in HELD_BY_CASTS else None

    def _held(self) -> ChainIntegers | None:
        """Itself, if its type holds all its integers."""
        least, most = HELD_BY_CASTS[self.dtype]
        inside = least <= self.low + self.shift and self.high + self.shift <= most
        return self if inside and abs(self.shift) <= LARGEST_SHIFT else None


@dataclass(frozen=True, slots=True)
class ChainGrid:
    """A type of integers, its zero point, and the bounds of x in units of the scale, None where the type has them."""

    dtype: int
    zero: int
    low: float | None
    high: float | None


def integers_after(state: ChainIntegers, op_type: str, numbers: list[float | None]) -> ChainIntegers | None:
    """What a node with constants makes of integers."""
    match op_type, numbers:
        case "Add", [float(number)]:
            return state.plus(number) if number == np.rint(number) else None
        case "Sub", [float(number)]:
            return state.plus(-number) if number == np.rint(number) else None
        case "Max", [float(number)]:
            return state.bounded(number, np.inf)
        case "Min", [float(number)]:
            return state.bounded(-np.inf, number)
        case "Clip", [low, high]:
            return state.bounded(-np.inf if low is None else low, np.inf if high is None else high)
    return None


def applied(node: onnx.NodeProto, x: Array, constants: tuple[Array | None, ...]) -> Array:
    """The result of one node of a chain for a constant."""
    if node.op_type == "Round":
        return np.rint(x)
    if node.op_type == "Cast":
        return x.astype(helper.tensor_dtype_to_np_dtype(cast_type(node)))
    if node.op_type == "Clip":
        return np.asarray(np.clip(x, constants[0], constants[1]))
    return np.asarray(NUMPY[node.op_type](x, constants[0]))


NUMPY: Mapping[str, Callable[..., Array]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum,
}  # fmt: skip


def cast_type(node: onnx.NodeProto) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "to"), 0)


def chain_grid_of(integers: ChainIntegers) -> ChainGrid | None:
    """The narrowest choice of type and zero point that holds bounded integers; None for four bits and fewer, and for
    more than eight."""
    count = integers.high - integers.low + 1
    if not LARGEST_LEFT < count <= MOST_INTEGERS:
        return None
    choices = [(dtype, integers.zero) for dtype in GRID_TYPES] + [
        (TensorProto.INT8, GRID_TYPES[TensorProto.INT8][0] - integers.low)
    ]
    for dtype, zero in choices:
        least, most = GRID_TYPES[dtype]
        low, high = integers.low + zero, integers.high + zero
        if least <= low and high <= most and least <= zero <= most:
            bounds = integers.low if low > least else None, integers.high if high < most else None
            return ChainGrid(int(dtype), int(zero), *bounds)
    return None


def axis_of(scale: Float32s, shape: tuple[int, ...]) -> int | None:
    """The axis along which scales lie that broadcast to a shape, 0 for one scale; None for those of more axes."""
    if scale.ndim > len(shape):
        return None
    if scale.size == 1:
        return 0
    extents = (*(1,) * (len(shape) - scale.ndim), *scale.shape)
    along = [axis for axis, extent in enumerate(extents) if extent > 1]
    return along[0] if len(along) == 1 and extents[along[0]] == shape[along[0]] else None


def inverse_of(scale: Float32s) -> Float32s:
    return np.asarray(np.float32(1.0) / scale, np.float32)


def scale_of_inverse(factor: Float32s) -> Float32s:
    """Scales whose fp32 reciprocals are these factors, as far as there are any."""
    with np.errstate(divide="ignore"):
        scale = inverse_of(factor)
    for towards in (np.float32(0), np.float32(np.inf)):
        near = np.nextafter(scale, towards)
        with np.errstate(divide="ignore"):
            fits = (inverse_of(scale) != factor) & (inverse_of(near) == factor)
        scale = np.where(fits, near, scale)
    return np.asarray(scale, np.float32)
