"""The part of a manifest of several sizes that says how a run at a size in between is padded and cut.

inputs: rows of padding and integers that count them      outputs: rows that are cut, caches that get old rows back
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dsa_sched.artifact.whole_folder import Entry

Array = npt.NDArray[np.generic]
Count = Annotated[int, Field(ge=0, lt=1 << 40)]
Whole = Annotated[int, Field(gt=-(1 << 40), lt=1 << 40)]


class RowsEntry(Entry):
    """A dimension with the rows of an axis: `outer` * (`more` + rows) * `inner` elements."""

    axis: str
    dim: Annotated[int, Field(ge=0, lt=64)]
    outer: Count = 1
    more: Whole = 0
    inner: Count = 1


class NumberEntry(Entry):
    """An integer: `constant` + `rows` * (rows of an axis without padding) + each input times its factor."""

    constant: Whole
    rows: Whole
    inputs: dict[str, Whole]

    def of(self, inputs: Mapping[str, Array], rows: int) -> npt.NDArray[np.int64]:
        """The number for these inputs, with one element per item where they have."""
        found = np.array(self.constant + self.rows * rows, np.int64)
        for name, factor in self.inputs.items():
            found = found + factor * np.asarray(inputs[name]).astype(np.int64)
        return found.reshape(-1)


class InputEntry(Entry):
    """An input. Rows of padding have the number `fill`, or repeat the last row. `counts` says by how much the elements
    grow with a row of padding along an axis."""

    name: str
    rows: tuple[RowsEntry, ...]
    fill: float | None
    counts: dict[str, Whole]


class RestoredEntry(Entry):
    """A cache into which a run writes rows along dimension `dim` from `begin` on: in place of those of padding along
    `axis`, the output has what the `input` had."""

    axis: str
    dim: Annotated[int, Field(ge=0, lt=64)]
    input: str
    begin: NumberEntry


class OutputEntry(Entry):
    """An output, of which rows of padding are cut away."""

    name: str
    rows: tuple[RowsEntry, ...]
    restored: RestoredEntry | None


class LimitEntry(Entry):
    """A number that must not be positive for a run with rows of padding along an axis: or else these would be seen, or
    if the rows of padding are `counted` in it, their places would be beyond a table or a cache."""

    axis: str
    number: NumberEntry
    counted: bool


class PaddingEntry(Entry):
    """How a run is padded and cut: all inputs and outputs, and what must hold."""

    inputs: tuple[InputEntry, ...]
    outputs: tuple[OutputEntry, ...]
    limits: tuple[LimitEntry, ...]
