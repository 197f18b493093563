"""Encoder and decoder of instructions of 32 bits, derived from a table of rows.

    Instruction("addi", (("rd", 10), ("rs1", 0), ("imm", 5)))  <-- encode, decode -->  0x00500513

Operands are in the row's order, registers as numbers, immediates as signed numbers, branch and jump targets as byte
offsets from the instruction itself. Both directions read plans that are computed once, since a program has a few
hundred thousand words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

from codegen.riscv.row import Field, FieldKind, Row

_RESERVED_ROUNDING = (5, 6)


class IsaError(ValueError):
    """An instruction that the table does not allow: unknown mnemonic, wrong operand, value out of range."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One machine instruction: `operands` are (field name, value) in the order of the row of `mnemonic`."""

    mnemonic: str
    operands: tuple[tuple[str, int], ...] = ()

    def __getitem__(self, name: str) -> int:
        """The value of one operand; KeyError if the instruction has none of that name."""
        for operand, value in self.operands:
            if operand == name:
                return value
        raise KeyError(name)


# Fields as encode and decode need them: plain tuples, because attribute access would dominate their time.
_EncodeField = tuple[str, int, int, int, tuple[tuple[int, int, int], ...]]  # name, minimum, maximum, low zero bits
_DecodeField = tuple[
    tuple[tuple[str, int] | None, ...] | None,  # the operands of a narrow field by value, None where reserved
    int,  # shift of a narrow field
    int,  # mask of a narrow field after the shift
    str,
    tuple[tuple[int, int, int], ...],
    int,  # sign bit's weight, 0 if unsigned
]


def _encode_field(field: Field) -> _EncodeField:
    pieces = tuple((low, (1 << width) - 1, bit) for low, width, bit in field.pieces)
    return field.name, field.minimum, field.maximum, field.step - 1, pieces


@cache
def _narrow_operands(name: str, kind: FieldKind, width_bits: int) -> tuple[tuple[str, int] | None, ...]:
    """The operand of every value of a narrow field, shared by all decoded instructions; None where reserved."""
    reserved = _RESERVED_ROUNDING if kind is FieldKind.ROUNDING else ()
    return tuple(None if value in reserved else (name, value) for value in range(1 << width_bits))


def _decode_field(field: Field) -> _DecodeField:
    pieces = tuple((low, (1 << width) - 1, bit) for low, width, bit in field.pieces)
    sign = 1 << (field.width_bits - 1) if field.signed else 0
    if len(pieces) == 1 and field.width_bits <= 5 and not field.signed:
        table = _narrow_operands(field.name, field.kind, field.width_bits)
        return table, pieces[0][2], pieces[0][1], field.name, pieces, sign
    return None, 0, 0, field.name, pieces, sign


_DecodeRow = tuple[str, tuple[_DecodeField, ...]]
_DecodePlan = dict[int, tuple[tuple[int, dict[int, _DecodeRow]], ...]]
AnyRow = TypeVar("AnyRow", bound=Row)


class Codec(Generic[AnyRow]):
    """The instructions of a table of rows, of which no two have the same mnemonic."""

    def __init__(self, rows: Iterable[AnyRow]) -> None:
        self._rows = {row.mnemonic: row for row in rows}
        self._encode = {
            row.mnemonic: (row.match, tuple(_encode_field(field) for field in row.fields))
            for row in self._rows.values()
        }
        self._decode = _decode_plan(self._rows.values())

    def row(self, mnemonic: str) -> AnyRow:
        """The table row of a mnemonic; IsaError if there is none."""
        found = self._rows.get(mnemonic)
        if found is None:
            raise IsaError(f"no instruction is called {mnemonic!r}")
        return found

    def instruction(self, mnemonic: str, values: tuple[int, ...]) -> Instruction:
        """The instruction with these operand values, in the row's order. Raises IsaError."""
        plan = self._encode.get(mnemonic)
        if plan is None or len(plan[1]) != len(values):
            names = ", ".join(field.name for field in self.row(mnemonic).fields)
            raise IsaError(f"{mnemonic} takes the operands ({names}), got {len(values)} values")
        return Instruction(mnemonic, tuple([(field[0], value) for field, value in zip(plan[1], values, strict=True)]))

    def encode(self, instruction: Instruction) -> int:
        """The 32-bit word of an instruction. IsaError names the operand that is missing, unknown or out of range."""
        plan = self._encode.get(instruction.mnemonic)
        if plan is None:
            raise IsaError(f"no instruction is called {instruction.mnemonic!r}")
        word, fields = plan
        operands = instruction.operands
        if len(operands) != len(fields):
            raise self._operand_error(instruction)
        for (name, value), (field_name, minimum, maximum, zero_bits, pieces) in zip(operands, fields, strict=True):
            if name != field_name or not minimum <= value <= maximum or value & zero_bits:
                raise self._operand_error(instruction)
            for low, mask, bit in pieces:
                word |= (value >> low & mask) << bit
            if field_name == "rm" and value in _RESERVED_ROUNDING:
                raise self._operand_error(instruction)
        return word

    def _operand_error(self, instruction: Instruction) -> IsaError:
        """The reason why the operands do not fit the row."""
        fields = self.row(instruction.mnemonic).fields
        wanted = tuple(field.name for field in fields)
        given = tuple(name for name, _ in instruction.operands)
        if wanted != given:
            return IsaError(f"{instruction.mnemonic} takes the operands {wanted}, got {given}")
        for field, (name, value) in zip(fields, instruction.operands, strict=True):
            if not field.minimum <= value <= field.maximum or value % field.step:
                step = f" in steps of {field.step}" if field.step > 1 else ""
                allowed = f"{field.minimum}..{field.maximum}{step}"
                return IsaError(f"{instruction.mnemonic}: operand {name} is {value}, allowed are {allowed}")
        return IsaError(f"{instruction.mnemonic}: rounding modes {_RESERVED_ROUNDING} are reserved")

    def decode(self, word: int) -> Instruction | None:
        """The instruction of a 32-bit word, or None when no row matches or a field holds a reserved value."""
        for mask, by_match in self._decode.get(word & 0x7F, ()):
            found = by_match.get(word & mask)
            if found is None:
                continue
            mnemonic, fields = found
            operands: list[tuple[str, int]] = []
            for table, shift, narrow_mask, name, pieces, sign in fields:
                if table is not None:
                    operand = table[word >> shift & narrow_mask]
                    if operand is None:
                        return None
                    operands.append(operand)
                    continue
                value = 0
                for low, piece_mask, bit in pieces:
                    value |= (word >> bit & piece_mask) << low
                operands.append((name, (value ^ sign) - sign))
            return Instruction(mnemonic, tuple(operands))
        return None


def _decode_plan(rows: Iterable[Row]) -> _DecodePlan:
    """By opcode: for every distinct mask, the rows by their fixed bits."""
    by_opcode: dict[int, dict[int, dict[int, _DecodeRow]]] = {}
    for row in rows:
        by_mask = by_opcode.setdefault(row.match & 0x7F, {})
        fields = tuple(_decode_field(field) for field in row.fields)
        by_mask.setdefault(row.mask, {})[row.match] = (row.mnemonic, fields)
    return {opcode: tuple(by_mask.items()) for opcode, by_mask in by_opcode.items()}
