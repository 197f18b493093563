"""What is known of a value whose rows are followed by rows of padding.

    Padded(extents, facts, number, stale)    the rows that are not padding are those that a file without padding has

All of it holds for the places of real rows. A fact says which number stands in a region besides them, so that a mask
is known to hide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from dsa_sched.frontend.padding.linear import LinearNumber

HIDING = -1e4
"""Largest number that hides a column from a softmax: its exponential is zero next to that of any score."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows along a dimension: index (o, r, i) of `outer`, `more` + rows, and `inner`, in this order."""

    outer: int = 1
    more: int = 0
    inner: int = 1

    def of(self, rows: int) -> int:
        return self.outer * (self.more + rows) * self.inner


PLAIN = Extent()
"""One index for each row."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Region: the rows of padding along a dimension."""

    dim: int


@dataclass(frozen=True, slots=True)
class Beyond:
    """Region: columns after row + `begin`; without a dimension of rows, after `begin`, for all rows."""

    rows: int | None
    columns: int
    begin: LinearNumber


Region: TypeAlias = Rest | Beyond


@dataclass(frozen=True, slots=True)
class Number:
    """An integer `base`, plus the index along a dimension if there is one."""

    base: LinearNumber
    along: int | None = None


@dataclass(frozen=True, slots=True)
class Stale:
    """A cache along a dimension: from `begin` on, first the real rows that were written, then rows of padding."""

    dim: int
    begin: LinearNumber
    source: str = ""
    """The input whose rows these replaced, for a cache that is written and nothing else."""


@dataclass(frozen=True, slots=True)
class Padded:
    """A value: the rows along its dimensions, numbers in regions besides real rows, what an integer is, a cache with
    rows of padding in it, and the number of a constant that has one only."""

    extents: Mapping[int, Extent] = field(default_factory=dict)
    facts: Mapping[Region, float] = field(default_factory=dict)
    number: Number | None = None
    stale: Stale | None = None
    uniform: float | None = None

    @property
    def is_same(self) -> bool:
        """Whether padding changes nothing of it."""
        return not self.extents and self.stale is None and (self.number is None or self.number.base.is_constant)

    def hides(self, dim: int) -> bool:
        """Whether the rows of padding along a dimension are hidden from a softmax."""
        return self.facts.get(Rest(dim), 0.0) <= HIDING

    def without_number(self) -> Padded:
        return replace(self, number=None)


class Meets(Exception):
    """Raised by a rule for an operator whose real rows read rows of padding, with the reason as a clause."""


def moved(value: Padded, to: Mapping[int, int]) -> Padded:
    """The value with its dimensions at other places; those that `to` lacks are gone, with all that is said of them.
    Raises Meets for rows, a cache or integers that count along a dimension that is gone."""
    if lost := [dim for dim in value.extents if dim not in to]:
        raise Meets(f"dimension {lost[0]} with rows of padding is gone")
    stale = value.stale
    if stale is not None:
        if stale.dim not in to:
            raise Meets("rows of padding that a cache has are among those that it reads")
        stale = replace(stale, dim=to[stale.dim])
    number = value.number
    if number is not None and number.along is not None:
        if number.along not in to and not number.base.is_constant:
            raise Meets("its integers count along a dimension that is gone")
        number = Number(number.base, to[number.along]) if number.along in to else None
    return replace(
        value,
        extents={to[dim]: extent for dim, extent in value.extents.items()},
        facts=dict(_moved_facts(value.facts, to)),
        number=number,
        stale=stale,
    )


def _moved_facts(facts: Mapping[Region, float], to: Mapping[int, int]) -> Iterator[tuple[Region, float]]:
    for region, number in facts.items():
        match region:
            case Rest(dim) if dim in to:
                yield Rest(to[dim]), number
            case Beyond(rows, columns, begin) if columns in to and (rows is None or rows in to):
                yield Beyond(None if rows is None else to[rows], to[columns], begin), number


def covering(region: Region, stale: Stale) -> LinearNumber | None:
    """A number that must not be positive for a region to hold all rows of padding of a cache; None where it is another
    region."""
    if not isinstance(region, Beyond) or region.columns != stale.dim:
        return None
    if region.rows is not None:
        return region.begin - stale.begin
    return region.begin + LinearNumber(1) - LinearNumber(rows=1) - stale.begin
