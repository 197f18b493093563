"""The inputs that a model is judged on: drawn from a seed, or read from .npz files.

model + seed --reference--> the clearest of several draws, or model + a.npz, b.npz  -->  ({input name: array}, ...)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
from onnx import helper

from dsa_sched.io.npz import read_arrays
from dsa_sched.verification.evidence import Array, Feed
from dsa_sched.verification.onnx_reference import Reference
from hw_models.errors import ModelError

__all__ = ["FeedOptions", "seeded_or_given"]

CANDIDATES = 12
"""Draws to choose from: an input between two classes says nothing about which of them wins."""

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
    """One set of inputs a file, or `inputs` drawn ones: those of CANDIDATES for which the reference decides most
    clearly which entry of the first output is the largest. `model` has static shapes.

    Raises UserError for a file that cannot be read, ModelError for arrays that are not those of the model's inputs.
    """
    if options.feeds:
        return tuple(_read(model, path) for path in options.feeds)
    from dsa_sched.zoo import seeded_inputs

    drawn = seeded_inputs(model, max(options.inputs, CANDIDATES), options.seed)
    name = _classes(model)
    if len(drawn) == options.inputs or not name:
        return tuple(drawn[: options.inputs])
    values = Reference(model, only=name)
    margins = np.array([_margin(values.values(feed)[name]) for feed in drawn])
    clearest = np.argsort(-margins, kind="stable")[: options.inputs]
    return tuple(drawn[number] for number in sorted(clearest))


def _classes(model: onnx.ModelProto) -> str:
    """The first output, or what a final softmax makes it of; empty for a model without outputs."""
    if not model.graph.output:
        return ""
    name = model.graph.output[0].name
    producer = next((node for node in model.graph.node if name in node.output), None)
    return str(producer.input[0] if producer is not None and producer.op_type == "Softmax" else name)


def _margin(array: Array) -> float:
    """By how many deviations of a row the largest entry exceeds the next, in the row where it is least; 0 where there
    are no two entries."""
    if array.ndim < 2 or array[0].size < 2 or array.dtype.kind != "f" or not np.isfinite(array).all():
        return 0.0
    rows = np.sort(array.astype(np.float64).reshape(len(array), -1), axis=1)
    spread = np.maximum(rows.std(axis=1), np.finfo(np.float64).tiny)
    return float(((rows[:, -1] - rows[:, -2]) / spread).min())


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
