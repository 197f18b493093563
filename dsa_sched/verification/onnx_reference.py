"""The reference of every verdict: the user's original ONNX file in onnxruntime, every intermediate value an output.

    original ModelProto + one input --onnxruntime, float32, no optimisation--> {value name: array}

Integers of quantised networks are computed exactly (`exact_integers.py`), not as the runtime fuses them.
Our simplified network is never used: a wrong rewrite must show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dsa_sched.verification.exact_integers import with_exact_integers
from hw_models.errors import ModelError

if TYPE_CHECKING:
    import onnx

Array = npt.NDArray[np.generic]


class RefusedInput(ModelError):
    """onnxruntime computes the network, but not for these inputs."""


class OnnxReference:
    """A session over the original model, for every value, or with `only` for the outputs and that value. `values` may
    be called from several threads."""

    def __init__(self, source: onnx.ModelProto, threads: int = 0, only: str = "") -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        if not only:  # fused operators would lose the values between them
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        model = _with_more(
            with_exact_integers(source),
            [only] if only else [name for node in source.graph.node for name in node.output],
        )
        self._who = source.graph.name or "model"
        try:
            self._session: Any = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has a separate class for each reason
            raise ModelError(
                source.graph.name or "model", needs="a model that onnxruntime can run", has=str(error).splitlines()[0]
            ) from error
        self._names = [output.name for output in self._session.get_outputs()]

    def values(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Every value of the network for these inputs, including the inputs themselves. Raises RefusedInput for inputs
        that onnxruntime does not accept, such as an index beyond its table.
        """
        try:
            found = self._session.run(self._names, dict(inputs))
        except Exception as error:  # onnxruntime has a separate class for each reason
            raise RefusedInput(
                self._who, needs="inputs for which onnxruntime computes the network", has=_reason(error),
                change="give inputs that the network is meant for with --feed, or say what integers mean in the file's "
                "metadata_props (docs/verify.md)",
            ) from error  # fmt: skip
        return dict(inputs) | dict(zip(self._names, found, strict=True))


def _reason(error: Exception) -> str:
    """onnxruntime's reason, without the words that it puts around it."""
    lines = str(error).splitlines() or [type(error).__name__]
    words = lines[0].split("Status Message:")
    node = words[0].split("Name:")[-1].strip() if len(words) > 1 else ""
    return f"{node}: {words[-1].strip()}" if node else lines[0].strip()


def _with_more(source: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """A copy in which these values are outputs too."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(source)
    known = {output.name for output in model.graph.output}
    fresh = dict.fromkeys(name for name in names if name and name not in known)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in fresh)
    return model
