"""Weights from seeds: the same bits wherever they are made, so that no pack carries any.

    a network's constant --spread--> seed, mean, standard deviation, least, largest --drawn--> an array of its type

What is drawn has the mean and the spread of the constant whose place it takes, so that values stay of the size they
have in the network itself. What is no weight (integers, few elements or few different ones) is kept as it is.

Random words are those of the counter-based generator Philox, whose output is defined, and not of a distribution of
NumPy's, which may change with its version.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from math import prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.cutlass.reference.words import emulate_prepared
from partitioner.ir.graph import Graph

__all__ = ["Array", "described", "drawn", "drawn_input", "is_drawn", "prepared_values", "synthetic"]

Array = npt.NDArray[Any]

FEW_ELEMENTS, FEW_VALUES = 64, 16
AT_A_TIME = 1 << 22
SALT = 0x6473612D73636865
HALF_RANGE = sqrt(3.0)
"""Of a uniform distribution with a standard deviation of 1."""


def _words(seed: int, count: int) -> npt.NDArray[np.uint32]:
    generator = np.random.Philox(key=np.array([seed & (2**64 - 1), SALT], np.uint64))
    return np.asarray(generator.random_raw(-(-count // 2)), "<u8").view("<u4")[:count]


def _uniform(seed: int, count: int) -> Array:
    """`count` numbers between -sqrt(3) and sqrt(3), float64."""
    return (_words(seed, count).astype(np.float64) + 0.5) * (2 * HALF_RANGE / 2**32) - HALF_RANGE


def described(key: str, array: Array) -> dict[str, Any]:
    """How a constant is made over there, for JSON: `key` is the content hash by which the graph names it."""
    common = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if not _is_weight(array):
        return {**common, "base64": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}
    wide = array.astype(np.float64)
    return {
        **common,
        "seed": int(key[:16], 16),
        "mean": float(wide.mean()),
        "spread": float(wide.std()),
        "least": float(wide.min()),
        "largest": float(wide.max()),
    }


def _is_weight(array: Array) -> bool:
    if array.dtype.kind != "f" or array.size <= FEW_ELEMENTS or not np.isfinite(array).all():
        return False
    return len(np.unique(array.reshape(-1)[: 1 << 16])) > FEW_VALUES


def is_drawn(recipe: Mapping[str, Any]) -> bool:
    """Is it made from a seed, or kept?"""
    return "seed" in recipe


def drawn(recipe: Mapping[str, Any]) -> Array:
    """The array that `described` is about."""
    shape, dtype = tuple(recipe["shape"]), np.dtype(str(recipe["dtype"]))
    if not is_drawn(recipe):
        return np.frombuffer(base64.b64decode(recipe["base64"]), dtype).reshape(shape)
    count = prod(shape)
    made = np.empty(count, dtype)
    uniform = _uniform_pieces(int(recipe["seed"]), count)
    for first, piece in uniform:
        numbers = np.clip(recipe["mean"] + recipe["spread"] * piece, recipe["least"], recipe["largest"])
        made[first : first + len(piece)] = numbers
    return made.reshape(shape)


def _uniform_pieces(seed: int, count: int) -> Iterator[tuple[int, Array]]:
    """In pieces, each of a seed of its own, so that memory stays small."""
    starts = range(0, count, AT_A_TIME)
    return ((first, _uniform(seed ^ (first // AT_A_TIME << 32), min(AT_A_TIME, count - first))) for first in starts)


def synthetic(constants: Mapping[str, Array]) -> tuple[dict[str, dict[str, Any]], dict[str, Array]]:
    """Recipes by content hash, and the arrays that they make."""
    recipes = {key: described(key, array) for key, array in sorted(constants.items())}
    return recipes, {key: drawn(recipe) for key, recipe in recipes.items()}


def prepared_values(graph: Graph, constants: Mapping[str, Array], fed: Mapping[str, Array]) -> dict[str, Array]:
    """What operators on integers make of inputs before all layers, by name."""
    values = dict(fed)

    def read(name: str) -> Array:
        tensor = graph.by_name[name]
        return constants[tensor.constant].reshape(tensor.shape) if tensor.constant else values[name]

    for op in graph.prepared:
        values[op.outputs[0]] = emulate_prepared(graph, op, read)
    return {name: value for name, value in values.items() if name not in fed}


def drawn_input(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    """A fresh input: numbers of a standard deviation of 1, or 0 and 1 of a type that is no float, for indices and
    masks."""
    if not dtype.startswith("float"):
        return (_words(seed, prod(shape)) >> 31).astype(dtype).reshape(shape)
    return _uniform(seed, prod(shape)).astype(dtype).reshape(shape)
