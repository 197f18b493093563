"""Loads and stores of the vector unit: contiguous, strided, indexed, and with a post-incremented address.

They reach only L1 and IM. The chip checks the whole range before the first element, except for the indexed forms, which
check each element, including those that the mask leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import numpy as np

from codegen.neuralscale.simulator.core.hart import MASK
from codegen.neuralscale.simulator.core.operands import check_vtype, in_im, in_l1
from codegen.neuralscale.simulator.instructions.single import Execute, ExecutionStep
from codegen.neuralscale.simulator.instructions.vector_unit import active
from codegen.neuralscale.simulator.memory.faults import Trap

MISALIGNED_BASE: Final = 0x2D
MISALIGNED_OFFSET: Final = 0x2E
BAD_ACCESS: Final = 0x2F

Layout = Literal["unit", "strided", "indexed"]


def _check_access(address: int, size_bytes: int) -> None:
    last = address + size_bytes - 1
    if not ((in_l1(address) and in_l1(last)) or (in_im(address) and in_im(last))):
        raise Trap(BAD_ACCESS, address)


def _check_base(step: ExecutionStep, item: int) -> int:
    check_vtype(step.hart)
    address = int(step.hart.x[step.rs1])
    if address & (item - 1):
        raise Trap(MISALIGNED_BASE, address)
    return address


def _unit(step: ExecutionStep, item: int) -> Iterator[int]:
    """Addresses of the vl elements. Byte accesses are checked as if they were 16-bit accesses."""
    address = _check_base(step, item)
    _check_access(address, step.hart.vl * 2)
    return (address + element * item for element in range(step.hart.vl))


def _strided(step: ExecutionStep, item: int) -> Iterator[int]:
    """Addresses rs2 bytes apart; the chip checks vl * rs2 * 2 bytes, twice the range in use."""
    address, stride = _check_base(step, item), int(step.hart.x[step.rs2])
    if stride & (item - 1):
        raise Trap(MISALIGNED_OFFSET, stride)
    _check_access(address, step.hart.vl * stride * 2)
    return (address + element * stride for element in range(step.hart.vl))


def _indexed(step: ExecutionStep, item: int) -> Iterator[int]:
    """Addresses rs1 plus the element of vs2."""
    address = _check_base(step, item)
    for index in step.hart.v[step.rs2][: step.hart.vl].tolist():
        if index & (item - 1):
            raise Trap(MISALIGNED_OFFSET, index)
        _check_access(address + index, 2)
        yield address + index


_LAYOUTS: Final = {"unit": _unit, "strided": _strided, "indexed": _indexed}


def _advance(step: ExecutionStep, layout: Layout) -> None:
    hart = step.hart
    move = int(hart.x[step.rs2]) * (hart.vl if layout == "strided" else 1)
    hart.set_x(step.rs1, int(hart.x[step.rs1]) + move & MASK)


def _access(
    layout: Layout, item: int, *, store: bool, signed: bool = False, advance: bool = False, eager: bool = False
) -> Execute:
    """One access. `eager` forms are checked even when vl is 0, which makes them test the byte before rs1."""

    def execute(step: ExecutionStep) -> None:
        hart, chosen = step.hart, active(step)
        check_vtype(hart)
        if hart.vl == 0 and not eager:
            return
        if item == 1 and layout != "unit" and not step.word >> 25 & 1:
            # These forms take the mask of element i from byte i of v0.
            chosen = (hart.v[0].view(np.uint8)[: len(chosen)] & 1).astype(bool)
        for element, address in enumerate(_LAYOUTS[layout](step, item)):
            if not chosen[element]:
                continue
            if store:
                step.bus.store(hart, address, item, int(hart.v[step.rd][element]))
            else:
                value = step.bus.load(hart, address, item)
                hart.v[step.rd][element] = ((value ^ 0x80) - 0x80 if signed and item == 1 else value) & 0xFFFF
        if advance:
            _advance(step, layout)

    return execute


VECTOR_MEMORY: Final[dict[str, Execute]] = {
    "vlb.v": _access("unit", 1, store=False, signed=True, eager=True),
    "vlbu.v": _access("unit", 1, store=False, eager=True),
    "vlh.v": _access("unit", 2, store=False, eager=True),
    "vlhu.v": _access("unit", 2, store=False, eager=True),
    "vle.v": _access("unit", 2, store=False),
    "vsh.v": _access("unit", 2, store=True, eager=True),
    "vse.v": _access("unit", 2, store=True),
    "vlsb.v": _access("strided", 1, store=False, signed=True),
    "vlsbu.v": _access("strided", 1, store=False),
    "vlsh.v": _access("strided", 2, store=False, eager=True),
    "vlshu.v": _access("strided", 2, store=False, eager=True),
    "vlse.v": _access("strided", 2, store=False),
    "vssh.v": _access("strided", 2, store=True),
    "vsse.v": _access("strided", 2, store=True),
    "vlxb.v": _access("indexed", 1, store=False, signed=True),
    "vlxbu.v": _access("indexed", 1, store=False),
    "vlxh.v": _access("indexed", 2, store=False),
    "vlxhu.v": _access("indexed", 2, store=False),
    "vlxe.v": _access("indexed", 2, store=False),
    "vsxh.v": _access("indexed", 2, store=True),
    "vsxe.v": _access("indexed", 2, store=True),
    "vlepi.v": _access("unit", 2, store=False, advance=True),
    "vlsepi.v": _access("strided", 2, store=False, advance=True),
    "vsepi.v": _access("unit", 2, store=True, advance=True),
    "vssepi.v": _access("strided", 2, store=True, advance=True),
}
"""Implementation of each load and store of the vector unit, by family."""
