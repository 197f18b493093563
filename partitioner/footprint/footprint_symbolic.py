"""Footprints as closed forms in the split factor, with which `explain` says why a group is cut as it is.

    value r18 of a stage  -->  [Max(0, 56*k/f - 2), Min(56, 56*(k + 1)/f + 2)) of axis 1,  100352*... bytes

There is one expression per value, never one for a whole group: sympy needs many seconds for the maximum over a stage.
The search evaluates the same terms in numpy (`partitioner.footprint.footprint`); a property test checks that both are
equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import sympy

from partitioner.footprint.footprint import Footprint, FootprintValue
from partitioner.footprint.interval_bounds import ClampTerm, IntervalSpan, hull

FACTOR = sympy.Symbol("f", integer=True, positive=True)
"""Symbol for the number of pieces of the axis."""

INSTANCE = sympy.Symbol("k", integer=True, nonnegative=True)
"""Symbol for the number of a piece, from 0."""


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """One value along one axis of the output: piece k of f needs [start, stop) of the value's axis `axis`.

    `piece_bytes` is in f and k; `total_bytes` and `recomputed_elements` (those of all pieces beyond those of the uncut
    output) are in f. All are exact; sums over k stay sums where clipping at borders leaves no shorter form.
    """

    tensor: str
    axis: int
    start: sympy.Expr
    stop: sympy.Expr
    piece_bytes: sympy.Expr
    total_bytes: sympy.Expr
    recomputed_elements: sympy.Expr
    external: bool


def closed_forms(footprint: Footprint, granule: int = 1) -> tuple[ClosedForm, ...]:
    """The closed form of every value. Pieces are cut at multiples of `granule`, so f is at most the number of those."""
    return tuple(_closed_form(value, footprint.extent, granule) for value in footprint.values)


def input_bytes(forms: tuple[ClosedForm, ...]) -> sympy.Expr:
    """Bytes of outside values that all pieces read together: the traffic from other memories."""
    return sympy.Add(*(form.total_bytes for form in forms if form.external))


def recomputed_macs(footprint: Footprint, forms: tuple[ClosedForm, ...]) -> dict[str, sympy.Expr]:
    """Multiply-accumulates beyond those of the uncut group, by layer; layers with none are left out."""
    by_tensor = {form.tensor: form for form in forms}
    output = {layer.name: layer.output for layer in footprint.layers}
    macs = {name: each * by_tensor[output[name]].recomputed_elements for name, each in footprint.macs}
    return {name: expression for name, expression in macs.items() if expression != 0}


def value_at(expression: sympy.Expr, count: int, instance: int = 0) -> int:
    """The number for `count` pieces, exactly. Sums are added up term by term: sympy itself would look for closed
    forms of them, which takes long and finds none."""
    sums = {}
    for part in expression.atoms(sympy.Sum):
        body, (_, first, last) = part.args
        each = sympy.lambdify((FACTOR, INSTANCE), body, modules="math")
        terms = range(int(first.subs(FACTOR, count)), int(last.subs(FACTOR, count)) + 1)
        sums[part] = sympy.Integer(sum(int(each(Fraction(count), Fraction(k))) for k in terms))
    whole = sympy.lambdify((FACTOR, INSTANCE), expression.xreplace(sums), modules="math")
    return int(whole(Fraction(count), Fraction(instance)))


def _cut(position: sympy.Expr, extent: int, granule: int) -> sympy.Expr:
    """Position of cut number `position`: nearly equal pieces, the last one ragged where the granule does not divide the
    extent."""
    units = -(-extent // granule)
    point = granule * sympy.floor(units * position / FACTOR)
    return point if extent % granule == 0 else sympy.Min(extent, point)


def _closed_form(value: FootprintValue, extent: int, granule: int) -> ClosedForm:
    first, last = _cut(INSTANCE, extent, granule), _cut(INSTANCE + 1, extent, granule)
    start, stop, read = _hull(value.reach.spans, first, last, extent)
    length = read * (stop - start)
    total, extra = _over_all_pieces(value, length, extent, granule)
    each = value.slice_elements
    return ClosedForm(
        value.tensor,
        value.reach.axis,
        start,
        stop,
        length * each * value.item_bytes,
        total * each * value.item_bytes,
        extra * each,
        value.external,
    )


def _over_all_pieces(
    value: FootprintValue, length: sympy.Expr, extent: int, granule: int
) -> tuple[sympy.Expr, sympy.Expr]:
    """Sum of the lengths of all pieces, and its excess over the uncut length.

    Where every piece reads something, the lengths telescope: everything from the first start to the last stop, and at
    each cut between two pieces once more the part between the second's start and the first's stop.
    """
    spans = value.reach.spans
    points = np.arange(extent + 1)
    low, high = hull(spans, points[:1], points[-1:])
    whole = int(high[0] - low[0])
    if len(spans) > 1 or spans[0].guards:
        total = sympy.Sum(length, (INSTANCE, 0, FACTOR - 1))
        return total, total - whole
    starts, stops = spans[0].ends(points, points)
    shared = (stops - starts)[1:-1]  # at every place where a cut may lie
    if shared.size == 0 or bool(np.all(shared == shared[0])):
        extra = (FACTOR - 1) * (int(shared[0]) if shared.size else 0)
    else:
        cut = _cut(INSTANCE, extent, granule)
        at_cut = _ends(sympy.Max, spans[0].highs, cut, extent) - _ends(sympy.Min, spans[0].lows, cut, extent)
        extra = sympy.Sum(at_cut, (INSTANCE, 1, FACTOR - 1))
    return whole + extra, extra


def _hull(
    spans: tuple[IntervalSpan, ...], first: sympy.Expr, last: sympy.Expr, extent: int
) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr]:
    """Both ends of the hull of the spans, and 1 where it holds anything, else 0.

    Conditions are factors of 0 or 1 made of Min and Max: sympy simplifies those of a Piecewise while it is built.
    """
    starts = [_ends(sympy.Min, span.lows, first, extent) for span in spans]
    stops = [_ends(sympy.Max, span.highs, last, extent) for span in spans]
    if len(spans) == 1 and not spans[0].guards:
        return starts[0], stops[0], sympy.Integer(1)
    reads: list[sympy.Expr] = []
    for span in spans:
        guards = [_hull(guard, first, last, extent) for guard in span.guards if guard != (replace(span, guards=()),)]
        own = sympy.Integer(1) if len(spans) == 1 else _some(starts[len(reads)], stops[len(reads)])
        reads.append(sympy.Mul(own, *(read * _some(low, high) for low, high, read in guards)))
    if len(spans) == 1:
        return starts[0], stops[0], reads[0] * _some(starts[0], stops[0])
    # Ends that join nothing, for spans that are not read.
    latest = max(term.high for span in spans for term in span.lows)
    earliest = min(term.low for span in spans for term in span.highs)
    start = sympy.Min(*(read * low + (1 - read) * latest for read, low in zip(reads, starts, strict=True)))
    stop = sympy.Max(*(read * high + (1 - read) * earliest for read, high in zip(reads, stops, strict=True)))
    return start, stop, sympy.Min(1, sympy.Add(*reads)) * _some(start, stop)


def _some(low: sympy.Expr, high: sympy.Expr) -> sympy.Expr:
    """1 where the interval holds an element, else 0."""
    return sympy.Min(1, sympy.Max(0, high - low))


def _ends(join: sympy.Basic, terms: tuple[ClampTerm, ...], cut: sympy.Expr, extent: int) -> sympy.Expr:
    expressions = [_expression(term, cut, extent) for term in terms]
    return expressions[0] if len(expressions) == 1 else join(*expressions)


def _expression(term: ClampTerm, cut: sympy.Expr, extent: int) -> sympy.Expr:
    """The term at a cut point; clamps that bind nowhere in [0, extent] are left out."""
    if term.is_constant:
        return sympy.Integer(term.low)
    inner = cut if term.inner is None else _expression(term.inner, cut, extent)
    value = sympy.Integer(term.multiplier) * inner + term.addend
    if term.divisor != 1:
        value = term.scale * sympy.floor(value / term.divisor) + term.offset
    points = np.array([0, extent], np.int64)
    ends = points if term.inner is None else term.inner.at(points)
    least, most = (term.scale * ((term.multiplier * int(e) + term.addend) // term.divisor) + term.offset for e in ends)
    if most > term.high:
        value = sympy.Min(value, term.high)
    return sympy.Max(value, term.low) if least < term.low else value
