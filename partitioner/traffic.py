"""What a plan moves between memories and how often it computes: bytes by way, by layer, exact from the layout.

    Plan, Layout --rounds, stores, exchanges, moves, tiles--> Part, Part, ... --added up--> bytes by way, group, step

The bytes are those that the lowered program moves; nothing is lowered. Without a `Tiler` the loads and stores of tiles
are left out: what enters and leaves the main memory is exact all the same and costs next to nothing to find, which is
what a search needs. Cycles of the engines come from the cost model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from hw_models.chip import Chip
from hw_models.cost import transfer_cycles, vector_cycles
from hw_models.routes import main_memory
from partitioner.fetches import TileFetch, relay, tile_fetches
from partitioner.graph import Graph
from partitioner.layers import Layer
from partitioner.layout import SHARED, LayerLayout, Layout, MoveLayout, Place, Store
from partitioner.plan import Plan, Step
from partitioner.regions import Box, box_size, common, full_box, holds
from partitioner.residency import Residents
from partitioner.rounds import Round, Stage, Staged
from partitioner.target import Load
from partitioner.tiling import Tiler

__all__ = ["Move", "Part", "Traffic", "Way", "layer_macs", "plan_traffic"]

Key = TypeVar("Key")
Busy = dict[str, float]
"""Engine -> cycles."""

HALF_BYTES = 2
"""The vector engine copies elements of half precision, as the kernels do."""

Way = tuple[str, str]
"""(memory that is read, memory that is written)."""


@dataclass(frozen=True, slots=True)
class Move:
    """Bytes of one value by one way. A way from a core's memory into itself is a copy inside the core."""

    tensor: str
    way: Way
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """One layer of one instance, or one move: `step` is its position in the plan, `layer` "" for a move. `macs` and
    `elements` are what all cores compute together, overlaps included."""

    step: int
    group: str
    instance: int
    layer: str
    moves: tuple[Move, ...]
    macs: int = 0
    elements: int = 0
    busy: tuple[tuple[str, float], ...] = ()
    """Cycles that each engine works, of the busiest core of every round, added up."""


@dataclass(frozen=True)
class Traffic:
    """All parts of a plan in order. `main` names the main memory; `values` gives each tensor's bytes, and `macs` what
    each layer computes when nothing is computed twice."""

    parts: tuple[Part, ...]
    main: str
    values: Mapping[str, int]
    macs: Mapping[str, int]

    @cached_property
    def by_way(self) -> dict[Way, int]:
        """Bytes by way, over the whole plan."""
        return self.ways(self.parts)

    @cached_property
    def by_group(self) -> dict[str, dict[Way, int]]:
        """Group -> bytes by way; a move counts for the group that reads."""
        groups: dict[str, list[Part]] = {}
        for part in self.parts:
            groups.setdefault(part.group, []).append(part)
        return {name: self.ways(parts) for name, parts in groups.items()}

    def busy(self, parts: Iterable[Part] | None = None) -> dict[str, float]:
        """Engine -> cycles that it works, in all parts or in some."""
        total: Busy = {}
        for part in self.parts if parts is None else parts:
            for engine, cycles in part.busy:
                total[engine] = total.get(engine, 0.0) + cycles
        return total

    def ways(self, parts: Iterable[Part]) -> dict[Way, int]:
        """Bytes by way of some parts."""
        return _sums((move.way, move.size_bytes) for part in parts for move in part.moves)

    def main_bytes(self, parts: Iterable[Part] | None = None) -> int:
        """Bytes into and out of the main memory."""
        ways = self.by_way if parts is None else self.ways(parts)
        return sum(size for way, size in ways.items() if self.main in way)

    @cached_property
    def loaded_bytes(self) -> dict[str, int]:
        """Value -> bytes of it that are read from the main memory."""
        return self._by_value(lambda way: way[0] == self.main)

    @cached_property
    def stored_bytes(self) -> dict[str, int]:
        """Value -> bytes of it that are written to the main memory."""
        return self._by_value(lambda way: way[1] == self.main)

    @cached_property
    def redundant_bytes(self) -> int:
        """Bytes read from the main memory beyond once each value: at least so many come again."""
        return sum(max(0, size - self.values[name]) for name, size in self.loaded_bytes.items())

    @cached_property
    def total_macs(self) -> int:
        return sum(part.macs for part in self.parts)

    @cached_property
    def recompute_share(self) -> float:
        """Multiply-accumulates done again, as a part of those of the network; 0 for a network without any."""
        once = sum(self.macs.values())
        return (self.total_macs - once) / once if once else 0.0

    def group_recompute(self, layers: Iterable[str]) -> float:
        """The same for some layers, by name."""
        names = set(layers)
        once = sum(macs for name, macs in self.macs.items() if name in names)
        return (sum(part.macs for part in self.parts if part.layer in names) - once) / once if once else 0.0

    def _by_value(self, wanted: Callable[[Way], bool]) -> dict[str, int]:
        return _sums((move.tensor, move.size_bytes) for part in self.parts for move in part.moves if wanted(move.way))


def layer_macs(graph: Graph, layer: Layer) -> int:
    """Multiply-accumulates of a layer when each is done once."""
    return sum(graph.op_by_name[name].macs for name in layer.ops)


def plan_traffic(plan: Plan, layout: Layout, graph: Graph, chip: Chip, tiler: Tiler | None = None) -> Traffic:
    """What `plan` moves and computes when it is laid out as `layout` says.

    With the `tiler` that laid it out every way is counted. Without one, loads and stores of tiles are left out: the
    ways from and to the main memory, exchanges and moves remain.
    """
    count = _Count(plan, layout, graph, chip, tiler, main_memory(chip))
    parts: list[Part] = []
    for position, (step, laid) in enumerate(zip(plan.steps, layout.steps, strict=True)):
        if isinstance(laid, MoveLayout):
            spent: Busy = {}
            moves = _merged(count.together(count.move(step, laid), spent))
            parts.append(Part(position, step.group, step.instance, "", moves, busy=tuple(spent.items())))
            continue
        for entry in laid:
            size = sum(box_size(box) for box in entry.boxes)
            macs = layer_macs(graph, entry.layer) * size // box_size(full_box(graph.by_name[entry.layer.output].shape))
            busy: Busy = {}
            moves = _merged(count.layer(step, entry, busy))
            name = entry.layer.name
            parts.append(Part(position, step.group, step.instance, name, moves, macs, size, tuple(busy.items())))
    values = {tensor.name: tensor.size_bytes for tensor in graph.tensors}
    macs_once = {layer.name: layer_macs(graph, layer) for group in plan.groups for layer in group.layers}
    return Traffic(tuple(parts), count.main, values, macs_once)


@dataclass(frozen=True)
class _Count:
    """Walks a layout as lowering does."""

    plan: Plan
    layout: Layout
    graph: Graph
    chip: Chip
    tiler: Tiler | None
    main: str

    def _move(self, tensor: str, source: str, destination: str, elements: int) -> Move:
        return Move(tensor, (source, destination), elements * self.graph.by_name[tensor].item_bytes)

    def layer(self, step: Step, entry: LayerLayout, busy: Busy) -> Iterator[Move]:
        """Pinned constants, rounds, the exchange, stores of what stays."""
        yield from self.together(self._pins(entry), busy)
        before: tuple[Staged, ...] = ()
        for turn, stage in entry.rounds:
            staging = self.layout.staging
            fresh = [staged for staged in stage.inputs if staged not in before]
            before = stage.inputs
            loaded = [self._move(staged.tensor, self.main, staging, box_size(staged.box)) for staged in fresh]
            yield from self.together(loaded, busy)
            if self.tiler is not None:
                yield from self._cores(entry, turn, stage, self.tiler, busy)
            stored = [self._move(staged.tensor, staging, self.main, box_size(staged.box)) for staged in stage.outputs]
            yield from self.together(stored, busy)
        if entry.exchange is not None:
            name = entry.layer.output
            each = zip(step.binding.cores, entry.residents, entry.boxes, strict=True)
            givers = [(core, here[name], box) for core, here, box in each if name in here]
            takers = [(core, place) for core, place, _ in givers]
            yield from self.together(self._through(name, entry.exchange, givers, takers), busy)
        for store in entry.stores:
            yield from self.together(self._store(entry, store), busy)

    def _pins(self, entry: LayerLayout) -> Iterator[Move]:
        for name in entry.layer.inputs(self.graph):
            place, first = self.layout.pinned.get(name, (None, -1))
            if place is not None and first == entry.slot:
                yield self._move(name, self.main, place.memory, box_size(place.box))

    def together(self, moves: Iterable[Move], busy: Busy) -> list[Move]:
        """Moves of a cluster, side by side: each way counts once, at its whole bandwidth."""
        done = list(moves)
        for way, size in _sums((move.way, move.size_bytes) for move in done).items():
            if size:
                self._add(busy, way, size, 1)
        return done

    def _cores(self, entry: LayerLayout, turn: Round, stage: Stage, tiler: Tiler, busy: Busy) -> Iterator[Move]:
        """The pieces of a round; the core that works most on an engine counts for it."""
        most: Busy = {}
        for number, box in enumerate(turn.boxes):
            if box_size(box):
                own: Busy = {}
                moves = list(self._piece(entry, number, box, stage, tiler, own))
                for move in moves:
                    self._add(own, move.way, move.size_bytes, len(turn.boxes))
                most = {engine: max(most.get(engine, 0.0), own.get(engine, 0.0)) for engine in {**most, **own}}
                yield from moves
        for engine, cycles in most.items():
            busy[engine] = busy.get(engine, 0.0) + cycles

    def _add(self, busy: Busy, way: Way, size_bytes: int, sharers: int) -> None:
        """Cycles of one dense move; inside one memory the vector engine copies."""
        source, destination = way
        if source == destination == self.main:
            return
        if source != destination:
            engine = self.chip.link(source, destination).engine
            cycles = transfer_cycles(self.chip, source, destination, size_bytes, sharers=sharers)
        else:
            engine, cycles = self.chip.vector.name, vector_cycles(self.chip, size_bytes // HALF_BYTES)
        busy[engine] = busy.get(engine, 0.0) + cycles

    def _piece(
        self, entry: LayerLayout, number: int, box: Box, stage: Stage, tiler: Tiler, busy: Busy
    ) -> Iterator[Move]:
        """Loads and stores of the tiles of one core's box in one round."""
        here = entry.residents[number]
        residents = Residents({name: place.box for name, place in here.items()}, self.layout.local.part)
        tiles = tiler.tiles(entry.layer, box, residents, entry.room)
        for tile in tile_fetches(self.chip, entry.layer, tiles, entry.room):
            for engine, cycles in tile.work.engine_cycles:
                busy[engine] = busy.get(engine, 0.0) + cycles
            memory = {buffer.name: buffer.memory for buffer in tile.work.buffers}
            for loads in tile.loads:
                for load in loads:
                    yield from self._load(entry, stage, load, memory[load.buffer], here)
            if tile.stored:
                yield self._back(entry, stage, tile, here)

    def _load(self, entry: LayerLayout, stage: Stage, load: Load, to: str, here: Mapping[str, Place]) -> Iterator[Move]:
        name = load.tensor
        if name in here:
            yield self._move(name, here[name].memory, to, box_size(load.box))
        elif name in self.layout.pinned or any(s.tensor == name and holds(s.box, load.box) for s in stage.inputs):
            yield self._move(name, self.layout.staging, to, box_size(load.box))
        else:
            for place in entry.sources[name]:
                yield self._move(name, place.memory, to, box_size(common(place.box, load.box)))

    def _back(self, entry: LayerLayout, stage: Stage, tile: TileFetch, here: Mapping[str, Place]) -> Move:
        name = entry.layer.output
        if name in here:
            memory = here[name].memory
        elif any(holds(staged.box, tile.box) for staged in stage.outputs):
            memory = self.layout.staging
        else:
            assert entry.destination is not None  # an output that stays nowhere local goes somewhere
            memory = entry.destination.memory
        return self._move(name, tile.work.local, memory, box_size(tile.box))

    def _store(self, entry: LayerLayout, store: Store) -> Iterator[Move]:
        to = store.buffer or store.destination
        for here, owned in zip(entry.residents, store.owned, strict=True):
            if box_size(owned):
                yield self._move(store.tensor, here[store.tensor].memory, to.memory, box_size(owned))
        if store.buffer is not None:
            yield self._move(store.tensor, store.buffer.memory, self.main, box_size(store.buffer.box))

    def _through(
        self, name: str, buffer: Place, givers: list[tuple[int, Place, Box]], takers: list[tuple[int, Place]]
    ) -> Iterator[Move]:
        handed = relay(
            [(core, box) for core, _, box in givers], [(core, place.box) for core, place in takers], buffer.box
        )
        for (_, place, _), boxes in zip(givers, handed.given, strict=True):
            yield self._move(name, place.memory, buffer.memory, sum(box_size(box) for box in boxes))
        for (_, place), boxes in zip(takers, handed.taken, strict=True):
            yield self._move(name, buffer.memory, place.memory, sum(box_size(box) for box in boxes))

    def move(self, step: Step, laid: MoveLayout) -> Iterator[Move]:
        """What a move brings: from a core's own memory and shared places, then through the buffer."""
        takers = [(core, place) for core, place in laid.targets if box_size(place.box)]
        for core, target in takers:
            for giver, place, owned in laid.sources:
                if giver in (core, SHARED):
                    yield self._move(step.tensor, place.memory, target.memory, box_size(common(owned, target.box)))
        if laid.buffer is not None:
            givers = [(core, place, owned) for core, place, owned in laid.sources if core != SHARED]
            yield from self._through(step.tensor, laid.buffer, givers, takers)


def _merged(moves: Iterable[Move]) -> tuple[Move, ...]:
    """One move a value and way."""
    sizes = _sums(((move.tensor, move.way), move.size_bytes) for move in moves)
    return tuple(Move(tensor, way, size) for (tensor, way), size in sizes.items() if size)


def _sums(pairs: Iterable[tuple[Key, int]]) -> dict[Key, int]:
    total: Counter[Key] = Counter()
    for key, number in pairs:
        total[key] += number
    return dict(total)
