"""ResNet18-Tailor: the convolutions of a ResNet-18 as a chain, for which kernels of two layers can be compared.

    64 x 56 x 56 --3x3, 1x1--> 64 x 56 x 56 --3x3/2, 1x1--> 128 x 28 x 28 --> 256 x 14 x 14 --> 512 x 7 x 7

After the GPU case study of GraphTurbo (section 5.6): ResNet-18 without its first convolution and max pool and without
its last average pool and softmax, eight layers of convolution and ReLU, fused in pairs by CUTLASS. Which convolutions
the eight are is our reading: four pairs of a 3x3 and a 1x1 convolution, one for each extent of ResNet-18, because
CUTLASS's back-to-back convolutions fuse a 3x3 with the 1x1 after it, and no 3x3 with another 3x3. Every 3x3 but the
first has stride 2 and doubles the channels. There are no sums, and biases in place of batch norms.
"""

from __future__ import annotations

import onnx

from dsa_sched.zoo.topologies.topology import TopologyBuilder

PAIRS = 4


def resnet18_tailor_topology() -> onnx.ModelProto:
    """64 to 512 channels, 56 to 7 pixels: eight convolutions, 340 million MACs, 1.9 million parameters."""
    return _topology("resnet18_tailor", channels=64, extent=56)


def resnet18_tailor_mini_topology() -> onnx.ModelProto:
    """A quarter of the channels, half of the pixels: 16 to 128 channels, 28 to 4 pixels."""
    return _topology("resnet18_tailor-mini", channels=16, extent=28)


def _topology(name: str, channels: int, extent: int) -> onnx.ModelProto:
    """`channels` and `extent` are those of the input and of the first pair."""
    builder = TopologyBuilder(name, "features", (1, channels, extent, extent))
    x = "features"
    for pair in range(PAIRS):
        wide = channels << pair
        x = _activated(builder, f"pair{pair}.conv3x3", x, wide, kernel=3, stride=2 if pair else 1)
        x = _activated(builder, f"pair{pair}.conv1x1", x, wide)
    return builder.build(x)


def _activated(builder: TopologyBuilder, name: str, x: str, channels: int, kernel: int = 1, stride: int = 1) -> str:
    return builder.relu(f"{name}.relu", builder.conv(name, x, channels, kernel, stride, bias=True))
