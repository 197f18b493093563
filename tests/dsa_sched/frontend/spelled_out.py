"""Operators as exporters spell them out: for tests of what finds them again. Each takes and returns names of values."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from tests.dsa_sched.frontend.onnx_models import ModelBuilder

__all__ = [
    "attention",
    "erf_gelu",
    "heads",
    "layer_norm",
    "rms_norm",
    "rotary",
    "rotary_tables",
    "softmax",
    "tanh_gelu",
]


def _root(b: ModelBuilder, mean: str, epsilon: float, *, inverse: str = "") -> str:
    """The root of a mean; with `inverse` one over it, by that operator."""
    shifted = b.node("Add", mean, b.constant(epsilon)) if epsilon else mean
    if inverse == "Pow":
        return b.node("Pow", shifted, b.constant(-0.5))
    root = b.node("Sqrt", shifted)
    if inverse == "Div":
        return b.node("Div", b.constant(1.0), root)
    return b.node("Reciprocal", root) if inverse else root


def layer_norm(
    b: ModelBuilder,
    x: str,
    scale: str,
    bias: str,
    *,
    inverse: str = "",
    twice: bool = False,
    axes: tuple[int, ...] = (-1,),
) -> str:
    """By a difference that is squared; `twice` writes the difference for the quotient again."""
    mean = b.node("ReduceMean", x, axes=list(axes))
    d = b.node("Sub", x, mean)
    squared = b.node("Mul", d, d) if inverse else b.node("Pow", d, b.constant(2.0))
    root = _root(b, b.node("ReduceMean", squared, axes=list(axes)), 1e-5, inverse=inverse)
    d = b.node("Sub", x, mean) if twice else d
    y = b.node("Mul", root, d) if inverse else b.node("Div", d, root)
    y = b.node("Mul", scale, y) if scale else y
    return b.node("Add", y, bias) if bias else y


def rms_norm(b: ModelBuilder, x: str, scale: str, *, inverse: str = "") -> str:
    mean = b.node("ReduceMean", b.node("Pow", x, b.constant(2.0)), axes=[-1])
    root = _root(b, mean, 1e-6, inverse=inverse)
    y = b.node("Mul", x, root) if inverse else b.node("Div", x, root)
    return b.node("Mul", y, scale) if scale else y


def erf_gelu(b: ModelBuilder, x: str) -> str:
    curve = b.node("Add", b.node("Erf", b.node("Div", x, b.constant(sqrt(2)))), b.constant(1.0))
    return b.node("Mul", b.node("Mul", x, curve), b.constant(0.5))


def tanh_gelu(b: ModelBuilder, x: str, *, cube: float = 0.044715) -> str:
    power = b.node("Mul", b.node("Pow", x, b.constant(3.0)), b.constant(cube))
    curve = b.node("Tanh", b.node("Mul", b.node("Add", x, power), b.constant(sqrt(2 / pi))))
    return b.node("Mul", b.node("Mul", b.constant(0.5), x), b.node("Add", b.constant(1.0), curve))


def softmax(b: ModelBuilder, x: str, axis: int = -1, *, maximum: bool = True) -> str:
    if maximum:
        x = b.node("Sub", x, b.node("ReduceMax", x, axes=[axis]))
    e = b.node("Exp", x)
    return b.node("Div", e, b.node("ReduceSum", e, b.integers(axis)))


def heads(b: ModelBuilder, x: str, rows: int, count: int, size: int) -> str:
    """(batch of one, row, all elements) as (1, head, row, element)."""
    return b.node("Transpose", b.node("Reshape", x, b.integers(1, rows, count, size)), perm=[0, 2, 1, 3])


def attention(
    b: ModelBuilder, q: str, k: str, v: str, size: int, *, place: str = "behind", mask: str = "", flat: bool = False
) -> str:
    """Of (1, head, row, element); the scale `before`, `behind`, on `both` sides or by a `division`; k turned by one
    transpose, or `flat`: between two reshapes that join the leading axes."""
    scale = 1 / sqrt(size)
    shapes = {name: _shape(b, name) for name in (q, k)}
    rank = len(shapes[k])
    if flat:
        _, count, rows, width = shapes[k]
        k = b.node("Reshape", k, b.integers(-1, rows, width))
        k = b.node("Transpose", k, perm=[0, 2, 1])
        k = b.node("Reshape", k, b.integers(1, count, width, rows))
    else:
        k = b.node("Transpose", k, perm=[*range(rank - 2), rank - 1, rank - 2])
    if place == "both":
        q, k = (b.node("Mul", name, b.constant(sqrt(scale))) for name in (q, k))
    if place == "before":
        q = b.node("Mul", q, b.constant(scale))
    scores = b.node("MatMul", q, k)
    if place == "behind":
        scores = b.node("Mul", scores, b.constant(scale))
    if place == "division":
        scores = b.node("Div", scores, b.constant(sqrt(size)))
    if mask:
        scores = b.node("Add", scores, mask)
    return b.node("MatMul", b.node("Softmax", scores, axis=-1), v)


def _shape(b: ModelBuilder, name: str) -> tuple[int, ...]:
    """Of an input."""
    (item,) = (item for item in b.inputs if item.name == name)
    return tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)


def rotary_tables(rows: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of (row, half)."""
    angles = np.outer(np.arange(rows), 10000.0 ** (-np.arange(half) / half))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rotary(
    b: ModelBuilder, x: str, rows: int, half: int, *, order: tuple[int, int] = (1, 0), below: float = 1.0
) -> str:
    """Of (batch, head, row, element). `order` names the halves that are exchanged, `below` the share of the sines that
    the second half has."""
    cosines, sines = (np.concatenate([table, table], -1)[None, None] for table in rotary_tables(rows, half))
    sines[..., half:] *= below
    parts = [b.node("Slice", x, b.integers(i * half), b.integers((i + 1) * half), b.integers(3)) for i in order]
    turned = b.node("Concat", b.node("Neg", parts[0]), parts[1], axis=-1)
    straight = b.node("Mul", x, b.constant(cosines))
    return b.node("Add", straight, b.node("Mul", turned, b.constant(sines)))
