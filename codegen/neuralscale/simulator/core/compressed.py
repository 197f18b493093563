"""RV32C: every 16-bit instruction stands for one 32-bit instruction, whose word this module gives.

16 bits --expand--> 32 bits, or None where the encoding is reserved
"""

from __future__ import annotations

from functools import cache

_LOAD, _STORE, _OP_IMM, _OP, _BRANCH, _LUI = 0x03, 0x23, 0x13, 0x33, 0x63, 0x37
_FLW, _FSW, _JAL, _JALR = 0x07, 0x27, 0x6F, 0x67
_EBREAK = 0x0010_0073


def _bits(word: int, *places: tuple[int, int, int]) -> int:
    """Gather fields: (lowest source bit, width, lowest destination bit)."""
    return sum((word >> low & ((1 << width) - 1)) << to for low, width, to in places)


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def _i(opcode: int, funct3: int, rd: int, rs1: int, immediate: int) -> int:
    return (immediate & 0xFFF) << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode


def _s(opcode: int, funct3: int, rs1: int, rs2: int, immediate: int) -> int:
    return (immediate >> 5 & 0x7F) << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | (immediate & 31) << 7 | opcode


def _r(funct7: int, funct3: int, rd: int, rs1: int, rs2: int) -> int:
    return funct7 << 25 | rs2 << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | _OP


def _j(rd: int, offset: int) -> int:
    return _bits(offset & 0x1F_FFFF, (20, 1, 31), (1, 10, 21), (11, 1, 20), (12, 8, 12)) | rd << 7 | _JAL


def _b(funct3: int, rs1: int, offset: int) -> int:
    fields = _bits(offset & 0x1FFF, (12, 1, 31), (5, 6, 25), (1, 4, 8), (11, 1, 7))
    return fields | rs1 << 15 | funct3 << 12 | _BRANCH


@cache
def expand(half: int) -> int | None:
    """The 32-bit equivalent of a 16-bit instruction (RV32FC), None when reserved."""
    match half & 3:
        case 0:
            return _quadrant0(half)
        case 1:
            return _quadrant1(half)
        case 2:
            return _quadrant2(half)
    return None


def _quadrant0(half: int) -> int | None:
    low, high = 8 + (half >> 2 & 7), 8 + (half >> 7 & 7)
    offset = _bits(half, (6, 1, 2), (10, 3, 3), (5, 1, 6))
    match half >> 13:
        case 0:
            immediate = _bits(half, (6, 1, 2), (5, 1, 3), (11, 2, 4), (7, 4, 6))
            return _i(_OP_IMM, 0, low, 2, immediate) if immediate else None
        case 2:
            return _i(_LOAD, 2, low, high, offset)
        case 3:
            return _i(_FLW, 2, low, high, offset)
        case 6:
            return _s(_STORE, 2, high, low, offset)
        case 7:
            return _s(_FSW, 2, high, low, offset)
    return None


def _quadrant1(half: int) -> int | None:
    register = half >> 7 & 31
    immediate = _signed(_bits(half, (2, 5, 0), (12, 1, 5)), 6)
    jump = _signed(
        _bits(half, (3, 3, 1), (11, 1, 4), (2, 1, 5), (7, 1, 6), (6, 1, 7), (9, 2, 8), (8, 1, 10), (12, 1, 11)), 12
    )
    match half >> 13:
        case 0:
            return _i(_OP_IMM, 0, register, register, immediate)
        case 1:
            return _j(1, jump)
        case 2:
            return _i(_OP_IMM, 0, register, 0, immediate)
        case 3 if register == 2:
            step = _signed(_bits(half, (6, 1, 4), (2, 1, 5), (5, 1, 6), (3, 2, 7), (12, 1, 9)), 10)
            return _i(_OP_IMM, 0, 2, 2, step) if step else None
        case 3:
            return (immediate & 0xF_FFFF) << 12 | register << 7 | _LUI if immediate else None
        case 4:
            return _arithmetic(half, immediate)
        case 5:
            return _j(0, jump)
    target = _signed(_bits(half, (3, 2, 1), (10, 2, 3), (2, 1, 5), (5, 2, 6), (12, 1, 8)), 9)
    return _b(half >> 13 & 1, 8 + (half >> 7 & 7), target)


def _arithmetic(half: int, immediate: int) -> int | None:
    rd, rs2 = 8 + (half >> 7 & 7), 8 + (half >> 2 & 7)
    match half >> 10 & 3:
        case 0 | 1 if half >> 12 & 1:
            return None
        case 0:
            return _i(_OP_IMM, 5, rd, rd, immediate & 31)
        case 1:
            return _i(_OP_IMM, 5, rd, rd, 0x400 | immediate & 31)
        case 2:
            return _i(_OP_IMM, 7, rd, rd, immediate)
    if half >> 12 & 1:
        return None
    funct7, funct3 = ((0x20, 0), (0, 4), (0, 6), (0, 7))[half >> 5 & 3]
    return _r(funct7, funct3, rd, rd, rs2)


def _quadrant2(half: int) -> int | None:
    register, rs2 = half >> 7 & 31, half >> 2 & 31
    load = _bits(half, (4, 3, 2), (12, 1, 5), (2, 2, 6))
    store = _bits(half, (9, 4, 2), (7, 2, 6))
    match half >> 13:
        case 0:
            return None if half >> 12 & 1 else _i(_OP_IMM, 1, register, register, rs2)
        case 2:
            return _i(_LOAD, 2, register, 2, load) if register else None
        case 3:
            return _i(_FLW, 2, register, 2, load)
        case 4 if half >> 12 & 1:
            if rs2:
                return _r(0, 0, register, register, rs2)
            return _i(_JALR, 0, 1, register, 0) if register else _EBREAK
        case 4:
            if rs2:
                return _r(0, 0, register, 0, rs2)
            return _i(_JALR, 0, 0, register, 0) if register else None
        case 6:
            return _s(_STORE, 2, 2, rs2, store)
        case 7:
            return _s(_FSW, 2, 2, rs2, store)
    return None
