"""Are the outputs of a random model near those of onnxruntime? As near as half precision lets anyone judge.

    model, feed --float32--> exact;  --every value rounded to float16--> rounded;  ours  -->  far | near | no statement

The distance of `rounded` to `exact` is what rounding alone does to a model: where it is a good part of the result there
is nothing to say, and elsewhere an operator of ours, which rounds some times inside, may make some times that.
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
    found = []
    for item in model.graph.output:
        exact = values[item.name].astype(np.float64)
        result = ours[item.name].astype(np.float64)
        assert result.shape == exact.shape, item.name
        norm = float(np.linalg.norm(exact))
        noise = float(np.linalg.norm(rounded[item.name].astype(np.float64) - exact))
        limit = max(RELATIVE * norm, ABSOLUTE * exact.size**0.5, ROUNDINGS * noise)
        clear = in_range and noise <= WORTH * norm
        found.append(Judgement(item.name, float(np.linalg.norm(result - exact)), limit if clear else None))
    return tuple(found)
