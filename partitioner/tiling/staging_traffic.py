"""Bytes between the main and the staging memory while one layer runs, counted before there is a layout.

    layer, which of its values lie in the main memory, room for staging --rounds--> bytes brought and taken

The rounds are those that the layout will choose, so a layer that is cut finer for lack of room loads some bytes again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size
from partitioner.ir.steps import RunStep
from partitioner.tiling.core_partition import cut_granularity
from partitioner.tiling.staging_rounds import Round, Stager, own_rounds, shared_rounds

ROUNDS_COUNTED = 12
"""Largest number of rounds that are counted one by one; the last of them stands for the rest."""


EVER = 1 << 62
"""A number of bytes larger than any room."""


@dataclass(frozen=True)
class StagedBytes:
    """Counter for one layer at a time, which remembers results for similar layers."""

    ctx: PlanContext
    known: dict[tuple[object, ...], list[tuple[int, int, int | None]]] = field(default_factory=dict)

    def of(
        self,
        layer: Layer,
        step: RunStep,
        in_main: frozenset[str],
        to_main: bool,
        room_bytes: int,
        own: tuple[Box, ...] = (),
    ) -> int | None:
        """Bytes to and from the main memory; None where not even the smallest round fits `room_bytes`.

        `in_main` are the values read from there; with `to_main` the output goes there. Where some value lies in the
        cores' memories, each core keeps to its own box, one of `own`.
        """
        likeness = self.ctx.likeness(layer)
        read = frozenset(likeness.to_first[name] for name in in_main if name in likeness.to_first)
        answers = self.known.setdefault((likeness.kind, step.box, step.binding.pieces, read, to_main, own), [])
        for least, most, moved in answers:
            if least <= room_bytes <= most:
                return moved
        counted = self._count(layer, step, in_main, to_main, room_bytes, own)
        if isinstance(counted, Infeasible):
            answers.append((0, room_bytes, None))
            return None
        needed, rounds, moved = counted
        # With less room that is still enough, the same rounds are best; with more, a single round stays single.
        answers.append((needed, room_bytes if rounds > 1 else EVER, moved))
        return moved

    def _count(
        self,
        layer: Layer,
        step: RunStep,
        in_main: frozenset[str],
        to_main: bool,
        room_bytes: int,
        own: tuple[Box, ...],
    ) -> tuple[int, int, int] | Infeasible:
        """Room that the rounds need, their number, and the bytes that they move."""
        graph = self.ctx.graph

        def staged(name: str) -> bool:
            return bool(graph.by_name[name].constant) or name in in_main

        stager = Stager(self.ctx, layer, staged, to_main, room_bytes)
        if own:
            rounds = own_rounds(stager, own, cut_granularity(self.ctx, layer, max(own, key=box_size)))
        else:
            granularity = cut_granularity(self.ctx, layer, step.box)
            rounds = shared_rounds(stager, step.box, step.binding.pieces, granularity)
        if isinstance(rounds, Infeasible):
            return rounds
        needed = max(stager.stage(this_round).size_bytes for this_round in rounds)
        stored = graph.by_name[layer.output].size_bytes if to_main else 0
        return needed, len(rounds), _loaded_bytes(stager, rounds) + stored


def _loaded_bytes(stager: Stager, rounds: tuple[Round, ...]) -> int:
    """Bytes that all rounds bring; data that the round before left at the same place are not brought again."""
    total = 0
    loaded = 0
    before: tuple[object, ...] = ()
    graph = stager.ctx.graph
    for this_round in rounds[:ROUNDS_COUNTED]:
        stage = stager.stage(this_round)
        loaded = sum(
            box_size(staged.box) * graph.by_name[staged.tensor].item_bytes
            for staged in stage.inputs
            if staged not in before
        )
        total += loaded
        before = stage.inputs
    return total + loaded * max(0, len(rounds) - ROUNDS_COUNTED)
