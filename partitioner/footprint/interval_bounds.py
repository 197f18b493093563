"""Reach of a piece of one axis: intervals of a tensor as closed functions of the piece's two cut points.

    output [c, c') along an axis  -->  data [low(c), high(c')) along the matched axis

Every access map is monotone along the axis it is cut by, so both ends are *terms*,

    clamp(scale * floor((multiplier * c + addend) / divisor) + offset, low, high)

and terms stay terms when one operator is put after another: clamping at a tensor's border moves through the next map
exactly. A chain of a hundred convolutions is one term; only a floor of a multiple of a floor nests. Several consumers
join by minimum and maximum. The search evaluates the same objects in numpy (`Term.at`, `Reach.intervals`) that are
printed as sympy expressions (`partitioner.footprint.footprint_symbolic`) for people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]

FAR = 1 << 62
"""A value beyond every index, for an end that nothing clamps."""

MOST_POINTS_COMPARED = 1 << 16
"""Largest extent for which two terms are compared at every cut point; beyond it, both are kept unless they are
equal."""

MOST_GUARDS = 32
"""Largest number of spans and guards of one reach, including nested ones; a stack of concats cut along its channels
would double them with each layer."""


@dataclass(frozen=True, slots=True)
class ClampTerm:
    """clamp(scale * floor((multiplier * c + addend) / divisor) + offset, low, high) with multiplier, scale >= 0.

    c is a cut point or, where `inner` is given, the value of that term. With divisor 1, scale is 1 and offset 0.
    """

    multiplier: int = 1
    addend: int = 0
    divisor: int = 1
    scale: int = 1
    offset: int = 0
    low: int = -FAR
    high: int = FAR
    inner: ClampTerm | None = None

    @property
    def is_constant(self) -> bool:
        return self.low == self.high

    def at(self, cut: Integers) -> Integers:
        """The value at every cut point."""
        if self.is_constant:
            return np.full(cut.shape, self.low, np.int64)
        value = cut if self.inner is None else self.inner.at(cut)
        if self.multiplier != 1:
            value = value * self.multiplier
        if self.addend:
            value = value + self.addend
        if self.divisor != 1:
            value = value // self.divisor
            if self.scale != 1 or self.offset:
                value = value * self.scale + self.offset
        if self.low > -FAR:
            value = np.maximum(value, self.low)
        return value if self.high == FAR else np.minimum(value, self.high)

    def step(self, value: int) -> int:
        """The value where the innermost argument is `value`, which may be an infinity (+-FAR)."""
        if abs(value) < FAR:
            value = self.scale * ((self.multiplier * value + self.addend) // self.divisor) + self.offset
        return min(max(value, self.low), self.high)


def constant(value: int) -> ClampTerm:
    return ClampTerm(multiplier=0, addend=value, low=value, high=value)


def reduced(term: ClampTerm) -> ClampTerm:
    """An equal term, without a floor where the divisor divides the multiplier."""
    if term.multiplier % term.divisor:
        return term
    multiplier = term.scale * (term.multiplier // term.divisor)
    addend = term.scale * (term.addend // term.divisor) + term.offset
    return ClampTerm(multiplier, addend, low=term.low, high=term.high, inner=term.inner)


def after(outer: ClampTerm, term: ClampTerm) -> ClampTerm:
    """outer(term(c)) as one term where that is exact, else nested. Both are reduced."""
    if outer.inner is not None:
        return after(replace(outer, inner=None), after(outer.inner, term))
    low, high = outer.step(term.low), outer.step(term.high)
    if low == high:
        return constant(low)
    ends = ClampTerm(low=low, high=high)
    if term.divisor == 1:
        multiplier, addend = outer.multiplier * term.multiplier, outer.multiplier * term.addend + outer.addend
        joined = replace(ends, multiplier=multiplier, addend=addend, divisor=outer.divisor, inner=term.inner)
        return reduced(replace(joined, scale=outer.scale, offset=outer.offset))
    if outer.divisor == 1:
        scale, offset = outer.multiplier * term.scale, outer.multiplier * term.offset + outer.addend
        return replace(term, scale=scale, offset=offset, low=low, high=high)
    if outer.multiplier == 1 and term.scale == 1:
        addend = term.addend + term.divisor * (term.offset + outer.addend)
        joined = replace(ends, multiplier=term.multiplier, addend=addend, divisor=term.divisor * outer.divisor)
        return reduced(replace(joined, scale=outer.scale, offset=outer.offset, inner=term.inner))
    return replace(outer, inner=term, low=low, high=high)


@dataclass(frozen=True, slots=True)
class IntervalSpan:
    """[minimum of `lows` at c, maximum of `highs` at c'), read only by pieces for which no guard is empty.

    A guard is the part read of a value on the way: a piece that reads nothing of it reads nothing through it.
    """

    lows: tuple[ClampTerm, ...]
    highs: tuple[ClampTerm, ...]
    guards: tuple[Guard, ...] = ()

    def ends(self, start: Integers, stop: Integers) -> tuple[Integers, Integers]:
        return _least(self.lows, start), _greatest(self.highs, stop)


Guard: TypeAlias = tuple[IntervalSpan, ...]


def hull(spans: tuple[IntervalSpan, ...], start: Integers, stop: Integers) -> tuple[Integers, Integers]:
    """Both ends of the hull of all spans that are read; (0, 0) for pieces that read nothing."""
    if len(spans) == 1 and not spans[0].guards:
        return spans[0].ends(start, stop)
    lows, highs = np.full(start.shape, FAR, np.int64), np.full(start.shape, -FAR, np.int64)
    for span in spans:
        low, high = span.ends(start, stop)
        read = np.ones(start.shape, np.bool_)
        for guard in span.guards:
            guard_low, guard_high = hull(guard, start, stop)
            read &= guard_low < guard_high
        lows, highs = np.where(read, np.minimum(lows, low), lows), np.where(read, np.maximum(highs, high), highs)
    none = highs <= lows
    return np.where(none, 0, lows), np.where(none, 0, highs)


@dataclass(frozen=True, slots=True)
class Reach:
    """The part read of one tensor along its axis `axis`: the union of `spans`, with the gaps between them filled."""

    axis: int
    spans: tuple[IntervalSpan, ...]

    @property
    def matched(self) -> bool:
        """Whether a smaller piece reads less: some end is not constant."""
        return any(not term.is_constant for span in self.spans for term in (*span.lows, *span.highs))

    def is_identity(self, extent: int) -> bool:
        """Whether piece [c, c') of an axis of `extent` reads [c, c'), as along a batch axis."""
        same = IntervalSpan((ClampTerm(low=0, high=extent),), (ClampTerm(low=0, high=extent),))
        return self.spans == (same,)

    def intervals(self, start: Integers, stop: Integers) -> tuple[Integers, Integers]:
        """Both ends for pieces [start, stop); a piece that reads nothing gets an empty interval (0, 0)."""
        return hull(self.spans, start, stop)


def whole_reach(extent: int) -> Reach:
    """All of the first axis: the reach of a tensor that every piece needs whole."""
    return Reach(0, (IntervalSpan((constant(0),), (constant(extent),)),))


def compose(outer: Reach, through: Reach, extent: int) -> Reach:
    """`through` (in cut points of a value), expressed in cut points of the output, where the value itself is read over
    `outer`.

    `extent` is that of the output's axis: terms that another one covers at every cut point are dropped.
    """
    spans = []
    for inner in through.spans:
        # Emptiness is tested for all spans of the value together: it is computed as one box.
        behind = [_guard_after(guard, outer.spans) for guard in inner.guards]
        guards = tuple(guard for guard in behind if can_be_empty(guard, extent))
        for span in outer.spans:
            lows, highs = _afters(inner.lows, span.lows), _afters(inner.highs, span.highs)
            spans.append(IntervalSpan(lows, highs, tuple(dict.fromkeys(span.guards + guards))))
    return Reach(through.axis, _bounded(merge_spans(spans, extent), extent))


def _bounded(spans: tuple[IntervalSpan, ...], extent: int) -> tuple[IntervalSpan, ...]:
    """Spans without guards where these are too many (concats of concats): more than what is read, never less."""
    if sum(_size(span) for span in spans) <= MOST_GUARDS:
        return spans
    return merge_spans([replace(span, guards=()) for span in spans], extent)


def _size(span: IntervalSpan) -> int:
    return 1 + sum(_size(inner) for guard in span.guards for inner in guard)


def _guard_after(guard: Guard, outer: tuple[IntervalSpan, ...]) -> Guard:
    return tuple(
        IntervalSpan(_afters(inner.lows, span.lows), _afters(inner.highs, span.highs), span.guards)
        for inner in guard
        for span in outer
    )


def join_reaches(a: Reach, b: Reach, shape: tuple[int, ...], extent: int) -> Reach:
    """The joint reach of two readers of a tensor of `shape`; along different axes that is all of it."""
    if a == b:
        return a
    if a.axis != b.axis:
        if not a.matched and not b.matched:
            return whole_reach(shape[0]) if shape else a
        if a.matched and b.matched:
            return whole_reach(shape[0])
        # Whole along one of the axes is whole along the other.
        matched, whole = (a, b) if a.matched else (b, a)
        spans = tuple(
            IntervalSpan((constant(0),), (constant(shape[matched.axis]),), span.guards) for span in whole.spans
        )
        a, b = matched, Reach(matched.axis, spans)
    return Reach(a.axis, _bounded(merge_spans([*a.spans, *b.spans], extent), extent))


def merge_spans(spans: Iterable[IntervalSpan], extent: int) -> tuple[IntervalSpan, ...]:
    """Spans with those under the same guards merged; terms that others cover everywhere in [0, extent] are dropped."""
    by_guards: dict[tuple[Guard, ...], tuple[list[ClampTerm], list[ClampTerm]]] = {}
    for span in spans:
        lows, highs = by_guards.setdefault(span.guards, ([], []))
        lows += span.lows
        highs += span.highs
    return tuple(
        IntervalSpan(_covering(lows, extent, smallest=True), _covering(highs, extent, smallest=False), guards)
        for guards, (lows, highs) in by_guards.items()
    )


def _covering(terms: list[ClampTerm], extent: int, *, smallest: bool) -> tuple[ClampTerm, ...]:
    """The terms that are somewhere smallest (or largest), in order of first mention."""
    different = list(dict.fromkeys(terms))
    if len(different) == 1 or extent > MOST_POINTS_COMPARED:
        return tuple(different)
    points = np.arange(extent + 1)
    values = [term.at(points) if smallest else -term.at(points) for term in different]
    kept: list[int] = []
    for i, value in enumerate(values):
        if any(bool(np.all(values[k] <= value)) for k in kept):
            continue
        kept = [k for k in kept if not np.all(value <= values[k])]
        kept.append(i)
    return tuple(different[i] for i in kept)


def _afters(outer: tuple[ClampTerm, ...], inner: tuple[ClampTerm, ...]) -> tuple[ClampTerm, ...]:
    return tuple(dict.fromkeys(after(g, term) for g in outer for term in inner))


def _least(terms: tuple[ClampTerm, ...], cut: Integers) -> Integers:
    value = terms[0].at(cut)
    for term in terms[1:]:
        value = np.minimum(value, term.at(cut))
    return value


def _greatest(terms: tuple[ClampTerm, ...], cut: Integers) -> Integers:
    value = terms[0].at(cut)
    for term in terms[1:]:
        value = np.maximum(value, term.at(cut))
    return value


def can_be_empty(guard: Guard, extent: int) -> bool:
    """Whether some piece of one element of an axis of `extent` reads nothing there (larger pieces read more)."""
    points = np.arange(extent + 1)
    low, high = hull(guard, points[:-1], points[1:])
    return bool(np.any(low >= high))
