"""A listing of machine code: address, word, instruction, with symbols as labels and targets.

00100010: 68c5857b  meconv.mm a0, a1, a2
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from codegen.neuralscale.elf import Elf, Symbol
from codegen.neuralscale.elf_format import Buffer
from codegen.neuralscale.isa import Instruction, decode, row
from codegen.neuralscale.isa_row import Kind
from codegen.neuralscale.syntax import format_instruction

__all__ = ["Line", "disassemble", "disassemble_elf", "format_listing"]


@dataclass(frozen=True, slots=True)
class Line:
    """One word of code; `instruction` is None where it is no instruction, `labels` are the symbols at its address."""

    address: int
    word: int
    instruction: Instruction | None
    text: str
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        labels = "".join(f"{self.address:08x} <{label}>:\n" for label in self.labels)
        return f"{labels}{self.address:08x}: {self.word:08x}  {self.text}"


def disassemble(code: Buffer, base_address: int, symbols: Sequence[Symbol] = ()) -> Iterator[Line]:
    """The lines of `code`, which lies at `base_address`. Bytes after the last whole word are left out."""
    view = memoryview(code).cast("B")
    names: dict[int, list[str]] = {}
    for symbol in symbols:
        names.setdefault(symbol.address, []).append(symbol.name)
    for offset in range(0, len(view) - 3, 4):
        address = base_address + offset
        word = int.from_bytes(view[offset : offset + 4], "little")
        instruction = decode(word)
        text = f".4byte {word:#010x}" if instruction is None else _text(instruction, address, names)
        yield Line(address, word, instruction, text, tuple(names.get(address, ())))


def disassemble_elf(elf: Elf) -> Iterator[Line]:
    """The lines of every executable segment of a file."""
    for segment in elf.segments:
        if segment.executable:
            yield from disassemble(segment.data, segment.address, elf.symbols)


def format_listing(lines: Iterable[Line]) -> str:
    """The listing as text, one line a word and one before it for each label."""
    return "".join(f"{line}\n" for line in lines)


def _text(instruction: Instruction, address: int, names: dict[int, list[str]]) -> str:
    """The instruction, and for branches and jumps the address and name of the target."""
    text = format_instruction(instruction)
    fields = row(instruction.mnemonic).fields
    if not fields or fields[-1].kind is not Kind.TARGET:
        return text
    target = address + instruction.operands[-1][1] & 0xFFFFFFFF
    name = f" <{names[target][0]}>" if target in names else ""
    return f"{text.rpartition(' ')[0]} {target:#x}{name}"
