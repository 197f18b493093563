"""Packing: nothing overlaps, what fits nowhere is named, free space is found."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from partitioner.memory.offset_assignment import Item, largest_gap, pack, peak_bytes

CAPACITY = 256


@st.composite
def items(draw: st.DrawFn) -> tuple[Item, ...]:
    count = draw(st.integers(1, 14))
    made = []
    for number in range(count):
        first = draw(st.integers(0, 9))
        made.append(Item(f"v{number}", first, first + draw(st.integers(0, 5)), draw(st.integers(0, 90))))
    return tuple(made)


@given(items())
def test_items_that_live_together_do_not_overlap(found: tuple[Item, ...]) -> None:
    packing = pack(found, CAPACITY, 2, {})
    for a in found:
        assert packing.offsets[a.name] % 2 == 0
        if packing.late is None:
            assert packing.offsets[a.name] + a.size_bytes <= CAPACITY
        for b in found:
            if a.name < b.name and a.first <= b.last and b.first <= a.last and a.size_bytes and b.size_bytes:
                first, second = sorted((a, b), key=lambda item: packing.offsets[item.name])
                assert packing.offsets[first.name] + first.size_bytes <= packing.offsets[second.name]


@given(items())
def test_what_exceeds_the_peak_is_refused_and_what_never_meets_fits(found: tuple[Item, ...]) -> None:
    peak, slot = peak_bytes(found)
    by_hand = {s: sum(i.size_bytes for i in found if i.first <= s <= i.last) for s in range(16)}
    assert peak == max(by_hand.values())
    assert peak == by_hand[slot]
    assert peak <= CAPACITY or pack(found, CAPACITY, 1, {}).late is not None
    apart = tuple(Item(item.name, 20 * n, 20 * n, item.size_bytes) for n, item in enumerate(found))
    assert pack(apart, 90, 1, {}).late is None


def test_room_that_is_wanted_in_a_slot_decides_between_orders() -> None:
    """Largest first puts the long-lived item in the middle and leaves two small gaps; longest first leaves one."""
    held = (Item("short", 0, 0, 50), Item("long", 0, 1, 40))
    assert pack(held, 100, 1, {}).offsets == {"short": 0, "long": 50}
    wanted = pack(held, 100, 1, {1: 60})
    assert largest_gap([(wanted.offsets["long"], 40)], 100) == (40, 60)


def test_what_lives_one_after_the_other_stays_apart_where_there_is_room() -> None:
    """With room for two of them, and for one."""
    held = tuple(Item(f"v{slot}", slot, slot, 40) for slot in range(4))
    assert set(pack(held, 100, 1, {}).offsets.values()) == {0}
    assert list(pack(held, 100, 1, {}, 1).offsets.values()) == [0, 40, 0, 40]
    assert list(pack(held, 120, 1, {}, 2).offsets.values()) == [0, 40, 80, 0]
    assert set(pack(held, 79, 1, {}, 1).offsets.values()) == {0}
    wanted = pack(held, 100, 1, {1: 60}, 1)  # in the middle it would leave two small pieces
    assert largest_gap([(wanted.offsets["v1"], 40)], 100)[1] == 60


@given(items(), st.integers(1, 3))
def test_staying_apart_never_costs_a_place(found: tuple[Item, ...], apart: int) -> None:
    plain, wide = pack(found, CAPACITY, 2, {}), pack(found, CAPACITY, 2, {}, apart)
    assert (wide.late is None) or plain.late is not None
    for a, b in combinations(found, 2):
        if wide.late is None and a.first <= b.last and b.first <= a.last and a.size_bytes and b.size_bytes:
            first, second = sorted((a, b), key=lambda item: wide.offsets[item.name])
            assert wide.offsets[first.name] + first.size_bytes <= wide.offsets[second.name] <= CAPACITY


def test_gaps() -> None:
    assert largest_gap([], 10) == (0, 10)
    assert largest_gap([(2, 3), (8, 2)], 10) == (5, 3)
    assert largest_gap([(0, 4), (6, 4)], 10) == (4, 2)
