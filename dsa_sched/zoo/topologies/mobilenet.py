"""MobileNet-v2: blocks that widen, filter each channel by itself, and narrow again, with sums between the narrow ends.

    image --3x3/2--> 17 blocks of (1x1 widen --> 3x3 depthwise --> 1x1 narrow) [+ input] --> 1x1 --> mean --> classes

After Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (CVPR 2018),
table 2, in the form in which PyTorch's exporter writes it: separate batch norms, ReLU6 as Clip, the sum as Add with
the block's input first.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from dsa_sched.zoo.topologies.topology import TopologyBuilder


@dataclass(frozen=True, slots=True)
class _Stage:
    """A row of the table: `repeats` blocks, of which the first has the stride; each widens by `expansion`."""

    expansion: int
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
    name="mobilenet_v2",
    extent=224,
    first=32,
    stages=(
        _Stage(1, 16, 1, 1),
        _Stage(6, 24, 2, 2),
        _Stage(6, 32, 3, 2),
        _Stage(6, 64, 4, 2),
        _Stage(6, 96, 3, 1),
        _Stage(6, 160, 3, 2),
        _Stage(6, 320, 1, 1),
    ),
    last=1280,
    classes=1000,
)
MINI = _Shape(
    name="mobilenet_v2-mini",
    extent=32,
    first=16,
    stages=(_Stage(1, 8, 1, 1), _Stage(6, 16, 2, 2), _Stage(6, 24, 2, 1)),
    last=64,
    classes=16,
)


def mobilenet_v2_topology() -> onnx.ModelProto:
    """Width 1.0: 52 convolutions and a matrix product, 301 million MACs, 3.5 million parameters."""
    return _topology(FULL)


def mobilenet_v2_mini_topology() -> onnx.ModelProto:
    """Five blocks for images of 32 x 32: without widening, with stride 2, with and without a sum."""
    return _topology(MINI)


def _topology(shape: _Shape) -> onnx.ModelProto:
    builder = TopologyBuilder(shape.name, "image", (1, 3, shape.extent, shape.extent))
    x = _activated(builder, "first", "image", shape.first, kernel=3, stride=2)
    for position, stage in enumerate(shape.stages):
        for turn in range(stage.repeats):
            stride = stage.stride if turn == 0 else 1
            x = _block(builder, f"stage{position}.block{turn}", x, stage.expansion, stage.channels, stride)
    x = _activated(builder, "last", x, shape.last)
    return builder.build(builder.classifier("classes", x, shape.classes))


def _block(builder: TopologyBuilder, name: str, x: str, expansion: int, channels: int, stride: int) -> str:
    """A block; it has the sum if input and output have the same shape; nothing follows the narrow end."""
    inside = builder.shapes[x][1]
    wide = expansion * inside
    inner = _activated(builder, f"{name}.expand", x, wide) if expansion > 1 else x
    inner = _activated(builder, f"{name}.depthwise", inner, wide, kernel=3, stride=stride, groups=wide)
    narrow = builder.batch_norm(f"{name}.project.norm", builder.conv(f"{name}.project.conv", inner, channels))
    return builder.add(f"{name}.add", x, narrow) if stride == 1 and channels == inside else narrow


def _activated(
    builder: TopologyBuilder, name: str, x: str, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> str:
    """Convolution, normalisation, ReLU6."""
    x = builder.conv(f"{name}.conv", x, channels, kernel, stride, groups)
    return builder.relu6(f"{name}.relu6", builder.batch_norm(f"{name}.norm", x))
