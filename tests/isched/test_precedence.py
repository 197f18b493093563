"""What must come before what: no more than conflicting accesses force, and all of it where regions are simple."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from isched.bounds.precedence import Precedence, precedence_of
from isched.program.program import Region
from isched.program.timed_ops import IssueCost, TimedOp, TimedStream
from isched.timing.engines import conflict, touched_by
from tests.chip_runs import stcp920

CHIP = stcp920()

strided = st.builds(
    Region,
    st.just("L1"),
    st.integers(0, 12).map(lambda n: 32 * n),
    st.sampled_from([32, 48, 64, 256]),
    st.integers(1, 3),
    st.sampled_from([64, 96]),
)
slots = st.integers(0, 5).map(lambda n: Region("L1", 64 * n, 64))


def streams(regions: st.SearchStrategy[Region]) -> st.SearchStrategy[tuple[TimedOp, ...]]:
    places = st.lists(regions, max_size=2).map(tuple)
    ops = st.builds(
        lambda engine, reads, writes: TimedOp(engine, engine, IssueCost(1), engine, 10, (), reads, writes),
        st.sampled_from(["matrix", "vector"]), places, places,
    )  # fmt: skip
    return st.lists(ops, max_size=14).map(tuple)


def conflicts(ops: tuple[TimedOp, ...]) -> set[tuple[int, int]]:
    touched = [touched_by(op) for op in ops]
    return {(a, b) for b in range(len(ops)) for a in range(b) if conflict(touched[b], touched[a])}


def closure(pairs: set[tuple[int, int]], count: int) -> set[tuple[int, int]]:
    before: list[set[int]] = [set() for _ in range(count)]
    for b in range(count):
        for a in (a for a, other in pairs if other == b):
            before[b] |= {a} | before[a]
    return {(a, b) for b in range(count) for a in before[b]}


def edges(found: Precedence) -> set[tuple[int, int]]:
    return {(a, b) for b, before in enumerate(found.before) for a in before}


@settings(max_examples=150)
@given(streams(strided))
def test_every_edge_is_a_conflict(ops: tuple[TimedOp, ...]) -> None:
    found = precedence_of((TimedStream(0, ops),), CHIP)
    assert len(found) == len(ops)
    assert edges(found) <= conflicts(ops)


@settings(max_examples=150)
@given(streams(slots))
def test_where_regions_are_equal_or_apart_nothing_is_missing(ops: tuple[TimedOp, ...]) -> None:
    found = precedence_of((TimedStream(0, ops),), CHIP)
    assert closure(edges(found), len(ops)) == closure(conflicts(ops), len(ops))


def test_a_core_that_awaits_what_another_one_starts_comes_behind_it() -> None:
    start = TimedOp("dma", "start", IssueCost(1), "dma0.0", 66, writes=(Region("LLB", 0, 64),), starts="dma0.0#1")
    wait = TimedOp("scalar", "wait", IssueCost(1, 4, 3), awaits=("dma0.0#1",))
    load = TimedOp("transfer", "load", IssueCost(1), "transfer", 65, reads=(Region("LLB", 0, 64),))
    found = precedence_of((TimedStream(0, (wait, load)), TimedStream(1, (start,))), CHIP)
    assert found.members == (((1, 0),), ((0, 1),))
    assert found.before == ((), (0,))
