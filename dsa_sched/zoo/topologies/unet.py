"""A U-Net: down four times, up four times, every level's features carried across to the way up.

    image --2 conv--> skip --pool--> ... bottom ... --double, conv--> concat with skip --2 conv--> ... --1x1--> classes

After Ronneberger, Fischer, Brox, "U-Net: Convolutional Networks for Biomedical Image Segmentation" (MICCAI 2015), with
fewer channels, padded convolutions (extents stay) and nearest-neighbour up-sampling before the convolution upwards.
"""

from __future__ import annotations

import onnx

from dsa_sched.zoo.topologies.topology import TopologyBuilder

EXTENT = 128
CHANNELS = (16, 32, 64, 128)
BOTTOM = 256
CLASSES = 4


def unet_topology() -> onnx.ModelProto:
    """23 convolutions; any image whose extents are multiples of 16 goes through it."""
    builder = TopologyBuilder("unet", "image", (1, 3, EXTENT, EXTENT))
    skips: list[str] = []
    x = "image"
    for level, channels in enumerate(CHANNELS):
        skips.append(_two_convolutions(builder, f"down{level}", x, channels))
        x = builder.pool("MaxPool", f"down{level}.pool", skips[-1], kernel=2, stride=2)
    x = _two_convolutions(builder, "bottom", x, BOTTOM)
    for level, channels in reversed(tuple(enumerate(CHANNELS))):
        up = builder.doubled(f"up{level}.resize", x)
        up = _convolution(builder, f"up{level}.conv0", up, channels)
        x = _two_convolutions(builder, f"up{level}", builder.concat(f"up{level}.concat", skips[level], up), channels)
    return builder.build(builder.conv("classes", x, CLASSES, bias=True))


def _two_convolutions(builder: TopologyBuilder, name: str, x: str, channels: int) -> str:
    x = _convolution(builder, f"{name}.conv1", x, channels)
    return _convolution(builder, f"{name}.conv2", x, channels)


def _convolution(builder: TopologyBuilder, name: str, x: str, channels: int) -> str:
    return builder.relu(f"{name}.relu", builder.conv(name, x, channels, kernel=3, bias=True))
