"""Work and size of a block of attention_wgmma.cu: groups of four warps, keys at a time, bytes, registers, floors.

problem, a chip --wgmma_tiles--> tiles that a block of it can hold
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.cutlass.families.attention.attention_operands import AttentionProblem
from codegen.cutlass.families.attention.seen_keys import SCORE_OPERATIONS, row_blocks, seen_keys
from codegen.cutlass.families.fused.occupancy import REGISTERS_STEP, RESERVED_BYTES, rounded_up, thread_registers
from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor, lanes_floor, shared_floor
from hw_models.chip import Chip
from partitioner.ir.kernels import KernelFloor

GROUP_ROWS, GROUP_THREADS = 64, 128
"""Rows of q and threads of a group of four warps. One more group copies."""
LEAST_ROWS = 33
"""Of fewer rows that share a head of k and v, most of what a group computes would be of none."""
UNIT = 8
"""Elements of a row of a head that are copied at a time."""
OTHER_REGISTERS, MASK_REGISTERS = 36, 8
"""Registers of a multiplying thread for addresses and numbers of its rows; more of them where there is a mask, of which
a part is on its way."""
BEFORE_SUMS = 26
"""Registers that come before those of the sums of a wgmma; all of them are among those with which the kernel starts."""
ALIGNED, BARRIER_BYTES = 1024, 8
SHAPES = (
    # groups, blocks that share a core, registers of a copying thread, largest numbers of keys at a time
    (2, 1, 40, (64, 128, 176, 256)),
    (3, 1, 32, (64, 112)),
    (1, 3, 32, (64, 80)),
    (1, 2, 40, (64, 128, 192)),
)
"""Many groups read k and v least; small blocks give every core something to do, and overlap with each other."""


@dataclass(frozen=True, slots=True)
class WgmmaAttentionTile:
    """`groups` x 64 rows of a head of k and v, `block` keys at a time; `sharers` blocks on a core."""

    problem: AttentionProblem
    groups: int
    sharers: int
    loader_registers: int
    block: int

    @property
    def parameters(self) -> tuple[tuple[str, int | str], ...]:
        return (("by", "wgmma"), ("rows", self.rows), ("keys", self.block))

    @property
    def rows(self) -> int:
        return GROUP_ROWS * self.groups

    @property
    def threads(self) -> int:
        return GROUP_THREADS * (self.groups + 1)

    @property
    def deep(self) -> int:
        """Elements of a row of q and k, padded."""
        return rounded_up(self.problem.size, 16)

    @property
    def once(self) -> bool:
        """Whether a block holds all keys."""
        return self.problem.keys <= self.block

    @property
    def stages(self) -> int:
        """Blocks of keys, and of values, in shared memory."""
        return 1 if self.once else 2

    @property
    def row_blocks(self) -> int:
        """Blocks of threads of a head of k and v."""
        return row_blocks(self.problem, self.rows)

    @property
    def blocks(self) -> int:
        """Number of blocks of threads."""
        return self.problem.items * self.problem.groups * self.row_blocks

    @property
    def shared_bytes(self) -> int:
        """Size of `Shared` in bytes; checked when the kernel is compiled."""
        parts = (
            _panel_bytes(self.deep, self.rows),
            self.stages * _panel_bytes(self.deep, self.block),
            self.stages * _panel_bytes(self.problem.width, self.block),
        )
        return sum(rounded_up(part, ALIGNED) for part in parts) + BARRIER_BYTES * 4 * self.stages

    def registers(self, chip: Chip) -> int:
        """Registers of a thread with which the kernel starts."""
        return thread_registers(chip, self.sharers, self.threads)

    def multiplier_registers(self, chip: Chip) -> int:
        """Registers of a thread that multiplies: those that the copying ones leave."""
        left = (self.groups + 1) * self.registers(chip) - self.loader_registers
        return min(chip.simt.registers_per_thread, left // self.groups) // REGISTERS_STEP * REGISTERS_STEP

    @property
    def _needed_registers(self) -> int:
        """Registers for scores, weights, which take the place of scores where no others come, sums and the rest."""
        weights = 0 if self.once else self.block // 4
        mask = self.block // 4 + MASK_REGISTERS if self.problem.mask else 0
        return self.block // 2 + weights + self.problem.width // 2 + mask + OTHER_REGISTERS

    def fits(self, chip: Chip) -> bool:
        """Whether a core has shared memory and registers for as many blocks as share it."""
        several = self.sharers * (self.shared_bytes + RESERVED_BYTES)
        sums = max(self.block, self.problem.width) // 2
        return (
            BEFORE_SUMS + sums <= self.registers(chip)
            and self._needed_registers <= self.multiplier_registers(chip)
            and several <= chip.memory(chip.simt.shared_memory).size_bytes
            and self.shared_bytes <= chip.simt.shared_bytes_per_block
        )

    def floors(self, chip: Chip) -> tuple[KernelFloor, ...]:
        """Floors of the tensor cores, the CUDA cores, shared memory and the L2, with whole blocks of rows and keys."""
        problem, blocks = self.problem, self.blocks
        seen = seen_keys(problem, self.rows, self.block) / self.row_blocks
        own = seen * (self.deep + problem.width)  # elements of k and v that a block reads
        queries = self.rows * self.deep
        each_thread = seen * GROUP_ROWS / GROUP_THREADS * SCORE_OPERATIONS
        operands = (self.groups + 1) * own + queries * (1 + seen / self.block)
        read = own + self.rows * (problem.size + (seen if problem.mask else 0))
        rate = chip.tensor.macs_per_cycle("wgmma", "float16")
        return (
            arithmetic_floor(chip, "tensor", self.rows * own, (blocks,), rate),
            lanes_floor(chip, int(4 * self.groups * each_thread), int(each_thread), blocks),
            shared_floor(chip, int(2 * operands), blocks),
            cache_floor(chip, int(2 * blocks * read)),
        )


def wgmma_tiles(problem: AttentionProblem, chip: Chip) -> tuple[WgmmaAttentionTile, ...]:
    """All tiles that a block of the chip can hold, none of which has more groups than there are rows for; empty where
    rows of heads cannot be copied by 16 bytes, where there are few of them, and for chips without wgmma."""
    rates = {rate.instruction for rate in chip.tensor.rates if rate.dtype == "float16"}
    if "wgmma" not in rates or not problem.by_eight or problem.rows * problem.shared < LEAST_ROWS:
        return ()
    found: dict[object, WgmmaAttentionTile] = {}
    for tile in _tiles(problem):
        if tile.fits(chip):
            found.setdefault(tile.parameters, tile)
    return tuple(found.values())


def _tiles(problem: AttentionProblem) -> Iterator[WgmmaAttentionTile]:
    for groups, sharers, loader_registers, most_keys in SHAPES:
        if groups == 1 or problem.rows * problem.shared > GROUP_ROWS * (groups - 1):
            for most in most_keys:
                yield WgmmaAttentionTile(problem, groups, sharers, loader_registers, _even_block(problem.keys, most))


def _even_block(keys: int, most: int) -> int:
    """Keys at a time, at most so many and a multiple of 16, such that blocks of them hold few more than all keys."""
    steps = -(-keys // most)
    return rounded_up(-(-keys // steps), 16)


def _panel_bytes(columns: int, rows: int) -> int:
    """Bytes of rows of so many fp16 as `Panels` of the template holds them."""
    panel = 64 if columns > 32 else 32 if columns > 16 else 16
    return 2 * rounded_up(columns, panel) * rows
