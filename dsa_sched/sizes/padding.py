"""What running at a size in between takes, found out when a file is compiled.

    the file, combinations --an analysis per axis--> PaddingEntry, or the operators that padding would change

Rows of padding repeat the last row. Where only a mask hides them, an input has the number that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dsa_sched.frontend.load import Opened, file_network
from dsa_sched.frontend.padding.analysis import AxisPadding, PaddingRefusal, axis_padding
from dsa_sched.frontend.padding.case import Sizes
from dsa_sched.frontend.padding.linear import LinearNumber
from dsa_sched.frontend.padding.values import Extent
from dsa_sched.sizes.combinations import combinations_of, input_axes
from dsa_sched.sizes.entries import (
    InputEntry,
    LimitEntry,
    NumberEntry,
    OutputEntry,
    PaddingEntry,
    RestoredEntry,
    RowsEntry,
)
from dsa_sched.stages.compile_options import CompileOptions
from hw_models.errors import ModelError

FILLS = (0.0, 1.0, -1e4)
"""Numbers of rows of padding that may hide them, in the order in which they are tried."""
EXACT = "with --exact, the artifact runs the sizes that are given and no others"


class ChangedByPadding(ModelError):
    """Raised with all operators that rows of padding would change, by axis."""

    def __init__(self, who: str, refused: Sequence[tuple[str, PaddingRefusal]]) -> None:
        several = "s" if len(refused) > 1 else ""
        super().__init__(f"{who}: padding would change {len(refused)} operator{several}", change=EXACT)
        self.refused = tuple(refused)

    def __str__(self) -> str:
        listed = (f"  along {axis}, {refusal}" for axis, refusal in self.refused)
        return "\n".join((self.who, *listed, self.change))


def padding_of(opened: Opened, sizes: Mapping[str, tuple[int, ...]], options: CompileOptions) -> PaddingEntry:
    """How runs at sizes in between are padded and cut. Raises ChangedByPadding where an operator mixes rows."""
    pairs = [*_pairs(opened, sizes, options)]
    fills = _fills(pairs)
    found = [axis_padding(pair, fills) for pair in pairs]
    refused = [(each.axis, refusal) for each in found for refusal in each.refused]
    if refused:
        raise ChangedByPadding(opened.who, [*dict.fromkeys(refused)])
    return _entry(found, fills)


def exact_ends(opened: Opened, axes: Sequence[str]) -> PaddingEntry:
    """The dimensions of inputs that tell the sizes of a run, where none is padded."""
    found = input_axes(opened.file.model, axes)
    inputs = tuple(
        InputEntry(
            name=name,
            rows=tuple(RowsEntry(axis=axis, dim=dim) for dim, axis in enumerate(own) if axis),
            fill=None,
            counts={},
        )
        for name, own in found.items()
    )
    return PaddingEntry(inputs=inputs, outputs=(), limits=())


def _pairs(opened: Opened, sizes: Mapping[str, tuple[int, ...]], options: CompileOptions) -> Iterator[Sizes]:
    """The file at neighbouring sizes of each axis, the others at their largest."""
    largest = {axis: listed[-1:] for axis, listed in sizes.items()}
    for axis, listed in sizes.items():
        rows = listed if len(listed) > 1 else (listed[0] - 1, listed[0])
        if rows[-1] < 2:
            continue
        wanted = combinations_of(opened.file.model, {**largest, axis: rows}, options)
        networks = [file_network(opened, dict(each.shapes), each.batch) for each in reversed(wanted)]
        for number in range(len(rows) - 1):
            yield Sizes(axis, (rows[number], rows[number + 1]), (networks[number], networks[number + 1]))


def _fills(pairs: Sequence[Sizes]) -> dict[str, float]:
    """Numbers for rows of padding of inputs, for as few inputs as needed."""

    def refusals(fills: Mapping[str, float]) -> int:
        return sum(len(axis_padding(pair, fills).refused) for pair in pairs)

    fills = dict[str, float]()
    left = refusals(fills)
    rows = dict.fromkeys(name for pair in pairs for name, dims in axis_padding(pair, {}).inputs.items() if dims)
    for name in rows:
        tried = [{**fills, name: number} for number in FILLS] if left else []
        counts = [refusals(each) for each in tried]
        if tried and min(counts) < left:
            left = min(counts)
            fills = tried[counts.index(left)]
    return fills


def _entry(found: Sequence[AxisPadding], fills: Mapping[str, float]) -> PaddingEntry:
    """The analyses of all axes as one."""
    by_axis = {each.axis: each for each in reversed(found)}
    _require_alike(found, by_axis)
    inputs = dict.fromkeys(name for each in by_axis.values() for name in each.inputs)
    outputs = dict.fromkeys(name for each in by_axis.values() for name in each.outputs)
    return PaddingEntry(
        inputs=tuple(
            InputEntry(
                name=name,
                rows=tuple(row for each in by_axis.values() for row in _rows(each.axis, each.inputs.get(name, {}))),
                fill=fills.get(name),
                counts={each.axis: each.counts[name] for each in by_axis.values() if name in each.counts},
            )
            for name in inputs
        ),
        outputs=tuple(_output(name, by_axis) for name in outputs),
        limits=tuple(
            LimitEntry(axis=each.axis, number=_number(number), counted=counted)
            for each in by_axis.values()
            for counted, numbers in ((False, each.within), (True, each.inside))
            for number in numbers
        ),
    )


def _require_alike(found: Sequence[AxisPadding], by_axis: Mapping[str, AxisPadding]) -> None:
    """Raises ModelError for sizes of one axis that need different padding."""
    for each in found:
        if each != by_axis[each.axis]:
            raise ModelError(
                f"--sizes {each.axis}",
                needs="rows that mean the same at all sizes",
                has="inputs or outputs that change in different ways",
                change=EXACT,
            )


def _output(name: str, by_axis: Mapping[str, AxisPadding]) -> OutputEntry:
    restored = [
        RestoredEntry(axis=each.axis, dim=stale.dim, input=stale.source, begin=_number(stale.begin))
        for each in by_axis.values()
        if (stale := each.caches.get(name)) is not None
    ]
    rows = tuple(row for each in by_axis.values() for row in _rows(each.axis, each.outputs.get(name, {})))
    return OutputEntry(name=name, rows=rows, restored=restored[0] if restored else None)


def _rows(axis: str, extents: Mapping[int, Extent]) -> Iterator[RowsEntry]:
    for dim, extent in extents.items():
        yield RowsEntry(axis=axis, dim=dim, outer=extent.outer, more=extent.more, inner=extent.inner)


def _number(number: LinearNumber) -> NumberEntry:
    return NumberEntry(constant=number.constant, rows=number.rows, inputs=dict(number.inputs))
