"""What may be stored: no honest kernel is beyond what is allowed, and little that is wrong is within it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codegen.judgement import Doubles
from partitioner.ir.layers import Layer
from tests.codegen.cutlass.reference.fed_layers import FRONTEND, Fed, fed
from tests.codegen.cutlass.reference.models import MODELS
from tests.codegen.cutlass.reference.single_precision import Careless, single


def stored(found: Fed, layer: Layer, seed: int) -> Doubles:
    """The halves that a careless kernel leaves, at all points."""
    ops = [found.graph.op_by_name[name] for name in layer.ops]
    read = {
        name: np.asarray(value, np.float32) if value.dtype.kind == "f" else value
        for op in ops
        for name, value in zip(op.inputs, _known(found, op), strict=True)
        if value is not None
    }
    result = Careless(np.random.default_rng(seed)).layer(found.graph, ops, read)
    return np.asarray(single(result).astype(np.float16), np.float64).reshape(-1)


def _known(found: Fed, op):
    tensors = (found.graph.by_name[name] for name in op.inputs)
    return [found.constants[t.constant] if t.constant else found.values.get(t.name) for t in tensors]


@pytest.mark.parametrize("name", MODELS)
def test_sums_in_any_order_and_functions_by_others_are_allowed(name: str, tmp_path: Path) -> None:
    build, opset = MODELS[name]
    found = fed(build, tmp_path, opset, halves=True)
    for layer in found.layers:
        sampled = found.sampled(layer)
        numbers, allowed = FRONTEND.evaluate(sampled).numbers, FRONTEND.allowed(sampled)
        for seed in range(5):
            apart = np.abs(stored(found, layer, seed) - numbers)
            assert (apart <= allowed).all(), (layer.name, (apart - allowed).max())


def steps_away(halves: Doubles, steps: int) -> Doubles:
    """So many halves farther from zero."""
    bits = halves.astype(np.float16).view(np.uint16) + np.uint16(steps)
    return bits.view(np.float16).astype(np.float64)


@pytest.mark.parametrize("name", MODELS)
def test_three_half_steps_are_not_allowed(name: str, tmp_path: Path) -> None:
    """Two steps from what rounding gives are three halves of one from the number at least. Only next to zero, where
    a sum cancels or a curve starts at a difference of ones, the error of fp32 is as large as that."""
    build, opset = MODELS[name]
    found = fed(build, tmp_path, opset, halves=True)
    for layer in found.layers:
        sampled = found.sampled(layer)
        numbers, allowed = FRONTEND.evaluate(sampled).numbers, FRONTEND.allowed(sampled)
        halves = np.asarray(numbers.astype(np.float16), np.float64)
        apart = np.abs(steps_away(halves, 2) - numbers)
        small = np.abs(numbers) < 2.0**-5
        assert (apart > allowed)[~small].all(), layer.name
