"""ConvNeXt, tiny: a convolutional network with the blocks of a transformer.

    image --4x4/4--> stages of [7x7 depthwise --> norm --> 4 times wider --> GELU --> narrower, + input], 2x2/2 between

After Liu, Mao, Wu, Feichtenhofer, Darrell, Xie, "A ConvNet for the 2020s" (CVPR 2022), figure 4 and section 2, in the
form in which PyTorch's exporter writes it: channels last within a block, for norm and matrix products, by Transposes.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.sequence_builder import SequenceBuilder

EPSILON = 1e-6
WIDER = 4
BRANCH = 0.25
"""Factor of a block's scale: branches as large as the value they are added to would let rounding errors grow."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """`extent` of the square image; blocks and channels of every stage."""

    name: str
    extent: int
    blocks: tuple[int, ...]
    channels: tuple[int, ...]
    classes: int


FULL = _Shape("convnext_t", 224, (3, 3, 9, 3), (96, 192, 384, 768), 1000)
"""18 blocks, 4.5 billion MACs, 28.6 million parameters."""
MINI = _Shape("convnext_t-mini", 64, (1, 1, 2, 1), (16, 32, 48, 64), 16)
"""Five blocks of few channels, for images of 64 x 64."""


def _topology(shape: _Shape) -> onnx.ModelProto:
    net = SequenceBuilder(shape.name)
    x = net.input("image", (1, 3, shape.extent, shape.extent))
    inside = 3
    for stage, (blocks, channels) in enumerate(zip(shape.blocks, shape.channels, strict=True)):
        if stage == 0:
            x = net.window("stem", x, inside, channels, 4, stride=4)
            x = _norm_by_pixel(net, "stem.norm", x, channels)
        else:
            x = _norm_by_pixel(net, f"down{stage}.norm", x, inside)
            x = net.window(f"down{stage}", x, inside, channels, 2, stride=2)
        for turn in range(blocks):
            x = _block(net, f"stage{stage}.block{turn}", x, channels)
        inside = channels
    mean = net.node("Flatten", "flat", [net.node("GlobalAveragePool", "mean", [x])])
    return net.build(net.dense("classes", net.layer_norm("norm", mean, inside, EPSILON), inside, shape.classes))


def _norm_by_pixel(net: SequenceBuilder, name: str, x: str, channels: int) -> str:
    """Over the channels of every pixel."""
    last = net.transpose(f"{name}.last", x, 0, 2, 3, 1)
    return net.transpose(f"{name}.first", net.layer_norm(name, last, channels, EPSILON), 0, 3, 1, 2)


def _block(net: SequenceBuilder, name: str, x: str, channels: int) -> str:
    inner = net.window(f"{name}.depthwise", x, channels, channels, 7, pads=3, groups=channels)
    inner = net.transpose(f"{name}.last", inner, 0, 2, 3, 1)
    inner = net.layer_norm(f"{name}.norm", inner, channels, EPSILON)
    inner = net.feed_forward(f"{name}.mlp", inner, channels, WIDER * channels)
    scaled = net.node("Mul", f"{name}.scaled", [inner, net.weight(f"{name}.scale", channels, gain=BRANCH)])
    return net.add(f"{name}.add", x, net.transpose(f"{name}.first", scaled, 0, 3, 1, 2))


NETWORKS = topologies(_topology, FULL, MINI)
