"""Assembly text that GNU `as` accepts, and back: `parse_assembly(render(items)) == items`.

NPU instructions stand as `.insn r` with their own mnemonic in a comment, CSRs by number with their name in a comment,
`li` as the instructions it becomes. Nothing in the text may be shortened or relaxed, so the first lines forbid it and
GNU as gives the bytes of `assemble`:

    riscv64-unknown-elf-as -march=rv32imaf_zicsr -mabi=ilp32f
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from codegen.neuralscale.asm.assembler import (
    AssemblyError,
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
from codegen.neuralscale.isa.row import GnuForm, Kind
from codegen.neuralscale.isa.syntax import (
    FPR_NAMES,
    GPR_NAMES,
    format_instruction,
    format_operand,
    parse_instruction,
    parse_operand,
    split_operands,
)
from codegen.neuralscale.isa.table import Instruction, IsaError, decode, encode, row

__all__ = ["parse_assembly", "render", "render_lines"]

_DIRECTIVES = ("    .option norvc", "    .option norelax", "    .text")
_FAR = "#far "
_INSN_R = re.compile(r"r 0x([0-9a-f]{1,2}), ([0-7]), 0x([0-9a-f]{1,2}), (\w+), (\w+), (\w+)")
_INSN_WORD = re.compile(r"0x[0-9a-f]{8}")
_RELATIVE = re.compile(r"\.[+-]\d+")
_SLOT_BITS = (7, 15, 20)
_REGISTERS = {
    **{name: number for number, name in enumerate(GPR_NAMES)},
    **{name: number for number, name in enumerate(FPR_NAMES)},
    **{f"x{number}": number for number in range(32)},
}


def render(items: Sequence[Item]) -> str:
    """The whole text of `items`; see `render_lines`."""
    return "\n".join(render_lines(items)) + "\n"


def render_lines(items: Sequence[Item]) -> Iterator[str]:
    """The lines of the text: directives first, then one line an item (three for a far one)."""
    yield from _DIRECTIVES
    addresses = label_addresses(items, 0)
    address = 0
    known: dict[int, str] = {}  # lines by identity: equal instructions are mostly one object, all of them held by items
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
                yield f"    {_FAR}{item.mnemonic} {GPR_NAMES[item.rd]}, {GPR_NAMES[item.base]}, {item.target}"
                for instruction in expand(item, address, addresses):
                    yield f"    {_gnu_text(instruction)}"
            case Word():
                yield f"    .4byte {item.value:#010x}"
        address += item_bytes(item)


def _operand_texts(item: Branch) -> Iterator[str]:
    for field, (_, value) in zip(row(item.mnemonic).fields, item.operands, strict=False):
        yield format_operand(field.kind, value)


def _gnu_text(instruction: Instruction) -> str:
    """One instruction as GNU as takes it, with a comment where that hides what it is."""
    form, insn_template, slots, has_order, csr_index = _gnu_plan(instruction.mnemonic)
    operands = instruction.operands
    if form is GnuForm.INSN_R:
        texts = [fixed if index < 0 else format_operand(kind, operands[index][1]) for index, kind, fixed in slots]
        return f"{insn_template % tuple(texts)}  # {format_instruction(instruction)}"
    # GNU as knows no name for an empty set of accesses.
    if form is GnuForm.INSN_WORD or (has_order and any(value == 0 for _, value in operands)):
        return f".insn {encode(instruction):#010x}  # {format_instruction(instruction)}"
    text = format_instruction(instruction, csr_names=False)
    register = csr_by_number(operands[csr_index][1]) if csr_index >= 0 else None
    return text if register is None else f"{text}  # {register.name}"


@cache
def _gnu_plan(mnemonic: str) -> tuple[GnuForm, str, tuple[tuple[int, Kind, str], ...], bool, int]:
    """Per row: the form, the text of `.insn r`, for its three registers (operand index or -1, kind, fixed text),
    whether it has sets of accesses, and the index of its CSR operand or -1."""
    found = row(mnemonic)
    kinds = tuple(field.kind for field in found.fields)
    by_bit = {field.pieces[0][2]: index for index, field in enumerate(found.fields)}
    slots = []
    for bit in _SLOT_BITS:
        index = by_bit.get(bit, -1)
        # GNU as without the vector extension knows no vector registers; any register of that number will do.
        kind = Kind.GPR if index < 0 or kinds[index] is Kind.VR else kinds[index]
        slots.append((index, kind, f"x{found.match >> bit & 31}"))
    funct7, funct3, opcode = found.match >> 25, found.match >> 12 & 7, found.match & 0x7F
    template = f".insn r {opcode:#x}, {funct3}, {funct7:#04x}, %s, %s, %s"
    csr_index = kinds.index(Kind.CSR) if Kind.CSR in kinds else -1
    return found.gnu, template, tuple(slots), Kind.ORDER in kinds, csr_index


def parse_assembly(text: str) -> tuple[Item, ...]:
    """The items of a text that `render` wrote, or of one in the same form. AssemblyError gives the line."""
    items: list[Item] = []
    expansions: list[tuple[int, int, tuple[Instruction, ...]]] = []
    known: dict[str, Item] = {}
    lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        stripped = line.strip()
        if not stripped or line in _DIRECTIVES:
            continue
        try:
            item = known.get(stripped)
            if item is None:
                item = known[stripped] = _parse_line(stripped)
            items.append(item)
            if isinstance(item, Far):
                expansions.append((number, len(items) - 1, _parse_expansion(lines)))
        except (IsaError, AssemblyError) as error:
            raise AssemblyError(f"line {number}: {error}") from error
    _check_expansions(items, expansions)
    return tuple(items)


def _parse_line(line: str) -> Item:
    if line.startswith("#"):
        return _parse_far(line) if line.startswith(_FAR) else Comment(line[1:].strip())
    code, _, comment = (part.strip() for part in line.partition("#"))
    if code.endswith(":"):
        return Label(code[:-1])
    mnemonic, _, rest = code.partition(" ")
    if mnemonic == ".4byte":
        return Word(parse_operand(Kind.IMM, rest))
    if mnemonic == ".insn":
        return _parse_insn(rest, comment)
    if mnemonic.startswith("."):
        raise AssemblyError(f"directive {mnemonic} is not known")
    fields = row(mnemonic).fields
    if not fields or fields[-1].kind is not Kind.TARGET:
        return parse_instruction(code)
    texts = split_operands(mnemonic, rest.strip())
    if _RELATIVE.fullmatch(texts[-1]):
        return parse_instruction(code)
    operands = tuple(
        (field.name, parse_operand(field.kind, item)) for field, item in zip(fields[:-1], texts, strict=False)
    )
    return Branch(mnemonic, operands, Label(texts[-1]).name)


def _parse_insn(rest: str, comment: str) -> Instruction:
    """`.insn` with a word or in R form; a comment, if there is one, must say what the word is."""
    if matched := _INSN_R.fullmatch(rest):
        opcode, funct3, funct7 = (int(matched[group], 16) for group in (1, 2, 3))
        word = funct7 << 25 | funct3 << 12 | opcode
        for bit, name in zip(_SLOT_BITS, matched.groups()[3:], strict=True):
            if name not in _REGISTERS:
                raise AssemblyError(f"{name!r} is no register")
            word |= _REGISTERS[name] << bit
    elif _INSN_WORD.fullmatch(rest):
        word = int(rest, 16)
    else:
        raise AssemblyError(f"`.insn {rest}` has another form than `.insn r` or a word")
    instruction = decode(word & 0xFFFFFFFF)
    if instruction is None:
        raise AssemblyError(f"{word:#010x} is no instruction")
    if comment and comment != format_instruction(instruction):
        raise AssemblyError(f"the comment says `{comment}`, the word is `{format_instruction(instruction)}`")
    return instruction


def _parse_far(line: str) -> Far:
    matched = re.fullmatch(r"#far (\w+) (\w+), (\w+), (\S+)", line)
    if matched is None:
        raise AssemblyError(f"`{line}` has another form than `{_FAR}jalr rd, base, label`")
    mnemonic, rd, base, target = matched.groups()
    return Far(mnemonic, parse_operand(Kind.GPR, rd), parse_operand(Kind.GPR, base), Label(target).name)


def _parse_expansion(lines: Iterable[tuple[int, str]]) -> tuple[Instruction, ...]:
    """The two instruction lines after a far one."""
    return tuple(parse_instruction(line.partition("#")[0]) for _, (_, line) in zip(range(2), lines, strict=False))


def _check_expansions(items: Sequence[Item], expansions: Sequence[tuple[int, int, tuple[Instruction, ...]]]) -> None:
    """Each far item must be followed by exactly the instructions that it stands for."""
    if not expansions:
        return
    addresses = label_addresses(items, 0)
    places: list[int] = []
    address = 0
    for item in items:
        places.append(address)
        address += item_bytes(item)
    for number, index, found in expansions:
        item = items[index]
        if isinstance(item, Far) and expand(item, places[index], addresses) != found:
            raise AssemblyError(f"line {number}: the two instructions after it do not reach {item.target}")
