"""The scalar core's vector unit: 32 registers of 64 fp16 elements, masks in v0 (bit 0 of each element), vl elements.

The fp16 arithmetic is that of the vector engine. Elements past vl are not stored. Loads and stores are in
`vector_memory`, instructions on masks in `vector_masks`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.simulator.arithmetic import fp16, vme
from codegen.neuralscale.simulator.core.hart import VECTOR_ELEMENTS, VTYPE_ILLEGAL
from codegen.neuralscale.simulator.core.operands import check_vtype
from codegen.neuralscale.simulator.instructions.single import Execute, ExecutionStep
from codegen.neuralscale.simulator.memory.faults import Trap

SAME_REGISTERS: Final = 0x30

Fp16Bits = NDArray[np.uint16]
_SIGN: Final = np.uint16(0x8000)
_MINUS_INFINITY: Final = np.uint16(0xFC00)


def active(step: ExecutionStep) -> NDArray[np.bool_]:
    """Elements below vl that the mask enables."""
    hart = step.hart
    active = np.arange(VECTOR_ELEMENTS) < hart.vl
    if not step.word >> 25 & 1:
        active &= (hart.v[0] & 1).astype(bool)
    return active


def put(step: ExecutionStep, values: Fp16Bits | np.uint16) -> None:
    chosen = active(step)
    step.hart.v[step.rd][chosen] = np.broadcast_to(values, VECTOR_ELEMENTS)[chosen]


def _first(step: ExecutionStep) -> Fp16Bits:
    """Operand vs1, or the scalar of a .vf form in every element."""
    if step.word >> 12 & 7 == 5:
        scalar = int(fp16.from_f32(step.hart.f32(step.rs1)))
        return np.full(VECTOR_ELEMENTS, scalar, np.uint16)
    values: Fp16Bits = step.hart.v[step.rs1].copy()
    return values


def _arithmetic(compute: Callable[[Fp16Bits, Fp16Bits], Fp16Bits]) -> Execute:
    """Arithmetic operation: `compute` of (vs2, first source)."""

    def execute(step: ExecutionStep) -> None:
        put(step, compute(step.hart.v[step.rs2].copy(), _first(step)))

    return execute


def _multiply_add(*, into_product: bool, negate_product: bool, negate_addend: bool) -> Execute:
    """Multiply-add: vd = +-(product) +- addend; vd is a factor (`into_product`) or the addend."""

    def execute(step: ExecutionStep) -> None:
        vd, vs2, first = step.hart.v[step.rd].copy(), step.hart.v[step.rs2].copy(), _first(step)
        product = vme.binary("mul", vd if into_product else vs2, first)
        addend = vs2 if into_product else vd
        product = product ^ _SIGN if negate_product else product
        put(step, vme.binary("sub" if negate_addend else "add", product, addend))

    return execute


def _compare(compute: Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.bool_]]) -> Execute:
    def execute(step: ExecutionStep) -> None:
        with np.errstate(invalid="ignore"):
            left = step.hart.v[step.rs2].view(np.float16).astype(np.float32)
            right = _first(step).view(np.float16).astype(np.float32)
            put(step, compute(left, right).astype(np.uint16))

    return execute


def _reduce(compute: Callable[[Fp16Bits], Fp16Bits]) -> Execute:
    """Reduction: vd[0] is `compute` of vs1[0] and the active elements of vs2, in order."""

    def execute(step: ExecutionStep) -> None:
        hart = step.hart
        if hart.vl:
            elements = np.concatenate([hart.v[step.rs1][:1], hart.v[step.rs2][active(step)]])
            hart.v[step.rd][0] = compute(elements[None, :])[0]

    return execute


def _amount(step: ExecutionStep) -> int:
    return step.rs1 if step.word >> 12 & 7 == 3 else int(step.hart.x[step.rs1])


def _slide_up(step: ExecutionStep) -> None:
    if step.rd == step.rs2:
        raise Trap(SAME_REGISTERS)
    amount = min(_amount(step), VECTOR_ELEMENTS)
    values = step.hart.v[step.rd].copy()
    values[amount:] = step.hart.v[step.rs2][: VECTOR_ELEMENTS - amount]
    put(step, values)


def _slide_down(step: ExecutionStep) -> None:
    """Slide down: element i is vs2[i + amount], 0 outside the register; an amount in a GPR is signed."""
    amount = _amount(step)
    places = np.arange(VECTOR_ELEMENTS) + (amount - (amount >> 31 << 32))
    inside = (places >= 0) & (places < VECTOR_ELEMENTS)
    put(step, np.where(inside, step.hart.v[step.rs2][np.where(inside, places, 0)], np.uint16(0)))


def _slide_one_up(step: ExecutionStep) -> None:
    if step.rd == step.rs2:
        raise Trap(SAME_REGISTERS)
    values = np.roll(step.hart.v[step.rs2], 1)
    values[0] = int(step.hart.x[step.rs1]) & 0xFFFF
    put(step, values)


def _slide_one_down(step: ExecutionStep) -> None:
    values = np.roll(step.hart.v[step.rs2], -1)
    if step.hart.vl:
        values[step.hart.vl - 1] = int(step.hart.x[step.rs1]) & 0xFFFF
    put(step, values)


def _gather(step: ExecutionStep) -> None:
    vector = step.word >> 12 & 7 == 0
    over_mask = step.rd == 0 and not step.word >> 25 & 1
    if over_mask or step.rd == step.rs2 or (vector and step.rd == step.rs1):
        raise Trap(SAME_REGISTERS)
    source = step.hart.v[step.rs2]
    indices = step.hart.v[step.rs1].astype(np.int64) if vector else np.full(VECTOR_ELEMENTS, _amount(step), np.int64)
    inside = indices < VECTOR_ELEMENTS
    put(step, np.where(inside, source[np.where(inside, indices, 0)], np.uint16(0)))


def _merge(step: ExecutionStep) -> None:
    """vfmerge and vfmv.v.f: the scalar where the mask is set (or everywhere), else vs2."""
    hart = step.hart
    chosen = active(step)
    values = np.where(chosen, _first(step), hart.v[step.rs2])
    hart.v[step.rd][: hart.vl] = values[: hart.vl]


def _move_to_f(step: ExecutionStep) -> None:
    if step.hart.vl:
        step.hart.set_f32(step.rd, fp16.to_f32_bits(int(step.hart.v[step.rs2][0])))


def _move_from_f(step: ExecutionStep) -> None:
    if step.hart.vl:
        step.hart.v[step.rd][0] = fp16.from_f32(step.hart.f32(step.rs1))


def _move_from_x(step: ExecutionStep) -> None:
    if step.hart.vl:
        step.hart.v[step.rd][0] = int(step.hart.x[step.rs1]) & 0xFFFF


def _extract(step: ExecutionStep) -> None:
    index = int(step.hart.x[step.rs1]) & 0xFFFF
    if step.hart.vl:
        step.hart.set_x(step.rd, int(step.hart.v[step.rs2][index]) if index < VECTOR_ELEMENTS else 0)


def _set_length(step: ExecutionStep) -> None:
    hart = step.hart
    immediate = not step.word >> 31
    vtype = step.word >> 20 & 0x7FF if immediate else int(hart.x[step.rs2])
    if vtype >> 2 & 7 != 1 or vtype & 3:
        hart.vtype = VTYPE_ILLEGAL
        hart.set_x(step.rd, 0)
        return
    hart.vtype = vtype
    wanted = int(hart.x[step.rs1])
    if step.rs1 == 0:
        length = VECTOR_ELEMENTS if step.rd else min(hart.vl, VECTOR_ELEMENTS)
    elif wanted <= VECTOR_ELEMENTS:
        length = wanted
    else:
        length = (wanted + 1) // 2 if wanted <= 2 * VECTOR_ELEMENTS else VECTOR_ELEMENTS
    hart.vl = length
    hart.set_x(step.rd, length)


def _magnitude(a: Fp16Bits) -> Fp16Bits:
    """The chip's absolute value, which negates numbers below zero, so -0 and NaN keep their sign."""
    return np.where((a > _SIGN) & (a <= _MINUS_INFINITY), a ^ _SIGN, a)


def _sign(negative: Callable[[Fp16Bits, Fp16Bits], NDArray[Any]]) -> Execute:
    """The magnitude of vs2, with its sign flipped where `negative` of the two sources holds."""
    return _arithmetic(lambda a, b: _magnitude(a) ^ (negative(a, b) & _SIGN))


def _select(choose: Callable[[Fp16Bits, vme.Direction], Fp16Bits]) -> Execute:
    """vfmin and vfmax. They order -0 < +0, as the reductions of the vector engine do and its element-wise forms do
    not."""
    return _arithmetic(lambda a, b: choose(np.stack([a, b]), "h"))


def _extremum(wins: Callable[[float, float], bool]) -> Execute:
    """vfredmin and vfredmax: NaN elements are skipped, a NaN as the initial value stays, equal values keep the
    earlier."""

    def execute(step: ExecutionStep) -> None:
        hart = step.hart
        if not hart.vl:
            return
        best = hart.v[step.rs1][0]
        for element in hart.v[step.rs2][active(step)]:
            if wins(float(element.view(np.float16)), float(best.view(np.float16))):
                best = element
        hart.v[step.rd][0] = best

    return execute


def _classify(a: Fp16Bits) -> Fp16Bits:
    """Class of a number as one bit: -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf, signalling NaN, quiet
    NaN."""
    magnitude = (a & np.uint16(0x7FFF)).astype(np.int64)
    kind = np.digitize(magnitude, [1, 0x400, 0x7C00])  # zero, denormal, normal, infinity
    bit = np.where(a & _SIGN, 3 - kind, 4 + kind)
    bit = np.where(magnitude > 0x7C00, np.where(magnitude & 0x200, 9, 8), bit)
    return (np.int64(1) << bit).astype(np.uint16)


def _from_integers(values: NDArray[Any]) -> Fp16Bits:
    """Integers to fp16, truncated toward zero."""
    return np.array([fp16.from_f32(int(bits)) for bits in values.astype(np.float32).view(np.uint32)], np.uint16)


def with_vtype(instructions: dict[str, Execute]) -> dict[str, Execute]:
    """The instructions, each of which first checks that vtype is legal."""

    def checked(execute: Execute) -> Execute:
        def run(step: ExecutionStep) -> None:
            check_vtype(step.hart)
            execute(step)

        return run

    return {family: checked(execute) for family, execute in instructions.items()}


def _both(name: str, execute: Execute) -> dict[str, Execute]:
    return {f"{name}.vv": execute, f"{name}.vf": execute}


_COMPUTING: Final[dict[str, Execute]] = {
    **_both("vfadd", _arithmetic(lambda a, b: vme.binary("add", a, b))),
    **_both("vfsub", _arithmetic(lambda a, b: vme.binary("sub", a, b))),
    **_both("vfrsub", _arithmetic(lambda a, b: vme.binary("sub", b, a))),
    **_both("vfmul", _arithmetic(lambda a, b: vme.binary("mul", a, b))),
    **_both("vfdiv", _arithmetic(lambda a, b: vme.binary("mul", a, vme.recip(b)))),
    **_both("vfrdiv", _arithmetic(lambda a, b: vme.binary("mul", b, vme.recip(a)))),
    **_both("vfmin", _select(vme.minimum)),
    **_both("vfmax", _select(vme.maximum)),
    **_both("vfsgnj", _sign(lambda _, b: b)),
    **_both("vfsgnjn", _sign(lambda _, b: ~b)),
    **_both("vfsgnjx", _sign(lambda a, b: a ^ b)),
    **_both("vfmadd", _multiply_add(into_product=True, negate_product=False, negate_addend=False)),
    **_both("vfnmadd", _multiply_add(into_product=True, negate_product=True, negate_addend=True)),
    **_both("vfmsub", _multiply_add(into_product=True, negate_product=False, negate_addend=True)),
    **_both("vfnmsub", _multiply_add(into_product=True, negate_product=True, negate_addend=False)),
    **_both("vfmacc", _multiply_add(into_product=False, negate_product=False, negate_addend=False)),
    **_both("vfnmacc", _multiply_add(into_product=False, negate_product=True, negate_addend=True)),
    **_both("vfmsac", _multiply_add(into_product=False, negate_product=False, negate_addend=True)),
    **_both("vfnmsac", _multiply_add(into_product=False, negate_product=True, negate_addend=False)),
    **_both("vmfeq", _compare(np.equal)),
    **_both("vmfle", _compare(np.less_equal)),
    **_both("vmflt", _compare(np.less)),
    **_both("vmfne", _compare(np.not_equal)),
    **_both("vmfgt", _compare(np.greater)),
    **_both("vmfge", _compare(np.greater_equal)),
    "vfredsum.vs": _reduce(lambda row: vme.accumulate(row, "w")),
    "vfredosum.vs": _reduce(lambda row: vme.accumulate(row, "w")),
    "vfredmin.vs": _extremum(operator.lt),
    "vfredmax.vs": _extremum(operator.gt),
    "vslideup.vx": _slide_up,
    "vslideup.vi": _slide_up,
    "vslide1up.vx": _slide_one_up,
    "vslidedown.vx": _slide_down,
    "vslidedown.vi": _slide_down,
    "vslide1down.vx": _slide_one_down,
    "vrgather.vv": _gather,
    "vrgather.vx": _gather,
    "vrgather.vi": _gather,
    "vfsqrt.v": _arithmetic(lambda a, _: vme.sqrt(a)),
    "vfexp.v": _arithmetic(lambda a, _: vme.exp(a)),
    "vfclass.v": _arithmetic(lambda a, _: _classify(a)),
    "vfcvt.f.x.v": _arithmetic(lambda a, _: _from_integers(a.view(np.int16))),
    "vfcvt.f.xu.v": _arithmetic(lambda a, _: _from_integers(a)),
    "vfmerge.vfm": _merge,
    "vfmv.v.f": _merge,
    "vfmv.f.s": _move_to_f,
    "vfmv.s.f": _move_from_f,
    "vmv.s.x": _move_from_x,
    "vext.x.v": _extract,
}

VECTOR_UNIT: Final = {"vsetvl": _set_length, "vsetvli": _set_length, **with_vtype(_COMPUTING)}
"""Implementation of each instruction of the vector unit, by family."""
