"""Boxes of dense tensors as strided runs of bytes, against numpy's own indexing."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isched.lowering.strided_copies import box_regions, packed_copies
from isched.program.program import Region
from partitioner.ir.regions import Box, full_box
from partitioner.memory.memory_plan_types import Place

ITEM = 2


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], Box]:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))
    box = []
    for extent in shape:
        low = draw(st.integers(0, extent - 1))
        box.append((low, draw(st.integers(low + 1, extent))))
    return shape, tuple(box)


def bytes_of(region: Region) -> list[int]:
    """Offsets of the region's bytes, in order."""
    return [
        region.offset_bytes + row * region.stride_bytes + column
        for row in range(region.rows)
        for column in range(region.row_bytes)
    ]


def wanted_bytes(shape: tuple[int, ...], box: Box, base: int) -> list[int]:
    items = np.arange(prod(shape)).reshape(shape)[tuple(slice(low, high) for low, high in box)].reshape(-1)
    return [base + ITEM * int(item) + byte for item in items for byte in range(ITEM)]


@given(boxes(), st.integers(0, 100))
def test_regions_are_the_bytes_of_the_box_in_order(case: tuple[tuple[int, ...], Box], base: int) -> None:
    shape, box = case
    regions = box_regions("DDR", base, shape, box, ITEM)
    assert [byte for region in regions for byte in bytes_of(region)] == wanted_bytes(shape, box, base)


def test_runs_are_as_few_as_they_can_be() -> None:
    assert len(box_regions("DDR", 0, (4, 8, 8, 16), ((0, 4), (0, 8), (0, 8), (0, 16)), ITEM)) == 1
    assert box_regions("DDR", 0, (4, 8, 8, 16), ((1, 2), (2, 5), (0, 8), (0, 16)), ITEM) == (
        Region("DDR", 2 * 16 * 8 * (8 + 2), 3 * 8 * 16 * 2),
    )
    assert box_regions("DDR", 0, (1, 8, 8, 16), ((0, 1), (0, 8), (0, 8), (4, 8)), ITEM) == (
        Region("DDR", 8, 8, 64, 32),
    )
    assert len(box_regions("DDR", 0, (2, 8, 8, 16), ((0, 2), (1, 3), (2, 4), (4, 8)), ITEM)) == 4


@given(boxes())
def test_bringing_and_taking_away_are_each_others_converse(case: tuple[tuple[int, ...], Box]) -> None:
    shape, box = case
    whole, dense = Place("LLB", 40, full_box(shape)), Place("L1", 6, box)
    there = packed_copies(whole, dense, box, ITEM, at_source=False)
    back = packed_copies(dense, whole, box, ITEM, at_source=True)
    assert [(copy.source, copy.destination) for copy in there] == [(copy.destination, copy.source) for copy in back]
    local = [byte for copy in there for byte in bytes_of(copy.destination)]
    assert local == list(range(6, 6 + len(local)))
