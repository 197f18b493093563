"""Passes through the array: rows of the scratchpad or sums of the accumulator, multiplied by the identity matrix.

    rows or sums --as left factor, by the scale and activation of config_ex--> times identity --> other local rows

This is the way from the accumulator to the scratchpad, and from one place of the scratchpad to another. What is read
from the accumulator is scaled, rounded to the nearest (ties to even) and bounded to eight bits, as on the way to the
main memory; rows of the scratchpad stay as they are. An array that is configured anew has first finished what it began,
so a pass reads what computations before it have written.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from codegen.gemmini.isa.geometry import BASE, IDENTITY_OFFSET, MAIN, SCRATCHPAD
from codegen.gemmini.isa.operations import GARBAGE
from codegen.gemmini.kernels.loops import BoxLoop, blocks, box_loop, merged
from codegen.gemmini.streams.instructions import IDENTITY_LOAD, accelerator_instr
from codegen.gemmini.streams.streams import Item, looped, nested, once
from hw_models.chip import Chip
from isched.program.program import Instr, Region

MOST_FACTOR = 127
"""Largest factor of one pass: an element of the matrix has eight bits."""


def digits(factor: int) -> tuple[int, ...]:
    """Factors of passes that add up to a factor, as equal as can be: of at most two kinds, and at least one."""
    count = max(1, -(-factor // MOST_FACTOR))
    low, more = divmod(factor, count)
    return (low + 1,) * more + (low,) * (count - more)


def identity_bytes(dim: int, matrices: int) -> int:
    """Bytes of multiples of the identity matrix in the scratchpad."""
    return matrices * dim * dim


def load_identities(factors: Sequence[int], offset_bytes: int, dim: int, chip: Chip, source: str) -> tuple[Instr, ...]:
    """Instructions that bring the identity matrix to the scratchpad, times each of different factors from 1 to 127, one
    after the other. The matrix lies among the code, of which programs do not speak; moving in multiplies it."""
    instrs: list[Instr] = []
    cycles = dim * dim / chip.link(MAIN, SCRATCHPAD).bandwidth_bytes_per_cycle
    for number, factor in enumerate(factors):
        row = offset_bytes // dim + number * dim
        config = once("config_ld", state=2, pixels_per_row=1, block_rows=dim, scale=float(factor), stride=dim)
        move = once("mvin3", dram=BASE + IDENTITY_OFFSET, row=row, columns=dim, rows=dim)
        written = Region(SCRATCHPAD, row * dim, dim * dim)
        instrs += (
            accelerator_instr("load", "config_ld", (config,), (), (), 1.0, source),
            accelerator_instr("load", IDENTITY_LOAD, (move,), (), (written,), cycles, source),
        )
    return tuple(instrs)


def passed(
    axes: Sequence[BoxLoop],
    channels: int,
    block: BoxLoop,
    first: tuple[int, int],
    identity_rows: Sequence[int],
    dim: int,
    config: dict[str, float],
    regions: tuple[tuple[Region, ...], tuple[Region, ...]],
    source: str,
) -> tuple[Instr, ...]:
    """Instructions that pass rows through the array: `axes` are loops over pixels with what each adds to rows `a` that
    are read and `c` that are written, `block` what each block of channels adds; `first` are the rows where both begin,
    with the bits that say which memory. Each of the multiples of the identity matrix, by their rows, is one pass.
    `config` has more fields of `config_ex`; `regions` are read and written."""
    loops = merged(axes)
    inner = loops[-1] if loops else box_loop(1, a=1, c=1)
    around = loops[:-1]
    fields = {"weight_stationary": 1, "a_stride": inner.step("a"), "c_stride": inner.step("c"), **config}
    stream: list[Item] = []
    work = 0
    for low, count, width in blocks(channels, dim):
        for start, number, height in blocks(inner.count, dim):
            turns = [
                each
                for each in (
                    box_loop(count, a=block.step("a"), c=block.step("c")),
                    *around,
                    box_loop(number, a=height * inner.step("a"), c=height * inner.step("c")),
                )
                if each.count > 1
            ]
            a, c = (row + low // dim * block.step(name) + start * inner.step(name)
                    for name, row in zip(("a", "c"), first, strict=True))  # fmt: skip
            body = tuple(
                do
                for row in identity_rows
                for do in (
                    looped("preload", [{"c_row": each.step("c")} for each in turns], b_row=row, b_columns=dim,
                           b_rows=dim, c_row=c, c_columns=width, c_rows=height),
                    looped("compute_preloaded", [{"a_row": each.step("a")} for each in turns], a_row=a,
                           a_columns=width, a_rows=height, d_row=GARBAGE, d_columns=dim, d_rows=dim),
                )
            )  # fmt: skip
            stream += nested([each.count for each in turns], body)
            work += prod(each.count for each in turns) * dim * len(identity_rows)
    matrices = (Region(SCRATCHPAD, row * dim, dim * dim) for row in dict.fromkeys(identity_rows))
    reads = (*regions[0], *matrices)
    return (
        accelerator_instr("array", "config_ex", (once("config_ex", **fields),), (), (), 1.0, source),
        accelerator_instr("array", "compute", tuple(stream), reads, regions[1], float(work), source),
    )
