"""Places for data that live for a while: no two that live at the same time overlap.

    items (first and last slot, bytes) --pack--> offsets, or what does not fit

Slots are steps of time. Items are placed at the lowest free offset, in one of a few orders; the first order in which
all find room is taken. The room that items leave free in a slot is the workspace of whatever runs then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Item:
    """`size_bytes` that are in use from slot `first` to slot `last`, both included."""

    name: str
    first: int
    last: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Packing:
    """Offsets by item name; `late` names the first item that found no room (the others then have offsets too)."""

    offsets: Mapping[str, int]
    late: Item | None = None


ORDERS: tuple[Callable[[Item], tuple[int, ...]], ...] = (
    lambda item: (-item.size_bytes, item.first),
    lambda item: (item.first - item.last, -item.size_bytes),
    lambda item: (item.first, -item.size_bytes),
)
"""Keys of the orders in which items are placed: largest first, longest-lived first, oldest first."""


def pack(
    items: Sequence[Item], capacity_bytes: int, alignment_bytes: int, least: Mapping[int, int], apart: int = 0
) -> Packing:
    """Offsets below `capacity_bytes`, leaving `least[slot]` bytes in one piece free in a slot where that is possible.

    With `apart`, an item stays clear of those that lived up to this many slots before it or will live up to this many
    after it, where there is room for that and `least` loses nothing: then work on it need not wait for work on them.
    Raises nothing: where no order fits, the packing of the last one names the item that came too late.
    """
    best = _best_order(items, capacity_bytes, alignment_bytes, least, apart)
    for fewer in range(apart - 1, -1, -1):
        if best[0] == 0:
            break
        found = _best_order(items, capacity_bytes, alignment_bytes, least, fewer)
        best = min(best, found, key=lambda choice: choice[0])
    return best[1]


NO_ROOM = 1 << 62


def _best_order(
    items: Sequence[Item], capacity_bytes: int, alignment_bytes: int, least: Mapping[int, int], apart: int
) -> tuple[int, Packing]:
    """The packing of the order that leaves most of the wanted room free, and the bytes that it misses."""
    best: tuple[int, Packing] | None = None
    for order in ORDERS:
        packing = _first_fit(sorted(items, key=order), capacity_bytes, alignment_bytes, apart)
        if packing.late is not None:
            best = best or (NO_ROOM, packing)
            continue
        shortage = _shortage(items, packing, capacity_bytes, least)
        if best is None or shortage < best[0]:
            best = (shortage, packing)
        if shortage == 0:
            break
    assert best is not None  # there is at least one order
    return best


def lowest(items: Sequence[Item], alignment_bytes: int) -> tuple[Mapping[str, int], int]:
    """Offsets by item name in the order that needs the least room, and their end; for memories with room for all."""
    best: tuple[Mapping[str, int], int] | None = None
    for order in ORDERS:
        offsets = _first_fit(sorted(items, key=order), 0, alignment_bytes).offsets
        height = max((offsets[item.name] + item.size_bytes for item in items), default=0)
        if best is None or height < best[1]:
            best = offsets, height
    assert best is not None  # there is at least one order
    return best


def _shortage(items: Sequence[Item], packing: Packing, capacity: int, least: Mapping[int, int]) -> int:
    """Bytes by which the free space of slots misses what is wanted in them, summed over all slots."""
    live = _live(items)
    return sum(
        max(0, wanted - largest_gap(((packing.offsets[i.name], i.size_bytes) for i in live.get(slot, ())), capacity)[1])
        for slot, wanted in least.items()
    )


def _live(items: Iterable[Item]) -> dict[int, list[Item]]:
    live: dict[int, list[Item]] = {}
    for item in items:
        for slot in range(item.first, item.last + 1):
            live.setdefault(slot, []).append(item)
    return live


def _first_fit(items: Sequence[Item], capacity: int, alignment: int, apart: int = 0) -> Packing:
    """Offsets where each item takes the lowest place that is free during its life and `apart` slots around it, or fewer
    if there is none."""
    offsets: dict[str, int] = {}
    placed: dict[int, list[tuple[int, int]]] = {}
    late: Item | None = None
    for item in items:
        size = -(-item.size_bytes // alignment) * alignment
        offset = _lowest_free(placed, item, size, apart)
        for fewer in range(apart - 1, -1, -1):
            if offset + size <= capacity:
                break
            offset = _lowest_free(placed, item, size, fewer)
        if offset + size > capacity and late is None:
            late = item
        offsets[item.name] = offset
        if size:
            for slot in range(item.first, item.last + 1):
                placed.setdefault(slot, []).append((offset, offset + size))
    return Packing(offsets, late)


def _lowest_free(placed: Mapping[int, list[tuple[int, int]]], item: Item, size: int, apart: int) -> int:
    slots = range(item.first - apart, item.last + apart + 1)
    offset = 0
    for start, end in sorted({interval for slot in slots for interval in placed.get(slot, ())}):
        if start - offset >= size:
            break
        offset = max(offset, end)
    return offset


def largest_gap(busy: Iterable[tuple[int, int]], capacity_bytes: int) -> tuple[int, int]:
    """(offset, bytes) of the largest interval outside the `busy` ones, each (offset, bytes)."""
    best, cursor = (0, 0), 0
    for offset, size in sorted(interval for interval in busy if interval[1]):
        best = max(best, (cursor, offset - cursor), key=lambda gap: gap[1])
        cursor = max(cursor, offset + size)
    return max(best, (cursor, capacity_bytes - cursor), key=lambda gap: gap[1])


def peak_bytes(items: Iterable[Item]) -> tuple[int, int]:
    """(bytes, slot) where most bytes are in use: a lower bound for any packing."""
    changes: dict[int, int] = {}
    for item in items:
        changes[item.first] = changes.get(item.first, 0) + item.size_bytes
        changes[item.last + 1] = changes.get(item.last + 1, 0) - item.size_bytes
    peak, at, now = 0, 0, 0
    for slot in sorted(changes):
        now += changes[slot]
        if now > peak:
            peak, at = now, slot
    return peak, at
