"""A listing of machine code: address, word, instruction, with labels for symbols and for all jump targets.

00100010 <conv1>:
00100010: 68c5857b  meconv.mm a0, a1, a2
00100014 <.L00100014>:
00100014: fff28293  addi t0, t0, -1
00100018: fe029ee3  bne t0, zero, 0x100014 <.L00100014>
0010001c: 00000297  auipc t0, 0x0
00100020: ff428067  jalr zero, -12(t0)  # 0x100010 <conv1>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen.neuralscale.isa.syntax import format_instruction
from codegen.neuralscale.isa.table import ROWS, decode, row
from codegen.riscv.codec import Instruction
from codegen.riscv.elf import Elf
from codegen.riscv.elf_format import Buffer, ElfSymbol
from codegen.riscv.row import FieldKind

_ADDRESS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class CodeLine:
    """One word of code; `instruction` is None where the word is not an instruction, `labels` are the symbols at its
    address."""

    address: int
    word: int
    instruction: Instruction | None
    text: str
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        labels = "".join(f"{self.address:08x} <{label}>:\n" for label in self.labels)
        return f"{labels}{self.address:08x}: {self.word:08x}  {self.text}"


def disassemble(code: Buffer, base_address: int, symbols: Sequence[ElfSymbol] = ()) -> Iterator[CodeLine]:
    """The lines of `code`, which lies at `base_address`. Bytes after the last whole word are left out.

    The target of a branch or jump has a label: the symbol there, else `.L` and the address if it lies in the code.
    """
    view = memoryview(code).cast("B")
    words = np.frombuffer(view[: len(view) // 4 * 4], "<u4")
    targets = _targets(words, base_address)
    names: dict[int, list[str]] = {}
    for symbol in symbols:
        names.setdefault(symbol.address, []).append(symbol.name)
    for target in targets.values():
        if 0 <= target - base_address < len(view) // 4 * 4 and target % 4 == base_address % 4:
            names.setdefault(target, [f".L{target:08x}"])
    for number, word in enumerate(words.tolist()):
        address = base_address + 4 * number
        instruction = decode(word)
        text = f".4byte {word:#010x}" if instruction is None else _text(instruction, targets.get(address), names)
        yield CodeLine(address, word, instruction, text, tuple(names.get(address, ())))


def disassemble_elf(elf: Elf) -> Iterator[CodeLine]:
    """The lines of every executable segment of a file."""
    for segment in elf.segments:
        if segment.executable:
            yield from disassemble(segment.data, segment.address, elf.symbols)


def format_listing(lines: Iterable[CodeLine]) -> str:
    """The listing as text, one line per word, with a line before it for each label."""
    return "".join(f"{line}\n" for line in lines)


def _targets(words: np.ndarray[tuple[int], np.dtype[np.uint32]], base_address: int) -> dict[int, int]:
    """Address of an instruction -> its target: for branches and jumps, and for an instruction that adds to an auipc
    just before it."""
    found: dict[int, int] = {}
    near = np.zeros(len(words), bool)
    for known in ROWS:
        if known.fields and known.fields[-1].kind is FieldKind.TARGET:
            near |= words & known.mask == known.match
    for number in np.flatnonzero(near).tolist():
        address, instruction = base_address + 4 * number, decode(int(words[number]))
        if instruction is not None:
            found[address] = address + instruction.operands[-1][1] & _ADDRESS
    upper = row("auipc")
    for number in np.flatnonzero(words[:-1] & upper.mask == upper.match).tolist():
        address = base_address + 4 * number
        first, second = decode(int(words[number])), decode(int(words[number + 1]))
        if first is None or second is None or second.mnemonic not in ("jalr", "addi"):
            continue
        if second["rs1"] == first["rd"]:
            found[address + 4] = address + (first["imm"] << 12) + second["imm"] & _ADDRESS
    return found


def _text(instruction: Instruction, target: int | None, names: Mapping[int, Sequence[str]]) -> str:
    """Text of the instruction; where it has a target, with the target's address and name."""
    text = format_instruction(instruction)
    if target is None:
        return text
    place = f"{target:#x} <{names[target][0]}>" if target in names else f"{target:#x}"
    fields = row(instruction.mnemonic).fields
    # A far jump, whose operands hold only half of the target.
    return f"{text.rpartition(' ')[0]} {place}" if fields[-1].kind is FieldKind.TARGET else f"{text}  # {place}"
