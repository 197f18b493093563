"""Chosen values of a network, computed by onnxruntime in float32 without any fusion.

    ModelProto, names + one input set  -->  {name: array}

Nothing is fused, so that a quantised network computes what its nodes say: QuantizeLinear rounds, the operators between
compute on numbers. Kernels on integers, which onnxruntime may use otherwise, saturate on some processors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from hw_models.errors import ModelError

AnyArray = npt.NDArray[np.generic]
InputSet = Mapping[str, AnyArray]
"""Input name -> array in ONNX layout."""


class NetworkSession:
    """A network of which onnxruntime computes the values `names`, and no others. Raises ModelError for a network or
    inputs that it refuses."""

    def __init__(self, model: onnx.ModelProto, names: Iterable[str]) -> None:
        import onnxruntime

        self._who = model.graph.name or "model"
        self._names = list(dict.fromkeys(names))
        shown = onnx.ModelProto()
        shown.CopyFrom(model)
        del shown.graph.output[:]
        shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in self._names)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        try:
            self._session: Any = onnxruntime.InferenceSession(
                shown.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has a separate class for each reason
            raise ModelError(self._who, needs="a model that onnxruntime can run", has=_first(error)) from error

    def run(self, inputs: InputSet) -> dict[str, AnyArray]:
        """The values for one input set. Raises ModelError for inputs that onnxruntime refuses."""
        try:
            found = self._session.run(self._names, dict(inputs))
        except Exception as error:  # onnxruntime has a separate class for each reason
            raise ModelError(
                self._who, needs="inputs for which onnxruntime computes the network", has=_first(error)
            ) from error
        return dict(zip(self._names, found, strict=True))


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
