"""A stage on the host's processor, by onnxruntime: it computes every operator of ONNX as the reference does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.network.shapes import first_line
from hw_models.errors import ModelError

Array = npt.NDArray[np.generic]


def run_on_host(model: onnx.ModelProto, feed: Mapping[str, Array]) -> dict[str, Array]:
    """All outputs of a stage, by their names. Raises ModelError with onnxruntime's own message."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    names = [item.name for item in model.graph.output]
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return dict(zip(names, session.run(names, dict(feed)), strict=True))
    except Exception as error:  # onnxruntime has a separate class for each reason
        raise ModelError(
            "stage on the host", needs="operators that onnxruntime can run", has=first_line(error)
        ) from error
