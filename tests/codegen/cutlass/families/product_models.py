"""Small models of matrix products; every output is named after its case.

CASES["odd depth"](builder, "odd depth")  -->  the value's name, which is that of the case
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from tests.dsa_sched.frontend.onnx_models import ModelBuilder

Case = Callable[[ModelBuilder, str], str]
Shape = tuple[int, ...]

__all__ = ["CASES", "LARGE_CASES", "Case", "saved"]


def by_weights(shape: Shape, *weights: int) -> Case:
    return lambda b, name: b.node("MatMul", b.input(*shape), b.weights(*weights), outputs=[name])


def of_values(left: Shape, right: Shape) -> Case:
    return lambda b, name: b.node("MatMul", b.input(*left), b.input(*right), outputs=[name])


def weights_first(left: Shape, right: Shape) -> Case:
    return lambda b, name: b.node("MatMul", b.weights(*left), b.input(*right), outputs=[name])


def fully_connected(rows: int, depth: int, columns: int, *activation: str, **settings: float) -> Case:
    """Gemm with a bias, its weights [columns, depth]."""

    def build(b: ModelBuilder, name: str) -> str:
        operands = b.input(rows, depth), b.weights(columns, depth), b.weights(columns)
        last = [] if activation else [name]
        value = b.node("Gemm", *operands, outputs=last, attributes=settings, transB=1)
        for number, op_type in enumerate(activation, 1):
            value = b.node(op_type, value, outputs=[name] if number == len(activation) else [])
        return value

    return build


def residual(b: ModelBuilder, name: str) -> str:
    """Activations before and behind the sum with another map of the same shape."""
    x = b.input(2, 19, 32)
    y = b.node("Clip", b.node("MatMul", x, b.weights(32, 48)), b.constant(-1.0), b.constant(1.5))
    return b.node("Gelu", b.node("Add", b.input(2, 19, 48), y), outputs=[name])


def twice(b: ModelBuilder, name: str) -> str:
    """The same value as both operands of a sum."""
    y = b.node("MatMul", b.input(5, 16), b.weights(16, 8))
    return b.node("Add", y, y, outputs=[name])


def attention(b: ModelBuilder, name: str) -> str:
    """13 positions: both products have an odd side."""
    queries, keys, values = b.input(2, 3, 13, 16), b.input(2, 3, 16, 13), b.input(2, 3, 13, 16)
    scores = b.node("Mul", b.node("MatMul", queries, keys), b.constant(np.array(0.25)))
    return b.node("MatMul", b.node("Softmax", scores, axis=-1), values, outputs=[name])


CASES: dict[str, Case] = {
    "leading axes are rows": by_weights((3, 50, 64), 64, 72),
    "odd columns of weights": by_weights((2, 9, 64), 64, 35),
    "odd depth": fully_connected(2, 37, 101, "Relu"),
    "one row": fully_connected(1, 200, 120, alpha=0.5, beta=2.0),
    "one column": by_weights((5, 40), 40, 1),
    "depth of one": by_weights((7, 1), 1, 8),
    "two at a time": of_values((11, 6), (6, 10)),
    "four at a time": of_values((2, 11, 36), (2, 36, 28)),
    "odd batch": of_values((2, 3, 17, 19), (2, 3, 19, 21)),
    "a batch of weights": by_weights((3, 10, 20), 3, 20, 15),
    "weights first": weights_first((12, 21), (2, 21, 24)),
    "rows share a matrix": of_values((2, 3, 9, 16), (2, 1, 16, 24)),
    "one matrix by many": of_values((9, 16), (4, 16, 24)),
    "outer product of batches": of_values((2, 1, 9, 16), (1, 3, 16, 24)),
    "residual": residual,
    "twice": twice,
    "many tiles": by_weights((150, 328), 328, 200),
}

LARGE_CASES: dict[str, Case] = {
    "attention of 197": of_values((1, 12, 197, 197), (1, 12, 197, 64)),
    "classifier": fully_connected(4, 2048, 1001),
    "square": by_weights((513, 768), 768, 520),
}


def saved(cases: Iterable[tuple[str, Case]], folder: Path) -> Path:
    """One model of all."""
    b = ModelBuilder(opset=20)
    names = [build(b, name) for name, build in cases]
    assert len(set(names)) == len(names)
    return b.save(folder, *names)
