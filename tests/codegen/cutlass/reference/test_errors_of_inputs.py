"""What inputs are off is counted: of whatever lies within their errors the result lies within that of the numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.judgement import Doubles
from tests.codegen.cutlass.reference.fed_layers import FRONTEND, Build, Fed, by_hand, fed
from tests.codegen.cutlass.reference.models import MODELS, fused
from tests.codegen.cutlass.reference.single_precision import Careless, single
from tests.dsa_sched.frontend.numpy_graph import evaluate
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

OPERATORS = sorted(set(MODELS) - {"Gather by computed indices"})
"""An index is never off."""

SLACK = 1e-9
"""What float64 rounds."""


def results(found: Fed, values: dict[str, Doubles]) -> Doubles:
    """Of the only layer, computed in float64 from these values."""
    (layer,) = found.layers
    known = dict(values)
    for name in layer.ops:
        op = found.graph.op_by_name[name]
        operands = [np.asarray(known[x] if x in known else found.value(x), np.float64) for x in op.inputs]
        with np.errstate(invalid="ignore"):  # roots and logarithms of what may be negative
            known[op.outputs[0]] = evaluate(found.graph, op, operands)[0]
    return known[layer.output].reshape(-1)


def judged(found: Fed, size: float, seed: int) -> tuple[int, float]:
    """How many results of inputs within their errors are farther from the numbers than is said; and how large what is
    said is beside the errors of the inputs, in the middle."""
    random = np.random.default_rng(seed)
    (layer,) = found.layers
    read = [name for name in layer.inputs(found.graph) if name in found.values]
    errors = {name: size * random.uniform(0, 1, found.values[name].shape) for name in read}
    said = FRONTEND.evaluate(replace(found, errors=errors).sampled(layer))
    beyond = 0
    for signs in (np.linspace(-1, 1, 9), np.array([-1.0, 1.0])) * 3:
        moved = {
            name: found.values[name].astype(np.float64) + random.choice(signs, error.shape) * error
            for name, error in errors.items()
        }
        apart = np.abs(results(found, moved) - said.numbers)
        within = (apart <= said.error * (1 + SLACK)) | np.isinf(said.error)
        beyond += int(np.count_nonzero(~within))
    return beyond, float(np.median(said.error)) / size


@pytest.mark.parametrize("size", [1e-3, 0.3])
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.commit
def test_results_of_inputs_within_their_errors(name: str, size: float, tmp_path: Path) -> None:
    """Small errors grow by no more than what is summed: none of the models has more than 150 products."""
    build, opset = MODELS[name]
    whole = fed(build, tmp_path, opset)
    for layer in whole.layers:
        beyond, growth = judged(replace(whole, layers=(layer,)), size, seed=0)
        assert beyond == 0, layer.name
        assert growth < 100 or size > 0.01, layer.name


def test_a_product_with_errors_in_both_factors() -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 30, 30))
    beyond, growth = judged(by_hand("matmul", [a, b], (30, 30)), 0.5, seed=1)
    assert beyond == 0
    assert growth < 60


def attention(b: ModelBuilder) -> str:
    x = b.input(2, 12, 16)
    x = b.node("LayerNormalization", x, b.weights(16), b.weights(16))
    scores = b.node("MatMul", b.node("MatMul", x, b.weights(16, 16)), b.node("Transpose", x, perm=[0, 2, 1]))
    mixed = b.node("MatMul", b.node("Softmax", scores), b.node("Gelu", b.node("MatMul", x, b.weights(16, 16))))
    return b.node("Add", b.node("Tanh", mixed), x)


@pytest.mark.parametrize("build", [attention, fused])
def test_what_follows_from_values_that_were_not_stored(build: Build, tmp_path: Path) -> None:
    """As verification does it: only the network's inputs are known, every layer is emulated from the one before with
    what its stored halves may be off, and what a run left is within that of the last."""
    known = fed(build, tmp_path, 23, halves=True)
    found = replace(known, values={name: known.values[name] for name in known.graph.inputs}, errors={})
    run = {name: [known.values[name]] * 5 for name in known.graph.inputs}
    for layer in found.layers:
        ops, shape = [known.graph.op_by_name[name] for name in layer.ops], known.graph.by_name[layer.output].shape
        run[layer.output] = []
        for seed in range(5):
            read = {n: single(run[n][seed] if n in run else known.value(n)) for n in layer.inputs(known.graph)}
            run[layer.output].append(
                Careless(np.random.default_rng(seed)).layer(known.graph, ops, read).astype(np.float16)
            )
        sampled = found.sampled(layer)
        numbers, allowed = FRONTEND.evaluate(sampled).numbers.reshape(shape), FRONTEND.allowed(sampled).reshape(shape)
        for left in run[layer.output]:
            assert (np.abs(left.astype(np.float64) - numbers) <= allowed).all(), layer.name
        found.values[layer.output] = numbers.astype(np.float16)
        found.errors[layer.output] = allowed + np.abs(numbers.astype(np.float16) - numbers)
    assert np.median(allowed) < 0.05


def test_what_may_be_anything_is_not_judged() -> None:
    """A divisor that may have either sign, a root of what may be negative."""
    x = np.array([[0.5, 2.0]])
    for kind, operands in (("reciprocal", [x]), ("div", [np.ones((1, 2)), x]), ("sqrt", [x])):
        found = by_hand(kind, operands, (1, 2))
        off = {f"x{len(operands) - 1}": np.full((1, 2), 1.0)}
        allowed = FRONTEND.allowed(replace(found, errors=off).sampled(found.layers[0]))
        assert np.isinf(allowed).tolist() == [True, False]
