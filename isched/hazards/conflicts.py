"""Earlier instructions of a stream that each one must not overtake: those that share a byte which one of the two
writes.

    accesses of a stream, in order --compiled search--> for each position the earlier ones it conflicts with

An access that was overwritten need not be named after the writes, since these pass the order on. So the number of pairs
grows with the tiles that are near each other, not with the stream; so does time, as each access looks only at its
bytes.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from hw_models.chip import Chip
from isched.hazards.access_table import (
    END,
    FIRST,
    MEMORY,
    ROW,
    ROWS,
    STRIDE,
    WRITE,
    Accesses,
    Flags,
    Table,
    Touches,
    Vector,
)
from isched.hazards.address_cells import Cells, ends_of
from isched.program.program import Program
from isched.program.row_meetings import rows_meet

Numbers = npt.NDArray[np.int32]

SEARCHES_AT_ONCE = 2

CELL_BYTES = (32, 16, 8, 4, 2)
MOSTLY = 0.95
"""Least share of the accesses that must consist of whole cells; the largest cells that reach it are taken. Large cells
are marked faster, and an access that is not a whole number of cells is only forgotten later."""

MOST_CELLS = 1 << 22
"""Largest number of cells per memory, so that large memories need no more room than this."""

LEAST_BIN, BIN_STEP, MOST_BINS = 10, 3, 1 << 20
"""Sizes of bins as binary logarithms: the smallest are 1 KiB, those of each level eight times as large as those of the
level below. An access is in the smallest bin that holds it. The last number is the most bins on a level."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Earlier positions for each position n: `numbers[starts[n] : starts[n + 1]]`, ascending."""

    starts: Vector
    numbers: Vector

    @property
    def later(self) -> Vector:
        """The position that each of the numbers is for."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Conflicts of one stream: for each position, the earlier ones that it conflicts with in the core's own memories.
    Streams that touch the same bytes in the same order have the same `kind`."""

    earlier: Earlier
    kind: int


def conflicts_within(
    program: Program, touches: Touches, chip: Chip, engines: frozenset[str] | None = None
) -> list[Conflicts]:
    """The conflicts of each stream; streams of one kind share the search. With `engines`, only conflicts with earlier
    instructions of these engines."""
    kinds: dict[tuple[bytes, ...], int] = {}
    asked: list[tuple[Accesses, Flags]] = []
    found: list[tuple[int, Vector]] = []
    for number, stream in enumerate(program.streams):
        own = own_accesses(program, touches, chip, number)
        positions = np.unique(own.who)
        told = np.ones(len(positions), np.bool_)
        if engines is not None:
            told = np.array([stream.instrs[position].engine in engines for position in positions.tolist()], np.bool_)
        key = (*own.key, told.tobytes())
        if key not in kinds:
            kinds[key] = len(kinds)
            asked.append((Accesses(np.searchsorted(positions, own.who), own.table, len(positions)), told))
        found.append((kinds[key], positions))
    with ThreadPoolExecutor(SEARCHES_AT_ONCE) as searches:  # the compiled search lets other threads run
        known = list(searches.map(lambda wanted: conflicts_of(*wanted), asked))
    return [
        Conflicts(_placed(known[kind], positions, len(stream.instrs)), kind)
        for stream, (kind, positions) in zip(program.streams, found, strict=True)
    ]


def own_accesses(program: Program, touches: Touches, chip: Chip, number: int) -> Accesses:
    """Accesses of a stream to its core's own memories, without background transfers."""
    private = frozenset(memory.name for memory in chip.memories if memory.scope == "core")
    lists = touches.streams[number].copy()
    lists[[bool(instr.starts or instr.awaits) for instr in program.streams[number].instrs]] = 0
    return touches.accesses(lists, private)


def _placed(earlier: Earlier, positions: Vector, count: int) -> Earlier:
    """Conflicts that were found for some positions of a stream, as those of all its `count` positions."""
    counts = np.zeros(count, np.int64)
    counts[positions] = np.diff(earlier.starts)
    return Earlier(np.concatenate(([0], np.cumsum(counts))), positions[earlier.numbers])


def conflicts_of(accesses: Accesses, told: Flags | None = None) -> Earlier:
    """For each number in `who`, the earlier ones that it conflicts with and that no later write covers. With `told`,
    only earlier ones with that flag; default: all."""
    table, count = accesses.table, accesses.count
    if not len(table):
        return Earlier(np.zeros(count + 1, np.int64), np.zeros(0, np.int64))
    step = next((unit for unit in CELL_BYTES if np.mean(_whole_cells(table, unit)) >= MOSTLY), 1)
    sizes = ends_of(table)
    cells = Cells.of(sizes, np.maximum(step, -(-sizes // MOST_CELLS)))
    # Most accesses can be distinguished by the numbers of their bytes alone.
    firsts, ends = (table[:, column] + cells.places[table[:, MEMORY]] for column in (FIRST, END))
    wanted = np.ones(count, np.bool_) if told is None else told
    counts, numbers = _search(
        accesses.who, table, cells.unit_bytes, cells.cells, np.full(cells.cells[-1], -1, np.int32), wanted, firsts,
        ends, *_bins(int(cells.places[-1])),
    )  # fmt: skip
    ascending = np.sort(np.repeat(np.arange(count) * count, counts) + numbers) % count
    return Earlier(np.concatenate(([0], np.cumsum(counts))), ascending)


def _bins(size_bytes: int) -> tuple[int, Vector]:
    """Binary logarithm of the smallest bins' bytes, and where the bins of each level begin."""
    least = LEAST_BIN
    while size_bytes >> least > MOST_BINS:
        least += 1
    counts = [1 + (size_bytes >> least)]
    while counts[-1] > 1:
        counts.append(1 + (size_bytes >> least + BIN_STEP * len(counts)))
    return least, np.cumsum([0, *counts])


def _whole_cells(table: Table, unit: int) -> Flags:
    """Whether each access begins and ends at multiples of `unit` bytes, in every row."""
    whole: Flags = np.all(table[:, (FIRST, ROW, STRIDE)] % unit == 0, axis=1)
    return whole


@njit(cache=True, nogil=True)
def _search(
    who: Vector,
    table: Table,
    units: Vector,
    cells_before: Vector,
    writer: Numbers,
    told: Flags,
    firsts: Vector,
    ends: Vector,
    least: int,
    bins: Vector,
) -> tuple[Vector, Vector]:  # pragma: no cover - compiled
    """For each number in `who`, how many earlier ones it conflicts with, and their numbers.

    Memory m is divided into cells of `units[m]` bytes, which `writer` has from `cells_before[m]` on. An access is
    forgotten once each cell that it touches was written later: whatever comes after those writes comes after it."""
    # Accesses that count are in bins; each bin is a doubly linked list.
    first_in = np.zeros(bins[-1], np.int32)  # row + 1, 0 for none, as below
    following = np.zeros(len(table), np.int32)
    before = np.zeros(len(table), np.int32)
    levels = len(bins) - 1
    held = np.zeros(levels, np.int64)
    seen = np.zeros(len(table), np.int64)
    named = np.zeros(len(told), np.int64)
    counts = np.zeros(len(told), np.int64)
    numbers = np.empty(4 * len(table) + 16, np.int64)
    found = 0
    row = 0
    while row < len(table):
        me = who[row]
        end = row
        while end < len(table) and who[end] == me:
            end += 1
        for mine in range(row, end):
            if table[mine, WRITE]:
                memory = table[mine, MEMORY]
                _write(table[mine], mine, units[memory], writer, cells_before[memory])
        for mine in range(row, end):
            for level in range(levels):
                if not held[level]:
                    continue
                shift = least + BIN_STEP * level
                for place in range(bins[level] + (firsts[mine] >> shift), bins[level] + (ends[mine] - 1 >> shift) + 1):
                    other = first_in[place] - 1
                    while other >= 0:
                        behind = following[other] - 1
                        if (
                            firsts[mine] < ends[other]
                            and firsts[other] < ends[mine]
                            and (table[mine, WRITE] or table[other, WRITE])
                            and _meet(table[mine], table[other])
                        ):
                            if named[who[other]] != me + 1:
                                named[who[other]] = me + 1
                                if found == len(numbers):
                                    more = np.empty(2 * found, np.int64)
                                    for number in range(found):
                                        more[number] = numbers[number]
                                    numbers = more
                                numbers[found] = who[other]
                                found += 1
                                counts[me] += 1
                            if table[mine, WRITE]:
                                covered = table[mine, ROWS] == 1 and (
                                    firsts[mine] <= firsts[other] and ends[other] <= ends[mine]
                                )
                                memory = table[other, MEMORY]
                                if covered or _overwritten(
                                    table[other], other, units[memory], writer, cells_before[memory], seen
                                ):
                                    held[level] -= 1
                                    if before[other]:
                                        following[before[other] - 1] = behind + 1
                                    else:
                                        first_in[place] = behind + 1
                                    if behind >= 0:
                                        before[behind] = before[other]
                        other = behind
        if told[me]:
            for mine in range(row, end):
                level, shift = 0, least
                while firsts[mine] >> shift != ends[mine] - 1 >> shift:
                    level, shift = level + 1, shift + BIN_STEP
                place = bins[level] + (firsts[mine] >> shift)
                held[level] += 1
                following[mine], before[mine] = first_in[place], 0
                if first_in[place]:
                    before[first_in[place] - 1] = mine + 1
                first_in[place] = mine + 1
        row = end
    return counts, numbers[:found]


@njit(cache=True)
def _write(access: Vector, number: int, unit: int, writer: Numbers, base: int) -> None:  # pragma: no cover
    """Mark the cells that lie completely in the access as written by it."""
    for run in range(access[ROWS]):
        start = access[FIRST] + run * access[STRIDE]
        for cell in range(base - (-start // unit), base + (start + access[ROW]) // unit):
            writer[cell] = number


@njit(cache=True)
def _overwritten(
    access: Vector, number: int, unit: int, writer: Numbers, base: int, seen: Vector
) -> bool:  # pragma: no cover
    """Whether all cells that an access touches were written after it; `seen` counts the first ones for which the last
    call found that."""
    row = access[ROW]
    first = seen[number]
    for run in range(first // row, access[ROWS]):
        start = access[FIRST] + run * access[STRIDE]
        offset = first - run * row if run == first // row else 0
        for place in range(base + (start + offset) // unit, base - (-(start + row) // unit)):
            if writer[place] <= number:
                seen[number] = run * row + max(0, (place - base) * unit - start)
                return False
    return True


@njit(cache=True)
def _meet(a: Vector, b: Vector) -> bool:  # pragma: no cover - compiled
    """Compiled form of `isched.program.region_overlap.overlaps`, on rows of a table."""
    if a[MEMORY] != b[MEMORY] or a[FIRST] >= b[END] or b[FIRST] >= a[END]:
        return False
    a_runs = 1 if a[STRIDE] <= a[ROW] else a[ROWS]
    b_runs = 1 if b[STRIDE] <= b[ROW] else b[ROWS]
    if a_runs == 1 and b_runs == 1:
        return True
    if a_runs > b_runs:
        a, b = b, a
        a_runs, b_runs = b_runs, a_runs
    if a_runs > 1 and a[STRIDE] == b[STRIDE]:
        distance = b[FIRST] - a[FIRST]
        least = max((distance - a[ROW]) // a[STRIDE] + 1, 1 - b[ROWS])
        return bool(least < a[ROWS] and least * a[STRIDE] < distance + b[ROW])
    a_row = a[ROW] if a_runs > 1 else a[END] - a[FIRST]
    return bool(rows_meet(a[FIRST], a_row, a_runs, a[STRIDE], b[FIRST], b[ROW], b[ROWS], b[STRIDE]))
