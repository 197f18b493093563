"""Table of all executable opcodes, one row per head, and the step of an instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from codegen.cutlass.ptx.access import ACCESS
from codegen.cutlass.ptx.active import Active
from codegen.cutlass.ptx.choices import CHOICES
from codegen.cutlass.ptx.conversions import CONVERSIONS
from codegen.cutlass.ptx.copies import COPIES
from codegen.cutlass.ptx.dot_products import DOT_PRODUCTS
from codegen.cutlass.ptx.elementwise import ELEMENTWISE
from codegen.cutlass.ptx.errors import PtxError, UnsupportedPtx
from codegen.cutlass.ptx.fences import FENCES
from codegen.cutlass.ptx.matrix import MATRIX
from codegen.cutlass.ptx.mbarrier_operations import MBARRIERS
from codegen.cutlass.ptx.module import PtxInstruction
from codegen.cutlass.ptx.rows import OpcodeRow, Step, split
from codegen.cutlass.ptx.warp import WARPS
from codegen.cutlass.ptx.wgmma import WGMMA

if TYPE_CHECKING:
    from codegen.cutlass.ptx.core import CtaBatch

OPCODES: Final[dict[str, OpcodeRow]] = {
    row.head: row
    for row in (
        *ELEMENTWISE,
        *DOT_PRODUCTS,
        *CHOICES,
        *CONVERSIONS,
        *ACCESS,
        *COPIES,
        *WARPS,
        *MATRIX,
        *WGMMA,
        *FENCES,
        *MBARRIERS,
    )
}


def decode(instruction: PtxInstruction, core: CtaBatch) -> Step:
    """The step of an instruction, including its guard. Raises UnsupportedPtx, with the line."""
    row = OPCODES.get(instruction.parts[0])
    try:
        if row is None:
            raise UnsupportedPtx(f"opcode {instruction.opcode} is not executed")
        return guarded(instruction, row.build(instruction, split(instruction.opcode, row), core), core)
    except PtxError as error:
        raise type(error)(error.reason, line=instruction.line) if not error.line else error from None


def guarded(instruction: PtxInstruction, step: Step, core: CtaBatch) -> Step:
    """The step for the threads that pass the instruction's guard."""
    if instruction.guard is None:
        return step
    predicate, negated = core.registers.predicate(instruction.guard)

    def chosen(active: Active) -> None:
        some = active.where(predicate, negated)
        if some.mask.any():
            step(some)

    return chosen
