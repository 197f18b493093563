"""Operators that move elements: which dimension of the result has the rows, and which of them are padding.

    Reshape [2, rows, 64] -> [2 * rows, 64]   rows between an outer part of 2 and an inner one of 1
    Concat(past, new)                         rows after those of the past
    Slice x[:, -1:]                           the last row is padding: refused

Rules raise Meets where a real row would be one of padding, or mixed with one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from dsa_sched.frontend.padding.case import Case, Shape, one_stale
from dsa_sched.frontend.padding.values import PLAIN, Extent, Meets, Padded, Region, Rest, moved


def transpose(case: Case) -> tuple[Padded, ...]:
    rank = len(case.shape(0))
    perm = case.node.integers("perm", tuple(reversed(range(rank))))
    return (moved(case.value(0), {dim: place for place, dim in enumerate(perm)}),)


def reshape(case: Case) -> tuple[Padded, ...]:
    """Reshape, Flatten, Squeeze and Unsqueeze, by the shapes before and after at both sizes."""
    value, before, after = case.value(0), case.shapes(0), case.result()
    to: dict[int, int] = {}
    extents: dict[int, Extent] = {}
    for dims, places in _groups(before[1], after[1]):
        rows = [dim for dim in dims if dim in value.extents]
        if len(rows) > 1:
            raise Meets("it joins two dimensions of rows")
        to |= _ones_apart(before[1], after[1], dims, places) if not rows else {}
        for own in rows:
            to[own], extent = _rows_after(case, value.extents[own], own, dims, places)
            extents[to[own]] = extent
    found = replace(moved(value, to), extents=extents)
    apart = {place for place, extent in extents.items() if extent != PLAIN}
    if found.number is not None and found.number.along in apart:
        raise Meets("its integers count along rows of several items")
    facts = {
        region: number for region, number in found.facts.items() if isinstance(region, Rest) or region.rows not in apart
    }
    return (replace(found, facts=facts),)


def _groups(before: Shape, after: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of dimensions before and after that hold the same elements."""
    i = j = 0
    while i < len(before) or j < len(after):
        dims, places = list(range(i, min(i + 1, len(before)))), list(range(j, min(j + 1, len(after))))
        i, j = i + len(dims), j + len(places)
        while (count := prod(before[dim] for dim in dims)) != (made := prod(after[place] for place in places)):
            if count < made:
                dims.append(i)
                i += 1
            else:
                places.append(j)
                j += 1
        yield dims, places


def _ones_apart(before: Shape, after: Shape, dims: Sequence[int], places: Sequence[int]) -> dict[int, int]:
    """Where the only dimension of more than one element goes, if there is one before and one after."""
    own, there = ([n for n in numbers if shape[n] > 1] for numbers, shape in ((dims, before), (places, after)))
    return {own[0]: there[0]} if len(own) == len(there) == 1 else {}


def _rows_after(case: Case, extent: Extent, dim: int, dims: Sequence[int], places: Sequence[int]) -> tuple[int, Extent]:
    """Where the rows go, and what they lie between then. Raises Meets where they are mixed."""
    (few, before), (few_after, after) = case.shapes(0), case.result()
    changed = [place for place in places if few_after[place] != after[place]]
    outer = prod(before[each] for each in dims if each < dim) * extent.outer
    inner = extent.inner * prod(before[each] for each in dims if each > dim)
    if len(changed) == 1:
        (place,) = changed
        before_it = prod(after[each] for each in places if each < place)
        after_it = prod(after[each] for each in places if each > place)
        found = Extent(outer // before_it, extent.more, inner // after_it)
        divides = outer % before_it == 0 and inner % after_it == 0
        if divides and case.sizes.fits(found, (few_after[place], after[place])):
            return place, found
    raise Meets(f"it mixes rows: {list(before)} becomes {list(after)}, and {list(few)} {list(few_after)}")


def concat(case: Case) -> tuple[Padded, ...]:
    """Rows may come after values that padding does not change, and nothing may come after rows."""
    values = [case.read(position) for position in range(case.count)]
    axis = case.node.integer("axis", 0) % len(case.result()[1])
    extents: dict[int, Extent] = {}
    for value in values:
        for dim, extent in value.extents.items():
            if dim != axis and extents.setdefault(dim, extent) != extent:
                raise Meets("rows meet other rows")
    fixed = [dim for dim in extents for value in values if dim not in value.extents]
    if fixed:
        raise Meets("rows meet other rows")
    last = values[-1].extents.get(axis)
    if any(axis in value.extents for value in values[:-1]):
        raise Meets("it puts something after the last row, where padding is")
    if last is not None:
        if last.outer != 1 or last.inner != 1:
            raise Meets("it puts rows of several items after each other")
        extents[axis] = Extent(more=last.more + sum(case.shape(n)[axis] for n in range(case.count - 1)))
    stale = one_stale(values)
    if stale is not None and (stale.dim == axis or any(value.stale is None for value in values)):
        raise Meets("it puts a cache that has rows of padding next to others")
    facts: dict[Region, float] = {}
    for region, number in values[-1].facts.items():
        alike = axis not in _dims(region) and all(value.facts.get(region, value.uniform) == number for value in values)
        if alike or region == Rest(axis):
            facts[region] = number
    return (Padded(extents, facts, stale=stale),)


def _dims(region: Region) -> tuple[int | None, ...]:
    return (region.dim,) if isinstance(region, Rest) else (region.rows, region.columns)


def sliced(case: Case) -> tuple[Padded, ...]:
    """Rows from a place on that is counted from the first one stay rows."""
    value, shape = case.read(0), case.shape(0)
    extents, kept = dict(value.extents), set(range(len(shape)))
    for axis, bounds in _cuts(case):
        if value.stale is not None and value.stale.dim == axis:
            raise Meets("it cuts a cache that has rows of padding")
        kept.discard(axis)
        if axis in value.extents:
            del extents[axis]
            if (extent := _cut(case, value.extents[axis], axis, bounds)) is not None:
                extents[axis] = extent
    return (Padded(extents, facts_of(value, kept), stale=value.stale),)


def split(case: Case) -> tuple[Padded, ...]:
    """Parts along a dimension without rows."""
    value, axis = case.read(0), case.axis(0)
    if axis in value.extents or (value.stale is not None and value.stale.dim == axis):
        raise Meets("it divides the rows, padding with them")
    found = Padded(value.extents, facts_of(value, {*range(len(case.shape(0)))} - {axis}), stale=value.stale)
    return (found,) * len(case.node.outputs)


def facts_of(value: Padded, kept: set[int]) -> dict[Region, float]:
    return {
        region: number
        for region, number in value.facts.items()
        if all(dim is None or dim in kept for dim in _dims(region))
    }


Bounds = tuple[Sequence[int], Sequence[int], int] | None
"""Starts and ends at both sizes, and the step; None where they are computed."""


def _cuts(case: Case) -> Iterator[tuple[int, Bounds]]:
    """The bounds of each dimension that a slice cuts."""
    rank = len(case.shape(0))
    starts, ends = case.constants(1), case.constants(2)
    axes = _elements(case, 3)
    if axes is None:
        axes = [*range(case.shape(1)[0] if case.shape(1) else 1)]
    steps = _elements(case, 4) or [1] * len(axes)
    for number, axis in enumerate(axes):
        bounds = None
        if starts is not None and ends is not None:
            first, last = ([int(array.reshape(-1)[number]) for array in pair] for pair in (starts, ends))
            bounds = first, last, steps[number]
        yield axis % rank, bounds


def _elements(case: Case, position: int) -> list[int] | None:
    """The elements of a constant operand that may be absent."""
    return [*case.fixed(position)] if case.has(position) else None


def _cut(case: Case, extent: Extent, axis: int, bounds: Bounds) -> Extent | None:
    """The rows that a slice leaves, None for the first row alone. Raises Meets where it has rows that are counted from
    the last one."""
    if bounds is None or bounds[2] != 1 or (extent.outer, extent.inner) != (1, 1):
        raise Meets("it cuts rows at places that are not constant, or not each row")
    sizes = [shape[axis] for shape in case.shapes(0)]
    first, last = (
        [min(place + size if place < 0 else place, size) for place, size in zip(places, sizes, strict=True)]
        for places in bounds[:2]
    )
    if first[0] != first[1]:
        raise Meets("it takes rows that are counted from the last one, which is padding")
    if last[0] == last[1]:
        if last[0] > extent.more + 1:
            raise Meets(f"it takes the first {last[0]} rows, which may be padding")
        return None
    if sizes[1] - last[1] != sizes[0] - last[0]:
        raise Meets("it cuts rows at a place that changes with the number of rows")
    return Extent(more=extent.more - first[0] - (sizes[1] - last[1]))


def expand(case: Case) -> tuple[Padded, ...]:
    """Copies along dimensions of one element; those as many as there are rows are rows."""
    value, (few, many) = case.value(0), case.result()
    before = len(many) - len(case.shape(0))
    found = moved(value, {dim: dim + before for dim in range(len(case.shape(0)))})
    return (replace(found, extents=dict(found.extents) | _new_rows(case, found, few, many)),)


def _new_rows(case: Case, value: Padded, few: Shape, many: Shape) -> dict[int, Extent]:
    extents = {}
    for dim in range(len(many)):
        if few[dim] != many[dim] and dim not in value.extents:
            extents[dim] = Extent(more=many[dim] - case.sizes.rows[1])
            if not case.sizes.fits(extents[dim], (few[dim], many[dim])):
                raise Meets("it makes other copies for other numbers of rows")
    return extents


def tile(case: Case) -> tuple[Padded, ...]:
    """Copies of dimensions without rows, and of one element for each row."""
    value, shape, (few, many) = case.read(0), case.shape(0), case.result()
    for dim in range(len(shape)):
        copied = many[dim] != shape[dim]
        if copied and (dim in value.extents or (few[dim] != many[dim] and shape[dim] != 1)):
            raise Meets("it copies rows after the last one, where padding is")
    same = {dim for dim in range(len(shape)) if many[dim] == shape[dim]}
    if value.stale is not None and value.stale.dim not in same:
        raise Meets("it copies a cache that has rows of padding")
    extents = dict(value.extents) | _new_rows(case, value, few, many)
    return (Padded(extents, facts_of(value, same), stale=value.stale),)


def pad(case: Case) -> tuple[Padded, ...]:
    """Elements around dimensions without rows, and before rows; after rows only what the padding is."""
    value, shape = case.read(0), case.shape(0)
    pads = _elements(case, 1) or []
    axes = _elements(case, 3) or [*range(len(shape))]
    edge = case.constants(2)
    number = float(edge[1].reshape(-1)[0]) if case.has(2) and edge is not None else 0.0
    extents, kept = dict(value.extents), set(range(len(shape)))
    for axis, low, high in zip((dim % len(shape) for dim in axes), pads, pads[len(axes) :], strict=False):
        if not low and not high:
            continue
        if value.stale is not None and value.stale.dim == axis:
            raise Meets("it extends a cache that has rows of padding")
        kept.discard(axis)
        if axis in extents:
            same = value.facts.get(Rest(axis)) == number and case.node.text("mode", "constant") == "constant"
            if low < 0 or high < 0 or (high and not same) or extents[axis] != PLAIN:
                raise Meets("it puts elements after the last row, where padding is")
            extents[axis] = Extent(more=extents[axis].more + low + high)
    return (Padded(extents, facts_of(value, kept), stale=value.stale),)


def gather(case: Case) -> tuple[Padded, ...]:
    """Rows of a table that indices choose; of rows themselves, the first alone."""
    data, axis = case.value(0), case.axis(0)
    indices = case.look_up(1, case.shape(0)[axis])
    rank, places = len(case.shape(0)), len(case.shape(1))
    chosen = case.constants(1)
    number = data.number if data.number is not None and data.number.along is None else None
    data = data.without_number() if number is not None else case.read(0)
    if data.stale is not None and data.stale.dim == axis:
        raise Meets("it takes rows of a cache that has rows of padding")
    if axis in data.extents:
        first = data.extents[axis].more
        if chosen is None or not np.array_equal(*chosen) or chosen[1].min() < 0 or chosen[1].max() > first:
            raise Meets("it takes rows that may be padding")
    to = {dim: dim if dim < axis else dim + places - 1 for dim in range(rank) if dim != axis}
    found = moved(replace(data, extents={d: e for d, e in data.extents.items() if d != axis}, uniform=None), to)
    rows = {dim + axis: extent for dim, extent in indices.extents.items()}
    return (replace(found, extents=dict(found.extents) | rows, number=number),)


def trilu(case: Case) -> tuple[Padded, ...]:
    """A triangle: after the diagonal, or before it, are zeros."""
    value, rank = case.read(0), len(case.shape(0))
    rows, columns = rank - 2, rank - 1
    shift = case.fixed(1)[0] if case.has(1) else 0
    facts = dict(value.facts)
    lower = not case.node.integer("upper", 1)
    if lower and shift <= 0 and value.extents.get(rows) == value.extents.get(columns) == PLAIN:
        facts[Rest(columns)] = 0.0
    elif facts and any(number for number in facts.values()):
        facts = {}
    return (replace(value, facts=facts),)
