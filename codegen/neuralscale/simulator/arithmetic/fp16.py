"""Half-precision arithmetic of the NPU, exact to the bit: uint16 bit patterns in, uint16 bit patterns out.

The chip adds and multiplies IEEE binary16 with denormals, rounds to nearest with ties away from zero, and writes
every NaN result as 0x7c01. This file does that with the host's float32 unit, so that the loops below become vector
code:

* A value is held as a float32. Where a result is rounded it is *scaled* by 2**112, so that fp16 overflow (a magnitude
  that rounds to 65536) is float32 overflow: the infinity appears by itself.
* Rounding a float32 to 11 significant bits, ties away, is one integer addition and one mask on its bits. The carry
  runs into the exponent field and, at the top, yields exactly infinity.
* The product of two fp16 numbers has at most 22 significant bits, so float32 holds it exactly. The sum of two fp16
  numbers may round once in float32 before it rounds to 11 bits; that never changes the result, because a sum that
  needs more than 24 bits has its smaller term below a quarter of the last place kept, far from a tie.
* Sums are multiples of 2**-24, so only products below 2**-14 need the coarser denormal rounding.

All compiled loops of the simulator's arithmetic live in this one file: numba's disk cache notices a change of the
file that holds a function, not of the files its callees come from.

Source: the vendor's instruction-set simulator as observed by running programs; the tests compare with the emulation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Bits = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]
Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]

NAN = 0x7C01  # the bits of every NaN result
INFINITY = 0x7C00

# Operation numbers of `elementwise` and `fold_rows`, which are compiled and therefore take integers.
ADD, SUBTRACT, MULTIPLY, MAXIMUM, MINIMUM, RELU_BELOW_ZERO, RELU_UP_TO_ZERO = range(7)

_ROWS_AT_ONCE = 4  # rows that share one load of the weights in `dot_rows`

# An fp16 number times 2**112 as float32: the smallest denormal is 2**88, the smallest normal 2**98.
_ULP_SCALED = np.float32(2.0**88)
_PER_ULP = np.float32(2.0**-88)
_UNSCALE = np.float32(2.0**-112)
_NORMAL_SCALED_BITS = np.int32((127 + 98) << 23)
_INFINITY_BITS = np.int32(0x7F800000)
_SIGN_BITS = np.int32(-0x80000000)
_MAGNITUDE_BITS = np.int32(0x7FFFFFFF)
_HALF_PLACE = np.int32(0x1000)  # half a unit in the last of 11 significant bits
_KEPT_PLACES = np.int32(-0x2000)
_HALF_BITS = np.int32(0x3F000000)  # 0.5
_REBIAS = np.int32((112 + 112) << 23)  # from the exponent field of an fp16 number to that of a scaled float32


@intrinsic
def _bits(typing_context: Any, value: Any) -> Any:  # noqa: ARG001  numba's calling convention
    """The bit pattern of a float32 as int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def _float(typing_context: Any, bits: Any) -> Any:  # noqa: ARG001  numba's calling convention
    """The float32 with the bit pattern of an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


# No fastmath: NaN, infinities and signed zeros are part of the result.
_compiled = njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")


@_compiled
def from_f32(bits32: int) -> int:
    """The fp16 bits of a float32 bit pattern, truncated toward zero as the chip converts its scalars.

    Finite values too large become +-65504, NaN becomes 0x7e00 without sign. Used by `.mf` forms, `mov.f`, `fshw` and
    the dequantisation coefficients.
    """
    sign = (bits32 >> 16) & 0x8000
    magnitude = bits32 & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return 0x7E00
    if magnitude == 0x7F800000:
        return sign | 0x7C00
    exponent = (magnitude >> 23) - 112
    if exponent >= 31:
        return sign | 0x7BFF
    if exponent >= 1:
        return sign | (magnitude - (112 << 23)) >> 13
    if exponent < -9:
        return sign
    return sign | ((magnitude & 0x7FFFFF) | 0x800000) >> (14 - exponent)


@_compiled
def to_f32_bits(h: int) -> int:
    """The float32 bit pattern of fp16 bits: exact, every NaN becomes 0x7fc00000."""
    sign = (h & 0x8000) << 16
    magnitude = h & 0x7FFF
    if magnitude > 0x7C00:
        return 0x7FC00000
    if magnitude == 0x7C00:
        return sign | 0x7F800000
    if magnitude >= 0x400:
        return sign | (magnitude << 13) + (112 << 23)
    if magnitude == 0:
        return sign
    exponent = 113
    while magnitude < 0x400:
        magnitude <<= 1
        exponent -= 1
    return sign | (magnitude & 0x3FF) << 13 | exponent << 23


@_compiled
def _scaled(h: int) -> float:
    """fp16 bits -> float32 times 2**112. Infinity and NaN come out right because 31 + 224 is float32's top exponent."""
    magnitude = np.int32(h) & np.int32(0x7FFF)
    denormal = _bits(np.float32(magnitude) * _ULP_SCALED)
    positive = denormal if magnitude < 0x400 else np.int32((magnitude << 13) + _REBIAS)
    return _float(np.int32(positive | ((np.int32(h) & np.int32(0x8000)) << 16)))  # type: ignore[no-any-return]


@_compiled
def _plain(h: int) -> float:
    """fp16 bits -> float32 of equal value."""
    return _scaled(h) * _UNSCALE  # type: ignore[no-any-return]


@_compiled
def _pack(value: float) -> int:
    """A scaled float32 that is already rounded to fp16 -> fp16 bits, NaN as 0x7c01."""
    magnitude = _bits(value) & _MAGNITUDE_BITS
    sign = (_bits(value) & _SIGN_BITS) >> 16 & 0x8000
    if magnitude < _NORMAL_SCALED_BITS:
        packed = np.int32(np.abs(value) * _PER_ULP) | sign
    else:
        packed = (magnitude - _REBIAS) >> 13 | sign
    return np.uint16(NAN if magnitude > _INFINITY_BITS else packed)  # type: ignore[return-value]


@_compiled
def _round_sum(value: float) -> float:
    """A scaled float32 -> the nearest scaled fp16 number, ties away; for sums, which are multiples of 2**-24
    (scaled)."""
    return _float((_bits(value) + _HALF_PLACE) & _KEPT_PLACES)  # type: ignore[no-any-return]


@_compiled
def _round_product(value: float) -> float:
    """A scaled exact product -> the nearest scaled fp16 number, ties away, keeping the sign of a zero."""
    bits = _bits(value)
    signed_half = _float((bits & _SIGN_BITS) | _HALF_BITS)
    # Below 2**-14 the product in units of 2**-24 has 22 significant bits; adding 0.5 loses no bit that decides.
    denormal = np.trunc(value * _PER_ULP + signed_half) * _ULP_SCALED
    normal = _float((bits + _HALF_PLACE) & _KEPT_PLACES)
    return denormal if bits & _MAGNITUDE_BITS < _NORMAL_SCALED_BITS else normal  # type: ignore[no-any-return]


@_compiled
def add(a: int, b: int) -> int:
    """fp16 bits of a + b. Callable from other compiled code."""
    return _pack(_round_sum(_scaled(a) + _scaled(b)))  # type: ignore[no-any-return]


@_compiled
def multiply(a: int, b: int) -> int:
    """fp16 bits of a * b. Callable from other compiled code."""
    return _pack(_round_product(_scaled(a) * _plain(b)))  # type: ignore[no-any-return]


@_compiled
def _is_nan(h: int) -> bool:
    return (h & 0x7FFF) > INFINITY


@_compiled
def maximum(a: int, b: int) -> int:
    """Element-wise maximum: any NaN gives 0x7c01, equal operands give b (so the sign of a zero is b's)."""
    larger = a if _scaled(a) > _scaled(b) else b
    return np.uint16(NAN) if _is_nan(a) or _is_nan(b) else larger  # type: ignore[return-value]


@_compiled
def minimum(a: int, b: int) -> int:
    """Element-wise minimum: any NaN gives 0x7c01, equal operands give b."""
    smaller = a if _scaled(a) < _scaled(b) else b
    return np.uint16(NAN) if _is_nan(a) or _is_nan(b) else smaller  # type: ignore[return-value]


@_compiled
def _order(h: int) -> int:
    """A key that orders fp16 bits as numbers with -0 just below +0, as the maximum and minimum reductions do."""
    return ~np.int32(h & 0x7FFF) if h & 0x8000 else np.int32(h)  # type: ignore[return-value]


@_compiled
def elementwise(operation: int, a: Bits, b: Bits, out: Bits) -> None:
    """out[i] = operation(a[i], b[i]) over contiguous vectors of equal length."""
    if operation == ADD:
        for i in range(out.size):
            out[i] = add(a[i], b[i])
    elif operation == SUBTRACT:
        for i in range(out.size):
            out[i] = add(a[i], b[i] ^ np.uint16(0x8000))
    elif operation == MULTIPLY:
        for i in range(out.size):
            out[i] = multiply(a[i], b[i])
    elif operation == MAXIMUM:
        for i in range(out.size):
            out[i] = maximum(a[i], b[i])
    elif operation == MINIMUM:
        for i in range(out.size):
            out[i] = minimum(a[i], b[i])
    elif operation == RELU_BELOW_ZERO:
        for i in range(out.size):
            out[i] = multiply(a[i], b[i]) if _scaled(a[i]) < 0 else a[i]
    elif operation == RELU_UP_TO_ZERO:
        for i in range(out.size):
            out[i] = multiply(a[i], b[i]) if _scaled(a[i]) <= 0 else a[i]


@_compiled
def fold_rows(operation: int, matrix: Bits, out: Bits) -> None:
    """Reduce matrix[R, C] down its columns into out[C], in row order, starting from the first row's own bits."""
    rows, columns = matrix.shape
    for column in range(columns):
        out[column] = matrix[0, column]
    for row in range(1, rows):
        if operation == ADD:
            for column in range(columns):
                out[column] = add(out[column], matrix[row, column])
        elif operation == MAXIMUM:
            for column in range(columns):
                a, b = out[column], matrix[row, column]
                chosen = a if _order(a) > _order(b) else b
                out[column] = NAN if _is_nan(a) or _is_nan(b) else chosen
        elif operation == MINIMUM:
            for column in range(columns):
                a, b = out[column], matrix[row, column]
                chosen = a if _order(a) < _order(b) else b
                out[column] = NAN if _is_nan(a) or _is_nan(b) else chosen


@_compiled
def scale_int32(a: Int32s, factor: Bits, out: Bits) -> None:
    """out[i] = a[i] * factor[i]: the exact product of an int32 and an fp16 number, rounded once.

    The product has at most 42 bits, which float64 holds, and is a multiple of 2**-24, so it needs no denormal rounding.
    """
    for i in range(out.size):
        product = np.float64(a[i]) * np.float64(_scaled(factor[i]))
        magnitude = np.abs(product)
        # Truncating to float32 keeps the 12th bit, the only one that rounding to 11 bits with ties away looks at.
        cut = np.float32(magnitude)
        if np.float64(cut) > magnitude and cut < np.inf:
            cut = _float(_bits(cut) - np.int32(1))
        out[i] = _pack(np.copysign(_round_sum(cut), product) if product == product else np.float32(np.nan))


@_compiled
def widen(source: Bits, target: Floats, first_row: int, first_column: int, scaled: bool) -> None:
    """Write the float32 values of source[R, C] into a window of target; `scaled` selects times 2**112."""
    factor = np.float32(1.0) if scaled else _UNSCALE
    for row in range(source.shape[0]):
        for column in range(source.shape[1]):
            target[first_row + row, first_column + column] = _scaled(source[row, column]) * factor


@_compiled
def dot_rows(left: Floats, right: Floats, out: Bits) -> None:
    """out[P, N] = left[P, K] times right[K, N] with the matrix engine's two accumulators; one side is scaled by 2**112.

    Even and odd k are summed separately, from +0, in increasing k; each product and each sum is rounded; the result is
    even + odd. The innermost loop runs over N, which therefore should be the longer of P and N.
    """
    pixels, depth = left.shape
    channels = right.shape[1]
    even = np.empty((_ROWS_AT_ONCE, channels), np.float32)
    odd = np.empty((_ROWS_AT_ONCE, channels), np.float32)
    for first in range(0, pixels, _ROWS_AT_ONCE):
        rows = min(_ROWS_AT_ONCE, pixels - first)
        even[:] = 0
        odd[:] = 0
        for k in range(0, depth - 1, 2):
            for row in range(rows):
                x = left[first + row, k]
                y = left[first + row, k + 1]
                for n in range(channels):
                    even[row, n] = _round_sum(even[row, n] + _round_product(x * right[k, n]))
                    odd[row, n] = _round_sum(odd[row, n] + _round_product(y * right[k + 1, n]))
        if depth % 2:
            for row in range(rows):
                x = left[first + row, depth - 1]
                for n in range(channels):
                    even[row, n] = _round_sum(even[row, n] + _round_product(x * right[depth - 1, n]))
        for row in range(rows):
            for n in range(channels):
                out[first + row, n] = _pack(_round_sum(even[row, n] + odd[row, n]))


@_compiled
def dot_rows_x8(left: Int8s, right: Int8s, out: Int32s) -> None:
    """out[P, N] = left[P, K] times right[K, N] in int32, wrapping."""
    out[:] = 0
    for row in range(left.shape[0]):
        for k in range(left.shape[1]):
            x = np.int32(left[row, k])
            for n in range(right.shape[1]):
                out[row, n] = np.int32(out[row, n] + x * np.int32(right[k, n]))
