"""The encoder of Conformer, medium: in every layer, attention over long distances and convolution over short ones.

    80 bands x 800 frames (8 s) --3x3/2, 3x3/2--> [200, 256] --16 layers--> [200, 256]
    layer: + feed-forward / 2, + attention by distance, + convolution of 31 places, + feed-forward / 2, norm

After Gulati et al., "Conformer: Convolution-augmented Transformer for Speech Recognition" (Interspeech 2020), table 1,
medium (16 layers, 256 wide, 4 heads; kernels of 31 places for their 32, which has no middle), without the decoder.
Attention by distance is that of Dai et al., "Transformer-XL" (ACL 2019), section 3.3 and appendix B: scores by distance
are computed for all distances of a row at once and shifted into place by a Pad, two Reshapes and a Slice between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.zoo.topologies.node_builder import TO_THE_END, topologies
from dsa_sched.zoo.topologies.sequence_builder import Attention, SequenceBuilder

KERNEL = 31
WIDER = 4
LONGEST_WAVE = 10_000
STEPS = 1 << 12
"""Number of steps per 1 to which waves are rounded: the last bits of a sine are not the same on all machines."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """`bands` and `frames` of the spectrum, layers of `width`."""

    name: str
    bands: int
    frames: int
    layers: int
    width: int
    heads: int

    @property
    def places(self) -> int:
        """A quarter of the frames."""
        return self.frames // 4


FULL = _Shape("conformer_m", 80, 800, 16, 256, 4)
MINI = _Shape("conformer_m-mini", 16, 96, 2, 32, 2)
"""Two layers of 32 channels over 24 places."""


def conformer_m_topology(layers: int = FULL.layers) -> onnx.ModelProto:
    """16 layers, 27.3 million parameters; fewer layers to measure the cost of one more."""
    return _topology(replace(FULL, layers=layers))


def _topology(shape: _Shape) -> onnx.ModelProto:
    net = SequenceBuilder(shape.name)
    x = net.transpose("frames", net.input("features", (1, shape.bands, shape.frames)), 0, 2, 1)
    x = net.node("Unsqueeze", "image", [x, net.integers(1)])
    for number, inside in enumerate((1, shape.width)):
        x = net.window(f"smaller{number}", x, inside, shape.width, 3, stride=2, pads=1)
        x = net.node("Relu", f"smaller{number}.relu", [x])
    wide = shape.width * (shape.bands // 4)
    x = net.reshape("smaller.flat", net.transpose("smaller.turned", x, 0, 2, 1, 3), 0, -1, wide)
    x = net.linear("smaller", x, wide, shape.width)
    distances = net.constant("distances", distance_waves(shape.places, shape.width)[None])
    for number in range(shape.layers):
        x = _layer(net, f"layer{number}", x, distances, shape)
    return net.build(x)


def _layer(net: SequenceBuilder, name: str, x: str, distances: str, shape: _Shape) -> str:
    x = _half_step(net, f"{name}.ff1", x, shape.width)
    normed = net.layer_norm(f"{name}.attention.norm", x, shape.width)
    x = net.add(f"{name}.attention.add", x, _attention(net, f"{name}.attention", normed, distances, shape))
    x = net.add(f"{name}.conv.add", x, _convolution(net, f"{name}.conv", x, shape.width))
    return net.layer_norm(f"{name}.norm", _half_step(net, f"{name}.ff2", x, shape.width), shape.width)


def _half_step(net: SequenceBuilder, name: str, x: str, width: int) -> str:
    """A feed-forward part, half of it added."""
    inner = net.linear(f"{name}.wide", net.layer_norm(f"{name}.norm", x, width), width, WIDER * width)
    inner = net.linear(f"{name}.narrow", net.silu(f"{name}.silu", inner), WIDER * width, width)
    return net.add(f"{name}.add", x, net.node("Mul", f"{name}.half", [inner, net.number(0.5)]))


def _attention(net: SequenceBuilder, name: str, x: str, distances: str, shape: _Shape) -> str:
    """Attention with scores (query + a) . key + (query + b) . (vector of the distance); a, b are learned, by head."""
    kind = Attention(shape.width, shape.heads, focus=1.0)
    query = net.linear(f"{name}.query", x, shape.width, shape.width)
    query = net.reshape(f"{name}.query.heads", query, 0, -1, kind.heads, kind.depth)
    key, value = (
        net.heads(f"{name}.{part}", net.linear(f"{name}.{part}", x, shape.width, shape.width), kind)
        for part in ("key", "value")
    )
    far = net.heads(f"{name}.far", net.linear(f"{name}.far", distances, shape.width, shape.width, bias=False), kind)
    by_content = _scores(net, f"{name}.content", query, key, kind)
    by_distance = _shifted(net, f"{name}.distance", _scores(net, f"{name}.distance", query, far, kind), kind, shape)
    both = net.add(f"{name}.sum", by_content, by_distance)
    scores = net.node("Mul", f"{name}.scaled", [both, net.number(kind.depth**-0.5)])
    return net.attended(name, scores, value, kind)


def _scores(net: SequenceBuilder, name: str, query: str, other: str, kind: Attention) -> str:
    moved = net.add(f"{name}.query", query, net.weight(f"{name}.bias", kind.heads, kind.depth))
    moved = net.transpose(f"{name}.query.turned", moved, 0, 2, 1, 3)
    return net.node("MatMul", f"{name}.scores", [moved, net.transpose(f"{name}.columns", other, 0, 1, 3, 2)])


def _shifted(net: SequenceBuilder, name: str, scores: str, kind: Attention, shape: _Shape) -> str:
    """Row i of [T, 2 T - 1] moved left by T - 1 - i, so that column j is the distance from i to j; [T, T] of it."""
    places = shape.places
    padded = net.node("Pad", f"{name}.pad", [scores, net.integers(0, 0, 0, 1, 0, 0, 0, 0)])
    turned = net.reshape(f"{name}.rows", padded, 0, kind.heads, 2 * places, places)
    rest = net.slice(f"{name}.rest", turned, 2, 1, TO_THE_END)
    return net.slice(f"{name}.near", net.reshape(f"{name}.shift", rest, 0, kind.heads, places, -1), 3, 0, places)


def _convolution(net: SequenceBuilder, name: str, x: str, width: int) -> str:
    """A gated convolution along the time, separate for every channel, then normalised."""
    x = net.transpose(f"{name}.first", net.layer_norm(f"{name}.norm", x, width), 0, 2, 1)
    x = net.line(f"{name}.wide", x, width, 2 * width, 1)
    net.node("Split", f"{name}.split", [x], [f"{name}.left", f"{name}.right"], axis=1, num_outputs=2)
    gate = net.node("Sigmoid", f"{name}.gate", [f"{name}.right"])
    x = net.node("Mul", f"{name}.gated", [f"{name}.left", gate])
    x = net.line(f"{name}.depthwise", x, width, width, KERNEL, pads=KERNEL // 2, groups=width)
    statistics = [net.weight(f"{name}.batch.{part}", width) for part in ("scale", "shift", "mean", "var")]
    x = net.silu(f"{name}.silu", net.node("BatchNormalization", f"{name}.batch", [x, *statistics]))
    return net.transpose(f"{name}.last", net.line(f"{name}.narrow", x, width, width, 1), 0, 2, 1)


def distance_waves(places: int, width: int) -> npt.NDArray[np.float32]:
    """[2 places - 1, width]: sine and cosine of every distance, from places - 1 down to 1 - places."""
    distances = np.arange(places - 1, -places, -1)
    rates = np.exp(np.arange(0, width, 2) * -(np.log(LONGEST_WAVE) / width))
    angles = distances[:, None] * rates
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(distances), width)
    return (np.round(waves * STEPS) / STEPS).astype(np.float32)


NETWORKS = topologies(_topology, FULL, MINI)
