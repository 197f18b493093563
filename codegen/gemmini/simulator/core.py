"""The compiled loops of the simulator: the RISC-V core and the accelerator, one instruction after the other.

    code, registers, memories --run--> the same arrays changed, and a status with what it is about

All compiled loops live in this one file: numba's disk cache notices a change of the file that holds a function, not of
others that it calls. Arithmetic is that of the generator's functional model: sums wrap at 32 bits, a scale is one
float32 product of the number as float32, rounded to the nearest integer (ties to even), then bounded to eight bits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from codegen.gemmini.isa.operations import FUNCTIONS
from codegen.gemmini.isa.table import ROWS
from codegen.gemmini.isa.unrolled import PARTS
from codegen.gemmini.simulator.status import (
    BAD_ACCESS,
    BAD_CODE,
    BAD_CONFIG,
    BAD_EXTENT,
    BAD_LOCAL_ROW,
    BAD_SCALE,
    ENDED,
    FLOATS_OFF,
    LIMIT,
    MISALIGNED,
    NO_FACTOR,
    NOT_SIMULATED,
    NOTES_FULL,
    RUNNING,
    UNFENCED,
    UNROLL,
    UNWRITTEN,
    UNWRITTEN_LOCAL,
)

_N: Final = {row.mnemonic: number for number, row in enumerate(ROWS)}
FUNCTION_COUNT: Final = sum(row.extension == "Gemmini" for row in ROWS)

# Numbers of instructions, as compiled code compares them.
CONFIG, MVIN, MVIN2, MVIN3, MVOUT = (_N[name] for name in ("config", "mvin", "mvin2", "mvin3", "mvout"))
PRELOADED, ACCUMULATED, PRELOAD, FLUSH = (
    _N[name] for name in ("compute_preloaded", "compute_accumulated", "preload", "flush")
)
LOOP, LOOP_CONV = _N["loop_ws"], _N["loop_conv_ws"]
LOOP_FUNCTIONS: Final = tuple(number for name, number in _N.items() if name.startswith("loop_"))
assert all(_N[name] == number for name, number in FUNCTIONS.items())  # so that unrolled instructions are told apart too
LUI, AUIPC, JAL, JALR = (_N[name] for name in ("lui", "auipc", "jal", "jalr"))
BEQ, BNE, BLT, BGE, BLTU, BGEU = (_N[name] for name in ("beq", "bne", "blt", "bge", "bltu", "bgeu"))
LB, LH, LW, LD, LBU, LHU, LWU = (_N[name] for name in ("lb", "lh", "lw", "ld", "lbu", "lhu", "lwu"))
SB, SH, SW, SD, FLW, FSW = (_N[name] for name in ("sb", "sh", "sw", "sd", "flw", "fsw"))
ADDI, SLTI, SLTIU, XORI, ORI, ANDI = (_N[name] for name in ("addi", "slti", "sltiu", "xori", "ori", "andi"))
SLLI, SRLI, SRAI, ADDIW, ADDW, SUBW = (_N[name] for name in ("slli", "srli", "srai", "addiw", "addw", "subw"))
ADD, SUB, SLL, SLT, SLTU = (_N[name] for name in ("add", "sub", "sll", "slt", "sltu"))
XOR, SRL, SRA, OR, AND, MUL = (_N[name] for name in ("xor", "srl", "sra", "or", "and", "mul"))
DIV, REM = _N["div"], _N["rem"]
FENCE = _N["fence"]
CSRRW, CSRRS = _N["csrrw"], _N["csrrs"]
FIRST_FLOAT: Final = min(_N[row.mnemonic] for row in ROWS if row.extension == "F")
assert all(row.extension == "F" for row in ROWS[FIRST_FLOAT:])  # so that one comparison tells them apart
MSTATUS, MTVEC, FCSR = 0x300, 0x305, 0x003
FLOATS_ON: Final = 0b11 << 13
"""Bits of the status register that turn floating-point instructions on."""
FADD, FSUB, FMUL, FDIV, FSQRT = (_N[name] for name in ("fadd.s", "fsub.s", "fmul.s", "fdiv.s", "fsqrt.s"))
FMIN, FMAX, FSGNJ, FSGNJN, FSGNJX = (_N[name] for name in ("fmin.s", "fmax.s", "fsgnj.s", "fsgnjn.s", "fsgnjx.s"))
FEQ, FLT, FLE = (_N[name] for name in ("feq.s", "flt.s", "fle.s"))
FCVT_W_S, FCVT_S_W, FMV_X_W, FMV_W_X = (_N[name] for name in ("fcvt.w.s", "fcvt.s.w", "fmv.x.w", "fmv.w.x"))

# Places in the array of what is configured.
(STATIONARY, EX_ACTIVATION, SHIFT, A_STRIDE, C_STRIDE, TRANSPOSE_A, TRANSPOSE_B, OUT_STRIDE, OUT_ACTIVATION) = range(9)
(POOL_STRIDE, POOL_SIZE, POOL_TOP, POOL_LEFT, POOL_WIDTH, POOL_OUT_ROWS, POOL_OUT_COLUMNS) = range(9, 16)
(POOL_IN_ROWS, POOL_IN_COLUMNS, B_ADDRESS, C_ADDRESS) = range(16, 20)
LOAD_STRIDE, LOAD_BLOCK, LOAD_SHRUNK, LOAD_PIXELS = 20, 23, 26, 29
STATUS = 32
"""Place of the core's status register."""

PENDING_LOW, PENDING_HIGH = 33, 34
"""Places of the range in which bytes were moved out since the last fence; its end is 0 where there are none."""

LOOP_SET: Final = 35
"""Place of which of a loop's own instructions came since the last loop of their kind, as bits by their functions."""

LOOP_WORDS: Final = 36
"""Place of both operands of each function up to the last one of a loop, as they came last."""

CONFIG_WORDS: Final = LOOP_WORDS + 2 * (max(LOOP_FUNCTIONS) + 1)

OUT_SCALE, EX_SCALE = 3, 4
"""Places of the scales of moving out and of computing, after those of the three states of moving in."""

# Places in the array of counts, after those of the functions.
SCALAR, LOADED_BYTES, STORED_BYTES = FUNCTION_COUNT, FUNCTION_COUNT + 1, FUNCTION_COUNT + 2
COUNTS: Final = FUNCTION_COUNT + 3

# Columns of a note, see `codegen.gemmini.timing.trace`.
(KEY, BEFORE, BEFORE_EXTRA, FLOATS, COUNT, DURING, REQUESTS, MOVED, BEATS, LOCAL, ARRAY, PC, SUMS) = range(13)
FIRST_LOW, FIRST_HIGH, SECOND_LOW, SECOND_HIGH, TO_LOW, TO_HIGH, MAIN_LOW, MAIN_HIGH = range(13, 21)
FIRST_SUMS: Final = 21
NOTE_WORDS: Final = 22
KEY_CORE, KEY_FENCE, KEY_COMPUTE, KEY_CONFIG_EX, KEY_CONFIG_LD = range(1, 6)
KEY_LOOP_ADDED, KEY_LOOP_LOAD, KEY_LOOP_COMPUTE, KEY_LOOP_STORE = range(6, 10)
LOOP_KEYS: Final = dict(zip(PARTS, (KEY_LOOP_ADDED, KEY_LOOP_LOAD, KEY_LOOP_COMPUTE, KEY_LOOP_STORE), strict=True))
KEY_MOVE: Final = 10
"""Added to the number of a function that moves."""

NOTED, OPEN = 0, 1
"""Places in the state of noting: number of notes, key of the last one while it goes on."""

SINCE_COUNT, SINCE_EXTRA, SINCE_WORK, SINCE_PC = 2, 3, 4, 5
"""Since the last note: instructions, their further cycles, those that compute or load, and where they began."""

READ_LOW, READ_HIGH, WRITTEN_LOW, WRITTEN_HIGH = 6, 7, 8, 9
NOTING_WORDS: Final = 10
MOST_NOTES: Final = 6
"""Notes that one instruction makes, at most."""

LEAST_ROWS: Final = 4
"""Cycles at least between two blocks: sums of one row may not follow each other faster."""

WRITTEN, PENDING = 1, 2
"""States of a byte of the main memory that is not 0, unwritten: written; moved out, with no fence after that."""

_FAR: Final = 1 << 62
_LOW = 0xFFFFFFFF
_GARBAGE = 0xFFFFFFFF
_LOCAL_ROW = 0x1FFFFFFF
_SUMS, _ACCUMULATE, _FULL = 1 << 31, 1 << 30, 1 << 29


@njit(cache=True)
def _outside(mem: Any, base: int, address: int, size: int) -> Any:
    return address < base or address - base > len(mem) - size


@njit(cache=True)
def _unready(known: Any, poison: bool, start: int, size: int) -> Any:
    """Why bytes may not be read, as a status; RUNNING where they may."""
    if poison:
        for k in range(size):
            if known[start + k] != WRITTEN:
                return UNFENCED if known[start + k] == PENDING else UNWRITTEN
    return RUNNING


@njit(cache=True)
def _leave(known: Any, poison: bool, c: Any, start: int, size: int) -> None:
    """Bytes have been moved out, which nothing may rely on before a fence: the controllers and the core do not wait for
    each other's bytes of the main memory."""
    if poison:
        for k in range(size):
            known[start + k] = PENDING
        c[PENDING_LOW] = min(c[PENDING_LOW], start) if c[PENDING_HIGH] else start
        c[PENDING_HIGH] = max(c[PENDING_HIGH], start + size)


@njit(cache=True)
def _wait(known: Any, c: Any) -> None:
    for k in range(c[PENDING_LOW], c[PENDING_HIGH]):
        if known[k] == PENDING:
            known[k] = WRITTEN
    c[PENDING_HIGH] = 0


@njit(cache=True)
def _word(mem: Any, start: int) -> Any:
    return (
        np.int64(mem[start])
        | np.int64(mem[start + 1]) << 8
        | np.int64(mem[start + 2]) << 16
        | np.int64(np.int8(mem[start + 3])) << 24
    )


@njit(cache=True)
def _put(mem: Any, known: Any, start: int, value: int, size: int) -> None:
    for k in range(size):
        mem[start + k] = (value >> (8 * k)) & 0xFF
        known[start + k] = 1


@njit(cache=True)
def _scaled(value: int, scale: Any) -> Any:
    """The number as float32 times the scale, to the nearest integer, bounded to eight bits."""
    product = np.rint(np.float32(value) * scale)
    if product > np.float32(127):
        return 127
    if product < np.float32(-128):
        return -128
    return int(product)


@njit(cache=True)
def _configure(first: int, second: int, c: Any, scales: Any) -> Any:
    kind = first & 3
    scale = np.array([(second if kind == 2 else first) >> 32 & _LOW], np.uint32).view(np.float32)[0]
    if kind == 0:
        stationary, activation = first >> 2 & 1, first >> 3 & 3
        transpose_a, transpose_b = first >> 8 & 1, first >> 9 & 1
        if activation > 1:
            return NOT_SIMULATED
        if transpose_b and (transpose_a if stationary else not transpose_a):
            return BAD_CONFIG
        if second & _LOW >= 32:
            return BAD_CONFIG
        if not first >> 7 & 1:
            c[STATIONARY], c[EX_ACTIVATION], c[SHIFT] = stationary, activation, second & _LOW
            c[TRANSPOSE_A], c[TRANSPOSE_B] = transpose_a, transpose_b
            scales[EX_SCALE] = scale
        c[A_STRIDE], c[C_STRIDE] = first >> 16 & 0xFFFF, second >> 48 & 0xFFFF
    elif kind == 1:
        state = first >> 3 & 3
        if state == 3:
            return BAD_CONFIG
        c[LOAD_STRIDE + state], c[LOAD_BLOCK + state] = second, first >> 16 & 0xFFFF
        c[LOAD_SHRUNK + state], c[LOAD_PIXELS + state] = first >> 2 & 1, max(1, first >> 8 & 0xFF)
        scales[state] = scale
    elif kind == 2:
        if first >> 2 & 3 > 1:
            return NOT_SIMULATED
        c[OUT_ACTIVATION], c[OUT_STRIDE] = first >> 2 & 3, second & _LOW
        scales[OUT_SCALE] = scale
        c[POOL_STRIDE], c[POOL_SIZE] = first >> 4 & 3, first >> 6 & 3
        c[POOL_TOP], c[POOL_LEFT], c[POOL_WIDTH] = first >> 8 & 3, first >> 10 & 3, first >> 24 & 0xFF
        c[POOL_OUT_ROWS], c[POOL_OUT_COLUMNS] = first >> 32 & 0xFF, first >> 40 & 0xFF
        c[POOL_IN_ROWS], c[POOL_IN_COLUMNS] = first >> 48 & 0xFF, first >> 56 & 0xFF
    else:
        return NOT_SIMULATED
    return RUNNING


@njit(cache=True)
def _move_in(
    dram: int, local: int, state: int, mem: Any, known: Any, poison: bool, base: int,
    spad: Any, spad_known: Any, acc: Any, acc_known: Any, c: Any, scales: Any, counts: Any, about: Any,
) -> Any:  # fmt: skip
    dim = spad.shape[1]
    sums, adds = local >> 31 & 1, local >> 30 & 1
    first, columns, rows = local & 0x1FFFFFFF, local >> 32 & 0xFFFF, local >> 48 & 0xFFFF
    shrunk, pixels, scale = c[LOAD_SHRUNK + state], c[LOAD_PIXELS + state], scales[state]
    item = 4 if sums and not shrunk else 1
    if item == 1 and dram != 0 and not np.isfinite(scale):
        return BAD_SCALE
    for row in range(rows):
        start = dram + row * c[LOAD_STRIDE + state]
        if dram != 0:
            about[0] = start
            if _outside(mem, base, start, columns * item):
                return BAD_ACCESS
            status = _unready(known, poison, start - base, columns * item)
            if status != RUNNING:
                return status
            if row == 0 or c[LOAD_STRIDE + state] != 0:  # a row that is repeated is read once
                counts[LOADED_BYTES] += columns * item
        for column in range(columns):
            local_row = first + row + column // dim * c[LOAD_BLOCK + state]
            value = 0
            if dram != 0:
                if item == 4:
                    value = _word(mem, start - base + 4 * column)
                else:
                    value = _scaled(np.int64(np.int8(mem[start - base + column])), scale)
            for pixel in range(pixels):
                if pixel > local_row:
                    break
                to_row, to_column = local_row - pixel, column % dim + pixel * columns
                about[0] = to_row
                if to_row >= (acc.shape[0] if sums else spad.shape[0]):
                    return BAD_LOCAL_ROW
                if to_column >= dim:
                    return BAD_EXTENT
                if sums:
                    if adds:
                        if poison and acc_known[to_row, to_column] == 0:
                            return UNWRITTEN_LOCAL
                        acc[to_row, to_column] += np.int32(value)
                    else:
                        acc[to_row, to_column] = value
                        acc_known[to_row, to_column] = 1
                else:
                    spad[to_row, to_column] = value
                    spad_known[to_row, to_column] = 1
    return RUNNING


@njit(cache=True)
def _out(row: int, column: int, sums: int, spad: Any, acc: Any, c: Any, scales: Any) -> Any:
    """An element as it leaves, in eight bits."""
    if not sums:
        return np.int64(spad[row, column])
    value = _scaled(np.int64(acc[row, column]), scales[OUT_SCALE])
    return max(value, 0) if c[OUT_ACTIVATION] == 1 else value


@njit(cache=True)
def _move_out(
    dram: int, local: int, mem: Any, known: Any, poison: bool, base: int,
    spad: Any, spad_known: Any, acc: Any, acc_known: Any, c: Any, scales: Any, counts: Any, about: Any,
) -> Any:  # fmt: skip
    dim = spad.shape[1]
    sums, full = local >> 31 & 1, local >> 29 & 1
    first, columns, rows = local & 0x3FFFFFF, local >> 32 & 0xFFFF, local >> 48 & 0xFFFF
    depth = acc.shape[0] if sums else spad.shape[0]
    if sums and local >> 26 & 7:
        return NOT_SIMULATED
    if sums and not full and not np.isfinite(scales[OUT_SCALE]):
        return BAD_SCALE
    if c[POOL_STRIDE] != 0:
        return _pool_out(dram, first, columns, sums, depth, mem, known, poison, base, spad, spad_known, acc, acc_known,
                         c, scales, counts, about)  # fmt: skip
    item = 4 if sums and full else 1
    for row in range(rows):
        start = dram + row * c[OUT_STRIDE]
        about[0] = start
        if _outside(mem, base, start, columns * item):
            return BAD_ACCESS
        counts[STORED_BYTES] += columns * item
        for column in range(columns):
            from_row, from_column = first + row + column // dim * dim, column % dim
            about[0] = from_row
            if from_row >= depth:
                return BAD_LOCAL_ROW
            if poison and (acc_known if sums else spad_known)[from_row, from_column] == 0:
                return UNWRITTEN_LOCAL
            if item == 4:
                _put(mem, known, start - base + 4 * column, np.int64(acc[from_row, from_column]), 4)
            else:
                value = _out(from_row, from_column, sums, spad, acc, c, scales)
                _put(mem, known, start - base + column, value, 1)
        _leave(known, poison, c, start - base, columns * item)
    return RUNNING


@njit(cache=True)
def _pool_out(
    dram: int, first: int, columns: int, sums: int, depth: int, mem: Any, known: Any, poison: bool, base: int,
    spad: Any, spad_known: Any, acc: Any, acc_known: Any, c: Any, scales: Any, counts: Any, about: Any,
) -> Any:  # fmt: skip
    """Maxima over windows; what lies outside of the rows and columns counts as zero."""
    if columns > spad.shape[1]:
        return BAD_EXTENT
    for out_row in range(c[POOL_OUT_ROWS]):
        for out_column in range(c[POOL_OUT_COLUMNS]):
            start = dram + (out_row * c[POOL_WIDTH] + out_column) * c[OUT_STRIDE]
            about[0] = start
            if _outside(mem, base, start, columns):
                return BAD_ACCESS
            counts[STORED_BYTES] += columns
            for channel in range(columns):
                most = -128
                for down in range(c[POOL_SIZE]):
                    for along in range(c[POOL_SIZE]):
                        row = out_row * c[POOL_STRIDE] + down - c[POOL_TOP]
                        column = out_column * c[POOL_STRIDE] + along - c[POOL_LEFT]
                        value = 0
                        if 0 <= row < c[POOL_IN_ROWS] and 0 <= column < c[POOL_IN_COLUMNS]:
                            from_row = first + row * c[POOL_IN_COLUMNS] + column
                            about[0] = from_row
                            if from_row >= depth:
                                return BAD_LOCAL_ROW
                            if poison and (acc_known if sums else spad_known)[from_row, channel] == 0:
                                return UNWRITTEN_LOCAL
                            value = _out(from_row, channel, sums, spad, acc, c, scales)
                        most = max(most, value)
                _put(mem, known, start - base + channel, most, 1)
            _leave(known, poison, c, start - base, columns)
    return RUNNING


@njit(cache=True)
def _shifted(value: int, shift: int) -> Any:
    """Shift right, to the nearest, ties to even, bounded to eight bits."""
    result = value
    if shift > 0:
        half, rest = value >> (shift - 1) & 1, value & ((1 << (shift - 1)) - 1)
        result = (value >> shift) + (half & ((1 if rest else 0) | (value >> shift & 1)))
    return min(max(result, -128), 127)


@njit(cache=True)
def _multiply(
    a: int, d: int, fill: bool, poison: bool,
    spad: Any, spad_known: Any, acc: Any, acc_known: Any, pe: Any, c: Any, scales: Any, about: Any,
) -> Any:  # fmt: skip
    dim = spad.shape[1]
    a_row, a_columns, a_rows = a & _LOW, a >> 32 & 0xFFFF, a >> 48 & 0xFFFF
    d_row, d_columns, d_rows = d & _LOW, d >> 32 & 0xFFFF, d >> 48 & 0xFFFF
    b, out = c[B_ADDRESS], c[C_ADDRESS]
    b_row, b_columns, b_rows = b & _LOW, b >> 32 & 0xFFFF, b >> 48 & 0xFFFF
    stationary = c[STATIONARY]
    if fill:
        if b_row != _GARBAGE and b_row >> 30:
            return BAD_LOCAL_ROW
        for i in range(dim):
            for j in range(dim):
                pe[i, j] = 0
                if i < b_rows and j < b_columns and b_row != _GARBAGE:
                    turned = stationary and c[TRANSPOSE_B]
                    row, column = b_row + (j if turned else i), i if turned else j
                    about[0] = row
                    if row >= spad.shape[0]:
                        return BAD_LOCAL_ROW
                    if poison and spad_known[row, column] == 0:
                        return UNWRITTEN_LOCAL
                    pe[i, j] = spad[row, column]
    results = np.zeros((dim, dim), np.int32)
    factor = np.zeros((dim, dim), np.int32)
    if a_row == _GARBAGE:
        return NO_FACTOR
    sums = a_row >> 31 & 1
    if sums:
        if not np.isfinite(scales[EX_SCALE]):
            return BAD_SCALE
        a_row &= _LOCAL_ROW
    held, written = (acc.shape[0], acc_known) if sums else (spad.shape[0], spad_known)
    for i in range(min(dim, a_rows)):
        for k in range(min(dim, a_columns)):
            row = a_row + c[A_STRIDE] * (k if c[TRANSPOSE_A] else i)
            column = i if c[TRANSPOSE_A] else k
            about[0] = row
            if row >= held:
                return BAD_LOCAL_ROW
            if poison and written[row, column] == 0:
                return UNWRITTEN_LOCAL
            if sums:
                value = _scaled(np.int64(acc[row, column]), scales[EX_SCALE])
                factor[i, k] = max(value, 0) if c[EX_ACTIVATION] == 1 else value
            else:
                factor[i, k] = spad[row, column]
    if d_row != _GARBAGE:
        for i in range(min(dim, d_rows)):
            for j in range(min(dim, d_columns)):
                turned = not stationary and c[TRANSPOSE_B]
                row, column = d_row + (j if turned else i), i if turned else j
                about[0] = row
                if row >= spad.shape[0]:
                    return BAD_LOCAL_ROW
                if poison and spad_known[row, column] == 0:
                    return UNWRITTEN_LOCAL
                results[i, j] = spad[row, column]
    if stationary:
        for i in range(min(dim, a_rows)):
            for k in range(min(dim, a_columns)):
                left = factor[i, k]
                if left != 0:
                    for j in range(dim):
                        results[i, j] += left * pe[k, j]
    else:
        for i in range(dim):
            for k in range(dim):
                left = factor[i, k]
                if left != 0:
                    for j in range(dim):
                        pe[i, j] += left * results[k, j]
    if out & _LOW == _GARBAGE:
        return RUNNING
    return _results_out(out, pe if not stationary else results, poison, spad, spad_known, acc, acc_known, c, about)


@njit(cache=True)
def _results_out(
    out: int, results: Any, poison: bool, spad: Any, spad_known: Any, acc: Any, acc_known: Any, c: Any, about: Any
) -> Any:
    dim = spad.shape[1]
    sums, adds = out >> 31 & 1, out >> 30 & 1
    first, columns, rows = out & 0x1FFFFFFF, out >> 32 & 0xFFFF, out >> 48 & 0xFFFF
    if rows > dim or columns > dim:
        return BAD_EXTENT
    shift = 0 if c[STATIONARY] else c[SHIFT]
    for i in range(rows):
        row = first + c[C_STRIDE] * i
        about[0] = row
        if row >= (acc.shape[0] if sums else spad.shape[0]):
            return BAD_LOCAL_ROW
        for j in range(columns):
            if not sums:
                value = _shifted(np.int64(results[i, j]), shift)
                spad[row, j] = max(value, 0) if c[EX_ACTIVATION] == 1 else value
                spad_known[row, j] = 1
            elif adds:
                if poison and acc_known[row, j] == 0:
                    return UNWRITTEN_LOCAL
                acc[row, j] += results[i, j]
            else:
                acc[row, j] = results[i, j]
                acc_known[row, j] = 1
    return RUNNING


@njit(cache=True)
def _set_loop(function: int, first: int, second: int, c: Any) -> Any:
    """Take what one of a loop's own instructions sets; UNROLL where it asks for the loop."""
    c[LOOP_WORDS + 2 * function], c[LOOP_WORDS + 2 * function + 1] = first, second
    c[LOOP_SET] |= 1 << function
    return UNROLL if function in (LOOP, LOOP_CONV) else RUNNING


@njit(cache=True)
def carry_out(
    instructions: Any, mem: Any, known: Any, poison: bool, base: int,
    spad: Any, spad_known: Any, acc: Any, acc_known: Any, pe: Any, c: Any, scales: Any, counts: Any, about: Any,
) -> Any:  # fmt: skip
    """Do what a loop was unrolled into, instructions [N, 3]: RUNNING, or why not. What a loop reads it must not move
    out: it may do either first."""
    for function, first, second in instructions:
        status = _done(function, first, second, mem, known, poison, base, spad, spad_known, acc, acc_known, pe, c,
                       scales, counts, about)  # fmt: skip
        if status != RUNNING:
            return status
    if poison:
        for function, first, second in instructions:
            state = 0 if function == MVIN else 1 if function == MVIN2 else 2
            if function in (MVIN, MVIN2, MVIN3) and first != 0:
                item = 4 if second >> 31 & 1 and not c[LOAD_SHRUNK + state] else 1
                for row in range(second >> 48 & 0xFFFF):
                    about[0] = first + row * c[LOAD_STRIDE + state]
                    status = _unready(known, True, about[0] - base, (second >> 32 & 0xFFFF) * item)
                    if status != RUNNING:
                        return status
    return RUNNING


@njit(cache=True)
def _accelerate(
    function: int, first: int, second: int, mem: Any, known: Any, poison: bool, base: int,
    spad: Any, spad_known: Any, acc: Any, acc_known: Any, pe: Any, c: Any, scales: Any, counts: Any, about: Any,
) -> Any:  # fmt: skip
    counts[function] += 1
    if function in LOOP_FUNCTIONS:
        return _set_loop(function, first, second, c)
    return _done(function, first, second, mem, known, poison, base, spad, spad_known, acc, acc_known, pe, c, scales,
                 counts, about)  # fmt: skip


@njit(cache=True)
def _done(
    function: int, first: int, second: int, mem: Any, known: Any, poison: bool, base: int,
    spad: Any, spad_known: Any, acc: Any, acc_known: Any, pe: Any, c: Any, scales: Any, counts: Any, about: Any,
) -> Any:  # fmt: skip
    if function == CONFIG:
        return _configure(first, second, c, scales)
    if function in (MVIN, MVIN2, MVIN3):
        state = 0 if function == MVIN else 1 if function == MVIN2 else 2
        return _move_in(first, second, state, mem, known, poison, base, spad, spad_known, acc, acc_known, c, scales,
                        counts, about)  # fmt: skip
    if function == MVOUT:
        return _move_out(first, second, mem, known, poison, base, spad, spad_known, acc, acc_known, c, scales, counts,
                         about)  # fmt: skip
    if function == PRELOAD:
        c[B_ADDRESS], c[C_ADDRESS] = first, second
        return RUNNING
    if function in (PRELOADED, ACCUMULATED):
        return _multiply(first, second, function == PRELOADED, poison, spad, spad_known, acc, acc_known, pe, c, scales,
                         about)  # fmt: skip
    return RUNNING if function == FLUSH else NOT_SIMULATED


@njit(cache=True)
def _noted_core(notes: Any, noting: Any) -> None:
    """Note what the core has computed since the last note."""
    note = notes[noting[NOTED]]
    note[:] = 0
    note[KEY], note[BEFORE], note[BEFORE_EXTRA] = KEY_CORE, noting[SINCE_COUNT], noting[SINCE_EXTRA]
    note[PC] = noting[SINCE_PC]
    note[FIRST_LOW], note[FIRST_HIGH] = noting[READ_LOW], noting[READ_HIGH]
    note[TO_LOW], note[TO_HIGH] = noting[WRITTEN_LOW], noting[WRITTEN_HIGH]
    noting[NOTED] += 1
    noting[OPEN] = 0
    _forget(noting)


@njit(cache=True)
def _forget(noting: Any) -> None:
    noting[SINCE_COUNT:NOTING_WORDS] = 0
    noting[READ_LOW] = noting[WRITTEN_LOW] = _FAR


@njit(cache=True)
def _open(key: int, again: bool, pc: int, notes: Any, noting: Any) -> Any:
    """The note that an instruction belongs to: the last one, if that has the same key and does not begin `again`."""
    if noting[SINCE_WORK]:
        _noted_core(notes, noting)
    if noting[OPEN] == key and not again:
        note = notes[noting[NOTED] - 1]
        note[DURING] += noting[SINCE_COUNT]
    else:
        note = notes[noting[NOTED]]
        note[:] = 0
        note[KEY], note[PC], note[BEFORE] = key, pc, noting[SINCE_COUNT]
        for low in (FIRST_LOW, SECOND_LOW, TO_LOW, MAIN_LOW):
            note[low] = _FAR
        noting[NOTED] += 1
        noting[OPEN] = key
    note[COUNT] += 1
    _forget(noting)
    return note


@njit(cache=True)
def _spread(note: Any, low: int, start: int, end: int) -> None:
    note[low], note[low + 1] = min(note[low], start), max(note[low + 1], end)


@njit(cache=True)
def _noted(
    function: int, first: int, second: int, pc: int, c: Any, scales: Any, notes: Any, noting: Any, widths: Any
) -> Any:
    """Note one instruction of the accelerator, in place of doing it. `widths` are the elements of a local row, the
    bytes of a beat of the bus, and those of the largest request."""
    if function == CONFIG:
        kind = first & 3
        key = KEY_CONFIG_EX if kind == 0 else KEY_CONFIG_LD if kind == 1 else KEY_MOVE + MVOUT
        _open(key, kind > 1, pc, notes, noting)
        return _configure(first, second, c, scales)
    if function in LOOP_FUNCTIONS:
        status = _set_loop(function, first, second, c)
        if status == RUNNING:
            noting[SINCE_PC] = noting[SINCE_PC] if noting[SINCE_COUNT] else pc
            noting[SINCE_COUNT] += 1  # the core goes on at once
        return status
    if function in (MVIN, MVIN2, MVIN3):
        note = _open(KEY_MOVE + function, False, pc, notes, noting)
        _note_in(first, second, 0 if function == MVIN else 1 if function == MVIN2 else 2, MAIN_LOW, TO_LOW, c, note,
                 widths)  # fmt: skip
    elif function == MVOUT:
        _note_out(first, second, c, _open(KEY_MOVE + MVOUT, False, pc, notes, noting), widths)
    elif function in (PRELOAD, PRELOADED, ACCUMULATED):
        note = _open(KEY_COMPUTE, False, pc, notes, noting)
        if function == PRELOAD:
            c[B_ADDRESS], c[C_ADDRESS] = first, second
            return RUNNING
        _note_product(first, second, function == PRELOADED, c, note, widths[0])
    elif function != FLUSH:
        return NOT_SIMULATED
    return RUNNING


@njit(cache=True)
def _note_in(first: int, second: int, state: int, main: int, to: int, c: Any, note: Any, widths: Any) -> None:
    """Note one instruction that moves in, with its bytes and local rows in these columns."""
    dim, beat, request = widths
    sums, row, columns, rows = second >> 31 & 1, second & 0x1FFFFFFF, second >> 32 & 0xFFFF, second >> 48 & 0xFFFF
    blocks = -(-columns // dim)
    _spread(note, to, row, row + rows + (blocks - 1) * c[LOAD_BLOCK + state])
    note[SUMS] = sums
    if first == 0:
        note[LOCAL] += rows * blocks
        return
    stride = c[LOAD_STRIDE + state]
    read = 1 if stride == 0 else rows
    size = columns * (4 if sums and not c[LOAD_SHRUNK + state] else 1)
    _spread(note, main, first, first + (rows - 1) * stride + size)
    note[REQUESTS] += read * -(-size // request)
    note[BEATS] += read * -(-size // beat)
    note[MOVED] += read * size
    note[LOCAL] += (rows - read) * blocks


@njit(cache=True)
def _note_out(first: int, second: int, c: Any, note: Any, widths: Any) -> None:
    """Note one instruction that moves out."""
    dim, beat, request = widths
    sums, row, columns, rows = second >> 31 & 1, second & 0x3FFFFFF, second >> 32 & 0xFFFF, second >> 48 & 0xFFFF
    stride, size, reach = c[OUT_STRIDE], columns * (4 if second >> 29 & 1 else 1), rows
    if c[POOL_STRIDE] != 0:
        rows = c[POOL_OUT_ROWS] * c[POOL_OUT_COLUMNS]
        reach = c[POOL_IN_ROWS] * c[POOL_IN_COLUMNS]
        note[LOCAL] += rows * (c[POOL_SIZE] * c[POOL_SIZE] - 1)
        stride *= c[POOL_WIDTH]
        _spread(note, MAIN_LOW, first, first + (c[POOL_OUT_ROWS] - 1) * stride
                + (c[POOL_OUT_COLUMNS] - 1) * c[OUT_STRIDE] + size)  # fmt: skip
    else:
        _spread(note, MAIN_LOW, first, first + (rows - 1) * stride + size)
    _spread(note, FIRST_LOW, row, row + reach + (-(-columns // dim) - 1) * dim)
    note[SUMS] = sums
    note[REQUESTS] += rows * -(-size // request)
    note[BEATS] += rows * -(-size // beat)
    note[MOVED] += rows * size


@njit(cache=True)
def _note_product(first: int, second: int, fill: bool, c: Any, note: Any, dim: int) -> None:
    """Note the product of one block."""
    b, to = c[B_ADDRESS], c[C_ADDRESS]
    a_rows, b_row, b_rows = first >> 48 & 0xFFFF, b & _LOW, b >> 48 & 0xFFFF
    if first & _LOW != _GARBAGE:
        a_row = first & _LOCAL_ROW
        note[FIRST_SUMS] = first >> 31 & 1
        _spread(note, FIRST_LOW, a_row, a_row + max(0, a_rows - 1) * c[A_STRIDE] + 1)
    if b_row == _GARBAGE or not fill:
        b_rows = 1
    else:
        _spread(note, SECOND_LOW, b_row, b_row + b_rows)
    if to & _LOW != _GARBAGE:
        note[SUMS] = to >> 31 & 1
        rows = to >> 48 & 0xFFFF
        _spread(note, TO_LOW, to & 0x1FFFFFFF, (to & 0x1FFFFFFF) + max(0, rows - 1) * c[C_STRIDE] + 1)
    whole = not c[STATIONARY] or c[TRANSPOSE_A] or c[TRANSPOSE_B] or second & _LOW != _GARBAGE
    note[ARRAY] += dim if whole else max(a_rows, b_rows, LEAST_ROWS)


@njit(cache=True)
def note_part(
    key: int, goes_on: bool, instructions: Any, pc: int, c: Any, scales: Any, notes: Any, noting: Any, widths: Any
) -> None:
    """Note a part of what a loop was unrolled into; `goes_on` says that another part of the same loop came before."""
    note = _open(key, True, pc, notes, noting)
    note[COUNT] = 0
    if goes_on:
        note[BEFORE] = -1
    for function, first, second in instructions:
        if function == CONFIG:
            _configure(first, second, c, scales)
            continue
        note[COUNT] += 1
        if function == PRELOAD:
            c[B_ADDRESS], c[C_ADDRESS] = first, second
        elif function in (PRELOADED, ACCUMULATED):
            _note_product(first, second, function == PRELOADED, c, note, widths[0])
        elif function == MVOUT:
            _note_out(first, second, c, note, widths)
        elif function == MVIN2:
            _note_in(first, second, 1, FIRST_LOW, SECOND_LOW, c, note, widths)
        else:
            _note_in(first, second, 0 if function == MVIN else 2, MAIN_LOW, TO_LOW, c, note, widths)


@njit(cache=True)
def _less(a: Any, b: Any) -> Any:
    """`fmin.s`, for which -0 is less than 0."""
    if np.isnan(a):
        return b
    if np.isnan(b) or a < b or (a == b and np.signbit(a)):
        return a
    return b


@njit(cache=True)
def _bits(number: Any) -> Any:
    return np.int64(np.array([number], np.float32).view(np.int32)[0])


@njit(cache=True)
def _integer(number: Any, mode: int) -> Any:
    """`fcvt.w.s`: to int32, bounded, by one of the rounding modes to nearest even, toward zero, down, up."""
    if np.isnan(number):
        return 2147483647
    wide = np.float64(number)
    rounded = np.trunc(wide) if mode == 1 else np.floor(wide) if mode == 2 else np.ceil(wide) if mode == 3 else \
        np.rint(wide)  # fmt: skip
    return int(min(max(rounded, -2147483648.0), 2147483647.0))


@njit(cache=True)
def _divided(a: int, b: int, rest: bool) -> Any:
    """`div` and `rem`: toward zero; by zero they give -1 and the dividend."""
    if b == 0:
        return a if rest else -1
    if b == -1:  # the least number has no negative: it stays
        return 0 if rest else -a
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        quotient += 1
    return a - quotient * b if rest else quotient


@njit(cache=True)
def run(
    code: Any, code_base: int, pc: int, x: Any, f: Any, mem: Any, known: Any, poison: bool, base: int, tohost: int,
    spad: Any, spad_known: Any, acc: Any, acc_known: Any, pe: Any, c: Any, scales: Any, counts: Any, about: Any,
    most: int, notes: Any, noting: Any, widths: Any, extra: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Run until a status other than RUNNING; returns it, the pc of the last instruction and the number of instructions.
    At UNROLL the pc is that of a loop, which is not among them.

    `code` has a row (number, rd, rs1, rs2, immediate, mode) for each word from `code_base` on; the number is -1 where a
    word is no instruction. With `poison` a read of what nothing wrote is a fault. At most `most` instructions run.

    With room for `notes` [N, NOTE_WORDS] the accelerator's instructions are noted and not done; `extra` are cycles of
    each of the core's instructions beyond those of an ordinary one."""
    executed = 0
    takes_notes = len(notes) > 0
    while executed < most:
        index = pc - code_base >> 2
        if pc & 3 or not 0 <= index < len(code):
            return BAD_CODE, pc, executed
        n, rd, rs1, rs2, imm, mode = code[index]
        following = pc + 4
        a, b = x[rs1], x[rs2]
        value: Any = np.int64(0)
        writes = False
        if n < 0:
            return BAD_CODE, pc, executed
        if takes_notes:
            if noting[NOTED] + MOST_NOTES > len(notes):
                return NOTES_FULL, pc, executed
            if n < FUNCTION_COUNT:
                status = _noted(n, a, b, pc, c, scales, notes, noting, widths)
                if status != RUNNING:
                    return status, pc, executed
                executed += 1
                pc = following
                continue
            if noting[SINCE_COUNT] == 0:
                noting[SINCE_PC] = pc
            if n == FENCE:
                _open(KEY_FENCE, True, pc, notes, noting)
            else:
                noting[SINCE_COUNT] += 1
                noting[SINCE_EXTRA] += extra[n]
                noting[SINCE_WORK] += n >= FIRST_FLOAT or n in (LW, LB)
        if n < FUNCTION_COUNT:
            status = _accelerate(n, a, b, mem, known, poison, base, spad, spad_known, acc, acc_known, pe, c, scales,
                                 counts, about)  # fmt: skip
            if status != RUNNING:
                return status, pc, executed
            executed += 1
            pc = following
            continue
        counts[SCALAR] += 1
        if n >= FIRST_FLOAT and not c[STATUS] & FLOATS_ON:
            return FLOATS_OFF, pc, executed
        if n in (LB, LBU, LH, LHU, LW, LWU, LD, FLW):
            size = 1 if n in (LB, LBU) else 2 if n in (LH, LHU) else 8 if n == LD else 4
            address = a + imm
            about[0] = address
            if address & (size - 1):
                return MISALIGNED, pc, executed
            if _outside(mem, base, address, size):
                return BAD_ACCESS, pc, executed
            if takes_notes:
                _spread(noting, READ_LOW, address, address + size)
            start = address - base
            status = _unready(known, poison, start, size)
            if status != RUNNING:
                return status, pc, executed
            if n == FLW:
                f[rd] = np.array([_word(mem, start)], np.int32).view(np.float32)[0]
            else:
                writes = True
                if size == 8:
                    value = (_word(mem, start) & _LOW) | _word(mem, start + 4) << 32
                elif size == 4:
                    value = _word(mem, start) if n == LW else _word(mem, start) & _LOW
                else:
                    value = np.int64(mem[start]) | (np.int64(mem[start + 1]) << 8 if size == 2 else np.int64(0))
                    sign = np.int64(1) << (8 * size - 1)
                    value = (value ^ sign) - sign if n in (LB, LH) else value
        elif n in (SB, SH, SW, SD, FSW):
            size = 1 if n == SB else 2 if n == SH else 8 if n == SD else 4
            address = a + imm
            about[0] = address
            if address & (size - 1):
                return MISALIGNED, pc, executed
            if _outside(mem, base, address, size):
                return BAD_ACCESS, pc, executed
            if takes_notes:
                _spread(noting, WRITTEN_LOW, address, address + size)
            if poison and (known[address - base] == PENDING or (address == tohost and c[PENDING_HIGH])):
                about[0] = c[PENDING_LOW] + base if address == tohost else address
                return UNFENCED, pc, executed
            _put(mem, known, address - base, _bits(f[rs2]) if n == FSW else b, size)
            if address == tohost:
                about[0] = b
                return ENDED, pc, executed + 1
        elif n in (BEQ, BNE, BLT, BGE, BLTU, BGEU):
            below = np.uint64(a) < np.uint64(b)
            taken = (a == b if n == BEQ else a != b if n == BNE else a < b if n == BLT else a >= b if n == BGE else
                     below if n == BLTU else not below)  # fmt: skip
            following = pc + imm if taken else following
        elif n in (ADDI, SLTI, SLTIU, XORI, ORI, ANDI, SLLI, SRLI, SRAI, ADDIW):
            writes = True
            if n == ADDI:
                value = a + imm
            elif n == ADDIW:
                value = np.int64(np.int32(a + imm))
            elif n == SLTI:
                value = np.int64(a < imm)
            elif n == SLTIU:
                value = np.int64(np.uint64(a) < np.uint64(imm))
            elif n == XORI:
                value = a ^ imm
            elif n == ORI:
                value = a | imm
            elif n == ANDI:
                value = a & imm
            elif n == SLLI:
                value = a << imm
            elif n == SRLI:
                value = np.int64(np.uint64(a) >> np.uint64(imm))
            else:
                value = a >> imm
        elif n in (DIV, REM):
            writes = True
            value = _divided(a, b, n == REM)
        elif n in (ADD, SUB, SLL, SLT, SLTU, XOR, SRL, SRA, OR, AND, MUL, ADDW, SUBW):
            writes = True
            if n == ADD:
                value = a + b
            elif n == SUB:
                value = a - b
            elif n == ADDW:
                value = np.int64(np.int32(a + b))
            elif n == SUBW:
                value = np.int64(np.int32(a - b))
            elif n == SLL:
                value = a << (b & 63)
            elif n == SLT:
                value = np.int64(a < b)
            elif n == SLTU:
                value = np.int64(np.uint64(a) < np.uint64(b))
            elif n == XOR:
                value = a ^ b
            elif n == SRL:
                value = np.int64(np.uint64(a) >> np.uint64(b & 63))
            elif n == SRA:
                value = a >> (b & 63)
            elif n == OR:
                value = a | b
            elif n == AND:
                value = a & b
            else:
                value = a * b
        elif n in (LUI, AUIPC):
            writes = True
            value = np.int64(np.int32(imm << 12)) + (pc if n == AUIPC else 0)
        elif n in (JAL, JALR):
            writes = True
            value = following
            following = pc + imm if n == JAL else (a + imm) & ~1
        elif n in (FADD, FSUB, FMUL, FDIV, FSQRT):
            if mode not in (0, 7):
                return NOT_SIMULATED, pc, executed
            if n == FADD:
                f[rd] = f[rs1] + f[rs2]
            elif n == FSUB:
                f[rd] = f[rs1] - f[rs2]
            elif n == FMUL:
                f[rd] = f[rs1] * f[rs2]
            elif n == FDIV:
                if f[rs2] == 0:
                    return NOT_SIMULATED, pc, executed
                f[rd] = f[rs1] / f[rs2]
            else:
                f[rd] = np.sqrt(f[rs1])
        elif n in (FMIN, FMAX):
            f[rd] = _less(f[rs1], f[rs2]) if n == FMIN else -_less(-f[rs1], -f[rs2])
        elif n in (FSGNJ, FSGNJN, FSGNJX):
            turned = np.signbit(f[rs2]) ^ (np.signbit(f[rs1]) if n == FSGNJX else n == FSGNJN)
            f[rd] = np.copysign(f[rs1], np.float32(-1) if turned else np.float32(1))
        elif n in (FEQ, FLT, FLE):
            writes = True
            left, right = f[rs1], f[rs2]
            value = np.int64(left == right if n == FEQ else left < right if n == FLT else left <= right)
        elif n == FCVT_W_S:
            if mode == 4:
                return NOT_SIMULATED, pc, executed
            writes = True
            value = np.int64(_integer(f[rs1], mode))
        elif n == FCVT_S_W:
            f[rd] = np.float32(np.int32(a))
        elif n == FMV_X_W:
            writes = True
            value = _bits(f[rs1])
        elif n == FMV_W_X:
            f[rd] = np.array([a & _LOW], np.uint32).view(np.float32)[0]
        elif n in (CSRRW, CSRRS):
            if rd or imm not in (MSTATUS, MTVEC, FCSR) or (imm == FCSR and a):
                return NOT_SIMULATED, pc, executed
            if imm == MSTATUS:
                c[STATUS] = a if n == CSRRW else c[STATUS] | a
        elif n == FENCE:
            _wait(known, c)
        else:
            return NOT_SIMULATED, pc, executed
        if writes and rd:
            x[rd] = value
        executed += 1
        pc = following
    return LIMIT, pc, executed
