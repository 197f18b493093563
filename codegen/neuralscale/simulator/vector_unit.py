"""The scalar core's vector unit: 32 registers of 64 halves, masks in v0 (bit 0 of each element), vl elements.

fp16 arithmetic as in the vector engine. Elements past vl are not stored. Memory accesses reach L1 and IM only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.simulator import fp16, vme
from codegen.neuralscale.simulator.faults import Trap
from codegen.neuralscale.simulator.hart import MASK, VECTOR_HALVES, VTYPE_ILLEGAL
from codegen.neuralscale.simulator.operands import check_vtype, in_im, in_l1
from codegen.neuralscale.simulator.single import Execute, Step

MISALIGNED_BASE: Final = 0x2D
MISALIGNED_OFFSET: Final = 0x2E
BAD_ACCESS: Final = 0x2F
SAME_REGISTERS: Final = 0x30

Halves = NDArray[np.uint16]
_SIGN = np.uint16(0x8000)


def _active(step: Step) -> NDArray[np.bool_]:
    """Elements below vl that the mask lets through."""
    hart = step.hart
    active = np.arange(VECTOR_HALVES) < hart.vl
    if not step.word >> 25 & 1:
        active &= (hart.v[0] & 1).astype(bool)
    return active


def _put(step: Step, values: Halves | np.uint16) -> None:
    active = _active(step)
    step.hart.v[step.rd][active] = np.broadcast_to(values, VECTOR_HALVES)[active]


def _first(step: Step) -> Halves:
    """vs1, or the scalar of a .vf form in every element."""
    if step.word >> 12 & 7 == 5:
        scalar = int(fp16.from_f32(step.hart.f32(step.rs1)))
        return np.full(VECTOR_HALVES, scalar, np.uint16)
    values: Halves = step.hart.v[step.rs1].copy()
    return values


def _arithmetic(compute: Callable[[Halves, Halves], Halves]) -> Execute:
    """`compute` of (vs2, first source)."""

    def execute(step: Step) -> None:
        check_vtype(step.hart)
        _put(step, compute(step.hart.v[step.rs2].copy(), _first(step)))

    return execute


def _multiply_add(*, into_product: bool, negate_product: bool, negate_addend: bool) -> Execute:
    """vd = +-(product) +- addend; vd is a factor (`into_product`) or the addend."""

    def execute(step: Step) -> None:
        check_vtype(step.hart)
        vd, vs2, first = step.hart.v[step.rd].copy(), step.hart.v[step.rs2].copy(), _first(step)
        product = vme.binary("mul", vd if into_product else vs2, first)
        addend = vs2 if into_product else vd
        product = product ^ _SIGN if negate_product else product
        _put(step, vme.binary("sub" if negate_addend else "add", product, addend))

    return execute


def _compare(compute: Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.bool_]]) -> Execute:
    def execute(step: Step) -> None:
        check_vtype(step.hart)
        with np.errstate(invalid="ignore"):
            left = step.hart.v[step.rs2].view(np.float16).astype(np.float32)
            right = _first(step).view(np.float16).astype(np.float32)
            _put(step, compute(left, right).astype(np.uint16))

    return execute


def _reduce(compute: Callable[[Halves], Halves]) -> Execute:
    """vd[0] = vs1[0] and the active elements of vs2, in order."""

    def execute(step: Step) -> None:
        check_vtype(step.hart)
        hart = step.hart
        if hart.vl:
            elements = np.concatenate([hart.v[step.rs1][:1], hart.v[step.rs2][_active(step)]])
            hart.v[step.rd][0] = compute(elements[None, :])[0]

    return execute


def _amount(step: Step) -> int:
    return step.rs1 if step.word >> 12 & 7 == 3 else int(step.hart.x[step.rs1])


def _slide_up(step: Step) -> None:
    check_vtype(step.hart)
    if step.rd == step.rs2:
        raise Trap(SAME_REGISTERS)
    amount = min(_amount(step), VECTOR_HALVES)
    values = step.hart.v[step.rd].copy()
    values[amount:] = step.hart.v[step.rs2][: VECTOR_HALVES - amount]
    _put(step, values)


def _slide_down(step: Step) -> None:
    check_vtype(step.hart)
    amount = min(_amount(step), VECTOR_HALVES)
    values = np.zeros(VECTOR_HALVES, np.uint16)
    values[: VECTOR_HALVES - amount] = step.hart.v[step.rs2][amount:]
    _put(step, values)


def _slide_one_up(step: Step) -> None:
    check_vtype(step.hart)
    if step.rd == step.rs2:
        raise Trap(SAME_REGISTERS)
    values = np.roll(step.hart.v[step.rs2], 1)
    values[0] = int(step.hart.x[step.rs1]) & 0xFFFF
    _put(step, values)


def _slide_one_down(step: Step) -> None:
    check_vtype(step.hart)
    values = np.roll(step.hart.v[step.rs2], -1)
    if step.hart.vl:
        values[step.hart.vl - 1] = int(step.hart.x[step.rs1]) & 0xFFFF
    _put(step, values)


def _gather(step: Step) -> None:
    check_vtype(step.hart)
    vector = step.word >> 12 & 7 == 0
    if step.rd == step.rs2 or (vector and step.rd == step.rs1):
        raise Trap(SAME_REGISTERS)
    source = step.hart.v[step.rs2]
    indices = step.hart.v[step.rs1].astype(np.int64) if vector else np.full(VECTOR_HALVES, _amount(step), np.int64)
    inside = indices < VECTOR_HALVES
    _put(step, np.where(inside, source[np.where(inside, indices, 0)], np.uint16(0)))


def _merge(step: Step) -> None:
    """vfmerge and vfmv.v.f: the scalar where the mask is set (or everywhere), else vs2."""
    check_vtype(step.hart)
    hart = step.hart
    chosen = _active(step)
    values = np.where(chosen, _first(step), hart.v[step.rs2])
    hart.v[step.rd][: hart.vl] = values[: hart.vl]


def _move_to_f(step: Step) -> None:
    check_vtype(step.hart)
    step.hart.set_f32(step.rd, fp16.to_f32_bits(int(step.hart.v[step.rs2][0])))


def _move_from_f(step: Step) -> None:
    check_vtype(step.hart)
    step.hart.v[step.rd][0] = fp16.from_f32(step.hart.f32(step.rs1))


def _move_from_x(step: Step) -> None:
    check_vtype(step.hart)
    if step.hart.vl:
        step.hart.v[step.rd][0] = int(step.hart.x[step.rs1]) & 0xFFFF


def _index(step: Step) -> None:
    check_vtype(step.hart)
    _put(step, np.arange(VECTOR_HALVES, dtype=np.uint16))


def _set_length(step: Step) -> None:
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
        length = VECTOR_HALVES if step.rd else min(hart.vl, VECTOR_HALVES)
    elif wanted <= VECTOR_HALVES:
        length = wanted
    else:
        length = (wanted + 1) // 2 if wanted <= 2 * VECTOR_HALVES else VECTOR_HALVES
    hart.vl = length
    hart.set_x(step.rd, length)


def _check_access(address: int, size_bytes: int) -> None:
    last = address + size_bytes - 1
    if not ((in_l1(address) and in_l1(last)) or (in_im(address) and in_im(last))):
        raise Trap(BAD_ACCESS, address)


def _addresses(step: Step, item: int, *, strided: bool) -> range:
    """Addresses of the vl elements, after the checks. The chip measures a strided access as vl * stride * 2 bytes."""
    hart = step.hart
    check_vtype(hart)
    address, stride = int(hart.x[step.rs1]), int(hart.x[step.rs2]) if strided else item
    if hart.vl == 0:
        return range(0)
    if address & (item - 1):
        raise Trap(MISALIGNED_BASE, address)
    if strided and stride & 1:
        raise Trap(MISALIGNED_OFFSET, stride)
    _check_access(address, hart.vl * stride * 2 if strided else hart.vl * 2)
    return range(address, address + hart.vl * stride, stride) if stride else range(address, address + hart.vl)


def _advance(step: Step, *, strided: bool) -> None:
    hart = step.hart
    move = int(hart.x[step.rs2]) * (hart.vl if strided else 1)
    hart.set_x(step.rs1, int(hart.x[step.rs1]) + move & MASK)


def _load(item: int = 2, *, signed: bool = False, strided: bool = False, advance: bool = False) -> Execute:
    def execute(step: Step) -> None:
        hart, active = step.hart, _active(step)
        addresses = _addresses(step, item, strided=strided)
        fixed = strided and not int(hart.x[step.rs2])
        for element, address in enumerate(addresses):
            if active[element]:
                value = step.bus.load(hart, addresses[0] if fixed else address, item)
                value = (value ^ 0x80) - 0x80 if signed else value
                hart.v[step.rd][element] = value & 0xFFFF
        if advance:
            _advance(step, strided=strided)

    return execute


def _store(item: int = 2, *, strided: bool = False, advance: bool = False) -> Execute:
    def execute(step: Step) -> None:
        hart, active = step.hart, _active(step)
        addresses = _addresses(step, item, strided=strided)
        fixed = strided and not int(hart.x[step.rs2])
        for element, address in enumerate(addresses):
            if active[element]:
                value = int(hart.v[step.rd][element])
                step.bus.store(hart, addresses[0] if fixed else address, item, value)
        if advance:
            _advance(step, strided=strided)

    return execute


def _sign(combine: Callable[[Halves, Halves], Halves]) -> Execute:
    return _arithmetic(lambda a, b: (a & np.uint16(0x7FFF)) | (combine(a, b) & _SIGN))


def _both(name: str, execute: Execute) -> dict[str, Execute]:
    return {f"{name}.vv": execute, f"{name}.vf": execute}


VECTOR_UNIT: Final[dict[str, Execute]] = {
    "vsetvl": _set_length,
    "vsetvli": _set_length,
    "vlb.v": _load(1, signed=True),
    "vlbu.v": _load(1),
    "vlh.v": _load(),
    "vlhu.v": _load(),
    "vle.v": _load(),
    "vlse.v": _load(strided=True),
    "vsb.v": _store(1),
    "vsh.v": _store(),
    "vse.v": _store(),
    "vsse.v": _store(strided=True),
    "vlepi.v": _load(advance=True),
    "vlsepi.v": _load(strided=True, advance=True),
    "vsepi.v": _store(advance=True),
    "vssepi.v": _store(strided=True, advance=True),
    **_both("vfadd", _arithmetic(lambda a, b: vme.binary("add", a, b))),
    **_both("vfsub", _arithmetic(lambda a, b: vme.binary("sub", a, b))),
    **_both("vfrsub", _arithmetic(lambda a, b: vme.binary("sub", b, a))),
    **_both("vfmul", _arithmetic(lambda a, b: vme.binary("mul", a, b))),
    **_both("vfdiv", _arithmetic(lambda a, b: vme.binary("mul", a, vme.recip(b)))),
    **_both("vfrdiv", _arithmetic(lambda a, b: vme.binary("mul", b, vme.recip(a)))),
    **_both("vfmin", _arithmetic(lambda a, b: vme.binary("min", a, b))),
    **_both("vfmax", _arithmetic(lambda a, b: vme.binary("max", a, b))),
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
    "vfredmin.vs": _reduce(lambda row: vme.minimum(row, "w")),
    "vfredmax.vs": _reduce(lambda row: vme.maximum(row, "w")),
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
    "vfmerge.vfm": _merge,
    "vfmv.v.f": _merge,
    "vfmv.f.s": _move_to_f,
    "vfmv.s.f": _move_from_f,
    "vmv.s.x": _move_from_x,
    "vid.v": _index,
}
"""What each instruction of the vector unit does, by family."""
