"""The rounds of a program in order: which round of which layer, and where it is staged.

    layout: layers with rounds --flatten--> staged rounds --one behind the other in the staging memory--> places

A round is staged behind the one before it as long as it fits, then from the start of what is free again: so what
later rounds need can arrive while earlier ones are still read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hw_models.chip import Chip
from partitioner.memory.memory_plan import LayerLayout, Layout, MoveLayout, Place
from partitioner.tiling.staging_rounds import Round, Stage, Staged

__all__ = ["StagedRound", "staged_rounds"]


@dataclass(frozen=True, slots=True)
class StagedRound:
    """One round of a layer (`number` of those that it has), staged from `base_bytes` on in `staging`. What is `kept`
    lies there from the round before."""

    entry: LayerLayout
    number: int
    round: Round
    stage: Stage
    staging: str
    base_bytes: int
    kept: tuple[Staged, ...] = ()

    @property
    def last(self) -> bool:
        """True for the last round of its layer."""
        return self.number == len(self.entry.rounds) - 1

    @property
    def end_bytes(self) -> int:
        return self.base_bytes + self.stage.size_bytes

    def place(self, staged: Staged) -> Place:
        """Where a box is staged."""
        return Place(self.staging, self.base_bytes + staged.offset_bytes, staged.box)


def staged_rounds(layout: Layout, chip: Chip, apart: bool) -> tuple[tuple[int, StagedRound | MoveLayout], ...]:
    """All rounds and moves in program order, with the position of their step; each round is staged from the start of
    what its layer finds free, or, with `apart`, behind the round before it where that fits."""
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
    return tuple(result)


def _keeping(before: StagedRound, staged_round: StagedRound) -> StagedRound:
    """The round where the one before it was, if something of that stays: nothing is brought twice."""
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
