"""Rows of the scalar core: those of RISC-V, and the two half-precision accesses of the chip's own extension."""

from __future__ import annotations

from codegen.neuralscale.isa.row import InstructionRow
from codegen.riscv.row import FPR, GPR, Field, GnuForm
from codegen.riscv.scalar import RV32_ROWS

_RS1 = Field("rs1", GPR, ((0, 5, 15),))
_FRD = Field("rd", FPR, ((0, 5, 7),))
_FRS2 = Field("rs2", FPR, ((0, 5, 20),))


def _half(
    mnemonic: str, encoding: str, match: int, fields: tuple[Field, ...], meaning: str, syntax: str
) -> InstructionRow:
    mask = 0xFFFFFFFF & ~sum(field.word_mask for field in fields)
    return InstructionRow(mnemonic, "NPU", encoding, match, mask, fields, meaning, syntax, gnu=GnuForm.INSN_WORD)


# The immediate of these two is always zero: the vendor's simulator stops on any other.
_HALF: tuple[InstructionRow, ...] = (
    _half("flhw", "I", 0x105B, (_FRD, _RS1), "rd = fp16 at rs1 as fp32, exact", "rd, (rs1)"),
    _half(
        "fshw",
        "S",
        0x405B,
        (_FRS2, _RS1),
        "fp16 at rs1 = fp32 rs2, truncated toward zero, finite values saturate",
        "rs2, (rs1)",
    ),
)

SCALAR_ROWS: tuple[InstructionRow, ...] = (*map(InstructionRow.of, RV32_ROWS), *_HALF)
"""Every scalar instruction, by extension."""
