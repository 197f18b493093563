"""The chip's half-precision arithmetic in plain numpy float64: slow, obvious, independent of the simulator's kernels.

Two uses: the oracle of the simulator's tests, and `verify`, which recomputes sampled outputs of every layer and
compares them bit for bit with what the emitted machine code stored. Written from the instruction set's description; it
shares no code with the simulator, only the three recorded tables of the approximate functions.

Values are float64 arrays that hold fp16 numbers; `from_bits` and `to_bits` convert. float64 holds every sum and every
product of two fp16 numbers exactly, so each operation is "compute exactly, then round once": to nearest, ties away from
zero, with denormals, overflow to infinity. A NaN is just NaN here; in bits it is 0x7c01.
"""

from __future__ import annotations

from importlib.resources import files
from math import isqrt

import numpy as np
import numpy.typing as npt

Fp16 = npt.NDArray[np.float64]
"""fp16 numbers, held in float64."""
Bits = npt.NDArray[np.uint16]
"""Their bits."""
Integers = npt.NDArray[np.int64]
"""int8 numbers, or int32 sums of their products."""

_LARGEST = 65504.0
LONGEST_PIECE = 64
"""Largest number of terms that are added one by one in a long sum."""

_PRODUCTS_AT_A_TIME = 1 << 20


def bits_of(array: npt.NDArray[np.generic]) -> npt.NDArray[np.unsignedinteger]:
    """Bit patterns of elements of any type, as they lie in memory."""
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def immediate(value: float) -> Fp16:
    """The nearest fp16 number, as an instruction holds it."""
    with np.errstate(over="ignore"):
        return np.asarray(np.float16(value), np.float64)


def stored(values: Fp16) -> npt.NDArray[np.float16]:
    """Values, which must be fp16 numbers, in the type in which they are stored."""
    return values.astype(np.float16)


def from_bits(bits: npt.NDArray[np.integer]) -> Fp16:
    """Values of fp16 bit patterns, every NaN as the quiet one (a signalling one would raise numpy warnings)."""
    with np.errstate(invalid="ignore"):
        values = bits.astype(np.uint16).view(np.float16).astype(np.float64)
    return np.where((bits & 0x7FFF) > 0x7C00, np.nan, values)


def to_bits(values: Fp16) -> Bits:
    """fp16 bit patterns of values that are fp16 numbers, with NaN as 0x7c01."""
    with np.errstate(invalid="ignore"):
        bits = np.asarray(values, np.float64).astype(np.float16).view(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7C01), bits)


def integers_of(array: npt.NDArray[np.generic]) -> Integers:
    """Numbers of int8 elements, given as such or as their bits."""
    return np.asarray(np.ascontiguousarray(array).view(np.int8), np.int64)


def narrowed(values: Fp16) -> Integers:
    """int8 numbers of fp16 ones: truncated toward zero, saturated, and 0 for NaN."""
    return np.clip(np.trunc(np.where(np.isnan(values), 0.0, values)), -128, 127).astype(np.int64)


def exact_dot(a: Integers, b: Integers) -> Integers:
    """Dot products of the rows of a[S, K] and b[S, K] -> [S] as int32, which wraps around."""
    sums = np.einsum("sk,sk->s", a, b)
    return np.asarray((sums + (1 << 31)) % (1 << 32) - (1 << 31))


def round16(exact: Fp16) -> Fp16:
    """Round to binary16: nearest, ties away, gradual underflow, overflow to infinity; the sign of zero is kept."""
    magnitude = np.abs(exact)
    exponent = np.frexp(magnitude)[1] - 1  # magnitude is in [2**exponent, 2**(exponent + 1))
    place = np.maximum(exponent, -14) - 10  # an fp16 number has ten fraction bits, and none below 2**-24
    rounded = np.ldexp(np.floor(np.ldexp(magnitude, -place) + 0.5), place)
    return np.copysign(np.where(rounded > _LARGEST, np.inf, rounded), exact)


def truncate16(exact: Fp16) -> Fp16:
    """Truncate to binary16 toward zero, as the chip converts its fp32 scalars: finite values stay finite."""
    magnitude = np.abs(exact)
    place = np.maximum(np.frexp(magnitude)[1] - 1, -14) - 10
    cut = np.ldexp(np.floor(np.ldexp(magnitude, -place)), place)
    signed: Fp16 = np.copysign(np.where(np.isfinite(exact), np.minimum(cut, _LARGEST), cut), exact)
    return signed


def add(a: Fp16, b: Fp16) -> Fp16:
    """a + b, rounded."""
    with np.errstate(invalid="ignore"):  # inf - inf
        return round16(np.add(a, b))


def sub(a: Fp16, b: Fp16) -> Fp16:
    """a - b, rounded."""
    return add(a, np.negative(b))


def mul(a: Fp16, b: Fp16) -> Fp16:
    """a * b, rounded. Either may also be int32 values: the product is still exact in float64."""
    with np.errstate(invalid="ignore"):  # 0 * inf
        return round16(np.multiply(a, b))


def maximum(a: Fp16, b: Fp16) -> Fp16:
    """Element-wise maximum: NaN if either is, b if they are equal."""
    return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(np.greater(a, b), a, b))


def minimum(a: Fp16, b: Fp16) -> Fp16:
    """Element-wise minimum: NaN if either is, b if they are equal."""
    return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(np.less(a, b), a, b))


def leaky_relu(a: Fp16, slope: Fp16, zero_is_scaled: bool) -> Fp16:
    """a where it is positive, else a * slope; zeros are scaled too by `velkrelu.mf`, not by `velkrelu.mv`."""
    scaled = np.less_equal(a, 0) if zero_is_scaled else np.less(a, 0)
    return np.where(scaled, mul(a, slope), a)


def dot(a: Fp16, b: Fp16) -> Fp16:
    """Dot products of the rows of a[S, K] and b[S, K] -> [S], as the matrix engine computes one output.

    Two accumulators start at +0, one for even k and one for odd k; each product is rounded, then added with rounding,
    in increasing k; the result is their rounded sum.
    """
    samples, depth = a.shape
    pairs = -(-depth // 2)
    accumulators = np.zeros((samples, 2))
    step = max(1, _PRODUCTS_AT_A_TIME // max(1, samples))
    for first in range(0, pairs, step):
        block = slice(2 * first, 2 * (first + step))
        products = mul(a[:, block], b[:, block])
        for k in range(0, products.shape[1], 2):
            some = products[:, k : k + 2]
            accumulators[:, : some.shape[1]] = add(accumulators[:, : some.shape[1]], some)
    return add(accumulators[:, 0], accumulators[:, 1])


def matmul(a: Fp16, b: Fp16) -> Fp16:
    """a[M, K] times b[K, N] -> [M, N], with a `dot` for each output."""
    rows, columns = np.indices((a.shape[0], b.shape[1])).reshape(2, -1)
    return dot(a[rows], b.T[columns]).reshape(a.shape[0], b.shape[1])


def conv(
    x: Fp16, w: Fp16, kernel: tuple[int, int], stride: int, dilation: int, padding: tuple[int, int, int, int]
) -> Fp16:
    """Convolution of x[H, W, C] with w[KH*KW*C, N] -> [OH, OW, N]; padding is (top, bottom, left, right), of +0.

    The padded taps take part: zero times an infinite weight is NaN.
    """
    top, bottom, left, right = padding
    padded = np.pad(x, ((top, bottom), (left, right), (0, 0)))
    reach = [dilation * (size - 1) + 1 for size in kernel]
    rows = range(0, padded.shape[0] - reach[0] + 1, stride)
    columns = range(0, padded.shape[1] - reach[1] + 1, stride)
    patches = [
        padded[y : y + reach[0] : dilation, z : z + reach[1] : dilation].reshape(-1) for y in rows for z in columns
    ]
    return matmul(np.array(patches), w).reshape(len(rows), len(columns), w.shape[1])


def accumulate(values: Fp16, axis: int) -> Fp16:
    """Sums along an axis, added in order from the first element on (so a single -0 stays -0)."""
    elements = np.moveaxis(values, axis, 0)
    total: Fp16 = elements[0]
    for element in elements[1:]:
        total = add(total, element)
    return total


def total(values: Fp16, mean: bool = False) -> Fp16:
    """Sums, or means, along the last axis, in pieces of about sqrt(length) elements and at most LONGEST_PIECE. Each
    piece starts from its first element; then the sums of the pieces are added one by one, in pieces again where there
    are more than LONGEST_PIECE. For a mean the elements are first multiplied by 1 / piece and the sums of pieces by
    piece / length; where the latter are summed in pieces again, they are also multiplied by their number / their piece.
    """
    length = values.shape[-1]
    piece = min(LONGEST_PIECE, isqrt(max(0, length - 1)) + 1)
    factor = piece / length if mean else None
    if mean:
        values = mul(values, immediate(1 / piece))
    while True:
        length, last = values.shape[-1], values.ndim - 1
        sums = np.stack([accumulate(values[..., i : i + piece], last) for i in range(0, length, piece)], -1)
        count = sums.shape[-1]
        piece = min(LONGEST_PIECE, isqrt(max(0, count - 1)) + 1)
        again = count > LONGEST_PIECE
        if factor is not None:
            sums = mul(sums, immediate(factor * (count / piece if again else 1)))
            factor = piece / count
        if not again:
            return accumulate(sums, last)
        values = sums


def largest(values: Fp16, axis: int) -> Fp16:
    """The largest element along an axis: NaN if any is NaN, and -0 is below +0."""
    top = np.max(values, axis, keepdims=True)
    negative_zero = np.all((values < 0) | np.signbit(values), axis, keepdims=True)
    return np.where(top == 0, np.where(negative_zero, -0.0, 0.0), top).squeeze(axis)


def smallest(values: Fp16, axis: int) -> Fp16:
    """The smallest element along an axis: NaN if any is NaN, and -0 is below +0."""
    return -largest(-values, axis)


def exp(values: Fp16) -> Fp16:
    """The chip's approximate exponential, by its table."""
    return _by_table("exp", values)


def sqrt(values: Fp16) -> Fp16:
    """The chip's approximate square root, by its table."""
    return _by_table("sqrt", values)


def recip(values: Fp16) -> Fp16:
    """The chip's approximate reciprocal, by its table."""
    return _by_table("recip", values)


def _by_table(name: str, values: Fp16) -> Fp16:
    data = files("codegen.neuralscale.simulator.arithmetic").joinpath(f"{name}.bin").read_bytes()
    table: Bits = np.frombuffer(data, "<u2").astype(np.uint16)
    return from_bits(np.take(table, to_bits(values)))
