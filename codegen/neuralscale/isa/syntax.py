"""Text of one instruction: operand text from the row's syntax.

    Instruction("lw", (("rd", 10), ("imm", 8), ("rs1", 2)))  -->  "lw a0, 8(sp)"

It follows the row, so a new row needs no code here. CSRs are written by name or by number.
"""

from __future__ import annotations

import re
from functools import cache

from codegen.neuralscale.isa.csr import csr_by_number
from codegen.neuralscale.isa.row import FieldKind
from codegen.neuralscale.isa.table import Instruction, row

GPR_NAMES: tuple[str, ...] = (
    *("zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"),
    *(f"a{i}" for i in range(8)),
    *(f"s{i}" for i in range(2, 12)),
    *(f"t{i}" for i in range(3, 7)),
)
FPR_NAMES: tuple[str, ...] = (
    *(f"ft{i}" for i in range(8)),
    *("fs0", "fs1"),
    *(f"fa{i}" for i in range(8)),
    *(f"fs{i}" for i in range(2, 12)),
    *(f"ft{i}" for i in range(8, 12)),
)
_VR_NAMES = tuple(f"v{i}" for i in range(32))
_ROUNDING_NAMES = ("rne", "rtz", "rdn", "rup", "rmm", "reserved5", "reserved6", "dyn")
_ORDER_NAMES = tuple(
    "".join(c for c, bit in zip("iorw", (8, 4, 2, 1), strict=True) if i & bit) or "0" for i in range(16)
)

OPERAND_NAMES: dict[FieldKind, tuple[str, ...]] = {
    FieldKind.GPR: GPR_NAMES,
    FieldKind.FPR: FPR_NAMES,
    FieldKind.VR: _VR_NAMES,
    FieldKind.ROUNDING: _ROUNDING_NAMES,
    FieldKind.ORDER: _ORDER_NAMES,
}


def format_operand(kind: FieldKind, value: int) -> str:
    """One operand as text; CSRs by number, targets relative to the instruction (`.+8`)."""
    names = OPERAND_NAMES.get(kind)
    if names is not None:
        return names[value]
    if kind is FieldKind.TARGET:
        return f".{value:+d}"
    if kind is FieldKind.CSR:
        return f"{value:#05x}"
    return f"{value:#x}" if kind is FieldKind.UPPER else str(value)


@cache
def _template(mnemonic: str) -> tuple[str, tuple[tuple[str, ...] | None, ...], tuple[FieldKind, ...]]:
    """Operand text with a place for every field, and per field its names (None for numbers) and kind."""
    found = row(mnemonic)
    names = {field.name for field in found.fields}
    text = re.sub(r"\w+", lambda match: "%s" if match[0] in names else match[0], found.syntax)
    kinds = tuple(field.kind for field in found.fields)
    return f"{mnemonic} {text}".rstrip(), tuple(OPERAND_NAMES.get(kind) for kind in kinds), kinds


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
