"""The rounds of a program in order: which round of which layer, and where it is staged.

    layout: layers with rounds --flatten--> staged rounds --one after the other in the staging memory--> places

A round is staged after the one before it as long as it fits, then from the start of the free memory again: so data for
later rounds can arrive while earlier ones are still read. Where a layout wants constants ahead, those of several rounds
come together: with fewer and longer transfers, the core that starts them is seldom late for the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hw_models.chip import Chip
from partitioner.memory.memory_plan_types import LayerLayout, Layout, MoveLayout, Place
from partitioner.tiling.staging_rounds import Round, Staged, StagingRound

FETCH_DIVISOR = 64
"""Divisor of the staging memory: constants of several rounds come together until they reach this part of it, or as
much as came before. A core waits until a whole fetch is there. So no wait is longer than what came before took, a small
network begins early, and the fetches are few."""

FIRST_DIVISOR = 8
"""Divisor of all constants: a fetch may be at least this part of them, also the first ones."""

Fetch = tuple[tuple[str, Place], ...]
"""Tensors and their places."""


@dataclass(frozen=True, slots=True)
class StagedRound:
    """One round of a layer (`number` of those that it has), staged from `base_bytes` on in `staging`. Data in `kept`
    lie there from the round before. Before the round, the `fetches` come from the main memory, one after the other;
    each has tensors with their places, some of which may be for later rounds."""

    entry: LayerLayout
    number: int
    round: Round
    stage: StagingRound
    staging: str
    base_bytes: int
    kept: tuple[Staged, ...] = ()
    fetches: tuple[Fetch, ...] = ()

    @property
    def last(self) -> bool:
        """True for the last round of its layer."""
        return self.number == len(self.entry.rounds) - 1

    @property
    def end_bytes(self) -> int:
        return self.base_bytes + self.stage.size_bytes

    def place(self, staged: Staged) -> Place:
        """The place where a box is staged."""
        return Place(self.staging, self.base_bytes + staged.offset_bytes, staged.box)


def staged_rounds(layout: Layout, chip: Chip, apart: bool) -> tuple[tuple[int, StagedRound | MoveLayout], ...]:
    """All rounds and moves in program order, with the position of their step. Each round is staged from the start of
    its layer's free region or, with `apart`, after the round before it where that fits."""
    unit = chip.memory(layout.staging).alignment_bytes
    result: list[tuple[int, StagedRound | MoveLayout]] = []
    before: StagedRound | None = None
    following = 0
    for position, item in _flat(layout):
        if isinstance(item, StagedRound):
            low, size = item.entry.staging
            start = max(low, -(-following // unit) * unit)
            if apart and start + item.stage.size_bytes <= low + size:
                item = replace(item, base_bytes=start)
            if before is not None and before.entry is item.entry:
                item = _keeping(before, item)
            following = item.end_bytes
            before = item
        result.append((position, item))
    return _fetched(result, layout, chip)


def _fetched(
    items: list[tuple[int, StagedRound | MoveLayout]], layout: Layout, chip: Chip
) -> tuple[tuple[int, StagedRound | MoveLayout], ...]:
    """The rounds with what is fetched before each: the data that it lacks. With `constants_ahead`, values and constants
    are separate, and constants come together with those of later rounds as far as they fit one fetch."""
    if not layout.options.constants_ahead:
        return tuple(
            (position, replace(item, fetches=(_lacked(item),)) if isinstance(item, StagedRound) else item)
            for position, item in items
        )
    lacked = {
        number: tuple((name, place) for name, place in _lacked(item) if name not in item.entry.sources)
        for number, (_, item) in enumerate(items)
        if isinstance(item, StagedRound)
    }
    sizes = {number: sum(layout.size_bytes(*constant) for constant in each) for number, each in lacked.items()}
    most, least = chip.memory(layout.staging).size_bytes // FETCH_DIVISOR, sum(sizes.values()) // FIRST_DIVISOR
    fetches: dict[int, Fetch] = {}
    open_at, fetched, before = -1, 0, 0
    for number, (_, item) in enumerate(items):
        size = sizes.get(number, 0)
        if isinstance(item, MoveLayout) or not size:
            continue
        between = [other for _, other in items[open_at:number]] if open_at >= 0 else []
        if open_at < 0 or fetched + size > min(most, max(before, least)) or not _clear(item, between, layout):
            open_at, before, fetched = number, before + fetched, 0
        fetches[open_at] = fetches.get(open_at, ()) + lacked[number]
        fetched += size
    result: list[tuple[int, StagedRound | MoveLayout]] = []
    for number, (position, item) in enumerate(items):
        if isinstance(item, StagedRound):
            values = tuple((name, place) for name, place in _lacked(item) if name in item.entry.sources)
            item = replace(item, fetches=tuple(fetch for fetch in (values, fetches.get(number, ())) if fetch))
        result.append((position, item))
    return tuple(result)


def _lacked(staged_round: StagedRound) -> Fetch:
    """Data that a round reads from the main memory and does not find where the round before it was."""
    return tuple(
        (staged.tensor, staged_round.place(staged))
        for staged in staged_round.stage.inputs
        if staged not in staged_round.kept
    )


def _clear(staged_round: StagedRound, between: list[StagedRound | MoveLayout], layout: Layout) -> bool:
    """Whether the place of a round is free while earlier rounds run: theirs lie in the same region, apart from it, and
    all that is exchanged, stored or moved meanwhile lies outside that region."""
    low, size = staged_round.entry.staging
    for item in between:
        if isinstance(item, MoveLayout):
            held = [(item.tensor, item.buffer)]
        else:
            entry = item.entry
            if entry.staging != (low, size):
                return False
            if item.base_bytes < staged_round.end_bytes and staged_round.base_bytes < item.end_bytes:
                return False
            held = [(entry.layer.output, place) for place in (entry.exchange, entry.destination)]
            held += [(store.tensor, place) for store in entry.stores for place in (store.destination, store.buffer)]
        for name, place in held:
            if place is not None and place.memory == layout.staging:
                end = place.offset_bytes + layout.size_bytes(name, place)
                if place.offset_bytes < low + size and low < end:
                    return False
    return True


def _keeping(before: StagedRound, staged_round: StagedRound) -> StagedRound:
    """The round at the place of the one before it, if something of that one stays, so that nothing is brought twice."""
    low, size = staged_round.entry.staging
    kept = tuple(staged for staged in staged_round.stage.inputs if staged in before.stage.inputs)
    fits = before.base_bytes + staged_round.stage.size_bytes <= low + size
    return replace(staged_round, base_bytes=before.base_bytes, kept=kept) if kept and fits else staged_round


def _flat(layout: Layout) -> Iterator[tuple[int, StagedRound | MoveLayout]]:
    for position, laid in enumerate(layout.steps):
        if isinstance(laid, MoveLayout):
            yield position, laid
            continue
        for entry in laid:
            for number, (this_round, stage) in enumerate(entry.rounds):
                yield position, StagedRound(entry, number, this_round, stage, layout.staging, entry.staging[0])
