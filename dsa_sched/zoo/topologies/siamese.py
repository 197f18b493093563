"""A siamese network: two images through the same layers, and how far apart they come out.

    left  --4 convolutions, pools between--> features --sigmoid--> \
                                                                     |left - right| --> one number from 0 to 1
    right --the same weights------------------------------------> /

After Koch, Zemel, Salakhutdinov, "Siamese Neural Networks for One-shot Image Recognition" (ICML Deep Learning Workshop
2015), figure 4: the best convolutional architecture for the verification task, one twin of which is drawn there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import onnx

from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.topology import TopologyBuilder

KERNELS = (10, 7, 4, 4)
SCORE_GAIN = 8.0
"""Gain of the last weights: distances of random features are small and much alike."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """`extent` of the square images of one channel, channels of the convolutions, and features that are compared."""

    name: str
    extent: int
    channels: tuple[int, int, int, int]
    features: int


FULL = _Shape("siamese", 105, (64, 128, 128, 256), 4096)
"""Four convolutions and a matrix product, each used twice: 39 million parameters."""
MINI = _Shape("siamese-mini", 65, (8, 16, 16, 16), 64)
"""The network with few channels, for images of 65 x 65."""


def _topology(shape: _Shape) -> onnx.ModelProto:
    image = (1, 1, shape.extent, shape.extent)
    builder = TopologyBuilder(shape.name, "left", image)
    ends = [_twin(builder, name, shape) for name in ("left", builder.image("right", image))]
    apart = builder.absolute("distance", builder.sub("difference", *ends))
    score = builder.gemm("score", apart, 1, gain=SCORE_GAIN)
    return builder.build(builder.sigmoid("alike", score))


def _twin(builder: TopologyBuilder, side: str, shape: _Shape) -> str:
    x = side
    for number, (channels, kernel) in enumerate(zip(shape.channels, KERNELS, strict=True)):
        x = builder.conv(f"{side}.conv{number}", x, channels, kernel, bias=True, pads=0, weights=f"conv{number}")
        x = builder.relu(f"{side}.relu{number}", x)
        if number < len(KERNELS) - 1:
            x = builder.pool("MaxPool", f"{side}.pool{number}", x, kernel=2, stride=2)
    flat = builder.flat(f"{side}.flat", x)
    assert builder.shapes[flat][1] == prod(builder.shapes[x][1:])
    return builder.sigmoid(f"{side}.sigmoid", builder.gemm(f"{side}.features", flat, shape.features, "features"))


NETWORKS = topologies(_topology, FULL, MINI)
