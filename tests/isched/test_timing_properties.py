"""What holds for any streams: nothing is lost, nothing overlaps that may not, nothing is faster than its parts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hw_models.chip import Chip
from isched.program.program import Region
from isched.program.timed_ops import IssueCost, LinkFlow, TimedOp, TimedStream
from isched.timing.cycle_model import time_streams
from isched.timing.engines import conflict, touched_by
from isched.timing.timeline import Timeline, TimelineSpan
from tests.chip_runs import stcp920

CHIP = stcp920()
ROUNDING = 1e-3
"""Cycles that quotients of bandwidths may be off by."""

regions = st.builds(
    Region,
    st.sampled_from(["L1", "IM"]),
    st.integers(0, 12).map(lambda n: 32 * n),
    st.sampled_from([32, 48, 64]),
    st.integers(1, 3),
    st.just(96),
)
places = st.lists(regions, max_size=2).map(tuple)
issues = st.builds(IssueCost, st.integers(1, 12), st.integers(0, 4))
on_engines = st.builds(
    lambda engine, issue, cycles, reads, writes: TimedOp(engine, engine, issue, engine, cycles, (), reads, writes),
    st.sampled_from(["matrix", "vector"]), issues, st.integers(0, 200), places, places,
)  # fmt: skip
transfers = st.builds(
    lambda link, issue, size, reads, writes: TimedOp(
        "transfer", link, issue, "transfer", 65, (LinkFlow(link, size),), reads, writes, moved_bytes=size
    ),
    st.sampled_from(["llb_to_l1", "l1_to_llb", "l1_to_l1"]), issues, st.integers(1, 20_000), places, places,
)  # fmt: skip


@st.composite
def dma_pairs(draw: st.DrawFn) -> list[TimedOp]:
    """A start, something between, its wait."""
    channel = draw(st.sampled_from(["dma0.0", "dma0.1", "dma1.0"]))
    link = draw(st.sampled_from(["ddr_to_llb", "llb_to_ddr"]))
    flow = LinkFlow(link, draw(st.integers(1, 20_000)))
    begin = TimedOp("dma", "dma.start", draw(issues), channel, 66, (flow,), starts=f"{channel}#", moved_bytes=1)
    between = draw(st.lists(on_engines, max_size=3))
    return [begin, *between, TimedOp("scalar", "dma.wait", IssueCost(2, 3, 3), awaits=(f"{channel}#",))]


@st.composite
def streams(draw: st.DrawFn, *, moving: bool = True) -> tuple[TimedStream, ...]:
    """One to four cores, with as many barriers each; `moving`: with transfers of both kinds."""
    kinds = st.one_of(on_engines, transfers) if moving else on_engines
    cores, epochs = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    made: list[list[TimedOp]] = [[] for _ in range(cores)]
    number = 0
    for epoch in range(epochs):
        for core in made:
            core += draw(st.lists(kinds, max_size=6))
            if moving and draw(st.booleans()):
                pair, number = draw(dma_pairs()), number + 1
                core += [
                    replace(
                        op,
                        starts=f"{op.starts}{number}" if op.starts else "",
                        awaits=tuple(f"{token}{number}" for token in op.awaits),
                    )
                    for op in pair
                ]
            core.append(TimedOp("sync", "sync", IssueCost(1), rendezvous=f"sync{epoch}"))
    return tuple(TimedStream(core, tuple(ops), draw(st.integers(0, 9))) for core, ops in enumerate(made))


@st.composite
def chips(draw: st.DrawFn) -> Chip:
    values = {
        "launch_cycles": draw(st.sampled_from([0, 1000])),
        "scalar_instruction_cycles": draw(st.sampled_from([0, 1, 2.5])),
        "sync_cycles": draw(st.sampled_from([0, 50])),
        "queue_depth": draw(st.integers(1, 4)),
    }
    return CHIP.model_copy(update={"assumed": CHIP.assumed.model_copy(update=values)})


def by_unit(timeline: Timeline) -> dict[tuple[int, str], list[TimelineSpan]]:
    """Spans of each engine of each core, and of each DMA channel (core -1)."""
    units: dict[tuple[int, str], list[TimelineSpan]] = defaultdict(list)
    for span in timeline.spans:
        if span.unit:
            units[-1 if span.engine == "dma" else span.core, span.unit].append(span)
    return units


@settings(max_examples=60)
@given(streams(), chips())
@pytest.mark.commit
def test_nothing_happens_before_it_can(made: tuple[TimedStream, ...], chip: Chip) -> None:
    timeline = time_streams(made, chip)
    assert len(timeline.spans) == sum(len(stream.ops) for stream in made)
    before: dict[int, TimelineSpan] = {}
    for span in timeline.spans:
        op = made[span.core].ops[span.index]
        assert chip.assumed.launch_cycles <= span.ready <= span.issued <= span.start <= span.end <= timeline.cycles
        if span.core in before:
            earlier = before[span.core]
            left = earlier.issued if earlier.unit or earlier.engine == "scalar" else earlier.end
            lead = (made[span.core].ops[earlier.index].issue.after + op.issue.before) * tick_of(chip)
            assert abs(span.ready - left - lead) < ROUNDING
        before[span.core] = span
        if span.unit:
            least = op.cycles + sum(flow.size_bytes / fastest(chip, flow.link) for flow in op.flows)
            assert span.end - span.start >= least - ROUNDING


def tick_of(chip: Chip) -> float:
    return chip.assumed.scalar_instruction_cycles


def fastest(chip: Chip, name: str) -> float:
    link = next(link for link in chip.links if link.name == name)
    return link.available_bytes_per_cycle()


@settings(max_examples=60)
@given(streams(), chips())
@pytest.mark.commit
def test_units_do_one_thing_at_a_time_and_queues_are_no_longer_than_allowed(
    made: tuple[TimedStream, ...], chip: Chip
) -> None:
    timeline = time_streams(made, chip)
    for (core, _), spans in by_unit(timeline).items():
        spans.sort(key=lambda span: (span.start, span.end))
        for earlier, later in pairwise(spans):
            assert later.start >= earlier.end
        if core >= 0:
            for number, span in enumerate(spans[chip.assumed.queue_depth :]):
                assert spans[number].end <= span.issued


@settings(max_examples=60)
@given(streams(), chips())
@pytest.mark.commit
def test_conflicting_accesses_of_a_core_are_never_in_flight_together(made: tuple[TimedStream, ...], chip: Chip) -> None:
    timeline = time_streams(made, chip)
    for stream in made:
        mine = [span for span in timeline.spans if span.core == stream.core and span.unit and span.engine != "dma"]
        touched = [touched_by(stream.ops[span.index]) for span in mine]
        for n, later in enumerate(touched):
            for m in range(n):
                if conflict(later, touched[m]):
                    assert mine[m].end <= mine[n].issued


@settings(max_examples=60)
@given(streams(), chips())
def test_the_makespan_is_no_less_than_any_unit_core_or_link_needs(made: tuple[TimedStream, ...], chip: Chip) -> None:
    timeline = time_streams(made, chip)
    whole = timeline.cycles - chip.assumed.launch_cycles
    for spans in by_unit(timeline).values():
        assert whole >= sum(span.end - span.start for span in spans) - ROUNDING
    for stream, scalar in zip(made, timeline.scalar_cycles, strict=True):
        count = sum(op.issue.before + op.issue.after for op in stream.ops) + stream.end
        assert scalar == count * tick_of(chip)
        assert whole >= scalar
    for memory, bandwidth in (("DDR", 27.0), ("LLB", 256.0)):
        through = {link.name for link in chip.links if memory in (link.source, link.destination)}
        moved = sum(f.size_bytes for s in made for op in s.ops for f in op.flows if f.link in through)
        assert whole >= moved / bandwidth - ROUNDING


@settings(max_examples=60)
@given(streams(), chips())
@pytest.mark.commit
def test_every_wait_has_a_cause_that_ends_with_it(made: tuple[TimedStream, ...], chip: Chip) -> None:
    timeline = time_streams(made, chip)
    for span in timeline.spans:
        assert span.stall or span.issued == span.ready
        if span.stall in ("conflict", "queue"):
            assert timeline.spans[span.blocked_by].end == span.issued
        if span.stall == "transfer":
            late = span.issued - timeline.spans[span.blocked_by].end
            assert 0 <= late <= 3 * tick_of(chip) + ROUNDING
    stalled = sum(timeline.stall_cycles.values())
    accounted = stalled + sum(timeline.scalar_cycles)
    present = sum(timeline.core_end_cycles) - chip.assumed.launch_cycles * len(made)
    assert abs(accounted - present) < ROUNDING * len(timeline.spans) + ROUNDING


@settings(max_examples=40)
@given(streams(), chips())
@pytest.mark.commit
def test_equal_streams_take_equal_time(made: tuple[TimedStream, ...], chip: Chip) -> None:
    assert time_streams(made, chip) == time_streams(made, chip)


@settings(max_examples=60)
@given(streams(moving=False), chips(), st.data())
def test_without_shared_ways_shorter_work_never_makes_a_longer_run(
    made: tuple[TimedStream, ...], chip: Chip, data: st.DataObject
) -> None:
    """Issue is in order, so every time is a maximum of sums. With shared bandwidth or questions that come at a rhythm
    this need not hold, and nothing is claimed."""
    core = data.draw(st.integers(0, len(made) - 1))
    index = data.draw(st.integers(0, len(made[core].ops) - 1))
    ops = list(made[core].ops)
    ops[index] = replace(ops[index], cycles=ops[index].cycles / 2, issue=IssueCost(max(1, ops[index].issue.before - 1)))
    shorter = (*made[:core], replace(made[core], ops=tuple(ops)), *made[core + 1 :])
    assert time_streams(shorter, chip).cycles <= time_streams(made, chip).cycles


@settings(max_examples=40)
@given(streams(moving=False), chips())
def test_a_longer_queue_never_makes_a_longer_run(made: tuple[TimedStream, ...], chip: Chip) -> None:
    longer = chip.assumed.model_copy(update={"queue_depth": chip.assumed.queue_depth + 1})
    assert time_streams(made, chip.model_copy(update={"assumed": longer})).cycles <= time_streams(made, chip).cycles
