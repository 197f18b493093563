"""Live bytes by the rule, and against a count of every byte at every moment."""

from __future__ import annotations

import random

import numpy as np
import pytest

from isched.program.program import Region
from isched.program.timed_ops import IssueCost, TimedOp, TimedStream
from isched.timing.cycle_model import time_streams
from isched.timing.occupancy import Occupancy, occupancies
from isched.timing.timeline import Timeline
from tests.chip_runs import stcp920

CHIP = stcp920().model_copy(
    update={"assumed": stcp920().assumed.model_copy(update={"scalar_instruction_cycles": 0.0, "launch_cycles": 1000.0})}
)


def op(cycles: float, reads: tuple[Region, ...] = (), writes: tuple[Region, ...] = ()) -> TimedOp:
    return TimedOp("vector", "op", IssueCost(1), "vector", cycles, reads=reads, writes=writes)


def found(*cores: tuple[TimedOp, ...]) -> tuple[tuple[Occupancy, ...], Timeline]:
    streams = tuple(TimedStream(core, ops) for core, ops in enumerate(cores))
    timeline = time_streams(streams, CHIP)
    return occupancies(timeline, streams, CHIP), timeline


def curve(occupancy: Occupancy) -> list[tuple[float, int]]:
    return list(zip(occupancy.cycles.tolist(), occupancy.live_bytes.tolist(), strict=True))


def test_a_value_lives_from_its_writing_to_its_last_reading() -> None:
    a, b, c = Region("L1", 0, 100), Region("L1", 200, 10), Region("L1", 300, 1)
    ((l1,), _) = found((op(10, (), (a,)), op(20, (), (b,)), op(30, (a,), (c,)), op(40, (a,), (c,))))
    # b is never read: it lives while it is written; a until the end of the fourth, c written over in between.
    assert curve(l1) == [(0, 100), (10, 110), (30, 101), (100, 0)]
    assert (l1.memory, l1.core, l1.size_bytes) == ("L1", 0, 1_310_720)
    assert (l1.peak_bytes, l1.peak_cycle) == (110, 10)
    least, most = l1.least_and_most(100, 4)
    assert (least.tolist(), most.tolist()) == ([100, 101, 101, 101], [110, 110, 101, 101])


def test_the_main_memory_holds_inputs_from_the_launch_and_outputs_to_the_end() -> None:
    x, y, between = Region("DDR", 0, 8), Region("DDR", 64, 4), Region("DDR", 128, 2)
    ((ddr,), _) = found((op(10), op(10, (x,), (y,)), op(10, (), (between,)), op(10, (between,)), op(10)))
    assert curve(ddr) == [(0, 8), (10, 12), (20, 6), (40, 4), (50, 0)]


def test_what_nothing_wrote_lives_from_its_reading_in_other_memories() -> None:
    ((llb,), _) = found((op(10), op(10, (Region("LLB", 0, 8),)), op(10)))
    assert curve(llb) == [(10, 8), (20, 0)]


def test_cores_have_memories_of_their_own_and_share_others() -> None:
    own, shared = Region("IM", 0, 4), Region("LLB", 0, 16)
    occupied, timeline = found((op(10, (), (own, shared)), op(5, (own,))), (op(5), op(30, (), (own,))))
    assert [(o.memory, o.core, o.peak_bytes) for o in occupied] == [("LLB", -1, 16), ("IM", 0, 4), ("IM", 1, 4)]
    assert curve(occupied[1]) == [(0, 4), (15, 0)]
    assert curve(occupied[2]) == [(5, 4), (35, 0)]
    assert timeline.cycles == 1035


def test_partly_overlapping_rows() -> None:
    wide, comb = Region("L1", 0, 40), Region("L1", 2, 2, 4, 10)
    ((l1,), _) = found((op(10, (), (wide,)), op(10, (), (comb,)), op(10, (wide,)), op(10, (comb,))))
    assert curve(l1) == [(0, 40), (30, 8), (40, 0)]


@pytest.mark.parametrize("seed", range(12))
def test_against_every_byte_at_every_moment(seed: int) -> None:
    chosen = random.Random(seed)

    def region() -> Region:
        rows, row = chosen.randint(1, 4), chosen.randint(1, 6)
        stride = chosen.choice([0, row, row + chosen.randint(1, 5), chosen.randint(1, row)]) if rows > 1 else 0
        return Region(chosen.choice(["DDR", "LLB", "L1"]), chosen.randint(0, 40), row, rows, stride)

    def regions() -> tuple[Region, ...]:
        return tuple(region() for _ in range(chosen.randint(0, 2)))

    ops = tuple(op(chosen.randint(1, 5), regions(), regions()) for _ in range(25))
    occupied, timeline = found(ops)
    end = int(timeline.cycles - timeline.launch_cycles)
    for occupancy in occupied:
        expected = every_byte(ops, timeline, occupancy.memory, end)
        least, most = occupancy.least_and_most(end, end)
        assert most.tolist() == expected
        assert least.tolist() == expected, "nothing changes within a cycle"
        least, most = occupancy.least_and_most(end, 1)
        assert (least.tolist(), most.tolist()) == ([min(expected)], [max(expected)])


def every_byte(ops: tuple[TimedOp, ...], timeline: Timeline, memory: str, end: int) -> list[int]:
    """Live bytes in each cycle: for each byte its history, and for each cycle whether a reader is to come."""
    live = np.zeros((end, 80), bool)
    main = memory == "DDR"
    for byte in range(80):
        history = []  # (start, end, write), a step at a time, reads before writes
        for one, span in zip(ops, timeline.spans, strict=True):
            start, stop = int(span.start - timeline.launch_cycles), int(span.end - timeline.launch_cycles)
            for write, of in ((False, one.reads), (True, one.writes)):
                if any(region.memory == memory and byte in covered(region) for region in of):
                    history.append((start, stop, write))
        for number, (start, stop, write) in enumerate(history):
            following = history[number + 1 :]
            writes = [other[0] for other in following if other[2]]
            until = writes[0] if writes else end
            readers = following[: [other[2] for other in following].index(True)] if writes else following
            if write:
                last = max((other[1] for other in readers), default=end if main and not writes else stop)
                live[start : min(until, last), byte] = True
            elif not any(other[2] for other in history[:number]):
                live[0 if main else start : max(other[1] for other in (history[number], *readers)), byte] = True
    return [int(n) for n in live.sum(axis=1)]


def covered(region: Region) -> set[int]:
    starts = (region.offset_bytes + row * region.stride_bytes for row in range(region.rows))
    return {start + byte for start in starts for byte in range(region.row_bytes)}


def test_a_run_without_work_occupies_nothing() -> None:
    assert found(())[0] == ()
    empty = Occupancy("L1", 0, 100, np.zeros(0), np.zeros(0, np.int64))
    assert (empty.peak_bytes, empty.peak_cycle, empty.least_and_most(10, 2)[1].tolist()) == (0, 0, [0, 0])
