"""The turns of a program in order: which round of which layer, where it is staged, and what is staged one turn ahead.

    layout: layers with rounds --flatten--> turns --two places in the staging area--> constants come a turn early

A turn's constants may arrive while the turn before computes, if there is room for both beside all that is kept in the
staging memory: the turn before lies at one end of what is free, this one at the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hw_models.chip import Chip
from partitioner.graph import Graph
from partitioner.layout import LayerLayout, Layout, MoveLayout, Place
from partitioner.plan import Plan, Step
from partitioner.rounds import Round, Stage, Staged

__all__ = ["Turn", "turns_of"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One round of a layer (`number` of `count`), staged from `base_bytes` on in `staging`. `early` is brought while
    the turn before computes, `kept` lies there from it."""

    step: Step
    entry: LayerLayout
    number: int
    round: Round
    stage: Stage
    staging: str
    base_bytes: int
    early: tuple[Staged, ...] = ()
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


def turns_of(
    plan: Plan, layout: Layout, graph: Graph, chip: Chip, ahead: bool
) -> tuple[Turn | tuple[Step, MoveLayout], ...]:
    """All turns and moves in program order; with `ahead`, constants and inputs of the network are staged a turn early
    where there is room."""
    result: list[Turn | tuple[Step, MoveLayout]] = []
    before: Turn | None = None
    for item in _flat(plan, layout):
        if not isinstance(item, Turn):
            result.append(item)
            before = None
            continue
        turn = item
        same = before is not None and before.entry is turn.entry
        if before is not None and same and before.base_bytes + turn.stage.size_bytes <= sum(turn.entry.staging):
            kept = tuple(staged for staged in turn.stage.inputs if staged in before.stage.inputs)
            turn = replace(turn, base_bytes=before.base_bytes, kept=kept)
        if ahead and before is not None and not turn.kept and (same or _plain(before)):
            turn = _ahead(before, turn, graph, chip.memory(layout.staging).alignment_bytes)
        result.append(turn)
        before = turn
    return tuple(result)


def _flat(plan: Plan, layout: Layout) -> Iterator[Turn | tuple[Step, MoveLayout]]:
    for step, laid in zip(plan.steps, layout.steps, strict=True):
        if isinstance(laid, MoveLayout):
            yield step, laid
            continue
        for entry in laid:
            for number, (turn, stage) in enumerate(entry.rounds):
                yield Turn(step, entry, number, turn, stage, layout.staging, entry.staging[0])


def _plain(turn: Turn) -> bool:
    """True when nothing else uses the staging memory between a turn and the next layer's first."""
    return turn.last and turn.entry.exchange is None and not turn.entry.stores


def _ahead(before: Turn, turn: Turn, graph: Graph, unit: int) -> Turn:
    """The turn at the end of the free bytes that the one before leaves, what is there from the start brought early;
    unchanged where
    both do not fit or there is nothing to bring."""
    early = tuple(
        staged for staged in turn.stage.inputs if graph.by_name[staged.tensor].constant or staged.tensor in graph.inputs
    )
    if not early:
        return turn
    low = max(before.entry.staging[0], turn.entry.staging[0])
    high = min(sum(before.entry.staging), sum(turn.entry.staging))
    for base in (low, (high - turn.stage.size_bytes) // unit * unit):
        fits = base >= low and base + turn.stage.size_bytes <= high
        if fits and (base >= before.end_bytes or base + turn.stage.size_bytes <= before.base_bytes):
            return replace(turn, base_bytes=base, early=early)
    return turn
