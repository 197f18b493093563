"""DMA chains in shared code: words of a descriptor that a channel still holds are not written again, others are."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.neuralscale.asm.disassembler import disassemble_elf
from codegen.neuralscale.kernels.transfers import copy_instructions
from codegen.neuralscale.target import TARGET
from codegen.riscv.elf import read_elf
from codegen.target import ClusterFiles
from isched.program.program import Instr, Region
from isched.program.target import MemoryCopy
from tests.codegen.neuralscale.test_rolled import (
    CHIP,
    NOTHING,
    ON_TWO_CORES,
    add,
    empty_graph,
    program_of,
    same_work,
)

SYNC = TARGET.synchronise("meet")


def moved(source: int, destination: int, size_bytes: int = 256, rows: int = 1, pitch_bytes: int = 0) -> list[Instr]:
    """One chain from DDR to LLB and the wait for it."""
    copy = MemoryCopy(
        Region("DDR", source, size_bytes, rows, pitch_bytes),
        Region("LLB", destination, size_bytes * rows),
    )
    return list(copy_instructions((copy,), "load", CHIP))


def stores(files: ClusterFiles, to: str = "") -> int:
    """Instructions that store a word, to this place alone where one is given."""
    lines = map(str, disassemble_elf(read_elf(files.files[files.executable])))
    return sum(" sw " in line and to in line for line in lines)


def compared(*streams: Sequence[Instr]) -> tuple[int, int]:
    """Stores of the straight and of the rolled form, which ask the same."""
    program = program_of(*streams)
    same_work(program, empty_graph(), NOTHING, ON_TWO_CORES)
    straight = TARGET.emit(program, empty_graph(), NOTHING, CHIP)
    return stores(straight), stores(TARGET.emit_rolled(program, empty_graph(), NOTHING, CHIP))


CHAINS = [moved(0x4000 * n * n, 0x300 * (n % 3)) for n in range(6)]
"""Of one descriptor each: source and often destination differ, shape, stride and the end of the chain do not."""


def test_one_core_writes_what_changes() -> None:
    straight, rolled = compared([instr for chain in CHAINS for instr in chain])
    assert rolled <= straight - 3 * (len(CHAINS) - 1)


def test_the_word_that_says_valid_is_always_written() -> None:
    """An engine may take that back."""
    program = program_of([instr for chain in CHAINS for instr in chain])
    assert stores(TARGET.emit_rolled(program, empty_graph(), NOTHING, CHIP), " 0(s11)") == len(CHAINS)


def test_a_channel_of_two_cores_is_written_whole_each_time() -> None:
    """The other core has left its own words there."""
    takers = [[instr for n, chain in enumerate(CHAINS) for instr in ((*chain, SYNC) if n % 2 == core else (SYNC,))]
              for core in range(2)]  # fmt: skip
    straight, rolled = compared(*takers)
    assert rolled == straight


def test_a_longer_chain_in_between_is_not_forgotten() -> None:
    long = moved(0x90_0000, 0x8000, 96, 5, 4096)
    compared([*CHAINS[0], *long, *CHAINS[0], *long])


def test_chains_in_loops_leave_other_words() -> None:
    """Behind a loop whose chains grow, what its first one had is there no more."""
    growing = [instr for n in range(12) for instr in moved(0x1000 * n, 0x200 * n)]
    compared([*CHAINS[0], *growing, *CHAINS[0], *growing, add(0, 64, 128)])


def test_an_iteration_finds_the_words_of_the_last_one() -> None:
    """The first one would need none of its first chain."""
    compared([*CHAINS[1], *(CHAINS[1] + CHAINS[2]) * 8])


@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 30))
@pytest.mark.commit
def test_chains_drawn_at_random(seed: int) -> None:
    rng = random.Random(seed)

    def chain() -> list[Instr]:
        place = rng.randrange(4) << 12, rng.randrange(4) << 10
        return moved(*place, 64 * rng.randint(1, 2), rng.choice((1, 1, 3)), 512)

    patterns = [[instr for _ in range(rng.randint(1, 3)) for instr in chain()] for _ in range(3)]
    first = [instr for _ in range(4) for instr in rng.choice(patterns) * rng.randint(1, 4)]
    second = [add(64 * n, 0x8000, 0x10000) for n in range(rng.randint(0, 9))]
    second += rng.choice(patterns) * rng.randint(0, 1)
    compared([*first, SYNC], [SYNC, *second])
