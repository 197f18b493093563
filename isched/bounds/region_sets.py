"""Accesses of a memory that touch common bytes, for programs that touch the same few thousand regions again and again.

    all regions of a memory --Places--> who may share bytes with whom --Tracker--> whom an access must wait for

A set of regions is an integer with one bit per region, so that most questions are one operation on two sets. Two
regions are compared byte by byte only when an access to one comes while an access to the other still counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from isched.program.program import Region
from isched.program.region_overlap import overlaps


class Places:
    """The regions of one memory by number."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.regions = tuple(dict.fromkeys(regions))
        self.numbers = {region: number for number, region in enumerate(self.regions)}
        low = np.array([region.offset_bytes for region in self.regions], np.int64)
        high = np.array([region.end_bytes for region in self.regions], np.int64)
        dense = np.array([r.rows == 1 or r.stride_bytes <= r.row_bytes for r in self.regions], np.bool_)
        self._near = [_set((low < end) & (start < high)) for start, end in zip(low, high, strict=True)]
        self._covered = [
            _set((start <= low) & (high <= end)) if whole else 1 << number
            for number, (start, end, whole) in enumerate(zip(low, high, dense, strict=True))
        ]
        self._compared = [0] * len(self.regions)
        self._touching = [0] * len(self.regions)

    def touching(self, place: int, among: int) -> int:
        """The regions of a set that share a byte with a given one."""
        near = self._near[place] & among
        for other in members(near & ~self._compared[place]):
            self._compared[place] |= 1 << other
            self._compared[other] |= 1 << place
            if overlaps(self.regions[place], self.regions[other]):
                self._touching[place] |= 1 << other
                self._touching[other] |= 1 << place
        return near & self._touching[place]

    def covered(self, place: int, among: int) -> int:
        """The regions of a set whose bytes all belong to a given one, as far as that is easy to see."""
        return self._covered[place] & among


def members(numbers: int) -> Iterator[int]:
    """The members of a set."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def _set(chosen: npt.NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")


class Tracker:
    """The accesses of one memory so far that later ones may have to wait for."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._written = self._read = 0
        self._writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._left_bytes: dict[int, int] = {}

    def waits(self, place: int, write: bool, found: set[int]) -> None:
        """Add to `found` everyone who must be over before an access to a region: the writers and, before a write, the
        readers."""
        near = self.places.touching(place, self._written | self._read if write else self._written)
        for other in members(near & self._written):
            found.add(self._writer[other])
        if write:
            for other in members(near & self._read):
                found.update(self._readers[other])

    def access(self, place: int, write: bool, who: int) -> None:
        """Record an access. Whoever waits for a write also waits for the accesses that the write covers, so these no
        longer count; neither do those into which at least their own number of bytes was written."""
        bit, size_bytes = 1 << place, self.places.regions[place].size_bytes
        if not write:
            self._read |= bit
            self._readers.setdefault(place, []).append(who)
            self._left_bytes.setdefault(place, size_bytes)
            return
        counting = self._written | self._read
        gone = self.places.covered(place, counting)
        for other in members(self.places.touching(place, counting & ~gone)):
            self._left_bytes[other] -= size_bytes
            if self._left_bytes[other] <= 0:
                gone |= 1 << other
        for other in members(gone):
            self._writer.pop(other, None)
            self._readers.pop(other, None)
            del self._left_bytes[other]
        self._read &= ~gone
        self._written = self._written & ~gone | bit
        self._writer[place], self._left_bytes[place] = who, size_bytes
