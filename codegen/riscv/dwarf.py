"""DWARF line information: to which line of the assembly text, and to which operator, each address of the code belongs.

    lines of the text, source ranges  -- debug_sections -->  .debug_abbrev, .debug_info, .debug_line, .debug_str

One unit stands for the text; each stretch of code for one operator is a function of the operator's name, so one name
may have many. The line program takes a byte for a word of code: words are consecutive, so only the line has to be
told.

Source: DWARF Debugging Information Format, version 4, which every reader knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import pack

import numpy as np
import numpy.typing as npt

from codegen.riscv.elf_format import ElfForm
from codegen.riscv.elf_writer import ElfSection
from codegen.source_map import SourceRange, printable

WORD_BYTES = 4
_VERSION = 4
_UNIT, _FUNCTION = 1, 2
_TAG_COMPILE_UNIT, _TAG_SUBPROGRAM = 0x11, 0x2E
_NAME, _STATEMENTS, _LOW_PC, _HIGH_PC, _LANGUAGE, _FOLDER, _PRODUCER, _DECLARED_FILE, _DECLARED_LINE = (
    0x03, 0x10, 0x11, 0x12, 0x13, 0x1B, 0x25, 0x3A, 0x3B,
)  # fmt: skip
_ADDRESS, _DATA2, _STRING, _DATA1, _STRING_PLACE, _UNSIGNED, _SECTION_PLACE = 0x01, 0x05, 0x08, 0x0B, 0x0E, 0x0F, 0x17
_ASSEMBLER = 0x8001
"""The language; DWARF 4 has no number of its own for assembly, and GNU `as` writes this one."""

_OPERANDS = bytes((0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1))
"""Operands of the standard opcodes 1 to 12."""
_COPY, _ADVANCE_PC, _ADVANCE_LINE = 1, 2, 3
_END_SEQUENCE, _SET_ADDRESS = 1, 2
_LINE_RANGE = 16
_NEXT_WORD = 1 + len(_OPERANDS) + _LINE_RANGE
"""The special opcode for the next word on the same line; the following ones are for 1, 2, ... lines further."""

_ABBREVIATIONS = (
    (_UNIT, _TAG_COMPILE_UNIT, True, (
        (_PRODUCER, _STRING), (_LANGUAGE, _DATA2), (_NAME, _STRING), (_FOLDER, _STRING),
        (_LOW_PC, _ADDRESS), (_HIGH_PC, _UNSIGNED), (_STATEMENTS, _SECTION_PLACE),
    )),
    (_FUNCTION, _TAG_SUBPROGRAM, False, (
        (_NAME, _STRING_PLACE), (_DECLARED_FILE, _DATA1), (_DECLARED_LINE, _UNSIGNED),
        (_LOW_PC, _ADDRESS), (_HIGH_PC, _UNSIGNED),
    )),
)  # fmt: skip


def debug_sections(
    file: str, base_address: int, lines: Sequence[int], ranges: Sequence[SourceRange], form: ElfForm
) -> tuple[ElfSection, ...]:
    """Sections that tell a debugger about code at `base_address`, of which word k stands in line `lines[k]` of `file`,
    which lies beside the executable. There is at least one word. Of `ranges`, which lie in the code, those of an
    operator become functions."""
    names, functions = _functions(base_address, lines, ranges, form)
    end_bytes = WORD_BYTES * len(lines)
    unit = (
        _unsigned(_UNIT), b"dsa-sched\0", pack("<H", _ASSEMBLER), file.encode() + b"\0", b".\0",
        _address(base_address, form), _unsigned(end_bytes), pack("<I", 0),
    )  # fmt: skip
    info = pack("<HIB", _VERSION, 0, form.bits // 8) + b"".join(unit) + functions + b"\0"
    return (
        ElfSection(".debug_abbrev", _abbreviations()),
        ElfSection(".debug_info", _counted(info)),
        ElfSection(".debug_line", _line_table(file, base_address, np.asarray(lines, np.int64), form)),
        ElfSection(".debug_str", names),
    )


def _functions(
    base_address: int, lines: Sequence[int], ranges: Sequence[SourceRange], form: ElfForm
) -> tuple[bytes, bytes]:
    """Names, each once and ended by a zero byte, and the entries of the stretches that belong to operators."""
    places: dict[str, int] = {}
    names, entries = bytearray(), bytearray()
    for each in ranges:
        if not each.source or each.start == each.end:
            continue
        place = places.get(each.source)
        if place is None:
            place = places[each.source] = len(names)
            names += printable(each.source).encode() + b"\0"
        line = lines[(each.start - base_address) // WORD_BYTES]
        entries += _unsigned(_FUNCTION) + pack("<IB", place, 1) + _unsigned(line)
        entries += _address(each.start, form) + _unsigned(each.end - each.start)
    return bytes(names), bytes(entries)


def _abbreviations() -> bytes:
    """What the fields of a unit and of a function are."""
    table = bytearray()
    for number, tag, has_children, fields in _ABBREVIATIONS:
        table += _unsigned(number) + _unsigned(tag) + bytes((has_children,))
        for attribute, kind in (*fields, (0, 0)):
            table += _unsigned(attribute) + _unsigned(kind)
    return bytes(table) + b"\0"


def _line_table(file: str, base_address: int, lines: npt.NDArray[np.int64], form: ElfForm) -> bytes:
    """The line table, header and program; `lines` holds the line of each word."""
    files = b"\0" + file.encode() + b"\0" + bytes(3) + b"\0"
    sizes = bytes((WORD_BYTES, 1, 1, 0, _LINE_RANGE, 1 + len(_OPERANDS)))
    header = sizes + _OPERANDS + files
    table = pack("<HI", _VERSION, len(header)) + header + b"".join(_line_program(base_address, lines, form))
    return _counted(table)


def _line_program(base_address: int, lines: npt.NDArray[np.int64], form: ElfForm) -> Iterator[bytes]:
    """The opcodes, from the first word to behind the last one."""
    yield _extended(_SET_ADDRESS, _address(base_address, form))
    yield bytes((_ADVANCE_LINE,)) + _signed(int(lines[0]) - 1) + bytes((_COPY,))
    steps = np.diff(lines)
    far = (steps < 0) | (steps >= _LINE_RANGE)
    opcodes = (_NEXT_WORD + np.where(far, 0, steps)).astype(np.uint8)
    begun = 0
    for place in np.flatnonzero(far).tolist():
        yield opcodes[begun:place].tobytes() + bytes((_ADVANCE_LINE,)) + _signed(int(steps[place]))
        begun = place
    yield opcodes[begun:].tobytes() + bytes((_ADVANCE_PC,)) + _unsigned(1) + _extended(_END_SEQUENCE, b"")


def _extended(opcode: int, operand: bytes) -> bytes:
    return b"\0" + _unsigned(1 + len(operand)) + bytes((opcode,)) + operand


def _counted(data: bytes) -> bytes:
    """The data with its size before it."""
    return pack("<I", len(data)) + data


def _address(value: int, form: ElfForm) -> bytes:
    return value.to_bytes(form.bits // 8, "little")


def _unsigned(value: int) -> bytes:
    """LEB128: seven bits to the byte, the lowest ones first."""
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*digits, value))


def _signed(value: int) -> bytes:
    """LEB128 with the sign in the last byte's bit 6."""
    digits = bytearray()
    while not -0x40 <= value < 0x40:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*digits, value & 0x7F))
