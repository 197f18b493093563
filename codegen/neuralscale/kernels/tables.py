"""Functions of one operand as tables: the value of each of the 65,536 halves, correctly rounded, for `velut.m`.

    op gelu, chip --worth_a_table--> table or formula        op log --table_of--> 65,536 halves, by the bits of x

Values are worked out in float64 and rounded once, to nearest even; no half of any function lies so near the middle of
two results that the last bits of float64 decide (tests/codegen/neuralscale/test_tables.py). A NaN is the chip's own.
A table lies in the part of L1 that weights have, or, behind a product, in that of the data. Whether an operator is
looked up is said once, by its kind, an item's elements and the chip: never by level, tiling or batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, erf, erfc, prod, sqrt

import numpy as np
import numpy.typing as npt

from codegen.neuralscale.instructions.halves import ITEM_BYTES, lookup_cycles, vector_cycles
from codegen.neuralscale.templates.elementwise import LOOKUP_BYTES, UNARY
from codegen.neuralscale.templates.tile import DATA, WEIGHTS
from hw_models.chip import Chip
from hw_models.cost import transfer_cycles
from hw_models.memory_parts import part_bytes, place_of
from partitioner.ir.graph import Graph, Op

__all__ = ["TABLED", "no_table", "table_of", "worth_a_table"]

Doubles = npt.NDArray[np.float64]
Halves = npt.NDArray[np.float16]
Function = Callable[[Op, Doubles], Doubles]

NAN_BITS = 0x7C01


def _plain(function: Callable[[Doubles], Doubles]) -> Function:
    return lambda _op, x: function(x)


def _each(function: Callable[[float], float]) -> Function:
    return lambda _op, x: np.array([function(value) for value in x.tolist()])


def _gelu(op: Op, x: Doubles) -> Doubles:
    """x times the normal distribution, or what is near it by a hyperbolic tangent: 1 + tanh u = 2 / (1 + e^-2u)."""
    if op.attribute("approximate") == "tanh":
        return np.asarray(x / (1 + np.exp(-2 * sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
    return np.asarray(x * (_each(erfc)(op, -x / sqrt(2)) / 2))


def _softplus(x: Doubles) -> Doubles:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _mish(x: Doubles) -> Doubles:
    """x tanh(log(1 + e)) = x n / (n + 2) with n = e (e + 2); from 40 on it is x."""
    e = np.exp(np.minimum(x, 40))
    n = e * (e + 2)
    return np.asarray(x * (n / (n + 2)))


def _sign(x: Doubles) -> Doubles:
    return np.where(np.isnan(x), np.nan, np.sign(x))


FUNCTIONS: Mapping[str, Function] = {
    "log": _plain(np.log),
    "sin": _plain(np.sin),
    "cos": _plain(np.cos),
    "tan": _plain(np.tan),
    "asin": _plain(np.arcsin),
    "acos": _plain(np.arccos),
    "atan": _plain(np.arctan),
    "sinh": _plain(np.sinh),
    "cosh": _plain(np.cosh),
    "asinh": _plain(np.arcsinh),
    "acosh": _plain(np.arccosh),
    "atanh": _plain(np.arctanh),
    "floor": _plain(np.floor),
    "ceil": _plain(np.ceil),
    "round": _plain(np.rint),
    "sign": _plain(_sign),
    "power": lambda op, x: np.power(x, op.number("exponent")),
    "erf": _each(erf),
    "gelu": _gelu,
    "softplus": _plain(_softplus),
    "mish": _plain(_mish),
    "sigmoid": _plain(lambda x: 1 / (1 + np.exp(-x))),
    "tanh": _plain(np.tanh),
}
"""By kind, in float64; those of `UNARY` are formulas of the vector engine, too."""

TABLED = tuple(sorted(FUNCTIONS.keys() - UNARY.keys()))
"""Kinds that can be looked up and nothing else."""


def table_of(op: Op) -> Halves:
    """The table of an operator's function, entries in the order of the bits of x."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = np.where((bits & 0x7FFF) > 0x7C00, np.nan, _values(bits))
    with np.errstate(all="ignore"):
        values = FUNCTIONS[op.kind](op, x)
        rounded = values.astype(np.float16)
    return np.where(np.isnan(values), np.uint16(NAN_BITS), rounded.view(np.uint16)).view(np.float16)


def _values(bits: npt.NDArray[np.uint16]) -> Doubles:
    with np.errstate(invalid="ignore"):  # NaNs whose highest bit is not set
        return bits.view(np.float16).astype(np.float64)


def no_table(chip: Chip) -> str | None:
    """Why a chip has no room for tables; None where it has. Behind a product tiles need as much as the table."""
    data, weights = (place_of(chip, "L1", part) for part in (DATA, WEIGHTS))
    wanted = {data: 2 * LOOKUP_BYTES} if data == weights else {data: 2 * LOOKUP_BYTES, weights: LOOKUP_BYTES}
    for (memory, part), size_bytes in wanted.items():
        if (room := part_bytes(chip, memory, part)) < size_bytes:
            named = f"the {part} part of {memory}" if part else memory
            return f"a table of {LOOKUP_BYTES} bytes, for which {named} must have {size_bytes} bytes and has {room}"
    return None


def worth_a_table(graph: Graph, op: Op, chip: Chip) -> bool:
    """True for a function that has no formula, and where the passes that a table saves of an item's elements, shared by
    all cores, take longer than bringing the table to a core. What it costs to read it from the main memory is not
    counted: equal tables come from there once. The batch does not count: no bit may depend on it."""
    if op.kind not in FUNCTIONS or no_table(chip):
        return False
    if op.kind in TABLED:
        return True
    elements = ceil(prod(graph.by_name[op.outputs[0]].shape[1:]) / chip.cores_per_cluster)
    saved = vector_cycles(chip, elements, UNARY[op.kind]) - lookup_cycles(chip, elements)
    return saved > transfer_cycles(chip, "LLB", "L1", LOOKUP_BYTES, LOOKUP_BYTES // ITEM_BYTES // (1 << 15))
