"""Descriptors of the system DMA, which form the chains in an engine's store.

control, source, destination, shape, stride, address of the next descriptor or 0
"""

from __future__ import annotations

CHAINS = ("dma.gather", "dma.scatter")
"""Opcodes of chains whose descriptors a loop of the scalar core makes."""
DESCRIPTOR_BYTES = 24
DESCRIPTOR_WORDS = 5
"""Words of a descriptor in a `dma.start`: all but the address of the next one."""

VALID = 1 << 31
BLOCK = 1 << 29
LENGTH_MASK = 0x3F_FFFF

CHAIN_SHARE = 2
"""Number of channels of an engine that share its descriptor store."""


def linear_control(size_bytes: int) -> int:
    """The first word of a descriptor that moves `size_bytes` contiguous bytes; 4 MiB are written as 0."""
    return VALID | size_bytes & LENGTH_MASK
