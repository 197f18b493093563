"""Accesses of a program's instructions as numbers, for loops that go through every access.

    Program --each list of regions once--> Touches --instructions and memories chosen--> Accesses, a row of a table each

Instructions mostly share their lists of regions, so few need to be looked at one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from isched.program.program import Program, Region

Table = npt.NDArray[np.int64]
Vector = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

COLUMNS = 7
MEMORY, FIRST, END, ROW, ROWS, STRIDE, WRITE = range(COLUMNS)
"""Columns of a table: number of the memory; first byte, end, bytes of a row, number of rows and stride of a region; 1
for a write, 0 for a read."""


@dataclass(frozen=True)
class Accesses:
    """Accesses as rows of a table: row n belongs to `who[n]`. These numbers ascend and lie below `count`."""

    who: Vector
    table: Table
    count: int

    @property
    def key(self) -> tuple[bytes, bytes]:
        """A key that is equal where the same bytes are touched in the same order; instructions that touch nothing do
        not count."""
        turns = np.cumsum(np.diff(self.who, prepend=-1) != 0)
        return turns.tobytes(), self.table.tobytes()


@dataclass(frozen=True)
class Touches:
    """Regions of all lists as rows of a table; list k has the rows from `starts[k]` to `starts[k + 1]`. `streams` gives
    the number of the list for each position of each stream; list 0 is empty."""

    memories: tuple[str, ...]
    table: Table
    starts: Vector
    streams: tuple[Vector, ...]

    @staticmethod
    def of(program: Program) -> Touches:
        """Regions that the streams touch, including those of background transfers."""
        lists = _Lists()
        streams = []
        for stream in program.streams:
            numbers = [lists.number(instr.reads, instr.writes) for instr in stream.instrs]
            streams.append(np.array(numbers, np.int64))
        return Touches(tuple(lists.memories), lists.table(), np.array(lists.starts, np.int64), tuple(streams))

    def accesses(self, lists: Vector, memories: Collection[str]) -> Accesses:
        """Accesses of the given lists to some of the memories; they are numbered in the order given."""
        counts = np.diff(self.starts)[lists]
        who = np.repeat(np.arange(len(lists)), counts)
        before = np.cumsum(counts) - counts
        rows = np.arange(len(who)) + np.repeat(self.starts[lists] - before, counts)
        chosen = self._rows_in(memories)[rows]
        return Accesses(who[chosen], self.table[rows[chosen]], len(lists))

    def kinds(self, memories: Collection[str]) -> Vector:
        """A number for each list, equal for lists that name the same regions of some memories in the same order; 0 for
        none."""
        accesses = self.accesses(np.arange(len(self.starts) - 1), memories)
        bounds = np.searchsorted(accesses.who, np.arange(accesses.count + 1)).tolist()
        known = {b"": 0}
        return np.array(
            [known.setdefault(accesses.table[a:b].tobytes(), len(known)) for a, b in pairwise(bounds)], np.int64
        )

    def region(self, row: Vector) -> Region:
        """The region of a row of a table."""
        memory, first, _, size, rows, stride, _ = row.tolist()
        return Region(self.memories[memory], first, size, rows, stride)

    def _rows_in(self, memories: Collection[str]) -> Flags:
        chosen = np.array([memory in memories for memory in self.memories], np.bool_)
        return chosen[self.table[:, MEMORY]]


class _Lists:
    """Lists of regions by number. Tuples are known by identity, so the caller keeps them all alive."""

    def __init__(self) -> None:
        self.memories: dict[str, int] = {}
        self.rows: list[tuple[int, int, int, int, int, int]] = []
        self.starts = [0, 0]
        self._known: dict[tuple[int, int], int] = {}

    def number(self, reads: Sequence[Region], writes: Sequence[Region]) -> int:
        if not reads and not writes:
            return 0
        key = (id(reads), id(writes))
        found = self._known.get(key)
        if found is None:
            self._add(reads, 0)
            self._add(writes, 1)
            found = self._known[key] = len(self.starts) - 1
            self.starts.append(len(self.rows))
        return found

    def _add(self, regions: Sequence[Region], write: int) -> None:
        known = self.memories
        self.rows += [
            (known.setdefault(r.memory, len(known)), r.offset_bytes, r.row_bytes, r.rows, r.stride_bytes, write)
            for r in regions
        ]

    def table(self) -> Table:
        memory, first, row, rows, stride, write = np.array(self.rows, np.int64).reshape(-1, 6).T
        return np.stack((memory, first, first + (rows - 1) * stride + row, row, rows, stride, write), axis=1)
