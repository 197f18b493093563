"""Cuts of a long reduction into runs that are multiplied separately and added in order by the vector engine.

    number of channels, products of each --> runs of channels

One length serves two purposes: the error of the two fp16 accumulators grows with the root of their length; and, up to
2,048 products, the weights of 32 outputs (the width of the array) fit twice into the 256 KiB of an NPU v1 core, so that
one run's weights arrive while the other's are multiplied, and the array is full. The cut depends on the operator alone,
not on a tile or chip file: all levels, on all chips, store the same bits.

int32 sums of int8 products are exact. They are cut only where the weights of half the array's width would not fit twice
into that memory: each run's sum is scaled by itself, and the fp16 results are added in order.
"""

from __future__ import annotations

from itertools import pairwise

from codegen.neuralscale.instructions.arithmetic import TRANSFER_UNIT_BYTES

LONGEST_REDUCTION = 2_048
"""Largest number of products that one matrix instruction adds up."""

RUN_LENGTH = 1_152
"""Length of a run, in products, where a reduction is cut at all: a further run costs one vector addition."""

LONGEST_STAGED = 9_000
"""Number of products up to which an input is loaded whole before the first run; for a longer one, each run loads its
own part."""


LONGEST_EXACT = 8_192
"""Largest number of int8 products that one matrix instruction adds up, and so the length of a run of them."""

LONGEST_STAGED_EXACT = 18_000
"""The same number for int8 products, whose inputs take half the bytes."""


def reduction_runs(length: int, unit: int, exact: bool = False) -> tuple[tuple[int, int], ...]:
    """Cut a reduction of `length` channels, `unit` products each, into runs that are as equal as can be. Those of
    `exact` sums begin at even channels, because no transfer brings half of a 16-bit unit."""
    total, longest, run = length * unit, *((LONGEST_EXACT,) * 2 if exact else (LONGEST_REDUCTION, RUN_LENGTH))
    step = TRANSFER_UNIT_BYTES if exact else 1
    steps = -(-length // step)
    runs = 1 if total <= longest else min(steps, -(-total // run))
    return tuple(pairwise([*(steps * i // runs * step for i in range(runs)), length]))


def staged_runs(length: int, unit: int, exact: bool = False) -> tuple[tuple[int, int], ...]:
    """For each of `reduction_runs`, the channels of the input that are loaded before it."""
    runs = reduction_runs(length, unit, exact)
    longest = LONGEST_STAGED_EXACT if exact else LONGEST_STAGED
    return runs if length * unit > longest else ((0, length),) * len(runs)
