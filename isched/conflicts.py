"""Which earlier instructions of a stream each one must not overtake: those that share a byte which one of them writes.

    accesses of a stream, in order --compiled search--> for each position the earlier ones it conflicts with

What was overwritten needs no naming by those behind the writes: these pass the order on. So the pairs grow with the
tiles that are near each other, not with the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from numba import njit

from hw_models.chip import Chip
from isched.overlap import rows_meet
from isched.program import Instr, Program, Region

__all__ = ["Conflicts", "Touched", "conflicts_of", "conflicts_within", "touched_in"]

Touched = tuple[tuple[Region, ...], tuple[Region, ...]]
"""Regions read and written."""

SEARCHES_AT_ONCE = 2

CELL_BYTES = (32, 16, 8, 4, 2)
MOSTLY = 0.95
"""The largest cells of which so many accesses are whole: large ones are marked faster, and an access that is no whole
number of them is only forgotten later."""

MOST_CELLS = 1 << 22
"""Of each memory, so that large ones need no more room than this."""

_Table = npt.NDArray[np.int64]
_WHO, _WRITE, _MEMORY, _FIRST, _END, _ROW, _ROWS, _STRIDE = range(8)


def touched_in(instrs: Iterable[Instr], memories: frozenset[str]) -> list[Touched]:
    """What each instruction touches in some of the memories, background transfers apart."""
    return [
        ((), ())
        if instr.starts or instr.awaits
        else (
            tuple(region for region in instr.reads if region.memory in memories),
            tuple(region for region in instr.writes if region.memory in memories),
        )
        for instr in instrs
    ]


@dataclass(frozen=True, slots=True)
class Conflicts:
    """For each position of a stream the earlier ones that it conflicts with in the core's own memories. Streams that
    touch the same bytes in the same order are of one `kind`."""

    earlier: Sequence[tuple[int, ...]]
    kind: int


def conflicts_within(program: Program, chip: Chip, engines: frozenset[str] | None = None) -> list[Conflicts]:
    """The conflicts of each stream; streams of one kind share the search. With `engines`, those with earlier
    instructions of these engines alone."""
    private = frozenset(memory.name for memory in chip.memories if memory.scope == "core")
    kinds: dict[tuple[tuple[Touched, ...], tuple[bool, ...]], int] = {}
    placed: dict[tuple[int, tuple[int, ...]], Conflicts] = {}
    found: list[tuple[int, tuple[int, ...]]] = []
    for stream in program.streams:
        touched = touched_in(stream.instrs, private)
        positions = tuple([position for position, (reads, writes) in enumerate(touched) if reads or writes])
        told = [engines is None or stream.instrs[position].engine in engines for position in positions]
        asked = (tuple([touched[position] for position in positions]), tuple(told))
        found.append((kinds.setdefault(asked, len(kinds)), positions))
    with ThreadPoolExecutor(SEARCHES_AT_ONCE) as searches:  # the compiled search lets other threads run
        known = list(searches.map(lambda asked: conflicts_of(*asked), kinds))
    result = []
    for stream, where in zip(program.streams, found, strict=True):
        kind, positions = where
        if where not in placed:
            pairs: list[tuple[int, ...]] = [()] * len(stream.instrs)
            for position, earlier in zip(positions, known[kind], strict=True):
                pairs[position] = tuple([positions[n] for n in earlier])
            placed[where] = Conflicts(pairs, kind)
        result.append(placed[where])
    return result


def conflicts_of(accesses: Sequence[Touched], told: Sequence[bool] | None = None) -> list[tuple[int, ...]]:
    """For each position the earlier ones that it conflicts with and that no later write covers, ascending; of the
    earlier ones those that are `told` of, all when not said."""
    names: dict[str, int] = {}
    rows = [
        (number, write, names.setdefault(r.memory, len(names)), r.offset_bytes, r.end_bytes, r.row_bytes, r.rows,
         r.stride_bytes)
        for number, (reads, writes) in enumerate(accesses)
        for regions, write in ((reads, 0), (writes, 1))
        for r in regions
    ]  # fmt: skip
    result: list[tuple[int, ...]] = [()] * len(accesses)
    if not rows:
        return result
    table = np.array(rows, np.int64)
    step = next((unit for unit in CELL_BYTES if np.mean(_whole_cells(table, unit)) >= MOSTLY), 1)
    ends = [int(table[table[:, _MEMORY] == memory, _END].max()) for memory in range(len(names))]
    units = [max(step, -(-end // MOST_CELLS)) for end in ends]
    cells = [-(-end // unit) for end, unit in zip(ends, units, strict=True)]
    wanted = np.ones(len(accesses), np.bool_) if told is None else np.array(told, np.bool_)
    pairs = _search(table, np.array(units, np.int64), np.array(cells, np.int64), wanted)
    found = np.unique(pairs[:, 0] * len(accesses) + pairs[:, 1])
    starts = np.searchsorted(found, np.arange(len(accesses) + 1) * len(accesses)).tolist()
    earlier = (found % len(accesses)).tolist()
    for number, (low, high) in enumerate(pairwise(starts)):
        if low < high:
            result[number] = tuple(earlier[low:high])
    return result


def _whole_cells(table: _Table, unit: int) -> npt.NDArray[np.bool_]:
    """Which accesses begin and end with whole cells of so many bytes, in every row."""
    whole: npt.NDArray[np.bool_] = np.all(table[:, (_FIRST, _ROW, _STRIDE)] % unit == 0, axis=1)
    return whole


@njit(cache=True, nogil=True)
def _search(
    table: _Table, units: _Table, cells: _Table, told: npt.NDArray[np.bool_]
) -> _Table:  # pragma: no cover - compiled
    """Pairs (later, earlier) of the rows of a table, a row an access, by what they belong to, if that is `told` of.

    Memory m is seen as `cells[m]` cells of `units[m]` bytes. An access is forgotten once each cell that it touches was
    written later: what is behind those writes is behind it."""
    first_cell = np.zeros(len(cells) + 1, np.int64)
    first_cell[1:] = np.cumsum(cells)
    first_byte = np.zeros(len(cells) + 1, np.int64)
    first_byte[1:] = np.cumsum(cells * units)
    writer = np.full(first_cell[-1], -1, np.int32)
    # Places of all memories one behind the other: most accesses are told apart by these alone.
    firsts = table[:, _FIRST] + first_byte[table[:, _MEMORY]]
    ends = table[:, _END] + first_byte[table[:, _MEMORY]]
    live = np.empty(len(table), np.int64)
    seen = np.zeros(len(table), np.int64)
    count = 0
    pairs = np.empty((4 * len(table) + 16, 2), np.int64)
    found = 0
    row = 0
    while row < len(table):
        who = table[row, _WHO]
        end = row
        while end < len(table) and table[end, _WHO] == who:
            end += 1
        for mine in range(row, end):
            if table[mine, _WRITE]:
                memory = table[mine, _MEMORY]
                _write(table[mine], mine, units[memory], writer, first_cell[memory])
        kept = 0
        for position in range(count):
            other = live[position]
            met, written, covered = False, False, False
            for mine in range(row, end):
                if firsts[mine] >= ends[other] or firsts[other] >= ends[mine]:
                    continue
                if (table[mine, _WRITE] or table[other, _WRITE]) and _meet(table[mine], table[other]):
                    met = True
                    written = written or table[mine, _WRITE] != 0
                    if table[mine, _WRITE] and table[mine, _ROWS] == 1:
                        covered = covered or (firsts[mine] <= firsts[other] and ends[other] <= ends[mine])
            if met and not (found and pairs[found - 1, 0] == who and pairs[found - 1, 1] == table[other, _WHO]):
                if found == len(pairs):
                    more = np.empty((2 * len(pairs), 2), np.int64)
                    more[:found] = pairs
                    pairs = more
                pairs[found, 0] = who
                pairs[found, 1] = table[other, _WHO]
                found += 1
            memory = table[other, _MEMORY]
            if not covered and written:
                covered = _overwritten(table[other], other, units[memory], writer, first_cell[memory], seen)
            if not covered:
                live[kept] = other
                kept += 1
        count = kept
        for mine in range(row, end):
            if told[who]:
                live[count] = mine
                count += 1
        row = end
    return pairs[:found]


@njit(cache=True)
def _write(access: _Table, number: int, unit: int, writer: _Table, base: int) -> None:  # pragma: no cover
    """Cells that lie in the access as a whole are written by it."""
    for run in range(access[_ROWS]):
        start = access[_FIRST] + run * access[_STRIDE]
        writer[base - (-start // unit) : base + (start + access[_ROW]) // unit] = number


@njit(cache=True)
def _overwritten(
    access: _Table, number: int, unit: int, writer: _Table, base: int, seen: _Table
) -> bool:  # pragma: no cover
    """Whether all cells that an access touches were written after it; the first `seen` of them were when it was last
    asked."""
    row = access[_ROW]
    first = seen[number]
    for run in range(first // row, access[_ROWS]):
        start = access[_FIRST] + run * access[_STRIDE]
        offset = first - run * row if run == first // row else 0
        for place in range(base + (start + offset) // unit, base - (-(start + row) // unit)):
            if writer[place] <= number:
                seen[number] = run * row + max(0, (place - base) * unit - start)
                return False
    return True


@njit(cache=True)
def _meet(a: _Table, b: _Table) -> bool:  # pragma: no cover - compiled
    """As `isched.overlap.overlaps`."""
    if a[_MEMORY] != b[_MEMORY] or a[_FIRST] >= b[_END] or b[_FIRST] >= a[_END]:
        return False
    a_runs = 1 if a[_STRIDE] <= a[_ROW] else a[_ROWS]
    b_runs = 1 if b[_STRIDE] <= b[_ROW] else b[_ROWS]
    if a_runs == 1 and b_runs == 1:
        return True
    if a_runs > b_runs:
        a, b = b, a
        a_runs, b_runs = b_runs, a_runs
    if a_runs > 1 and a[_STRIDE] == b[_STRIDE]:
        distance = b[_FIRST] - a[_FIRST]
        least = max((distance - a[_ROW]) // a[_STRIDE] + 1, 1 - b[_ROWS])
        return bool(least < a[_ROWS] and least * a[_STRIDE] < distance + b[_ROW])
    a_row = a[_ROW] if a_runs > 1 else a[_END] - a[_FIRST]
    return bool(rows_meet(a[_FIRST], a_row, a_runs, a[_STRIDE], b[_FIRST], b[_ROW], b[_ROWS], b[_STRIDE]))
