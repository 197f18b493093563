"""Two clocks over the events of a layout: cycles of its program before anything is lowered.

    Transfers, Compute, Barrier --SerialClock-->  end, in the order of the plan
                                --OverlapClock--> end, in the order that a scheduler would find

They follow what the cycle model follows, move by move and tile by tile instead of instruction by instruction: what must
be there before work begins, what each engine does meanwhile, where cores wait for each other. Moves and tiles of a core
are not split, and scalar instructions count for chains of the DMA only.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

from partitioner.cost.move_costs import MoveCosts
from partitioner.expansion.expansion import Barrier, Compute, CoreTransfers, TransferPiece
from partitioner.ir.graph import Graph
from partitioner.tiling.tile_loads import TileFetch

Event: TypeAlias = CoreTransfers | Compute | Barrier

MOST_GAPS = 16
"""Largest number of idle times of an engine that later work may still fill: a scheduler looks ahead only so far as
places in memory become free."""

MOST_PARTS = 4
"""Largest number of parts into which a pass of a tile is divided where its engines take turns."""

IN_FLIGHT = 2
"""Number of tiles of a core, and of rounds in the staging memory, that find a place at the same time."""


@dataclass(slots=True)
class SerialClock:
    """A core does one thing after the other, as in an unscheduled program, where all that follows waits for what is
    loaded, computed or stored; cores wait for each other at barriers."""

    costs: MoveCosts
    times: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    """Time of each core."""

    @property
    def end(self) -> float:
        return max(self.times.values(), default=0.0)

    def add(self, event: Event) -> None:
        """Follow the next event."""
        match event:
            case CoreTransfers(core=core, transfers=transfers):
                if chain := self.costs.chain(transfers):
                    self.times[core] += chain.issue_cycles + chain.cycles
                    return
                self.times[core] += sum(moved.cycles for each in transfers if (moved := self.costs.transfer(each)))
            case Compute(pieces=pieces):
                for piece in pieces:
                    self.times[piece.core] += sum(self._tile_cycles(event, piece, tile) for tile in piece.tiles)
            case Barrier(drains=False):
                end = self.end + self.costs.ctx.chip.assumed.sync_cycles
                self.times = defaultdict(float, dict.fromkeys(range(self.costs.ctx.chip.cores_per_cluster), end))

    def _tile_cycles(self, event: Compute, piece: TransferPiece, tile: TileFetch) -> float:
        wanted = (load for loads in tile.loads for load in loads)
        loads = sum(moved.cycles for moved in self.costs.loads(event.staged_round, piece, tile, wanted, alone=False))
        stored = self.costs.store(event.staged_round, piece, tile)
        return loads + sum(cycles for _, cycles in tile.work.engine_cycles) + (stored.cycles if stored else 0.0)


@dataclass(slots=True)
class Unit:
    """One engine of a core, or one link of the DMA: when it is free, and its last idle times before that."""

    free: float = 0.0
    gaps: list[tuple[float, float]] = field(default_factory=list)

    def work(self, ready: float, cycles: float) -> float:
        """Put work into the first idle time that is long enough, not before it is `ready`; the time of its end."""
        for number, (start, end) in enumerate(self.gaps):
            begin = max(start, ready)
            if end - begin >= cycles:
                left = ((start, begin), (begin + cycles, end))
                self.gaps[number : number + 1] = [(low, high) for low, high in left if high > low]
                return begin + cycles
        begin = max(self.free, ready)
        if begin > self.free:
            self.gaps = [*self.gaps[1 - MOST_GAPS :], (self.free, begin)]
        self.free = begin + cycles
        return self.free


@dataclass(slots=True)
class OverlapClock:
    """Work begins as soon as its data are there and its engine is free, whatever comes before it in the plan. Values
    that other cores read are there when all cores have made them; constants can come early, as far as there is room for
    them."""

    costs: MoveCosts
    end: float = 0.0
    units: dict[tuple[int, str], Unit] = field(default_factory=lambda: defaultdict(Unit))
    """Engines by core; links of the DMA belong to no core, -1."""
    shared: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a value is there, by memory and value."""
    local: dict[tuple[int, str], float] = field(default_factory=dict)
    """When a value is in a core's own memory, by core and value."""
    unmet: list[tuple[str, str, float]] = field(default_factory=list)
    """Values that are there for other cores after the next barrier: memory, value, when its core has made it."""
    tiles: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Ends of the last tiles of each core."""
    rounds: list[float] = field(default_factory=list)
    """Ends of all rounds."""
    roots: dict[str, str] = field(default_factory=dict)
    """The value that each view renames."""

    def __post_init__(self) -> None:
        self.roots.update(roots_of(self.costs.ctx.graph))

    def add(self, event: Event) -> None:
        """Follow the next event."""
        match event:
            case CoreTransfers():
                self._transfers(event)
            case Compute():
                self._compute(event)
            case Barrier():
                self._meet()

    def _transfers(self, event: CoreTransfers) -> None:
        if chain := self.costs.chain(event.transfers):
            ready = max(self._ready(event.core, moved.source, moved.tensor) for moved in chain.moves)
            if len(self.rounds) >= IN_FLIGHT and chain.moves[0].source == self.costs.ctx.roles.main:
                ready = max(ready, self.rounds[-IN_FLIGHT])
            end = self._worked(-1, chain.link, ready + chain.issue_cycles, chain.cycles)
            for moved in chain.moves:
                self.shared[moved.target, self._root(moved.tensor)] = end
            return
        for each in event.transfers:
            if copied := self.costs.transfer(each):
                ready = self._ready(event.core, copied.source, copied.tensor)
                end = self._worked(event.core, copied.engine, ready, copied.cycles)
                self._made(event.core, copied.target, copied.tensor, end)

    def _compute(self, event: Compute) -> None:
        entry = event.staged_round.entry
        alone = len({_constants(self.costs.ctx.graph, piece) for piece in event.pieces}) == 1
        end = 0.0
        for piece in event.pieces:
            here = entry.residents[piece.number]
            inputs = [name for name in entry.layer.inputs(self.costs.ctx.graph) if name in here]
            ready = max((self.local.get((piece.core, self._root(name)), 0.0) for name in inputs), default=0.0)
            made = 0.0
            for tile in piece.tiles:
                made = max(made, self._tile(event, piece, tile, ready, alone))
            if entry.layer.output in here:
                self.local[piece.core, self._root(entry.layer.output)] = made
            else:
                self.unmet.append((self._kept_in(event), self._root(entry.layer.output), made))
            end = max(end, made)
        self.rounds.append(end)

    def _kept_in(self, event: Compute) -> str:
        """Memory in which a round leaves its results."""
        staged_round = event.staged_round
        destination = staged_round.entry.destination
        return staged_round.staging if staged_round.stage.outputs or destination is None else destination.memory

    def _tile(self, event: Compute, piece: TransferPiece, tile: TileFetch, ready: float, alone: bool) -> float:
        """The time at which the result of a tile is where it is kept."""
        core, before = piece.core, self.tiles[piece.core]
        room = before[-IN_FLIGHT] if len(before) >= IN_FLIGHT else 0.0
        passes = len(tile.loads)
        parts = max(1, min(MOST_PARTS, tile.work.steps // passes))
        end = ready
        for loads in tile.loads:
            loaded = ready
            for moved in self.costs.loads(event.staged_round, piece, tile, loads, alone):
                begin = max(room, self._ready(core, moved.source, moved.tensor))
                loaded = max(loaded, self._worked(core, moved.engine, begin, moved.cycles))
            for _ in range(parts):
                end = loaded
                for engine, cycles in tile.work.engine_cycles:
                    end = self._worked(core, engine, end, cycles / (parts * passes))
        self.tiles[core] = [*before[1 - IN_FLIGHT :], end]
        stored = self.costs.store(event.staged_round, piece, tile)
        return self._worked(core, stored.engine, end, stored.cycles) if stored else end

    def _meet(self) -> None:
        """Values that cores made are there for all of them when the last core has come."""
        if self.unmet:
            end = max(end for _, _, end in self.unmet) + self.costs.ctx.chip.assumed.sync_cycles
            for memory, tensor, _ in self.unmet:
                self.shared[memory, tensor] = end
            self.end = max(self.end, end)
            self.unmet = []

    def _made(self, core: int, memory: str, tensor: str, end: float) -> None:
        root = self._root(tensor)
        if memory == self.costs.ctx.roles.local.memory:
            self.local[core, root] = max(end, self.local.get((core, root), 0.0))
        else:
            self.unmet.append((memory, root, end))

    def _ready(self, core: int, memory: str, tensor: str) -> float:
        root = self._root(tensor)
        own = memory == self.costs.ctx.roles.local.memory
        return self.local.get((core, root), 0.0) if own else self.shared.get((memory, root), 0.0)

    def _root(self, tensor: str) -> str:
        return self.roots.get(tensor, tensor)

    def _worked(self, core: int, engine: str, ready: float, cycles: float) -> float:
        end = self.units[core, engine].work(ready, cycles)
        self.end = max(self.end, end)
        return end


def roots_of(graph: Graph) -> dict[str, str]:
    """The value whose bytes each view has."""
    roots: dict[str, str] = {}
    for op in graph.ops:
        if op.is_view:
            roots[op.outputs[0]] = roots.get(op.inputs[0], op.inputs[0])
    return roots


def _constants(graph: Graph, piece: TransferPiece) -> tuple[object, ...]:
    """The constants that a core loads, in order: where they are those of all cores, one read serves all."""
    return tuple(
        [
            (load.tensor, load.box)
            for tile in piece.tiles
            for loads in tile.loads
            for load in loads
            if graph.by_name[load.tensor].constant
        ]
    )
