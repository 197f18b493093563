"""Test whether each image of a layer is computed by itself, read from its access maps.

    graph, layer --access maps--> the values that are read at the result's own place along the outermost axis, or None

If so, neither the needs of a tile nor its instructions depend on its place along that axis; only the loads name it.
"""

from __future__ import annotations

from partitioner.ir.access import Access, Full, Index, Linear, View, index_axes
from partitioner.ir.graph import Graph, LoopNest
from partitioner.ir.layers import Layer


def images_of(graph: Graph, layer: Layer) -> frozenset[str] | None:
    """The values that a layer reads, along the outermost axis, at the place of the result; None where results read
    other places along that axis, or where that is not known."""
    extent = graph.by_name[layer.output].shape[0]
    reads: dict[str, bool] = {}
    for name in layer.ops:
        for stage in graph.op_by_name[name].stages:
            image = image_axis(stage, extent)
            if image is None:
                return None
            for access in stage.reads:
                follows = _follows(graph, access, image, extent)
                if follows is None or reads.setdefault(access.tensor, follows) != follows:
                    return None
    return frozenset(tensor for tensor in layer.inputs(graph) if reads.get(tensor))


def image_axis(stage: LoopNest, extent: int) -> str | None:
    """The iteration axis along which a stage writes the outermost axis, all of it, one for one."""
    axis = _single(stage.writes.indices[0]) if stage.writes.indices else None
    if axis is None or any(axis in index_axes(index) for index in stage.writes.indices[1:]):
        return None
    return axis if any(a.name == axis and a.extent == extent for a in stage.domain) else None


def _follows(graph: Graph, access: Access | View, image: str, extent: int) -> bool | None:
    """Whether a read is at the result's own place along the image axis (True) or is independent of it (False); None for
    any other relation."""
    if isinstance(access, View):
        return None
    places = [place for place, index in enumerate(access.indices) if image in index_axes(index)]
    if not places:  # the image may pick any place of what is read anywhere
        return None if any(isinstance(index, Full) for index in access.indices) else False
    if places != [0] or _single(access.indices[0]) != image:
        return None
    tensor = graph.by_name.get(access.tensor)
    return True if tensor is None or tensor.shape[0] == extent else None


def _single(index: Index) -> str | None:
    """The axis that an index consists of, without factor or distance."""
    match index:
        case Linear(terms=((name, 1),), constant=0):
            return name
    return None
