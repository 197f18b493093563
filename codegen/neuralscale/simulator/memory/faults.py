"""Errors of a simulation, by whose mistake they are.

Trap             the guest's: taken by its own handler, as on the chip
SimulationFault  the guest's, but nothing on the chip would report it: ends the run with a `Fault` in the result
Stopped          the end of the run, with that fault
SimulationError  the caller's: a file, address or option that cannot be used
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["limit", "deadlock", "stopped", "poison", "race", "overlap", "trap", "range", "unsupported"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Reason why a run ended without the guest's exit code. `message` names core, pc, instruction and operator."""

    kind: FaultKind
    message: str

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: 125 limit, deadlock or a debugger that stopped it, 126 anything that the
        program did wrong."""
        return 125 if self.kind in ("limit", "deadlock", "stopped") else 126


class Trap(Exception):
    """A guest trap with `mcause` and `mtval`."""

    def __init__(self, cause: int, value: int = 0) -> None:
        super().__init__(f"trap {cause:#x}, value {value:#x}")
        self.cause = cause
        self.value = value & 0xFFFF_FFFF


class SimulationFault(Exception):
    """A fault that ends the run; the machine adds core, pc, instruction and operator to `message`."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind
        self.message = message


class Stopped(Exception):
    """The run ends with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class SimulationError(Exception):
    """A mistake of the caller, in one sentence."""
