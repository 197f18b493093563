"""Shapes and attributes drawn at random, operators side by side, against onnxruntime. Slow: nvcc compiles dozens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.codegen.cutlass.families.branches import Branches, executed

Draw = np.random.Generator
Case = Callable[[Branches, Draw], tuple[str, int]]


def _shape(draw: Draw, rank: int, most: int = 9) -> tuple[int, ...]:
    """Half of the shapes have a last ONNX axis of eights, half of them channels of eights."""
    shape = [int(extent) for extent in draw.integers(1, most, rank)]
    for axis in {1, rank - 1}:
        if axis < rank and draw.integers(2):
            shape[axis] = 8 * int(draw.integers(1, 4))
    return tuple(shape)


def _transposed(b: Branches, draw: Draw) -> tuple[str, int]:
    rank = int(draw.integers(2, 6))
    shape = [int(extent) for extent in draw.choice([1, 2, 3, 8, 17, 33], rank)]
    return b.node("Transpose", b.input(*shape), perm=draw.permutation(rank).tolist()), 0


def _sliced(b: Branches, draw: Draw) -> tuple[str, int]:
    rank = int(draw.integers(1, 5))
    shape = _shape(draw, rank)
    starts, ends, steps = [], [], []
    for extent in shape:
        low, high = sorted(draw.integers(0, extent, 2).tolist())
        step = int(draw.integers(1, 4))
        backwards = bool(draw.integers(2))
        starts.append(high if backwards else low)
        ends.append(low - 1 - extent if backwards and low else -extent - 1 if backwards else high + 1)
        steps.append(-step if backwards else step)
    operands = (b.integers(*values) for values in (starts, ends, range(rank), steps))
    return b.node("Slice", b.input(*shape), *operands), 0


def _padded(b: Branches, draw: Draw) -> tuple[str, int]:
    rank = int(draw.integers(1, 5))
    shape = _shape(draw, rank)
    pads = [int(draw.integers(-(extent // 2), 10)) for extent in shape]
    ends = [int(draw.choice([0, 3, 8])) for _ in shape]
    return b.node("Pad", b.input(*shape), b.integers(*pads, *ends), b.number(0.25)), 0


def _joined(b: Branches, draw: Draw) -> tuple[str, int]:
    rank = int(draw.integers(1, 5))
    shape, axis = _shape(draw, rank), int(draw.integers(rank))
    extents = draw.choice([1, 8, 3, 16], int(draw.integers(1, 20))).tolist()
    inputs = [b.input(*shape[:axis], extent, *shape[axis + 1 :]) for extent in extents]
    return b.node("Concat", *inputs, axis=axis), 0


def _taken(b: Branches, draw: Draw) -> tuple[str, int]:
    rank = int(draw.integers(1, 5))
    shape, axis = _shape(draw, rank), int(draw.integers(rank))
    chosen = draw.integers(0, shape[axis], 8 * int(draw.integers(1, 3))).tolist()
    return b.node("Gather", b.input(*shape), b.integers(*chosen), axis=axis), 0


def _window(draw: Draw, spatial: int) -> dict[str, Any]:
    kernel = draw.integers(1, 4, spatial)
    return {
        "kernel_shape": kernel.tolist(),
        "strides": draw.integers(1, 4, spatial).tolist(),
        "dilations": draw.integers(1, 3, spatial).tolist(),
        "pads": [int(draw.integers(0, extent)) for extent in (*kernel, *kernel)],
    }


def _pooled(b: Branches, draw: Draw) -> tuple[str, int]:
    spatial = int(draw.integers(1, 4))
    shape = (*_shape(draw, 2), *draw.integers(6, 10, spatial).tolist())
    window = _window(draw, spatial)
    if draw.integers(2):
        window["ceil_mode"] = int(draw.integers(2))
        if window["ceil_mode"]:  # no window starts beyond the image: onnxruntime drops those, ONNX's shapes have them
            window["pads"], window["strides"] = [0] * (2 * spatial), window["kernel_shape"]
        return b.node("MaxPool", b.input(*shape), **window), 0
    return b.node("AveragePool", b.input(*shape), **window, count_include_pad=int(draw.integers(2))), 28


def _convolved(b: Branches, draw: Draw) -> tuple[str, int]:
    """Groups of few channels, so that the CUDA cores compute it."""
    spatial, groups = int(draw.integers(1, 4)), int(draw.choice([1, 2, 5, 8, 16]))
    channels, filters = (int(draw.choice([1, 2, 3, 8])) for _ in range(2))
    image = b.input(int(draw.integers(1, 3)), groups * channels, *draw.integers(6, 9, spatial).tolist())
    window = _window(draw, spatial)
    weights = b.constant(b.halves(groups * filters, channels, *window["kernel_shape"]))
    bias = [b.constant(b.halves(groups * filters))] * int(draw.integers(2))
    terms = channels * int(np.prod(window["kernel_shape"])) + 1
    return b.node("Conv", image, weights, *bias, **window, group=groups), terms


CASES: dict[str, Case] = {
    "transposed": _transposed,
    "sliced": _sliced,
    "padded": _padded,
    "joined": _joined,
    "taken": _taken,
    "pooled": _pooled,
    "convolved": _convolved,
}


@pytest.mark.slow(at_commit=1)
@pytest.mark.parametrize("name", CASES)
def test_random_shapes_are_right(name: str, tmp_path: Path) -> None:
    b, draw = Branches(), np.random.default_rng(len(name))
    outputs = dict(CASES[name](b, draw) for _ in range(20))
    found = executed(b, tmp_path, opset=19)
    wrong = [
        made for made, terms in outputs.items() if not (found.beyond(made, terms) <= 1 if terms else found.moved(made))
    ]
    assert [(made, found.compiled.model.graph.producer[made]) for made in wrong] == []
