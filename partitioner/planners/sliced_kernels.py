"""Slices of the batch for kernels that are whole groups: runs of groups that are computed slice by slice.

    run of the whole batch, counts --where traffic could be saved--> covers of a slice --cut points--> pieces in order

A value that is larger than the cache of all cores goes to the main memory between two kernels. If the kernels run for
one slice of the batch after the other (depth first), what they exchange stays in the cache, at the price of more
launches and of waves that are not full. The cut points are those with the least sum of expected times: dynamic
programming over the groups, each either whole or in a segment. A segment must promise more than the error of its
kernels' rates, so all of them must have rates: floors leave out what starting a kernel costs. Between pieces nothing is
counted as found in the cache, and neither are constants that an earlier slice has read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from hw_models.errors import ModelError
from partitioner.context.batch_slices import BatchSlice, batch_of, batch_slice
from partitioner.context.plan_context import GraphContext, KernelContext
from partitioner.fusion.cache_hits import MARGIN, GroupWork, KernelRun, run_of
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.layers import Layer
from partitioner.planners.kernel_offers import KernelOffers
from partitioner.planners.slice_regions import has_rates, slice_regions, starts, starts_of

OPTION = "--slices"
SUBJECT = "batch"
"""Subject of decisions about slices."""

READERS = 16
"""Number of groups after a segment that are checked for what they no longer find in the cache."""

Cover = Callable[[KernelOffers], KernelRun]
"""The groups into which a level divides a network."""


@dataclass(frozen=True)
class Piece:
    """Groups that run `count` times, each time for a slice of the batch; 1 for whole ones. `run` is one slice."""

    count: int
    run: KernelRun

    @property
    def cost(self) -> float:
        """Seconds of all slices, including the margins of kernels of several layers."""
        return self.count * self.run.cost

    @property
    def seconds(self) -> float:
        return self.count * self.run.seconds


def sliced_context(ctx: KernelContext, part: BatchSlice) -> KernelContext:
    """The context of one slice."""
    return GraphContext(part.graph, ctx.constants, ctx.chip, ctx.target)


def in_slices(
    run: KernelRun, offers: KernelOffers, cover: Cover, excluded: int = 0, forced: int | None = None
) -> tuple[tuple[Piece, ...], tuple[Decision, ...]]:
    """The run in pieces, and why. Layers of `excluded` stay whole. With `forced` there is at least one segment of this
    many slices; 1 for none. Such segments are those in which more stays in the cache, chosen as if launches took no
    time; else, where there are none of these, the longest. Raises ModelError where there can be no segment."""
    if forced == 1:
        return (Piece(1, run),), ()
    if forced is None:
        return _worthwhile(run, offers, cover, excluded)
    groups = run.groups()
    edges = _edges(run, offers, cover, excluded, forced, ((0, len(groups)),))
    if saving := [edge for edge in edges if edge.found_bytes > _found_bytes(groups[edge.first : edge.last])]:
        prices = [work.cost(hits) - starts_of(work, hits) for work, hits in groups]
        path = _path(prices, [(edge, edge.cost - edge.starts) for edge in saving])
    else:  # as few pieces as possible
        path = _path([1.0] * len(groups), [(edge, 1.0) for edge in edges])
    if path is None:
        raise _none_possible(offers.ctx.graph, forced)
    return _in_pieces(run, path, "requested: ")


def _worthwhile(
    run: KernelRun, offers: KernelOffers, cover: Cover, excluded: int
) -> tuple[tuple[Piece, ...], tuple[Decision, ...]]:
    """The pieces of least cost, of which some are segments only if these promise more than their error."""
    whole, groups, batch = (Piece(1, run),), run.groups(), batch_of(offers.ctx.graph)
    if offers.cache is None or batch < 2:
        return whole, ()
    if not any(work.kernels and has_rates(work, hits) for work, hits in groups):
        return whole, (
            Decision(SUBJECT, "not in slices", "no kernel has a measured rate: floors have no price of starts"),
        )
    edges: list[_Edge] = []
    tried = []
    for count in _counts(batch):
        if regions := slice_regions(run, offers, excluded, count):
            found = _edges(run, offers, cover, excluded, count, regions)
            edges += (edge for edge in found if all(map(has_rates, edge.works)))
            tried.append(count)
    if not tried:
        reason = "what could stay in the cache saves less than further launches cost"
        return whole, (Decision(SUBJECT, "not in slices", reason),)
    prices = [work.cost(hits) for work, hits in groups]
    borders = _Borders(run)
    path = _path(prices, [(edge, edge.cost * (1 + edge.error) + borders.lost(edge.first, edge.last)) for edge in edges])
    if path is not None:
        pieces, reasons = _in_pieces(run, path)
        errors = sum(edge.cost * edge.error for edge in path)
        if sum(piece.cost for piece in pieces) + errors < run.cost:
            return pieces, reasons
    return whole, (_refusal(prices, edges, tried, groups),)


def _counts(batch: int) -> Iterator[int]:
    """The powers of two, from 2 on, that divide a batch."""
    count = 2
    while batch % count == 0:
        yield count
        count *= 2


# Segments, and the best of them.


@dataclass(frozen=True)
class _Edge:
    """Groups of the whole run, from number `first` to before `last`, in `count` slices, each of which runs `works`.
    `cost` and `starts`, the part of it that launches take, are seconds of all slices, `error` is a share of them, and
    `found_bytes` are read from the cache."""

    first: int
    last: int
    count: int
    works: tuple[GroupWork, ...]
    cost: float
    starts: float
    error: float
    found_bytes: int


def _edges(
    run: KernelRun,
    offers: KernelOffers,
    cover: Cover,
    excluded: int,
    count: int,
    regions: Sequence[tuple[int, int]],
) -> list[_Edge]:
    """All segments of two kernels or more inside of the regions; none where the batch has no such slices."""
    groups = [work for work, _ in run.groups()]
    inside = [work for first, last in regions for work in groups[first:last] if not work.members & excluded]
    part = batch_slice(
        offers.ctx.graph, count, {name for work in inside for layer in work.layers for name in layer.ops}
    )
    if part is None:
        return []
    own = KernelOffers(sliced_context(offers.ctx, part))
    works = tuple(work for work, _ in cover(own).groups())
    numbers = {layer: number for number, layer in enumerate(offers.layers)}
    masks = [_mask(work, numbers) for work in works]
    return [
        edge
        for first, last in regions
        for start in range(first, last)
        for edge in _from(start, groups[:last], works, masks, count, own)
    ]


def _mask(work: GroupWork, numbers: Mapping[Layer, int]) -> int | None:
    """The layers of a group of a slice, by their numbers in the network; None where one is not a layer of it."""
    found = [numbers.get(layer) for layer in work.layers]
    return None if None in found else sum(1 << number for number in found if number is not None)


def _from(
    start: int,
    groups: Sequence[GroupWork],
    works: Sequence[GroupWork],
    masks: Sequence[int | None],
    count: int,
    own: KernelOffers,
) -> Iterator[_Edge]:
    """The segments that begin with the group of number `start`. They end where groups of the whole batch and groups of
    a slice have covered the same layers."""
    begin = next((n for n, mask in enumerate(masks) if mask is not None and mask & groups[start].members), len(works))
    wanted, covered, end, run = 0, 0, begin, KernelRun(own.values)
    kernels, started, wrong, seconds, found = 0, 0.0, 0.0, 0.0, 0
    for number in range(start, len(groups)):
        wanted |= groups[number].members
        while wanted & ~covered:
            if end == len(works) or (mask := masks[end]) is None:
                return
            run, covered, work, end = run.then(works[end]), covered | mask, works[end], end + 1
            if work.kernels:
                best = work.best()
                found += count * _found_bytes(run.groups(1))
                kernels, started = kernels + 1, started + count * starts(best)
                wrong, seconds = wrong + best.error * best.seconds, seconds + best.seconds
        if covered == wanted and kernels > 1:
            cost, error = count * run.cost, max(MARGIN, wrong / seconds)
            yield _Edge(start, number + 1, count, tuple(works[begin:end]), cost, started, error, found)


def _found_bytes(groups: Sequence[tuple[GroupWork, frozenset[str]]]) -> int:
    """Bytes of values that groups read from the cache."""
    return sum(work.moved[name] for work, hits in groups for name in hits if name not in work.writes)


class _Borders:
    """What groups of a run lose that find nothing in the cache beyond the border of a segment, in seconds."""

    def __init__(self, run: KernelRun) -> None:
        self._groups = run.groups()
        self._before = [0.0]
        part, whole = KernelRun(run.values), 0.0
        for work, hits in self._groups:
            part, whole = part.then(work), whole + work.cost(hits)
            self._before.append(part.cost - whole)
        self._values = run.values
        self._after: dict[int, float] = {}

    def lost(self, first: int, last: int) -> float:
        """Around a segment of the groups from number `first` to before `last`: by those before it, whose values a
        reader would have found, and by the readers after it."""
        if last not in self._after:
            self._after[last] = self._lost_after(last)
        return self._before[first] + self._after[last]

    def _lost_after(self, last: int) -> float:
        run, lost = KernelRun(self._values), 0.0
        for work, hits in self._groups[last : last + READERS]:
            run = run.then(work)
            ((_, found),) = run.groups(1)
            lost += work.cost(hits & work.writes | found & hits) - work.cost(hits)
        return lost


@dataclass(frozen=True, slots=True)
class _Path:
    """Segments that were chosen among the first groups, with the sum of prices."""

    price: float
    edges: tuple[_Edge, ...] = ()


def _path(whole: Sequence[float], edges: Sequence[tuple[_Edge, float]]) -> tuple[_Edge, ...] | None:
    """The segments of the least sum of prices, with at least one: `whole` are those of the groups; None where there are
    no segments."""
    into: dict[int, list[tuple[_Edge, float]]] = {}
    for edge, price in edges:
        into.setdefault(edge.last, []).append((edge, price))
    plain, some = [_Path(0.0)], [_Path(inf)]
    for number, price in enumerate(whole, 1):
        plain.append(_Path(plain[-1].price + price))
        ways = [_Path(some[-1].price + price, some[-1].edges)]
        for edge, own in into.get(number, ()):
            before = min(plain[edge.first], some[edge.first], key=lambda path: path.price)
            ways.append(_Path(before.price + own, (*before.edges, edge)))
        some.append(min(ways, key=lambda path: (path.price, len(path.edges))))
    return some[-1].edges or None


def _in_pieces(run: KernelRun, path: Sequence[_Edge], why: str = "") -> tuple[tuple[Piece, ...], tuple[Decision, ...]]:
    """The segments and what is whole between them, with a decision for each segment."""
    groups = run.groups()
    pieces: list[Piece] = []
    reasons = []
    at = 0
    for edge in (*path, None):
        upto = edge.first if edge else len(groups)
        if upto > at:
            pieces.append(Piece(1, run_of(run.values, (work for work, _ in groups[at:upto]))))
        if edge is not None:
            piece = Piece(edge.count, run_of(edge.works[0].values, edge.works))
            pieces.append(piece)
            whole = sum(work.seconds(hits) for work, hits in groups[edge.first : edge.last])
            reasons.append(_chosen(piece, whole, why))
            at = edge.last
    return tuple(pieces), tuple(reasons)


# Decisions.


def _chosen(piece: Piece, whole_seconds: float, why: str) -> Decision:
    found = piece.run.groups()
    first, *_, last = (work.layers for work, _ in found if work.kernels)
    kept = piece.count * sum(work.moved.get(name, 0) for work, hits in found for name in hits)
    verdict = f"in {piece.count} slices: {first[0].name} to {last[-1].name}"
    launches = sum(piece.count * work.best(hits).launches for work, hits in found if work.kernels)
    reason = (
        f"{why}{launches} launches take {_us(piece.seconds)}, whole kernels {_us(whole_seconds)}; "
        f"{kept} bytes stay in the cache"
    )
    return Decision(SUBJECT, verdict, reason)


def _refusal(
    whole: Sequence[float], edges: Sequence[_Edge], tried: Sequence[int], groups: Sequence[tuple[GroupWork, object]]
) -> Decision:
    """Why no segment is taken: the one that saves most."""
    verdict = f"not in slices of {' or '.join(map(str, tried))}"
    if not edges:
        return Decision(SUBJECT, verdict, "no two groups in a row can be cut")
    best = max(edges, key=lambda edge: sum(whole[edge.first : edge.last]) - edge.cost)
    names = f"{groups[best.first][0].layers[0].name} to {groups[best.last - 1][0].layers[-1].name}"
    against = sum(whole[best.first : best.last])
    saves = f"save less than {best.error:.0%}" if best.cost < against else "are slower"
    reason = f"{best.count} slices of {names} {saves}: {_us(best.cost)} against {_us(against)}"
    return Decision(SUBJECT, verdict, reason)


def _none_possible(graph: Graph, count: int) -> ModelError:
    batch = batch_of(graph)
    if batch % count:
        return ModelError(
            f"{OPTION} {count}", needs="a number of slices that divides the batch", has=f"a batch of {batch}"
        )
    needs = "two kernels in a row whose images are computed each by itself and begin at multiples of 16 bytes"
    return ModelError(f"{OPTION} {count}", needs=needs, has=f"none in {graph.name} that are not in a requested group")


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.3f} us"
