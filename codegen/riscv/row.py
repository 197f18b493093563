"""Shape of one declared instruction of 32 bits: a row of an instruction table, and the bits of its fields.

Every tool derives from these rows: encoder, decoder, disassembler, assembly text and the documentation page. A field is
a list of pieces, so that scattered immediates (branches, jumps, stores) need no code of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FieldKind(Enum):
    """Meaning of a field's value, which decides how the operand is written."""

    GPR = "integer register"
    FPR = "floating-point register"
    VR = "vector register"
    IMM = "number"
    UPPER = "upper 20 bits of a word"
    TARGET = "byte offset from the instruction itself"
    CSR = "control and status register"
    ROUNDING = "rounding mode"
    ORDER = "set of device input, device output, memory reads, memory writes"


GPR, FPR, VR = FieldKind.GPR, FieldKind.FPR, FieldKind.VR


class GnuForm(Enum):
    """Form in which GNU `as` reads an instruction: its mnemonic, `.insn r`, or the bare word with `.insn`."""

    MNEMONIC = "mnemonic"
    INSN_R = ".insn r"
    INSN_WORD = ".insn word"


@dataclass(frozen=True, slots=True)
class Field:
    """One operand: `pieces` are (lowest bit in the value, width in bits, lowest bit in the word)."""

    name: str
    kind: FieldKind
    pieces: tuple[tuple[int, int, int], ...]
    signed: bool = False

    @property
    def width_bits(self) -> int:
        """Bits of the value, including low bits that are always zero."""
        return max(low + width for low, width, _ in self.pieces)

    @property
    def step(self) -> int:
        """Every legal value is a multiple of this: 2 for branch and jump offsets, else 1."""
        return 1 << min(low for low, _, _ in self.pieces)

    @property
    def minimum(self) -> int:
        return -(1 << (self.width_bits - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        return (1 << (self.width_bits - self.signed)) - self.step

    @property
    def word_mask(self) -> int:
        """The bits of the word that the field occupies."""
        return sum(((1 << width) - 1) << bit for _, width, bit in self.pieces)


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction: `match` are its fixed bits, `mask` says which bits are fixed, `fields` are in text order.

    `syntax` is the operand text with field names in place of operands; empty means the names separated by commas.
    `csrs` are the CSRs read in addition to the operands. Variants of one operation share `family` (vector or reduction
    direction, acquire and release bits, vector mask); for other rows it equals the mnemonic.
    """

    mnemonic: str
    extension: str
    encoding: str
    match: int
    mask: int
    fields: tuple[Field, ...]
    meaning: str
    syntax: str = ""
    csrs: tuple[str, ...] = ()
    family: str = ""
    gnu: GnuForm = GnuForm.MNEMONIC

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", self.family or self.mnemonic)
        object.__setattr__(self, "syntax", self.syntax or ", ".join(field.name for field in self.fields))
        taken = self.mask
        if self.match & ~self.mask:
            raise ValueError(f"{self.mnemonic}: match {self.match:#010x} has bits outside mask {self.mask:#010x}")
        for field in self.fields:
            if taken & field.word_mask:
                raise ValueError(f"{self.mnemonic}: field {field.name} lies over other bits of the word")
            taken |= field.word_mask
        if taken != 0xFFFFFFFF:
            raise ValueError(f"{self.mnemonic}: bits {~taken & 0xFFFFFFFF:#010x} are neither fixed nor a field")
