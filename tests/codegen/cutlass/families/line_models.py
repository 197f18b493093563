"""Small models of operators over whole lines; every output is named after its case.

CASES["softmax last"](builder, "softmax last")  -->  the value's name, which is that of the case
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from tests.dsa_sched.frontend.onnx_models import ModelBuilder

Case = Callable[[ModelBuilder, str], str]

__all__ = ["CASES", "LONG_CASES", "TEAM_CASES", "Case", "random_cases", "saved", "special_rows"]


def softmax(shape: tuple[int, ...], axis: int = -1) -> Case:
    return lambda b, name: b.node("Softmax", b.input(*shape), axis=axis, outputs=[name])


def reduced(op_type: str, shape: tuple[int, ...], *axes: int, keepdims: int = 1) -> Case:
    """Of all axes where none is named."""

    def build(b: ModelBuilder, name: str) -> str:
        chosen = [b.integers(*axes)] if axes else []
        return b.node(op_type, b.input(*shape), *chosen, keepdims=keepdims, outputs=[name])

    return build


def norm(op_type: str, shape: tuple[int, ...], axis: int = -1, vectors: int = 2, epsilon: float = 1e-5) -> Case:
    def build(b: ModelBuilder, name: str) -> str:
        wide = shape[axis % len(shape) :]
        scales = [b.weights(*wide) for _ in range(vectors)]
        return b.node(op_type, b.input(*shape), *scales, axis=axis, outputs=[name], attributes={"epsilon": epsilon})

    return build


def pool(op_type: str, *shape: int) -> Case:
    return lambda b, name: b.node(op_type, b.input(*shape), outputs=[name])


def softmax_and_more(b: ModelBuilder, name: str) -> str:
    """Scaled by channel, with what was the input and another map of the same shape."""
    x = b.input(2, 5, 24)
    y = b.node("Mul", b.node("Softmax", x, axis=1), b.weights(5, 1))
    return b.node("LeakyRelu", b.node("Sub", b.node("Add", y, b.weights(24)), x), outputs=[name])


def norm_and_more(b: ModelBuilder, name: str) -> str:
    x = b.input(2, 7, 40)
    y = b.node("LayerNormalization", x, b.weights(40), b.weights(40), axis=-1)
    return b.node("Add", b.node("Gelu", y), x, outputs=[name])


def mean_and_more(b: ModelBuilder, name: str) -> str:
    """A vector along an axis of three, of which eight neighbours are more."""
    y = b.node("ReduceMean", b.input(2, 6, 8, 3), b.integers(1), keepdims=1)
    return b.node("Relu", b.node("Add", b.node("Sigmoid", y), b.weights(3)), outputs=[name])


def rows_and_more(b: ModelBuilder, name: str) -> str:
    """A sum along rows, divided by another."""
    x = b.input(5, 48)
    y = b.node("Add", b.node("Abs", b.node("ReduceSum", x, b.integers(1))), b.constant(1.0))
    return b.node("Div", b.node("ReduceMax", x, b.integers(1)), y, outputs=[name])


def computed_scale(*shape: int) -> Case:
    """Scale and bias that are inputs of the network, one of them for all elements."""

    def build(b: ModelBuilder, name: str) -> str:
        return b.node("LayerNormalization", b.input(*shape), b.input(shape[-1]), b.input(1), outputs=[name])

    return build


def norm_of_a_map(b: ModelBuilder, name: str) -> str:
    """Across the width of a map that a pool has left with its channels last."""
    x = b.node("MaxPool", b.input(2, 16, 5, 3), kernel_shape=[1, 1])
    return b.node("LayerNormalization", x, b.input(3), b.weights(3), outputs=[name])


def whole_window(b: ModelBuilder, name: str) -> str:
    """A window that is the whole map by its extents."""
    return b.node("AveragePool", b.input(2, 16, 3, 5), kernel_shape=[3, 5], outputs=[name])


CASES: dict[str, Case] = {
    "softmax last": softmax((2, 7, 40)),
    "softmax of odd rows": softmax((3, 77)),
    "softmax of a thousand": softmax((2, 1000)),
    "softmax across": softmax((2, 7, 40), 1),
    "softmax across, odd": softmax((3, 11, 5), 1),
    "softmax of channels": softmax((2, 16, 5, 3), 1),
    "softmax of map rows": softmax((2, 16, 5, 3), 2),
    "softmax and more": softmax_and_more,
    "sum of all": reduced("ReduceSum", (3, 5, 24), keepdims=0),
    "sum of the ends": reduced("ReduceSum", (3, 5, 24), 0, 2),
    "sum of the first": reduced("ReduceSum", (9, 5, 8), 0, keepdims=0),
    "sum of every other axis": reduced("ReduceSum", (4, 3, 5, 16), 0, 2),
    "mean between": reduced("ReduceMean", (2, 3, 4, 5, 8), 1, 3),
    "mean of thin rows": reduced("ReduceMean", (2, 6, 8, 3), 1),
    "mean of one element": reduced("ReduceMean", (3, 1, 8), 1),
    "mean of a map": reduced("ReduceMean", (2, 16, 5, 3), 2, 3),
    "maximum of a map": reduced("ReduceMax", (2, 7, 5, 3), 2, 3, keepdims=0),
    "maximum of channels": reduced("ReduceMax", (2, 16, 5, 3), 1),
    "maximum of six axes": reduced("ReduceMax", (2, 3, 2, 3, 2, 8), 0, 2, 4),
    "mean and more": mean_and_more,
    "rows and more": rows_and_more,
    "norm": norm("LayerNormalization", (3, 5, 24)),
    "norm of odd rows": norm("LayerNormalization", (4, 33), vectors=1),
    "norm of planes": norm("LayerNormalization", (3, 5, 8), 1, epsilon=0.01),
    "norm of map rows": norm("LayerNormalization", (2, 16, 5, 3), -1),
    "norm of maps": norm("LayerNormalization", (2, 16, 5, 3), 1),
    "norm and more": norm_and_more,
    "norm with a computed scale": computed_scale(3, 5, 24),
    "norm of a map with a computed scale": norm_of_a_map,
    "rms": norm("RMSNormalization", (3, 5, 24), vectors=1),
    "rms of planes": norm("RMSNormalization", (3, 8, 3), 1, vectors=1, epsilon=0.1),
    "mean pool": pool("GlobalAveragePool", 2, 16, 5, 3),
    "mean pool of odd channels": pool("GlobalAveragePool", 1, 5, 7, 9),
    "largest of all pixels": pool("GlobalMaxPool", 2, 16, 5, 3),
    "mean pool of lines": pool("GlobalAveragePool", 2, 6, 11),
    "mean pool of volumes": pool("GlobalAveragePool", 2, 8, 3, 2, 5),
    "whole window": whole_window,
    "instances": lambda b, name: b.node(
        "InstanceNormalization", b.input(2, 8, 5, 3), b.weights(8), b.weights(8), outputs=[name]
    ),
    "length": lambda b, name: b.node("ReduceL2", b.input(3, 50), b.integers(1), outputs=[name]),
}

LONG_CASES: dict[str, Case] = {
    "softmax of 40000": softmax((1, 40000)),
    "softmax of 9000, odd": softmax((1, 9001)),
    "sum of 70000": reduced("ReduceSum", (70000,)),
    "softmax across 600": softmax((600, 24), 0),
    "mean pool of many": pool("GlobalAveragePool", 3, 2048, 7, 7),
    "norm of a sequence": norm("LayerNormalization", (1, 197, 768)),
}
"""Lines that a thread does not hold, and blocks of 1024 threads."""

TEAM_CASES: dict[str, Case] = {
    "rows": norm("LayerNormalization", (9, 4400)),
    "columns": softmax((2, 37, 80), 1),
    "long columns": reduced("ReduceMean", (2, 1100, 24), 1),
}
"""For which every number of threads is offered."""


def random_cases(count: int, seed: int) -> dict[str, Case]:
    """Operators of random shapes along random axes."""
    rng = np.random.default_rng(seed)
    found: dict[str, Case] = {}
    for number in range(count):
        rank = int(rng.integers(1, 7))
        last = int(rng.choice([1, 3, 8, 16, 41, 96]))
        shape = (*(int(extent) for extent in rng.integers(1, 5 if rank > 3 else 14, rank - 1)), last)
        axes = sorted(int(axis) for axis in rng.choice(rank, int(rng.integers(1, rank + 1)), replace=False))
        kind = str(rng.choice(["Softmax", "LayerNormalization", "ReduceSum", "ReduceMean", "ReduceMax"]))
        if kind == "Softmax":
            case = softmax(shape, axes[0])
        elif kind == "LayerNormalization":
            case = norm(kind, shape, axes[0], epsilon=0.01)
        else:
            case = reduced(kind, shape, *axes)
        found[f"{number} {kind} {shape} {axes}"] = case
    return found


def saved(cases: Iterable[tuple[str, Case]], folder: Path) -> Path:
    """One model of all."""
    b = ModelBuilder(opset=23)
    names = [build(b, name) for name, build in cases]
    assert len(set(names)) == len(names)
    return b.save(folder, *names)


def special_rows(columns: int) -> np.ndarray:
    """[rows, columns], float32: NaN, infinities and large numbers, each in a row of its own."""
    x = np.random.default_rng(5).standard_normal((8, columns)).astype(np.float32)
    x[1, 3] = np.nan
    x[2, 5] = np.inf
    x[3, :] = -np.inf
    x[4, 7:] = -np.inf
    x[5, 2], x[5, 9] = np.inf, -np.inf
    x[6] = 65504.0
    x[7] *= 60000.0 / np.abs(x[7]).max()
    return x
