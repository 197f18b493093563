"""Loops of `mvin` and `mvout` that move a matrix in blocks of the array's width, and pixels as rows of local memory."""

from __future__ import annotations

from collections.abc import Sequence

from codegen.gemmini.kernels.loops import BoxLoop, blocks, box_loop, merged
from codegen.gemmini.streams.streams import Item, looped, nested

MOVED_BYTES = 64
"""Bytes of a row of the main memory that one `mvin` of int8 moves at most, in blocks of columns."""


def blocks_at_once(dim: int) -> int:
    return max(1, MOVED_BYTES // dim)


def block_moves(
    mnemonic: str, rows: int, row_step: int, columns: int, dim: int, at_once: int, loops: tuple[BoxLoop, ...],
    dram: int, row: int, block_rows: int,
) -> tuple[Item, ...]:  # fmt: skip
    """Loops that move a matrix of int8: rows one after the other in local memory and `row_step` bytes apart in the main
    memory (zeros where `dram` is 0), columns in blocks. `loops` are around them."""
    stream: list[Item] = []
    for first, count, some in blocks(columns, dim * at_once):
        for start, number, height in blocks(rows, dim):
            inner = (
                box_loop(count, dram=dim * at_once if dram else 0, row=at_once * block_rows),
                box_loop(number, dram=height * row_step, row=height),
            )
            all_loops = [each for each in (*loops, *inner) if each.count > 1]
            steps = [{"dram": each.step("dram"), "row": each.step("row")} for each in all_loops]
            do = looped(
                mnemonic,
                steps,
                dram=dram + first + start * row_step if dram else 0,
                row=row + first // dim * block_rows + start,
                columns=some,
                rows=height,
            )
            stream += nested([each.count for each in all_loops], (do,))
    return tuple(stream)


def by_rows(axes: Sequence[BoxLoop]) -> tuple[tuple[BoxLoop, ...], BoxLoop]:
    """Loops over pixels that lie one after the other in local memory, with what each adds to rows: those around, and
    the last one, over rows without a gap."""
    counts = [each.count for each in axes]
    steps = [1] * len(axes)
    for position in range(len(axes) - 2, -1, -1):
        steps[position] = steps[position + 1] * counts[position + 1]
    loops = merged([BoxLoop(each.count, (*each.steps, ("row", row))) for each, row in zip(axes, steps, strict=True)])
    dense = loops[-1] if loops and loops[-1].step("row") == 1 else box_loop(1, row=1, dram=0)
    return (loops[:-1] if loops and dense is loops[-1] else loops), dense
