"""What can go wrong with PTX text, and whose mistake it is.

PtxError      the text cannot be read, asks for what the executor lacks, or is launched wrongly
Unsupported   an opcode, modifier or operand that the executor lacks, by name and line
Fault         the kernel did something undefined while it ran; `kind` says what
"""

from __future__ import annotations

from enum import Enum

__all__ = ["Fault", "FaultKind", "PtxError", "Unsupported"]


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
    """PTX text or a launch that cannot be executed. `line` is of the PTX text, 0 where none is meant."""

    def __init__(self, message: str, *, kernel: str = "", line: int = 0) -> None:
        self.reason = message
        self.kernel = kernel
        self.line = line
        where = ", ".join(
            part for part in (f"kernel {kernel}" if kernel else "", f"line {line}" if line else "") if part
        )
        super().__init__(f"{where}: {message}" if where else message)


class Unsupported(PtxError):
    """The executor has no row for this opcode, or not with these modifiers or operands."""


class Fault(PtxError):
    """Undefined behaviour of a kernel. Raised without a place by whoever finds it; the machine adds kernel and line."""

    def __init__(self, kind: FaultKind, message: str, *, kernel: str = "", line: int = 0) -> None:
        super().__init__(f"{kind.value}: {message}", kernel=kernel, line=line)
        self.kind = kind
        self.finding = message

    def at(self, kernel: str, line: int, text: str) -> Fault:
        """The same fault, with the instruction that it happened in."""
        return Fault(self.kind, f"{self.finding} (in `{text}`)", kernel=kernel, line=line)
