"""How many instructions a program will have, told while it is made: layers that are laid out alike take as many each.

layers of a layout, instructions so far --> what is still to come of those that are like one before --> refusal
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from hw_models.errors import PlanError
from isched.lowering.tile_code import LowerContext
from partitioner.ir.layers import Layer
from partitioner.ir.regions import box_shape
from partitioner.memory.memory_plan_types import LayerLayout, Layout, MoveLayout

MOST_INSTRUCTIONS = 1_000_000
"""A program of more is refused while it is being made: no code space holds it, and hours would pass."""


class ProgramSize:
    """Told of each layer when it begins, and of all instructions so far."""

    def __init__(self, layout: Layout, ctx: LowerContext) -> None:
        self._ctx = ctx
        entries = (entry for step in layout.steps if not isinstance(step, MoveLayout) for entry in step)
        self._to_come = Counter(map(self._kind, entries))
        self._taken: dict[Hashable, int] = {}
        self._now: tuple[Hashable, int] | None = None

    def begin(self, laid: LayerLayout | MoveLayout, count: int) -> None:
        """What follows is of another layer or move; there are `count` instructions. Raises PlanError if those to come
        are too many."""
        if self._now is not None:
            kind, before = self._now
            self._taken[kind] = count - before
            self._to_come[kind] -= 1
            expected = count + sum(self._to_come[each] * taken for each, taken in self._taken.items())
            if expected > MOST_INSTRUCTIONS:
                raise _refusal("the program", f"about {expected:,}, by layers that are alike")
        self._now = None if isinstance(laid, MoveLayout) else (self._kind(laid), count)

    def require(self, layer: Layer, count: int) -> None:
        """Raises PlanError if the instructions up to this layer are too many."""
        if count > MOST_INSTRUCTIONS:
            raise _refusal(f"layer {layer.name}", f"{count:,}")

    def _kind(self, entry: LayerLayout) -> Hashable:
        likeness = self._ctx.likeness(entry.layer)
        held = (frozenset(likeness.to_first.get(name, name) for name in places) for places in entry.residents)
        memory = "" if entry.destination is None else entry.destination.memory
        return likeness.kind, tuple(map(box_shape, entry.boxes)), tuple(held), memory, len(entry.rounds)


def _refusal(who: str, has: str) -> PlanError:
    change = "use a smaller batch or smaller tensors"
    return PlanError(who, needs=f"at most {MOST_INSTRUCTIONS:,} instructions", has=has, change=change)
