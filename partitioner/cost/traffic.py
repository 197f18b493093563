"""Traffic of a plan: bytes between memories by source and destination and by layer, exact from the layout, and
computation.

    Plan, Layout --rounds, stores, exchanges, moves, tiles--> Part, Part, ... --added up--> bytes by way, group, step

The bytes are those that the lowered program moves; nothing is lowered. Loads and stores of tiles can be left out: the
traffic of the main memory is still exact and takes almost no time to find, as a search needs it. Cycles of the engines
come from the cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from partitioner.context.plan_context import PlanContext
from partitioner.cost.data_movement import Busy, Counted, DataMove, Way, sums
from partitioner.expansion.expansion import Begin, Event, expand
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Plan
from partitioner.ir.regions import box_size, full_box
from partitioner.memory.memory_plan_types import Layout, MoveLayout


@dataclass(frozen=True, slots=True)
class TrafficPart:
    """One layer of one instance, or one move: `step` is its position in the plan, `layer` is "" for a move. `macs` and
    `elements` are the totals of all cores, overlaps included."""

    step: int
    group: str
    instance: int
    layer: str
    moves: tuple[DataMove, ...]
    macs: int = 0
    elements: int = 0
    busy: tuple[tuple[str, float], ...] = ()
    """Cycles of work per engine, summed over rounds, each with its busiest core."""
    barriers: int = 0


@dataclass(frozen=True)
class Traffic:
    """All parts of a plan in order. `main` names the main memory; `values` gives each tensor's bytes, and `macs` the
    work of each layer when nothing is computed twice."""

    parts: tuple[TrafficPart, ...]
    main: str
    values: Mapping[str, int]
    macs: Mapping[str, int]

    @cached_property
    def by_way(self) -> dict[Way, int]:
        """Bytes by pair of memories, over the whole plan."""
        return self.ways(self.parts)

    @cached_property
    def by_group(self) -> dict[str, dict[Way, int]]:
        """Bytes by pair of memories for each group; a move counts for the group that reads."""
        groups: dict[str, list[TrafficPart]] = {}
        for part in self.parts:
            groups.setdefault(part.group, []).append(part)
        return {name: self.ways(parts) for name, parts in groups.items()}

    def busy(self, parts: Iterable[TrafficPart] | None = None) -> dict[str, float]:
        """Cycles of work for each engine, in all parts or in some."""
        total: Busy = {}
        for part in self.parts if parts is None else parts:
            for engine, cycles in part.busy:
                total[engine] = total.get(engine, 0.0) + cycles
        return total

    def ways(self, parts: Iterable[TrafficPart]) -> dict[Way, int]:
        """Bytes by pair of memories of some parts."""
        return sums((move.way, move.size_bytes) for part in parts for move in part.moves)

    def main_bytes(self) -> int:
        """Bytes into and out of the main memory."""
        return sum(size for way, size in self.by_way.items() if self.main in way)

    @cached_property
    def loaded_bytes(self) -> dict[str, int]:
        """Bytes read from the main memory, by value."""
        return self._by_value(lambda way: way[0] == self.main)

    @cached_property
    def stored_bytes(self) -> dict[str, int]:
        """Bytes written to the main memory, by value."""
        return self._by_value(lambda way: way[1] == self.main)

    @cached_property
    def redundant_bytes(self) -> int:
        """Bytes read from the main memory beyond one read of each value: a lower bound of the bytes that are read
        again."""
        return sum(max(0, size - self.values[name]) for name, size in self.loaded_bytes.items())

    @property
    def recompute_share(self) -> float:
        """Repeated multiply-accumulates, as a share of those of the network; 0 for a network without any."""
        return self.recompute_of(self.parts)

    def recompute_of(self, parts: Iterable[TrafficPart]) -> float:
        """Share of repeated multiply-accumulates for layers of which all parts are given."""
        chosen = tuple(parts)
        once = sum(self.macs[layer] for layer in {part.layer for part in chosen} if layer)
        return sum(part.macs for part in chosen) / once - 1 if once else 0.0

    def _by_value(self, wanted: Callable[[Way], bool]) -> dict[str, int]:
        return sums((move.tensor, move.size_bytes) for part in self.parts for move in part.moves if wanted(move.way))


def layer_macs(graph: Graph, layer: Layer) -> int:
    """Multiply-accumulates of a layer when each is done once."""
    return sum(graph.op_by_name[name].macs for name in layer.ops)


def plan_traffic(plan: Plan, layout: Layout, ctx: PlanContext, tiles: bool = True) -> Traffic:
    """Traffic and computation of `plan` with the layout `layout`.

    Without `tiles`, the loads and stores of tiles are left out: traffic of the main memory, exchanges and moves remain.
    """
    return traffic_of(plan, layout, ctx, expand(layout, ctx, tiles))


def traffic_of(plan: Plan, layout: Layout, ctx: PlanContext, events: Iterable[Event]) -> Traffic:
    """Like `plan_traffic`, for a layout that is expanded already."""
    graph = ctx.graph
    begun: list[tuple[Begin, Counted]] = []
    for event in events:
        if isinstance(event, Begin):
            begun.append((event, Counted(ctx, layout)))
        else:
            begun[-1][1].add(event)
    parts = [_part(begin, counted, graph) for begin, counted in begun]
    values = {tensor.name: tensor.size_bytes for tensor in graph.tensors}
    macs_once = {layer.name: layer_macs(graph, layer) for group in plan.groups for layer in group.layers}
    return Traffic(tuple(parts), ctx.roles.main, values, macs_once)


def _part(begun: Begin, counted: Counted, graph: Graph) -> TrafficPart:
    """A layer or move that was counted completely."""
    counted.end_operation()
    laid, moves, busy = begun.laid, _merged(counted.moves), tuple(counted.busy.items())
    part = TrafficPart(begun.position, laid.group, laid.instance, "", moves, busy=busy, barriers=counted.barriers)
    if isinstance(laid, MoveLayout):
        return part
    size = sum(box_size(box) for box in laid.boxes)
    macs = layer_macs(graph, laid.layer) * size // box_size(full_box(graph.by_name[laid.layer.output].shape))
    return replace(part, layer=laid.layer.name, macs=macs, elements=size)


def _merged(moves: Iterable[DataMove]) -> tuple[DataMove, ...]:
    """One move per value and pair of memories."""
    sizes = sums(((move.tensor, move.way), move.size_bytes) for move in moves)
    return tuple(DataMove(tensor, way, size) for (tensor, way), size in sizes.items() if size)
