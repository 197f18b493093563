"""Usage by part and in stretches: every moment of every core is counted once, where the rule says."""

from __future__ import annotations

import random

import pytest

from hw_models.chip import Chip
from isched.program.timed_ops import IssueCost, LinkFlow, TimedOp, TimedStream
from isched.timing.cycle_model import time_streams
from isched.timing.timeline import OVERLAPS, Timeline
from isched.timing.utilisation import ENGINE_KINDS, dominant_parts, usage_by, usage_over_time
from tests.chip_runs import stcp920


def instant(chip: Chip) -> Chip:
    """A chip whose scalar cores take no time."""
    return chip.model_copy(update={"assumed": chip.assumed.model_copy(update={"scalar_instruction_cycles": 0.0})})


CHIP = instant(stcp920())


def op(unit: str, cycles: float, source: str) -> TimedOp:
    return TimedOp(unit, unit, IssueCost(1), unit, cycles, source=source)


def timeline(*cores: tuple[TimedOp, ...]) -> Timeline:
    return time_streams(tuple(TimedStream(core, ops) for core, ops in enumerate(cores)), CHIP)


def test_the_first_kind_at_work_says_what_a_moment_belongs_to() -> None:
    # Matrix works for a until 100, vector for b until 150, transfer for c until 180.
    one = timeline((op("matrix", 100, "a"), op("vector", 150, "b"), op("transfer", 180, "c")))
    a, b, c = usage_by(one, {"a": "A", "b": "B", "c": "C"})
    assert [(u.part, u.cycles) for u in (a, b, c)] == [("A", 100), ("B", 50), ("C", 30)]
    assert a.busy_cycles == {"matrix": 100, "vector": 100, "transfer": 100, "dma": 0}
    assert [a.overlaps[name].share for name, _ in OVERLAPS] == [1, 1, 1, 1]
    assert [b.overlaps[name].share for name, _ in OVERLAPS] == [0, 0, 1, 0]
    assert c.utilisation("transfer") == 1
    assert c.utilisation("matrix") == 0


def test_idle_cores_belong_to_what_the_others_work_for() -> None:
    one = timeline((op("matrix", 100, "a"),), (op("vector", 60, "a"),), (op("vector", 20, "b"),))
    a, b = usage_by(one, {"a": "A", "b": "B"})
    # Core 1 is idle for 40 cycles of a; core 2 for 40 of which both others work for a, and for 40 more.
    assert (a.cycles, b.cycles) == (100 + 60 + 40 + 80, 20)
    assert a.utilisation("matrix") == pytest.approx(100 / 280)
    assert a.active_cycles == 160


def fetch(channel: str, latency: float, source: str) -> TimedOp:
    return TimedOp(
        "dma",
        "dma.start",
        IssueCost(0),
        channel,
        latency,
        (LinkFlow("ddr_to_llb", 270),),
        starts=f"{channel}#1",
        source=source,
    )


def wait(channel: str) -> TimedOp:
    return TimedOp("scalar", "dma.wait", IssueCost(0, 0, 1), awaits=(f"{channel}#1",))


def test_a_wait_for_the_main_memory_belongs_to_what_the_dma_works_for() -> None:
    one = timeline((fetch("dma0.0", 50, "b"), wait("dma0.0"), op("matrix", 40, "a")), ())
    b, a = usage_by(one, {"a": "A", "b": "B"})
    assert (b.part, b.cycles, b.busy_cycles["dma"]) == ("B", 2 * 60, 2 * 60)
    assert (a.part, a.cycles, a.busy_cycles["matrix"], a.busy_cycles["dma"]) == ("A", 2 * 40, 40, 0)
    assert (b.first_cycle, b.last_cycle) == (0, 0), "no core works for it"
    assert (a.first_cycle, a.last_cycle) == (60, 100)


def test_the_dma_does_not_decide_while_a_core_works() -> None:
    one = timeline((fetch("dma0.0", 50, "b"), op("matrix", 40, "a"), wait("dma0.0")), ())
    b, a = sorted(usage_by(one, {"a": "A", "b": "B"}), key=lambda usage: usage.cycles)
    assert (a.part, a.cycles, a.utilisation("dma")) == ("A", 2 * 40, 1)
    assert (b.part, b.cycles) == ("B", 2 * 20)


def test_moments_in_which_nothing_works_belong_to_what_comes_next() -> None:
    late = TimedOp("vector", "vector", IssueCost(30), "vector", 10, source="b")
    streams = (TimedStream(0, (op("matrix", 40, "a"), late), 7),)
    one = time_streams(streams, stcp920())  # a scalar instruction takes a cycle
    a, b = usage_by(one, {"a": "A", "b": "B"})
    assert (a.cycles, b.cycles) == (1 + 40, one.cycles - one.launch_cycles - 41)


def test_the_part_that_most_is_done_for_in_each_stretch() -> None:
    # The DMA works for b until 60, then matrix for a until 100 and vector for c until 85.
    one = timeline((fetch("dma0.0", 50, "b"), wait("dma0.0"), op("matrix", 40, "a"), op("vector", 25, "c")), ())
    parts = {"a": "A", "b": "B", "c": "C"}
    assert dominant_parts(one, parts, 10) == ("B",) * 6 + ("A",) * 4
    assert dominant_parts(one, parts, 1) == ("A",)
    idle = time_streams((TimedStream(0, (op("vector", 10, "a"),), 30),), stcp920())
    assert dominant_parts(idle, parts, 2) == ("A", "")


@pytest.mark.parametrize("seed", range(8))
def test_parts_and_stretches_add_up_to_the_whole_run(seed: int) -> None:
    chosen = random.Random(seed)
    cores = [
        tuple(op(chosen.choice(ENGINE_KINDS), chosen.randint(0, 90), chosen.choice("abcd")) for _ in range(40))
        for _ in range(chosen.randint(1, 4))
    ]
    one = timeline(*cores)
    whole = (one.cycles - one.launch_cycles) * len(one.cores)
    by_part = usage_by(one, {"a": "A", "b": "B", "c": "B"}, other="rest")
    assert {usage.part for usage in by_part} <= {"A", "B", "rest"}
    for usages in (by_part, usage_over_time(one, 7)):
        assert sum(usage.cycles for usage in usages) == pytest.approx(whole)
        for kind in ENGINE_KINDS:
            assert sum(usage.busy_cycles[kind] for usage in usages) == pytest.approx(one.busy_cycles.get(kind, 0))
        for name, overlap in one.overlaps.items():
            assert sum(usage.overlaps[name].cycles for usage in usages) == pytest.approx(overlap.cycles)
    work = {"A": 0.0, "B": 0.0, "rest": 0.0}
    for span in one.spans:
        if span.unit == "matrix":
            work[{"a": "A", "b": "B", "c": "B"}.get(span.source, "rest")] += span.end - span.start
    for usage in by_part:
        assert usage.busy_cycles["matrix"] == pytest.approx(work[usage.part]), "matrix work is in its own part"
    stretches = usage_over_time(one, 7)
    assert [usage.part for usage in stretches] == list("0123456")
    assert [usage.cycles for usage in stretches] == pytest.approx([whole / 7] * 7)


def test_a_run_without_work_has_no_parts() -> None:
    assert usage_by(timeline(()), {}) == ()
    (stretch,) = usage_over_time(timeline(()), 1)
    assert (stretch.cycles, stretch.utilisation("matrix")) == (0, 0)
