"""A run at a size in between: inputs get rows of padding, outputs lose them.

inputs, rows found, rows of the program --padded--> inputs of the program --run--> outputs --cut--> outputs
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from dsa_sched.sizes.entries import InputEntry, OutputEntry, PaddingEntry, RestoredEntry, RowsEntry
from hw_models.errors import ModelError

Array = npt.NDArray[np.generic]
Rows = Mapping[str, int]
"""Rows along each axis."""


def rows_of(entries: tuple[InputEntry, ...], inputs: Mapping[str, Array]) -> dict[str, int]:
    """The rows of each axis that inputs have. Raises ModelError for inputs that do not agree, or that lack a
    dimension."""
    found: dict[str, tuple[int, str]] = {}
    for entry in entries:
        shape = np.shape(inputs[entry.name]) if entry.name in inputs else ()
        for rows in entry.rows if entry.name in inputs else ():
            if rows.dim >= len(shape) or shape[rows.dim] < 1:
                raise ModelError(
                    f"input {entry.name}", needs=f"{rows.axis} as dimension {rows.dim}", has=f"shape {list(shape)}"
                )
            count, named = found.setdefault(rows.axis, (shape[rows.dim], entry.name))
            if count != shape[rows.dim]:
                raise ModelError(
                    f"input {entry.name}",
                    needs=f"as many of {rows.axis} as {named} has: {count}",
                    has=str(shape[rows.dim]),
                )
    return {axis: count for axis, (count, _) in found.items()}


def padded(entry: PaddingEntry, inputs: Mapping[str, Array], found: Rows, wanted: Rows) -> dict[str, Array]:
    """The inputs with rows of padding. Raises ModelError for inputs with which rows would see these."""
    for limit in entry.limits:
        more = wanted[limit.axis] - found[limit.axis]
        beyond = int(limit.number.of(inputs, found[limit.axis]).max()) + (more if limit.counted else 0)
        if more and beyond > 0:
            needs = "room in tables and caches for" if limit.counted else "lengths that end with the new rows, before"
            raise ModelError(
                f"input {', '.join(limit.number.inputs) or limit.axis}",
                needs=f"{needs} {more} rows of padding along {limit.axis}",
                has=f"{beyond} too many",
                change="run fewer rows at once, or as many as a size that was compiled",
            )
    return {each.name: _padded(each, np.asarray(inputs[each.name]), found, wanted) for each in entry.inputs}


def _padded(entry: InputEntry, array: Array, found: Rows, wanted: Rows) -> Array:
    for rows in entry.rows:
        around = [(0, 0)] * array.ndim
        around[rows.dim] = (0, wanted[rows.axis] - found[rows.axis])
        if entry.fill is None:
            array = np.pad(array, around, mode="edge")
        else:
            array = np.pad(array, around, constant_values=array.dtype.type(entry.fill))
    more = sum(count * (wanted[axis] - found[axis]) for axis, count in entry.counts.items())
    return (array + more).astype(array.dtype) if more else array


def shortened(entry: PaddingEntry, inputs: Mapping[str, Array], found: Rows, wanted: Rows) -> dict[str, Array]:
    """The inputs of a program with fewer rows, `found`, to which padding would add the others: the converse of
    `padded` but for the rows that it adds."""
    result = {}
    for each in entry.inputs:
        array = np.asarray(inputs[each.name])
        for rows in each.rows:
            array = array[(slice(None),) * rows.dim + (slice(found[rows.axis]),)]
        less = sum(count * (wanted[axis] - found[axis]) for axis, count in each.counts.items())
        result[each.name] = (array - less).astype(array.dtype) if less else array
    return result


def cut(
    entry: PaddingEntry, outputs: Mapping[str, Array], inputs: Mapping[str, Array], found: Rows, wanted: Rows
) -> dict[str, Array]:
    """The outputs without rows of padding; `inputs` are those without padding, as the device stores them."""
    return {each.name: _cut(each, outputs[each.name], inputs, found, wanted) for each in entry.outputs}


def _cut(entry: OutputEntry, array: Array, inputs: Mapping[str, Array], found: Rows, wanted: Rows) -> Array:
    for rows in entry.rows:
        array = _without_rest(array, rows, found[rows.axis], wanted[rows.axis])
    if entry.restored is not None:
        array = _restored(entry.restored, array, inputs, found, wanted)
    return array


def _without_rest(array: Array, rows: RowsEntry, found: int, wanted: int) -> Array:
    before, after = array.shape[: rows.dim], array.shape[rows.dim + 1 :]
    apart = array.reshape(*before, rows.outer, rows.more + wanted, rows.inner, *after)
    kept = apart[(slice(None),) * (rows.dim + 1) + (slice(rows.more + found),)]
    return np.ascontiguousarray(kept.reshape(*before, rows.outer * (rows.more + found) * rows.inner, *after))


def _restored(entry: RestoredEntry, array: Array, inputs: Mapping[str, Array], found: Rows, wanted: Rows) -> Array:
    """A cache with its old rows where rows of padding were written."""
    few, many = found[entry.axis], wanted[entry.axis]
    if few == many:
        return array
    result, before = array.copy(), np.asarray(inputs[entry.input]).astype(array.dtype)
    begins = entry.begin.of(inputs, few)
    for item, begin in enumerate(begins):
        place = (slice(None),) * entry.dim + (slice(max(int(begin) + few, 0), max(int(begin) + many, 0)),)
        if len(begins) > 1:
            place = (item, *place[1:])
        result[place] = before[place]
    return result
