"""NASNet-A (7 @ 384): more than a thousand operators in cells with many branches and two inputs each.

    stem conv --> 2 reduction cells --> 7 normal --> reduction --> 7 normal --> reduction --> 7 normal --> classifier

After Zoph, Vasudevan, Shlens, Le, "Learning Transferable Architectures for Scalable Image Recognition" (CVPR 2018),
figures 2 and 4, with the stem and the adjusted inputs of the public implementations. 7 normal cells a stage as in the
published (7 @ 1920), a fifth of the channels. A cell reads the cell before it and the one before that.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from dsa_sched.zoo.topologies.topology import TopologyBuilder

EXTENT = 224
STEM_CHANNELS = 32
CELL_CHANNELS = 16  # of a branch of a normal cell in the first stage; the last stage ends with 24 times as many
NORMAL_CELLS = 7
CLASSES = 1000


@dataclass(frozen=True, slots=True)
class _Cell:
    """The builder with the prefix of the cell's names and the channels of its branches."""

    builder: TopologyBuilder
    name: str
    channels: int

    def squeezed(self, name: str, x: str) -> str:
        """Activation, 1x1 convolution, normalisation."""
        x = self.builder.relu(f"{self.name}.{name}.relu", x)
        x = self.builder.conv(f"{self.name}.{name}.conv", x, self.channels)
        return self.builder.batch_norm(f"{self.name}.{name}.norm", x)

    def adjusted(self, previous: str, extent: int) -> str:
        """The input from further back, brought to the channels and extents of the cell.

        Where its extents are twice as large, one half of the channels comes from the even pixels, one from the odd.
        """
        if self.builder.shapes[previous][2] == extent:
            return self.squeezed("previous", previous)
        prefix, half = f"{self.name}.previous", self.channels // 2
        x = self.builder.relu(f"{prefix}.relu", previous)
        even = self.builder.conv(f"{prefix}.even", x, half, stride=2)
        odd = self.builder.conv(f"{prefix}.odd", self.builder.from_second_pixel(f"{prefix}.shift", x), half, stride=2)
        return self.builder.batch_norm(f"{prefix}.norm", self.builder.concat(f"{prefix}.halves", even, odd))

    def separable(self, name: str, x: str, kernel: int, stride: int = 1) -> str:
        """Twice: activation, depthwise convolution, 1x1 convolution, normalisation; the stride is the first one's."""
        for turn in (1, 2):
            prefix, inside = f"{self.name}.{name}.{turn}", self.builder.shapes[x][1]
            x = self.builder.relu(f"{prefix}.relu", x)
            x = self.builder.conv(f"{prefix}.depthwise", x, inside, kernel, stride if turn == 1 else 1, groups=inside)
            x = self.builder.conv(f"{prefix}.pointwise", x, self.channels)
            x = self.builder.batch_norm(f"{prefix}.norm", x)
        return x

    def mean(self, name: str, x: str, stride: int = 1) -> str:
        return self.builder.pool("AveragePool", f"{self.name}.{name}", x, 3, stride, pads=1)

    def largest(self, name: str, x: str, stride: int) -> str:
        return self.builder.pool("MaxPool", f"{self.name}.{name}", x, 3, stride, pads=1)

    def sum(self, name: str, x: str, y: str) -> str:
        return self.builder.sum(f"{self.name}.{name}", x, y)


def nasnet_topology() -> onnx.ModelProto:
    """Images whose extents are multiples of 32 go through it."""
    builder = TopologyBuilder("nasnet", "image", (1, 3, EXTENT, EXTENT))
    stem = builder.batch_norm("stem.norm", builder.conv("stem.conv", "image", STEM_CHANNELS, kernel=3, stride=2))
    previous, x = stem, stem
    for number, divisor in enumerate((4, 2)):
        previous, x = x, _reduction(_Cell(builder, f"stem{number}", CELL_CHANNELS // divisor), x, previous)
    for stage in range(3):
        channels = CELL_CHANNELS << stage
        if stage:
            previous, x = x, _reduction(_Cell(builder, f"reduction{stage}", channels), x, previous)
        for number in range(NORMAL_CELLS):
            previous, x = x, _normal(_Cell(builder, f"stage{stage}.cell{number}", channels), x, previous)
    logits = builder.classifier("classes", builder.relu("last.relu", x), CLASSES)
    return builder.build(builder.softmax("probabilities", logits))


def _normal(cell: _Cell, x: str, previous: str) -> str:
    here = cell.squeezed("here", x)
    before = cell.adjusted(previous, cell.builder.shapes[x][2])
    parts = (
        cell.sum("sum1", cell.separable("left1", here, 5), cell.separable("right1", before, 3)),
        cell.sum("sum2", cell.separable("left2", before, 5), cell.separable("right2", before, 3)),
        cell.sum("sum3", cell.mean("left3", here), before),
        cell.sum("sum4", cell.mean("left4", before), cell.mean("right4", before)),
        cell.sum("sum5", cell.separable("left5", here, 3), here),
    )
    return cell.builder.concat(f"{cell.name}.out", before, *parts)


def _reduction(cell: _Cell, x: str, previous: str) -> str:
    here = cell.squeezed("here", x)
    before = cell.adjusted(previous, cell.builder.shapes[x][2])
    first = cell.sum("sum1", cell.separable("left1", here, 5, 2), cell.separable("right1", before, 7, 2))
    second = cell.sum("sum2", cell.separable("right2", before, 7, 2), cell.largest("left2", here, 2))
    third = cell.sum("sum3", cell.separable("right3", before, 5, 2), cell.mean("left3", here, 2))
    fourth = cell.sum("sum4", cell.mean("left4", first), second)
    fifth = cell.sum("sum5", cell.separable("left5", first, 3), cell.largest("right5", here, 2))
    return cell.builder.concat(f"{cell.name}.out", second, third, fourth, fifth)
