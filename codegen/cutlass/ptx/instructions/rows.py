"""Rows of the opcode table, and the choice of an instruction's row.

    setp.lt.and.s32  -->  head setp, modifiers (lt, and), types (s32)

A row names its modifiers: a modifier that no row names is refused, so that no instruction is executed as another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.core import CtaBatch
from codegen.cutlass.ptx.state.scalars import BYTES
from codegen.cutlass.ptx.text.errors import UnsupportedPtx
from codegen.cutlass.ptx.text.module import PtxInstruction

Step: TypeAlias = Callable[[Active], None]
"""An instruction ready to run: its operands are bound, only the active threads are missing."""


@dataclass(frozen=True, slots=True)
class OpcodeForm:
    """An opcode taken apart. `modifiers` are between head and types, without hints."""

    head: str
    modifiers: tuple[str, ...]
    types: tuple[str, ...]


Build: TypeAlias = "Callable[[PtxInstruction, OpcodeForm, CtaBatch], Step]"


@dataclass(frozen=True, slots=True)
class OpcodeRow:
    """One operation: `build` makes the step. `modifiers` are those that it knows; `hints` are ignored."""

    head: str
    build: Build
    modifiers: frozenset[str] = frozenset()
    hints: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


def split(opcode: str, row: OpcodeRow) -> OpcodeForm:
    """Take `opcode` apart by the words of `row`. Raises UnsupportedPtx for a modifier or type that the row does not
    name."""
    parts = opcode.split(".")
    modifiers, types = [], []
    for part in parts[1:]:
        if part in row.modifiers:
            modifiers.append(part)
        elif part in row.hints or ("*" in row.hints and "::" in part):
            continue
        elif (part in BYTES or part == "pred") and (not row.types or part in row.types):
            types.append(part)
        else:
            raise UnsupportedPtx(f"{opcode}: .{part} is not executed")
    return OpcodeForm(parts[0], tuple(modifiers), tuple(types))


def need(condition: bool, instruction: PtxInstruction) -> None:
    """Raises UnsupportedPtx for operands of a form that is not executed."""
    if not condition:
        raise UnsupportedPtx(f"{instruction.opcode} is not executed with these operands", line=instruction.line)
