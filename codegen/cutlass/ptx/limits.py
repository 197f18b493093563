"""Bounds on what PTX text and launches may ask for: both come from strangers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one text and one launch. `max_steps` counts instructions of one batch of CTAs, once for all its threads.

    `batch_threads`: threads at once, of kernels with shared memory; a multiple of it of others."""

    max_text_bytes: int = 8 << 20
    max_instructions: int = 400_000
    max_registers: int = 200_000
    max_vector: int = 256
    max_local_bytes: int = 1 << 16
    max_shared_bytes: int = 227 << 10
    max_static_bytes: int = 64 << 20
    max_parameter_bytes: int = 32_764
    max_threads_per_block: int = 1024
    max_blocks: int = 1 << 24
    max_global_bytes: int = 8 << 30
    max_steps: int = 4_000_000
    batch_threads: int = 4096
    batch_bytes: int = 512 << 20
