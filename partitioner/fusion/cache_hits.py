"""Cache hits of kernels that run one after the other, in the cache before the main memory, which all cores share.

    kernels in order, bytes of their values --what was touched since--> hits --> kernels with other floors, seconds

A value is found in the cache if all data moved since a kernel last read or wrote it take less than `SHARE` of the
cache. They include the data of that kernel and of the reader, each value once; for a producer and a reader that run one
after the other, they are just those. A value that all of its readers find need not go to the main memory at all, unless
it is an output of the network. Nothing is found that an earlier run of the network has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from hw_models.chip import Chip
from hw_models.routes import main_memory
from partitioner.ir.graph import Graph
from partitioner.ir.kernels import Kernel, KernelFloor
from partitioner.ir.layers import Layer

SHARE = 0.6
"""Usable share of the cache; the rest is for other data in it and for early evictions."""

MARGIN = 0.02
"""Smallest gain, as a share, that a kernel of several layers must promise over its layers apart. Floors leave out the
drawbacks of such a kernel, barriers between its layers and fewer blocks at once; a smaller promise is worth nothing."""

NOTHING: frozenset[str] = frozenset()


def _surely(kernel: Kernel) -> float:
    """Seconds of a kernel among others for the same layers. One whose template was not measured, so that rates of
    another one count, has to promise as much more as those may be wrong."""
    speed = kernel.measured
    borrowed = speed is not None and speed.template != kernel.template
    return kernel.seconds * (1 + merge_margin(kernel)) if borrowed else kernel.seconds


def merge_margin(kernel: Kernel) -> float:
    """The share that a kernel of several layers must promise to save: MARGIN, or the error of its kind where that is
    larger."""
    return max(MARGIN, kernel.error)


@dataclass(frozen=True, slots=True)
class SharedCache:
    """The cache before the main memory `main`, and the bandwidths of both in bytes per second."""

    name: str
    main: str
    room_bytes: float
    bytes_per_second: float
    main_bytes_per_second: float


def shared_cache(chip: Chip) -> SharedCache | None:
    """The chip's shared cache; None where the chip file names none."""
    if chip.simt_part is None:
        return None
    cache, main = chip.memory(chip.simt.cache), chip.memory(main_memory(chip))
    rates = [(memory.bandwidth_bytes_per_cycle or inf) * chip.clock_hz for memory in (cache, main)]
    return SharedCache(cache.name, main.name, SHARE * cache.size_bytes, rates[0], rates[1])


def with_hits(kernel: Kernel, cache: SharedCache, hit: int) -> Kernel:
    """The kernel where `hit` bytes of its values need not go to or come from the main memory: they are subtracted from
    its floor, and everything that the kernel moves is a lower bound of what goes through the cache."""
    if not hit:
        return kernel
    moved = sum(size for _, size in kernel.values)
    floors = [_main_floor(floor, cache, hit) for floor in kernel.floors if floor.name != cache.name]
    through = KernelFloor(cache.name, moved / cache.bytes_per_second, f"{moved} bytes, {hit} of which stay there")
    known = [floor for floor in kernel.floors if floor.name == cache.name]
    return replace(kernel, floors=(*floors, max((*known, through), key=lambda floor: floor.seconds)))


def _main_floor(floor: KernelFloor, cache: SharedCache, hit: int) -> KernelFloor:
    if floor.name != cache.main:
        return floor
    seconds = max(0.0, floor.seconds - hit / cache.main_bytes_per_second)
    return KernelFloor(floor.name, seconds, f"{floor.work}, {hit} less that stay in {cache.name}")


class ValueReaders:
    """Layers that read a value, under any name: a view is another name for the same bytes."""

    def __init__(self, graph: Graph, layers: Sequence[Layer]) -> None:
        self.roots: dict[str, str] = {}
        self.readers: dict[str, int] = {}
        for number, layer in enumerate(layers):
            if layer.is_view(graph):
                self.roots[layer.output] = self.root(layer.anchor(graph).inputs[0])
                continue
            for name in layer.inputs(graph):
                self.readers[self.root(name)] = self.readers.get(self.root(name), 0) | 1 << number
        self.stored = frozenset(map(self.root, graph.outputs))

    def root(self, name: str) -> str:
        """The name under which the bytes were made."""
        return self.roots.get(name, name)


@dataclass(frozen=True)
class GroupWork:
    """Layers that could be one kernel: `members` has a bit for each, `kernels` are the candidates, none for a view, and
    `writes` the values that leave it. `values` resolve names of views."""

    layers: tuple[Layer, ...]
    members: int
    kernels: tuple[Kernel, ...]
    writes: frozenset[str]
    values: ValueReaders
    cache: SharedCache | None
    _best: dict[frozenset[str], Kernel] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def moved(self) -> Mapping[str, int]:
        """Bytes moved by value, the same for all candidates except for unread parts of a first input."""
        return self._bytes(self.kernels[0]) if self.kernels else {}

    @cached_property
    def reads(self) -> tuple[str, ...]:
        return tuple(name for name in self.moved if name not in self.writes)

    def best(self, hits: frozenset[str] = NOTHING) -> Kernel:
        """The first of the fastest kernels where these values stay in the cache."""
        if hits not in self._best:
            self._best[hits] = min(self.candidates(hits), key=_surely)
        return self._best[hits]

    def candidates(self, hits: frozenset[str] = NOTHING) -> Iterator[Kernel]:
        """All kernels where these values stay in the cache."""
        for kernel in self.kernels:
            if self.cache is None or not hits:
                yield kernel
                continue
            sizes = self._bytes(kernel)
            yield with_hits(kernel, self.cache, sum(sizes.get(name, 0) for name in hits))

    def seconds(self, hits: frozenset[str] = NOTHING) -> float:
        return self.best(hits).seconds if self.kernels else 0.0

    def cost(self, hits: frozenset[str] = NOTHING) -> float:
        """Seconds, including the margin of a kernel of several layers."""
        if len(self.layers) == 1 or not self.kernels:
            return self.seconds(hits)
        best = self.best(hits)
        return best.seconds * (1 + merge_margin(best))

    def _bytes(self, kernel: Kernel) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for name, size in kernel.values:
            root = self.values.root(name)
            sizes[root] = max(size, sizes.get(root, 0))
        return sizes


@dataclass(frozen=True, slots=True)
class _Place:
    """One group of a run, and the values that it reads from the cache."""

    number: int
    work: GroupWork
    found: frozenset[str]
    before: _Place | None


@dataclass(frozen=True, slots=True)
class _Value:
    """State of a value that is still to be read: the group that made it (None for a value that no group made), the last
    group that touched it, layers that will read it, and whether all readers up to now have found it."""

    maker: _Place | None
    touched: int
    left: int
    kept: bool


@dataclass(frozen=True, slots=True)
class KernelRun:
    """Groups one after the other, up to some point of a network, and their `cost` in seconds. `kept` are, by the
    group's number, the values that a group writes and nobody needs from the main memory."""

    values: ValueReaders
    cost: float = 0.0
    last: _Place | None = None
    live: Mapping[str, _Value] = field(default_factory=dict)
    kept: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def then(self, work: GroupWork) -> KernelRun:
        """The run with one more group; a view takes no time and moves nothing."""
        if work.cache is None:
            place = _Place(0, work, NOTHING, self.last)
            return replace(self, cost=self.cost + work.cost(), last=place)
        found = self._found(work, work.cache)
        place = _Place(self.last.number + 1 if self.last else 0, work, found, self.last)
        cost = self.cost + work.cost(found)
        live, kept = dict(self.live), self.kept
        for name in work.reads:
            value = live.get(name) or _Value(None, 0, self.values.readers.get(name, 0), False)
            still = value.kept and name in found
            left = value.left & ~work.members
            live[name] = _Value(value.maker, place.number, left, still)
            if left:
                continue
            del live[name]
            if still and value.maker is not None:
                saved, kept = _without(value.maker, name, kept)
                cost -= saved
        for name in work.writes:
            left = self.values.readers.get(name, 0) & ~work.members
            if left:
                live[name] = _Value(place, place.number, left, name not in self.values.stored)
        return KernelRun(self.values, cost, place, live, kept)

    def _found(self, work: GroupWork, cache: SharedCache) -> frozenset[str]:
        """The values read by the group that are still in the cache."""
        wanted = {name: self.live[name].touched for name in work.reads if name in self.live}
        first = min(wanted.values(), default=None)
        if first is None:
            return NOTHING
        seen, total, place = dict(work.moved), float(sum(work.moved.values())), self.last
        reached = place.number + 1 if place else 0
        while place is not None and place.number >= first:
            for name, size in place.work.moved.items():
                total += max(0, size - seen.get(name, 0))
                seen[name] = max(size, seen.get(name, 0))
            if total >= cache.room_bytes:
                break
            reached, place = place.number, place.before
        return frozenset(name for name, touched in wanted.items() if touched >= reached)

    @property
    def seconds(self) -> float:
        """Seconds of all floors and launches."""
        return sum(work.seconds(hits) for work, hits in self.groups())

    def context(self) -> tuple[object, ...]:
        """The properties of the last group on which the seconds of later groups depend."""
        if self.last is None or self.last.work.cache is None:
            return ()
        return self.last.work.members, self.last.found

    def groups(self, last: int | None = None) -> tuple[tuple[GroupWork, frozenset[str]], ...]:
        """All groups in order, or the `last` ones, each with its values that stay in the cache."""
        found: list[tuple[GroupWork, frozenset[str]]] = []
        place = self.last
        while place is not None and len(found) != last:
            found.append((place.work, place.found | self.kept.get(place.number, NOTHING)))
            place = place.before
        return tuple(reversed(found))


def _without(
    maker: _Place, name: str, kept: Mapping[int, frozenset[str]]
) -> tuple[float, Mapping[int, frozenset[str]]]:
    """The cost that the maker of a value saves if it need not write the value to the main memory."""
    before = maker.found | kept.get(maker.number, NOTHING)
    after = before | {name}
    saved = maker.work.cost(before) - maker.work.cost(after)
    return saved, {**kept, maker.number: after - maker.found}


def run_of(values: ValueReaders, works: Iterable[GroupWork]) -> KernelRun:
    """The run of all groups in this order."""
    run = KernelRun(values)
    for work in works:
        run = run.then(work)
    return run
