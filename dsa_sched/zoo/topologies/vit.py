"""Vision Transformer, base, patches of 16 x 16: an image as a sequence.

    image --16x16/16--> patches, a class token before them, + positions --12 layers--> token of the class --> classes

After Dosovitskiy et al., "An Image is Worth 16x16 Words" (ICLR 2021), table 1, ViT-Base; at 384 x 384 as fine-tuned
there: more patches, more positions, the same layers. In the form in which PyTorch's exporter writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx

from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.sequence_builder import Attention, SequenceBuilder

PATCH = 16
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class _Shape:
    name: str
    extent: int
    layers: int
    width: int
    heads: int
    hidden: int
    classes: int


FULL = _Shape("vit_b16", 224, 12, 768, 12, 3072, 1000)
LARGE = _Shape("vit_b16_384", 384, 12, 768, 12, 3072, 1000)
MINI = _Shape("vit_b16-mini", 64, 2, 64, 4, 256, 16)
"""17 places, two layers of 64 channels."""
LARGE_MINI = _Shape("vit_b16_384-mini", 96, 2, 64, 4, 256, 16)
"""37 places, two layers of 64 channels."""


def vit_b16_topology(layers: int = FULL.layers) -> onnx.ModelProto:
    """197 places, 12 layers, 86.6 million parameters; fewer layers to measure the cost of one more."""
    return _topology(replace(FULL, layers=layers))


def vit_b16_384_topology(layers: int = LARGE.layers) -> onnx.ModelProto:
    """577 places, 86.9 million parameters; fewer layers to measure the cost of one more."""
    return _topology(replace(LARGE, layers=layers))


def _topology(shape: _Shape) -> onnx.ModelProto:
    net = SequenceBuilder(shape.name)
    image = net.input("image", (1, 3, shape.extent, shape.extent))
    kind = Attention(shape.width, shape.heads)
    places = (shape.extent // PATCH) ** 2
    x = net.window("patches", image, 3, shape.width, PATCH, stride=PATCH)
    x = net.transpose("patches.turned", net.reshape("patches.flat", x, 0, shape.width, places), 0, 2, 1)
    batch = net.node("Shape", "batch", [image], start=0, end=1)
    extents = net.node("Concat", "token.shape", [batch, net.integers(1, 1)], axis=0)
    token = net.node("Expand", "token", [net.weight("class_token", 1, 1, shape.width), extents])
    positions = net.weight("positions", 1, places + 1, shape.width)
    x = net.add("embedded", net.node("Concat", "tokens", [token, x], axis=1), positions)
    for number in range(shape.layers):
        x = _layer(net, f"layer{number}", x, kind, shape)
    x = net.layer_norm("norm", x, shape.width, EPSILON)
    first = net.node("Gather", "class", [x, net.index(0)], axis=1)
    return net.build(net.dense("classes", first, shape.width, shape.classes))


def _layer(net: SequenceBuilder, name: str, x: str, kind: Attention, shape: _Shape) -> str:
    """Norms before attention and before the feed-forward part."""
    normed = net.layer_norm(f"{name}.norm1", x, shape.width, EPSILON)
    x = net.add(f"{name}.add1", net.attention(f"{name}.attention", normed, kind), x)
    normed = net.layer_norm(f"{name}.norm2", x, shape.width, EPSILON)
    return net.add(f"{name}.add2", net.feed_forward(f"{name}.mlp", normed, shape.width, shape.hidden), x)


NETWORKS = topologies(_topology, FULL, LARGE, MINI, LARGE_MINI)
