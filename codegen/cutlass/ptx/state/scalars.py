"""PTX's types as numpy types, and constants of each."""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codegen.cutlass.ptx.text.errors import PtxError
from codegen.cutlass.ptx.text.module import Immediate

Array: TypeAlias = NDArray[Any]

POISON: Final = 0xFF
"""Every byte of unwritten memory: NaN as f16, f32 and f64, -1 as an integer, misaligned as an address."""

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(kind)
    for kind, names in {
        np.uint8: "u8 b8",
        np.int8: "s8",
        np.uint16: "u16 b16",
        np.int16: "s16",
        np.uint32: "u32 b32",
        np.int32: "s32",
        np.uint64: "u64 b64",
        np.int64: "s64",
        np.float16: "f16",
        np.float32: "f32",
        np.float64: "f64",
        np.bool_: "pred",
    }.items()
    for name in names.split()
}
BYTES: Final = {name: dtype.itemsize for name, dtype in DTYPES.items()} | {"f16x2": 4}
WIDER: Final = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def is_float(kind: str) -> bool:
    """Whether arithmetic of this type rounds."""
    return kind in ("f16", "f32", "f64", "f16x2")


def wider(kind: str) -> str:
    """The type of a `.wide` product."""
    return WIDER[kind]


def constant(operand: Immediate, kind: str) -> Array:
    """A literal as an array of one element of type `kind`. Raises PtxError where it cannot be one."""
    value = operand.value
    if operand.form == "f32":
        number: float | int = struct.unpack("<f", struct.pack("<I", value))[0]
    elif operand.form == "f64":
        number = struct.unpack("<d", struct.pack("<Q", value))[0]
    else:
        number = value
    dtype = DTYPES[kind]
    if kind in ("f32", "f64"):
        if operand.form == "int":
            raise PtxError(f"the integer {value} where type {kind} is needed")
        return (
            np.array([value], np.uint32).view(np.float32)
            if kind == "f32" == operand.form
            else np.array([number], dtype)
        )
    if kind == "pred":
        return np.array([value != 0])
    size = 8 * dtype.itemsize
    if kind == "f16":
        dtype = np.dtype(np.uint16)
    bits = np.array([value & (1 << size) - 1], f"u{size // 8}")
    return bits.view(DTYPES[kind])
