"""Chains of convolutions that one kernel may compute, and the form of each convolution.

    layers of a group --chained_convolutions--> (op, epilogue), ... each of which reads the result of the one before it

Only the next layer reads an intermediate value, so it need not be stored. The last layer may add a feature map.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from codegen.cutlass.families.matrix.tensor_epilogues import TensorEpilogue, epilogue_of
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.launches import Address, Place, bias_of
from partitioner.ir.graph import Graph, Op
from partitioner.ir.layers import Layer


@dataclass(frozen=True, slots=True)
class ChainedConvolution:
    """One convolution of a chain, with its feature maps channels last, and the element-wise operators after it."""

    op: Op
    epilogue: TensorEpilogue
    image: tuple[int, ...]
    result: tuple[int, ...]

    @property
    def channels(self) -> int:
        """Channels of the image."""
        return self.image[3]

    @property
    def filters(self) -> int:
        return self.result[3]

    @property
    def stride(self) -> int:
        """Stride between rows; templates take only convolutions with equal strides along both axes."""
        return self.op.ints("strides")[0]


def chained_convolutions(work: KernelWork) -> tuple[ChainedConvolution, ...]:
    """The layers in order, if each but the first reads the result of the one before it as its image, nothing else needs
    that result, and only the last adds a feature map; () for others, and for fewer than two."""
    graph, layers = work.graph, work.layers
    anchors = [layer.anchor(graph) for layer in layers]
    if len(layers) < 2 or any(anchor.kind != "conv" or len(work.shape(anchor.inputs[0])) != 4 for anchor in anchors):
        return ()
    for (layer, anchor), (_, reader) in pairwise(zip(layers, anchors, strict=True)):
        if reader.inputs[0] != layer.output or layer.output == anchor.inputs[0]:
            return ()
        if not stays_inside(graph, layer, reader) or layer.output in reader.inputs[1:]:
            return ()
    epilogues = [epilogue_of(graph, layer) for layer in layers]
    if any(epilogue.source for epilogue in epilogues[:-1]):
        return ()
    shapes = [(work.shape(anchor.inputs[0]), work.shape(anchor.outputs[0])) for anchor in anchors]
    return tuple(
        ChainedConvolution(anchor, epilogue, image, result)
        for anchor, epilogue, (image, result) in zip(anchors, epilogues, shapes, strict=True)
    )


def stays_inside(graph: Graph, layer: Layer, reader: Op) -> bool:
    """Whether only `reader` needs the layer's result."""
    return layer.output not in graph.outputs and graph.consumers[layer.output] == (reader,)


def is_pointwise(op: Op) -> bool:
    """Whether the convolution is 1 x 1 over every pixel, from all channels to all."""
    plain = op.ints("kernel") == (1, 1) and op.ints("strides") == (1, 1) and not any(op.ints("pads"))
    return plain and op.number("groups") == 1


def is_dense(op: Op) -> bool:
    """Whether the convolution is 3 x 3 from all channels to all, with equal strides of 1 or 2 and any padding."""
    window = op.ints("kernel") == (3, 3) and op.ints("dilations") == (1, 1)
    return window and op.ints("strides") in ((1, 1), (2, 2)) and op.number("groups") == 1


def is_depthwise(graph: Graph, op: Op) -> bool:
    """Whether the convolution is 3 x 3 with one filter per channel and equal strides of 1 or 2."""
    channels = graph.by_name[op.inputs[0]].shape[3]
    alone = op.number("groups") == channels == graph.by_name[op.outputs[0]].shape[3]
    window = op.ints("kernel") == (3, 3) and op.ints("dilations") == (1, 1)
    return alone and window and op.ints("strides") in ((1, 1), (2, 2))


def operands(graph: Graph, op: Op) -> tuple[Place, Place]:
    """Weights and bias of a convolution; a bias of zeros where it has none."""
    return Address(op.inputs[1]), bias_of(op, graph.by_name[op.outputs[0]].shape[3])
