"""Spread of an instance over the cores: pieces of its output, and where cores exchange instead of computing twice.

    layers of a group, box of an instance --> pieces of the output, exchanges inside

Going backward through the layers, each layer either computes on every core what that core's later layers read (halos
are computed twice), or is cut afresh into disjoint pieces that the cores then fetch from each other. The choice is the
one with fewer cycles of the slowest core by the cost model, transfers and the two barriers included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hw_models.cost import transfer_cycles
from partitioner.context.plan_context import PlanContext
from partitioner.ir.decisions import Decision
from partitioner.ir.layers import Layer
from partitioner.ir.plan import Exchange
from partitioner.ir.regions import Box, box_shape, box_size, common, empty_box, join, relative, run_count
from partitioner.tiling.core_partition import cut_granularity, piece_boxes, piece_counts
from partitioner.tiling.core_regions import whole_lines

EVEN = 1.25

MOST_EXCHANGED_RUNS = 64
"""Largest number of runs per core in an exchange: each run is an instruction."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Spread of an instance: `pieces` of each axis of the output, `exchanges` inside, cycles of the slowest core when
    nothing overlaps, and the reason."""

    pieces: tuple[int, ...]
    exchanges: tuple[Exchange, ...]
    cycles: float
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class _Option:
    """A value computed once in `pieces`, with `parts` by core: cycles of the slowest core, and of the exchange."""

    pieces: tuple[int, ...]
    parts: list[Box]
    alone: float
    moving: float


@dataclass(frozen=True)
class Spreader:
    """Search for the spreads of the groups of one graph on one chip, which remembers the cost of layers. With
    `outer_only`, everything is cut along its images and rows, which takes least room where a group has many layers."""

    ctx: PlanContext
    outer_only: bool = False
    known: dict[tuple[str, tuple[int, ...]], float] = field(default_factory=dict)
    cuts: dict[tuple[str, tuple[int, ...]], tuple[tuple[int, ...], float]] = field(default_factory=dict)

    def spread(self, name: str, layers: tuple[Layer, ...], box: Box) -> Spread:
        """The spread of an instance whose output is `box` of the last layer's output: of the ways to cut the output
        (images and rows first, or the best for the last layer alone) the one with the fewest cycles in all."""
        outputs = self._ways(layers[-1], box)
        return min((self._spread(name, layers, box, pieces) for pieces in outputs), key=lambda spread: spread.cycles)

    def _ways(self, layer: Layer, box: Box) -> tuple[tuple[int, ...], ...]:
        """Cuts to try: images and rows first; then the best for the layer alone, where the first leaves cores idle or
        engines half empty, so that the slowest core takes more than `EVEN` times an even share."""
        outer = self.outer_pieces(layer, box)
        if self.outer_only:
            return (outer,)
        slowest = max(self.cycles(layer, part) for part in self._divide(layer, box, outer))
        if slowest * self.ctx.chip.cores_per_cluster <= EVEN * self.cycles(layer, box):
            return (outer,)
        return tuple(dict.fromkeys((outer, self.best_pieces(layer, box)[0])))

    def _spread(self, name: str, layers: tuple[Layer, ...], box: Box, pieces: tuple[int, ...]) -> Spread:
        cores = self.ctx.chip.cores_per_cluster
        needed: list[dict[str, Box]] = [{} for _ in range(cores)]
        exchanges: list[Exchange] = []
        decisions: list[Decision] = []
        total = 0.0
        for layer in reversed(layers):
            output = layer.output
            empty = empty_box(len(self.ctx.graph.by_name[output].shape))
            last = layer is layers[-1]
            wanted = self._divide(layer, box, pieces) if last else [part.get(output, empty) for part in needed]
            wanted = [whole_lines(self.ctx, layer, part) for part in wanted]
            union = empty
            for part in wanted:
                union = join(union, part)
            cycles = max(self.cycles(layer, part) for part in wanted)
            view = layer.is_view(self.ctx.graph)
            if not last and not view and sum(map(box_size, wanted)) > box_size(union):
                option = min(self._options(layer, wanted, union, pieces), key=lambda o: (o.alone + o.moving, o.pieces))
                better = option.alone + option.moving < cycles
                verdict = "exchanged between cores" if better else "computed twice where cores overlap"
                reason = (
                    f"group {name}: {cycles:.0f} cycles on the slowest core when each computes all that it reads, "
                    f"{option.alone:.0f} and {option.moving:.0f} for an exchange of pieces {list(option.pieces)}"
                )
                decisions.append(Decision(output, verdict, reason))
                if better:
                    exchanges.append(Exchange(output, option.pieces))
                    wanted, cycles = option.parts, option.alone + option.moving
            total += cycles
            for core, part in enumerate(wanted):
                if box_size(part):
                    for tensor, read in self.ctx.reads(layer, part).items():
                        if box_size(read) and not self.ctx.graph.by_name[tensor].constant:
                            known = needed[core].get(tensor)
                            needed[core][tensor] = join(known, read) if known else read
        return Spread(pieces, tuple(reversed(exchanges)), total, tuple(reversed(decisions)))

    def _options(self, layer: Layer, wanted: list[Box], union: Box, pieces: tuple[int, ...]) -> Iterator[_Option]:
        """Ways to compute a value once and exchange it: cut as the group's output is, images and rows first, or as is
        best for the layer alone."""
        same = (*pieces, *(1,) * len(union))[: len(union)] if len(pieces) != len(union) else pieces
        for counts in dict.fromkeys((same, *self._ways(layer, union))):
            parts = self._divide(layer, union, counts)
            alone = max(self.cycles(layer, part) for part in parts)
            yield _Option(counts, parts, alone, self._exchange_cycles(layer.output, wanted, parts))

    def outer_pieces(self, layer: Layer, box: Box) -> tuple[int, ...]:
        """Pieces of the outermost axes first: as many as share the cores evenly."""
        left = self.ctx.chip.cores_per_cluster
        granularity = self._granularity(layer, box)
        counts = []
        for (low, high), granule in zip(box, granularity, strict=True):
            units = -(-(high - low) // granule) if granule else 1
            count = max(n for n in range(1, left + 1) if n <= units and (left % n == 0 or n == units))
            counts.append(count)
            left //= count
        return tuple(counts)

    def best_pieces(self, layer: Layer, box: Box) -> tuple[tuple[int, ...], float]:
        """Piece counts of a box whose slowest core takes the fewest cycles, and these cycles; ties go to outer axes."""
        key = (layer.name, box_shape(box))
        if key not in self.cuts:
            if layer.is_view(self.ctx.graph):
                return (min(box[0][1] - box[0][0], self.ctx.chip.cores_per_cluster), *(1,) * (len(box) - 1)), 0.0
            best: tuple[float, int, tuple[int, ...]] | None = None
            for counts in self._counts(layer, box):
                parts = dict.fromkeys(self._pieces(layer, box, counts))
                shapes = {box_shape(part): part for part in parts}
                slowest = max(self.cycles(layer, part) for part in shapes.values())
                entry = (slowest, len(parts), tuple(-n for n in counts))
                best = entry if best is None else min(best, entry)
            assert best is not None  # one piece of every axis is always among the counts
            self.cuts[key] = tuple(-n for n in best[2]), best[0]
        return self.cuts[key]

    def cycles(self, layer: Layer, box: Box) -> float:
        """Cycles of a box on one core: its engine work, and loading its constants."""
        if box_size(box) == 0 or layer.is_view(self.ctx.graph):
            return 0.0
        key = (layer.name, box_shape(box))
        if key not in self.known:
            work = self.ctx.work(layer, box)
            loads = {(load.tensor, load.box) for step in work.passes for load in step.loads}
            constants = sum(
                self._broadcast_cycles(tensor, part)
                for tensor, part in loads
                if self.ctx.graph.by_name[tensor].constant
            )
            self.known[key] = constants + sum(cycles for _, cycles in work.engine_cycles)
        return self.known[key]

    def _divide(self, layer: Layer, box: Box, pieces: tuple[int, ...]) -> list[Box]:
        parts = self._pieces(layer, box, pieces)
        empty = empty_box(len(box))
        return [parts[n] if n < len(parts) else empty for n in range(self.ctx.chip.cores_per_cluster)]

    def _pieces(self, layer: Layer, box: Box, counts: tuple[int, ...]) -> tuple[Box, ...]:
        return piece_boxes(box, counts, self._granularity(layer, box))

    def _granularity(self, layer: Layer, box: Box) -> tuple[int, ...]:
        if layer.is_view(self.ctx.graph):
            return (1,) * len(box)
        return cut_granularity(self.ctx, layer, box)

    def _counts(self, layer: Layer, box: Box) -> Iterator[tuple[int, ...]]:
        """Counts over the first two axes and the last, whose product is at most the number of cores."""
        granularity = [
            granule if axis in (0, 1, len(box) - 1) else 0 for axis, granule in enumerate(self._granularity(layer, box))
        ]
        return piece_counts(box, granularity, self.ctx.chip.cores_per_cluster)

    def _broadcast_cycles(self, tensor: str, box: Box) -> float:
        """Cycles to bring a constant to a core: where the link broadcasts, all cores are served at once."""
        local = self.ctx.roles.local.memory
        link = self.ctx.chip.link(self.ctx.roles.staging, local, None)
        described = self.ctx.graph.by_name[tensor]
        size_bytes, shape = box_size(box) * described.item_bytes, described.shape
        sharers = 1 if link.broadcast else self.ctx.chip.cores_per_cluster
        return transfer_cycles(
            self.ctx.chip, link.source, local, size_bytes, max(1, run_count(shape, box)), sharers=sharers
        )

    def _exchange_cycles(self, tensor: str, wanted: list[Box], parts: list[Box]) -> float:
        """Cycles to give and take through the staging memory, all cores at once, with two barriers."""
        item_bytes = self.ctx.graph.by_name[tensor].item_bytes
        slowest = 0.0
        for core, want in enumerate(wanted):
            missing = [common(want, part) for other, part in enumerate(parts) if other != core]
            missing = [part for part in missing if box_size(part)]
            if not missing:
                continue
            runs = sum(run_count(box_shape(want), relative(part, want)) for part in missing)
            size = sum(map(box_size, missing)) * item_bytes
            if runs > MOST_EXCHANGED_RUNS:
                size, runs = box_size(want) * item_bytes, 1
            slowest = max(slowest, self._taking_cycles(size, runs))
        return 2 * (slowest + self.ctx.chip.assumed.sync_cycles) if slowest else 0.0

    def _taking_cycles(self, size_bytes: int, runs: int) -> float:
        sharers = self.ctx.chip.cores_per_cluster
        way = self.ctx.roles.staging, self.ctx.roles.local.memory
        return runs * transfer_cycles(self.ctx.chip, *way, -(-size_bytes // runs), sharers=sharers)
