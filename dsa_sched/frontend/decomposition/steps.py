"""Integers that are computed at run time, and lines of truth values that hold before such an integer.

    Steps(n), a line of 5    -->    n = 2: 1 1 0 0 0      n < 1: 0 0 0 0 0      n > 4: 1 1 1 1 1

A line is one row of a constant table, looked up by the integer (`integers/preparation.py`), whatever its length. Where
the integers are constants, so is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.network.chain import Chain, Shape
from dsa_sched.frontend.network.network import STEPS

BOOL, INT64 = int(onnx.TensorProto.BOOL), int(onnx.TensorProto.INT64)
Integers = npt.NDArray[np.int64]

FUNCTIONS: Mapping[str, Callable[[Integers, Integers], npt.NDArray[np.generic]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Min": np.minimum,
    "Max": np.maximum,
    "Equal": np.equal,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
}
LOGIC: Mapping[str, Callable[..., npt.NDArray[np.bool_]]] = {
    "Not": np.logical_not,
    "And": np.logical_and,
    "Or": np.logical_or,
}
TRUTHS = frozenset(["Equal", "Less", "GreaterOrEqual"])


def integers(chain: Chain, op_type: str, a: str, b: str | int | Integers) -> str:
    """A function of two integer values, or of one and constants; a constant where both are."""
    if not isinstance(b, str):
        b = chain.array(np.asarray(b, np.int64), None)
    known = [_known(chain, name) for name in (a, b)]
    if known[0] is not None and known[1] is not None:
        return chain.array(FUNCTIONS[op_type](known[0], known[1]), None)
    return chain.add(op_type, a, b, dtype=BOOL if op_type in TRUTHS else INT64)


def shaped(chain: Chain, x: str, *shape: int) -> str:
    """Integers in another shape."""
    known = _known(chain, x)
    if known is not None:
        return chain.array(known.reshape(shape), None)
    return chain.add("Reshape", x, shape=shape, dtype=INT64)


def steps(chain: Chain, bounds: str, width: int) -> str:
    """Lines of `width` truth values, which replace the last axis of the bounds, of one element: place < bound."""
    shape: Shape = (*chain.shape(bounds)[:-1], width)
    known = _known(chain, bounds)
    if known is not None:
        return chain.array(np.arange(width) < known, None)
    return chain.add(STEPS, bounds, shape=shape, dtype=BOOL)


def truths(chain: Chain, op_type: str, *operands: str) -> str:
    """Not, And or Or of truth values; a constant where all are."""
    known = [_known(chain, name) for name in operands]
    if all(each is not None for each in known):
        return chain.array(LOGIC[op_type](*(np.asarray(each, np.bool_) for each in known)), None)
    return chain.add(op_type, *operands, dtype=BOOL)


def _known(chain: Chain, name: str) -> Integers | None:
    constant = chain.constants.get(name, chain.network.constants.get(name))
    return None if constant is None else constant.astype(np.int64)
