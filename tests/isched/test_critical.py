"""The critical path: known ones of small streams; on random ones, no gaps and nothing invented."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings

from hw_models.chip import Chip
from isched.program.timed_ops import TimedOp, TimedStream
from isched.timing.critical_path import critical_cycles, critical_path
from isched.timing.cycle_model import time_streams
from isched.timing.timeline import Timeline
from isched.timing.waiting_by_part import waiting_by
from tests.isched.test_timing import assumed, barrier, load, matrix, run, start, together, vector, wait, work
from tests.isched.test_timing_properties import chips, streams


def causes(timeline: Timeline) -> list[tuple[str, float]]:
    return [(stretch.cause, stretch.end - stretch.start) for stretch in critical_path(timeline)]


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ((matrix(100), vector(5)), [("scalar", 1), ("matrix", 100)]),
        ((matrix(100), matrix(50)), [("scalar", 1), ("matrix", 100), ("matrix", 50)]),
        (
            (work("matrix", 100, writes=(1,)), work("vector", 20, reads=(1,))),
            [("scalar", 1), ("matrix", 100), ("vector", 20)],
        ),
        ((vector(1), vector(1, before=50), load(64)), [("scalar", 1), ("scalar", 50), ("scalar", 1), ("transfer", 66)]),
        ((start(2673), wait(), vector(7)), [("scalar", 10), ("dma", 165), ("asking", 1), ("scalar", 5), ("vector", 7)]),
    ],
)
def test_chains_of_one_core(ops: tuple[TimedOp, ...], expected: list[tuple[str, float]]) -> None:
    assert causes(run(ops)) == expected


def test_a_barrier_leads_to_the_core_that_came_last() -> None:
    timeline = run((barrier(), vector(9)), (matrix(80), barrier()), chip=assumed(sync_cycles=6))
    assert causes(timeline) == [("scalar", 1), ("matrix", 80), ("barrier", 6), ("scalar", 1), ("vector", 9)]
    assert [timeline.spans[stretch.span].core for stretch in critical_path(timeline)] == [1, 1, 1, 0, 0]
    assert critical_cycles(timeline) == {"matrix": 80, "vector": 9, "barrier": 6, "scalar": 2}


def test_the_end_of_a_core_counts() -> None:
    timeline = time_streams((TimedStream(0, (vector(1),), end=30),), assumed())
    assert causes(timeline) == [("scalar", 1), ("scalar", 30)]


def test_loads_that_wait_for_other_cores_lead_to_the_one_that_came_last() -> None:
    timeline = run((together(0),), (together(0, before=41),))
    assert critical_cycles(timeline) == {"transfer": 165, "scalar": 41}
    assert [timeline.spans[stretch.span].core for stretch in critical_path(timeline)] == [1, 1]
    assert critical_cycles(timeline)["transfer"] == 65 + 100
    assert timeline.cycles - timeline.launch_cycles == 41 + 165


def test_what_binds_and_what_waits_by_part() -> None:
    first, second = replace(matrix(100), source="a"), replace(vector(20), source="b")
    timeline = run((first, replace(barrier(), source="b"), second), (replace(barrier(), source="b"),))
    a, b = waiting_by(timeline, {"a": "one", "b": "two"})
    assert (a.part, a.bound_by, dict(a.critical_cycles)) == ("one", "matrix", {"matrix": 100, "scalar": 1})
    assert (b.part, b.bound_by) == ("two", "vector")
    assert b.critical_cycles["vector"] == 20
    assert a.stall_cycles == {}
    assert b.stall_cycles["drain"] == 99, "the first core waits for its own matrix engine"
    assert b.stall_cycles["barrier"] >= 100, "the second for the first"
    assert [part.part for part in waiting_by(timeline, {"a": "one"}, "rest")] == ["one", "rest"]


@settings(max_examples=40)
@given(streams(), chips())
def test_parts_share_the_whole_path_and_all_waiting(made: tuple[TimedStream, ...], chip: Chip) -> None:
    named = [[replace(op, source=f"op{number % 4}") for number, op in enumerate(stream.ops)] for stream in made]
    streams_of = tuple(replace(stream, ops=tuple(ops)) for stream, ops in zip(made, named, strict=True))
    timeline = time_streams(streams_of, chip)
    parts = waiting_by(timeline, {"op0": "even", "op1": "odd", "op2": "even"}, "?")
    assert {part.part for part in parts} <= {"even", "odd", "?"}
    assert sum(part.cycles for part in parts) == pytest.approx(timeline.cycles - timeline.launch_cycles)
    stalls: dict[str, float] = {}
    for part in parts:
        for reason, cycles in part.stall_cycles.items():
            stalls[reason] = stalls.get(reason, 0.0) + cycles
    assert stalls == pytest.approx(timeline.stall_cycles)


@settings(max_examples=80)
@given(streams(), chips())
def test_the_chain_has_no_gaps_and_its_stretches_are_what_they_say(made: tuple[TimedStream, ...], chip: Chip) -> None:
    timeline = time_streams(made, chip)
    path = critical_path(timeline)
    if timeline.cycles > timeline.launch_cycles:
        assert path[0].start == timeline.launch_cycles
        assert path[-1].end == timeline.cycles
    assert all(earlier.end == later.start for earlier, later in pairwise(path))
    assert sum(critical_cycles(timeline).values()) == pytest.approx(timeline.cycles - timeline.launch_cycles)
    for stretch in path:
        if stretch.cause in ("matrix", "vector", "transfer", "dma"):
            span = timeline.spans[stretch.span]
            assert (span.start, span.end) == (stretch.start, stretch.end)
        elif stretch.cause == "asking":
            assert stretch.end - stretch.start <= 3 * chip.assumed.scalar_instruction_cycles + 1e-6
        elif stretch.cause == "barrier":
            assert stretch.end - stretch.start == pytest.approx(chip.assumed.sync_cycles)
        else:
            assert stretch.cause == "scalar"
