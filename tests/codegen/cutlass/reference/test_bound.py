"""What may be stored: no honest kernel is beyond what is allowed, and little that is wrong is within it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType

import numpy as np
import pytest

from codegen.judgement import Doubles
from partitioner.ir.graph import Attribute
from partitioner.ir.layers import Layer
from tests.codegen.cutlass.reference.fed_layers import FRONTEND, Fed, by_hand, fed
from tests.codegen.cutlass.reference.models import MODELS
from tests.codegen.cutlass.reference.single_precision import Careless, single
from tests.dsa_sched.frontend.numpy_graph import evaluate
from tests.dsa_sched.frontend.onnx_models import ModelBuilder


def stored(found: Fed, layer: Layer, seed: int) -> Doubles:
    """The halves that a careless kernel leaves, at all points."""
    ops = [found.graph.op_by_name[name] for name in layer.ops]
    read = {name: single(found.value(name)) for name in layer.inputs(found.graph)}
    result = Careless(np.random.default_rng(seed)).layer(found.graph, ops, read)
    return np.asarray(result.astype(np.float16), np.float64).reshape(-1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.commit
def test_sums_in_any_order_and_functions_by_others_are_allowed(name: str, tmp_path: Path) -> None:
    build, opset = MODELS[name]
    found = fed(build, tmp_path, opset, halves=True)
    for layer in found.layers:
        sampled = found.sampled(layer)
        numbers, allowed = FRONTEND.evaluate(sampled).numbers, FRONTEND.allowed(sampled)
        for seed in range(5):
            apart = np.abs(stored(found, layer, seed) - numbers)
            assert (apart <= allowed).all(), (layer.name, (apart - allowed).max())


def steps_away(numbers: Doubles, steps: int) -> Doubles:
    """So many halves farther from zero than the nearest one."""
    bits = numbers.astype(np.float16).view(np.uint16) + np.uint16(steps)
    return bits.view(np.float16).astype(np.float64)


@pytest.mark.parametrize("name", MODELS)
def test_three_half_steps_are_not_allowed(name: str, tmp_path: Path) -> None:
    """Two steps from what rounding gives are three halves of one from the number at least. Only next to zero, where
    a sum cancels or a curve is a difference of ones, the error of fp32 may be as large as that."""
    build, opset = MODELS[name]
    found = fed(build, tmp_path, opset, halves=True)
    for layer in found.layers:
        sampled = found.sampled(layer)
        numbers, allowed = FRONTEND.evaluate(sampled).numbers, FRONTEND.allowed(sampled)
        apart = np.abs(steps_away(numbers, 2) - numbers)
        away_from_zero = np.abs(numbers) >= np.abs(numbers).max() / 16
        assert (apart > allowed)[away_from_zero].all(), layer.name


@dataclass(frozen=True)
class Dropped:
    """An operator, the shapes of its operands, and what is left of these without one of the terms of each sum."""

    kind: str
    operands: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    attributes: dict[str, Attribute]
    without: Callable[[list[Doubles]], list[Doubles]]


def zeroed(
    operand: int, *index: int | slice | EllipsisType, value: float = 0.0
) -> Callable[[list[Doubles]], list[Doubles]]:
    def without(operands: list[Doubles]) -> list[Doubles]:
        copies = [x.copy() for x in operands]
        copies[operand][index] = value
        return copies

    return without


ALL = slice(None)
WINDOW: dict[str, Attribute] = {"kernel": (3, 3), "strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
IMAGE: dict[str, Attribute] = {**WINDOW, "kernel": (7, 7), "count_include_pad": 0}
NORM: dict[str, Attribute] = {"axes": (1,), "epsilon": 1e-5}
ROWS: dict[str, Attribute] = {"axes": (1,)}

DROPPED = {
    "conv": Dropped("conv", ((2, 9, 8, 16), (3, 3, 16, 8)), (2, 7, 6, 8), {**WINDOW, "groups": 1}, zeroed(1, 1, 2, 5)),
    "grouped conv": Dropped(
        "conv", ((2, 9, 8, 16), (4, 3, 3, 4, 2)), (2, 7, 6, 8), {**WINDOW, "groups": 4}, zeroed(1, ALL, 1, 2, 3)
    ),
    "matmul": Dropped("matmul", ((20, 512), (512, 30)), (20, 30), {}, zeroed(1, 77)),
    "bias": Dropped("matmul", ((20, 512), (512, 30), (30,)), (20, 30), {}, zeroed(2, ALL)),
    "average_pool": Dropped("average_pool", ((2, 7, 7, 32),), (2, 1, 1, 32), IMAGE, zeroed(0, ALL, 3, 4)),
    "reduce_sum": Dropped("reduce_sum", ((40, 700),), (40, 1), ROWS, zeroed(0, ALL, 5)),
    "reduce_mean": Dropped("reduce_mean", ((40, 99),), (40, 1), ROWS, zeroed(0, ALL, 5)),
    "softmax": Dropped("softmax", ((40, 99),), (40, 99), {"axis": 1}, zeroed(0, ALL, 5, value=-np.inf)),
    "layer_norm": Dropped("layer_norm", ((40, 96), (96,)), (40, 96), NORM, zeroed(0, ALL, 5)),
    "rms_norm": Dropped("rms_norm", ((40, 96), (96,)), (40, 96), NORM, zeroed(0, ALL, 5)),
    "lrn": Dropped(
        "lrn", ((3, 4, 4, 9),), (3, 4, 4, 9), {"size": 9, "alpha": 1.0, "beta": 0.75, "bias": 1.0}, zeroed(0, ..., 4)
    ),
}


@pytest.mark.parametrize("name", DROPPED)
def test_a_term_that_is_left_out_is_not_allowed(name: str) -> None:
    """Operands are away from zero, so that each term counts."""
    case = DROPPED[name]
    random = np.random.default_rng(0)
    operands = [
        (random.uniform(0.5, 1.5, shape) * random.choice([-1, 1], shape)).astype(np.float16).astype(np.float64)
        for shape in case.operands
    ]
    found = by_hand(case.kind, operands, case.result, **case.attributes)
    sampled = found.sampled(found.layers[0])
    numbers, allowed = FRONTEND.evaluate(sampled).numbers, FRONTEND.allowed(sampled)
    (op,) = found.graph.ops
    right, wrong = (evaluate(found.graph, op, x)[0].reshape(-1) for x in (operands, case.without(operands)))
    assert (np.abs(right.astype(np.float16) - numbers) <= allowed).all()
    assert (np.abs(wrong.astype(np.float16) - numbers) > allowed).mean() > 0.95


def test_sums_in_halves_are_not_allowed() -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 30, 300)).astype(np.float16)
    found = by_hand("matmul", [a, b.T.copy()], (30, 30))
    sampled = found.sampled(found.layers[0])
    numbers, allowed = FRONTEND.evaluate(sampled).numbers, FRONTEND.allowed(sampled)
    products = a[:, None, :] * b
    halves = np.add.accumulate(products, axis=-1, dtype=np.float16)[..., -1].reshape(-1)
    assert (np.abs(halves - numbers) > allowed).mean() > 0.5


def test_rounding_between_an_anchor_and_its_epilogue_is_not_allowed(tmp_path: Path) -> None:
    """A layer rounds once: a sum that is stored before something is added to it is off by up to a step."""

    def build(b: ModelBuilder) -> str:
        return b.node("Add", b.node("MatMul", b.input(40, 30), b.weights(30, 50)), b.input(40, 50))

    found = fed(build, tmp_path, halves=True)
    (layer,) = found.layers
    sampled = found.sampled(layer)
    numbers, allowed = FRONTEND.evaluate(sampled).numbers, FRONTEND.allowed(sampled)
    product, _ = found.graph.ops
    a, b = (found.value(name).astype(np.float64) for name in product.inputs)
    added = found.values[found.graph.inputs[1]].astype(np.float64)
    once, twice = a @ b + added, (a @ b).astype(np.float16) + added
    assert len(layer.ops) == 2
    assert (np.abs(once.astype(np.float16).reshape(-1) - numbers) <= allowed).all()
    assert (np.abs(twice.astype(np.float16).reshape(-1) - numbers) > allowed).mean() > 0.1


@pytest.mark.parametrize(("length", "shows"), [(2048, True), (4096, False)])
def test_up_to_which_length_a_product_that_is_left_out_shows(length: int, shows: bool) -> None:
    """All products alike but for their signs, which cancel: docs/gpu.md says up to 2,900."""
    a, b = np.ones((1, length), np.float16), np.ones((length, 1), np.float16)
    a[:, ::2] = -1
    found = by_hand("matmul", [a, b], (1, 1))
    sampled = found.sampled(found.layers[0])
    assert FRONTEND.evaluate(sampled).numbers.tolist() == [0.0]
    assert (FRONTEND.allowed(sampled) < 1.0).tolist() == [shows]


@pytest.mark.parametrize("kind", ["exp", "sigmoid", "softmax"])
def test_large_arguments_before_anything_is_rounded_to_halves(kind: str) -> None:
    """exp(80) by way of exp2(80 * log2(e)) is off by more than any function by itself; not by a hundred times less
    than what is said."""
    x = np.random.default_rng(0).uniform(-80, 80, (40, 50)).astype(np.float16)
    attributes: dict[str, Attribute] = {"axis": 1} if kind == "softmax" else {}
    found = by_hand(kind, [x], x.shape, **attributes)
    ours = FRONTEND.evaluate(found.sampled(found.layers[0]))
    shares = []
    for seed in range(5):
        kernel = Careless(np.random.default_rng(seed)).layer(found.graph, [*found.graph.ops], {"x0": single(x)})
        apart = np.abs(kernel.astype(np.float64).reshape(-1) - ours.numbers)
        assert (apart <= ours.error).all()
        shares.append((apart / ours.error)[ours.numbers > 1e-30].max())
    assert max(shares) > 0.1
