"""The inputs that a model is judged on: drawn from a seed, or read from .npz files.

model + seed, or model + a.npz, b.npz  -->  ({input name: array}, ...)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
from onnx import helper

from dsa_sched.arrays import read_arrays
from dsa_sched.evidence import Feed
from hw_models.errors import ModelError

__all__ = ["FeedOptions", "seeded_or_given"]

LARGEST_ITEM_BYTES = 8
"""Inputs may come in a wider type than the model's."""


class FeedOptions(Protocol):
    """How many inputs are drawn with which seed, or the files that hold them."""

    @property
    def inputs(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def feeds(self) -> Sequence[Path]: ...


def seeded_or_given(model: onnx.ModelProto, options: FeedOptions) -> tuple[Feed, ...]:
    """One set of inputs a file, or `inputs` drawn ones. `model` has static shapes.

    Raises UserError for a file that cannot be read, ModelError for arrays that are not those of the model's inputs.
    """
    if options.feeds:
        return tuple(_read(model, path) for path in options.feeds)
    from dsa_sched.zoo import seeded_inputs

    return tuple(seeded_inputs(model, options.inputs, options.seed))


def _read(model: onnx.ModelProto, path: Path) -> Feed:
    constants = {tensor.name for tensor in model.graph.initializer}
    wanted = {
        item.name: (
            tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim),
            helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type),
        )
        for item in model.graph.input
        if item.name not in constants
    }
    arrays = read_arrays(path, sum(prod(shape) * LARGEST_ITEM_BYTES for shape, _ in wanted.values()))
    needed = {name: shape for name, (shape, _) in wanted.items()}
    if {name: array.shape for name, array in arrays.items()} != needed:
        has = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        needs = ", ".join(f"{name} {list(shape)}" for name, shape in needed.items())
        raise ModelError(str(path), needs=f"the arrays {needs}", has=has or "none")
    return {name: np.asarray(arrays[name]).astype(dtype) for name, (_, dtype) in wanted.items()}
