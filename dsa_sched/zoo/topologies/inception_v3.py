"""Inception-v3: blocks of parallel convolutions, large kernels factored into rows and columns.

    image --6 layers--> 3 blocks at 35 --/2--> 4 blocks of 1x7, 7x1 at 17 --/2--> 2 blocks that fork at 8 --> classes

After Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception Architecture for Computer Vision" (CVPR 2016),
table 1 and figures 5 to 7, with the channels of torchvision's `inception_v3`, without the auxiliary classifier.
A norm and a ReLU follow every convolution; layers of stride 2 and two of the stem have no padding, averages count
theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.topology import TopologyBuilder

EPSILON = 1e-3
Kernel = int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Shape:
    """`extent` is that of the square image; published numbers of channels are divided by `thinner`. `pooled` are the
    channels after the average of each block at 35, `inner` the inner channels of each block of 1x7 and 7x1; `forks` is
    the number of blocks at the end.
    """

    name: str
    extent: int
    thinner: int
    pooled: tuple[int, ...]
    inner: tuple[int, ...]
    forks: int
    classes: int


FULL = _Shape("inception_v3", 299, 1, (32, 64, 64), (128, 160, 160, 192), 2, 1000)
"""94 convolutions, 5.7 billion MACs, 23.8 million parameters."""
MINI = _Shape("inception_v3-mini", 75, 4, (32,), (128,), 1, 16)
"""A quarter of the channels, images of 75 x 75, one block of each kind."""


def _topology(shape: _Shape) -> onnx.ModelProto:
    net = _Layers(TopologyBuilder(shape.name, "image", (1, 3, shape.extent, shape.extent)), shape.thinner)
    x = net.conv("stem0", "image", 32, 3, stride=2, pads=0)
    x = net.conv("stem1", x, 32, 3, pads=0)
    x = net.max("stem2.pool", net.conv("stem2", x, 64, 3))
    x = net.conv("stem4", net.conv("stem3", x, 80), 192, 3, pads=0)
    x = net.max("stem4.pool", x)
    for number, pooled in enumerate(shape.pooled):
        x = _block_a(net, f"a{number}", x, pooled)
    x = _smaller_b(net, "b", x)
    for number, inner in enumerate(shape.inner):
        x = _block_c(net, f"c{number}", x, inner)
    x = _smaller_d(net, "d", x)
    for number in range(shape.forks):
        x = _block_e(net, f"e{number}", x)
    return net.builder.build(net.builder.classifier("classes", x, shape.classes))


class _Layers:
    """Convolutions with a norm and a ReLU; the channels asked for are divided by `thinner`."""

    def __init__(self, builder: TopologyBuilder, thinner: int) -> None:
        self.builder = builder
        self.thinner = thinner

    def conv(
        self, name: str, x: str, channels: int, kernel: Kernel = 1, stride: int = 1, pads: int | None = None
    ) -> str:
        x = self.builder.conv(f"{name}.conv", x, channels // self.thinner, kernel, stride, pads=pads)
        return self.builder.relu(f"{name}.relu", self.builder.batch_norm(f"{name}.norm", x, EPSILON))

    def max(self, name: str, x: str) -> str:
        return self.builder.pool("MaxPool", name, x, kernel=3, stride=2)

    def average(self, name: str, x: str, channels: int) -> str:
        """A 3x3 average followed by a 1x1 convolution."""
        mean = self.builder.pool("AveragePool", f"{name}.mean", x, kernel=3, stride=1, pads=1, counted=True)
        return self.conv(name, mean, channels)

    def chain(self, name: str, x: str, *layers: tuple[int, Kernel]) -> str:
        """Convolutions in sequence: channels and kernel of each."""
        for number, (channels, kernel) in enumerate(layers):
            x = self.conv(f"{name}.{number}", x, channels, kernel)
        return x


def _block_a(net: _Layers, name: str, x: str, pooled: int) -> str:
    """Figure 5: a 1x1, a 5x5, two 3x3 in sequence, and an average, side by side."""
    one = net.conv(f"{name}.one", x, 64)
    five = net.chain(f"{name}.five", x, (48, 1), (64, 5))
    three = net.chain(f"{name}.three", x, (64, 1), (96, 3), (96, 3))
    return net.builder.concat(f"{name}.concat", one, five, three, net.average(f"{name}.pool", x, pooled))


def _smaller_b(net: _Layers, name: str, x: str) -> str:
    """Half the extents: a convolution, a chain of three and a pool, side by side."""
    three = net.conv(f"{name}.three", x, 384, 3, stride=2, pads=0)
    chain = net.chain(f"{name}.chain", x, (64, 1), (96, 3))
    chain = net.conv(f"{name}.chain.2", chain, 96, 3, stride=2, pads=0)
    return net.builder.concat(f"{name}.concat", three, chain, net.max(f"{name}.pool", x))


def _block_c(net: _Layers, name: str, x: str, inner: int) -> str:
    """Figure 6: 7x7 as a 1x7 and a 7x1, in one branch once and in another twice."""
    one = net.conv(f"{name}.one", x, 192)
    once = net.chain(f"{name}.once", x, (inner, 1), (inner, (1, 7)), (192, (7, 1)))
    rows, columns = (1, 7), (7, 1)
    twice = ((inner, 1), (inner, columns), (inner, rows), (inner, columns), (192, rows))
    last = net.average(f"{name}.pool", x, 192)
    return net.builder.concat(f"{name}.concat", one, once, net.chain(f"{name}.twice", x, *twice), last)


def _smaller_d(net: _Layers, name: str, x: str) -> str:
    """Half the extents again."""
    three = net.conv(f"{name}.three.1", net.conv(f"{name}.three.0", x, 192), 320, 3, stride=2, pads=0)
    seven = net.chain(f"{name}.seven", x, (192, 1), (192, (1, 7)), (192, (7, 1)))
    seven = net.conv(f"{name}.seven.3", seven, 192, 3, stride=2, pads=0)
    return net.builder.concat(f"{name}.concat", three, seven, net.max(f"{name}.pool", x))


def _block_e(net: _Layers, name: str, x: str) -> str:
    """Figure 7: 1x3 and 3x1 side by side."""
    one = net.conv(f"{name}.one", x, 320)
    three = _fork(net, f"{name}.three", net.conv(f"{name}.three", x, 384))
    double = _fork(net, f"{name}.double", net.chain(f"{name}.double", x, (448, 1), (384, 3)))
    return net.builder.concat(f"{name}.concat", one, three, double, net.average(f"{name}.pool", x, 192))


def _fork(net: _Layers, name: str, x: str) -> str:
    row, column = net.conv(f"{name}.row", x, 384, (1, 3)), net.conv(f"{name}.column", x, 384, (3, 1))
    return net.builder.concat(f"{name}.fork", row, column)


NETWORKS = topologies(_topology, FULL, MINI)
