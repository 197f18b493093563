"""Swin transformer, tiny: attention within windows, which every second layer shifts by half their extent.

    image --4x4/4--> stages of [windows --> attention --> back, feed-forward], 2 x 2 patches merged between --> classes

After Liu, Lin, Cao, Hu, Wei, Zhang, Lin, Guo, "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows"
(ICCV 2021), section 3, Swin-T. As PyTorch's exporter writes it: a window is a Reshape and a Transpose, a shift two
pairs of Slices with a Concat each, the mask of shifted windows is added to scores reshaped to five axes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.zoo.topologies.node_builder import TO_THE_END, topologies
from dsa_sched.zoo.topologies.sequence_builder import Attention, Masked, SequenceBuilder

PATCH = 4
WIDER = 4
MASKED = -100.0
"""Score of a masked place, as in the authors' program: as good as minus infinity after a softmax."""
BIAS_GAIN = 0.5


@dataclass(frozen=True, slots=True)
class _Shape:
    """`extent` of the square image, layers and heads of every stage, channels of the first (doubled by each)."""

    name: str
    extent: int
    window: int
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    channels: int
    classes: int


@dataclass(frozen=True, slots=True)
class _Stage:
    """A map of `extent` x `extent` places, `channels` wide, cut into windows of `window` x `window`."""

    extent: int
    channels: int
    heads: int
    window: int

    @property
    def places(self) -> int:
        return self.window * self.window

    @property
    def side(self) -> int:
        """Windows along one side."""
        return self.extent // self.window


FULL = _Shape("swin_t", 224, 7, (2, 2, 6, 2), (3, 6, 12, 24), 96, 1000)
"""12 layers, 4.5 billion MACs, 28.3 million parameters."""
MINI = _Shape("swin_t-mini", 64, 4, (2, 2), (2, 4), 32, 16)
"""Two stages of two layers, one of them shifted, for images of 64 x 64."""


def _topology(shape: _Shape) -> onnx.ModelProto:
    net = SequenceBuilder(shape.name)
    image = net.input("image", (1, 3, shape.extent, shape.extent))
    extent, channels = shape.extent // PATCH, shape.channels
    x = net.window("patches", image, 3, channels, PATCH, stride=PATCH)
    x = net.transpose("patches.turned", net.reshape("patches.flat", x, 0, channels, -1), 0, 2, 1)
    x = net.layer_norm("patches.norm", x, channels)
    for number, (layers, heads) in enumerate(zip(shape.layers, shape.heads, strict=True)):
        stage = _Stage(extent, channels, heads, min(shape.window, extent))
        for turn in range(layers):
            x = _layer(net, f"stage{number}.layer{turn}", x, stage, shifted=turn % 2 == 1 and stage.side > 1)
        if number + 1 < len(shape.layers):
            x = _merged(net, f"stage{number}.merged", x, stage)
            extent, channels = extent // 2, 2 * channels
    x = net.transpose("norm.turned", net.layer_norm("norm", x, channels), 0, 2, 1)
    flat = net.node("Flatten", "flat", [net.node("GlobalAveragePool", "mean", [x])])
    return net.build(net.dense("classes", flat, channels, shape.classes))


def _layer(net: SequenceBuilder, name: str, x: str, stage: _Stage, shifted: bool) -> str:
    normed = net.layer_norm(f"{name}.norm1", x, stage.channels)
    inner = net.reshape(f"{name}.map", normed, 0, stage.extent, stage.extent, stage.channels)
    step = stage.window // 2
    inner = _rolled(net, f"{name}.shift", inner, step) if shifted else inner
    kind = Attention(stage.channels, stage.heads)
    inner = net.attention(f"{name}.attention", _windows(net, name, inner, stage), kind, _masked(net, stage, shifted))
    inner = _joined(net, name, inner, stage)
    inner = _rolled(net, f"{name}.unshift", inner, -step) if shifted else inner
    inner = net.reshape(f"{name}.sequence", inner, 0, stage.extent * stage.extent, stage.channels)
    x = net.add(f"{name}.add1", x, inner)
    normed = net.layer_norm(f"{name}.norm2", x, stage.channels)
    return net.add(f"{name}.add2", net.feed_forward(f"{name}.mlp", normed, stage.channels, WIDER * stage.channels), x)


def _rolled(net: SequenceBuilder, name: str, x: str, step: int) -> str:
    """Rows and columns moved up and left by `step`; those that fall out enter at the other end."""
    for axis in (1, 2):
        kept = net.slice(f"{name}.kept{axis}", x, axis, step, TO_THE_END)
        moved = net.slice(f"{name}.moved{axis}", x, axis, 0, step)
        x = net.node("Concat", f"{name}{axis}", [kept, moved], axis=axis)
    return x


def _windows(net: SequenceBuilder, name: str, x: str, stage: _Stage) -> str:
    """[N, extent, extent, C] to [N windows, places, C]."""
    side, window = stage.side, stage.window
    x = net.reshape(f"{name}.cut", x, -1, side, window, side, window, stage.channels)
    x = net.transpose(f"{name}.cut.turned", x, 0, 1, 3, 2, 4, 5)
    return net.reshape(f"{name}.windows", x, -1, stage.places, stage.channels)


def _joined(net: SequenceBuilder, name: str, x: str, stage: _Stage) -> str:
    """And back."""
    side, window = stage.side, stage.window
    x = net.reshape(f"{name}.uncut", x, -1, side, side, window, window, stage.channels)
    x = net.transpose(f"{name}.uncut.turned", x, 0, 1, 3, 2, 4, 5)
    return net.reshape(f"{name}.whole", x, -1, stage.extent, stage.extent, stage.channels)


def _masked(net: SequenceBuilder, stage: _Stage, shifted: bool) -> Masked:
    """A learned number per distance and head; in shifted windows, places that were not neighbours before are masked."""

    def masked(name: str, scores: str) -> str:
        places, heads = stage.places, stage.heads
        table = net.weight(f"{name}.table", (2 * stage.window - 1) ** 2, heads, gain=BIAS_GAIN)
        rows = net.node("Gather", f"{name}.rows", [table, _distances(net, stage.window)], axis=0)
        bias = net.transpose(f"{name}.bias", net.reshape(f"{name}.square", rows, places, places, -1), 2, 0, 1)
        scores = net.add(f"{name}.biased", scores, net.node("Unsqueeze", f"{name}.all", [bias, net.integers(0)]))
        if not shifted:
            return scores
        parts = net.reshape(f"{name}.parts", scores, -1, stage.side**2, heads, places, places)
        return net.reshape(name, net.add(f"{name}.shifted", parts, _shift_mask(net, stage)), -1, heads, places, places)

    return masked


def _distances(net: SequenceBuilder, window: int) -> str:
    """For every pair of places in a window, the row of the table of its distance."""
    place = np.stack(np.meshgrid(np.arange(window), np.arange(window), indexing="ij")).reshape(2, -1)
    down, across = place[:, :, None] - place[:, None, :] + window - 1
    return net.shared(f"distances{window}", (down * (2 * window - 1) + across).reshape(-1))


def _shift_mask(net: SequenceBuilder, stage: _Stage) -> str:
    """[1, windows, 1, places, places]."""
    return net.shared(f"mask{stage.extent}", shift_mask(stage.extent, stage.window)[None, :, None])


def shift_mask(extent: int, window: int) -> npt.NDArray[np.float32]:
    """[windows, places, places]: 0 between places that were side by side before the shift, MASKED between others."""
    step = window // 2
    zone = np.digitize(np.arange(extent), [extent - window, extent - step])
    zones = 3 * zone[:, None] + zone[None, :]
    side = extent // window
    cut = zones.reshape(side, window, side, window).swapaxes(1, 2).reshape(side * side, window * window)
    return np.where(cut[:, :, None] == cut[:, None, :], 0.0, MASKED).astype(np.float32)


def _merged(net: SequenceBuilder, name: str, x: str, stage: _Stage) -> str:
    """Four neighbours become one, of twice the channels."""
    x = net.reshape(f"{name}.map", x, 0, stage.extent, stage.extent, stage.channels)
    parts = []
    for column in (0, 1):
        for row in (0, 1):
            part = net.slice(f"{name}.rows{row}{column}", x, 1, row, TO_THE_END, 2)
            parts.append(net.slice(f"{name}.part{row}{column}", part, 2, column, TO_THE_END, 2))
    x = net.node("Concat", f"{name}.concat", parts, axis=-1)
    x = net.reshape(f"{name}.sequence", x, 0, -1, 4 * stage.channels)
    x = net.layer_norm(f"{name}.norm", x, 4 * stage.channels)
    return net.linear(name, x, 4 * stage.channels, 2 * stage.channels, bias=False)


NETWORKS = topologies(_topology, FULL, MINI)
