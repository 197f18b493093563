"""Table of all executable opcodes, one row per head, and the step of an instruction."""

from __future__ import annotations

from typing import Final

from codegen.cutlass.ptx.instructions.access import ACCESS
from codegen.cutlass.ptx.instructions.choices import CHOICES
from codegen.cutlass.ptx.instructions.conversions import CONVERSIONS
from codegen.cutlass.ptx.instructions.copies import COPIES
from codegen.cutlass.ptx.instructions.elementwise import ELEMENTWISE
from codegen.cutlass.ptx.instructions.fences import FENCES
from codegen.cutlass.ptx.instructions.matrix import MATRIX
from codegen.cutlass.ptx.instructions.mbarrier_operations import MBARRIERS
from codegen.cutlass.ptx.instructions.rows import OpcodeRow, Step, split
from codegen.cutlass.ptx.instructions.warp import WARPS
from codegen.cutlass.ptx.instructions.wgmma import WGMMA
from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.text.errors import PtxError, UnsupportedPtx
from codegen.cutlass.ptx.text.module import PtxInstruction

OPCODES: Final[dict[str, OpcodeRow]] = {
    row.head: row
    for row in (
        *ELEMENTWISE,
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
