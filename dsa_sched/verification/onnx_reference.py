"""The reference of every verdict: the user's original ONNX file in onnxruntime, every intermediate value an output.

    original ModelProto + one input --onnxruntime, float32, no optimisation--> {value name: array}

Never our simplified network: a rewrite of ours that is wrong must show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hw_models.errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = ["Reference"]

Array = npt.NDArray[np.generic]


class Reference:
    """A session over the original model, for every value or for `only` one. `values` may be called from several
    threads."""

    def __init__(self, source: onnx.ModelProto, threads: int = 0, only: str = "") -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        if not only:  # fused operators would lose the values between them
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        model = _with_only(source, only) if only else _with_every_value(source)
        try:
            self._session: Any = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has a class of its own for each reason
            raise ModelError(
                source.graph.name or "model", needs="a model that onnxruntime can run", has=str(error).splitlines()[0]
            ) from error
        self._names = [output.name for output in self._session.get_outputs()]

    def values(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Every value of the network for these inputs, the inputs themselves too."""
        return dict(inputs) | dict(zip(self._names, self._session.run(self._names, dict(inputs)), strict=True))


def _with_only(source: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """A copy with one value as its output."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(source)
    del model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name=name))
    return model


def _with_every_value(source: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose outputs are all values that its nodes compute."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(source)
    known = {output.name for output in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                known.add(name)
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    return model
