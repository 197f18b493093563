"""Code that is fetched takes time and loads its memory: figures that anybody can work out."""

from __future__ import annotations

import pytest

from hw_models.chip import Chip
from isched.program.timed_ops import IssueCost, LinkFlow, TimedOp, TimedStream
from isched.timing.cycle_model import time_streams
from isched.timing.timeline import Timeline
from tests.chip_runs import stcp920
from tests.instruction_caches import cached, uncached

CHIP = stcp920()
COLD = cached(CHIP, miss_cycles=140.0)


def work(instructions: int, missed: int) -> TimedOp:
    return TimedOp("vector", "work", IssueCost(instructions, missed=missed), "vector", 5)


def load(size_bytes: int, missed: int = 0) -> TimedOp:
    """Bytes from the DDR to the LLB, started and not awaited."""
    flows = (LinkFlow("ddr_to_llb", size_bytes),)
    return TimedOp("dma", "dma.start", IssueCost(1, missed=missed), "dma0.0", 66, flows, starts="dma0.0#0.1")


def after_launch(timeline: Timeline) -> float:
    return timeline.cycles - timeline.launch_cycles


def test_a_line_takes_its_miss_behind_the_instructions_that_it_holds() -> None:
    run = time_streams((TimedStream(0, (work(8, 1), work(16, 2)), 8, 1),), COLD)
    issued = [span.issued - run.launch_cycles for span in run.spans]
    assert issued == [148, 148 + 16 + 280]
    assert after_launch(run) == 148 + 296 + 148
    assert [*run.scalar_cycles, *run.fetched_lines, *run.fetch_cycles] == [32, 4, 560]


def test_cold_straight_code_takes_what_the_published_profile_shows() -> None:
    run = time_streams((TimedStream(0, (work(4000, 500),), 0),), COLD)
    assert (run.spans[0].issued - run.launch_cycles) / 4000 == 18.5


@pytest.mark.parametrize("chip", [CHIP, uncached(CHIP)], ids=["misses cost nothing", "no cache"])
def test_nothing_is_waited_for_where_the_chip_file_says_so(chip: Chip) -> None:
    run = time_streams((TimedStream(0, (work(8, 1),), 8, 1),), chip)
    assert after_launch(run) == 16
    assert [*run.fetched_lines, *run.fetch_cycles] == [2, 0]


def test_what_is_fetched_loads_the_memory() -> None:
    """A core fetches 32 bytes in 32 cycles while 27,000 bytes come in at 27 less that: one byte a cycle is gone."""
    chip = cached(CHIP, miss_cycles=32.0)
    alone = time_streams((TimedStream(0, (load(27_000),), 0),), chip)
    assert after_launch(alone) == 1 + 66 + 1000
    both = time_streams((TimedStream(0, (load(27_000), work(1, 100)), 0),), chip)
    dma = next(span for span in both.spans if span.engine == "dma")
    assert dma.end - both.launch_cycles == pytest.approx(1 + 66 + 27_000 / 26, abs=1.5)
    assert both.fetch_cycles[0] == 3200


def test_a_memory_that_is_slower_than_the_misses_decides() -> None:
    """Eight cores that ask for 8 bytes a cycle each have 27 together."""
    chip = cached(CHIP, miss_cycles=4.0)
    run = time_streams(tuple(TimedStream(core, (work(1, 270),), 0) for core in range(8)), chip)
    assert all(cycles == pytest.approx(270 * 32 * 8 / 27, abs=1.5) for cycles in run.fetch_cycles)


def test_a_core_that_waits_for_code_lets_others_go_on() -> None:
    run = time_streams((TimedStream(0, (work(8, 10),), 0), TimedStream(1, (work(8, 0),), 0)), COLD)
    assert run.core_end_cycles[1] - run.launch_cycles == 8
    assert run.core_end_cycles[0] - run.launch_cycles == 1408
