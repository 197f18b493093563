"""Work and code of tiles, made once for all images: cores and tiles mostly differ only by which images they take.

    box --moved to the first image--> template, once --loads moved back--> the same for these images

The access maps of a layer say whether its images are independent of each other: along the outermost axis the result at
one place reads the same place of whatever has that axis. Then neither what a tile needs nor its instructions depend on
its place along that axis; only the loads name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.access import Access, Full, Index, Linear, View, index_axes
from partitioner.ir.graph import Graph, Stage
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box
from partitioner.ir.target import Load, Pass, Work

__all__ = ["Code", "Memory", "images_of", "memory_of"]

Code = tuple[tuple[Instr, ...], ...]
"""Instructions of each pass of a tile."""

_Places = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Memory:
    """What was made for one graph and one chip, by layers with their operators: plans of a graph fuse differently, so
    layers of one name need not be the same."""

    chip: Chip
    images: dict[Layer, frozenset[str] | None] = field(default_factory=dict)
    """See `images_of`."""
    works: dict[tuple[Layer, Box], Work] = field(default_factory=dict)
    codes: dict[tuple[Layer, Box, _Places, _Places], Code] = field(default_factory=dict)

    def work(self, graph: Graph, layer: Layer, box: Box, make: Callable[[Box], Work]) -> Work:
        """What `make` gives for a box."""
        key = (layer, box)
        found = self.works.get(key)
        if found is None:
            first = self._first(graph, layer, box)
            found = make(box) if first is box else self.work(graph, layer, first, make)
            found = self.works[key] = found if first is box else self._moved(found, layer, box[0][0])
        return found

    def code(
        self,
        graph: Graph,
        layer: Layer,
        box: Box,
        work: Work,
        offsets_bytes: Mapping[str, int],
        pitches_bytes: Mapping[str, int],
        make: Callable[[Box, Work], Code],
    ) -> Code:
        """What `make` gives for a box and its work. Work that did not come from here is not looked up."""
        if self.works.get((layer, box)) is not work:
            return make(box, work)
        first = self._first(graph, layer, box)
        key = (layer, first, tuple(offsets_bytes.items()), tuple(pitches_bytes.items()))
        found = self.codes.get(key)
        if found is None:
            found = self.codes[key] = make(first, self.works[layer, first])
        return found

    def _first(self, graph: Graph, layer: Layer, box: Box) -> Box:
        """The box moved to the first image, where images are independent."""
        if not box or box[0][0] == 0:
            return box
        if layer not in self.images:
            self.images[layer] = images_of(graph, layer)
        if self.images[layer] is None:
            return box
        return ((0, box[0][1] - box[0][0]), *box[1:])

    def _moved(self, work: Work, layer: Layer, image: int) -> Work:
        followers = self.images[layer] or frozenset()

        def moved(load: Load) -> Load:
            if load.tensor not in followers:
                return load
            (low, high), *rest = load.box
            return Load(load.tensor, ((low + image, high + image), *rest), load.buffer)

        passes = tuple(Pass(tuple([moved(load) for load in step.loads])) for step in work.passes)
        return Work(work.buffers, passes, work.output, work.engine_cycles)


_MEMORIES: WeakKeyDictionary[Graph, Memory] = WeakKeyDictionary()


def memory_of(graph: Graph, chip: Chip) -> Memory:
    """What was made for this graph; a graph that is compiled for another chip starts anew."""
    found = _MEMORIES.get(graph)
    if found is None or found.chip is not chip:
        found = _MEMORIES[graph] = Memory(chip)
    return found


def images_of(graph: Graph, layer: Layer) -> frozenset[str] | None:
    """The values that a layer reads at the place, along the outermost axis, of the result; None where results read
    other places along that axis, or where that is not known."""
    extent = graph.by_name[layer.output].shape[0]
    reads: dict[str, bool] = {}
    for name in layer.ops:
        for stage in graph.op_by_name[name].stages:
            image = _image_axis(stage, extent)
            if image is None:
                return None
            for access in stage.reads:
                follows = _follows(graph, access, image, extent)
                if follows is None or reads.setdefault(access.tensor, follows) != follows:
                    return None
    return frozenset(tensor for tensor in layer.inputs(graph) if reads.get(tensor))


def _image_axis(stage: Stage, extent: int) -> str | None:
    """The iteration axis along which a stage writes the outermost axis, all of it, one for one."""
    axis = _single(stage.writes.indices[0]) if stage.writes.indices else None
    if axis is None or any(axis in index_axes(index) for index in stage.writes.indices[1:]):
        return None
    return axis if any(a.name == axis and a.extent == extent for a in stage.domain) else None


def _follows(graph: Graph, access: Access | View, image: str, extent: int) -> bool | None:
    """Whether a read is at the result's own place along the image axis, or has nothing to do with it; None for any
    other relation."""
    if isinstance(access, View):
        return None
    places = [place for place, index in enumerate(access.indices) if image in index_axes(index)]
    if not places:  # what is read anywhere may be picked by the image
        return None if any(isinstance(index, Full) for index in access.indices) else False
    if places != [0] or _single(access.indices[0]) != image:
        return None
    tensor = graph.by_name.get(access.tensor)
    return True if tensor is None or tensor.shape[0] == extent else None


def _single(index: Index) -> str | None:
    """The axis that an index is, without factor or distance."""
    match index:
        case Linear(terms=((name, 1),), constant=0):
            return name
    return None
