"""Errors of PTX text and kernels, by whose mistake they are, and limits for text and launches.

PtxError      the text cannot be read, asks for what the executor lacks, or is launched wrongly
UnsupportedPtx   an opcode, modifier or operand that the executor lacks, by name and line
KernelFault         the kernel did something undefined while it ran; `kind` says which
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class PtxLimits:
    """Limits of one text and one launch. `max_steps` counts instructions of one batch of CTAs, once for all its
    threads.

    `batch_threads` is the number of threads of a batch for kernels with shared memory; others have a multiple of it."""

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


class FaultKind(Enum):
    """Each undefined act that the executor catches; the value is how messages name it."""

    RACE = "race"
    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned"
    IN_FLIGHT = "not waited for"
    DIVERGENCE = "divergence"
    UNINITIALISED = "uninitialised"
    ENDLESS = "endless"
    DEADLOCK = "deadlock"
    FENCE = "fence missing"
    TRAP = "trap"
    INVALID = "invalid operand"


class PtxError(Exception):
    """PTX text or a launch that cannot be executed. `line` is the line of the PTX text, 0 where there is none."""

    def __init__(self, message: str, *, kernel: str = "", line: int = 0) -> None:
        self.reason = message
        self.kernel = kernel
        self.line = line
        where = ", ".join(
            part for part in (f"kernel {kernel}" if kernel else "", f"line {line}" if line else "") if part
        )
        super().__init__(f"{where}: {message}" if where else message)


class UnsupportedPtx(PtxError):
    """The executor has no row for this opcode, or not with these modifiers or operands."""


class KernelFault(PtxError):
    """Undefined behaviour of a kernel. It is raised without a location by the code that finds it; the machine adds
    kernel and line."""

    def __init__(self, kind: FaultKind, message: str, *, kernel: str = "", line: int = 0) -> None:
        super().__init__(f"{kind.value}: {message}", kernel=kernel, line=line)
        self.kind = kind
        self.finding = message

    def at(self, kernel: str, line: int, text: str) -> KernelFault:
        """The fault with the instruction in which it happened."""
        return KernelFault(self.kind, f"{self.finding} (in `{text}`)", kernel=kernel, line=line)
