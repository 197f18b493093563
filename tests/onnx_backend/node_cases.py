"""ONNX's own node tests as inputs for this compiler: models, data and what they should give.

    onnx.backend.test  -->  NodeCase(name, model, inputs, expected)  --bind-->  model with constants where we need them

The cases are made by the installed onnx, in this process; expected values are ONNX's, computed by its reference code.
Node tests give everything as an input of the graph, axes and weights too. A network has those as constants, so the
tests bind them: integers, truth values and texts always; everything but the first input where the operator is refused
otherwise (weights of a convolution, statistics of a normalisation).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

__all__ = ["NodeCase", "bind", "node_cases", "parameters"]

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class NodeCase:
    """One model with its first data set. Values that are no arrays (sequences, optionals, texts) are None."""

    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, Array | None]
    expected: Mapping[str, Array | None]


def node_cases() -> tuple[NodeCase, ...]:
    """All node tests of the installed onnx, sorted by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference code divides by zero and overflows on purpose
        cases = load_model_tests(kind="node")
    made = [_case(c.name, c.model, c.data_sets[0]) for c in cases if c.model is not None and c.data_sets]
    return tuple(sorted(made, key=lambda case: case.name))


def _case(name: str, model: onnx.ModelProto, data: tuple[Iterable[object], Iterable[object]]) -> NodeCase:
    inputs, outputs = data
    return NodeCase(
        name,
        model,
        {item.name: _array(value) for item, value in zip(model.graph.input, inputs, strict=False)},
        {item.name: _array(value) for item, value in zip(model.graph.output, outputs, strict=False)},
    )


def _array(value: object) -> Array | None:
    match value:
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case np.ndarray() | np.generic():
            array = np.asarray(value)
            return array if array.dtype.kind in "biufV" else None
    return None


def parameters(case: NodeCase, every: bool) -> tuple[str, ...]:
    """Inputs to bind as constants: those that hold no floating-point numbers; with `every`, all but the first."""
    names = list(case.inputs)
    integers = [name for name in names if (value := case.inputs[name]) is not None and value.dtype.kind in "biu"]
    return tuple(name for name in names if name in integers or (every and name != names[0]))


def bind(case: NodeCase, names: tuple[str, ...]) -> onnx.ModelProto:
    """The case's model with the named inputs as initialisers."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    kept = [item for item in case.model.graph.input if item.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    for name in names:
        value = case.inputs[name]
        assert value is not None
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model
