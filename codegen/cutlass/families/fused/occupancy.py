"""What blocks of threads take of a core, in the units in which it is given to them.

registers that a thread needs --sharing_blocks--> blocks of a core --thread_registers--> registers it may have
"""

from __future__ import annotations

from codegen.cutlass.families.fused.planes import rounded_up
from hw_models.chip import Chip

REGISTERS_STEP = 8
"""Registers are given to threads in eights."""
RESERVED_BYTES = 1024
"""Of shared memory for each block, which CUDA keeps to itself from compute capability 8.0 on."""


def sharing_blocks(chip: Chip, needed_registers: int, threads: int) -> int:
    """Blocks that a core's registers are shared among, where each thread needs so many. The compiler is told, by launch
    bounds, and keeps to it. 0 where there is no room for one."""
    return chip.simt.registers_per_core // (rounded_up(needed_registers, REGISTERS_STEP) * threads)


def thread_registers(chip: Chip, blocks: int, threads: int) -> int:
    """That each thread may have, where so many blocks share a core."""
    share = chip.simt.registers_per_core // (blocks * threads)
    return min(chip.simt.registers_per_thread, share // REGISTERS_STEP * REGISTERS_STEP)
