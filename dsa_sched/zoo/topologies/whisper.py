"""The encoder of Whisper, base: thirty seconds of speech as a sequence of 1,500 places.

    80 x 3,000 of a spectrum --3--> --3/2--> [1,500, 512], + positions --6 layers--> norm

After Radford, Kim, Xu, Brockman, McLeavey, Sutskever, "Robust Speech Recognition via Large-Scale Weak Supervision"
(2022), section 2.2 and table 1, base: keys without a bias, exact GELU, norms before each part. As PyTorch's exporter
writes it.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.sequence_builder import Attention, SequenceBuilder


@dataclass(frozen=True, slots=True)
class _Shape:
    """`bands` of the spectrum, `frames` of it, layers of `width`."""

    name: str
    bands: int
    frames: int
    layers: int
    width: int
    heads: int


FULL = _Shape("whisper_encoder", 80, 3000, 6, 512, 8)
"""Six layers, 20.6 million parameters."""
MINI = _Shape("whisper_encoder-mini", 16, 96, 2, 64, 4)
"""Two layers of 64 channels over 48 places."""


def _topology(shape: _Shape) -> onnx.ModelProto:
    net = SequenceBuilder(shape.name)
    width = shape.width
    x = net.input("input_features", (1, shape.bands, shape.frames))
    for number, (inside, stride) in enumerate(((shape.bands, 1), (width, 2))):
        x = net.line(f"conv{number}", x, inside, width, 3, stride=stride, pads=1)
        x = net.gelu(f"conv{number}.gelu", x)
    x = net.transpose("conv1.turned", x, 0, 2, 1)
    x = net.add("embedded", x, net.weight("positions", shape.frames // 2, width))
    kind = Attention(width, shape.heads, "qvo")
    for number in range(shape.layers):
        name = f"layer{number}"
        normed = net.layer_norm(f"{name}.norm1", x, width)
        x = net.add(f"{name}.add1", x, net.attention(f"{name}.attention", normed, kind))
        normed = net.layer_norm(f"{name}.norm2", x, width)
        x = net.add(f"{name}.add2", x, net.feed_forward(f"{name}.mlp", normed, width, 4 * width))
    return net.build(net.layer_norm("norm", x, width))


NETWORKS = topologies(_topology, FULL, MINI)
