"""Scalar floating-point instructions of RV32F, one at a time: registers and flags around the exact `softfloat`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from codegen.neuralscale.simulator.arithmetic import softfloat
from codegen.neuralscale.simulator.instructions.single import Execute, ExecutionStep, signed_word


def _float(compute: Callable[[int, int, int], softfloat.Result]) -> Execute:
    def execute(step: ExecutionStep) -> None:
        step.require_fp()
        bits, flags = compute(step.f(step.rs1), step.f(step.rs2), step.mode)
        step.hart.set_f32(step.rd, bits)
        step.raise_flags(flags)

    return execute


def _fused(negate_product: bool, negate_addend: bool) -> Execute:
    def execute(step: ExecutionStep) -> None:
        step.require_fp()
        a, b, c = step.f(step.rs1), step.f(step.rs2), step.f(step.word >> 27)
        a ^= 0x8000_0000 if negate_product else 0
        c ^= 0x8000_0000 if negate_addend else 0
        bits, flags = softfloat.fused(a, b, c, step.mode)
        step.hart.set_f32(step.rd, bits)
        step.raise_flags(flags)

    return execute


def _select(compute: Callable[[int, int], softfloat.Result]) -> Execute:
    def execute(step: ExecutionStep) -> None:
        step.require_fp()
        bits, flags = compute(step.f(step.rs1), step.f(step.rs2))
        step.hart.set_f32(step.rd, bits)
        step.raise_flags(flags)

    return execute


def _compare(compute: Callable[[int, int], softfloat.Result]) -> Execute:
    def execute(step: ExecutionStep) -> None:
        step.require_fp()
        value, flags = compute(step.f(step.rs1), step.f(step.rs2))
        step.hart.set_x(step.rd, value)
        step.raise_flags(flags)

    return execute


def _sign(combine: Callable[[int, int], int]) -> Execute:
    def execute(step: ExecutionStep) -> None:
        step.require_fp()
        a = step.f(step.rs1)
        step.hart.set_f32(step.rd, a & 0x7FFF_FFFF | combine(a, step.f(step.rs2)) & 0x8000_0000)

    return execute


def _to_integer(*, signed: bool) -> Execute:
    def execute(step: ExecutionStep) -> None:
        step.require_fp()
        value, flags = softfloat.to_integer(step.f(step.rs1), step.mode, signed=signed)
        step.hart.set_x(step.rd, value)
        step.raise_flags(flags)

    return execute


def _from_integer(*, signed: bool) -> Execute:
    def execute(step: ExecutionStep) -> None:
        step.require_fp()
        value = int(step.hart.x[step.rs1])
        bits, flags = softfloat.from_integer(signed_word(value) if signed else value, step.mode)
        step.hart.set_f32(step.rd, bits)
        step.raise_flags(flags)

    return execute


def _fclass(step: ExecutionStep) -> None:
    step.require_fp()
    step.hart.set_x(step.rd, softfloat.classify(step.f(step.rs1)))


FLOAT: Final[dict[str, Execute]] = {
    "fadd.s": _float(softfloat.add),
    "fsub.s": _float(softfloat.subtract),
    "fmul.s": _float(softfloat.multiply),
    "fdiv.s": _float(softfloat.divide),
    "fsqrt.s": _float(lambda a, _, mode: softfloat.square_root(a, mode)),
    "fmadd.s": _fused(negate_product=False, negate_addend=False),
    "fmsub.s": _fused(negate_product=False, negate_addend=True),
    "fnmsub.s": _fused(negate_product=True, negate_addend=False),
    "fnmadd.s": _fused(negate_product=True, negate_addend=True),
    "fsgnj.s": _sign(lambda _, b: b),
    "fsgnjn.s": _sign(lambda _, b: ~b),
    "fsgnjx.s": _sign(lambda a, b: a ^ b),
    "fmin.s": _select(softfloat.minimum),
    "fmax.s": _select(softfloat.maximum),
    "feq.s": _compare(softfloat.equal),
    "flt.s": _compare(softfloat.less),
    "fle.s": _compare(softfloat.less_equal),
    "fclass.s": _fclass,
    "fcvt.w.s": _to_integer(signed=True),
    "fcvt.wu.s": _to_integer(signed=False),
    "fcvt.s.w": _from_integer(signed=True),
    "fcvt.s.wu": _from_integer(signed=False),
}
"""Implementation of each floating-point instruction, by mnemonic; accesses and moves are elsewhere."""
