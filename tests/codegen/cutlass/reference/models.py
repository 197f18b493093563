"""Small models, every kind of operator at least once."""

from __future__ import annotations

from tests.codegen.cutlass.reference.fed_layers import Build
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.test_operators import CASES, feature_map


def norm(op_type: str, shape: tuple[int, ...], axis: int, vectors: int) -> Build:
    def build(b: ModelBuilder) -> str:
        wide = shape[axis % len(shape) :]
        return b.node(op_type, b.input(*shape), *(b.weights(*wide) for _ in range(vectors)), axis=axis)

    return build


def fused(b: ModelBuilder) -> str:
    """A convolution with a batch's worth of operators behind it, one of them with another input."""
    y = b.node("Conv", b.input(2, 5, 7, 6), b.weights(8, 5, 3, 3), b.weights(8), pads=[1, 1, 1, 1])
    y = b.node("Add", b.node("Clip", y, b.constant(-1.5), b.constant(2.5)), b.input(2, 8, 7, 6))
    return b.node("HardSwish", b.node("Mul", y, b.weights(8, 1, 1)))


def resized(mode: str, coordinates: str) -> Build:
    settings = {"mode": mode, "coordinate_transformation_mode": coordinates}
    return lambda b: b.node("Resize", feature_map(b), "", "", b.integers(2, 4, 13, 3), attributes=settings)


WHOLE_CASES: dict[str, Build] = {
    "LayerNormalization": norm("LayerNormalization", (3, 5, 24), -1, 2),
    "LayerNormalization of planes": norm("LayerNormalization", (3, 5, 8), 1, 2),
    "LayerNormalization without bias": norm("LayerNormalization", (4, 33), -1, 1),
    "LayerNormalization of a map": lambda b: b.node("LayerNormalization", feature_map(b), b.weights(5), axis=-1),
    "RMSNormalization": norm("RMSNormalization", (3, 5, 24), -1, 1),
    "Gelu": lambda b: b.node("Gelu", b.input(3, 70)),
    "Gelu by tanh": lambda b: b.node("Gelu", b.input(3, 70), approximate="tanh"),
    "Elu": lambda b: b.node("Elu", b.input(3, 70), alpha=0.7),
    "Elu that turns": lambda b: b.node("Elu", b.input(3, 70), alpha=-0.7),
    "Selu": lambda b: b.node("Selu", b.input(3, 70)),
    "Celu": lambda b: b.node("Celu", b.input(3, 70), alpha=0.7),
    "Softsign": lambda b: b.node("Softsign", b.input(3, 70)),
    "PRelu": lambda b: b.node("PRelu", b.input(3, 70), b.weights(70)),
    "LeakyRelu that turns": lambda b: b.node("LeakyRelu", b.input(3, 70), attributes={"alpha": -0.3}),
    "Shrink": lambda b: b.node("Shrink", b.input(3, 70), attributes={"lambd": 0.5, "bias": 0.25}),
    "fused": fused,
    "MatMul with broadcast axes": lambda b: b.node("MatMul", b.input(2, 1, 3, 4), b.input(5, 4, 6)),
    "ReduceSum of all": lambda b: b.node("ReduceSum", b.input(2, 3, 4), keepdims=0),
    "ReduceMax of a map": lambda b: b.node("ReduceMax", feature_map(b), b.integers(1, 3)),
    "Softmax of long lines": lambda b: b.node("Softmax", b.input(3, 300)),
    "LRN of few channels": lambda b: b.node("LRN", b.input(1, 3, 3, 4), size=5, alpha=0.5, beta=0.75, bias=1.0),
    **{
        f"Resize {mode} {coordinates}": resized(mode, coordinates)
        for mode in ("nearest", "linear")
        for coordinates in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
    },
    "Resize in one dimension": lambda b: b.node(
        "Resize", b.node("MaxPool", b.input(1, 4, 9), kernel_shape=[2]), "", b.constant([1, 1, 2.3]), mode="linear"
    ),
    "Resize nearest upwards": lambda b: b.node(
        "Resize", feature_map(b), "", b.constant([1, 1, 1.5, 2]), nearest_mode="round_prefer_ceil"
    ),
}

REFUSED = {
    *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
    *("Floor", "Ceil", "Round", "Sign", "Pow"),
}
"""What the NPU looks up in tables, and no kernel of a GPU computes."""

MODELS: dict[str, tuple[Build, int]] = {
    **{name: (build, 18) for name, build in CASES.items() if name not in REFUSED},
    **{name: (build, 23) for name, build in WHOLE_CASES.items()},
}
"""Each with its operator set version."""
