"""Inputs of other sizes than the drawn ones, on which the outputs of the compiled program are judged too.

    two drawn inputs  -->  times 2^-10, times 2^7, a row of zeros, zeros, integers to 32,767

Real inputs are not normally distributed numbers: audio comes as integers up to 32,767, images have black parts, and a
network that is right for numbers around one may leave the range of fp16 on the way for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from dsa_sched.verification.evidence import Array, Feed
from dsa_sched.zoo import seeded_inputs
from dsa_sched.zoo.meanings.declared_meanings import MaskMeaning, Meaning, Range, declared_meanings
from dsa_sched.zoo.meanings.inferred_meanings import inferred_meanings

SMALL, LARGE = -10, 7
"""Powers of two by which drawn floating-point inputs are multiplied."""

LARGEST_INTEGER = 32_767
"""Largest 16-bit integer, as in audio; no 16-bit floating-point type has it exactly, but it is inside their range."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """A kind of extreme inputs, described in words; the input that is run, and another of the kind that tells how far
    apart outputs of such inputs are.
    """

    label: str
    feed: Feed
    other: Feed
    zeros: bool = False
    """Whether the inputs are special because some of them are zero."""


def extreme_inputs(model: onnx.ModelProto, drawn: Sequence[Feed], seed: int) -> tuple[Extreme, ...]:
    """Extreme inputs of each kind that the model has. `drawn` holds at least two inputs of ordinary size."""
    declared = declared_meanings(model)
    said = inferred_meanings(model) | declared
    names = {name for name, array in drawn[0].items() if array.dtype.kind == "f" and array.size}
    found: list[Extreme] = []
    if names:
        for power in (SMALL, LARGE):
            one, other = (_scaled(feed, names, 2.0**power, declared) for feed in drawn[:2])
            found.append(Extreme(f"inputs times 2^{power}", one, other))
        if any(_row_axis(drawn[0][name].shape) is not None for name in names):
            found.append(Extreme("a row of zeros", _with(drawn[0], names, _half_zero), drawn[1], zeros=True))
        found.append(Extreme("inputs of zeros", _with(drawn[0], names, np.zeros_like), drawn[1], zeros=True))
    if free := _free_integers(model, said, declared):
        most = min(LARGEST_INTEGER, *free.values())
        large = seeded_inputs(model, 2, seed, Range(0, most))
        one, other = (
            {name: new[name] if name in free else old[name] for name in old}
            for old, new in zip(drawn, large, strict=False)
        )
        found.append(Extreme(f"integers to {most:,}", one, other))
    return tuple(found)


def _free_integers(model: onnx.ModelProto, said: dict[str, Meaning], declared: dict[str, Meaning]) -> dict[str, int]:
    """Integer inputs about which nothing is known, with the largest number of their type. Those of 8 and 16 bits are
    samples of sounds and pictures, even where a Cast makes them look like masks.
    """
    kinds = {item.name: helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type) for item in model.graph.input}
    constants = {tensor.name for tensor in model.graph.initializer}
    return {
        name: int(np.iinfo(dtype).max)
        for name, dtype in kinds.items()
        if dtype.kind in "iu"
        and name not in constants
        and (name not in said or (dtype.itemsize <= 2 and isinstance(said[name], MaskMeaning) and name not in declared))
    }


def _scaled(feed: Feed, names: set[str], factor: float, declared: dict[str, Meaning]) -> Feed:
    def scaled(name: str, array: Array) -> Array:
        made = array.astype(np.float64) * factor
        meaning = declared.get(name)
        if isinstance(meaning, Range):
            made = np.clip(made, meaning.least, meaning.most)
        return made.astype(array.dtype)

    return {name: scaled(name, array) if name in names else array for name, array in feed.items()}


def _with(feed: Feed, names: set[str], change: Callable[[Array], Array]) -> Feed:
    return {name: change(array) if name in names else array for name, array in feed.items()}


def _half_zero(array: Array) -> Array:
    """Zeros in the second half of the last axis but one that has several places; all zeros where there is none."""
    axis = _row_axis(array.shape)
    made = np.zeros_like(array)
    if axis is not None:
        kept = (slice(None),) * axis + (slice(0, (array.shape[axis] + 1) // 2),)
        made[kept] = array[kept]
    return made


def _row_axis(shape: tuple[int, ...]) -> int | None:
    """The last axis of several places before the rows."""
    return next((axis for axis in range(len(shape) - 2, -1, -1) if shape[axis] > 1), None)
