"""The inputs that a model is judged on: drawn from a seed, or read from .npz files.

model + seed --reference--> the clearest of several draws, or model + a.npz, b.npz  -->  ({input name: array}, ...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
from onnx import helper

from dsa_sched.io.npz import read_arrays
from dsa_sched.verification.evidence import Array, Feed
from dsa_sched.verification.feed_range import type_warnings
from dsa_sched.verification.onnx_reference import OnnxReference, RefusedInput
from dsa_sched.zoo.meanings.declared_meanings import Range
from hw_models.errors import ModelError

CANDIDATES = 12
"""Number of draws to choose from: an input between two classes says nothing about which of them wins."""

NARROWER = (Range(0, 7), Range(1, 7), Range(1, 3), Range(0, 3), Range(0, 1), Range(1, 1), Range(0, 0))
"""Ranges from which integers are drawn, in this order, where the reference refuses those that seem to be meant."""

LARGEST_ITEM_BYTES = 8
"""Bytes of the largest element of an input, which may come in a wider type than the model's."""


class FeedOptions(Protocol):
    """Number of inputs to draw and their seed, or the files that hold them."""

    @property
    def inputs(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def feeds(self) -> Sequence[Path]: ...


@dataclass(frozen=True, slots=True)
class ChosenInputs:
    """Sets of inputs that the reference accepts. `warnings` are sentences about drawn inputs that it refused, and about
    given arrays that were converted to the model's types.
    """

    feeds: tuple[Feed, ...]
    warnings: tuple[str, ...] = ()


def seeded_or_given(model: onnx.ModelProto, options: FeedOptions) -> ChosenInputs:
    """One set of inputs per file, or `inputs` drawn ones: those of CANDIDATES for which the reference decides most
    clearly which entry of the first output is the largest. `model` has static shapes.

    Inputs that onnxruntime refuses (an index beyond a computed table) are drawn again from fewer integers. Raises
    UserError for a file that cannot be read, ModelError for arrays that are not those of the model's inputs, and where
    no integers are found that the reference accepts.
    """
    if options.feeds:
        return given_inputs(model, options.feeds)
    from dsa_sched.zoo import seeded_inputs

    count, name, refused = max(options.inputs, CANDIDATES), _classes(model), list[str]()
    reference = OnnxReference(model, only=name) if name else None
    for integers in (None, *NARROWER):
        taken, margins, last = [], list[float](), None
        for feed in seeded_inputs(model, count, options.seed, integers):
            try:
                values = reference.values(feed) if reference else {}
            except RefusedInput as error:
                last = error
                continue
            taken.append(feed)
            margins.append(_margin(values[name]) if name else 0.0)
        if last is not None:
            which = "as they seem to be meant" if integers is None else f"from {integers.least:g} to {integers.most:g}"
            refused.append(f"{count - len(taken)} of {count} drawn inputs, integers {which}, were refused: {last.has}")
        if len(taken) >= options.inputs:
            clearest = np.argsort(-np.array(margins), kind="stable")[: options.inputs]
            return ChosenInputs(tuple(taken[number] for number in sorted(clearest)), tuple(refused))
        if last is not None and not _draws_integers(model):
            break
    raise ModelError(
        model.graph.name or "model",
        needs="drawn inputs that onnxruntime accepts",
        has=last.has if last else "none",
        change="give some with --feed, or say what integers mean in the file's metadata_props (docs/verify.md)",
    )


def given_inputs(model: onnx.ModelProto, files: Sequence[Path]) -> ChosenInputs:
    """One set of inputs per file. Raises UserError for a file that cannot be read, ModelError for other arrays."""
    feeds, warnings = list[Feed](), list[str]()
    wanted = _wanted(model)
    dtypes = {name: dtype for name, (_, dtype) in wanted.items()}
    for path in files:
        arrays = _read(path, {name: shape for name, (shape, _) in wanted.items()})
        warnings += type_warnings(dtypes, arrays)
        feeds.append({name: array.astype(dtypes[name]) for name, array in arrays.items()})
    return ChosenInputs(tuple(feeds), tuple(dict.fromkeys(warnings)))


def _draws_integers(model: onnx.ModelProto) -> bool:
    constants = {item.name for item in model.graph.initializer}
    return any(
        helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type).kind in "iu"
        for item in model.graph.input
        if item.name not in constants
    )


def _classes(model: onnx.ModelProto) -> str:
    """The first output, or the input of a final softmax; empty for a model without outputs."""
    if not model.graph.output:
        return ""
    name = model.graph.output[0].name
    producer = next((node for node in model.graph.node if name in node.output), None)
    return str(producer.input[0] if producer is not None and producer.op_type == "Softmax" else name)


def _margin(array: Array) -> float:
    """Margin of the largest entry of a row over the next, in deviations of the row, for the row where it is least; 0
    where there are no two entries.
    """
    if array.ndim < 2 or array[0].size < 2 or array.dtype.kind != "f" or not np.isfinite(array).all():
        return 0.0
    rows = np.sort(array.astype(np.float64).reshape(len(array), -1), axis=1)
    spread = np.maximum(rows.std(axis=1), np.finfo(np.float64).tiny)
    return float(((rows[:, -1] - rows[:, -2]) / spread).min())


def _wanted(model: onnx.ModelProto) -> dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]:
    """Shape and type of each input that is no constant."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return {
        item.name: (
            tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim),
            helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type),
        )
        for item in model.graph.input
        if item.name not in constants
    }


def _read(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The arrays of a file by name, in the order of `shapes`, which they must have. Raises UserError, ModelError."""
    arrays = read_arrays(path, sum(prod(shape) * LARGEST_ITEM_BYTES for shape in shapes.values()))
    if {name: array.shape for name, array in arrays.items()} != shapes:
        has = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        needs = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise ModelError(str(path), needs=f"the arrays {needs}", has=has or "none")
    return {name: np.asarray(arrays[name]) for name in shapes}
