"""Are the outputs of a random model near those of onnxruntime? As near as half precision lets anyone judge.

    model, feed --float32--> exact;  --every value rounded to float16--> rounded;  ours  -->  far | near | no statement

The distance of `rounded` to `exact` is what rounding alone does to a model: where it is a good part of the result there
is nothing to say, and elsewhere an operator of ours, which rounds some times inside, may make some times that. Elements
at a jump, a comparison of nearly equal values, are left out: those that inputs nudged by a few roundings move far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper

from tests.fuzz.draft import FLOAT

__all__ = ["Judgement", "judge", "reference", "rounded_model"]

Array = npt.NDArray[np.generic]
RELATIVE, ABSOLUTE = 3e-2, 1e-2
ROUNDINGS = 10
"""The most values that an operator of ours rounds on the way to its result: a LayerNormalization's."""
LARGEST = 30_000.0
"""Values of more than this may leave the range of float16 inside an operator."""
WORTH = 0.1
"""Where rounding moves a result by more than this part of it, nothing is said."""
NUDGES = (1 + 2.0**-8, 1 - 2.0**-8)
"""Factors of the inputs: some roundings of float16, as an operator of ours makes them."""
JUMP = 0.25
"""An element that a nudge moves by more than this part of the output's largest is at a jump."""
MOST_AT_JUMPS = 0.05
"""Where more than this share of an output's elements are at a jump, nothing is said."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of one output: how far from the reference, how far it may be; `limit` is None where nothing can be said."""

    name: str
    distance: float
    limit: float | None

    @property
    def far(self) -> bool:
        return self.limit is not None and not self.distance <= self.limit


def reference(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by onnxruntime, without its optimisations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [item.name for item in model.graph.output]
    given = {item.name for item in model.graph.input}
    return dict(zip(names, session.run(names, {name: inputs[name] for name in given}), strict=True))


def rounded_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float32 value that a node computes rounded to float16, for all that read it."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {item.name: item.type.tensor_type.elem_type for item in (*inferred.value_info, *inferred.output)}
    del result.graph.node[:]
    for node in model.graph.node:
        made = result.graph.node.add()
        made.CopyFrom(node)
        if not any(node.input):
            continue
        for position, name in enumerate(node.output):
            if types.get(name) == FLOAT:
                made.output[position] = f"{name}::exact"
                half = helper.make_node("Cast", [f"{name}::exact"], [f"{name}::half"], to=TensorProto.FLOAT16)
                back = helper.make_node("Cast", [f"{name}::half"], [name], to=FLOAT)
                result.graph.node.extend([half, back])
    return result


def judge(model: onnx.ModelProto, feed: Mapping[str, Array], ours: Mapping[str, Array]) -> tuple[Judgement, ...]:
    """Each output of the model, in order."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    every.graph.output.extend(item for item in inferred.value_info if item.type.tensor_type.elem_type == FLOAT)
    values = reference(every, feed)
    in_range = all(bool(np.all(np.abs(value.astype(np.float64)) <= LARGEST)) for value in values.values())
    rounded = reference(rounded_model(model), feed)
    nudged = [reference(model, {name: _nudged(value, by) for name, value in feed.items()}) for by in NUDGES]
    found = []
    for item in model.graph.output:
        exact = values[item.name].astype(np.float64)
        result = ours[item.name].astype(np.float64)
        assert result.shape == exact.shape, item.name
        steady = _steady(exact, [moved[item.name].astype(np.float64) for moved in nudged])
        norm = float(np.linalg.norm(exact))
        noise = float(np.linalg.norm((rounded[item.name].astype(np.float64) - exact)[steady]))
        limit = max(RELATIVE * norm, ABSOLUTE * exact.size**0.5, ROUNDINGS * noise)
        clear = in_range and noise <= WORTH * norm and np.count_nonzero(~steady) <= MOST_AT_JUMPS * exact.size
        found.append(Judgement(item.name, float(np.linalg.norm((result - exact)[steady])), limit if clear else None))
    return tuple(found)


def _nudged(value: Array, factor: float) -> Array:
    return (value.astype(np.float64) * factor).astype(value.dtype) if np.issubdtype(value.dtype, np.floating) else value


def _steady(exact: npt.NDArray[np.float64], nudged: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.bool_]:
    """The elements that are not at a jump."""
    far = JUMP * float(np.max(np.abs(exact), initial=0.0))
    steady = np.ones(exact.shape, np.bool_)
    for moved in nudged:
        steady &= ~(np.abs(moved - exact) > far)
    return steady
