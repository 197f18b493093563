"""Resources of a core that blocks of threads take: registers in units of allocation, and planes in shared memory.

registers that a thread needs --sharing_blocks--> blocks of a core --thread_registers--> registers it may have
"""

from __future__ import annotations

from hw_models.chip import Chip

REGISTERS_STEP = 8
"""Granularity of the registers of a thread."""
RESERVED_BYTES = 1024
"""Bytes of shared memory per block that CUDA reserves from compute capability 8.0 on."""


def rounded_up(value: int, to: int) -> int:
    return -(-value // to) * to


def copied_pitch(rows: int, depth: int) -> int:
    """Rows of a plane for which threads that copy the units of a row hit different banks."""
    apart = 1 if depth >= 64 else 64 // depth
    return (rows + 7 - apart) // 8 * 8 + apart


def sharing_blocks(chip: Chip, needed_registers: int, threads: int) -> int:
    """Number of blocks that share a core's registers, where each thread needs `needed_registers`. The compiler is told
    by launch bounds, and keeps to it. 0 where there is no room for one."""
    return chip.simt.registers_per_core // (rounded_up(needed_registers, REGISTERS_STEP) * threads)


def thread_registers(chip: Chip, blocks: int, threads: int) -> int:
    """Registers that each thread may have, where `blocks` blocks share a core."""
    share = chip.simt.registers_per_core // (blocks * threads)
    return min(chip.simt.registers_per_thread, share // REGISTERS_STEP * REGISTERS_STEP)
