"""Small programs for the simulator's tests: assembly text in, ELF bytes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks.lab.readers.assembly import parse_instruction, parse_operand
from codegen.neuralscale.asm.assembler import Item, Label, Word, assemble, branch, label_addresses, load_address
from codegen.neuralscale.asm.assembler import load_immediate as li
from codegen.neuralscale.isa.table import row
from codegen.riscv.elf_format import ElfSymbol
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes
from codegen.riscv.row import FieldKind
from codegen.riscv.syntax import GPR_NAMES

CODE = 0x10_0000
TOHOST = 0x30_0000

Program = Callable[..., bytes]


def _line(text: str) -> Sequence[Item]:
    """One line: `name:`, `li rd, number`, `la rd, label`, `.word number`, a branch to a label, or an instruction."""
    mnemonic, _, rest = text.partition(" ")
    operands = [operand.strip() for operand in rest.split(",")]
    if text.endswith(":"):
        return (Label(text[:-1]),)
    if mnemonic == "li":
        return li(GPR_NAMES.index(operands[0]), int(operands[1], 0))
    if mnemonic == "la":
        return (load_address(GPR_NAMES.index(operands[0]), operands[1]),)
    if mnemonic == ".word":
        return (Word(int(rest, 0)),)
    fields = row(mnemonic).fields
    if fields and fields[-1].kind is FieldKind.TARGET:
        values = [parse_operand(field.kind, text) for field, text in zip(fields, operands[:-1], strict=False)]
        return (branch(mnemonic, *values, operands[-1]),)
    return (parse_instruction(text),)


def _program(text: str, data: bytes = b"", *, data_address: int = 0x20_0000) -> bytes:
    """The ELF of a program at CODE; `data` is loaded at `data_address`. `exit: ` code in a0 ends a run.

    Every program gets a trap handler, which exits with mcause, and the labels `start`, `exit` and `trap`.
    """
    before = ["la t0, trap", "csrrw zero, mtvec, t0", "li t0, 0x6000", "csrrs zero, mstatus, t0", "start:"]
    ending = ["exit:", "slli a0, a0, 1", "ori a0, a0, 1", f"li t0, {TOHOST}", "sw zero, 4(t0)", "sw a0, 0(t0)"]
    after = ["jal zero, start", "trap:", "csrrs a0, mcause, zero", "jal zero, exit"]
    lines = (line.strip() for line in (*before, *text.splitlines(), *ending, *after))
    items = [item for line in lines if line for item in _line(line)]
    labels = label_addresses(items, CODE)
    segments = [
        ElfSegment(".text", CODE, (assemble(items, CODE),), SegmentFlags.READ_EXECUTE),
        ElfSegment(".tohost", TOHOST, (bytes(16),), SegmentFlags.READ_WRITE),
    ]
    if data:
        segments.append(ElfSegment(".data", data_address, (data,), SegmentFlags.READ_WRITE))
    symbols = [ElfSymbol("tohost", TOHOST), *(ElfSymbol(name, address) for name, address in labels.items())]
    return elf_bytes(CODE, segments, symbols)


@pytest.fixture
def program() -> Program:
    """Builds test programs; see `_program`."""
    return _program
