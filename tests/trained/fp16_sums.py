"""Products of matrices and convolutions as the stcp920's matrix engine sums: products rounded to fp16 and added, with
rounding, to two fp16 accumulators by turns; last the sum of both. Bias, alpha and beta come after, rounded.

The engine rounds what lies halfway between two numbers away from zero. That happens in about every fourth addition of
numbers that have 11 bits themselves, so that sums of a few hundred products are 0.1 to 0.2 % too large on average: an
error that all results share, and that does not shrink where a later sum adds many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

__all__ = ["convolution", "eleven_bits", "half", "matrix_product", "summed"]

Array = npt.NDArray[Any]
Round = Callable[[Array], Array]

AWAY = np.float32(1 + 2**-23)
"""Moves a float32 by its last bit or two away from zero, so that what lies halfway lies beyond."""


SPLIT = np.float32(2 ** (24 - 11) + 1)
"""x * SPLIT - (x * SPLIT - x) has the upper 11 of the 24 bits of x (Veltkamp)."""


def half(array: Array) -> Array:
    """Rounded to fp16, halfway away from zero."""
    return (array * AWAY).astype(np.float16).astype(np.float32)


def eleven_bits(array: Array) -> Array:
    """The same with the range of float32."""
    wide = array * AWAY * SPLIT
    return np.asarray(wide - (wide - array * AWAY))


def summed(left: Array, right: Array, round_to: Round = half) -> Array:
    """[..., M, K] x [..., K, N], in the order of K."""
    shape = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    sums = [np.zeros((*shape, left.shape[-2], right.shape[-1]), np.float32) for _ in range(2)]
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(left.shape[-1]):
            products = left[..., :, k, None] * right[..., None, k, :]
            sums[k % 2] = round_to(sums[k % 2] + round_to(products))
        return round_to(sums[0] + sums[1])


def matrix_product(node: onnx.NodeProto, operands: Sequence[Array | None], round_to: Round = half) -> Array:
    """MatMul or Gemm."""
    left, right, *rest = operands
    assert left is not None
    assert right is not None
    if node.op_type == "MatMul":
        made = summed(np.atleast_2d(left), right if right.ndim > 1 else right[:, None], round_to)
        return made.reshape(np.matmul(np.empty(left.shape, bool), np.empty(right.shape, bool)).shape)
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    made = summed(
        left.T if attributes.get("transA") else left, right.T if attributes.get("transB") else right, round_to
    )
    made = round_to(attributes.get("alpha", 1.0) * made)
    summand = rest[0] if rest else None
    return made if summand is None else round_to(made + round_to(attributes.get("beta", 1.0) * summand))


def convolution(node: onnx.NodeProto, operands: Sequence[Array | None], round_to: Round = half) -> Array:
    """Conv of any number of axes, by patches; K runs over the window first, then over channels in it."""
    x, w, *rest = operands
    assert x is not None
    assert w is not None
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    axes, window = x.ndim - 2, w.shape[2:]
    strides = attributes.get("strides", [1] * axes)
    reach = [d * (k - 1) + 1 for d, k in zip(attributes.get("dilations", [1] * axes), window, strict=True)]
    pads = _pads(attributes, x.shape[2:], reach, strides)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    views = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + axes)))
    steps = tuple(slice(None, None, step) for step in strides)
    taps = tuple(slice(None, None, step) for step in attributes.get("dilations", [1] * axes))
    patches = views[(slice(None), slice(None), *steps, *taps)]
    groups, places = attributes.get("group", 1), patches.shape[2 : 2 + axes]
    # [N, G, places, window, C]
    patches = patches.reshape(len(x), groups, -1, int(np.prod(places)), int(np.prod(window)))
    patches = patches.transpose(0, 1, 3, 4, 2).reshape(len(x), groups, patches.shape[3], -1)
    by_group = w.reshape(groups, len(w) // groups, w.shape[1], -1).transpose(0, 3, 2, 1)
    weights = by_group.reshape(groups, -1, len(w) // groups)
    made = summed(patches, weights, round_to).transpose(0, 1, 3, 2).reshape(len(x), len(w), *places)
    bias = rest[0] if rest else None
    return made if bias is None else round_to(made + bias.reshape(-1, *[1] * axes))


def _pads(attributes: dict[str, Any], shape: Sequence[int], reach: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Before all axes, then behind all."""
    rule = attributes.get("auto_pad", b"NOTSET")
    if rule == b"VALID":
        return [0] * (2 * len(shape))
    if rule == b"NOTSET":
        return list(attributes.get("pads", [0] * (2 * len(shape))))
    whole = [
        max(0, (-(-extent // step) - 1) * step + long - extent)
        for extent, long, step in zip(shape, reach, strides, strict=True)
    ]
    lower = rule == b"SAME_LOWER"
    first = [(size + lower) // 2 for size in whole]
    return [*first, *(size - before for size, before in zip(whole, first, strict=True))]
