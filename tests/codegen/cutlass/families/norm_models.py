"""Small models of a norm of rows and a product of its result, and inputs as trained networks have them.

normed_product("RMSNormalization", 40, 64, 72)  -->  ONNX model;  inputs_like("outliers", shape, seed)  -->  fp16
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import numpy as np
import numpy.typing as npt
import onnx

from tests.dsa_sched.frontend.onnx_models import ModelBuilder

__all__ = ["INPUTS", "NORMS", "drawn_normed_product", "inputs_like", "normed_product"]

Doubles = npt.NDArray[np.float64]

NORMS = ("LayerNormalization", "RMSNormalization")
ACTIVATIONS = ("", "Relu", "Gelu", "Sigmoid")


def normed_product(
    norm: str,
    rows: int,
    depth: int,
    columns: int,
    *,
    bias: bool = True,
    shift: bool = True,
    activation: str = "",
    summed: bool = False,
    epsilon: float = 1e-5,
    seed: int = 0,
) -> onnx.ModelProto:
    """Scales about one, a few of them large. `summed`: with another input of the result's shape."""
    b = ModelBuilder(seed, opset=23)
    scale = 1 + 0.3 * b.random.standard_normal(depth)
    scale[:: max(1, depth // 4)] *= 8
    vectors = [b.constant(scale)]
    if norm == "LayerNormalization" and shift:
        vectors.append(b.weights(depth))
    y = b.node(norm, b.input(rows, depth), *vectors, axis=-1, attributes={"epsilon": epsilon})
    y = b.node("MatMul", y, b.weights(depth, columns, scale=depth**-0.5))
    if bias:
        y = b.node("Add", y, b.weights(columns))
    if activation:
        y = b.node(activation, y)
    if summed:
        y = b.node("Add", b.input(rows, columns), y)
    return b.model(y)


def drawn_normed_product(draw: Random, seed: int) -> onnx.ModelProto:
    """Ragged rows, depths and columns, every kind of epilogue."""
    return normed_product(
        draw.choice(NORMS),
        draw.randint(1, 300),
        8 * draw.randint(1, 40),
        8 * draw.randint(1, 30),
        bias=draw.random() < 0.7,
        shift=draw.random() < 0.7,
        activation=draw.choice(ACTIVATIONS),
        summed=draw.random() < 0.5,
        epsilon=draw.choice((1e-5, 1e-12, 0.1)),
        seed=seed,
    )


def _plain(random: np.random.Generator, rows: int, depth: int) -> Doubles:
    return random.standard_normal((rows, depth))


def _outliers(random: np.random.Generator, rows: int, depth: int) -> Doubles:
    """A few channels in the hundreds, of the same sign in every row, as in the residuals of trained transformers."""
    x = random.standard_normal((rows, depth))
    x[:, random.integers(0, depth, 3)] += random.choice((-1, 1), 3) * random.uniform(100, 900, 3)
    return x


def _far(random: np.random.Generator, rows: int, depth: int) -> Doubles:
    """Means of up to a thousand deviations, of both signs; every other row has none."""
    means = random.choice((-1, 1), rows) * 10 ** random.uniform(0, 3, rows) * (np.arange(rows) % 2)
    return random.standard_normal((rows, depth)) + means[:, None]


def _large(random: np.random.Generator, rows: int, depth: int) -> Doubles:
    """Up to the largest numbers of fp16, and rows of the smallest."""
    sizes = 10 ** random.uniform(-7, 4, rows)
    return np.clip(random.standard_normal((rows, depth)) * sizes[:, None], -65504, 65504)


def _equal(random: np.random.Generator, rows: int, depth: int) -> Doubles:
    """Rows of equal elements, of zeros among them, and such that differ in one element."""
    x = np.repeat(random.integers(-9, 9, (rows, 1)) * 1.375, depth, 1)
    x[1::3, random.integers(0, depth)] += 0.25
    return x


INPUTS: Mapping[str, Callable[[np.random.Generator, int, int], Doubles]] = {
    "plain": _plain,
    "outliers": _outliers,
    "far": _far,
    "large": _large,
    "equal": _equal,
}
"""By name: rows [rows, depth]."""


def inputs_like(name: str, shape: tuple[int, ...], seed: int) -> npt.NDArray[np.float16]:
    *outer, depth = shape
    rows = int(np.prod(outer))
    return INPUTS[name](np.random.default_rng(seed), rows, depth).astype(np.float16).reshape(shape)
