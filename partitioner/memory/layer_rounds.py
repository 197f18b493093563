"""Rounds of a layer in the staging memory: found once for all layers that are alike.

layer, boxes of its cores, what is staged, room --> rounds, and what each of them holds
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from hw_models.infeasible import Infeasible
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_size
from partitioner.tiling.core_partition import cut_granularity
from partitioner.tiling.staging_rounds import Round, Stager, StagingRound, own_rounds, shared_rounds

Rounds = tuple[tuple[Round, StagingRound], ...]


@dataclass(frozen=True, slots=True)
class OutputCut:
    """Division of a layer's output. Without `pieces`, each core cuts its own one of the `boxes`; otherwise the `whole`
    is cut into rounds, each of which is divided among the cores into `pieces`."""

    boxes: tuple[Box, ...]
    whole: Box = ()
    pieces: tuple[int, ...] = ()


@dataclass
class _Known:
    """Rounds found in one compilation, by everything that decides them, with the names of the first layer of each
    kind."""

    rounds: dict[object, Rounds] = field(default_factory=dict)


def layer_rounds(
    ctx: PlanContext, layer: Layer, cut: OutputCut, staged: frozenset[str], output: bool, room_bytes: int
) -> Rounds | Infeasible:
    """Rounds that fit the room for staging, with `staged` and `output` as in a `Stager`."""
    likeness, known = ctx.likeness(layer), ctx.memo(_Known).rounds
    key = (likeness.kind, cut, frozenset(likeness.to_first[name] for name in staged), output, room_bytes)
    if key not in known:
        stager = Stager(ctx, layer, staged.__contains__, output, room_bytes)
        rounds = _rounds(stager, cut)
        if isinstance(rounds, Infeasible):
            return rounds
        found = tuple((this_round, stager.stage(this_round)) for this_round in rounds)
        known[key] = _renamed(found, likeness.to_first)
        return found
    return _renamed(known[key], likeness.from_first)


def brought_bytes(graph: Graph, rounds: Rounds) -> int:
    """Bytes that all rounds bring from the main memory; data that the round before left at the same place are not
    counted."""
    stages = tuple(stage for _, stage in rounds)
    kept = (
        box_size(staged.box) * graph.by_name[staged.tensor].item_bytes
        for before, stage in pairwise(stages)
        for staged in stage.inputs
        if staged in before.inputs
    )
    return sum(stage.loaded_bytes for stage in stages) - sum(kept)


def _rounds(stager: Stager, cut: OutputCut) -> tuple[Round, ...] | Infeasible:
    """Rounds cut at multiples of the matrix array's channels, or wherever the target allows if these do not fit."""
    ctx, layer = stager.ctx, stager.layer
    if cut.pieces:
        return shared_rounds(stager, cut.whole, cut.pieces, cut_granularity(ctx, layer, cut.whole))
    found = own_rounds(stager, cut.boxes, cut_granularity(ctx, layer, max(cut.boxes, key=box_size)))
    if isinstance(found, Infeasible):
        return own_rounds(stager, cut.boxes, ctx.target.granularity(ctx.graph, layer))
    return found


def _renamed(rounds: Rounds, names: Mapping[str, str]) -> Rounds:
    """Rounds with other names of tensors."""
    return tuple(
        (
            this_round,
            StagingRound(
                tuple([replace(staged, tensor=names[staged.tensor]) for staged in stage.inputs]),
                tuple([replace(staged, tensor=names[staged.tensor]) for staged in stage.outputs]),
                stage.loaded_bytes,
                stage.size_bytes,
            ),
        )
        for this_round, stage in rounds
    )
