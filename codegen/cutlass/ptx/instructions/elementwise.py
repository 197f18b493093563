"""Table of the operations of each thread on its own registers: name, types, function.

A row of the table is `Elementwise`; `mul.wide` and the like are rows of their own. Rounded operations round once: `fma`
of f16 and f32 is computed in float64. Subnormals are kept, with `.ftz` too; the approximate functions are numpy's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from codegen.cutlass.ptx.instructions.arithmetic import (
    DIRECTIONS,
    add_directed,
    bfe,
    bfi,
    bfind,
    bfind_shift,
    brev,
    clz,
    fma_directed,
    lop3,
    mul_hi,
    multiply_directed,
    popc,
    prmt,
    shf,
    subtract_directed,
)
from codegen.cutlass.ptx.instructions.rows import OpcodeForm, OpcodeRow, Step, need
from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.scalars import DTYPES, Array, wider
from codegen.cutlass.ptx.text.errors import UnsupportedPtx
from codegen.cutlass.ptx.text.module import PtxInstruction

INTEGERS: Final = "u16 s16 u32 s32 u64 s64"
FLOATS: Final = "f16 f16x2 f32 f64"


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A row of the table. `name` is the head and the modifiers that change the meaning; `sources` holds each source's
    type, where a dot is the instruction's own type."""

    name: str
    types: str
    function: Callable[..., Array]
    sources: str = ". ."
    result: str = "."
    hints: str = ""


def fma(a: Array, b: Array, c: Array) -> Array:
    """a b + c with one rounding (except for a second one in the last bit of float64)."""
    if a.dtype == np.float64:
        return a * b + c
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(a.dtype)


def fma_down(a: Array, b: Array, c: Array) -> Array:
    """a b + c of f32 rounded towards minus infinity: the product is exact in float64, and Knuth's two-sum finds the
    rounding error of the sum."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    near = total.astype(a.dtype)
    above = (near > total) | ((near == total) & (lost < 0))
    return np.where(above, np.nextafter(near, a.dtype.type(-np.inf)), near)


def multiply_wide(a: Array, b: Array) -> Array:
    """The whole product, twice as wide."""
    wide = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
    return np.asarray(np.multiply(a.astype(wide), b.astype(wide)))


def divide(a: Array, b: Array) -> Array:
    """Quotient towards zero; division by zero may give anything."""
    if a.dtype.kind == "u":
        return np.floor_divide(a, b)
    return np.asarray(np.floor_divide(a - np.fmod(a, b), b))


def saturate(value: Array) -> Array:
    """Clamp to [0, 1]; NaN becomes 0."""
    return np.asarray(np.fmin(np.fmax(value, value.dtype.type(0)), value.dtype.type(1)))


def shift_left(a: Array, count: Array) -> Array:
    """Shift left; counts beyond the width give 0."""
    return np.asarray(np.left_shift(a, np.minimum(count, 8 * a.dtype.itemsize).astype(a.dtype)))


def shift_right(a: Array, count: Array) -> Array:
    """Shift right; counts beyond the width give 0, or the sign."""
    return np.asarray(np.right_shift(a, np.minimum(count, 8 * a.dtype.itemsize).astype(a.dtype)))


def _reciprocal(a: Array) -> Array:
    return np.asarray(np.divide(a.dtype.type(1), a))


def _inverse_root(a: Array) -> Array:
    return np.asarray(np.divide(a.dtype.type(1), np.sqrt(a)))


def _add_saturated(a: Array, b: Array) -> Array:
    low, high = np.iinfo(a.dtype).min, np.iinfo(a.dtype).max
    return np.clip(a.astype(np.int64) + b, low, high).astype(a.dtype)


TABLE: Final = (
    Elementwise("add", f"{INTEGERS} {FLOATS}", np.add, hints="rn ftz"),
    *(Elementwise(f"add.{way}", "f32", add_directed(way), hints="ftz") for way in DIRECTIONS),
    *(Elementwise(f"sub.{way}", "f32", subtract_directed(way), hints="ftz") for way in DIRECTIONS),
    *(Elementwise(f"mul.{way}", "f32", multiply_directed(way), hints="ftz") for way in DIRECTIONS),
    *(Elementwise(f"fma.{way}", "f32", fma_directed(way), ". . .", hints="ftz") for way in DIRECTIONS),
    Elementwise("add.sat", "f32 f16 f16x2", lambda a, b: saturate(a + b), hints="rn ftz"),
    Elementwise("add.sat", "s32", _add_saturated),
    Elementwise("sub", f"{INTEGERS} {FLOATS}", np.subtract, hints="rn ftz"),
    Elementwise("mul", FLOATS, np.multiply, hints="rn ftz"),
    Elementwise("mul.sat", "f32 f16 f16x2", lambda a, b: saturate(a * b), hints="rn ftz"),
    Elementwise("mul.lo", INTEGERS, np.multiply),
    Elementwise("mul.hi", INTEGERS, mul_hi),
    Elementwise("mul.wide", "u16 s16 u32 s32", multiply_wide, result="wide"),
    Elementwise("mad.lo", INTEGERS, lambda a, b, c: a * b + c, ". . ."),
    Elementwise("mad.hi", INTEGERS, lambda a, b, c: mul_hi(a, b) + c, ". . ."),
    Elementwise("mad.wide", "u16 s16 u32 s32", lambda a, b, c: multiply_wide(a, b) + c, ". . wide", "wide"),
    Elementwise("fma", FLOATS, fma, ". . .", hints="rn ftz"),
    Elementwise("fma.sat", "f32", lambda a, b, c: saturate(fma(a, b, c)), ". . .", hints="rn ftz"),
    Elementwise("fma.rm", "f32", fma_down, ". . .", hints="ftz"),
    Elementwise(
        "fma.relu", "f16 f16x2", lambda a, b, c: np.fmax(fma(a, b, c), a.dtype.type(0)), ". . .", hints="rn ftz"
    ),
    Elementwise("mad", "f32 f64", fma, ". . .", hints="rn ftz"),
    Elementwise("div", INTEGERS, divide),
    Elementwise("div", "f32 f64", np.divide, hints="rn ftz full approx"),
    Elementwise("rem", INTEGERS, np.fmod),
    Elementwise("neg", f"s16 s32 s64 {FLOATS}", np.negative, ".", hints="ftz"),
    Elementwise("abs", f"s16 s32 s64 {FLOATS}", np.absolute, ".", hints="ftz"),
    Elementwise("min", f"{INTEGERS}", np.minimum),
    Elementwise("max", f"{INTEGERS}", np.maximum),
    Elementwise("min", FLOATS, np.fmin, hints="ftz"),
    Elementwise("max", FLOATS, np.fmax, hints="ftz"),
    Elementwise("min.NaN", "f16 f16x2 f32", np.minimum, hints="ftz"),
    Elementwise("max.NaN", "f16 f16x2 f32", np.maximum, hints="ftz"),
    Elementwise("and", "b16 b32 b64 pred", np.bitwise_and),
    Elementwise("or", "b16 b32 b64 pred", np.bitwise_or),
    Elementwise("xor", "b16 b32 b64 pred", np.bitwise_xor),
    Elementwise("not", "b16 b32 b64 pred", np.invert, "."),
    Elementwise("cnot", "b16 b32 b64", lambda a: (a == 0).astype(a.dtype), "."),
    Elementwise("shl", "b16 b32 b64", shift_left, ". u32"),
    Elementwise("shr", f"b16 b32 b64 {INTEGERS}", shift_right, ". u32"),
    Elementwise("shf.l.wrap", "b32", lambda a, b, c: shf(a, b, c & 31, left=True), ". . u32"),
    Elementwise("shf.r.wrap", "b32", lambda a, b, c: shf(a, b, c & 31, left=False), ". . u32"),
    Elementwise("shf.l.clamp", "b32", lambda a, b, c: shf(a, b, np.minimum(c, 32), left=True), ". . u32"),
    Elementwise("shf.r.clamp", "b32", lambda a, b, c: shf(a, b, np.minimum(c, 32), left=False), ". . u32"),
    Elementwise("bfe", "u32 s32 u64 s64", bfe, ". u32 u32"),
    Elementwise("bfi", "b32 b64", bfi, ". . u32 u32"),
    Elementwise("bfind", "u32 s32 u64 s64", bfind, ".", "u32"),
    Elementwise("bfind.shiftamt", "u32 s32 u64 s64", bfind_shift, ".", "u32"),
    Elementwise("sad", INTEGERS, lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c, ". . ."),
    Elementwise("brev", "b32 b64", brev, "."),
    Elementwise("popc", "b32 b64", popc, ".", "u32"),
    Elementwise("clz", "b32 b64", clz, ".", "u32"),
    Elementwise("prmt", "b32", prmt, ". . u32"),
    Elementwise("lop3", "b32", lop3, ". . . u32"),
    Elementwise("rcp", "f32 f64", _reciprocal, ".", hints="approx rn ftz"),
    Elementwise("sqrt", "f32 f64", np.sqrt, ".", hints="approx rn ftz"),
    Elementwise("rsqrt", "f32 f64", _inverse_root, ".", hints="approx ftz"),
    Elementwise("sin", "f32", np.sin, ".", hints="approx ftz"),
    Elementwise("cos", "f32", np.cos, ".", hints="approx ftz"),
    Elementwise("lg2", "f32", np.log2, ".", hints="approx ftz"),
    Elementwise("ex2", "f32 f16 f16x2", np.exp2, ".", hints="approx ftz"),
    Elementwise("tanh", "f32 f16 f16x2", np.tanh, ".", hints="approx"),
    Elementwise("copysign", "f32 f64", lambda a, b: np.copysign(b, a)),
)


def store(target: Array, value: Array, active: Active) -> None:
    """Write `value`, one per thread or one for all, where threads are active."""
    if active.whole:
        np.copyto(target, value, casting="unsafe")
    else:
        np.copyto(target, value, casting="unsafe", where=active.mask)


def _typed(kind: str, own: str) -> str:
    if kind == ".":
        return own
    return wider(own) if kind == "wide" else kind


def _build(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    name = ".".join((form.head, *form.modifiers))
    need(len(form.types) == 1, instruction)
    own = form.types[0]
    row = next((row for row in TABLE if row.name == name and own in row.types.split()), None)
    if row is None:
        raise UnsupportedPtx(f"{instruction.opcode} is not executed")
    kinds = [_typed(kind, own) for kind in row.sources.split()]
    need(len(instruction.operands) == 1 + len(kinds), instruction)
    if own == "f16x2":
        return _pairs(row.function, instruction, core)
    sources = [core.registers.source(op, kind) for op, kind in zip(instruction.operands[1:], kinds, strict=True)]
    target = core.registers.target(instruction.operands[0], _typed(row.result, own))
    if form.head in ("shl", "shr") and sources[1].size == 1:
        bits = 8 * sources[0].dtype.itemsize
        sources[1] = np.minimum(sources[1], bits).astype(sources[0].dtype)
        return _direct(np.left_shift if form.head == "shl" else np.right_shift, sources, target)
    if isinstance(row.function, np.ufunc) and target.dtype == DTYPES[own]:
        return _direct(row.function, sources, target)
    function = row.function

    def step(active: Active) -> None:
        store(target, function(*sources), active)

    return step


def _direct(function: Any, sources: list[Array], target: Array) -> Step:
    """A step of a ufunc that writes into the register itself."""

    def step(active: Active) -> None:
        if active.whole:
            function(*sources, out=target)
        else:
            function(*sources, out=target, where=active.mask)

    return step


def _pairs(function: Callable[..., Array], instruction: PtxInstruction, core: CtaBatch) -> Step:
    """A step on both 16-bit halves of 32-bit registers."""
    sources = [core.registers.source(op, "b32").view(np.float16).reshape(-1, 2) for op in instruction.operands[1:]]
    target = core.registers.target(instruction.operands[0], "b32").view(np.float16).reshape(-1, 2)

    def step(active: Active) -> None:
        np.copyto(target, function(*sources), where=True if active.whole else active.mask[:, None])

    return step


def _short(register: Array, start: int, bits: int, *, signed: bool) -> Array:
    """The short integer of `bits` bits from `start` on, as int64."""
    part = np.asarray(register.view(np.uint32).astype(np.int64) >> start & ((1 << bits) - 1))
    return np.where(part >> bits - 1, part - (1 << bits), part) if signed else part


def _dot_product(instruction: PtxInstruction, form: OpcodeForm, core: CtaBatch) -> Step:
    """Dot product of short integers within a register, by which nvcc adds small multiples to an address.

    dp2a.lo.s32.u32 d, a, b, c  -->  d = c + (low 16 bits of a) (byte 0 of b) + (high 16 bits of a) (byte 1 of b)
    dp4a.s32.u32    d, a, b, c  -->  d = c + the sum over all four bytes of a and b
    """
    two = form.head == "dp2a"
    need(len(form.types) == 2 and len(form.modifiers) == two and len(instruction.operands) == 4, instruction)
    signed_a, signed_b = (kind == "s32" for kind in form.types)
    bits, first = (16, 16 if form.modifiers == ("hi",) else 0) if two else (8, 0)
    a, b, c = (core.registers.source(operand, "u32") for operand in instruction.operands[1:])
    target = core.registers.target(instruction.operands[0], "u32")

    def step(active: Active) -> None:
        total = c.astype(np.int64)
        for k in range(32 // bits):
            factor = _short(b, first + 8 * k, 8, signed=signed_b)
            total = total + _short(a, bits * k, bits, signed=signed_a) * factor
        store(target, (total & 0xFFFF_FFFF).astype(np.uint32), active)

    return step


def _rows() -> tuple[OpcodeRow, ...]:
    heads: dict[str, list[Elementwise]] = {}
    for entry in TABLE:
        heads.setdefault(entry.name.split(".")[0], []).append(entry)
    return tuple(
        OpcodeRow(
            head,
            _build,
            frozenset(word for entry in entries for word in entry.name.split(".")[1:]),
            frozenset(word for entry in entries for word in entry.hints.split()),
            frozenset(word for entry in entries for word in entry.types.split()),
        )
        for head, entries in heads.items()
    )


SHORTS: Final = frozenset({"u32", "s32"})
ELEMENTWISE: Final = (
    *_rows(),
    OpcodeRow("dp2a", _dot_product, frozenset({"lo", "hi"}), frozenset(), SHORTS),
    OpcodeRow("dp4a", _dot_product, frozenset(), frozenset(), SHORTS),
)
