"""cvt: between integers and floats of all widths. Floats to integers saturate, as on the hardware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from codegen.cutlass.ptx.instructions.arithmetic import DIRECTIONS, convert_directed
from codegen.cutlass.ptx.instructions.elementwise import saturate, store
from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.scalars import DTYPES, Array, is_float
from codegen.cutlass.ptx.text.errors import UnsupportedPtx
from codegen.cutlass.ptx.text.module import PtxInstruction

TO_WHOLE: Final[dict[str, Callable[[Array], Array]]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def _to_integer(value: Array, kind: str) -> Array:
    """Whole numbers of float64, clamped to the range of `kind`; NaN becomes 0."""
    dtype = DTYPES[kind]
    limits = np.iinfo(dtype)
    clipped = np.where(np.isnan(value), 0.0, value)
    low, high = clipped <= float(limits.min), clipped >= float(limits.max)
    inside = np.where(low | high, 0.0, clipped).astype(dtype)
    return np.where(low, dtype.type(limits.min), np.where(high, dtype.type(limits.max), inside))


def _convert(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    need(len(form.types) == 2, instruction)
    to, origin = form.types
    need("pred" not in form.types, instruction)
    if to == "f16x2":
        return _pair(instruction, form, core)
    need(len(instruction.operands) == 2, instruction)
    source = core.registers.source(instruction.operands[1], origin)
    target = core.registers.target(instruction.operands[0], to)
    words = set(form.modifiers)
    saturated = "sat" in words
    relu = "relu" in words
    whole = next((TO_WHOLE[word] for word in words if word in TO_WHOLE), None)
    direction = next((word for word in form.modifiers if word in DIRECTIONS), None)
    narrowing = is_float(to) and (not is_float(origin) or DTYPES[to].itemsize < DTYPES[origin].itemsize)
    if (narrowing and not words <= {"rn", "sat", "relu", *DIRECTIONS}) or (direction and not narrowing):
        raise UnsupportedPtx(f"{instruction.opcode} is not executed with this rounding")
    if direction and origin in ("s64", "u64"):
        raise UnsupportedPtx(f"{instruction.opcode} is not executed: 64-bit numbers are only rounded to nearest")
    if is_float(origin) and not is_float(to) and whole is None:
        raise UnsupportedPtx(f"{instruction.opcode} does not say how to round")

    def step(active: Active) -> None:
        if is_float(to):
            if direction:
                value = convert_directed(direction, source, DTYPES[to])
            else:
                value = (whole(source) if whole else source).astype(DTYPES[to])
            value = saturate(value) if saturated else value
            value = np.fmax(value, DTYPES[to].type(0)) if relu else value
        elif is_float(origin):
            assert whole is not None
            value = _to_integer(whole(source.astype(np.float64)), to)
        elif saturated:
            limits = np.iinfo(DTYPES[to])
            own = np.iinfo(source.dtype)
            low, high = max(int(limits.min), int(own.min)), min(int(limits.max), int(own.max))
            value = np.clip(source, low, high).astype(DTYPES[to])
        else:
            value = source.astype(DTYPES[to])
        store(target, value, active)

    return step


def _pair(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """Two f32 to one f16x2: the first becomes the upper half."""
    need(len(instruction.operands) == 3 and form.types[1] == "f32", instruction)
    need(set(form.modifiers) <= {"rn", "relu"} and "rn" in form.modifiers, instruction)
    high, low = (core.registers.source(operand, "f32") for operand in instruction.operands[1:])
    target = core.registers.target(instruction.operands[0], "b32").view(np.float16).reshape(-1, 2)
    relu = "relu" in form.modifiers

    def step(active: Active) -> None:
        where = True if active.whole else active.mask
        for k, source in enumerate((low, high)):
            value = source.astype(np.float16)
            np.copyto(target[:, k], np.fmax(value, np.float16(0)) if relu else value, where=where)

    return step


CONVERSIONS: Final = (
    OpcodeRow("cvt", _convert, frozenset({"rn", "sat", "relu", *TO_WHOLE, *DIRECTIONS}), frozenset({"ftz"})),
)
