"""Work of the engines in each part of a run: by stage of the network, by group, by operator, or in stretches of time.

    Timeline + operator -> part --usage_by--> a Usage for each part, in the order of their first work
    Timeline + number of stretches --usage_over_time--> a Usage for each stretch

Every moment of every core belongs to one part, so that the parts add up to the whole run without its launch. A moment
belongs to the part that the core's matrix engine works for; when that is idle, its vector engine; when both are, its
transfer engine. A moment in which a core is idle is divided among the parts that the other cores work for, in
proportion to the number of cores; when none works, among those that the DMA channels work for, likewise; else it
belongs to the part worked on next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from isched.timing.timeline import OVERLAPS, Overlap, Timeline

ENGINE_KINDS = ("matrix", "vector", "transfer")
"""Kinds of engines that each core has for itself; the first one at work decides the part that a moment belongs to."""

Edge = tuple[float, int, int, str, str]
"""Time, -1 for an end and 1 for a start, core, kind of engine, part."""

ALL_CORES = -1


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage in the moments of one part. All cycles are sums over cores: eight cores for 100 cycles are 800.

    `busy_cycles` is by kind of engine, and `dma` for moments in which any DMA channel of the cluster works. They count
    all work of the engines, so a transfer for the next part may be among them. `active_cycles` are those in which any
    engine of the core works; `overlaps` are the vendor's percentages, as shares of them. Cores work for the part
    between `first_cycle` and `last_cycle`, counted from the end of the launch.
    """

    part: str
    first_cycle: float
    last_cycle: float
    cycles: float
    active_cycles: float
    busy_cycles: Mapping[str, float]
    overlaps: Mapping[str, Overlap]

    def utilisation(self, kind: str) -> float:
        """Share of the part's moments in which engines of a kind work; `dma` is also a kind."""
        return self.busy_cycles[kind] / self.cycles if self.cycles else 0.0


def usage_by(timeline: Timeline, parts: Mapping[str, str], other: str = "-") -> tuple[Usage, ...]:
    """Usage by part; `parts` is operator -> part, and operators not in it belong to the part `other`."""
    sweep = _Sweep(timeline)
    for edge in sorted(_edges(timeline, parts, other), key=_order):
        sweep.step(edge)
    return sweep.usages()


def usage_of_run(timeline: Timeline) -> Usage:
    """Usage of the whole run without its launch."""
    return usage_over_time(timeline, 1)[0]


def usage_over_time(timeline: Timeline, stretches: int) -> tuple[Usage, ...]:
    """Usage in equal stretches of the time after the launch, named by their number from 0 on."""
    width = (timeline.cycles - timeline.launch_cycles) / stretches
    borders: list[Edge] = [
        (timeline.launch_cycles + number * width, -1, ALL_CORES, "", str(number)) for number in range(stretches)
    ]
    sweep = _Sweep(timeline)
    for edge in sorted((*_edges(timeline, {}, ""), *borders), key=_order):
        sweep.step(edge)
    return tuple(
        replace(usage, first_cycle=number * width, last_cycle=(number + 1) * width)
        for number, usage in enumerate(sweep.usages())
    )


def dominant_parts(timeline: Timeline, parts: Mapping[str, str], stretches: int, other: str = "-") -> tuple[str, ...]:
    """For each of equal stretches of the time after the launch, the part with the most work of the cores' engines;
    where they are idle, of the DMA; where that is idle too, the part of the next stretch with work. Stretches after the
    last work get empty strings."""
    cores: list[dict[str, float]] = [{} for _ in range(stretches)]
    dma: list[dict[str, float]] = [{} for _ in range(stretches)]
    begin, width = timeline.launch_cycles, (timeline.cycles - timeline.launch_cycles) / stretches
    for span in timeline.spans:
        if not span.unit or span.end <= span.start:
            continue
        done = cores if timeline.engine_kinds.get(span.unit, "") in ENGINE_KINDS else dma
        part = parts.get(span.source, other)
        first = min(stretches - 1, int((span.start - begin) / width))
        last = min(stretches - 1, int((span.end - begin) / width))
        for stretch in range(first, last + 1):
            low = begin + stretch * width
            work = min(span.end, low + width) - max(span.start, low)
            if work > 0.0:
                done[stretch][part] = done[stretch].get(part, 0.0) + work
    chosen: list[str] = []
    following = ""
    for works in reversed([own or fetched for own, fetched in zip(cores, dma, strict=True)]):
        following = max(works, key=works.__getitem__) if works else following
        chosen.append(following)
    return tuple(reversed(chosen))


def _edges(timeline: Timeline, parts: Mapping[str, str], other: str) -> Iterator[Edge]:
    kinds = timeline.engine_kinds
    for span in timeline.spans:
        kind = kinds.get(span.unit, "")
        if kind in ENGINE_KINDS and span.end > span.start:
            part = parts.get(span.source, other)
            yield span.start, 1, span.core, kind, part
            yield span.end, -1, span.core, kind, part
        elif kinds.get(span.engine) == "dma" and span.end > span.start:
            part = parts.get(span.source, other)
            yield span.start, 1, ALL_CORES, "dma", part
            yield span.end, -1, ALL_CORES, "dma", part


def _order(edge: Edge) -> tuple[float, int, int, int]:
    """Sort key of an edge: at one moment, ends come before starts."""
    time, sign, core, kind, _ = edge
    return time, sign, core, ENGINE_KINDS.index(kind) if kind in ENGINE_KINDS else len(ENGINE_KINDS)


class _Sums:
    """Cycles of one part by the engines at work in them."""

    def __init__(self) -> None:
        self.cycles: dict[tuple[frozenset[str], bool], float] = {}
        self.first = inf
        self.last = 0.0

    def add(self, kinds: frozenset[str], dma: bool, cycles: float) -> None:
        key = kinds, dma
        self.cycles[key] = self.cycles.get(key, 0.0) + cycles

    def usage(self, part: str) -> Usage:
        busy = dict.fromkeys((*ENGINE_KINDS, "dma"), 0.0)
        both = dict.fromkeys((name for name, _ in OVERLAPS), 0.0)
        active = 0.0
        for (kinds, dma), cycles in self.cycles.items():
            active += cycles if kinds else 0.0
            busy["dma"] += cycles if dma else 0.0
            for kind in kinds:
                busy[kind] += cycles
            for name, of in OVERLAPS:
                both[name] += cycles if kinds.issuperset(of) else 0.0
        overlaps = {name: Overlap(cycles, cycles / active if active else 0.0) for name, cycles in both.items()}
        first = self.first if self.first < inf else 0.0
        return Usage(part, first, self.last, sum(self.cycles.values()), active, busy, overlaps)


def _count(counts: dict[str, int], part: str, change: int) -> None:
    """Count up or down; a part with count zero is removed."""
    counts[part] = counts.get(part, 0) + change
    if not counts[part]:
        del counts[part]


class _Core:
    """A core's engines at a moment: the parts that they work for, by kind, and since when."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.working: dict[str, list[str]] = {kind: [] for kind in ENGINE_KINDS}

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(kind for kind, parts in self.working.items() if parts)

    @property
    def part(self) -> str | None:
        """The part that the moment belongs to; None when the core is idle."""
        return next((parts[0] for parts in self.working.values() if parts), None)


class _Sweep:
    """Sweep through the edges in order of time. Work is summed when a core's engines change, idleness at every edge."""

    def __init__(self, timeline: Timeline) -> None:
        self.begin = self.now = timeline.launch_cycles
        self.end = timeline.cycles
        self.cores = {core: _Core(self.now) for core in timeline.cores}
        self.sums: dict[str, _Sums] = {}
        self.active: dict[str, int] = {}
        """Number of cores whose moment belongs to each part."""
        self.fetched: dict[str, int] = {}
        """Number of DMA channels that work for each part."""
        self.nobody = 0.0
        """Cycles, summed over cores, in which nothing worked, until the next part with work gets them."""
        self.stretch: str | None = None
        """The stretch that all time belongs to, where the parts are stretches."""

    def step(self, edge: Edge) -> None:
        time, sign, number, kind, part = edge
        self._idle(time)
        if number == ALL_CORES:
            self._flush_all()
            if kind == "dma":
                _count(self.fetched, part, sign)
                if sign > 0 and self.stretch is None:
                    self._settle(part)
            else:
                self.stretch = part
                self.sums.setdefault(part, _Sums())
            return
        core = self.cores[number]
        self._flush(core)
        before = core.part
        if sign > 0:
            core.working[kind].append(part)
        else:
            core.working[kind].remove(part)
        self._switch(before, core.part)

    def _switch(self, before: str | None, after: str | None) -> None:
        """Move a core's moments to another part from now on."""
        if before == after:
            return
        if before is not None:
            _count(self.active, before, -1)
        if after is not None:
            _count(self.active, after, 1)
            if self.stretch is None:
                self._settle(after)

    def _settle(self, part: str) -> None:
        """Assign to `part` the cycles in which nobody worked."""
        sums = self.sums.setdefault(part, _Sums())
        if self.nobody:
            sums.add(frozenset(), False, self.nobody)
            self.nobody = 0.0

    def _idle(self, time: float) -> None:
        """Advance to `time`: hand out the moments of idle cores."""
        passed, self.now = time - self.now, time
        idle = passed * (len(self.cores) - sum(self.active.values()))
        if idle <= 0.0:
            return
        shares = self.active or self.fetched
        if self.stretch is not None:
            self.sums[self.stretch].add(frozenset(), bool(self.fetched), idle)
        elif not shares:
            self.nobody += idle
        else:
            working = sum(shares.values())
            for part, count in shares.items():
                self.sums[part].add(frozenset(), bool(self.fetched), idle * count / working)

    def _flush(self, core: _Core) -> None:
        """Sum the work of a core since its engines last changed."""
        part = core.part
        if part is not None and self.now > core.since:
            whose = part if self.stretch is None else self.stretch
            sums = self.sums[whose]
            sums.add(core.kinds, bool(self.fetched), self.now - core.since)
            sums.first, sums.last = min(sums.first, core.since - self.begin), max(sums.last, self.now - self.begin)
        core.since = self.now

    def _flush_all(self) -> None:
        for core in self.cores.values():
            self._flush(core)

    def usages(self) -> tuple[Usage, ...]:
        self._idle(self.end)
        self._flush_all()
        if self.nobody:
            self._settle(next(reversed(self.sums), "-"))
        return tuple(sums.usage(part) for part, sums in self.sums.items())
