"""The least time that blocks need for what they read from shared memory."""

from __future__ import annotations

from hw_models.chip import Chip
from partitioner.ir.kernels import KernelFloor

__all__ = ["shared_floor"]


def shared_floor(chip: Chip, read_bytes: int, blocks: int) -> KernelFloor:
    """`read_bytes` by each of so many blocks; whole waves, as in `arithmetic_floor`."""
    memory = chip.memory(chip.simt.shared_memory)
    most = -(-blocks // chip.cores_per_cluster)
    seconds = most * read_bytes / (memory.bandwidth_bytes_per_cycle or float("inf")) / chip.clock_hz
    return KernelFloor(memory.name, seconds, f"{read_bytes} bytes in each of {blocks} blocks")
