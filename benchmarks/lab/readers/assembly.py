"""Assembly text back to items and instructions: `parse_assembly(render(items)) == items`.

Both directions follow the rows of the instruction set (`codegen/neuralscale/isa/`), so a new row needs no code here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
from codegen.neuralscale.asm.assembly_text import DIRECTIVES, FAR, SLOT_BITS
from codegen.neuralscale.isa.csr import CSRS
from codegen.neuralscale.isa.syntax import format_instruction
from codegen.neuralscale.isa.table import decode, encode, row
from codegen.riscv.codec import Instruction, IsaError
from codegen.riscv.row import FieldKind
from codegen.riscv.syntax import FPR_NAMES, GPR_NAMES, OPERAND_NAMES

__all__ = ["parse_assembly", "parse_instruction", "parse_operand"]

_INSN_R = re.compile(r"r 0x([0-9a-f]{1,2}), ([0-7]), 0x([0-9a-f]{1,2}), (\w+), (\w+), (\w+)")
_INSN_WORD = re.compile(r"0x[0-9a-f]{8}")
_RELATIVE = re.compile(r"\.[+-]\d+")
_REGISTERS = {
    **{name: number for number, name in enumerate(GPR_NAMES)},
    **{name: number for number, name in enumerate(FPR_NAMES)},
    **{f"x{number}": number for number in range(32)},
}
_NUMBERS: dict[FieldKind, dict[str, int]] = {
    kind: {name: number for number, name in enumerate(names)} for kind, names in OPERAND_NAMES.items()
} | {FieldKind.CSR: {register.name: register.number for register in CSRS}}


def parse_assembly(text: str) -> tuple[Item, ...]:
    """The items of a text that `render` wrote, or of one in the same form. AssemblyError gives the line."""
    items: list[Item] = []
    expansions: list[tuple[int, int, tuple[Instruction, ...]]] = []
    known: dict[str, Item] = {}
    lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        stripped = line.strip()
        if not stripped or line in DIRECTIVES:
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
        return _parse_far(line) if line.startswith(FAR) else Comment(line[1:].strip())
    code, _, comment = (part.strip() for part in line.partition("#"))
    if code.endswith(":"):
        return Label(code[:-1])
    mnemonic, _, rest = code.partition(" ")
    if mnemonic == ".4byte":
        return Word(parse_operand(FieldKind.IMM, rest))
    if mnemonic == ".insn":
        return _parse_insn(rest, comment)
    if mnemonic.startswith("."):
        raise AssemblyError(f"directive {mnemonic} is not known")
    fields = row(mnemonic).fields
    if not fields or fields[-1].kind is not FieldKind.TARGET:
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
        for bit, name in zip(SLOT_BITS, matched.groups()[3:], strict=True):
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
        raise AssemblyError(f"`{line}` has another form than `{FAR}jalr rd, base, label`")
    mnemonic, rd, base, target = matched.groups()
    return Far(mnemonic, parse_operand(FieldKind.GPR, rd), parse_operand(FieldKind.GPR, base), Label(target).name)


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


def parse_operand(kind: FieldKind, text: str) -> int:
    """The value of one operand; IsaError if the text is no operand of that kind."""
    number = _NUMBERS.get(kind, {}).get(text)
    if number is not None:
        return number
    digits = text[1:] if kind is FieldKind.TARGET and text[:1] == "." else text
    if kind in OPERAND_NAMES or (kind is FieldKind.TARGET and digits is text):
        raise IsaError(f"{text!r} is no {kind.value}")
    try:
        return int(digits, 0)
    except ValueError:
        raise IsaError(f"{text!r} is no {kind.value}") from None


@cache
def _pattern(mnemonic: str) -> re.Pattern[str]:
    """What the operand text of a row looks like, one group per field in the row's order."""
    found = row(mnemonic)
    names = {field.name for field in found.fields}
    pieces = re.findall(r"\w+|[^\w\s]", found.syntax)
    return re.compile(r"\s*".join(r"([^\s,()]+)" if piece in names else re.escape(piece) for piece in pieces) + "$")


def split_operands(mnemonic: str, text: str) -> tuple[str, ...]:
    """The operand texts of an instruction, in the row's order; IsaError if the text has another form."""
    matched = _pattern(mnemonic).match(text)
    if matched is None:
        raise IsaError(f"{mnemonic} is written `{mnemonic} {row(mnemonic).syntax}`, got `{mnemonic} {text}`")
    return matched.groups()


def parse_instruction(text: str) -> Instruction:
    """The instruction of a text such as `meconv.mm a0, a1, a2`; IsaError says what is wrong. Values are checked."""
    mnemonic, _, rest = text.strip().partition(" ")
    texts = split_operands(mnemonic, rest.strip())
    fields = row(mnemonic).fields
    operands = tuple((field.name, parse_operand(field.kind, item)) for field, item in zip(fields, texts, strict=True))
    instruction = Instruction(mnemonic, operands)
    encode(instruction)
    return instruction
