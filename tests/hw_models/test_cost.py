"""Cycles by hand, the vendor's published latencies, and properties that any cost must have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw_models.chip import Chip
from hw_models.cost import (
    copy_cycles,
    copy_engine,
    dma_cycles,
    matrix_cycles,
    matrix_tiles,
    transfer_cycles,
    vector_cycles,
)
from hw_models.errors import ChipError
from hw_models.loading import load_chip
from hw_models.parts import Assumed

CHIP = load_chip("stcp920")
SIZES = st.integers(1, 1 << 22)
EXTENTS = st.integers(1, 4096)


def assuming(**values: float) -> Chip:
    """The stcp920 with other values for what no document gives."""
    assumed = Assumed(**{**CHIP.assumed.model_dump(), **values})
    return CHIP.model_copy(update={"assumed": assumed})


def test_the_profiler_example_of_the_vendor_is_reproduced() -> None:
    """memul.mm 1x8x1: 28; mov.m of one element: 11; mov.llb.l1 of 2 bytes: 66 in the mean; DMA of 16 bytes: 67 ns."""
    assert matrix_cycles(CHIP, 1, 1, 8, "float16") == 28
    assert vector_cycles(CHIP, 1, "float16") == 11
    assert transfer_cycles(CHIP, "L1", "LLB", 2) == 66
    assert dma_cycles(CHIP, "LLB", "DDR", 16) == 67


@pytest.mark.parametrize(
    ("pixels", "channels", "reduction", "dtype", "cycles"),
    [
        (64, 32, 576, "float16", 20 + 576),
        (65, 32, 576, "float16", 20 + 2 * 576),
        (64, 33, 576, "float16", 20 + 2 * 576),
        (56 * 56, 64, 576, "float16", 20 + 49 * 2 * 576),  # the 3x3 convolution 56x56x64 -> 64: no ragged tile
        (7 * 7, 512, 4608, "float16", 20 + 16 * 4608),
        (64, 32, 577, "int8", 20 + 289),
        (0, 32, 576, "float16", 0),
    ],
)
def test_matrix_cycles_by_hand(pixels: int, channels: int, reduction: int, dtype: str, cycles: int) -> None:
    assert matrix_cycles(CHIP, pixels, channels, reduction, dtype) == cycles


def test_full_tiles_run_at_the_peak() -> None:
    macs = 56 * 56 * 64 * 576
    busy = matrix_cycles(CHIP, 56 * 56, 64, 576, "float16") - CHIP.matrix.start_latency_cycles
    assert macs / busy == CHIP.matrix.macs_per_cycle("float16")


def test_the_assumed_fill_counts_once_a_tile() -> None:
    chip = assuming(matrix_tile_cycles=64.0)
    assert matrix_tiles(chip, 128, 64) == 4
    assert matrix_cycles(chip, 128, 64, 100, "float16") - matrix_cycles(CHIP, 128, 64, 100, "float16") == 4 * 64


def test_rows_of_pixels_leave_the_array_in_each_of_its_tiles_of_channels() -> None:
    chip = assuming(matrix_row_cycles=0.5)
    assert matrix_cycles(chip, 100, 64, 100, "float16") - matrix_cycles(CHIP, 100, 64, 100, "float16") == 0.5 * 100 * 2


def test_vector_cycles_by_hand() -> None:
    assert vector_cycles(CHIP, 64, "float16") == 11
    assert vector_cycles(CHIP, 65, "float16") == 12
    assert vector_cycles(CHIP, 6400, "float16", passes=3) == 3 * 110
    assert vector_cycles(assuming(vector_pass_cycles=5.0), 6400, "float16", passes=3) == 3 * 115
    assert vector_cycles(CHIP, 0, "float16") == 0


def test_moves_by_hand() -> None:
    assert transfer_cycles(CHIP, "LLB", "L1", 65_536) == 65 + 1024  # one core: 64 bytes per cycle
    assert transfer_cycles(CHIP, "LLB", "L1", 65_536, sharers=8) == 65 + 2048  # 256 / 8 = 32 bytes per cycle
    assert transfer_cycles(CHIP, "LLB", "L1", 10 * 2, rows=10) == 65 + 10  # each row takes a whole flit
    assert transfer_cycles(CHIP, "IM", "L1", 1280) == 20
    assert transfer_cycles(CHIP, "L1", "L1", 1280, engine="vector") == 20
    assert transfer_cycles(CHIP, "LLB", "L1", 0) == 0


def test_dma_by_hand() -> None:
    assert dma_cycles(CHIP, "DDR", "LLB", 2700) == 66 + 100
    assert dma_cycles(CHIP, "DDR", "LLB", 2700, sharers=2) == 66 + 200
    assert dma_cycles(assuming(dma_descriptor_cycles=10.0), "DDR", "LLB", 2700, descriptors=3) == 66 + 100 + 30


def test_a_way_that_the_chip_does_not_have_is_refused() -> None:
    with pytest.raises(ChipError, match="needs a link DDR -> L1"):
        transfer_cycles(CHIP, "DDR", "L1", 2)
    with pytest.raises(ChipError, match="needs a link LLB -> L1 by engine dma"):
        dma_cycles(CHIP, "LLB", "L1", 2)
    with pytest.raises(ChipError, match="needs the type float32"):
        matrix_cycles(CHIP, 1, 1, 1, "float32")


@given(EXTENTS, EXTENTS, EXTENTS, st.integers(0, 200))
def test_more_matrix_work_never_takes_less(pixels: int, channels: int, reduction: int, more: int) -> None:
    cycles = matrix_cycles(CHIP, pixels, channels, reduction, "float16")
    assert cycles <= matrix_cycles(CHIP, pixels + more, channels, reduction, "float16")
    assert cycles <= matrix_cycles(CHIP, pixels, channels + more, reduction, "float16")
    assert cycles <= matrix_cycles(CHIP, pixels, channels, reduction + more, "float16")
    assert cycles * CHIP.matrix.macs_per_cycle("float16") >= pixels * channels * reduction


@given(SIZES, st.integers(0, 1 << 16), st.integers(1, 8))
def test_more_bytes_rows_or_sharers_never_take_less(size_bytes: int, more: int, sharers: int) -> None:
    cycles = transfer_cycles(CHIP, "LLB", "L1", size_bytes, sharers=sharers)
    assert cycles <= transfer_cycles(CHIP, "LLB", "L1", size_bytes + more, sharers=sharers)
    assert cycles <= transfer_cycles(CHIP, "LLB", "L1", size_bytes, sharers=sharers + 1)
    assert cycles <= transfer_cycles(CHIP, "LLB", "L1", size_bytes, rows=2, sharers=sharers)
    assert dma_cycles(CHIP, "DDR", "LLB", size_bytes) <= dma_cycles(CHIP, "DDR", "LLB", size_bytes + more)


@given(SIZES, st.integers(0, 1 << 16), st.integers(1, 9))
def test_more_vector_work_never_takes_less(elements: int, more: int, passes: int) -> None:
    cycles = vector_cycles(CHIP, elements, "float16", passes)
    longer = vector_cycles(CHIP, elements + more, "float16", passes)
    assert cycles <= longer <= vector_cycles(CHIP, elements + more, "float16", passes + 1)


def test_a_copy_is_done_in_the_type_itself_or_in_the_one_of_which_most_pass() -> None:
    """The engine moves elements of a type that it does not compute in as those of its fastest."""
    rates = {rate.dtype: CHIP.vector.elements_per_cycle(rate.dtype) for rate in CHIP.vector.rates}
    assert all(copy_cycles(CHIP, "L1", 6400, dtype, 2) == vector_cycles(CHIP, 6400, dtype) for dtype in rates)
    assert "int64" not in rates
    assert copy_cycles(CHIP, "L1", 6400, "int64", 8) == vector_cycles(CHIP, 6400, max(rates, key=rates.__getitem__))


def test_a_memory_with_a_link_to_itself_copies_by_it() -> None:
    gemmini = load_chip("gemmini")
    assert copy_cycles(gemmini, "scratchpad", 6400, "int8", 1) == 16 + 6400 / 16
    assert copy_engine(gemmini, "scratchpad") == "array"
    assert copy_engine(CHIP, "L1") == CHIP.vector.name
