"""Which lines of code an instruction cache lacks: against a slow model that follows every pc, cold and warm."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from codegen.neuralscale.simulator.machine import simulate
from codegen.neuralscale.simulator.options import SimulationOptions
from codegen.neuralscale.target import TARGET
from codegen.neuralscale.trace.trace import trace_elf
from hw_models.chip import Chip
from tests.chip_runs import small_chip, stcp920
from tests.codegen.neuralscale.test_rolled import NOTHING, add, empty_graph, program_of
from tests.instruction_caches import cached, uncached

CHIP = stcp920()
REPEATED = program_of([add(64 * n, 0x8000, 0x10000 + 128 * n) for n in range(200)])


def fetched(elf: bytes, chip: Chip, warm: bool = False) -> int:
    (stream,) = trace_elf(elf, 1, chip, 0, warm)
    return sum(op.issue.missed for op in stream.ops) + stream.end_missed


def slowly(elf: bytes, chip: Chip, runs: int) -> int:
    """Lines fetched in the last of so many runs, one after the other, by the pcs that the simulator says."""
    lines: list[str] = []
    simulate(elf, SimulationOptions(cores=1, trace=lines.append))
    cache = chip.instruction_cache
    assert cache is not None
    sets: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(cache.sets)]
    missed = 0
    for _ in range(runs):
        missed = 0
        for text in lines:
            line = int(text.split()[2], 16) // cache.line_bytes
            ways = sets[line % cache.sets]
            if line not in ways:
                missed += 1
                if len(ways) == cache.ways:
                    ways.popitem(last=False)
            ways[line] = None
            ways.move_to_end(line)
    return missed


@pytest.fixture(scope="module", params=["straight", "rolled"])
def elf(request: pytest.FixtureRequest) -> bytes:
    emit = TARGET.emit if request.param == "straight" else TARGET.emit_rolled
    files = emit(REPEATED, empty_graph(), NOTHING, small_chip(1))
    return files.files[files.executable]


@pytest.mark.spread(16)
@pytest.mark.parametrize("size_bytes", [256, 1024, 4096, 65_536])
@pytest.mark.parametrize("line_bytes", [16, 32, 64])
@pytest.mark.parametrize("ways", [1, 2, 4])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.commit
def test_misses_are_those_of_a_slow_cache(elf: bytes, size_bytes: int, line_bytes: int, ways: int, warm: bool) -> None:
    chip = cached(CHIP, size_bytes=size_bytes, line_bytes=line_bytes, ways=ways)
    assert fetched(elf, chip, warm) == slowly(elf, chip, 2 if warm else 1)


def test_a_loop_is_fetched_once_and_straight_code_line_by_line() -> None:
    straight = TARGET.emit(REPEATED, empty_graph(), NOTHING, small_chip(1))
    rolled = TARGET.emit_rolled(REPEATED, empty_graph(), NOTHING, small_chip(1))
    cold = [fetched(files.files[files.executable], CHIP) for files in (straight, rolled)]
    assert cold[0] > 100
    assert cold[1] < 25
    assert fetched(straight.files[straight.executable], CHIP, warm=True) == 0


def test_nothing_is_counted_where_the_chip_file_says_nothing(elf: bytes) -> None:
    assert fetched(elf, uncached(CHIP)) == 0
