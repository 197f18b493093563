"""What a part of a loop of the accelerator's own asks of the controllers: requests, bytes, beats, rows, blocks.

unrolled instructions of a part, what is configured --part_work--> IssuedLoop
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.gemmini.isa.operations import ACCUMULATOR, FULL_WIDTH, FUNCTIONS
from codegen.gemmini.isa.unrolled import Instructions, Numbers, Part
from codegen.gemmini.streams.pieces import MOVES_IN
from codegen.gemmini.timing.issued_loops import LEAST_BLOCK_CYCLES, LOOP_DOES, IssuedLoop
from hw_models.chip import Chip


@dataclass(slots=True)
class MoveSettings:
    """Bytes from row to row of each state of moving in, whether a state moves int8 to sums, and rows that each
    instruction moves out, with local rows that it reads beyond them; of pools."""

    strides: list[int]
    narrow: list[int]
    pool: tuple[int, int] = (0, 0)

    def configure(self, instructions: Instructions) -> None:
        """Take what configuring instructions of a loop set."""
        for _, first, second in instructions[instructions[:, 0] == FUNCTIONS["config"]].tolist():
            state = first >> 3 & 3
            if first & 3 == 1:
                self.strides[state], self.narrow[state] = second, first >> 2 & 1
            elif first & 3 == 2:
                outputs, size = (first >> 32 & 0xFF) * (first >> 40 & 0xFF), first >> 6 & 3
                self.pool = (outputs, outputs * (size * size - 1)) if first >> 4 & 3 else (0, 0)


STATES_BY_FUNCTION = {FUNCTIONS[name]: state for name, state in MOVES_IN.items()}


def beat_bytes(chip: Chip) -> int:
    """Bytes of one beat of the bus."""
    return int(max(link.bandwidth_bytes_per_cycle for link in chip.links))


def part_work(part: Part, instructions: Instructions, settings: MoveSettings, whole_blocks: bool, chip: Chip
) -> IssuedLoop:  # fmt: skip
    """The work of a part. With `whole_blocks` every block takes as long as the array is wide. The settings become what
    they are after it."""
    dim = chip.matrix.array_channels
    if part == "compute":
        computes = instructions[1::2]
        a_rows = computes[:, 1] >> 48 & 0xFFFF
        fills = computes[:, 0] == FUNCTIONS["compute_preloaded"]
        b_rows = np.where(fills, instructions[::2, 1] >> 48 & 0xFFFF, 1)
        cycles = (
            np.full(len(a_rows), dim) if whole_blocks else np.maximum(np.maximum(a_rows, b_rows), LEAST_BLOCK_CYCLES)
        )
        return IssuedLoop(LOOP_DOES[part], len(instructions), 0.0, array_cycles=int(cycles.sum()))
    moves = instructions[instructions[:, 0] != FUNCTIONS["config"]]
    before = MoveSettings(settings.strides, settings.narrow)
    before.configure(instructions)
    settings.strides, settings.narrow = before.strides, before.narrow
    return _moved(part, moves, before, chip)


def _moved(part: Part, moves: Instructions, settings: MoveSettings, chip: Chip) -> IssuedLoop:
    """The work of instructions that move."""
    dim, beat, request = chip.matrix.array_channels, beat_bytes(chip), chip.dma.max_linear_bytes
    row, columns, rows = moves[:, 2] & 0xFFFFFFFF, moves[:, 2] >> 32 & 0xFFFF, moves[:, 2] >> 48 & 0xFFFF
    blocks = -(-columns // dim)
    sums = part != "load"
    if part == "store":
        outputs, more = settings.pool
        read = np.full(len(moves), outputs) if outputs else rows
        item, local = np.where(row & FULL_WIDTH, 4, 1), np.full(len(moves), more)
    else:
        states = np.array([STATES_BY_FUNCTION[number] for number in moves[:, 0].tolist()], np.int64)
        repeats = np.array(settings.strides)[states] == 0
        narrow = np.array(settings.narrow)[states] != 0
        read = np.where(moves[:, 1] == 0, 0, np.where(repeats, 1, rows))
        item, local = np.where((row & ACCUMULATOR != 0) & ~narrow, 4, 1), (rows - read) * blocks
        sums = bool(len(row) and row[0] & ACCUMULATOR)
    size = columns * item
    return IssuedLoop(LOOP_DOES[part], len(moves), 0.0, _sum(read * -(-size // request)), _sum(read * size),
                      _sum(read * -(-size // beat)), _sum(local), sums=sums)  # fmt: skip


def _sum(numbers: Numbers) -> int:
    return int(numbers.sum())
