"""Assembly text that GNU `as` accepts. `benchmarks/lab/readers/assembly.py` reads it back.

NPU instructions stand as `.insn r` with their own mnemonic in a comment, CSRs by number with their name in a comment,
`li` as the instructions it becomes. Nothing in the text may be shortened or relaxed, so the first lines forbid it and
GNU as gives the bytes of `assemble`:

    riscv64-unknown-elf-as -march=rv32imaf_zicsr -mabi=ilp32f
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from codegen.neuralscale.asm.assembler import (
    Branch,
    Comment,
    Far,
    Item,
    Label,
    Word,
    expand,
    item_bytes,
    label_addresses,
)
from codegen.neuralscale.isa.csr import csr_by_number
from codegen.neuralscale.isa.syntax import format_instruction
from codegen.neuralscale.isa.table import encode, row
from codegen.riscv.codec import Instruction
from codegen.riscv.row import FieldKind, GnuForm
from codegen.riscv.syntax import GPR_NAMES, format_operand

DIRECTIVES = ("    .option norvc", "    .option norelax", "    .text")
FAR = "#far "
SLOT_BITS = (7, 15, 20)


def render(items: Sequence[Item]) -> str:
    """The whole text of `items`; see `render_lines`."""
    return "\n".join(render_lines(items)) + "\n"


def render_lines(items: Sequence[Item]) -> Iterator[str]:
    """The lines of the text: directives first, then one line per item (three for a far one)."""
    yield from DIRECTIVES
    addresses = label_addresses(items, 0)
    address = 0
    known: dict[
        int, str
    ] = {}  # lines by identity: equal instructions are mostly one object, and the items hold all of them
    for item in items:
        line = known.get(id(item))
        if line is not None:
            yield line
            address += 4
            continue
        match item:
            case Instruction():
                line = known[id(item)] = f"    {_gnu_text(item)}"
                yield line
            case Label():
                yield f"{item.name}:"
            case Comment():
                yield f"    # {item.text}".rstrip()
            case Branch():
                operands = _operand_texts(item)
                yield f"    {item.mnemonic} {', '.join((*operands, item.target))}"
            case Far():
                yield f"    {FAR}{item.mnemonic} {GPR_NAMES[item.rd]}, {GPR_NAMES[item.base]}, {item.target}"
                for instruction in expand(item, address, addresses):
                    yield f"    {_gnu_text(instruction)}"
            case Word():
                yield f"    .4byte {item.value:#010x}"
        address += item_bytes(item)


def code_lines(items: Iterable[Item]) -> Sequence[int]:
    """For each word of the code of `items`, its line in the text of `render`, counted from 1."""
    lines = array("I")
    line = len(DIRECTIVES)
    for item in items:
        line += 1
        kind = type(item)
        if kind is Far:
            lines.extend((line + 1, line + 2))
            line += 2
        elif kind is not Label and kind is not Comment:
            lines.append(line)
    return lines


def _operand_texts(item: Branch) -> Iterator[str]:
    for field, (_, value) in zip(row(item.mnemonic).fields, item.operands, strict=False):
        yield format_operand(field.kind, value)


def _gnu_text(instruction: Instruction) -> str:
    """One instruction in GNU as syntax, with a comment where that hides its meaning."""
    form, insn_template, slots, has_order, csr_index = _gnu_plan(instruction.mnemonic)
    operands = instruction.operands
    if form is GnuForm.INSN_R:
        texts = [fixed if index < 0 else format_operand(kind, operands[index][1]) for index, kind, fixed in slots]
        return f"{insn_template % tuple(texts)}  # {format_instruction(instruction)}"
    # GNU as has no name for an empty set of accesses.
    if form is GnuForm.INSN_WORD or (has_order and any(value == 0 for _, value in operands)):
        return f".insn {encode(instruction):#010x}  # {format_instruction(instruction)}"
    text = format_instruction(instruction, csr_names=False)
    register = csr_by_number(operands[csr_index][1]) if csr_index >= 0 else None
    return text if register is None else f"{text}  # {register.name}"


@cache
def _gnu_plan(mnemonic: str) -> tuple[GnuForm, str, tuple[tuple[int, FieldKind, str], ...], bool, int]:
    """Per row: the form, the text of `.insn r`, for its three registers (operand index or -1, kind, fixed text),
    whether it has sets of accesses, and the index of its CSR operand or -1."""
    found = row(mnemonic)
    kinds = tuple(field.kind for field in found.fields)
    by_bit = {field.pieces[0][2]: index for index, field in enumerate(found.fields)}
    slots = []
    for bit in SLOT_BITS:
        index = by_bit.get(bit, -1)
        # GNU as without the vector extension knows no vector registers; any register of that number will do.
        kind = FieldKind.GPR if index < 0 or kinds[index] is FieldKind.VR else kinds[index]
        slots.append((index, kind, f"x{found.match >> bit & 31}"))
    funct7, funct3, opcode = found.match >> 25, found.match >> 12 & 7, found.match & 0x7F
    template = f".insn r {opcode:#x}, {funct3}, {funct7:#04x}, %s, %s, %s"
    csr_index = kinds.index(FieldKind.CSR) if FieldKind.CSR in kinds else -1
    return found.gnu, template, tuple(slots), FieldKind.ORDER in kinds, csr_index
