"""Machine words: those of the 64-bit RISC-V core, and one row per function of the accelerator.

    Instruction("mvin", (("rs1", 10), ("rs2", 11)))  <-- encode, decode -->  0x04b5307b

The accelerator's are R-type words of the fourth custom opcode whose third function field says that both source
registers are read.
"""

from __future__ import annotations

from functools import lru_cache

from codegen.gemmini.isa.operations import FUNCTIONS
from codegen.riscv.codec import Codec, Instruction
from codegen.riscv.row import GPR, Field, GnuForm, Row
from codegen.riscv.scalar import RV64_ROWS
from codegen.riscv.syntax import OPERAND_NAMES, format_operand, text_template

OPCODE = 0x7B
READS_BOTH = 3

_FIELDS = (Field("rs1", GPR, ((0, 5, 15),)), Field("rs2", GPR, ((0, 5, 20),)))
_MASK = 0xFFFFFFFF & ~sum(field.word_mask for field in _FIELDS)


def _function(name: str, number: int) -> Row:
    match = number << 25 | READS_BOTH << 12 | OPCODE
    return Row(name, "Gemmini", "R", match, _MASK, _FIELDS, "done by the accelerator", gnu=GnuForm.INSN_R)


ROWS: tuple[Row, ...] = (*(_function(name, number) for name, number in FUNCTIONS.items()), *RV64_ROWS)
"""Every instruction, the accelerator's first."""

CODEC = Codec(ROWS)


@lru_cache(maxsize=1 << 16)
def instruction(mnemonic: str, *values: int) -> Instruction:
    """The instruction with these operand values, in the row's order. Raises IsaError."""
    return CODEC.instruction(mnemonic, values)


def format_instruction(made: Instruction) -> str:
    """`mvin a0, a1`"""
    row = CODEC.row(made.mnemonic)
    kinds = [field.kind for field in row.fields]
    texts = [
        OPERAND_NAMES[kind][value] if kind in OPERAND_NAMES else format_operand(kind, value)
        for kind, (_, value) in zip(kinds, made.operands, strict=True)
    ]
    return text_template(row) % tuple(texts)
