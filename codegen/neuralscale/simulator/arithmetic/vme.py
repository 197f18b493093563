"""The vector engine: element-wise operations, reductions, conversions and table functions, exact to the bit.

Pure functions: operands are uint16 (fp16), int8 or int32 arrays with any strides, broadcast against each other; results
are new contiguous arrays. The `mv` and `mf` forms are the `mm` form with a broadcast operand: a vector of `columns`
elements for dim_h, `vector[:, None]` for dim_w, a scalar for mf. Scalars come as fp16 bits (`fp16.from_f32`).

`veexp`, `vesqrt` and `verecip` are approximations on the chip. Their results for all 65,536 inputs are tables next to
this file (little-endian uint16, indexed by the input's bits), recorded by running a program on the vendor's simulator.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from codegen.neuralscale.simulator.arithmetic import fp16
from codegen.neuralscale.simulator.arithmetic.fp16 import Bits, Int8s, Int32s

Operation = Literal["add", "sub", "mul", "max", "min"]
Direction = Literal["full", "h", "w"]

_OPERATIONS: Final = {
    "add": fp16.ADD,
    "sub": fp16.SUBTRACT,
    "mul": fp16.MULTIPLY,
    "max": fp16.MAXIMUM,
    "min": fp16.MINIMUM,
}


def _load_table(name: str) -> Bits:
    data = files("codegen.neuralscale.simulator.arithmetic").joinpath(f"{name}.bin").read_bytes()
    return np.frombuffer(data, "<u2").astype(np.uint16, copy=False)


def _x8_table() -> Int8s:
    with np.errstate(invalid="ignore"):
        values = np.nan_to_num(np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32), nan=0.0)
        return np.clip(np.trunc(values), -128, 127).astype(np.int8)


EXP: Final = _load_table("exp")
SQRT: Final = _load_table("sqrt")
RECIP: Final = _load_table("recip")
_X8_FROM_HF: Final = _x8_table()


def binary(operation: Operation, a: Bits, b: Bits | np.uint16) -> Bits:
    """`veadd`, `vesub`, `veemul`, `vemax`, `vemin` in their mm, mv and mf forms: a op b, b broadcast to a.

    Maximum and minimum: any NaN gives 0x7c01, equal operands give b.
    """
    return _elementwise(_OPERATIONS[operation], a, b)


def leaky_relu_mf(a: Bits, slope: np.uint16) -> Bits:
    """`velkrelu.mf`: x <= 0 ? x*slope : x. A zero is also multiplied; a NaN passes with its payload."""
    return _elementwise(fp16.RELU_UP_TO_ZERO, a, slope)


def leaky_relu_mv(a: Bits, slopes: Bits) -> Bits:
    """`velkrelu.mv`: x < 0 ? x*slope : x. Both zeros and NaN pass unchanged."""
    return _elementwise(fp16.RELU_BELOW_ZERO, a, slopes)


def accumulate(a: Bits, direction: Direction) -> Bits:
    """`veacc.m`: sums a[R, C] down the columns ('h': [C]), along the rows ('w': [R]) or over all ('full': [1]).

    The sums run in order from the first element, not from +0, so a single element is copied with its bits. Full sums
    the columns first, then those from left to right.
    """
    if direction == "full":
        return accumulate(accumulate(a, "h")[None], "w")
    return _reduce(fp16.ADD, a, direction)


def multiply_accumulate(a: Bits, b: Bits | np.uint16, direction: Direction) -> Bits:
    """`veemacc`: a[R, C] times b (broadcast), each product rounded, then `accumulate`.

    The vector of the mv form has the opposite direction from elsewhere: `rows` elements for 'h' (pass `vector[:,
    None]`), `columns` for 'w'.
    """
    return accumulate(binary("mul", a, b), direction)


def maximum(a: Bits, direction: Direction) -> Bits:
    """`vemax.m`: the largest of each column ('h'), row ('w') or all ('full': [1]); NaN gives 0x7c01, -0 < +0."""
    return _extremum(fp16.MAXIMUM, a, direction)


def minimum(a: Bits, direction: Direction) -> Bits:
    """`vemin.m`: the smallest of each column ('h'), row ('w') or all ('full': [1]); NaN gives 0x7c01, -0 < +0."""
    return _extremum(fp16.MINIMUM, a, direction)


def lookup(indices: Bits, table: Bits) -> Bits:
    """`velut.m`: table[source word]. The machine passes the part of the table that the indices need."""
    return np.take(table, indices)


def exp(a: Bits) -> Bits:
    """`veexp.m` by table."""
    return np.take(EXP, a)


def sqrt(a: Bits) -> Bits:
    """`vesqrt.m` by table."""
    return np.take(SQRT, a)


def recip(a: Bits) -> Bits:
    """`verecip.m` by table."""
    return np.take(RECIP, a)


def hf_from_x8(a: Int8s) -> Bits:
    """`vecvt.hf.x8.m`: int8 -> fp16, exact."""
    return np.ascontiguousarray(a.astype(np.int8).astype(np.float16)).view(np.uint16)


def hf_from_xu8(a: npt.NDArray[np.uint8]) -> Bits:
    """`vecvt.hf.xu8.m`: uint8 -> fp16, exact."""
    return np.ascontiguousarray(a.astype(np.uint8).astype(np.float16)).view(np.uint16)


def x8_from_hf(a: Bits) -> Int8s:
    """`vecvt.x8.hf.m`: fp16 -> int8, truncated toward zero, saturated to [-128, 127], NaN -> 0."""
    return np.take(_X8_FROM_HF, a)


def mul_x8_hf(a: Bits, scalar: np.uint16) -> Int8s:
    """`veemul.x8.hf.mf`: the product rounded to fp16, then converted by `x8_from_hf`."""
    return x8_from_hf(binary("mul", a, scalar))


def mul_x32(a: Int32s, factor: Bits | np.uint16) -> Bits:
    """`veemul.x32.mv/.mf`: int32 times fp16 (broadcast), exact product rounded once to fp16, overflow to infinity."""
    a, factors = _contiguous_pair(a, factor)
    out = np.empty(a.shape, np.uint16)
    fp16.scale_int32(a.reshape(-1), factors.reshape(-1), out.reshape(-1))
    return out


def _elementwise(operation: int, a: Bits, b: Bits | np.uint16) -> Bits:
    left, right = _contiguous_pair(a, b)
    out = np.empty(left.shape, np.uint16)
    fp16.elementwise(operation, left.reshape(-1), right.reshape(-1), out.reshape(-1))
    return out


def _contiguous_pair(a: Any, b: Any) -> tuple[Any, Any]:
    """a, and b broadcast to its shape, as fresh contiguous arrays, so that the kernels compile for one type only."""
    return np.array(a, order="C"), np.array(np.broadcast_to(b, a.shape), order="C")


def _reduce(operation: int, a: Bits, direction: Literal["h", "w"]) -> Bits:
    matrix = np.array(a if direction == "h" else a.T, order="C")
    out = np.empty(matrix.shape[1], np.uint16)
    fp16.fold_rows(operation, matrix, out)
    return out


def _extremum(operation: int, a: Bits, direction: Direction) -> Bits:
    if direction == "full":
        return _reduce(operation, a.reshape(1, -1), "w")
    return _reduce(operation, a, direction)
