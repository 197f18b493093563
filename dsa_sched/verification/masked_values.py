"""Values that a mask was added to or that it chose: numbers beyond the device's type are compared as its largest.

    scores + mask, masks of -3.4e38 in the file, -65504 on the device  -->  "scores" and what only moves them
    absent x -3.4e38, where absent is 0 or 1  -->  the mask, and what it is added to

A file masks with numbers that no narrower type has, so that a Softmax makes zeros of them; on the device they are the
largest fp16 number or an infinity. Which of the two says nothing about the network. The same goes for values of which
the reference itself has finite numbers beyond the type's range: only the end of the range can be stored for them.
Operators that read them are judged by what the reference makes of the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Graph
from partitioner.ir.operators import REARRANGING, kind_names

Array = npt.NDArray[np.generic]

MASKING = frozenset(["add", "sub", "max", "min"])
"""Kinds that put a mask on a value."""
MAKING = MASKING | {"mul"}
"""Kinds that make a mask from such a constant."""
CARRYING = MASKING | kind_names(*REARRANGING)
"""Kinds whose result is masked if an operand is."""


def masked_values(graph: Graph, constants: Mapping[str, Array]) -> frozenset[str]:
    """Names of the values, by constants that hold the largest number of their type or an infinity."""
    masks = {
        tensor.name
        for tensor in graph.tensors
        if tensor.constant and constants[tensor.constant].dtype.kind == "f" and _masks(constants[tensor.constant])
    }
    found: set[str] = set()
    for op in graph.ops:
        put_on = op.kind in MAKING and masks.intersection(op.inputs)
        if put_on or (op.kind in CARRYING and found.intersection(op.inputs)):
            found.update(op.outputs)
    return frozenset(found)


def _masks(array: Array) -> bool:
    numbers = np.abs(array.astype(np.float64))
    return bool((numbers[~np.isnan(numbers)] >= float(np.finfo(str(array.dtype)).max)).any())


def held_in_range(array: Array, dtype: str) -> Array:
    """The numbers, with infinities and those beyond a type's range replaced by its ends."""
    largest = float(np.finfo(dtype).max)
    with np.errstate(invalid="ignore"):  # of NaN as the device has it
        return np.clip(array.astype(np.float64), -largest, largest)


def leaves_range(array: Array, dtype: str) -> bool:
    """Whether finite numbers are beyond the range of a floating-point type."""
    if array.dtype.kind != "f" or np.dtype(dtype).kind != "f":
        return False
    return bool((np.isfinite(array) & (np.abs(array) > float(np.finfo(dtype).max))).any())
