"""EfficientNet-B0: MobileNet's blocks with gates that weigh every channel by what the whole map says of it.

    image --3x3/2--> 16 blocks of (1x1 widen --> depthwise --> x gate(mean) --> 1x1) [+ input] --> 1x1 --> classes

After Tan, Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (ICML 2019), table 1, in the
form in which PyTorch's exporter writes torchvision's model: SiLU as Sigmoid and Mul, gates as two 1x1 convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

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
    """`extent` of the square image, channels of the first and the last convolution, stages between them, classes."""

    name: str
    extent: int
    first: int
    stages: tuple[_Stage, ...]
    last: int
    classes: int


FULL = _Shape(
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
)
MINI = _Shape(
    name="efficientnet_b0-mini",
    extent=32,
    first=16,
    stages=(_Stage(1, 3, 8, 1, 1), _Stage(6, 3, 16, 2, 2), _Stage(6, 5, 24, 1, 2), _Stage(6, 5, 32, 1, 1)),
    last=64,
    classes=16,
)


def efficientnet_b0_topology() -> onnx.ModelProto:
    """81 convolutions and a matrix product, 390 million MACs, 5.3 million parameters."""
    return _topology(FULL)


def efficientnet_b0_mini_topology() -> onnx.ModelProto:
    """Five blocks for images of 32 x 32: both kernels, without widening, with stride 2, with and without a sum."""
    return _topology(MINI)


def _topology(shape: _Shape) -> onnx.ModelProto:
    builder = TopologyBuilder(shape.name, "image", (1, 3, shape.extent, shape.extent))
    x = _activated(builder, "first", "image", shape.first, kernel=3, stride=2)
    for position, stage in enumerate(shape.stages):
        for turn in range(stage.repeats):
            x = _block(builder, f"stage{position}.block{turn}", x, stage, stage.stride if turn == 0 else 1)
    x = _activated(builder, "last", x, shape.last)
    return builder.build(builder.classifier("classes", x, shape.classes))


def _block(builder: TopologyBuilder, name: str, x: str, stage: _Stage, stride: int) -> str:
    """A block; it has the sum if input and output have the same shape; nothing follows the narrow end."""
    inside = builder.shapes[x][1]
    wide = stage.expansion * inside
    inner = _activated(builder, f"{name}.expand", x, wide) if stage.expansion > 1 else x
    inner = _activated(builder, f"{name}.depthwise", inner, wide, stage.kernel, stride, wide)
    inner = _gated(builder, f"{name}.gate", inner, max(1, inside // SQUEEZED))
    narrow = builder.batch_norm(f"{name}.project.norm", builder.conv(f"{name}.project.conv", inner, stage.channels))
    return builder.add(f"{name}.add", narrow, x) if stride == 1 and stage.channels == inside else narrow


def _gated(builder: TopologyBuilder, name: str, x: str, squeezed: int) -> str:
    """Every channel times a number from 0 to 1 that depends on the means of all channels."""
    said = builder.conv(f"{name}.squeeze", builder.mean(f"{name}.mean", x), squeezed, bias=True)
    said = builder.conv(f"{name}.excite", builder.silu(f"{name}.silu", said), builder.shapes[x][1], bias=True)
    return builder.mul(name, x, builder.sigmoid(f"{name}.sigmoid", said))


def _activated(
    builder: TopologyBuilder, name: str, x: str, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> str:
    """Convolution, normalisation, SiLU."""
    x = builder.conv(f"{name}.conv", x, channels, kernel, stride, groups)
    return builder.silu(f"{name}.silu", builder.batch_norm(f"{name}.norm", x))
