"""Instructions of the vector unit on masks: bit 0 of each element, written as 0 or 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from codegen.neuralscale.simulator.core.hart import MASK, VECTOR_ELEMENTS
from codegen.neuralscale.simulator.instructions.single import Execute, ExecutionStep
from codegen.neuralscale.simulator.instructions.vector_unit import SAME_REGISTERS, Fp16Bits, active, put, with_vtype
from codegen.neuralscale.simulator.memory.faults import Trap

_ONE: Final = np.uint16(1)


def _logic(compute: Callable[[Fp16Bits, Fp16Bits], NDArray[Any]]) -> Execute:
    """Logical operation: `compute` of (vs2, vs1); only its bit 0 is kept."""

    def execute(step: ExecutionStep) -> None:
        put(step, (compute(step.hart.v[step.rs2], step.hart.v[step.rs1]) & _ONE).astype(np.uint16))

    return execute


def _set_bits(step: ExecutionStep) -> NDArray[np.int64]:
    """Positions of the active elements of vs2 whose bit is set."""
    return np.flatnonzero(active(step) & (step.hart.v[step.rs2] & _ONE).astype(bool))


def _count(step: ExecutionStep) -> None:
    if step.hart.vl:
        step.hart.set_x(step.rd, len(_set_bits(step)))


def _first(step: ExecutionStep) -> None:
    places = _set_bits(step)
    if step.hart.vl:
        step.hart.set_x(step.rd, int(places[0]) if len(places) else MASK)


def _around_first(compare: Callable[[NDArray[np.int64], int], NDArray[np.bool_]]) -> Execute:
    """1 where the position compares to that of the first set bit; with no set bit everything is 1."""

    def execute(step: ExecutionStep) -> None:
        places = _set_bits(step)
        index = np.arange(VECTOR_ELEMENTS)
        chosen = compare(index, int(places[0])) if len(places) else np.ones(VECTOR_ELEMENTS, np.bool_)
        put(step, chosen.astype(np.uint16))

    return execute


def _iota(step: ExecutionStep) -> None:
    """Number of active set bits of vs2 before each element."""
    if step.rd == step.rs2 or (step.rd == 0 and not step.word >> 25 & 1):
        raise Trap(SAME_REGISTERS)
    bits = np.zeros(VECTOR_ELEMENTS, np.int64)
    bits[_set_bits(step)] = 1
    put(step, (np.cumsum(bits) - bits).astype(np.uint16))


def _compress(step: ExecutionStep) -> None:
    """Pack the elements of vs2 whose bit in vs1 is set at the start of vd. This is the only one that ignores vtype."""
    if step.rd in (step.rs1, step.rs2):
        raise Trap(SAME_REGISTERS)
    hart = step.hart
    packed = hart.v[step.rs2][: hart.vl][(hart.v[step.rs1][: hart.vl] & _ONE).astype(bool)]
    hart.v[step.rd][: len(packed)] = packed


def _index(step: ExecutionStep) -> None:
    put(step, np.arange(VECTOR_ELEMENTS, dtype=np.uint16))


_MASKS: Final[dict[str, Execute]] = {
    "vmandnot.mm": _logic(lambda a, b: a & ~b),
    "vmand.mm": _logic(lambda a, b: a & b),
    "vmor.mm": _logic(lambda a, b: a | b),
    "vmxor.mm": _logic(lambda a, b: a ^ b),
    "vmornot.mm": _logic(lambda a, b: a | ~b),
    "vmnand.mm": _logic(lambda a, b: ~(a & b)),
    "vmnor.mm": _logic(lambda a, b: ~(a | b)),
    "vmxnor.mm": _logic(lambda a, b: ~(a ^ b)),
    "vpopc.m": _count,
    "vfirst.m": _first,
    "vmsbf.m": _around_first(lambda index, first: index < first),
    "vmsof.m": _around_first(lambda index, first: index == first),
    "vmsif.m": _around_first(lambda index, first: index <= first),
    "viota.m": _iota,
    "vid.v": _index,
}

VECTOR_MASKS: Final = {"vcompress.vm": _compress, **with_vtype(_MASKS)}
"""Implementation of each instruction on masks, by family."""
