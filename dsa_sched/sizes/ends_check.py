"""Whether what a manifest says of padding goes together with its programs: manifests come from strangers.

PaddingEntry, sizes and Manifest of each program --ends_problem--> nothing, or what does not fit
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from dsa_sched.artifact.format import Manifest
from dsa_sched.sizes.entries import NumberEntry, PaddingEntry, RowsEntry

Shapes = Mapping[str, tuple[int, ...]]


def ends_problem(ends: PaddingEntry, sizes: Mapping[str, int], manifest: Manifest, exact: bool) -> str:
    """The first thing that does not fit the program of these sizes; empty where all does."""
    inputs, outputs = ({entry.name: entry.shape for entry in each} for each in (manifest.inputs, manifest.outputs))
    return next(_problems(ends, sizes, inputs, outputs, exact), "")


def _problems(
    ends: PaddingEntry, sizes: Mapping[str, int], inputs: Shapes, outputs: Shapes, exact: bool
) -> Iterator[str]:
    if sorted(entry.name for entry in ends.inputs) != sorted(inputs):
        yield "other inputs than its programs have"
        return
    if not exact and sorted(entry.name for entry in ends.outputs) != sorted(outputs):
        yield "other outputs than its programs have"
        return
    axes = [
        *(axis for entry in ends.inputs for axis in entry.counts),
        *(row.axis for entry in ends.inputs for row in entry.rows),
        *(row.axis for entry in ends.outputs for row in entry.rows),
        *(limit.axis for limit in ends.limits),
        *(entry.restored.axis for entry in ends.outputs if entry.restored is not None),
    ]
    yield from (f"rows of an axis {axis} that it does not have" for axis in axes if axis not in sizes)
    numbers = [limit.number for limit in ends.limits]
    for entry in ends.inputs:
        plain = all((row.outer, row.more, row.inner) == (1, 0, 1) for row in entry.rows)
        if not plain or not _fit(entry.rows, inputs[entry.name], sizes):
            yield f"other rows of {entry.name} than its programs have"
    for output in ends.outputs:
        shape, restored = outputs[output.name], output.restored
        if not _fit(output.rows, shape, sizes):
            yield f"other rows of {output.name} than its programs have"
        if restored is not None:
            numbers.append(restored.begin)
            own = inputs.get(restored.input)
            items = _elements(restored.begin, inputs)
            if own != shape or restored.dim >= len(shape) or items not in (1, shape[0]):
                yield f"a cache {output.name} that is no next value of an input"
    if any(not _elements(number, inputs) for number in numbers):
        yield "numbers of inputs that it does not have, or that do not go together"


def _fit(rows: tuple[RowsEntry, ...], shape: tuple[int, ...], sizes: Mapping[str, int]) -> bool:
    return len({row.dim for row in rows}) == len(rows) and all(
        row.dim < len(shape) and shape[row.dim] == row.outer * (row.more + sizes.get(row.axis, 0)) * row.inner
        for row in rows
    )


def _elements(number: NumberEntry, inputs: Shapes) -> int:
    """Elements of a number; 0 where its inputs are not there or have shapes that do not go together."""
    if not number.inputs.keys() <= inputs.keys():
        return 0
    try:
        return prod(np.broadcast_shapes(*(inputs[name] for name in number.inputs)))
    except ValueError:
        return 0
