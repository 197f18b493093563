"""The context of one compilation: made once by the driver, handed to everything after the frontend, dropped at the end.

    graph, constants, chip, target --asked once each--> names of memories, layers, work of tiles, what they read

Everything that is remembered between two questions lies in here and dies with it; no module keeps any state. Nothing
that a context holds refers back to it, so it is freed as soon as nobody uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar, cast

from hw_models.chip import Chip
from hw_models.memory_parts import place_of
from partitioner.context.image_independence import images_of
from partitioner.context.memory_roles import Local, MemoryRoles, memory_roles
from partitioner.footprint.footprint import Footprints
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.kernels import KernelTarget
from partitioner.ir.layers import Layer, group_layers
from partitioner.ir.regions import Box, full_box, input_boxes, join
from partitioner.ir.structural_key import likeness
from partitioner.ir.target import AcceptingTarget, KeepsSome, Pass, PlanTarget, TileLoad, TileWork

AnyTargetT = TypeVar("AnyTargetT", bound=AcceptingTarget, covariant=True)
TargetT = TypeVar("TargetT", bound=PlanTarget, covariant=True)
Memo = TypeVar("Memo")


@dataclass(frozen=True, slots=True)
class Likeness:
    """Structural equivalence of a layer: `kind` is the number of its class, shared by layers that differ only in names.
    The mappings translate its names to those of the first layer of the class, and back."""

    kind: int
    to_first: Mapping[str, str]
    from_first: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class GraphContext(Generic[AnyTargetT]):
    """One compilation of `graph` for one cluster of `chip`, for any kind of target. Two contexts share nothing, even if
    their graphs and chips are equal."""

    graph: Graph
    constants: Constants
    chip: Chip
    target: AnyTargetT
    _memos: dict[Callable[[], object], object] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def roles(self) -> MemoryRoles:
        """The main, staging and local memory. Raises ChipError where there is no main memory, or no way to it."""
        return memory_roles(self.chip, Local("", ""))

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Anchors with their epilogues, as far as the target computes these in place."""
        return self._fused[0]

    @cached_property
    def layer_decisions(self) -> tuple[Decision, ...]:
        """Why operators are in epilogues or are not."""
        return self._fused[1]

    @cached_property
    def _fused(self) -> tuple[tuple[Layer, ...], tuple[Decision, ...]]:
        return group_layers(self.graph, self.target.can_fuse_epilogue)

    def memo(self, kind: Callable[[], Memo]) -> Memo:
        """A stage's table of results, the same one at every call: `kind()` makes it at the first call. A table holds no
        context."""
        if kind not in self._memos:
            self._memos[kind] = kind()
        return cast(Memo, self._memos[kind])


@dataclass(frozen=True, eq=False)
class Context(GraphContext[TargetT]):
    """One compilation for a target of in-order cores. A planner needs a `PlanTarget`; later stages ask for a context
    whose target can do more."""

    _works: dict[tuple[Layer, Box], TileWork] = field(default_factory=dict, init=False, repr=False)
    _reads: dict[tuple[Layer, Box], Mapping[str, Box]] = field(default_factory=dict, init=False, repr=False)
    _images: dict[Layer, frozenset[str] | None] = field(default_factory=dict, init=False, repr=False)
    _kinds: dict[object, tuple[int, tuple[str, ...]]] = field(default_factory=dict, init=False, repr=False)
    _likeness: dict[Layer, Likeness] = field(default_factory=dict, init=False, repr=False)

    # Memories.

    @cached_property
    def roles(self) -> MemoryRoles:
        """The roles, as for any kind of target; values stay where the target leaves results of tiles."""
        keeper: object = self.target
        if isinstance(keeper, KeepsSome):
            return memory_roles(self.chip, Local(*place_of(self.chip, keeper.keeps_in, "")))
        for layer in self.layers:
            if not layer.is_view(self.graph):
                work = self.work(layer, full_box(self.graph.by_name[layer.output].shape))
                buffer = next(b for b in work.buffers if b.name == work.output)
                return memory_roles(self.chip, Local(*place_of(self.chip, buffer.memory, buffer.part)))
        return memory_roles(self.chip, Local("", ""))

    # The graph.

    @cached_property
    def footprints(self) -> Footprints:
        """Footprints: the needs of groups of layers for every value, remembered."""
        return Footprints(self.graph)

    # Tiles.

    def likeness(self, layer: Layer) -> Likeness:
        """The equivalence class of a layer. The cost of one layer of a class is that of all."""
        found = self._likeness.get(layer)
        if found is None:
            alike, names = likeness(self.graph, layer)
            kind, first = self._kinds.setdefault(alike, (len(self._kinds), tuple(names)))
            found = Likeness(kind, dict(zip(names, first, strict=True)), dict(zip(first, names, strict=True)))
            self._likeness[layer] = found
        return found

    def work(self, layer: Layer, box: Box) -> TileWork:
        """Needs of the target for a box of a layer's output, asked once for all images that are alike."""
        key = (layer, box)
        found = self._works.get(key)
        if found is None:
            first = self.at_first_image(layer, box)
            if first is box:
                found = self.target.work(self.graph, layer, box, self.chip)
            else:
                found = _at_image(self.work(layer, first), self._images[layer] or frozenset(), box[0][0])
            self._works[key] = found
        return found

    def at_first_image(self, layer: Layer, box: Box) -> Box:
        """The box moved to the first image where images are independent (see `PlanTarget.work`), else unchanged. Boxes
        with an equal result have equal work, except for the places that are loaded, and equal instructions."""
        if not box or box[0][0] == 0:
            return box
        if layer not in self._images:
            self._images[layer] = images_of(self.graph, layer)
        if self._images[layer] is None:
            return box
        return ((0, box[0][1] - box[0][0]), *box[1:])

    def reads(self, layer: Layer, box: Box) -> Mapping[str, Box]:
        """The box of every value that the target loads for a box of a layer's output, constants too; a view reads the
        value that it renames."""
        key = (layer, box)
        found = self._reads.get(key)
        if found is None:
            anchor = layer.anchor(self.graph)
            if anchor.is_view:
                found = input_boxes(self.graph, anchor, {layer.output: box})
            elif (first := self.at_first_image(layer, box)) is not box:
                followers, image = self._images[layer] or frozenset(), box[0][0]
                found = {
                    name: _moved(read, image) if name in followers else read
                    for name, read in self.reads(layer, first).items()
                }
            else:
                found = _loaded_boxes(self.work(layer, box))
            self._reads[key] = found
        return found


PlanContext: TypeAlias = Context[PlanTarget]
"""Input of a planner."""

KernelContext: TypeAlias = GraphContext[KernelTarget]
"""Input of a planner whose kernels are whole groups."""


def _at_image(work: TileWork, followers: frozenset[str], image: int) -> TileWork:
    """The work of the first image, moved to another one: the values in `followers` are loaded from there."""

    def moved(load: TileLoad) -> TileLoad:
        if load.tensor not in followers:
            return load
        return TileLoad(load.tensor, _moved(load.box, image), load.buffer)

    passes = tuple(Pass(tuple([moved(load) for load in step.loads])) for step in work.passes)
    return TileWork(work.buffers, passes, work.output, work.engine_cycles)


def _moved(box: Box, image: int) -> Box:
    """The box of the first image, for another image."""
    (low, high), *rest = box
    return ((low + image, high + image), *rest)


def _loaded_boxes(work: TileWork) -> dict[str, Box]:
    """The box of each tensor that all passes of `work` load together."""
    boxes: dict[str, Box] = {}
    for step in work.passes:
        for load in step.loads:
            boxes[load.tensor] = join(boxes[load.tensor], load.box) if load.tensor in boxes else load.box
    return boxes
