"""The compiled inner loop: RV32IM, loads and stores, moves to and from FPRs, and plain CSRs over decoded code.

It runs one core for a number of instructions and returns early where Python has to act: at code that is not decoded
yet, and at every instruction it does not know or whose access is not a plain one (NPU, system, atomics, floating-point
arithmetic, registers of devices, `tohost`, unwritten or contested bytes, misaligned or unmapped addresses). Python then
executes that one instruction in full, so this loop has no error paths of its own.

A decoded instruction is one int64: op (8 bits), compressed (1), rd (6), rs1 (5), rs2 (5), table row (10), immediate
(21, signed). Writes to x0 are decoded as writes to the spare register 32.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

CODE_PAGE_BITS: Final = 14
CODE_PAGE_HALFWORDS: Final = 1 << (CODE_PAGE_BITS - 1)
SPARE_REGISTER: Final = 32

RD_SHIFT: Final = 9
RS1_SHIFT: Final = 15
RS2_SHIFT: Final = 20
ROW_SHIFT: Final = 25
ROW_MASK: Final = 0x3FF
IMMEDIATE_SHIFT: Final = 43

# Indices into the loop's state vector.
PC: Final = 0
BUDGET: Final = 1
EXECUTED: Final = 2
TRACKED: Final = 3
TOHOST: Final = 4
STATE_WORDS: Final = 8

# Indices into the state of an instruction cache, before the tags: for each set its ways, the last used first.
LINE_BITS: Final = 0
SETS: Final = 1
WAYS: Final = 2
MISSED: Final = 3
LINE: Final = 4
CACHE_WORDS: Final = 8
NO_CACHE: Final = 63
"""LINE_BITS that mean no cache: all code is one line, which is present."""

# Reasons why the loop returned.
SPENT: Final = 0
NEEDS_CODE: Final = 1
NEEDS_PYTHON: Final = 2

# Operations of the loop, numbered by their place in this list; 0 is "Python does it".
# fmt: off
_MNEMONICS: Final = (
    "", "lui", "auipc", "jal", "jalr", "beq", "bne", "blt", "bge", "bltu", "bgeu",
    "lb", "lh", "lw", "lbu", "lhu", "sb", "sh", "sw",
    "addi", "slti", "sltiu", "xori", "ori", "andi", "slli", "srli", "srai",
    "add", "sub", "sll", "slt", "sltu", "xor", "srl", "sra", "or", "and",
    "mul", "mulh", "mulhsu", "mulhu", "div", "divu", "rem", "remu", "fence",
    "csrrw", "csrrs", "csrrc", "csrrwi", "csrrsi", "csrrci", "flw", "fsw", "fmv.x.w", "fmv.w.x",
)
(
    SLOW, LUI, AUIPC, JAL, JALR, BEQ, BNE, BLT, BGE, BLTU, BGEU,
    LB, LH, LW, LBU, LHU, SB, SH, SW,
    ADDI, SLTI, SLTIU, XORI, ORI, ANDI, SLLI, SRLI, SRAI,
    ADD, SUB, SLL, SLT, SLTU, XOR, SRL, SRA, OR, AND,
    MUL, MULH, MULHSU, MULHU, DIV, DIVU, REM, REMU, FENCE,
    CSRRW, CSRRS, CSRRC, CSRRWI, CSRRSI, CSRRCI, FLW, FSW, FMV_X_W, FMV_W_X,
) = range(57)
# fmt: on
OPERATIONS: Final = {mnemonic: number for number, mnemonic in enumerate(_MNEMONICS) if mnemonic}

_MASK = 0xFFFF_FFFF
_PAGE_BITS = 18
_PAGE_MASK = (1 << _PAGE_BITS) - 1
_MSTATUS = 0x300
_FS = 0x6000
_FS_DIRTY = 0x8000_6000
_BOX = -1 << 32

_SIGNATURE = (
    "int64(uint32[::1], uint32[::1], int64[::1], int32[::1], int64[::1], uint32[::1], int32[::1], "
    "int64[::1], uint32[::1], uint8[::1], int64[::1], int64[::1], int64[::1])"
)


@njit("int64(int64[::1], int64)", cache=True, nogil=True)
def _missed(cache: NDArray[np.int64], line: int) -> int:
    """1 where the line is not in the cache, else 0; it becomes the last used line of its set."""
    ways = cache[WAYS]
    first = CACHE_WORDS + (line & (cache[SETS] - 1)) * ways
    held = line
    for way in range(first, first + ways):
        other = cache[way]
        cache[way] = held
        if other == line:
            return 0
        held = other
    return 1


@njit(_SIGNATURE, cache=True, nogil=True, error_model="numpy", boundscheck=False)
def run(
    arena: NDArray[np.uint32],
    shadow: NDArray[np.uint32],
    pages: NDArray[np.int64],
    code_pages: NDArray[np.int32],
    pool: NDArray[np.int64],
    x: NDArray[np.uint32],
    xs: NDArray[np.int32],
    f: NDArray[np.int64],
    csr: NDArray[np.uint32],
    plain_csr: NDArray[np.uint8],
    counts: NDArray[np.int64],
    state: NDArray[np.int64],
    cache: NDArray[np.int64],
) -> int:
    """Execute up to `state[BUDGET]` instructions from `state[PC]`; return why the loop stopped.

    `x` has 33 entries and `xs` is the same memory as signed; `f` holds FPRs boxed to 64 bits; `counts` is indexed by
    table row; `cache` is the state of the instruction cache, see above. On return `state[PC]` is the next instruction
    and `state[EXECUTED]` the number of retired ones.
    """
    pc = state[PC]
    budget = state[BUDGET]
    tracked = state[TRACKED] != 0
    tohost = state[TOHOST]
    done = 0
    reason = SPENT
    page = -1
    first = np.int64(0)
    line_bits = cache[LINE_BITS]
    line = cache[LINE]
    while done < budget:
        if pc >> CODE_PAGE_BITS != page:
            page = pc >> CODE_PAGE_BITS
            slot = np.int64(code_pages[page])
            if slot == 0:
                reason = NEEDS_CODE
                break
            first = (slot - 1) * CODE_PAGE_HALFWORDS
        if pc >> line_bits != line:
            line = pc >> line_bits
            cache[MISSED] += _missed(cache, line)
        d = pool[first + ((pc >> 1) & (CODE_PAGE_HALFWORDS - 1))]
        op = d & 0xFF
        rd = (d >> RD_SHIFT) & 0x3F
        rs1 = (d >> RS1_SHIFT) & 0x1F
        rs2 = (d >> RS2_SHIFT) & 0x1F
        immediate = d >> IMMEDIATE_SHIFT
        following = pc + 4 - ((d >> 7) & 2)
        if op == ADDI:
            x[rd] = np.int64(x[rs1]) + immediate
        elif op == LW:
            address = (np.int64(x[rs1]) + immediate) & _MASK
            at = pages[address >> _PAGE_BITS]
            if at < 0 or address & 3 != 0:
                reason = NEEDS_PYTHON
                break
            at = (at + (address & _PAGE_MASK)) >> 2
            if tracked and np.int64(shadow[at]) & 0x03030303 != 0x01010101:
                reason = NEEDS_PYTHON
                break
            x[rd] = arena[at]
        elif op in (SW, FSW):
            address = (np.int64(x[rs1]) + immediate) & _MASK
            at = pages[address >> _PAGE_BITS]
            if at < 0 or address & 3 != 0 or address & ~np.int64(7) == tohost:
                reason = NEEDS_PYTHON
                break
            if op == FSW and csr[_MSTATUS] & _FS == 0:
                reason = NEEDS_PYTHON
                break
            at = (at + (address & _PAGE_MASK)) >> 2
            if tracked:
                if np.int64(shadow[at]) & 0x06060606 != 0:
                    reason = NEEDS_PYTHON
                    break
                shadow[at] |= np.uint32(0x01010101)
            if op == SW:
                arena[at] = x[rs2]
            else:
                arena[at] = f[rs2] & _MASK
        elif op in (LH, LHU):
            address = (np.int64(x[rs1]) + immediate) & _MASK
            at = pages[address >> _PAGE_BITS]
            if at < 0 or address & 1 != 0:
                reason = NEEDS_PYTHON
                break
            at = (at + (address & _PAGE_MASK)) >> 2
            lane = (address & 3) * 8
            if tracked and (np.int64(shadow[at]) >> lane) & 0x0303 != 0x0101:
                reason = NEEDS_PYTHON
                break
            value = (np.int64(arena[at]) >> lane) & 0xFFFF
            x[rd] = (value ^ 0x8000) - 0x8000 if op == LH else value
        elif op in (LB, LBU):
            address = (np.int64(x[rs1]) + immediate) & _MASK
            at = pages[address >> _PAGE_BITS]
            if at < 0:
                reason = NEEDS_PYTHON
                break
            at = (at + (address & _PAGE_MASK)) >> 2
            lane = (address & 3) * 8
            if tracked and (np.int64(shadow[at]) >> lane) & 3 != 1:
                reason = NEEDS_PYTHON
                break
            value = (np.int64(arena[at]) >> lane) & 0xFF
            x[rd] = (value ^ 0x80) - 0x80 if op == LB else value
        elif op in (SH, SB):
            address = (np.int64(x[rs1]) + immediate) & _MASK
            at = pages[address >> _PAGE_BITS]
            ones = np.int64(0xFFFF) if op == SH else np.int64(0xFF)
            if at < 0 or (op == SH and address & 1 != 0) or address & ~np.int64(7) == tohost:
                reason = NEEDS_PYTHON
                break
            at = (at + (address & _PAGE_MASK)) >> 2
            lane = (address & 3) * 8
            if tracked:
                if np.int64(shadow[at]) & ((ones & 0x0606) << lane) != 0:
                    reason = NEEDS_PYTHON
                    break
                shadow[at] = np.int64(shadow[at]) | ((ones & 0x0101) << lane)
            arena[at] = (np.int64(arena[at]) & ~(ones << lane)) | ((np.int64(x[rs2]) & ones) << lane)
        elif op == BEQ:
            if x[rs1] == x[rs2]:
                following = pc + immediate
        elif op == BNE:
            if x[rs1] != x[rs2]:
                following = pc + immediate
        elif op == BLT:
            if xs[rs1] < xs[rs2]:
                following = pc + immediate
        elif op == BGE:
            if xs[rs1] >= xs[rs2]:
                following = pc + immediate
        elif op == BLTU:
            if x[rs1] < x[rs2]:
                following = pc + immediate
        elif op == BGEU:
            if x[rs1] >= x[rs2]:
                following = pc + immediate
        elif op == ADD:
            x[rd] = np.int64(x[rs1]) + np.int64(x[rs2])
        elif op == SUB:
            x[rd] = np.int64(x[rs1]) - np.int64(x[rs2])
        elif op == LUI:
            x[rd] = immediate << 12
        elif op == AUIPC:
            x[rd] = pc + (immediate << 12)
        elif op == JAL:
            x[rd] = following
            following = pc + immediate
        elif op == JALR:
            target = (np.int64(x[rs1]) + immediate) & 0xFFFF_FFFE
            x[rd] = following
            following = target
        elif op == SLTI:
            x[rd] = 1 if np.int64(xs[rs1]) < immediate else 0
        elif op == SLTIU:
            x[rd] = 1 if np.int64(x[rs1]) < (immediate & _MASK) else 0
        elif op == XORI:
            x[rd] = np.int64(x[rs1]) ^ immediate
        elif op == ORI:
            x[rd] = np.int64(x[rs1]) | immediate
        elif op == ANDI:
            x[rd] = np.int64(x[rs1]) & immediate
        elif op == SLLI:
            x[rd] = np.int64(x[rs1]) << (immediate & 31)
        elif op == SRLI:
            x[rd] = np.int64(x[rs1]) >> (immediate & 31)
        elif op == SRAI:
            x[rd] = np.int64(xs[rs1]) >> (immediate & 31)
        elif op == SLL:
            x[rd] = np.int64(x[rs1]) << (np.int64(x[rs2]) & 31)
        elif op == SRL:
            x[rd] = np.int64(x[rs1]) >> (np.int64(x[rs2]) & 31)
        elif op == SRA:
            x[rd] = np.int64(xs[rs1]) >> (np.int64(x[rs2]) & 31)
        elif op == SLT:
            x[rd] = 1 if xs[rs1] < xs[rs2] else 0
        elif op == SLTU:
            x[rd] = 1 if x[rs1] < x[rs2] else 0
        elif op == XOR:
            x[rd] = x[rs1] ^ x[rs2]
        elif op == OR:
            x[rd] = x[rs1] | x[rs2]
        elif op == AND:
            x[rd] = x[rs1] & x[rs2]
        elif op == MUL:
            x[rd] = np.int64(xs[rs1]) * np.int64(xs[rs2])
        elif op == MULH:
            x[rd] = (np.int64(xs[rs1]) * np.int64(xs[rs2])) >> 32
        elif op == MULHSU:
            x[rd] = (np.int64(xs[rs1]) * np.int64(x[rs2])) >> 32
        elif op == MULHU:
            x[rd] = (np.uint64(x[rs1]) * np.uint64(x[rs2])) >> np.uint64(32)
        elif op in (DIV, REM):
            a = np.int64(xs[rs1])
            b = np.int64(xs[rs2])
            if b == 0:
                x[rd] = np.int64(-1) if op == DIV else a
            else:
                quotient = abs(a) // abs(b)
                if (a < 0) != (b < 0):
                    quotient = -quotient
                x[rd] = quotient if op == DIV else a - quotient * b
        elif op in (DIVU, REMU):
            a = np.int64(x[rs1])
            b = np.int64(x[rs2])
            if b == 0:
                x[rd] = np.int64(-1) if op == DIVU else a
            else:
                x[rd] = a // b if op == DIVU else a % b
        elif op >= CSRRW and op <= CSRRCI:
            number = immediate & 0xFFF
            if plain_csr[number] == 0:
                reason = NEEDS_PYTHON
                break
            old = np.int64(csr[number])
            operand = np.int64(x[rs1]) if op <= CSRRC else rs1
            if op in (CSRRW, CSRRWI):
                csr[number] = operand
            elif op in (CSRRS, CSRRSI):
                csr[number] = old | operand
            else:
                csr[number] = old & ~operand
            x[rd] = old
        elif op == FLW:
            address = (np.int64(x[rs1]) + immediate) & _MASK
            at = pages[address >> _PAGE_BITS]
            if at < 0 or address & 3 != 0 or csr[_MSTATUS] & _FS == 0:
                reason = NEEDS_PYTHON
                break
            at = (at + (address & _PAGE_MASK)) >> 2
            if tracked and np.int64(shadow[at]) & 0x03030303 != 0x01010101:
                reason = NEEDS_PYTHON
                break
            f[rd] = np.int64(arena[at]) | _BOX
            csr[_MSTATUS] |= np.uint32(_FS_DIRTY)
        elif op == FMV_W_X:
            if csr[_MSTATUS] & _FS == 0:
                reason = NEEDS_PYTHON
                break
            f[rd] = np.int64(x[rs1]) | _BOX
            csr[_MSTATUS] |= np.uint32(_FS_DIRTY)
        elif op == FMV_X_W:
            if csr[_MSTATUS] & _FS == 0:
                reason = NEEDS_PYTHON
                break
            x[rd] = f[rs1] & _MASK
        elif op != FENCE:
            reason = NEEDS_PYTHON
            break
        counts[(d >> ROW_SHIFT) & ROW_MASK] += 1
        pc = following & _MASK
        done += 1
    state[PC] = pc
    cache[LINE] = line
    state[EXECUTED] = done
    return reason
