"""Attention, and caches of keys and values: a row must see no row of padding.

    TensorScatter(cache, rows, begin)      a cache that has rows of padding from begin + real rows on
    Attention(q, cache, lengths, causal)   row i sees the columns up to length - rows + i: not those

Rules raise Meets where a real row would read a row of padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dsa_sched.frontend.padding.case import Case
from dsa_sched.frontend.padding.linear import LinearNumber
from dsa_sched.frontend.padding.values import (
    HIDING,
    PLAIN,
    Beyond,
    Extent,
    Meets,
    Number,
    Padded,
    Region,
    Rest,
    Stale,
    covering,
)

SEEN = "a row sees rows of padding, which no mask hides"


def attention(case: Case) -> tuple[Padded, ...]:
    """ONNX's Attention of operator sets 23 to 25; present keys and values are those that it reads."""
    if len(case.node.outputs) > 3 and case.node.outputs[3]:
        raise Meets("what its scores are is not known")
    q, k, v = (case.read(position) for position in range(3))
    pasts = [case.read(position) if case.has(position) else None for position in (4, 5)]
    flat = len(case.shape(0)) == 3
    place = 1 if flat else 2
    for value in (q, k, v, *filter(None, pasts)):
        if any(dim not in (0, place) for dim in value.extents):
            raise Meets("it sums over rows of padding")
    if any(past is not None and (place in past.extents or past.stale is not None) for past in pasts):
        raise Meets("the rows before the new ones have rows of padding")
    if len({value.extents.get(0) for value in (q, k, v)}) > 1:
        raise Meets("items meet other items")
    keys, stale = _keys((k, v), place)
    hidden = [*_hidden(case, place in q.extents)]
    if keys is not None and not _hides_rest(case, q, place, keys) and Rest(1) not in hidden:
        raise Meets(SEEN)
    if stale is not None and not any(
        case.is_within(over) for region in hidden if (over := covering(region, stale)) is not None
    ):
        raise Meets("a row sees a cache's rows of padding, which no mask hides")
    presents = [_present(case, value, place) for value in (k, v)]
    return (Padded(q.extents), *presents)[: len(case.node.outputs)]


def _keys(values: Sequence[Padded], place: int) -> tuple[Extent | None, Stale | None]:
    """The rows of keys and values, and the cache that they are."""
    if values[0].extents.get(place) != values[1].extents.get(place):
        raise Meets("rows meet other rows")
    stale = [replace(value.stale, source="") for value in values if value.stale is not None]
    if stale and (len(stale) < 2 or stale[0] != stale[1] or stale[0].dim != place):
        raise Meets("keys and values are caches that are written at different places")
    return values[0].extents.get(place), Stale(1, stale[0].begin) if stale else None


def _hides_rest(case: Case, q: Padded, place: int, keys: Extent) -> bool:
    """Whether a row sees no rows after itself, among keys that are the new rows, maybe after past ones."""
    causal = bool(case.node.integer("is_causal", 0)) or case.node.integer("right_window_size", -1) == 0
    alone = (keys.outer, keys.inner) == (1, 1) and keys.more >= 0
    return causal and q.extents.get(place) == PLAIN and alone and not case.has(6)


def _hidden(case: Case, has_rows: bool) -> Iterator[Region]:
    """Regions that are hidden, with dimension 0 for rows and 1 for columns."""
    if case.has(3):
        mask, rank = case.read(3), len(case.shape(3))
        truth = case.sizes.networks[1].values[case.node.input(3)].dtype == 9
        for region, number in mask.facts.items():
            hides = number == 0 if truth else number <= HIDING
            match region:
                case Rest(dim) if dim == rank - 1 and hides:
                    yield Rest(1)
                case Beyond(rows, columns, begin) if columns == rank - 1 and rows in (None, rank - 2) and hides:
                    yield Beyond(None if rows is None else 0, 1, begin)
        if mask.stale is not None or any(dim not in (0, rank - 2, rank - 1) for dim in mask.extents):
            raise Meets("its mask has rows of padding")
    if case.has(6):
        length = case.value(6).number
        if length is None or length.along is not None:
            if not case.value(6).is_same and 0 not in case.value(6).extents:
                raise Meets("its lengths change with rows of padding")
            return
        if has_rows and case.node.integer("is_causal", 0):
            begin = length.base - LinearNumber(rows=1)
            case.counting.require_same(begin, case.node.name)
            yield Beyond(0, 1, begin)
            return
        case.counting.require_same(length.base, case.node.name)
        yield Beyond(None, 1, length.base - LinearNumber(1))


def _present(case: Case, value: Padded, place: int) -> Padded:
    """Keys or values with those of the past before them, with heads apart."""
    extents = {(2 if dim == place else dim): extent for dim, extent in value.extents.items()}
    if case.has(4) and 2 in extents:
        extents[2] = replace(extents[2], more=extents[2].more + case.shape(4)[2])
    return Padded(extents, stale=value.stale and replace(value.stale, dim=2))


def rotary(case: Case) -> tuple[Padded, ...]:
    """A rotation of each row by its place."""
    x = case.read(0)
    places = case.look_up(3, case.shape(1)[0]) if case.has(3) else Padded()
    rows = 1 if len(case.shape(0)) == 3 else 2
    if any(dim not in (0, rows) for dim in x.extents) or x.stale is not None:
        raise Meets("it sums over rows of padding")
    own = {0: x.extents.get(0), 1: x.extents.get(rows)}
    for position in (1, 2, 3):
        if not case.has(position):
            continue
        value = places if position == 3 else case.read(position)
        table = position < 3 and case.has(3)
        for dim, extent in value.extents.items():
            if table or own.get(dim) != extent:
                raise Meets("rows meet other rows")
    return (Padded(x.extents),)


def scattered(case: Case) -> tuple[Padded, ...]:
    """TensorScatter: rows that are written into a cache from a place on."""
    cache, update = case.read(0), case.read(1)
    rank = len(case.shape(0))
    axis = case.node.integer("axis", -2) % rank
    if cache.stale is not None or axis in cache.extents:
        raise Meets("the rows before the new ones have rows of padding")
    if {dim: e for dim, e in update.extents.items() if dim != axis} != dict(cache.extents):
        raise Meets("items meet other items")
    extents = dict(cache.extents)
    if axis not in update.extents:
        if case.has(2):
            case.read(2)
        return (Padded(extents, stale=update.stale),)
    if update.extents[axis] != PLAIN or case.node.text("mode", "linear") != "linear":
        raise Meets("it writes rows of padding over others")
    begin = Number(LinearNumber())
    if case.has(2):
        found = case.value(2).number
        if found is None or found.along is not None:
            raise Meets(f"the place {case.node.input(2)} at which it writes is not one that follows from inputs")
        case.counting.require_same(found.base, case.node.name)
        begin = found
    case.fit(begin.base, case.shape(0)[axis])
    return (Padded(extents, stale=Stale(axis, begin.base, case.node.input(0))),)


def assigned(case: Case) -> tuple[Padded, ...]:
    """ScatterND that writes rows of the first dimension, one after the other from a place on."""
    cache, update = case.read(0), case.read(2)
    places, shape = case.value(1), case.shape(1)
    if cache.stale is not None or cache.extents:
        raise Meets("the rows before the new ones have rows of padding")
    if not update.extents and not places.extents:
        case.read(1)
        return (Padded(stale=None),)
    number = places.number
    rows = dict(update.extents) == {0: PLAIN} and dict(places.extents) == {0: PLAIN} and shape[-1] == 1
    if not rows or number is None or number.along != 0:
        raise Meets("it writes rows at places that do not follow each other")
    if case.node.text("reduction", "none") != "none":
        raise Meets("it adds rows of padding to others")
    case.counting.require_same(number.base, case.node.name)
    case.fit(number.base, case.shape(0)[0])
    return (Padded(stale=Stale(0, number.base, case.node.input(0))),)
