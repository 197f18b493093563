"""Parts of networks that fuse, alone: the blocks of the case study at their sizes, and small ones for the executor.

Block("bottleneck1", 256, 56, (Conv(64), Conv(64, 3), Conv(256)), summed=True)  -->  ONNX model, its batch open
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.gpu.onnx_layers import OnnxLayers, Shape

__all__ = [
    "BLOCKS",
    "SMALL_ATTENTIONS",
    "SMALL_BLOCKS",
    "SMALL_DEPTHWISE",
    "SMALL_FIRSTS",
    "SMALL_LAYERS",
    "SMALL_NORMS",
    "SMALL_SPLITS",
    "STUDIED_BLOCKS",
    "Attention",
    "Block",
    "Conv",
    "Normed",
    "Products",
    "block_model",
]


@dataclass(frozen=True)
class Conv:
    """`kernel` x `kernel`, padded by half of it. `end`: Relu, Relu6, or nothing."""

    filters: int
    kernel: int = 1
    stride: int = 1
    depthwise: bool = False
    end: str = "Relu"


@dataclass(frozen=True)
class Block:
    """Convolutions in a row on a square map; `summed`: with the block's input added to the last one, before `end`."""

    name: str
    channels: int
    extent: int
    convs: tuple[Conv, ...]
    summed: bool = False
    end: str = ""


@dataclass(frozen=True)
class Products:
    """width -> hidden, Relu, -> width, for `rows` rows of each item."""

    name: str
    rows: int
    width: int
    hidden: int


@dataclass(frozen=True)
class Normed:
    """A layer norm of `rows` rows of each item, and its product, width -> hidden, Relu."""

    name: str
    rows: int
    width: int
    hidden: int


@dataclass(frozen=True)
class Attention:
    """q, k and v as inputs, heads of `size` elements side by side, `shared` of q for each of two of k and v. Without
    `causal`, there is a constant mask."""

    name: str
    rows: int
    keys: int
    size: int
    shared: int
    causal: bool


def _inverted(name: str, channels: int, extent: int, out: int, stride: int = 1) -> Block:
    """Of MobileNet-v2, expanded six times."""
    wide = 6 * channels
    convs = (Conv(wide, end="Relu6"), Conv(wide, 3, stride, True, "Relu6"), Conv(out, end=""))
    return Block(name, channels, extent, convs, summed=stride == 1 and channels == out)


def _bottleneck(name: str, width: int, extent: int) -> Block:
    """Of ResNet-50, not the first of its stage."""
    convs = (Conv(width), Conv(width, 3), Conv(4 * width, end=""))
    return Block(name, 4 * width, extent, convs, summed=True, end="Relu")


def _tailor(name: str, second: int) -> Block:
    """Four pairs of convolutions, the second ones `second` x `second`: resnet_tailor.py of the zoo for 1."""
    pairs = [(Conv(64 << k, 3, 2 if k else 1), Conv(64 << k, second)) for k in range(4)]
    return Block(name, 64, 56, tuple(conv for pair in pairs for conv in pair))


STUDIED_BLOCKS = (
    _tailor("tailor_3x3", 3),
    _bottleneck("bottleneck1", 64, 56),
    _bottleneck("bottleneck2", 128, 28),
    _bottleneck("bottleneck3", 256, 14),
    _bottleneck("bottleneck4", 512, 7),
    _inverted("inverted16", 16, 112, 24, 2),
    _inverted("inverted24", 24, 56, 24),
    _inverted("inverted32", 32, 28, 32),
    _inverted("inverted64", 64, 14, 64),
    _inverted("inverted96", 96, 14, 96),
    _inverted("inverted160", 160, 7, 160),
    Products("products128", 1024, 128, 512),
    Products("products256", 1024, 256, 1024),
)
"""At the sizes of the case study."""

SMALL_BLOCKS = (
    Block("small_inverted", 16, 11, (Conv(96, end="Relu6"), Conv(96, 3, 1, True, "Relu6"), Conv(16, end="")), True),
    Block("small_inverted2", 16, 21, (Conv(96), Conv(96, 3, 2, True), Conv(24, end=""))),
    Block("small_bottleneck", 64, 9, (Conv(32), Conv(32, 3), Conv(64, end="")), True, "Relu"),
    Block("small_pair", 32, 9, (Conv(64, 3), Conv(64))),
    Block("small_tail", 32, 9, (Conv(32, 3), Conv(32, end="")), True, "Relu"),
    Block("small_squares", 32, 9, (Conv(32, 3), Conv(32, 3))),
    Products("small_products", 40, 64, 128),
)
"""For the executor: ragged tiles, pixels outside of the image, more than one tile and more than one pass over channels,
with sums and without."""

SMALL_ATTENTIONS = (
    Attention("small_attention", 24, 70, 24, 1, causal=False),
    Attention("small_causal", 70, 70, 32, 2, causal=True),
    Attention("small_masked", 40, 150, 40, 1, causal=False),
)
"""Attention for the executor: more than one block of keys, rows and keys that are ragged, padded elements of a head; by
wgmma, blocks of one and of several groups, more blocks of keys than stages."""

SMALL_LAYERS = (
    Block("small_window", 72, 9, (Conv(72, 3, end=""),), True, "Relu"),
    Block("small_pixels", 136, 10, (Conv(136, end="Relu"),)),
)
"""Single layers for the executor: ragged tiles, channels that are no whole steps, more steps than stages."""

SMALL_SPLITS = (
    Block("small_deep_window", 72, 5, (Conv(72, 3, end=""),), True, "Relu"),
    Block("small_deep_pixels", 584, 9, (Conv(72, end="Relu"),)),
)
"""Single layers for the executor whose tiles leave most cores idle: parts of unequal numbers of steps."""

SMALL_FIRSTS = (
    Block("small_first", 3, 16, (Conv(64, 7, 2, end="Relu6"),)),
    Block("small_first_words", 4, 11, (Conv(72, 3, end=""),)),
    Block("small_first_halves", 1, 9, (Conv(32, 5, 2, end="Relu"),)),
)
"""First convolutions for the executor: rows that are copied by 16, 4 and 2 bytes, windows that begin at odd halves."""

SMALL_DEPTHWISE = (
    Block("small_depthwise", 40, 10, (Conv(40, 3, 2, True, "Relu6"),)),
    Block("small_depthwise7", 16, 9, (Conv(16, 7, 1, True, end=""),), True, "Relu"),
)
"""Depthwise convolutions for the executor: strips that rows do not fill, rows of a window unrolled and in a loop."""

SMALL_NORMS = (Normed("small_norm", 90, 136, 136),)
"""As single layers, after a norm."""

BLOCKS: Mapping[str, Block | Products] = MappingProxyType(
    {block.name: block for block in (*STUDIED_BLOCKS, *SMALL_BLOCKS)}
)
"""By name."""


def block_model(block: Block | Products | Attention | Normed) -> onnx.ModelProto:
    """Its batch is open."""
    if isinstance(block, Attention):
        return _attention(block)
    if isinstance(block, Normed):
        return _normed(block)
    return _convolutions(block) if isinstance(block, Block) else _products(block)


def _convolutions(block: Block) -> onnx.ModelProto:
    net, y, channels, extent = OnnxLayers(), "x", block.channels, block.extent
    for number, conv in enumerate(block.convs, 1):
        groups = channels if conv.depthwise else 1
        y = net.conv(
            y, channels, conv.filters, conv.kernel, f"conv{number}", groups=groups, relu=False, stride=conv.stride
        )
        y = _ended(net, conv.end, y)
        channels, extent = conv.filters, -(-extent // conv.stride)
    if block.summed:
        y = net.add("Add", [y, "x"], "sum")
    y = _ended(net, block.end, y)
    given: Shape = ["n", block.channels, block.extent, block.extent]
    return net.model(block.name, ("x", given), (y, ["n", channels, extent, extent]))


def _ended(net: OnnxLayers, end: str, y: str) -> str:
    if not end:
        return y
    if end == "Relu6":
        return net.add("Clip", [y, net.scalar("zero", 0.0), net.scalar("six", 6.0)], f"{y}.end")
    return net.add(end, [y], f"{y}.end")


def _products(block: Products) -> onnx.ModelProto:
    net = OnnxLayers()
    wide = net.product("x", block.width, block.hidden, "wide")
    y = net.product(net.add("Relu", [wide], "wide.end"), block.hidden, block.width, "narrow")
    shape: Shape = ["n", block.rows, block.width]
    return net.model(block.name, ("x", shape), (y, shape))


def _normed(block: Normed) -> onnx.ModelProto:
    net = OnnxLayers()
    scale, shift = (net.constant(name, block.width) for name in ("scale", "shift"))
    y = net.product(net.add("LayerNormalization", ["x", scale, shift], "norm"), block.width, block.hidden, "wide")
    shapes: list[Shape] = [["n", block.rows, width] for width in (block.width, block.hidden)]
    return net.model(block.name, ("x", shapes[0]), (net.add("Relu", [y], "wide.end"), shapes[1]))


def _attention(block: Attention) -> onnx.ModelProto:
    heads, shared = 2 * block.shared, 2
    q, k, v = (("n", block.rows, heads * block.size), *2 * (("n", block.keys, shared * block.size),))
    places = 7 * np.arange(block.rows)[:, None] + 3 * np.arange(block.keys)
    masks = [] if block.causal else [numpy_helper.from_array(np.asarray(np.float32(places % 11 - 5) / 2), "mask")]
    node = helper.make_node(
        "Attention", ["q", "k", "v", *(mask.name for mask in masks)], ["y"], "attention",
        q_num_heads=heads, kv_num_heads=shared, is_causal=int(block.causal),
    )  # fmt: skip
    inputs = (("q", q), ("k", k), ("v", v))
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, q)]
    made = helper.make_graph([node], block.name, given, result, masks)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
