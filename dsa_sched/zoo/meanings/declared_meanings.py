"""Meanings of inputs that a model file declares, so that they are drawn as intended.

    Indices((30522,)) of input_ids  <-->  metadata_props of the model file: dsa-sched.input.input_ids = indices 30522

A user's own file may declare it in the same words.

    indices N         from 0 to N - 1
    indices N, M, ... the same, each place along the last axis with its own bound
    mask              ones and then zeros along the last axis, at least one 1: content and then padding
    lengths N         from 1 to N
    range LOW HIGH    numbers from LOW to HIGH, both included: of integers, and of floating-point inputs too
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, isfinite

import numpy as np
import numpy.typing as npt
import onnx

from hw_models.errors import ModelError

KEY = "dsa-sched.input."
MOST_PLACES = 4096
MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Indices:
    """`below` is one bound for all, or one for each place along the last axis."""

    below: tuple[int, ...]

    def __str__(self) -> str:
        return "indices " + ", ".join(map(str, self.below))


@dataclass(frozen=True, slots=True)
class MaskMeaning:
    """Ones where there is something, then zeros."""

    def __str__(self) -> str:
        return "mask"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths from 1 to `most`."""

    most: int

    def __str__(self) -> str:
        return f"lengths {self.most}"


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `least` to `most`."""

    least: float
    most: float

    def __str__(self) -> str:
        return "range " + " ".join(str(int(end)) if end == int(end) else repr(end) for end in (self.least, self.most))


Meaning = Indices | MaskMeaning | Lengths | Range


def with_declared(model: onnx.ModelProto, said: Mapping[str, Meaning]) -> onnx.ModelProto:
    """The model, changed, with an entry for every input named."""
    entries = {f"{KEY}{name}": str(meaning) for name, meaning in said.items()}
    model.metadata_props.extend(onnx.StringStringEntryProto(key=key, value=value) for key, value in entries.items())
    return model


def declared_meanings(model: onnx.ModelProto) -> dict[str, Meaning]:
    """Meanings that a model file declares for its inputs. Raises ModelError for unknown words."""
    return {
        entry.key.removeprefix(KEY): _parsed(entry.key.removeprefix(KEY), entry.value)
        for entry in model.metadata_props
        if entry.key.startswith(KEY)
    }


def _parsed(name: str, text: str) -> Meaning:
    word, _, rest = text.strip().partition(" ")
    if word == "range" and (ends := _ends(rest)):
        return Range(*ends)
    places = [part.strip() for part in rest.split(",")] if rest else []
    if all(part.isascii() and part.isdigit() and len(part) <= MOST_DIGITS for part in places):
        bounds = tuple(map(int, places))
        if word == "mask" and not bounds:
            return MaskMeaning()
        if word == "lengths" and len(bounds) == 1 and bounds[0] > 0:
            return Lengths(bounds[0])
        if word == "indices" and 1 <= len(bounds) <= MOST_PLACES and min(bounds) > 0:
            return Indices(bounds)
    raise ModelError(
        f"input {name}",
        needs=f"`mask`, `lengths N` or `indices N, M, ...` (at most {MOST_PLACES} bounds), or `range LOW HIGH`, in "
        f"{KEY}{name}",
        has=repr(text[:60]),
        change="correct or remove this entry of the model's metadata_props",
    )


def _ends(text: str) -> tuple[float, float] | None:
    """Two numbers of which the first is smaller."""
    try:
        least, most = (float(part) for part in text.replace(",", " ").split())
    except ValueError:
        return None
    return (least, most) if isfinite(least) and isfinite(most) and least < most else None


def drawn_integers(
    name: str, meaning: Meaning, generator: np.random.Generator, shape: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """Random integers with a meaning. Raises ModelError for bounds of places that do not fit the shape."""
    match meaning:
        case MaskMeaning():
            if not shape:
                return np.ones((), np.int64)
            lengths = generator.integers(1, shape[-1], shape[:-1], endpoint=True)
            return (np.arange(shape[-1]) < lengths[..., None]).astype(np.int64)
        case Lengths(most):
            return generator.integers(1, most, shape, endpoint=True)
        case Range(least, most):
            return generator.integers(ceil(least), floor(most), shape, endpoint=True)
        case Indices(below):
            if len(below) not in (1, shape[-1] if shape else 1):
                raise ModelError(
                    f"input {name}",
                    needs="one bound of its indices, or one for each place along the last axis",
                    has=f"{len(below)} for the shape {list(shape)}",
                )
            bounds = np.array(below if len(below) > 1 else below[0], np.int64)
            return generator.integers(0, bounds, shape)
