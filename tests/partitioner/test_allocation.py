"""Allocation: what stays never overlaps, each policy spills what its name says, refusals say who holds what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lab.spill_allocation import SpillAllocation, SpillMemory, allocate
from hw_models.errors import DoesNotFit
from partitioner.memory.spill_policies import POLICIES, SpillValue

UNLIMITED = SpillMemory("DDR", 1 << 40, 64)


@st.composite
def lifetimes(draw: st.DrawFn) -> tuple[SpillValue, ...]:
    made = []
    for number in range(draw(st.integers(1, 16))):
        slots = draw(st.sets(st.integers(0, 12), min_size=1, max_size=4))
        made.append(SpillValue(f"v{number}", draw(st.integers(0, 100)), tuple(sorted(slots))))
    return tuple(made)


def check_apart(values: tuple[SpillValue, ...], memories: tuple[SpillMemory, ...], found: SpillAllocation) -> None:
    assert found.places.keys() == {value.name for value in values}
    size_of = {memory.name: memory for memory in memories}
    for a in values:
        memory, low = found.places[a.name]
        assert low + a.size_bytes <= size_of[memory].size_bytes
        assert low % size_of[memory].alignment_bytes == 0
        for b in values:
            where, other = found.places[b.name]
            together = a.slots[0] <= b.slots[-1] and b.slots[0] <= a.slots[-1]
            if a.name < b.name and memory == where and together and a.size_bytes and b.size_bytes:
                assert low + a.size_bytes <= other or other + b.size_bytes <= low


@given(lifetimes(), st.sampled_from(sorted(POLICIES)), st.integers(8, 200), st.integers(0, 200))
def test_everything_finds_a_place_of_its_own(
    values: tuple[SpillValue, ...], policy: str, near_bytes: int, middle_bytes: int
) -> None:
    memories = (SpillMemory("L1", near_bytes, 2), SpillMemory("LLB", middle_bytes, 4), UNLIMITED)
    found = allocate(values, memories, POLICIES[policy])
    check_apart(values, memories, found)
    left = [spill.value.name for spill in found.spills if spill.memory == "L1"]
    assert sorted(left) == sorted(name for name, (memory, _) in found.places.items() if memory != "L1")
    assert found.moved_bytes("LLB") <= found.moved_bytes("L1")


@given(lifetimes(), st.sampled_from(sorted(POLICIES)))
def test_nothing_is_spilled_where_all_fits(values: tuple[SpillValue, ...], policy: str) -> None:
    everything = sum(value.size_bytes for value in values)
    assert allocate(values, (SpillMemory("L1", everything), UNLIMITED), POLICIES[policy]).spills == ()


def spilled(values: tuple[SpillValue, ...], policy: str, capacity: int, missing: int) -> list[str]:
    spills = allocate(values, (SpillMemory("L1", capacity), UNLIMITED), POLICIES[policy]).spills
    assert spills[0].missing_bytes == missing
    return [spill.value.name for spill in spills]


def test_each_policy_spills_what_its_name_says() -> None:
    """In slot 3 all four are held: 100 bytes where there are 80."""
    values = (
        SpillValue("long", 20, (0, 3, 9)),
        SpillValue("large", 40, (1, 2, 3)),
        SpillValue("later", 15, (2, 8)),
        SpillValue("cheap", 25, (3, 4)),
    )
    assert spilled(values, "longest", 80, 20) == ["long"]
    assert spilled(values, "largest", 80, 20) == ["large"]
    assert spilled(values, "furthest", 80, 20) == ["later", "large"]
    assert spilled(values, "cost", 80, 20) == ["cheap"]


def test_ties_of_liveness_go_to_the_larger_one_and_then_by_name() -> None:
    values = (SpillValue("b", 10, (0, 3)), SpillValue("c", 30, (0, 3)), SpillValue("a", 30, (0, 3)))
    assert spilled(values, "longest", 60, 10) == ["a"]


def test_where_no_value_alone_is_enough_several_go() -> None:
    values = tuple(SpillValue(f"v{n}", 10, (0, 1 + n)) for n in range(6))
    assert spilled(values, "cost", 35, 25) == ["v0", "v1", "v5"]
    assert spilled(values, "longest", 35, 25) == ["v5", "v4", "v3"]


def test_what_may_not_be_spilled_stays_or_is_refused() -> None:
    values = (SpillValue("fixed", 60, (0, 9), fixed=True), SpillValue("other", 50, (0, 2)))
    assert spilled(values, "longest", 100, 10) == ["other"]
    with pytest.raises(DoesNotFit) as refusal:
        allocate(values, (SpillMemory("L1", 50), UNLIMITED), POLICIES["longest"])
    assert str(refusal.value).splitlines() == [
        "value fixed in slot 0: needs 60 bytes of L1; has 50 bytes (10 bytes too few); change one of: a chip with more "
        "L1, smaller pieces",
        "  held in L1 at that moment: 60 bytes",
        "  fixed  60 bytes  from slot 0 to slot 9",
    ]


def test_a_last_memory_that_is_too_small_is_refused() -> None:
    values = tuple(SpillValue(f"v{n}", 100, (0, 1)) for n in range(3))
    with pytest.raises(DoesNotFit, match="value v0 in slot 0: needs 200 bytes of LLB; has 150 bytes"):
        allocate(values, (SpillMemory("L1", 100), SpillMemory("LLB", 150)), POLICIES["longest"])
