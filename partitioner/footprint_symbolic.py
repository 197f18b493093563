"""Footprints as closed forms in the split factor, for decisions, reports and golden tests.

    value r18 of a stage  -->  [Max(0, 56*k/f - 2), Min(56, 56*(k + 1)/f + 2)) of axis 1,  100352*... bytes

One expression a value, never one over a whole group: sympy needs many seconds for the maximum over a stage, and the
search evaluates the same terms in numpy (`partitioner.footprint`); a property test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sympy

from partitioner.footprint import Footprint, Value
from partitioner.terms import Guard, Span, Term

__all__ = ["FACTOR", "INSTANCE", "ClosedForm", "closed_forms", "input_bytes", "recomputed_macs"]

FACTOR = sympy.Symbol("f", integer=True, positive=True)
"""How many pieces the axis is cut into."""

INSTANCE = sympy.Symbol("k", integer=True, nonnegative=True)
"""Which piece, from 0."""


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """One value along one axis of the output: piece k of f needs [start, stop) of the value's axis `axis`.

    `piece_bytes` is in f and k; `total_bytes` and `overlap_elements` (needed by several pieces, counted once for each
    after the first) are in f. All are exact; sums over k stay sums where clipping at borders leaves no shorter form.
    """

    tensor: str
    axis: int
    start: sympy.Expr
    stop: sympy.Expr
    piece_bytes: sympy.Expr
    total_bytes: sympy.Expr
    overlap_elements: sympy.Expr
    external: bool


def closed_forms(footprint: Footprint, quantum: int = 1) -> tuple[ClosedForm, ...]:
    """The closed form of every value. Pieces are cut at multiples of `quantum`, so f is at most the number of those."""
    return tuple(_closed_form(value, footprint.extent, quantum) for value in footprint.values)


def input_bytes(forms: tuple[ClosedForm, ...]) -> sympy.Expr:
    """Bytes of outside values that all pieces read together: what comes from other memories."""
    return sympy.Add(*(form.total_bytes for form in forms if form.external))


def recomputed_macs(footprint: Footprint, forms: tuple[ClosedForm, ...]) -> dict[str, sympy.Expr]:
    """Layer -> multiply-accumulates that are done more than once; layers that recompute nothing left out."""
    by_tensor = {form.tensor: form for form in forms}
    output = {layer.name: layer.output for layer in footprint.layers}
    macs = {name: each * by_tensor[output[name]].overlap_elements for name, each in footprint.macs}
    return {name: expression for name, expression in macs.items() if expression != 0}


def _cut(position: sympy.Expr, extent: int, quantum: int) -> sympy.Expr:
    """Where cut number `position` lies: nearly equal pieces, the last one ragged where the quantum does not divide."""
    units = -(-extent // quantum)
    point = quantum * sympy.floor(units * position / FACTOR)
    return point if extent % quantum == 0 else sympy.Min(extent, point)


def _closed_form(value: Value, extent: int, quantum: int) -> ClosedForm:
    first, last = _cut(INSTANCE, extent, quantum), _cut(INSTANCE + 1, extent, quantum)
    spans = value.reach.spans
    conditions = [_condition(span, first, last, extent) for span in spans]
    starts = [_ends(sympy.Min, span.lows, first, extent) for span in spans]
    stops = [_ends(sympy.Max, span.highs, last, extent) for span in spans]
    if conditions == [sympy.true]:
        start, stop = starts[0], stops[0]
        length = stop - start
    else:
        start = sympy.Min(*(_where(c, a, sympy.oo) for c, a in zip(conditions, starts, strict=True)))
        stop = sympy.Max(*(_where(c, b, -sympy.oo) for c, b in zip(conditions, stops, strict=True)))
        length = _where(sympy.Or(*conditions), sympy.Max(0, stop - start), sympy.Integer(0))
    total, overlap = _over_all_pieces(value, length, extent, quantum)
    each = value.slice_elements
    return ClosedForm(
        value.tensor,
        value.reach.axis,
        start,
        stop,
        length * each * value.item_bytes,
        total * each * value.item_bytes,
        overlap * each,
        value.external,
    )


def _over_all_pieces(value: Value, length: sympy.Expr, extent: int, quantum: int) -> tuple[sympy.Expr, sympy.Expr]:
    """Lengths of all pieces together, and overlaps of neighbours.

    Where every piece reads something, the lengths telescope: all that is read from the first start to the last stop,
    and at each cut between two pieces once more what lies between the second's start and the first's stop.
    """
    (span, *more) = value.reach.spans
    if more or span.guards:
        return sympy.Sum(length, (INSTANCE, 0, FACTOR - 1)), _guarded_overlap(value, extent, quantum)
    points = np.arange(extent + 1)
    low, high = span.ends(points, points)
    read = int(high[-1] - low[0])
    shared = (high - low)[1:-1]  # at every place where a cut may lie
    if shared.size == 0 or bool(np.all(shared == shared[0])):
        once = int(shared[0]) if shared.size else 0
        return read + (FACTOR - 1) * once, (FACTOR - 1) * max(0, once)
    cut = _cut(INSTANCE, extent, quantum)
    at_cut = _ends(sympy.Max, span.highs, cut, extent) - _ends(sympy.Min, span.lows, cut, extent)
    overlap = at_cut if bool(np.all(shared >= 0)) else sympy.Max(0, at_cut)
    cuts = (INSTANCE, 1, FACTOR - 1)
    return read + sympy.Sum(at_cut, cuts), sympy.Sum(overlap, cuts)


def _guarded_overlap(value: Value, extent: int, quantum: int) -> sympy.Expr:
    """Overlap with the piece before, where both read something."""
    before, cut, behind = (_cut(INSTANCE + shift, extent, quantum) for shift in (-1, 0, 1))
    spans = value.reach.spans
    stop = sympy.Max(
        *(_where(_condition(s, before, cut, extent), _ends(sympy.Max, s.highs, cut, extent), -sympy.oo) for s in spans)
    )
    start = sympy.Min(
        *(_where(_condition(s, cut, behind, extent), _ends(sympy.Min, s.lows, cut, extent), sympy.oo) for s in spans)
    )
    return sympy.Sum(sympy.Max(0, stop - start), (INSTANCE, 1, FACTOR - 1))


def _where(condition: sympy.Basic, value: sympy.Expr, otherwise: sympy.Expr) -> sympy.Expr:
    return sympy.Piecewise((value, condition), (otherwise, True))


def _condition(span: Span, first: sympy.Expr, last: sympy.Expr, extent: int) -> sympy.Basic:
    """When the span is read at all."""

    def open_between(guard: Guard) -> sympy.Basic:
        return _ends(sympy.Min, guard[0], first, extent) < _ends(sympy.Max, guard[1], last, extent)

    return sympy.And(*(open_between(guard) for guard in span.guards))


def _ends(join: sympy.Basic, terms: tuple[Term, ...], cut: sympy.Expr, extent: int) -> sympy.Expr:
    expressions = [_expression(term, cut, extent) for term in terms]
    return expressions[0] if len(expressions) == 1 else join(*expressions)


def _expression(term: Term, cut: sympy.Expr, extent: int) -> sympy.Expr:
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
