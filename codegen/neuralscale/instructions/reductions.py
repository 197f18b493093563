"""Where a long reduction is cut into runs that are multiplied apart and added in order by the vector engine.

    number of channels, products of each --> runs of channels

Two reasons, one number: the error of the two fp16 accumulators grows with the root of their length; and the weights of
32 outputs, the width of the array, find room twice in the 256 KiB of an NPU v1 core up to 2,048 products, so that one
run's weights arrive while the other's are multiplied, and the array is full. The cut sees the operator alone, no tile
and no chip file: all levels, on all chips, store the same bits.
"""

from __future__ import annotations

from itertools import pairwise

LONGEST_REDUCTION = 2_048
"""Products that one matrix instruction adds up."""

RUN_LENGTH = 1_152
"""Where a reduction is cut at all: a run more is one vector addition."""

LONGEST_STAGED = 9_000
"""Products up to which an input is loaded whole before the first run; of a longer one, each run's part by itself."""


def reduction_runs(length: int, unit: int) -> tuple[tuple[int, int], ...]:
    """Cut a reduction of `length` channels, `unit` products each, into runs that are as equal as can be."""
    runs = 1 if length * unit <= LONGEST_REDUCTION else min(length, -(-length * unit // RUN_LENGTH))
    return tuple(pairwise(length * i // runs for i in range(runs + 1)))


def staged_runs(length: int, unit: int) -> tuple[tuple[int, int], ...]:
    """For each of `reduction_runs`, the channels of the input that are loaded before it."""
    runs = reduction_runs(length, unit)
    return runs if length * unit > LONGEST_STAGED else ((0, length),) * len(runs)
