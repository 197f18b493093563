"""Number of bytes of each memory that hold live data at every moment of a run.

    TimedStream of each core + Timeline of the same run --occupancies--> an Occupancy for each memory (of each core)

A byte is live from the start of the instruction that writes it until the end of the last one that reads it before it is
written again; a byte that is never read is live while it is written. In the main memory, bytes that are read without
having been written (inputs, weights) are live from the launch on, and bytes that are written and not read (outputs)
until the end of the run. In other memories, bytes that nothing seems to have written, such as data that another core
sent, are live from their first read on.

Memories are cut where any access begins or ends, so that the work grows with the accesses and the pieces that each
touches, not with bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hw_models.chip import Chip
from hw_models.routes import main_memory
from isched.program.program import Region
from isched.program.timed_ops import TimedStream
from isched.timing.timeline import Timeline

Numbers = npt.NDArray[np.int64]
Pieces = slice | Numbers
"""The pieces of a memory that a region covers: a contiguous range, or their numbers."""

SHARED = -1


@dataclass(frozen=True)
class Occupancy:
    """Occupancy of one memory: `live_bytes[i]` hold live data from `cycles[i]` to `cycles[i + 1]`, counted from the
    launch on, and none after the last. `core` is -1 for a memory that is not private to a core."""

    memory: str
    core: int
    size_bytes: int
    cycles: npt.NDArray[np.float64]
    live_bytes: Numbers

    @cached_property
    def peak_bytes(self) -> int:
        return int(self.live_bytes.max(initial=0))

    @cached_property
    def peak_cycle(self) -> float:
        """Cycle at which the peak is first reached."""
        return float(self.cycles[np.argmax(self.live_bytes)]) if len(self.cycles) else 0.0

    def least_and_most(self, end_cycle: float, stretches: int) -> tuple[Numbers, Numbers]:
        """The fewest and the most live bytes in each of equal stretches of the time from the launch to `end_cycle`."""
        if not len(self.cycles) or end_cycle <= 0.0:
            return np.zeros(stretches, np.int64), np.zeros(stretches, np.int64)
        borders = np.linspace(0.0, end_cycle, stretches + 1)
        before = np.searchsorted(self.cycles, borders[:-1], side="right") - 1
        least = np.where(before >= 0, self.live_bytes[before], 0)
        most = least.copy()
        within = self.cycles < end_cycle
        place = np.clip(np.searchsorted(borders, self.cycles, side="right") - 1, 0, stretches - 1)[within]
        np.minimum.at(least, place, self.live_bytes[within])
        np.maximum.at(most, place, self.live_bytes[within])
        return least, most


def occupancies(timeline: Timeline, streams: tuple[TimedStream, ...], chip: Chip) -> tuple[Occupancy, ...]:
    """Occupancy of every memory that is used, in the chip's order: shared ones once, others by core. `timeline` must be
    the run of `streams`."""
    private = {memory.name for memory in chip.memories if memory.scope == "core"}
    accesses: dict[tuple[str, int], list[_Access]] = {}
    spans = iter(timeline.spans)
    for stream in streams:
        for op, span in zip(stream.ops, spans, strict=False):
            start, end = span.start - timeline.launch_cycles, span.end - timeline.launch_cycles
            for write, regions in ((False, op.reads), (True, op.writes)):
                for region in regions:
                    place = region.memory, stream.core if region.memory in private else SHARED
                    accesses.setdefault(place, []).append(_Access(start, write, end, region))
    main = main_memory(chip)
    end = timeline.cycles - timeline.launch_cycles
    found = []
    for memory in chip.memories:
        for name, core in sorted(place for place in accesses if place[0] == memory.name):
            cycles, live = _Lives(accesses[name, core], end if name == main else None).sums()
            found.append(Occupancy(name, core, memory.size_bytes, cycles, live))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Access:
    """One read or write of a region by an instruction, from `start` to `end`."""

    start: float
    write: bool
    end: float
    region: Region


class _Lives:
    """Walk through the accesses of one memory in order of time that sums the lives of its pieces.

    Times are given by their ranks among all times. `born` and `last` belong to each piece's present data; they are -1
    where there are none; `unread` says whether the data still wait for a reader. `whole_run` is the end of the run for
    a main memory.
    """

    def __init__(self, accesses: list[_Access], whole_run: float | None) -> None:
        self.main = whole_run is not None
        edges = {0.0} | ({whole_run} if whole_run is not None else set())
        edges.update(access.start for access in accesses)
        edges.update(access.end for access in accesses)
        self.times = np.array(sorted(edges), np.float64)
        rank = {time: number for number, time in enumerate(self.times.tolist())}
        regions = dict.fromkeys(access.region for access in accesses)
        self.pieces, self.sizes = _cut(regions)
        self.born = np.full(len(self.sizes), -1, np.int64)
        self.last = np.full(len(self.sizes), -1, np.int64)
        self.unread = np.zeros(len(self.sizes), np.bool_)
        self.change = np.zeros(len(self.times), np.int64)
        for access in sorted(accesses, key=lambda access: (access.start, access.write)):
            step = self._write if access.write else self._read
            step(self.pieces[access.region], rank[access.start], rank[access.end])
        if whole_run is not None:
            self.last[self.unread] = rank[whole_run]
        self._close(slice(None), len(self.times) - 1)

    def _read(self, pieces: Pieces, start: int, end: int) -> None:
        born = self.born[pieces]
        if born.min() < 0:
            self.born[pieces] = np.where(born < 0, 0 if self.main else start, born)
        self.last[pieces] = np.maximum(self.last[pieces], end)
        self.unread[pieces] = False

    def _write(self, pieces: Pieces, start: int, end: int) -> None:
        self._close(pieces, start)
        self.born[pieces], self.last[pieces], self.unread[pieces] = start, end, True

    def _close(self, pieces: Pieces, now: int) -> None:
        """Sum the lives that end here, at `now` at the latest."""
        born, sizes = self.born[pieces], self.sizes[pieces]
        lived = born >= 0
        if not lived.all():
            born, sizes = born[lived], sizes[lived]
            last = self.last[pieces][lived]
        else:
            last = self.last[pieces]
        np.add.at(self.change, born, sizes)
        np.subtract.at(self.change, np.minimum(last, now), sizes)

    def sums(self) -> tuple[npt.NDArray[np.float64], Numbers]:
        """Times at which the number of live bytes changes, and the bytes from then on."""
        kept = np.flatnonzero(self.change)
        return self.times[kept], np.cumsum(self.change)[kept]


def _cut(regions: Iterable[Region]) -> tuple[dict[Region, Pieces], Numbers]:
    """The pieces of each region, and the number of bytes of each piece."""
    rows = {region: _rows(region) for region in regions}
    borders = np.unique(np.concatenate([edge for pair in rows.values() for edge in pair]))
    pieces: dict[Region, Pieces] = {}
    for region, (starts, ends) in rows.items():
        first, stop = np.searchsorted(borders, starts), np.searchsorted(borders, ends)
        if len(first) == 1:
            pieces[region] = slice(int(first[0]), int(stop[0]))
        else:
            counts = stop - first
            skipped = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
            pieces[region] = skipped + np.arange(int(counts.sum()))
    return pieces, np.diff(borders)


def _rows(region: Region) -> tuple[Numbers, Numbers]:
    """First byte and one past the last byte of each run of bytes; rows that touch or overlap are one run."""
    if region.rows == 1 or 0 <= region.stride_bytes <= region.row_bytes:
        size = max(region.row_bytes, region.end_bytes - region.offset_bytes)
        return np.array([region.offset_bytes]), np.array([region.offset_bytes + size])
    starts = region.offset_bytes + np.arange(region.rows, dtype=np.int64) * region.stride_bytes
    return starts, starts + region.row_bytes
