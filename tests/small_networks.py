"""Networks of the zoo for small images: same operators, same weights, a fraction of the work.

    zoo_model("resnet50"), 64  -->  an ONNX file for images [1, 3, 64, 64]

What the files fix to 224 x 224 follows: a mean over the last feature map takes all of whatever is left of it, and
reshapes that name the extents of feature maps (the shuffles of ShuffleNet) name smaller ones.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from dsa_sched.zoo import zoo_model

__all__ = ["save_small_network", "small_network"]

LAST_MEAN = 7  # the kernel of an average over the whole of the last feature map


def small_network(name: str, extent: int, until: str = "") -> onnx.ModelProto:
    """A network of the zoo for images of `extent` x `extent`; with `until`, only what this value needs.

    Multiples of 32 go through all of them but inception_v1, whose smallest image is 33 x 33.
    """
    model = _cut(zoo_model(name), until)
    image = model.graph.input[0].type.tensor_type.shape.dim
    original = image[2].dim_value
    for dim in image[2:]:
        dim.dim_value = extent
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    shapes = {name for node in model.graph.node if node.op_type == "Reshape" for name in node.input[1:]}
    for tensor in model.graph.initializer:
        if tensor.name in shapes and prod(tensor.dims) > 3:
            *outer, height, width = numpy_helper.to_array(tensor).tolist()
            inner = [length * extent // original for length in (height, width)]
            tensor.CopyFrom(numpy_helper.from_array(np.array([*outer, *inner], np.int64), tensor.name))
    for node in model.graph.node:
        kernel = [item.ints[0] for item in node.attribute if item.name == "kernel_shape"]
        if node.op_type == "AveragePool" and kernel == [LAST_MEAN]:
            node.op_type = "GlobalAveragePool"
            del node.attribute[:]
    return model


def save_small_network(name: str, extent: int, folder: Path, until: str = "") -> Path:
    """The network in a file of its own."""
    path = folder / f"{name}{extent}.onnx"
    path.write_bytes(small_network(name, extent, until).SerializeToString())
    return path


def _cut(model: onnx.ModelProto, until: str) -> onnx.ModelProto:
    """The model without what `until` does not need; this value is the only output."""
    if not until:
        return model
    needed, kept = {until}, []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed.update(node.input)
            kept.append(node)
    constants = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    del model.graph.node[:], model.graph.initializer[:], model.graph.output[:]
    model.graph.node.extend(reversed(kept))
    model.graph.initializer.extend(constants)
    model.graph.output.append(onnx.helper.make_tensor_value_info(until, onnx.TensorProto.FLOAT, None))
    return model
