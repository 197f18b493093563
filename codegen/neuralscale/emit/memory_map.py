"""Addresses of a chip file's memories in the address space of a NeuralScale core (NPU v1, one cluster of a chip).

Source: the public functional simulator's address map. Sizes come from the chip file, addresses from here.
"""

from __future__ import annotations

CODE_BASE = 0x0010_0000
"""Address in DDR at which programs start; the first MiB stays free."""

CONTROL_BASE = 0x0008_0000
"""Address of `tohost`, `fromhost` and the trap record."""

DATA_BASE = 0x0400_0000
"""Address from which tensors are placed; code may take up to 63 MiB."""

LLB_BASE = 0xF800_0000
LLB_END = 0xFA00_0000
LLB_SLICE_BYTES = 0x80_0000
DDR_END = 0xC000_0000

_BASES = {"DDR": 0x0, "LLB": LLB_BASE, "L1": 0xC000_0000, "IM": 0xC040_0000}

DMA_ENGINE_BASES = (
    (0xC9F0_0000, 0xD1F0_0000),
    (0xCFF0_0000, 0xD7F0_0000),
    (0xD9F0_0000, 0xE1F0_0000),
    (0xDFF0_0000, 0xE7F0_0000),
)
"""Addresses of the register blocks of the two DMA engines of each cluster."""


CLUSTERS = len(DMA_ENGINE_BASES)

MEMORY_BYTES = {"DDR": DDR_END, "LLB": LLB_SLICE_BYTES, "L1": 0x14_0000, "IM": 0x4_0000}
"""Largest sizes of the memories of a cluster or core."""

HARTS_PER_CLUSTER = 8
"""Harts of each cluster: core i of cluster k is hart 8 k + i."""


def address_of(memory: str, offset_bytes: int) -> int:
    """Address of a byte of a memory of cluster 0. Raises KeyError for a memory that this target does not know."""
    return _BASES[memory] + offset_bytes


def in_cluster(address: int, cluster: int) -> int:
    """The corresponding address in another cluster: each has its own slice of the LLB, and the rest at equal
    addresses."""
    inside = LLB_BASE <= address < LLB_BASE + LLB_SLICE_BYTES
    return address + cluster * LLB_SLICE_BYTES if inside else address


def memory_at(address: int) -> str:
    """Name of the memory that holds an address, or an empty string."""
    if address < DDR_END:
        return "DDR"
    if LLB_BASE <= address < LLB_END:
        return "LLB"
    if 0xC000_0000 <= address < 0xC014_0000:
        return "L1"
    return "IM" if 0xC040_0000 <= address < 0xC044_0000 else ""
