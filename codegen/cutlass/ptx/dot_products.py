"""Dot products of short integers within a register: `dp2a`, by which nvcc adds small multiples to an address, `dp4a`.

dp2a.lo.s32.u32 d, a, b, c  -->  d = c + (a's low half) (b's byte 0) + (a's high half) (b's byte 1)
dp4a.s32.u32    d, a, b, c  -->  d = c + the sum over all four bytes of a and b
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from codegen.cutlass.ptx.active import Active
from codegen.cutlass.ptx.elementwise import store
from codegen.cutlass.ptx.module import PtxInstruction
from codegen.cutlass.ptx.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.scalars import Array

if TYPE_CHECKING:
    from codegen.cutlass.ptx.core import CtaBatch


def _part(register: Array, start: int, bits: int, *, signed: bool) -> Array:
    """`bits` bits from `start`, as int64."""
    part = np.asarray(register.view(np.uint32).astype(np.int64) >> start & ((1 << bits) - 1))
    return np.where(part >> bits - 1, part - (1 << bits), part) if signed else part


def _build(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    halves = form.head == "dp2a"
    need(len(form.types) == 2 and len(form.modifiers) == halves and len(instruction.operands) == 4, instruction)
    signed_a, signed_b = (kind == "s32" for kind in form.types)
    bits, first = (16, 16 if form.modifiers == ("hi",) else 0) if halves else (8, 0)
    a, b, c = (core.registers.source(operand, "u32") for operand in instruction.operands[1:])
    target = core.registers.target(instruction.operands[0], "u32")

    def step(active: Active) -> None:
        total = c.astype(np.int64)
        for k in range(32 // bits):
            factor = _part(b, first + 8 * k, 8, signed=signed_b)
            total = total + _part(a, bits * k, bits, signed=signed_a) * factor
        store(target, (total & 0xFFFF_FFFF).astype(np.uint32), active)

    return step


INTEGERS: Final = frozenset({"u32", "s32"})
DOT_PRODUCTS: Final = (
    OpcodeRow("dp2a", _build, frozenset({"lo", "hi"}), frozenset(), INTEGERS),
    OpcodeRow("dp4a", _build, frozenset(), frozenset(), INTEGERS),
)
