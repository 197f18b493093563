"""Machine code from a list of items: instructions, labels, branches to labels, comments.

    items  -- assemble -->  bytes of .text      (assembly_text.py: items <-> text that GNU as accepts)

Every item has a fixed size, so one pass gives the addresses and one the words; nothing is relaxed or shortened. A
branch that cannot reach is an error: the generator asks for a far jump where it needs one.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from codegen.neuralscale.isa.table import encode, instruction, row
from codegen.riscv.codec import Instruction, IsaError
from codegen.riscv.row import FieldKind
from codegen.riscv.syntax import FPR_NAMES, GPR_NAMES

_LABEL = re.compile(r"[A-Za-z_.$][A-Za-z0-9_.$]*")
_RESERVED = frozenset({*GPR_NAMES, *FPR_NAMES, *(f"{c}{i}" for c in "xfv" for i in range(32)), ".", "fp"})


class AssemblyError(ValueError):
    """Items or text that cannot become machine code: unknown or repeated label, target out of reach, bad line."""


@dataclass(frozen=True, slots=True)
class Label:
    """A name for the address of the next instruction. It has letters, digits, `_`, `.` and `$`, and is no register's
    name."""

    name: str

    def __post_init__(self) -> None:
        if _LABEL.fullmatch(self.name) is None or self.name in _RESERVED:
            raise AssemblyError(f"{self.name!r} cannot be a label")


@dataclass(frozen=True, slots=True)
class Comment:
    """A line for the reader, without control characters and outer blanks."""

    text: str

    def __post_init__(self) -> None:
        if self.text != self.text.strip() or not self.text.isprintable():
            raise AssemblyError(f"{self.text!r} cannot be a comment")


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch or `jal` to a label: `operands` are those before the target."""

    mnemonic: str
    operands: tuple[tuple[str, int], ...]
    target: str


@dataclass(frozen=True, slots=True)
class Far:
    """Two instructions that reach any address: `auipc base, high` and `mnemonic rd, base + low`.

    `mnemonic` is `jalr` (a jump, `rd` takes the return address) or `addi` (`rd` takes the address of the label).
    """

    mnemonic: str
    rd: int
    base: int
    target: str

    def __post_init__(self) -> None:
        if self.mnemonic not in ("jalr", "addi"):
            raise AssemblyError(f"a far item ends in jalr or addi, not in {self.mnemonic}")


@dataclass(frozen=True, slots=True)
class Word:
    """Four bytes that are not an instruction, such as a word that must trap."""

    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value < 1 << 32:
            raise AssemblyError(f"{self.value:#x} is not a 32-bit word")


Item = Instruction | Branch | Label | Comment | Far | Word


def branch(mnemonic: str, *values: int | str) -> Branch:
    """A branch with the target's name as the last value: `branch("bltu", 5, 6, "loop")`, `branch("jal", 0, "end")`.
    Raises AssemblyError for other values."""
    fields = row(mnemonic).fields
    target = values[-1] if values else None
    if len(values) != len(fields) or not isinstance(target, str) or fields[-1].kind is not FieldKind.TARGET:
        raise AssemblyError(f"{mnemonic} with the values {values} is not a branch to a label")
    operands = tuple((field.name, int(value)) for field, value in zip(fields, values[:-1], strict=False))
    return Branch(mnemonic, operands, target)


def far_jump(target: str, scratch: int, link: int = 0) -> Far:
    """A jump to any address; `scratch` is overwritten, `link` (a register, 0 for none) takes the return address."""
    return Far("jalr", link, scratch, target)


def load_address(rd: int, target: str) -> Far:
    """Load the address of a label into register `rd`."""
    return Far("addi", rd, rd, target)


def load_immediate(rd: int, value: int) -> tuple[Instruction, ...]:
    """`li`: one or two instructions that put a signed or unsigned 32-bit number into `rd`; AssemblyError if larger."""
    return _immediate(rd, value)


@lru_cache(maxsize=1 << 17)
def _immediate(rd: int, value: int) -> tuple[Instruction, ...]:
    if not -(1 << 31) <= value < 1 << 32:
        raise AssemblyError(f"{value:#x} does not fit into a 32-bit register")
    low = ((value & 0xFFF) ^ 0x800) - 0x800
    high = (value - low) >> 12 & 0xFFFFF
    if high == 0:
        return (instruction("addi", rd, 0, low),)
    upper = instruction("lui", rd, high)
    return (upper, instruction("addi", rd, rd, low)) if low else (upper,)


def item_bytes(item: Item) -> int:
    """Bytes of machine code of an item."""
    if type(item) is Label or type(item) is Comment:
        return 0
    return 8 if type(item) is Far else 4


def label_addresses(items: Iterable[Item], base_address: int) -> dict[str, int]:
    """The address of every label, in order. AssemblyError if one occurs twice or the base is not a multiple of 4."""
    if base_address % 4 or not 0 <= base_address < 1 << 32:
        raise AssemblyError(f"code cannot start at {base_address:#x}: not a multiple of 4, or no 32-bit address")
    addresses: dict[str, int] = {}
    address = base_address
    for item in items:
        kind = type(item)
        if kind is Instruction:
            address += 4
        elif isinstance(item, Label):
            if item.name in addresses:
                raise AssemblyError(f"label {item.name} is defined twice")
            addresses[item.name] = address
        else:
            address += item_bytes(item)
    return addresses


def expand(item: Branch | Far, address: int, addresses: dict[str, int]) -> tuple[Instruction, ...]:
    """The instructions of an item that refers to a label, placed at `address`. Raises AssemblyError where the label
    is not defined or too far away."""
    target = addresses.get(item.target)
    if target is None:
        raise AssemblyError(f"label {item.target} is not defined")
    offset = target - address
    if isinstance(item, Branch):
        field = row(item.mnemonic).fields[-1]
        if not field.minimum <= offset <= field.maximum:
            raise AssemblyError(
                f"{item.mnemonic} at {address:#x} cannot reach {item.target} at {target:#x}: {offset} bytes away, "
                f"allowed are {field.minimum}..{field.maximum}; use a far jump"
            )
        return (Instruction(item.mnemonic, (*item.operands, (field.name, offset))),)
    low = ((offset & 0xFFF) ^ 0x800) - 0x800
    upper = instruction("auipc", item.base, (offset - low) >> 12 & 0xFFFFF)
    values = (item.rd, low, item.base) if item.mnemonic == "jalr" else (item.rd, item.base, low)
    return upper, instruction(item.mnemonic, *values)


def assemble(items: Sequence[Item], base_address: int) -> bytes:
    """The machine code of `items` placed at `base_address`. AssemblyError says which item is wrong."""
    addresses = label_addresses(items, base_address)
    words = array("I")
    append = words.append
    known: dict[
        int, int
    ] = {}  # words by identity: equal instructions are mostly one object, and the items hold all of them
    try:
        for item in items:
            word = known.get(id(item))
            if word is not None:
                append(word)
            elif isinstance(item, Instruction):
                word = known[id(item)] = encode(item)
                append(word)
            elif isinstance(item, Branch | Far):
                for expanded in expand(item, base_address + 4 * len(words), addresses):
                    append(encode(expanded))
            elif isinstance(item, Word):
                append(item.value)
    except IsaError as error:
        raise AssemblyError(f"at {base_address + 4 * len(words):#x}: {error}") from error
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
