"""Compiled loops over the accesses of a program find what going through its bytes one by one finds."""

from __future__ import annotations

import numpy as np
import pytest

from isched.hazards.access_table import Touches
from isched.hazards.conflicts import Earlier, conflicts_of
from isched.hazards.uninitialised_reads import first_unwritten
from isched.program.program import Instr, Program, Region, Stream
from tests.partition_graphs import Seeded

MEMORIES = {"near": 4096, "far": 60_000}


def region(choose: Seeded, unit: int) -> Region:
    """A run or rows, whole cells of `unit` bytes or not, sometimes most of its memory."""
    memory = choose.one_of(tuple(MEMORIES))
    most = MEMORIES[memory] // unit
    row = choose.number(1, choose.one_of((4, 40, most // 2)))
    stride = choose.number(row, row + 20)
    rows = min(choose.number(1, 5), max(1, (most - row) // stride))
    stride = stride if rows > 1 else 0
    offset = choose.number(0, most - row - (rows - 1) * stride)
    return Region(memory, offset * unit, row * unit, rows, stride * unit)


def program(choose: Seeded, unit: int, count: int = 150) -> Program:
    def regions(most: int) -> tuple[Region, ...]:
        return tuple(region(choose, unit) for _ in range(choose.number(0, most)))

    instrs = tuple(Instr("vector", "work", reads=regions(3), writes=regions(2)) for _ in range(count))
    return Program("random", "chip", 0, "sync", (), (Stream(0, instrs),))


def bytes_of(regions: tuple[Region, ...]) -> int:
    """A bit for each byte of both memories."""
    found = 0
    for r in regions:
        for row in range(r.rows):
            begin = r.offset_bytes + row * r.stride_bytes + (MEMORIES["near"] if r.memory == "far" else 0)
            found |= (1 << r.row_bytes) - 1 << begin
    return found


def named(found: Earlier, position: int) -> list[int]:
    return list(found.numbers[found.starts[position] : found.starts[position + 1]].tolist())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("unit", [1, 2, 32])
def test_conflicts_order_what_shares_bytes(seed: int, unit: int) -> None:
    """Whatever is found conflicts, and what is not found comes behind something that does."""
    made = program(Seeded(seed), unit)
    touches = Touches.of(made)
    found = conflicts_of(touches.accesses(touches.streams[0], MEMORIES))
    instrs = made.streams[0].instrs
    reads, writes = [bytes_of(i.reads) for i in instrs], [bytes_of(i.writes) for i in instrs]
    behind: list[set[int]] = []
    for later in range(len(instrs)):
        wanted = {
            earlier
            for earlier in range(later)
            if writes[later] & (reads[earlier] | writes[earlier]) or reads[later] & writes[earlier]
        }
        earlier = named(found, later)
        assert earlier == sorted(set(earlier))
        assert set(earlier) <= wanted
        behind.append(set(earlier).union(*(behind[n] for n in earlier)))
        assert wanted <= behind[later]


@pytest.mark.parametrize("seed", range(8))
def test_only_those_that_are_told_of_are_named(seed: int) -> None:
    choose = Seeded(seed)
    made = program(choose, 8)
    touches = Touches.of(made)
    accesses = touches.accesses(touches.streams[0], MEMORIES)
    told = np.array([choose.number(0, 1) == 1 for _ in made.streams[0].instrs])
    found, everything = conflicts_of(accesses, told), conflicts_of(accesses)
    for later in range(len(told)):
        assert all(told[earlier] for earlier in named(found, later))
        assert {earlier for earlier in named(everything, later) if told[earlier]} == set(named(found, later))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("unit", [1, 2, 32])
def test_the_first_read_of_bytes_that_nothing_wrote(seed: int, unit: int) -> None:
    choose = Seeded(seed)
    made = program(choose, unit)
    whole = tuple(Region(name, 0, size // unit * unit // 4) for name, size in MEMORIES.items())
    first = Instr("vector", "work", writes=whole)
    made = Program("random", "chip", 0, "sync", (), (Stream(0, (first, *made.streams[0].instrs)),))
    touches = Touches.of(made)
    accesses = touches.accesses(touches.streams[0], MEMORIES)
    wanted, row, written = -1, 0, 0
    for instr in made.streams[0].instrs:
        for read in instr.reads:
            if wanted < 0 and bytes_of((read,)) & ~written:
                wanted = row
            row += 1
        written |= bytes_of(instr.writes)
        row += len(instr.writes)
    assert first_unwritten(accesses.table) == wanted
