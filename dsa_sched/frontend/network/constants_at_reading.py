"""Constants of a file before its constants are folded: stored ones, and those of a few exact operators.

    Constant, Identity(initializer), Reciprocal(scale), Unsqueeze(scales)  -->  arrays

All of these operators are rounded correctly or not at all, so that every runtime has the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dsa_sched.frontend.network.network import array_of

Array = npt.NDArray[np.generic]

MOST_DEPTH = 16
"""Largest number of operators between a stored constant and a computed one."""


class StoredConstants:
    """Constants of a model by name, computed when they are asked for."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._made = {name: node for node in model.graph.node for name in node.output[:1]}
        self._known: dict[str, Array | None] = {}

    def get(self, name: str, depth: int = MOST_DEPTH) -> Array | None:
        """The array of a constant; None for values, and for what other operators make of constants."""
        if name not in self._known:
            self._known[name] = self._array(name, depth)
        return self._known[name]

    def _array(self, name: str, depth: int) -> Array | None:
        if name in self._tensors:
            return array_of(self._tensors[name])
        node = self._made.get(name)
        if node is None or not depth or node.domain not in ("", "ai.onnx"):
            return None
        attributes = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type == "Constant":
            return array_of(attributes["value"].t) if "value" in attributes else _literal(attributes)
        if node.op_type not in EXACT or not all(node.input):
            return None
        operands = [self.get(operand, depth - 1) for operand in node.input]
        known = [operand for operand in operands if operand is not None]
        if not known or len(known) < len(operands):
            return None
        try:
            with np.errstate(all="ignore"):
                result = np.asarray(EXACT[node.op_type](*known))
        except (TypeError, ValueError, IndexError):  # operands that do not fit are refused later, in words
            return None
        return result if result.size <= max(operand.size for operand in known) else None


def _literal(attributes: Mapping[str, onnx.AttributeProto]) -> Array | None:
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        if name in attributes:
            return np.asarray(helper.get_attribute_value(attributes[name]), dtype)
    return None


def _unsqueezed(x: Array, axes: Array) -> Array:
    return np.expand_dims(x, tuple(int(axis) for axis in axes.reshape(-1)))


def _reshaped(x: Array, shape: Array) -> Array:
    extents = [int(extent) for extent in shape.reshape(-1)]
    return x.reshape([x.shape[axis] if extent == 0 else extent for axis, extent in enumerate(extents)])


def _reciprocal(x: Array) -> Array:
    if x.dtype != np.float32:
        raise TypeError(x.dtype)
    return np.asarray(np.divide(np.ones((), np.float32), x.astype(np.float32)))


def _floating(function: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    def computed(a: Array, b: Array) -> Array:
        if a.dtype != np.float32 or b.dtype != np.float32 or np.broadcast_shapes(a.shape, b.shape) not in (
            a.shape, b.shape,
        ):  # fmt: skip
            raise TypeError(a.dtype)
        return np.asarray(function(a, b))

    return computed


EXACT: Mapping[str, Callable[..., Array]] = {
    "Identity": lambda x: x,
    "Neg": np.negative,
    "Abs": np.abs,
    "Reciprocal": _reciprocal,
    "Mul": _floating(np.multiply),
    "Div": _floating(np.divide),
    "Unsqueeze": _unsqueezed,
    "Reshape": _reshaped,
}
"""Operators, and what computes them."""
