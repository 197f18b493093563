"""Random small networks around what leaves the range of fp16, or loses its digits there, between two ordinary values.

    seed --> a spelling of `ranged_models.py`, comparisons or factors; moves and scales before it, a map behind it

Each has one input and one output. `KINDS` has a maker for each kind of fault that was found by other means first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.ranged_models import CASES

__all__ = ["KINDS", "Ranged", "ranged_model"]

Singles = npt.NDArray[np.float32]
Random = np.random.Generator


@dataclass(frozen=True)
class Ranged:
    """A model, its input, and how far its output may be from the reference's, in the L2 norm relative to that."""

    model: onnx.ModelProto
    feed: dict[str, Singles]
    bound: float


def ranged_model(kind: str, seed: int) -> Ranged:
    """The model of a kind and a seed."""
    random = np.random.default_rng([sum(kind.encode()), seed])
    b = ModelBuilder(seed=seed, opset=int(random.choice([13, 15, 17])))
    return KINDS[kind](b, random)


def _spelled(b: ModelBuilder, random: Random) -> Ranged:
    """One of the spellings, on an input that reaches it by way of moves and of a scale that is undone."""
    case = CASES[str(random.choice(sorted(CASES)))]
    x = case.input(int(random.integers(1 << 16)))
    factor = 2.0 ** (float(random.integers(4)) * (1 if np.abs(x).max() > 1 else -1))
    start = (x / np.float32(factor)).astype(np.float16).astype(np.float32)
    operator, number = ("Mul", factor) if random.integers(2) else ("Div", 1 / factor)
    name = b.node(operator, b.input(*x.shape), b.constant(number))
    if random.integers(2):
        order = [int(axis) for axis in random.permutation(len(x.shape))]
        name = b.node("Transpose", name, perm=order)
        name = b.node("Transpose", name, perm=[order.index(axis) for axis in range(len(order))])
    name = case.write(b, name)
    if random.integers(2):
        name = b.node("Mul", name, b.constant(float(random.choice([-0.5, 0.75]))))
    return Ranged(b.model(name), {"x0": start}, 1.5 * case.bound)


def _compared(b: ModelBuilder, random: Random) -> Ranged:
    """A comparison with a constant of any broadcast shape, as a number or as a choice."""
    shape = tuple(int(extent) for extent in random.integers(2, 7, int(random.integers(2, 5))))
    met = tuple(extent if random.integers(2) else 1 for extent in shape)[int(random.integers(len(shape))) :]
    x = random.normal(0, 1, shape).astype(np.float16).astype(np.float32)
    name, limit = b.input(*shape), b.constant(random.normal(0, 1, met).astype(np.float16))
    operands = (name, limit) if random.integers(2) else (limit, name)
    op_type = str(random.choice(["Less", "Greater", "LessOrEqual", "GreaterOrEqual"]))
    truth = b.node(op_type, *operands)
    result = b.node("Where", truth, name, b.constant(0.0)) if random.integers(2) else b.node("Cast", truth, to=1)
    return Ranged(b.model(result), {"x0": x}, 2e-3)


def _scaled(b: ModelBuilder, random: Random) -> Ranged:
    """Factors one after the other, of which fp16 has each and has not the product, perhaps behind a convolution."""
    x = random.normal(0, 2.0 ** -float(random.integers(6, 10)), (1, 5, 4, 6)).astype(np.float16).astype(np.float32)
    name = b.input(*x.shape)
    large = 2.0 ** float(random.uniform(7, 10))
    if random.integers(2):
        weights = random.normal(0, large, (5, 5, 1, 1)).astype(np.float16).astype(np.float32)
        name = b.node("Conv", name, b.constant(weights))
    else:
        name = b.node("Mul", name, b.constant(random.uniform(0.5, 1.5, (5, 1, 1)) * large))
    shape = (5, 1, 1) if random.integers(2) else ()
    factors = random.uniform(0.5, 1.0, shape) * 2.0 ** float(random.uniform(5, 8))
    inverse = bool(random.integers(2))
    name = b.node("Div" if inverse else "Mul", name, b.constant(1 / factors if inverse else factors))
    return Ranged(b.model(name), {"x0": x}, 5e-3)


KINDS: Mapping[str, Callable[[ModelBuilder, Random], Ranged]] = {
    "spelled": _spelled,
    "compared": _compared,
    "scaled": _scaled,
}
