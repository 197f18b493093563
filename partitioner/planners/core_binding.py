"""Core binding for values that stay in the cores' memories: bindings of producers are inferred from their readers.

    layers, last to first --what each core of the readers needs--> pieces and cores of the producer

The inference goes backward along consumers, as in Algorithm 4 of GraphTurbo (OSDI 2023), but weighed: a producer takes
the binding with the fewest cycles of its own, less those that its readers save by finding their data in place. Pieces
are assigned to cores so that most bytes stay where they are; data still missing on a core are moved through the shared
memory if that is cheaper than keeping the value there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hw_models.errors import PlanError
from partitioner.context.plan_context import PlanContext
from partitioner.cost.transfer_cost import TransferCosts
from partitioner.ir.decisions import Decision
from partitioner.ir.layers import Layer
from partitioner.ir.regions import (
    Box,
    box_size,
    box_text,
    common,
    exact_view_box,
    full_box,
    input_boxes,
    join,
)
from partitioner.ir.steps import Binding
from partitioner.ir.value_lifetimes import WaitingValue, activations, own_names, waiting_values
from partitioner.planners.core_assignment import assign
from partitioner.tiling.core_partition import TileCycles, cut_granularity, piece_boxes, tile_cycles, ways

SWEEPS = 2
"""Largest number of times that every layer may follow its neighbours."""


Need = tuple[int, str, Mapping[int, Box]]
"""A reader, the name under which it reads a value, and the box of the value that each of its cores needs."""


@dataclass(frozen=True, slots=True)
class LayerBinding:
    """The box of a layer's output that each core computes, and the cycles of the slowest core."""

    pieces: tuple[int, ...]
    boxes: Mapping[int, Box]
    cycles: float

    @property
    def binding(self) -> Binding:
        return Binding(self.pieces, tuple(self.boxes))


@dataclass(frozen=True, slots=True)
class Closeness:
    """Gain from keeping a value in the cores' memories: `cycles` saved compared with the shared memory, and `moved`
    (reader, name of the value there, box needed by core) for readers that do not find everything in place."""

    value: WaitingValue
    cycles: float
    core_bytes: int
    moved: tuple[Need, ...]


@dataclass
class Binder:
    """Bindings of all layers of a graph, one group per layer. Values larger than `most_bytes` on a core, or `banned`,
    are not expected to stay local. `cycles_of` gives the cycles of a core for its piece of a layer."""

    ctx: PlanContext
    most_bytes: int
    cycles_of: TileCycles = tile_cycles
    values: dict[str, WaitingValue] = field(init=False)
    own: dict[str, str] = field(init=False)
    transfers: TransferCosts = field(init=False)
    known: dict[int, dict[tuple[int, ...], float]] = field(default_factory=dict)
    alike: dict[int, dict[tuple[int, ...], float]] = field(default_factory=dict)
    needed: dict[tuple[int, str, Binding], Mapping[int, Box]] = field(default_factory=dict)
    banned: frozenset[str] = frozenset()
    best: dict[object, LayerBinding] = field(default_factory=dict)
    """Bindings chosen so far, by a layer's kind, its choices and everything around it that counts."""
    views: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {value.name: value for value in waiting_values(self.ctx.graph, self.ctx.layers)}
        self.own = own_names(self.ctx.graph, self.ctx.layers)
        self.transfers = TransferCosts(self.ctx)

    def bind(self) -> dict[int, LayerBinding]:
        """Bindings by index of the layer, without views. First every layer follows its readers, then its neighbours on
        both sides, as long as that saves cycles."""
        bound: dict[int, LayerBinding] = {}
        for index in self._backward():
            bound[index] = self._best(index, self.choices(index), bound)
        self._sweep(bound, set(bound))
        return bound

    def rebind(self, bound: Mapping[int, LayerBinding], banned: frozenset[str]) -> dict[int, LayerBinding]:
        """Bindings found anew where `banned` values have turned out not to stay local."""
        self.banned |= banned
        again = dict(bound)
        touched = {self.values[name].made for name in banned}
        touched |= {reader for name in banned for reader in self.values[name].readers}
        for index in self._backward():
            if index in touched:
                again[index] = self._best(index, self._near(index, again), again)
        self._sweep(again, {index for index in again if again[index].binding != bound[index].binding})
        return again

    def _near(self, index: int, bound: Mapping[int, LayerBinding]) -> dict[tuple[int, ...], float]:
        """Cuts of the neighbours, the layer's own cut and the fastest one."""
        near = {bound[other].pieces for other in self._neighbours(index)} | {bound[index].pieces}
        found = self.choices(index)
        return {pieces: cycles for number, (pieces, cycles) in enumerate(found.items()) if not number or pieces in near}

    def _backward(self) -> list[int]:
        return [i for i in reversed(range(len(self.ctx.layers))) if not self.ctx.layers[i].is_view(self.ctx.graph)]

    def _sweep(self, bound: dict[int, LayerBinding], changed: set[int]) -> None:
        """Let layers next to changed ones take the cuts of their neighbours."""
        for _ in range(SWEEPS):
            dirty = changed | {other for index in changed for other in self._neighbours(index)}
            changed = set()
            for index in self._backward() if dirty else ():
                if index not in dirty:
                    continue
                found = self._best(index, self._near(index, bound), bound)
                if found.binding != bound[index].binding:
                    changed.add(index)
                bound[index] = found

    def decisions(self, bound: Mapping[int, LayerBinding]) -> tuple[Decision, ...]:
        """Why each layer is bound as it is, in order."""
        return tuple(self._decision(index, bound) for index in sorted(bound))

    def closeness(self, value: WaitingValue, bound: Mapping[int, LayerBinding]) -> Closeness:
        """Gain if a value stays in the cores' memories, with these bindings."""
        boxes = bound[value.made].boxes
        needs = self.needs(value, bound)
        moved = tuple(need for need in needs if self.transfers.moved(value.name, boxes, need[2]) > 0)
        return Closeness(value, self._saved(value, boxes, needs), self._core_bytes(value, boxes), moved)

    def needs(self, value: WaitingValue, bound: Mapping[int, LayerBinding]) -> list[Need]:
        """Needs of each bound reader, for each name under which it reads the value."""
        found: list[Need] = []
        for reader in value.readers:
            if reader in bound:
                for name in self._names_read(reader, value.name):
                    found.append((reader, name, self._needs_of(reader, name, bound[reader])))
        return found

    def _needs_of(self, reader: int, name: str, bound: LayerBinding) -> Mapping[int, Box]:
        key = (reader, name, bound.binding)
        if key not in self.needed:
            needs = {core: self._need(reader, name, piece) for core, piece in bound.boxes.items()}
            self.needed[key] = {core: box for core, box in needs.items() if box_size(box)}
        return self.needed[key]

    def in_view(self, name: str, box: Box) -> Box:
        """A box of a value, seen under one of its names. Raises PlanError where no box there has the same elements."""
        if name not in self.own:
            return box
        view = self.ctx.graph.producer[name]
        other = exact_view_box(self.ctx.graph, view, self.in_view(view.inputs[0], box))
        if other is None:
            raise PlanError(f"view {name}", needs="a box with exactly the elements of its source's", has=box_text(box))
        return other

    # One layer.

    def _neighbours(self, index: int) -> set[int]:
        made = {self.values[name].made for name in self._inputs(index)}
        return {*self.values[self.ctx.layers[index].output].readers, *made}

    def _inputs(self, index: int) -> tuple[str, ...]:
        """Values of other layers that a layer reads."""
        names = (self.own.get(name, name) for name in activations(self.ctx.graph, self.ctx.layers[index]))
        return tuple(dict.fromkeys(name for name in names if name in self.values))

    def _names_read(self, reader: int, value: str) -> tuple[str, ...]:
        names = activations(self.ctx.graph, self.ctx.layers[reader])
        return tuple(dict.fromkeys(name for name in names if self.own.get(name, name) == value))

    def _need(self, reader: int, name: str, piece: Box) -> Box:
        """The box of the value that `name` stands for which is read for a piece of the reader's output."""
        box = self.ctx.reads(self.ctx.layers[reader], piece).get(name)
        return self._in_own_name(name, box) if box is not None else ((0, 0),)

    def _best(
        self, index: int, choices: Mapping[tuple[int, ...], float], bound: Mapping[int, LayerBinding]
    ) -> LayerBinding:
        """The choice with the fewest cycles, less those that it saves at the layer's output and inputs. It is looked
        for only once where layers and their surroundings are alike."""
        key = self._surroundings(index, choices, bound)
        if key not in self.best:
            self.best[key] = self._least(index, choices, bound)
        return self.best[key]

    def _surroundings(
        self, index: int, choices: Mapping[tuple[int, ...], float], bound: Mapping[int, LayerBinding]
    ) -> tuple[object, ...]:
        """Everything that decides for a layer, without names: its kind, the values that it reads and makes, where they
        lie, and what their other readers need of them."""
        likeness = self.ctx.likeness(self.ctx.layers[index])
        around = []
        for name in (self.ctx.layers[index].output, *self._inputs(index)):
            value = self.values[name]
            maker = bound.get(value.made) if value.made != index else None
            held = None if maker is None else tuple(maker.boxes.items())
            read = tuple(likeness.to_first[name] for name in self._names_read(index, name))
            others = {reader: bound[reader] for reader in value.readers if reader in bound and reader != index}
            places = tuple(reader < index for reader in others)
            needs = tuple(tuple(need.items()) for _, _, need in self.needs(value, others))
            around.append((self._nature(value), name in self.banned, held, read, places, needs))
        return likeness.kind, tuple(choices.items()), tuple(around)

    def _nature(self, value: WaitingValue) -> object:
        """Description of a value without names, with its views."""
        if value.name not in self.views:
            tensor, views = self.ctx.graph.by_name[value.name], []
            for name in value.names[1:]:
                op = self.ctx.graph.producer[name]
                kind = self.ctx.likeness(Layer(op.name, (op.name,), name)).kind
                views.append((kind, value.names.index(op.inputs[0])))
            shape = tensor.shape, tensor.dtype, tensor.item_bytes
            self.views[value.name] = shape, value.leaves, bool(value.readers), tuple(views)
        return self.views[value.name]

    def _least(
        self, index: int, choices: Mapping[tuple[int, ...], float], bound: Mapping[int, LayerBinding]
    ) -> LayerBinding:
        layer = self.ctx.layers[index]
        box = full_box(self.ctx.graph.by_name[layer.output].shape)
        granularity = cut_granularity(self.ctx, layer, box)
        value = self.values[layer.output]
        needs = self.needs(value, bound)
        makers = {
            name: bound[self.values[name].made] for name in self._inputs(index) if self.values[name].made in bound
        }
        best: tuple[float, LayerBinding] | None = None
        for pieces, cycles in choices.items():
            boxes = piece_boxes(box, pieces, granularity)
            plain = LayerBinding(pieces, dict(enumerate(boxes)), cycles)
            stays = self.may_stay(value, plain.boxes)
            most = self.transfers.shared(value.name, plain.boxes, [need for _, _, need in needs]) if stays else 0.0
            for name, maker in makers.items():
                read = self.needs(self.values[name], {**bound, index: plain})
                most += self.transfers.shared(name, maker.boxes, [need for _, _, need in read])
            if best is not None and cycles - most >= best[0]:
                continue
            cores = assign(self._affinity(index, boxes, needs, makers))
            held = dict(zip(cores, boxes, strict=True))
            saved = self._saved(value, held, needs) if stays else 0.0
            for name, maker in makers.items():
                if self.may_stay(self.values[name], maker.boxes):
                    readers = {**bound, index: LayerBinding(pieces, held, cycles)}
                    saved += self._saved(self.values[name], maker.boxes, self.needs(self.values[name], readers))
            if best is None or cycles - saved < best[0]:
                best = cycles - saved, LayerBinding(pieces, held, cycles)
        assert best is not None  # there is at least one choice
        return best[1]

    def _need_of(self, index: int, name: str, boxes: Mapping[int, Box]) -> Mapping[int, Box]:
        """The boxes that the layer needs of a value under all its names together."""
        needs: dict[int, Box] = {}
        for core, piece in boxes.items():
            for read in self._names_read(index, name):
                box = self._need(index, read, piece)
                if box_size(box):
                    needs[core] = join(needs[core], box) if core in needs else box
        return needs

    def _affinity(
        self, index: int, boxes: Sequence[Box], needs: Sequence[Need], makers: Mapping[str, LayerBinding]
    ) -> list[list[int]]:
        """For each piece and core, the number of elements that are in place if the piece runs there."""
        cores = self.ctx.chip.cores_per_cluster
        table = [[0] * cores for _ in boxes]
        for _, _, need in needs:
            for core, wanted in need.items():
                for row, box in enumerate(boxes):
                    table[row][core] += box_size(common(box, wanted))
        for name, maker in makers.items():
            read = self._need_of(index, name, dict(enumerate(boxes)))
            for core, held in maker.boxes.items():
                for row, wanted in read.items():
                    table[row][core] += box_size(common(held, wanted))
        return table

    def may_stay(self, value: WaitingValue, boxes: Mapping[int, Box]) -> bool:
        """Whether a value made in these boxes can be in the cores' memories at all."""
        return (
            not value.leaves
            and bool(value.readers)
            and value.name not in self.banned
            and self._core_bytes(value, boxes) <= self.most_bytes
            and self._views_hold(value, boxes)
        )

    def _decision(self, index: int, bound: Mapping[int, LayerBinding]) -> Decision:
        layer, best = self.ctx.layers[index], bound[index]
        fastest = next(iter(self.choices(index).values()))
        if best.cycles <= fastest:
            reason = f"the slowest core needs about {best.cycles:.0f} cycles, fewest of all cuts"
        else:
            reason = (
                f"the slowest core needs about {best.cycles:.0f} cycles, {best.cycles - fastest:.0f} more than with "
                "the fastest cut, for data that neighbours leave or find in place"
            )
        return Decision(layer.name, f"bound to {len(best.boxes)} cores as {list(best.pieces)}", reason)

    def choices(self, index: int) -> dict[tuple[int, ...], float]:
        """Choices with the fewest cycles first; ties go to fewer pieces, then to outer axes."""
        if index not in self.known:
            layer = self.ctx.layers[index]
            box = full_box(self.ctx.graph.by_name[layer.output].shape)
            alike = self.ctx.likeness(layer).kind
            if alike not in self.alike:
                found = ways(self.ctx, layer, box, self.cycles_of)
                entries = sorted((cycles, count, tuple(-n for n in pieces)) for pieces, (cycles, count) in found)
                self.alike[alike] = {tuple(-n for n in negated): cycles for cycles, _, negated in entries}
            self.known[index] = self.alike[alike]
        return self.known[index]

    def _saved(self, value: WaitingValue, boxes: Mapping[int, Box], needs: Sequence[Need]) -> float:
        moves = sum(self.transfers.moved(value.name, boxes, need) for _, _, need in needs if need)
        return max(0.0, self.transfers.shared(value.name, boxes, [need for _, _, need in needs]) - moves)

    def _core_bytes(self, value: WaitingValue, boxes: Mapping[int, Box]) -> int:
        return max(map(box_size, boxes.values())) * self.ctx.graph.by_name[value.name].item_bytes

    def _in_own_name(self, name: str, box: Box) -> Box:
        """A box of a view, as a box of the value that it names."""
        while name in self.own:
            op = self.ctx.graph.producer[name]
            box = input_boxes(self.ctx.graph, op, {name: box})[op.inputs[0]]
            name = op.inputs[0]
        return box

    def _views_hold(self, value: WaitingValue, boxes: Mapping[int, Box]) -> bool:
        """Whether each core's box has exactly the elements of some box of every view of the value."""
        for box in dict.fromkeys(boxes.values()) if len(value.names) > 1 else ():
            named: dict[str, Box] = {value.name: box}
            for name in value.names[1:]:
                view = self.ctx.graph.producer[name]
                other = exact_view_box(self.ctx.graph, view, named[view.inputs[0]])
                if other is None:
                    return False
                named[name] = other
        return True
