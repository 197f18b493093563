"""Text of operands, and of an instruction with places for them, by its row's syntax.

row of lw  -->  "lw %s, %s(%s)"
"""

from __future__ import annotations

import re

from codegen.riscv.row import FieldKind, Row

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


def text_template(row: Row) -> str:
    """Mnemonic and operand text of a row, with a place for every field, in the order of the fields."""
    names = {field.name for field in row.fields}
    text = re.sub(r"\w+", lambda match: "%s" if match[0] in names else match[0], row.syntax)
    return f"{row.mnemonic} {text}".rstrip()
