"""Cycles of the moves of a program: copies of cores with their start-ups, and chains of the DMA.

    part of a value, where it lies, where it goes --> engine, cycles

A core's copies are instructions, each with the start-up of its link; the descriptors of one chain share a start-up, and
the core that starts the chain writes them first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hw_models.cost import copy_cycles, copy_engine, dma_cycles, transfer_cycles
from hw_models.parts import DmaEngine
from partitioner.context.plan_context import PlanContext
from partitioner.cost.copy_shape import copy_shape
from partitioner.expansion.expansion import InMain, Transfer, TransferPiece, read_from, written_to
from partitioner.expansion.staging_schedule import StagedRound
from partitioner.ir.regions import Box, box_size, full_box
from partitioner.ir.target import CountsIssue, TileLoad
from partitioner.memory.memory_plan_types import Layout, Place
from partitioner.tiling.tile_loads import TileFetch


class Moved(NamedTuple):
    """Work of one engine for one move; `source` and `target` are memories."""

    tensor: str
    source: str
    target: str
    engine: str
    cycles: float


class DmaChain(NamedTuple):
    """One chain of the DMA: the link that carries it, what it brings, cycles of its issue and of its transfer."""

    link: str
    moves: tuple[Moved, ...]
    issue_cycles: float
    cycles: float


@dataclass(slots=True)
class MoveCosts:
    """Costs of the moves of one layout."""

    ctx: PlanContext
    layout: Layout
    _known: dict[object, tuple[str, float]] = field(default_factory=dict)
    """Engine and cycles by way, type and boxes."""
    _issued: dict[int, float] = field(default_factory=dict)
    """Cycles of the scalar core by descriptors of a chain."""

    def chain(self, transfers: Iterable[Transfer]) -> DmaChain | None:
        """The chain that makes all transfers over a link of the DMA; None where another engine makes them, or nothing
        moves."""
        chip = self.ctx.chip
        moves: list[Moved] = []
        cycles = 0.0
        descriptors = 0
        for moved in transfers:
            source, target = self._memory(moved.source), self._memory(moved.target)
            if source == target or not box_size(moved.part):
                continue
            link = chip.link(source, target)
            if not isinstance(chip.engine(link.engine), DmaEngine):
                return None
            here, there = self._box(moved.source, moved.tensor), self._box(moved.target, moved.tensor)
            packed, strided = (there, here) if isinstance(moved.source, InMain) else (here, there)
            shape = copy_shape(packed, strided, moved.part)
            size = box_size(moved.part) * self.layout.item_bytes[moved.tensor]
            gathers = chip.dma.gather and isinstance(moved.source, InMain)
            descriptors += shape.copies * (min(shape.rows, chip.dma.engines_per_cluster) if gathers else shape.rows)
            cycles += dma_cycles(chip, source, target, size, shape.copies * shape.rows, descriptors=0)
            moves.append(Moved(moved.tensor, source, target, link.engine, 0.0))
        if not moves:
            return None
        cycles -= (len(moves) - 1) * link.latency_cycles
        cycles += -(-descriptors // chip.dma.engines_per_cluster) * chip.assumed.dma_descriptor_cycles
        return DmaChain(link.name, tuple(moves), self._issue_cycles(descriptors), cycles)

    def _issue_cycles(self, descriptors: int) -> float:
        """Cycles of the scalar core for a chain, where the target knows its instructions."""
        found = self._issued.get(descriptors)
        if found is None:
            target, tick = self.ctx.target, self.ctx.chip.assumed.scalar_instruction_cycles
            found = tick * target.dma_start_instructions(descriptors) if isinstance(target, CountsIssue) else 0.0
            self._issued[descriptors] = found
        return found

    def transfer(self, moved: Transfer) -> Moved | None:
        """A transfer that a core makes; None where nothing moves."""
        source, target = self._memory(moved.source), self._memory(moved.target)
        if source == target == self.ctx.roles.main or not box_size(moved.part):
            return None
        here, there = self._box(moved.source, moved.tensor), self._box(moved.target, moved.tensor)
        packed, strided = (here, there) if moved.packed_at_source else (there, here)
        sharers = self.ctx.chip.cores_per_cluster
        return self._moved(moved.tensor, (source, target), packed, strided, moved.part, sharers)

    def loads(
        self, staged_round: StagedRound, piece: TransferPiece, tile: TileFetch, wanted: Iterable[TileLoad], alone: bool
    ) -> Iterator[Moved]:
        """The moves of some loads of a tile. Constants that all cores load (`alone`) use a link by themselves where one
        read serves all cores."""
        here = staged_round.entry.residents[piece.number]
        memory = {buffer.name: buffer.memory for buffer in tile.work.buffers}
        cores = len(staged_round.round.boxes)
        for load in wanted:
            served = alone and bool(self.ctx.graph.by_name[load.tensor].constant)
            for place, part in read_from(self.layout, staged_round, load, here):
                if box_size(part):
                    way = place.memory, memory[load.buffer]
                    sharers = 1 if served and way[0] != way[1] and self.ctx.chip.link(*way).broadcast else cores
                    yield self._moved(load.tensor, way, load.box, place.box, part, sharers)

    def store(self, staged_round: StagedRound, piece: TransferPiece, tile: TileFetch) -> Moved | None:
        """The move of a tile's result to where it is kept; None where it is there already."""
        if not tile.stored:
            return None
        to = written_to(staged_round, tile.box, staged_round.entry.residents[piece.number])
        way, cores = (tile.work.local, to.memory), len(staged_round.round.boxes)
        return self._moved(staged_round.entry.layer.output, way, tile.box, to.box, tile.box, cores)

    def _moved(self, tensor: str, way: tuple[str, str], packed: Box, strided: Box, part: Box, sharers: int) -> Moved:
        """Copies of a core: in a memory by the engine that copies there, else over a link, each with its start-up."""
        value = self.ctx.graph.by_name[tensor]
        key = way, value.dtype, packed, strided, part, sharers
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._engine_cycles(tensor, way, packed, strided, part, sharers)
        return Moved(tensor, *way, *found)

    def _engine_cycles(
        self, tensor: str, way: tuple[str, str], packed: Box, strided: Box, part: Box, sharers: int
    ) -> tuple[str, float]:
        chip, (source, target) = self.ctx.chip, way
        if source == target:
            value = self.ctx.graph.by_name[tensor]
            cycles = copy_cycles(chip, source, box_size(part), value.dtype, value.item_bytes)
            return copy_engine(chip, source), cycles
        copies, rows = copy_shape(packed, strided, part)
        size = box_size(part) * self.layout.item_bytes[tensor]
        each = transfer_cycles(chip, source, target, -(-size // copies), rows, sharers=sharers)
        return chip.link(source, target).engine, copies * each

    def _memory(self, place: Place | InMain) -> str:
        return self.ctx.roles.main if isinstance(place, InMain) else place.memory

    def _box(self, place: Place | InMain, tensor: str) -> Box:
        return full_box(self.ctx.graph.by_name[tensor].shape) if isinstance(place, InMain) else place.box
