"""Sums of products: rows stay rows, and what is summed must not have rows of padding, unless they are times zero.

Rules raise Meets where rows of padding are summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsa_sched.frontend.padding.case import Case
from dsa_sched.frontend.padding.linear import LinearNumber
from dsa_sched.frontend.padding.values import Beyond, Extent, Meets, Padded, Region, Rest, Stale, covering


def matmul(case: Case) -> tuple[Padded, ...]:
    ranks = [len(case.shape(position)) for position in (0, 1)]
    rank = max(*ranks, 2)
    first = {dim: rank - ranks[0] + dim for dim in range(ranks[0] - 1)} if ranks[0] > 1 else {}
    second = {dim: rank - ranks[1] + dim for dim in range(ranks[1] - 2)} | {ranks[1] - 1: rank - 1}
    made = len(case.result()[1])
    if ranks[1] == 1:
        second, first = {}, {dim: made - ranks[0] + 1 + dim for dim in range(ranks[0] - 1)}
    elif ranks[0] == 1:
        second = {dim: dim for dim in range(ranks[1] - 2)} | {ranks[1] - 1: ranks[1] - 2}
    return (product(case, (first, second), (ranks[0] - 1, max(ranks[1] - 2, 0))),)


def gemm(case: Case) -> tuple[Padded, ...]:
    turned = [bool(case.node.integer(name, 0)) for name in ("transA", "transB")]
    rows, columns = int(turned[0]), int(not turned[1])
    found = product(case, ({rows: 0}, {columns: 1}), (1 - rows, 1 - columns))
    if case.has(2):
        bias, shape = case.read(2), case.shape(2)
        for dim in bias.extents:
            if found.extents.get(dim + 2 - len(shape)) != bias.extents[dim]:
                raise Meets("rows meet other rows")
    return (Padded(found.extents, stale=found.stale),)


def einsum(case: Case) -> tuple[Padded, ...]:
    terms, _, result = case.node.text("equation", "").replace(" ", "").partition("->")
    letters = terms.split(",")
    if len(letters) > 2 or "." in terms or any(len(set(term)) < len(term) for term in letters) or not result:
        raise Meets("its equation is not one of one or two operands and a result")
    summed = sorted({*"".join(letters)} - {*result})
    if len(letters) == 1 or len(summed) != 1 or any(summed[0] not in term for term in letters):
        for position in range(len(letters)):
            value = case.read(position)
            gone = [dim for dim, letter in enumerate(letters[position]) if letter in summed]
            if value.stale is not None or any(dim in value.extents for dim in gone):
                raise Meets("it sums over rows of padding")
        ways = [{d: result.index(x) for d, x in enumerate(term) if x in result} for term in letters]
        values = [case.read(position) for position in range(len(letters))]
        return (Padded(_joined(case, values, ways)),)
    first, second = ({d: result.index(x) for d, x in enumerate(term) if x in result} for term in letters)
    return (product(case, (first, second), (letters[0].index(summed[0]), letters[1].index(summed[0]))),)


def product(case: Case, ways: tuple[dict[int, int], dict[int, int]], summed: tuple[int, int]) -> Padded:
    """The product of the first two operands, whose dimensions go where `ways` say, over the dimensions `summed`."""
    values = [case.read(position) for position in (0, 1)]
    _require_nothing_summed(case, values, summed)
    extents = _joined(case, values, ways)
    stale: Stale | None = None
    facts: dict[Region, float] = {}
    for value, way, own in zip(values, ways, summed, strict=True):
        if value.stale is not None and value.stale.dim != own:
            if stale is not None or value.stale.dim not in way:
                raise Meets("two caches meet that have rows of padding")
            stale = Stale(way[value.stale.dim], value.stale.begin)
        zeros = (region.dim for region, number in value.facts.items() if isinstance(region, Rest) and number == 0)
        facts |= {Rest(way[dim]): 0.0 for dim in zeros if dim in way}
    return Padded(extents, facts, stale=stale)


def _joined(case: Case, values: Sequence[Padded], ways: Sequence[dict[int, int]]) -> dict[int, Extent]:
    """The rows along dimensions of the result."""
    extents: dict[int, Extent] = {}
    for value, way in zip(values, ways, strict=True):
        for dim, extent in value.extents.items():
            if dim in way and extents.setdefault(way[dim], extent) != extent:
                raise Meets("rows meet other rows")
    few, many = case.result()
    for dim, extent in extents.items():
        if not case.sizes.fits(extent, (few[dim], many[dim])):
            raise Meets("rows meet other rows")
    for number, (value, way) in enumerate(zip(values, ways, strict=True)):
        for dim, place in way.items():
            if place in extents and dim not in value.extents and case.shape(number)[dim] != 1:
                raise Meets("rows meet other rows")
    return extents


def _require_nothing_summed(case: Case, values: Sequence[Padded], summed: Sequence[int]) -> None:
    """Raises Meets where rows of padding are among what is summed, and are not times zero."""
    own = list(zip(values, summed, strict=True))
    if any(dim in value.extents for value, dim in own):
        same = own[0][0].extents.get(summed[0]) == own[1][0].extents.get(summed[1])
        if not same or not any(value.facts.get(Rest(dim)) == 0 for value, dim in own):
            raise Meets("it sums over all rows, those of padding too")
    for (value, dim), (other, place) in (own, own[::-1]):
        if value.stale is not None and value.stale.dim == dim:
            stale = Stale(place, value.stale.begin)
            if not any(case.is_within(over) for over in _zeros(other, stale)):
                raise Meets("it sums over a cache's rows of padding, which nothing hides")


def _zeros(value: Padded, stale: Stale) -> Iterator[LinearNumber]:
    for region, number in value.facts.items():
        if isinstance(region, Beyond) and number == 0 and (over := covering(region, stale)) is not None:
            yield over
