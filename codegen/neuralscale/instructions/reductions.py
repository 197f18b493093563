"""Cuts of a long reduction into runs that are multiplied separately and added in order by the vector engine.

    number of channels, products of each --> runs of channels

One length serves two purposes: the error of the two fp16 accumulators grows with the root of their length; and, up to
2,048 products, the weights of 32 outputs (the width of the array) fit twice into the 256 KiB of an NPU v1 core, so that
one run's weights arrive while the other's are multiplied, and the array is full. The cut depends on the operator alone,
not on a tile or chip file: all levels, on all chips, store the same bits.
"""

from __future__ import annotations

from itertools import pairwise

LONGEST_REDUCTION = 2_048
"""Largest number of products that one matrix instruction adds up."""

RUN_LENGTH = 1_152
"""Length of a run, in products, where a reduction is cut at all: a further run costs one vector addition."""

LONGEST_STAGED = 9_000
"""Number of products up to which an input is loaded whole before the first run; for a longer one, each run loads its
own part."""


def reduction_runs(length: int, unit: int) -> tuple[tuple[int, int], ...]:
    """Cut a reduction of `length` channels, `unit` products each, into runs that are as equal as can be."""
    runs = 1 if length * unit <= LONGEST_REDUCTION else min(length, -(-length * unit // RUN_LENGTH))
    return tuple(pairwise(length * i // runs for i in range(runs + 1)))


def staged_runs(length: int, unit: int) -> tuple[tuple[int, int], ...]:
    """For each of `reduction_runs`, the channels of the input that are loaded before it."""
    runs = reduction_runs(length, unit)
    return runs if length * unit > LONGEST_STAGED else ((0, length),) * len(runs)
