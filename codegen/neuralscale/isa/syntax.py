"""Text of one instruction: operand text from the row's syntax.

    Instruction("lw", (("rd", 10), ("imm", 8), ("rs1", 2)))  -->  "lw a0, 8(sp)"

It follows the row, so a new row needs no code here. CSRs are written by name or by number.
"""

from __future__ import annotations

from functools import cache

from codegen.neuralscale.isa.csr import csr_by_number
from codegen.neuralscale.isa.table import row
from codegen.riscv.codec import Instruction
from codegen.riscv.row import FieldKind
from codegen.riscv.syntax import OPERAND_NAMES, format_operand, text_template


@cache
def _template(mnemonic: str) -> tuple[str, tuple[tuple[str, ...] | None, ...], tuple[FieldKind, ...]]:
    """Operand text with a place for every field, and per field its names (None for numbers) and kind."""
    found = row(mnemonic)
    kinds = tuple(field.kind for field in found.fields)
    return text_template(found), tuple(OPERAND_NAMES.get(kind) for kind in kinds), kinds


def format_instruction(instruction: Instruction, *, csr_names: bool = True) -> str:
    """`meconv.mm a0, a1, a2`; with `csr_names` a CSR is shown by name where it has one, else by number."""
    template, names, kinds = _template(instruction.mnemonic)
    texts = [
        table[value] if table is not None else _number(kind, value, csr_names)
        for table, kind, (_, value) in zip(names, kinds, instruction.operands, strict=True)
    ]
    return template % tuple(texts)


def _number(kind: FieldKind, value: int, csr_names: bool) -> str:
    if kind is FieldKind.CSR and csr_names:
        register = csr_by_number(value)
        if register is not None:
            return register.name
    return format_operand(kind, value)
