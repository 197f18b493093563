"""Drawn programs of loops that the accelerator unrolls itself, with what they compute by numpy.

seed --draw--> products: extents, parts of the depth, halves, transposes, what is added, scale --loop_ws--> memory
           --the same moves and blocks one by one--> mvin, preload, compute, mvout, for a comparison
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from codegen.gemmini.emit.core_code import stream_code
from codegen.gemmini.emit.executable import end_code, host_segment, host_symbols, start_code
from codegen.gemmini.isa.geometry import BASE, DATA_BASE, DEFAULT
from codegen.gemmini.isa.matrix_loops import Matrix, MatrixLoop
from codegen.gemmini.isa.operations import ACCUMULATE, ACCUMULATOR, FULL_WIDTH, GARBAGE
from codegen.gemmini.isa.table import CODEC
from codegen.gemmini.kernels.accelerator_loops import loop_items
from codegen.gemmini.streams.streams import Item, once
from codegen.riscv.elf_format import ELF64
from codegen.riscv.elf_writer import ElfSegment, SegmentFlags, elf_bytes

DATA = BASE + DATA_BASE
DIM = DEFAULT.dim
HALF, SUMS_HALF = DEFAULT.local_rows // 2, DEFAULT.accumulator_rows // 2
SCALES = (1.0, 0.0123, 0.001953125, 0.0007)


@dataclass(frozen=True, slots=True)
class DrawnLoops:
    """A program as loops and as `explicit` instructions, the bytes in `loads`, and `results` by their addresses."""

    executable: bytes
    explicit: bytes
    loads: dict[int, bytes]
    results: dict[int, bytes]


def drawn_loops(seed: int, products: int = 4) -> DrawnLoops:
    drawing = Drawing(seed)
    for _ in range(products):
        drawing.product()
    code = [loops_executable(items, drawing.end) for items in (drawing.loops, drawing.explicit)]
    return DrawnLoops(code[0], code[1], drawing.loads, drawing.results)


def loops_executable(items: list[Item], end: int) -> bytes:
    code = [*start_code(), *stream_code(items), *end_code()]
    text = b"".join(CODEC.encode(word).to_bytes(4, "little") for word in code)
    room = ElfSegment(".room", DATA, (), SegmentFlags.READ_WRITE, end - DATA)
    segments = ElfSegment(".text", BASE, (text,), SegmentFlags.READ_EXECUTE), host_segment(), room
    return elf_bytes(BASE, segments, host_symbols(), b"", ELF64)


class Drawing:
    """What a program is drawn into: its items, bytes that are brought along, and results."""

    def __init__(self, seed: int) -> None:
        self.draw, self.random = random.Random(seed), np.random.default_rng(seed)
        self.loops: list[Item] = []
        self.explicit: list[Item] = []
        self.loads: dict[int, bytes] = {}
        self.results: dict[int, bytes] = {}
        self.end = DATA
        self.sums = 0

    def room(self, size_bytes: int) -> int:
        """An address with so many bytes."""
        start = self.end + self.draw.choice((0, 1, 5, 16))
        self.end = start + size_bytes
        return start

    def _placed(self, values: npt.NDArray[np.generic]) -> tuple[int, int]:
        """Address of a matrix that is brought along, in wider rows, and the elements from row to row."""
        rows, columns = values.shape
        step = columns + self.draw.choice((0, 0, 3, 16))
        wide = np.zeros((rows, step), values.dtype)
        wide[:, :columns] = values
        start = self.room(wide.nbytes)
        self.loads[start] = wide.tobytes()
        return start, step

    def product(self) -> None:
        """One product, whose depth is cut into parts that are loops of their own."""
        draw, integers = self.draw, self.random.integers
        rows, columns = draw.randint(1, 70), draw.randint(1, 70)
        depth, parts = draw.randint(1, 90), draw.randint(1, 3)
        while -(-rows // DIM) * -(-columns // DIM) * DIM > SUMS_HALF:
            columns = draw.randint(1, columns)
        turned_a, turned_b = draw.choice(((False, False), (False, False), (True, False), (False, True)))
        a, b = integers(-128, 128, (rows, depth)).astype(np.int8), integers(-128, 128, (depth, columns)).astype(np.int8)
        added = draw.choice(("", "int32", "repeated", "int8"))
        full, relu, scale = draw.random() < 0.3, draw.randrange(2), draw.choice(SCALES)
        low = added == "int8"
        d = integers(-(1 << 20), 1 << 20, (rows, columns)).astype(np.int32)
        if added == "repeated":
            d[:] = d[0]
        elif low:
            d = integers(-128, 128, (rows, columns)).astype(np.int32)
        total = a.astype(np.int32) @ b.astype(np.int32) + (d if added else 0)
        a_at, a_step = self._placed(a.T if turned_a else a)
        b_at, b_step = self._placed(b.T if turned_b else b)
        d_at, d_step = (0, 0)
        if added:
            d_at, d_step = self._placed(d.astype(np.int8) if low else d[:1] if added == "repeated" else d)
        d_step = 0 if added == "repeated" else d_step
        c_step = columns + draw.choice((0, 4))
        item = 4 if full else 1
        c_at = self.room(rows * c_step * item)
        settings = (
            once("config_ex", weight_stationary=1, a_stride=1, c_stride=1, transpose_a=turned_a, transpose_b=turned_b),
            once("config_ld", state=0, pixels_per_row=1, block_rows=DIM, scale=1.0, stride=a_step),
            once("config_ld", state=1, pixels_per_row=1, block_rows=DIM, scale=1.0, stride=b_step),
            once("config_ld", state=2, pixels_per_row=1, block_rows=DIM, scale=1.0, shrunk=low,
                 stride=d_step * (1 if low else 4)),
            once("config_st", activation=relu, stride=c_step * item, scale=scale),
        )  # fmt: skip
        self.loops += settings
        self.explicit += settings
        cuts = sorted({0, depth, *(draw.randrange(DIM, depth, DIM) for _ in range(parts - 1) if depth > DIM)})
        for number, (low_k, high_k) in enumerate(pairwise(cuts)):
            first, last = number == 0, high_k == depth
            own = MatrixLoop(
                rows, columns, high_k - low_k,
                a_at + low_k * (a_step if turned_a else 1), b_at + low_k * (1 if turned_b else b_step),
                d_at if first else 0, c_at if last else 0, a_step, b_step, d_step, c_step,
                draw.randint(1, 2), draw.randint(1, 2), not first or bool(added), full, low, turned_a, turned_b,
            )  # fmt: skip
            self._issued(own)
        if draw.random() < 0.4:  # again with the factors of the last loop, which are there
            kept = cuts[-2]
            total = a[:, kept:].astype(np.int32) @ b[kept:].astype(np.int32)
            again_at = self.room(rows * c_step * item)
            self._issued(replace(own, a=0, b=0, d=0, c=again_at, accumulates=False))
            self._expect(again_at, total, c_step, full, relu, scale)
            total = a.astype(np.int32) @ b.astype(np.int32) + (d if added else 0)
        self._expect(c_at, total, c_step, full, relu, scale)

    def _expect(self, start: int, total: npt.NDArray[np.int32], step: int, full: bool, relu: int, scale: float) -> None:
        scaled = np.clip(np.rint(total.astype(np.float32) * np.float32(scale)), -128, 127)
        values = total if full else (np.maximum(scaled, 0) if relu else scaled).astype(np.int8)
        for row, line in enumerate(values):
            self.results[start + row * step * values.itemsize] = line.tobytes()

    def _issued(self, loop: MatrixLoop) -> None:
        self.loops += loop_items(loop, DEFAULT)
        self.explicit += explicit_items(loop, self.sums)
        self.sums = SUMS_HALF - self.sums if loop.c else self.sums


def explicit_items(loop: MatrixLoop, sums_row: int) -> Iterator[Item]:
    """The instructions that a loop stands for."""
    _, j_blocks, k_blocks = loop.blocks(DIM)
    i_blocks = loop.blocks(DIM)[0]
    a_first, b_first = loop.first_row("a", DEFAULT), loop.first_row("b", DEFAULT)
    yield from _moves(loop, "d", "mvin3", ACCUMULATOR + sums_row, 1 if loop.low else 4)
    yield from _moves(loop, "a", "mvin", a_first, 1)
    yield from _moves(loop, "b", "mvin2", b_first, 1)
    for k in range(k_blocks):
        for j in range(j_blocks):
            for i in range(i_blocks):
                high, wide, deep = (
                    min(DIM, extent - DIM * number)
                    for extent, number in ((loop.rows, i), (loop.columns, j), (loop.depth, k))
                )
                b = j * k_blocks + k if loop.turned_b else k * j_blocks + j
                a = k * i_blocks + i if loop.turned_a else i * k_blocks + k
                to = ACCUMULATOR + sums_row + (i * j_blocks + j) * DIM
                to += ACCUMULATE if loop.accumulates or k else 0
                yield once("preload", b_row=b_first + b * DIM if i == 0 else GARBAGE, b_columns=wide, b_rows=deep,
                           c_row=to, c_columns=wide, c_rows=high)  # fmt: skip
                yield once("compute_accumulated" if i else "compute_preloaded", a_row=a_first + a * DIM, a_columns=deep,
                           a_rows=high, d_row=GARBAGE, d_columns=DIM, d_rows=DIM)  # fmt: skip
    flags = ACCUMULATOR + (FULL_WIDTH if loop.full else 0)
    yield from _moves(loop, "c", "mvout", flags + sums_row, 4 if loop.full else 1)


def _moves(loop: MatrixLoop, name: Matrix, mnemonic: str, first: int, item_bytes: int) -> Iterator[Item]:
    start, step, moved = getattr(loop, name), getattr(loop, f"{name}_step"), loop.matrix(name, DIM)
    in_a_row = -(-moved.columns // DIM)
    for row in range(0, moved.rows if start else 0, DIM):
        for column in range(0, moved.columns, DIM):
            yield once(mnemonic, dram=start + (row * step + column) * item_bytes,
                       row=first + row // DIM * in_a_row * DIM + column,
                       columns=min(DIM, moved.columns - column), rows=min(DIM, moved.rows - row))  # fmt: skip
