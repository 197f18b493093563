"""What inputs are off is counted: of whatever lies within their errors the result lies within that of the numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.judgement import Doubles
from tests.codegen.cutlass.reference.fed_layers import FRONTEND, Fed, by_hand, fed
from tests.codegen.cutlass.reference.models import MODELS
from tests.dsa_sched.frontend.numpy_graph import evaluate

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


def test_what_may_be_anything_is_not_judged() -> None:
    """A divisor that may have either sign, a root of what may be negative."""
    x = np.array([[0.5, 2.0]])
    for kind, operands in (("reciprocal", [x]), ("div", [np.ones((1, 2)), x]), ("sqrt", [x])):
        found = by_hand(kind, operands, (1, 2))
        off = {f"x{len(operands) - 1}": np.full((1, 2), 1.0)}
        allowed = FRONTEND.allowed(replace(found, errors=off).sampled(found.layers[0]))
        assert np.isinf(allowed).tolist() == [True, False]
