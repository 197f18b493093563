"""Networks of blocks that widen, filter each channel by itself, and narrow again: MobileNet-v2 and EfficientNet-B0.

    image --3x3/2--> 16 or 17 blocks of (1x1 widen --> depthwise --> 1x1 narrow) [+ input] --> 1x1 --> mean --> classes

MobileNet-v2 is after Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks"
(CVPR 2018), table 2: ReLU6 as Clip, the sum as Add with the block's input first. EfficientNet-B0 is after Tan, Le,
"EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (ICML 2019), table 1: SiLU as Sigmoid and
Mul, and before a block narrows, gates of two 1x1 convolutions that weigh every channel by what the whole map says of
it. Both are in the form in which PyTorch's exporter writes them, with separate batch norms.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.topology import TopologyBuilder

SQUEEZED = 4
"""Divisor from the channels that a block reads to those inside its gate."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """A row of the table: `repeats` blocks, of which the first has the stride; each widens by `expansion`."""

    expansion: int
    kernel: int
    channels: int
    repeats: int
    stride: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """`extent` of the square image, channels of the first and the last convolution, stages between them, classes.
    `gated` says that blocks have gates and SiLU, in place of ReLU6."""

    name: str
    extent: int
    first: int
    stages: tuple[_Stage, ...]
    last: int
    classes: int
    gated: bool


MOBILENET = _Shape(
    name="mobilenet_v2",
    extent=224,
    first=32,
    stages=(
        _Stage(1, 3, 16, 1, 1),
        _Stage(6, 3, 24, 2, 2),
        _Stage(6, 3, 32, 3, 2),
        _Stage(6, 3, 64, 4, 2),
        _Stage(6, 3, 96, 3, 1),
        _Stage(6, 3, 160, 3, 2),
        _Stage(6, 3, 320, 1, 1),
    ),
    last=1280,
    classes=1000,
    gated=False,
)
"""Width 1.0: 52 convolutions and a matrix product, 301 million MACs, 3.5 million parameters."""
MOBILENET_MINI = _Shape(
    name="mobilenet_v2-mini",
    extent=32,
    first=16,
    stages=(_Stage(1, 3, 8, 1, 1), _Stage(6, 3, 16, 2, 2), _Stage(6, 3, 24, 2, 1)),
    last=64,
    classes=16,
    gated=False,
)
"""Five blocks for images of 32 x 32: without widening, with stride 2, with and without a sum."""
EFFICIENTNET = _Shape(
    name="efficientnet_b0",
    extent=224,
    first=32,
    stages=(
        _Stage(1, 3, 16, 1, 1),
        _Stage(6, 3, 24, 2, 2),
        _Stage(6, 5, 40, 2, 2),
        _Stage(6, 3, 80, 3, 2),
        _Stage(6, 5, 112, 3, 1),
        _Stage(6, 5, 192, 4, 2),
        _Stage(6, 3, 320, 1, 1),
    ),
    last=1280,
    classes=1000,
    gated=True,
)
"""81 convolutions and a matrix product, 390 million MACs, 5.3 million parameters."""
EFFICIENTNET_MINI = _Shape(
    name="efficientnet_b0-mini",
    extent=32,
    first=16,
    stages=(_Stage(1, 3, 8, 1, 1), _Stage(6, 3, 16, 2, 2), _Stage(6, 5, 24, 1, 2), _Stage(6, 5, 32, 1, 1)),
    last=64,
    classes=16,
    gated=True,
)
"""Five blocks for images of 32 x 32: both kernels, without widening, with stride 2, with and without a sum."""


def _topology(shape: _Shape) -> onnx.ModelProto:
    builder = TopologyBuilder(shape.name, "image", (1, 3, shape.extent, shape.extent))
    x = _activated(builder, "first", "image", shape.gated, shape.first, kernel=3, stride=2)
    for position, stage in enumerate(shape.stages):
        for turn in range(stage.repeats):
            stride = stage.stride if turn == 0 else 1
            x = _block(builder, f"stage{position}.block{turn}", x, stage, stride, shape.gated)
    x = _activated(builder, "last", x, shape.gated, shape.last)
    return builder.build(builder.classifier("classes", x, shape.classes))


def _block(builder: TopologyBuilder, name: str, x: str, stage: _Stage, stride: int, gated: bool) -> str:
    """A block; it has the sum if input and output have the same shape; nothing follows the narrow end."""
    inside = builder.shapes[x][1]
    wide = stage.expansion * inside
    inner = _activated(builder, f"{name}.expand", x, gated, wide) if stage.expansion > 1 else x
    inner = _activated(builder, f"{name}.depthwise", inner, gated, wide, stage.kernel, stride, wide)
    inner = _gate(builder, f"{name}.gate", inner, max(1, inside // SQUEEZED)) if gated else inner
    narrow = builder.batch_norm(f"{name}.project.norm", builder.conv(f"{name}.project.conv", inner, stage.channels))
    if stride > 1 or stage.channels != inside:
        return narrow
    return builder.add(f"{name}.add", *((narrow, x) if gated else (x, narrow)))


def _gate(builder: TopologyBuilder, name: str, x: str, squeezed: int) -> str:
    """Every channel times a number from 0 to 1 that depends on the means of all channels."""
    said = builder.conv(f"{name}.squeeze", builder.mean(f"{name}.mean", x), squeezed, bias=True)
    said = builder.conv(f"{name}.excite", builder.silu(f"{name}.silu", said), builder.shapes[x][1], bias=True)
    return builder.mul(name, x, builder.sigmoid(f"{name}.sigmoid", said))


def _activated(
    builder: TopologyBuilder,
    name: str,
    x: str,
    gated: bool,
    channels: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
) -> str:
    """Convolution, normalisation, SiLU or ReLU6."""
    x = builder.batch_norm(f"{name}.norm", builder.conv(f"{name}.conv", x, channels, kernel, stride, groups))
    return builder.silu(f"{name}.silu", x) if gated else builder.relu6(f"{name}.relu6", x)


NETWORKS = topologies(_topology, MOBILENET, MOBILENET_MINI, EFFICIENTNET, EFFICIENTNET_MINI)
