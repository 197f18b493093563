"""What files spell out so that fp16 loses it: each case is a function from x to its result, and what x is like.

All of these have ordinary results for the inputs beside them in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.dsa_sched.frontend.onnx_models import ModelBuilder

__all__ = ["CASES", "Case"]

Singles = npt.NDArray[np.float32]
Write = Callable[[ModelBuilder, str], str]
SHAPE = (2, 12, 48)


@dataclass(frozen=True)
class Case:
    """`write` makes the nodes, on x of `shape` with the values mean + deviation * normal, and a row of `zeros`."""

    write: Write
    mean: float = 0.0
    deviation: float = 1.0
    shape: tuple[int, ...] = SHAPE
    opset: int = 17
    zeros: bool = False
    bound: float = 5e-3

    def input(self, seed: int = 3) -> Singles:
        x = np.random.default_rng(seed).normal(self.mean, self.deviation, self.shape)
        if self.zeros:
            x[0, 0] = 0
        return x.astype(np.float16).astype(np.float32)


def _sum(b: ModelBuilder, x: str, kept: int = 1) -> str:
    return b.node("ReduceSum", x, b.integers(-1), keepdims=kept)


def _mean(b: ModelBuilder, x: str, kept: int = 1) -> str:
    return b.node("ReduceMean", x, axes=[-1], keepdims=kept)


def _square(b: ModelBuilder, x: str) -> str:
    return b.node("Mul", x, x)


def _power(b: ModelBuilder, x: str) -> str:
    return b.node("Pow", x, b.constant(2.0))


def _moments(b: ModelBuilder, x: str, *, held: str = "Max", by_sums: bool = False) -> tuple[str, str]:
    """Mean, and variance as the difference of two means."""

    def mean(value: str) -> str:
        return b.node("Mul", _sum(b, value), b.constant(1 / SHAPE[-1])) if by_sums else _mean(b, value)

    middle = mean(x)
    variance = b.node("Sub", mean(_square(b, x)), _square(b, middle))
    if held == "Max":
        variance = b.node("Max", b.constant(0.0), variance)
    elif held:
        variance = b.node(held, variance)
    return middle, variance


def _flax_norm(b: ModelBuilder, x: str, held: str = "Max", by_sums: bool = True) -> str:
    middle, variance = _moments(b, x, held=held, by_sums=by_sums)
    root = b.node("Sqrt", b.node("Add", variance, b.constant(1e-6)))
    scaled = b.node("Mul", b.node("Reciprocal", root), b.constant(np.linspace(0.5, 1.5, SHAPE[-1])))
    return b.node("Add", b.node("Mul", b.node("Sub", x, middle), scaled), b.constant(np.linspace(-1, 1, SHAPE[-1])))


def _keras_norm(b: ModelBuilder, x: str) -> str:
    middle = _mean(b, x)
    variance = _mean(b, _square(b, b.node("Sub", x, middle)))
    inverse = b.node("Reciprocal", b.node("Sqrt", b.node("Add", variance, b.constant(1e-3))))
    inverse = b.node("Mul", inverse, b.constant(np.linspace(0.5, 1.5, SHAPE[-1])))
    shift = b.node("Sub", b.constant(np.linspace(-1, 1, SHAPE[-1])), b.node("Mul", middle, inverse))
    return b.node("Add", b.node("Mul", x, inverse), shift)


def _by_totals(b: ModelBuilder, x: str) -> str:
    """The unbiased deviation by the sum of squares and the square of the sum."""
    n = float(SHAPE[-1])
    square = b.node("Div", b.node("Mul", _sum(b, x), _sum(b, x)), b.constant(n))
    variance = b.node("Div", b.node("Sub", _sum(b, _power(b, x)), square), b.constant(n - 1))
    return b.node("Sqrt", b.node("Relu", variance))


def _layer_norm_2d(b: ModelBuilder, x: str) -> str:
    """Along the channels of an image, each with a scale of its own."""
    middle = b.node("ReduceMean", x, axes=[1], keepdims=1)
    d = b.node("Sub", x, middle)
    variance = b.node("ReduceMean", b.node("Pow", d, b.constant(2, dtype=np.int64)), axes=[1], keepdims=1)
    y = b.node("Div", d, b.node("Sqrt", b.node("Add", variance, b.constant(1e-6))))
    return b.node("Mul", b.constant(np.linspace(0.5, 1.5, 12).reshape(12, 1, 1)), y)


def _without_axes(b: ModelBuilder, x: str) -> str:
    """Moments without the axis, which comes back where they meet the line."""
    middle = _mean(b, x, 0)
    variance = b.node("Sub", _mean(b, _square(b, x), 0), _square(b, middle))
    middle, variance = (b.node("Unsqueeze", value, b.integers(-1)) for value in (middle, variance))
    root = b.node("Sqrt", b.node("Add", variance, b.constant(1e-5)))
    return b.node("Div", b.node("Sub", x, middle), root)


def _response(b: ModelBuilder, x: str) -> str:
    """Global response normalisation: norms over their mean."""
    norms = b.node("ReduceL2", x, axes=[1], keepdims=1)
    mean = b.node("Add", _mean(b, norms), b.constant(1e-6))
    return b.node("Mul", x, b.node("Div", norms, mean))


def _deviation(b: ModelBuilder, x: str, *, unbiased: str = "") -> str:
    squares = _square(b, b.node("Sub", x, _mean(b, x)))
    n = SHAPE[-1]
    if unbiased == "sum":
        variance = b.node("Div", _sum(b, squares), b.constant(n - 1.0))
    elif unbiased == "mean":
        variance = b.node("Div", b.node("Mul", _mean(b, squares), b.constant(float(n))), b.constant(n - 1.0))
    else:
        variance = _mean(b, squares)
    return b.node("Sqrt", variance)


def _standardised(b: ModelBuilder, x: str) -> str:
    """By the unbiased deviation and its own epsilon."""
    d = b.node("Sub", x, _mean(b, x))
    variance = b.node("Div", _sum(b, _square(b, d)), b.constant(SHAPE[-1] - 1.0))
    return b.node("Div", d, b.node("Add", b.node("Sqrt", variance), b.constant(1e-6)))


def _parts(b: ModelBuilder, x: str) -> tuple[str, str]:
    half = SHAPE[-1] // 2
    cut = [b.integers(0), b.integers(half), b.integers(2 * half), b.integers(2)]
    return b.node("Slice", x, cut[0], cut[1], cut[3]), b.node("Slice", x, cut[1], cut[2], cut[3])


def _magnitude(b: ModelBuilder, x: str, epsilon: float = 0.0, square: Write = _square) -> str:
    real, imaginary = _parts(b, x)
    power = b.node("Add", square(b, real), square(b, imaginary))
    return b.node("Sqrt", b.node("Add", power, b.constant(epsilon)) if epsilon else power)


def _log_power(b: ModelBuilder, x: str, epsilon: float = 1e-10) -> str:
    real, imaginary = _parts(b, x)
    power = b.node("Add", _power(b, real), _power(b, imaginary))
    return b.node("Log", b.node("Add", power, b.constant(epsilon)))


def _decibels(b: ModelBuilder, x: str) -> str:
    power = b.node("Max", _square(b, x), b.constant(1e-10))
    return b.node("Mul", b.node("Log", power), b.constant(10 / np.log(10)))


def _normalised(b: ModelBuilder, x: str, guard: str = "Clip") -> str:
    norm = b.node("ReduceL2", x, axes=[-1], keepdims=1)
    return b.node("Div", x, b.node(guard, norm, b.constant(1e-12)))


def _by_root(b: ModelBuilder, x: str, inverse: bool = False) -> str:
    total = b.node("Add", _sum(b, _square(b, x)), b.constant(1e-12))
    if inverse:
        return b.node("Mul", x, b.node("Pow", total, b.constant(-0.5)))
    return b.node("Div", x, b.node("Sqrt", total))


def _share(b: ModelBuilder, x: str, epsilon: float = 1e-9) -> str:
    magnitude = b.node("Abs", x)
    return b.node("Div", magnitude, b.node("Add", _sum(b, magnitude), b.constant(epsilon)))


def _of_any_sign(b: ModelBuilder, x: str) -> str:
    return b.node("Div", x, b.node("Add", x, b.constant(1e-9)))


def _cosine(b: ModelBuilder, x: str) -> str:
    one, other = _parts(b, x)
    norms = b.node("Mul", *(b.node("ReduceL2", part, axes=[-1], keepdims=1) for part in (one, other)))
    return b.node("Div", _sum(b, b.node("Mul", one, other)), b.node("Max", norms, b.constant(1e-8)))


def _exp(b: ModelBuilder, x: str, factor: float = 1.0) -> str:
    return b.node("Exp", x if factor == 1.0 else b.node("Mul", x, b.constant(factor)))


def _logistic(b: ModelBuilder, x: str) -> str:
    return b.node("Add", b.constant(1.0), b.node("Exp", b.node("Neg", x)))


def _tanh(b: ModelBuilder, x: str) -> str:
    up, down = _exp(b, x), _exp(b, x, -1.0)
    return b.node("Div", b.node("Sub", up, down), b.node("Add", up, down))


def _hard_swish(b: ModelBuilder, x: str, order: str) -> str:
    shifted = b.node("Add", x, b.constant(3.0))
    if order == "min":
        ramp = b.node("Min", b.node("Relu", shifted), b.constant(6.0))
    else:
        ramp = b.node("Clip", shifted, b.constant(0.0), b.constant(6.0))
    if order == "divided":
        return b.node("Mul", x, b.node("Div", ramp, b.constant(6.0)))
    return b.node("Mul", b.node("Mul", x, ramp), b.constant(1 / 6))


def _softmax(b: ModelBuilder, x: str, axes: tuple[int, ...], *, inverse: bool = False) -> str:
    e = _exp(b, x)
    total = b.node("ReduceSum", e, b.integers(*axes))
    return b.node("Mul", e, b.node("Reciprocal", total)) if inverse else b.node("Div", e, total)


def _log_sum_exp(b: ModelBuilder, x: str) -> str:
    return b.node("Log", _sum(b, _exp(b, x), kept=0))


def _across(b: ModelBuilder, x: str) -> str:
    """Rows of a square over the norms of the rows, but along the columns: no row meets its own norm."""
    return b.node("Div", x, b.node("ReduceL2", x, axes=[-1], keepdims=0))


def _vector_of_guards(b: ModelBuilder, x: str, op_type: str) -> str:
    """Of the numbers some are guards and some are not."""
    numbers = b.constant(np.where(np.arange(48) % 2, 1e-9, 0.75))
    return b.node("Div", x, b.node(op_type, b.node("Abs", x), numbers))


def _logistic_with_an_axis(b: ModelBuilder, x: str) -> str:
    return b.node("Div", b.constant(np.ones((1, 1, 1, 1))), _logistic(b, x))


def _keras_norm_of_two(b: ModelBuilder, x: str) -> str:
    """What is added to the norm is another value, not a bias."""
    middle = _mean(b, x)
    variance = _mean(b, _square(b, b.node("Sub", x, middle)))
    inverse = b.node("Reciprocal", b.node("Sqrt", b.node("Add", variance, b.constant(1e-3))))
    inverse = b.node("Mul", inverse, b.constant(np.linspace(0.5, 1.5, SHAPE[-1])))
    shift = b.node("Sub", b.node("Relu", x), b.node("Mul", middle, inverse))
    return b.node("Add", b.node("Mul", x, inverse), shift)


CASES: dict[str, Case] = {
    "flax norm": Case(_flax_norm, mean=40, deviation=15),
    "flax norm, deviations far below the mean": Case(_flax_norm, mean=8, deviation=0.25, bound=2e-2),
    "norm by two means, Relu": Case(lambda b, x: _flax_norm(b, x, "Relu", by_sums=False), mean=50, deviation=300),
    "norm by two means": Case(lambda b, x: _flax_norm(b, x, "", by_sums=False), mean=50, deviation=300),
    "keras norm": Case(_keras_norm, mean=3000, deviation=400),
    "variance": Case(lambda b, x: _moments(b, x)[1], mean=100, deviation=100),
    "deviation": Case(_deviation, deviation=2000),
    "unbiased deviation by a sum": Case(lambda b, x: _deviation(b, x, unbiased="sum"), deviation=2000),
    "unbiased deviation by a mean": Case(lambda b, x: _deviation(b, x, unbiased="mean"), deviation=2000),
    "small deviation": Case(_deviation, deviation=2.0**-10),
    "standardised": Case(_standardised, mean=30, deviation=1000),
    "deviation by totals": Case(_by_totals, mean=300, deviation=200),
    "norm along channels": Case(_layer_norm_2d, mean=100, deviation=900, shape=(1, 12, 6, 8)),
    "norm without the axis": Case(_without_axes, mean=100, deviation=900),
    "response": Case(_response, deviation=500),
    "log of a variance": Case(lambda b, x: b.node("Log", _moments(b, x)[1]), deviation=3000),
    "mean by a sum": Case(lambda b, x: b.node("Div", _sum(b, x), b.constant(48.0)), mean=20_000, deviation=100),
    "mean by a sum, without its axis": Case(
        lambda b, x: b.node("Mul", b.constant(1 / 48), _sum(b, x, 0)), mean=20_000, deviation=100
    ),
    "mean by a sum, in two steps": Case(
        lambda b, x: b.node("Div", b.node("Mul", _sum(b, x), b.constant(4.0)), b.constant(192.0)),
        mean=20_000,
        deviation=100,
    ),
    "root mean square": Case(lambda b, x: b.node("Sqrt", _mean(b, _power(b, x))), deviation=5000),
    "magnitude": Case(_magnitude, deviation=3000),
    "small magnitude": Case(lambda b, x: _magnitude(b, x, 1e-9, _power), deviation=2.0**-11, bound=8e-3),
    "charbonnier": Case(
        lambda b, x: b.node("Sqrt", b.node("Add", _square(b, x), b.constant(1e-6))), deviation=2.0**-9, bound=8e-3
    ),
    "log of a power": Case(_log_power, deviation=3000),
    "log of small powers": Case(_log_power, deviation=2.0**-14, zeros=True),
    "log of a square": Case(lambda b, x: b.node("Log", b.node("Add", _square(b, x), b.constant(1e-10))), zeros=True),
    "log of large squares": Case(
        lambda b, x: b.node("Log", b.node("Add", _square(b, x), b.constant(1e-7))), deviation=2000, zeros=True
    ),
    "decibels": Case(_decibels, zeros=True),
    "log of a held value": Case(
        lambda b, x: b.node("Log", b.node("Clip", b.node("Abs", x), b.constant(1e-12))), zeros=True
    ),
    "log of guarded values": Case(
        lambda b, x: b.node("Log", b.node("Add", b.node("Relu", x), b.constant(np.full(48, 6e-8)))), bound=2e-2
    ),
    "log of one more": Case(
        lambda b, x: b.node("Log", b.node("Add", b.node("Relu", x), b.constant(1.0))), deviation=0.01
    ),
    "normalised, Clip": Case(_normalised, zeros=True),
    "normalised, Max": Case(lambda b, x: _normalised(b, x, "Max"), deviation=3000, zeros=True),
    "normalised, Add": Case(lambda b, x: _normalised(b, x, "Add"), deviation=2.0**-10, zeros=True),
    "normalised by a root": Case(_by_root, deviation=500, zeros=True),
    "normalised by an inverse root": Case(lambda b, x: _by_root(b, x, inverse=True), deviation=2.0**-10, zeros=True),
    "share": Case(_share, zeros=True),
    "share with a subnormal guard": Case(lambda b, x: _share(b, x, 1e-5), zeros=True),
    "quotient of either sign": Case(_of_any_sign, zeros=True),
    "cosine": Case(_cosine, deviation=3, zeros=True, bound=2e-2),
    "softplus": Case(lambda b, x: b.node("Log", b.node("Add", _exp(b, x), b.constant(1.0))), deviation=20),
    "sum of two exponentials": Case(
        lambda b, x: b.node("Log", b.node("Add", *(_exp(b, part) for part in _parts(b, x)))), deviation=20
    ),
    "log of a sum of exponentials": Case(_log_sum_exp, deviation=15),
    "log of a mean of exponentials": Case(
        lambda b, x: b.node("Log", b.node("ReduceMean", _exp(b, x), axes=[-1])), deviation=15
    ),
    "log of a guarded sum of exponentials": Case(
        lambda b, x: b.node("Log", b.node("Add", _sum(b, _exp(b, x)), b.constant(1e-8))), deviation=20
    ),
    "power of a guarded value": Case(
        lambda b, x: b.node("Pow", b.node("Add", b.node("Abs", x), b.constant(1e-6)), b.constant(-0.3)), zeros=True
    ),
    "log of what is left of 1": Case(
        lambda b, x: b.node(
            "Log",
            b.node(
                "Sub", b.constant(1.0), b.node("Clip", b.node("Sigmoid", x), b.constant(1e-7), b.constant(1 - 1e-7))
            ),
        ),
        deviation=1,
    ),
    "log of a softmax": Case(lambda b, x: b.node("Log", b.node("Softmax", x, axis=-1)), deviation=11),
    "log of a sigmoid": Case(lambda b, x: b.node("Log", b.node("Sigmoid", x)), deviation=5),
    "logistic": Case(lambda b, x: b.node("Reciprocal", _logistic(b, x)), deviation=8),
    "one over": Case(lambda b, x: b.node("Div", b.constant(1.0), _logistic(b, x)), deviation=8),
    "swish": Case(lambda b, x: b.node("Div", x, _logistic(b, x)), deviation=15),
    "logistic of exponentials": Case(
        lambda b, x: b.node("Div", _exp(b, x), b.node("Add", _exp(b, x), b.constant(1.0))), deviation=15
    ),
    "hyperbolic tangent": Case(_tanh, deviation=10),
    "hard swish": Case(lambda b, x: _hard_swish(b, x, "divided last"), deviation=8_000),
    "hard swish, ramp divided": Case(lambda b, x: _hard_swish(b, x, "divided"), deviation=8_000),
    "hard swish, Min of Relu": Case(lambda b, x: _hard_swish(b, x, "min"), deviation=8_000),
    "softmax without maximum": Case(lambda b, x: _softmax(b, x, (-1,)), deviation=15),
    "softmax by a reciprocal": Case(lambda b, x: _softmax(b, x, (-1,), inverse=True), deviation=15),
    "over the norms of others": Case(_across, shape=(24, 24), bound=1e-2),
    "held by numbers, some of them guards": Case(lambda b, x: _vector_of_guards(b, x, "Max"), zeros=True),
    "some numbers added, some guards": Case(lambda b, x: _vector_of_guards(b, x, "Add"), zeros=True),
    "logistic with one more axis": Case(_logistic_with_an_axis),
    "keras norm and another value": Case(_keras_norm_of_two, deviation=3, bound=1e-2),
    "softmax over two axes": Case(lambda b, x: _softmax(b, x, (1, 2)), deviation=15),
}
"""By what a reader calls it."""
