"""Drawn programs of the accelerator's instructions, for a comparison of two simulators.

seed --draw--> configuration, moves, products --at the end: all local rows moved out--> an executable, memory to compare

Local memories start as zeros in the functional model of the generator, so these run without poison; what is configured
starts undefined there, so each program configures everything first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from codegen.gemmini.emit.core_code import stream_code
from codegen.gemmini.emit.executable import end_code, host_segment, host_symbols, start_code
from codegen.gemmini.isa.geometry import BASE, DATA_BASE, DEFAULT
from codegen.gemmini.isa.operations import ACCUMULATE, ACCUMULATOR, FULL_WIDTH, GARBAGE
from codegen.gemmini.isa.table import CODEC
from codegen.gemmini.streams.streams import Item, looped, nested, once
from codegen.riscv.elf_format import ELF64
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes

DATA = BASE + DATA_BASE
DATA_BYTES = 1 << 16
OUT = DATA + DATA_BYTES
OUT_BYTES = 1 << 16
LOCAL = OUT + OUT_BYTES
LOCAL_BYTES = DEFAULT.local_rows * 16 + DEFAULT.accumulator_rows * 64
SCALES = (1.0, 0.5, 0.25, -1.0, 0.001953125, 0.0123, 0.3, 1.7, 100.0)


@dataclass(frozen=True, slots=True)
class DrawnProgram:
    """`executable` computes with the bytes in `loads`; `ranges` are compared afterwards."""

    executable: bytes
    loads: dict[int, bytes]
    ranges: tuple[tuple[int, int], ...]


def drawn_program(seed: int, length: int = 60) -> DrawnProgram:
    draw = random.Random(seed)
    stream = (*_Drawing(draw).items(length), *_everything())
    code = [*start_code(), *stream_code(stream), *end_code()]
    text = b"".join(CODEC.encode(word).to_bytes(4, "little") for word in code)
    segments = (
        ElfSegment(".text", BASE, (text,), SegmentFlags.READ_EXECUTE),
        host_segment(),
        ElfSegment(".out", OUT, (), SegmentFlags.READ_WRITE, OUT_BYTES + LOCAL_BYTES),
    )
    data = np.random.default_rng(seed).integers(0, 256, DATA_BYTES, np.uint8).tobytes()
    executable = elf_bytes(BASE, segments, host_symbols(), b"", ELF64)
    return DrawnProgram(executable, {DATA: data}, ((OUT, OUT_BYTES + LOCAL_BYTES),))


def _everything() -> Iterator[Item]:
    """All local rows as they are."""
    rows, sums = DEFAULT.local_rows, DEFAULT.accumulator_rows
    yield once("config_st", stride=16, scale=1.0)
    yield from nested(
        [rows // 16], (looped("mvout", [{"dram": 256, "row": 16}], dram=LOCAL, row=0, columns=16, rows=16),)
    )
    yield once("config_st", stride=64, scale=1.0)
    first = looped(
        "mvout", [{"dram": 1024, "row": 16}], dram=LOCAL + 16 * rows, row=ACCUMULATOR + FULL_WIDTH, columns=16, rows=16
    )
    yield from nested([sums // 16], (first,))


class _Drawing:
    """What is configured while a program is drawn, as far as it bounds what may follow."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.blocks, self.shrunk, self.pixels = [0, 0, 0], [0, 0, 0], [1, 1, 1]
        self.strides = [0, 0, 0]
        self.out_stride, self.pool = 16, 0
        self.pool_in = (1, 1)
        self.pool_out = (1, 1, 1)
        self.a_stride = self.c_stride = 1

    def items(self, length: int) -> Iterator[Item]:
        yield self._execution()
        for state in range(3):
            yield self._load(state)
        yield self._store()
        kinds = (self._move_in, self._move_in, self._move_out, self._product, self._product, self._configured)
        for _ in range(length):
            yield from self.draw.choice(kinds)()

    def _configured(self) -> Iterator[Item]:
        yield self.draw.choice((self._execution, self._store, lambda: self._load(self.draw.randrange(3))))()

    def _execution(self) -> Item:
        stationary = self.draw.randrange(2)
        transposes = ((0, 0), (0, 1), (1, 0)) if stationary else ((0, 0), (1, 0), (1, 1))
        a, b = self.draw.choice(transposes)
        self.a_stride, self.c_stride = self.draw.randint(1, 3), self.draw.randint(1, 2)
        return once(
            "config_ex", weight_stationary=stationary, activation=self.draw.randrange(2), transpose_a=a, transpose_b=b,
            a_stride=self.a_stride, c_stride=self.c_stride, shift=self.draw.randrange(12),
        )  # fmt: skip

    def _load(self, state: int) -> Item:
        self.blocks[state], self.shrunk[state] = self.draw.choice((0, 1, 16, 40)), self.draw.randrange(2)
        self.pixels[state] = self.draw.choice((1, 1, 1, 2, 3))
        self.strides[state] = self.draw.choice((0, 4, 16, 33, 64, 100))
        return once(
            "config_ld", state=state, shrunk=self.shrunk[state], pixels_per_row=self.pixels[state],
            block_rows=self.blocks[state], scale=self.draw.choice(SCALES), stride=self.strides[state],
        )  # fmt: skip

    def _store(self) -> Item:
        self.out_stride, self.pool = self.draw.choice((16, 48, 64, 200)), self.draw.choice((0, 0, 1, 2))
        fields = {}
        if self.pool:
            self.pool_in = self.draw.randint(1, 6), self.draw.randint(1, 6)
            self.pool_out = self.draw.randint(1, 3), self.draw.randint(1, 3), self.draw.randint(3, 5)
            fields = {
                "pool_stride": self.pool, "pool_size": self.draw.randint(1, 3), "pool_top": self.draw.randrange(2),
                "pool_left": self.draw.randrange(2), "pool_width": self.pool_out[2], "pool_out_rows": self.pool_out[0],
                "pool_out_columns": self.pool_out[1], "pool_in_rows": self.pool_in[0],
                "pool_in_columns": self.pool_in[1],
            }  # fmt: skip
        activation, scale = self.draw.randrange(2), self.draw.choice(SCALES)
        return once("config_st", activation=activation, stride=self.out_stride, scale=scale, **fields)

    def _row(self, sums: bool, extent: int) -> int:
        depth = DEFAULT.accumulator_rows if sums else DEFAULT.local_rows
        # A few rows are used again and again, so that what is read was mostly written.
        return min(self.draw.choice((0, 3, 16, 64, 200, depth - extent)), depth - extent)

    def _move_in(self) -> Iterator[Item]:
        state, sums = self.draw.randrange(3), self.draw.random() < 0.5
        rows, columns = self.draw.randint(1, 16), self.draw.randint(1, 16 if self.draw.random() < 0.7 else 64)
        if self.pixels[state] > 1:
            columns = self.draw.randint(1, 16 // self.pixels[state])
        row = self._row(sums, rows + (columns - 1) // 16 * self.blocks[state])
        item = 4 if sums and not self.shrunk[state] else 1
        extent = (rows - 1) * self.strides[state] + columns * item
        dram = 0 if self.draw.random() < 0.1 else DATA + self.draw.randrange(DATA_BYTES - extent)
        flags = (ACCUMULATOR + self.draw.choice((0, ACCUMULATE))) if sums else 0
        yield once(("mvin", "mvin2", "mvin3")[state], dram=dram, row=flags + row, columns=columns, rows=rows)

    def _move_out(self) -> Iterator[Item]:
        sums = self.draw.random() < 0.7
        if self.pool:
            rows, columns = self.pool_in[0] * self.pool_in[1], self.draw.randint(1, 16)
            extent = self.pool_out[0] * self.pool_out[2] * self.out_stride + 16
            flags = ACCUMULATOR if sums else 0
        else:
            rows, columns = self.draw.randint(1, 16), self.draw.randint(1, 32)
            extent = rows * self.out_stride + 4 * columns
            flags = ACCUMULATOR + self.draw.choice((0, FULL_WIDTH)) if sums else 0
        row = self._row(sums, rows + 16)
        dram = OUT + self.draw.randrange(OUT_BYTES - extent)
        yield once("mvout", dram=dram, row=flags + row, columns=columns, rows=min(rows, 16))

    def _product(self) -> Iterator[Item]:
        draw = self.draw
        filled, sums = draw.random() < 0.7, draw.random() < 0.7
        b_row = GARBAGE if draw.random() < 0.2 else self._row(False, 16)
        out = self._row(sums, 16 * self.c_stride)
        flags = (ACCUMULATOR + draw.choice((0, ACCUMULATE))) if sums else 0
        c_row = GARBAGE if draw.random() < 0.1 else flags + out
        yield once(
            "preload", b_row=b_row, b_columns=draw.randint(1, 16), b_rows=draw.randint(1, 16), c_row=c_row,
            c_columns=draw.randint(1, 16), c_rows=draw.randint(1, 16),
        )  # fmt: skip
        yield once(
            "compute_preloaded" if filled else "compute_accumulated", a_row=self._row(False, 16 * self.a_stride),
            a_columns=draw.randint(1, 16), a_rows=draw.randint(1, 16),
            d_row=GARBAGE if draw.random() < 0.5 else self._row(False, 16), d_columns=draw.randint(1, 16),
            d_rows=draw.randint(1, 16),
        )  # fmt: skip
