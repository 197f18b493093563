"""The reference rounded to the stored type: the floor below which no error says anything.

original ModelProto + the reference's values --rounded network in onnxruntime-->  {value name: array}
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from dsa_sched.verification.rounded_network import Array, RoundedNetwork, Values, given, narrowed
from hw_models.errors import ModelError


class RoundedReference:
    """A session over the network rounded to the type `stored`, for the `wanted` values of those that inputs change.
    `values` may be called from several threads. Both raise ModelError where onnxruntime cannot run it."""

    def __init__(
        self,
        source: onnx.ModelProto,
        exact: Values,
        wanted: frozenset[str],
        stored: str,
        cut: frozenset[str] = frozenset(),
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        self._source, self._stored = source, stored
        draft = RoundedNetwork(source, exact, cut, stored)
        model, self._names = draft.model(wanted)
        if not self._names:
            return
        try:
            self._session: Any = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has a separate class for each reason
            raise _unusable(source, error) from error
        self._given = {item.name for item in self._session.get_inputs()}

    def values(self, exact: Values, together: int = 0) -> dict[str, Array]:
        """The wanted values for the inputs in `exact`, which also holds the values given at the cuts. With `together`
        all elements are moved up, by 1, or down, by -1, as elements of neighbours that are alike move together.
        """
        if not self._names:
            return {}
        feed = {name: narrowed(array, self._stored) for name, array in exact.items() if name in self._given}
        given_here = {given(name): array for name, array in exact.items() if given(name) in self._given}
        feed |= {name: narrowed(array, self._stored) for name, array in given_here.items()}
        feed |= {name: np.array(together, name.split("::")[-1]) for name in self._given - feed.keys()}
        names = list(self._names.values())
        try:
            return dict(zip(self._names, self._session.run(names, feed), strict=True))
        except Exception as error:
            raise _unusable(self._source, error) from error


def _unusable(source: onnx.ModelProto, error: Exception) -> ModelError:
    """A value may have a name that a rounded one has here, or the runtime no kernel for an operator of the errors."""
    return ModelError(
        source.graph.name or "model", needs="values that can be rounded in onnxruntime", has=str(error).splitlines()[0]
    )
