"""A run that a debugger drives by GDB's remote protocol: cores are threads, CSRs of the NPU are registers.

    NpuMachine --DebuggedMachine--> codegen.riscv.gdb.server.serve

Cores take turns as in any run. What has ended the run is told, and the machine can still be looked into; then the
debugger's next step ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from codegen.neuralscale.isa.csr import CSRS
from codegen.neuralscale.simulator.core import csr
from codegen.neuralscale.simulator.core.hart import MASK, Hart
from codegen.neuralscale.simulator.devices.bus import Finished
from codegen.neuralscale.simulator.memory.faults import Fault, SimulationError, Stopped, Trap
from codegen.riscv.gdb.description import target_description
from codegen.riscv.gdb.server import FIRST_CSR, FIRST_FLOAT, REGISTERS, SIGINT, SIGSEGV, Stop, served

if TYPE_CHECKING:
    from codegen.neuralscale.simulator.machine import NpuMachine

POLLED_AFTER: Final = 2000
"""Instructions after which a request to stop is looked for."""


def debugged(port: int, announce: Callable[[str], None], machine: NpuMachine) -> int:
    """Let a debugger drive a machine to its end; the guest's exit code. Raises Stopped for a run that ends with a fault
    or by the debugger, SimulationError for a port that is not free."""
    run = DebuggedMachine(machine)
    try:
        served(port, run, announce)
    except OSError as error:
        raise SimulationError(f"cannot wait for a debugger on port {port}: {error.strerror}") from None
    if isinstance(run.ended, Fault):
        raise Stopped(run.ended)
    if run.ended is None:
        raise Stopped(Fault("stopped", "the debugger has ended the run"))
    return run.ended


class DebuggedMachine:
    """The machine as a debugger sees it. `ended` is the guest's exit code, or the fault, once there is one."""

    register_bytes = 4

    def __init__(self, machine: NpuMachine) -> None:
        self._machine = machine
        self.ended: int | Fault | None = None
        self._told: tuple[int, int] | None = 0, machine.harts[0].pc
        """The core that stopped last, and where: the debugger knows that it is there."""

    @property
    def cores(self) -> int:
        return len(self._machine.harts)

    def description(self) -> str:
        return target_description(32, ((register.number, register.name) for register in CSRS))

    def about(self, core: int) -> str:
        hart = self._machine.harts[core]
        return f"core {hart.hart_id} {self._machine.doing(hart)}"

    def register(self, core: int, number: int) -> int | None:
        hart = self._machine.harts[core]
        if number < REGISTERS - 1:
            return int(hart.x[number])
        if number == REGISTERS - 1:
            return hart.pc
        if number < FIRST_CSR:
            return int(hart.f[number - FIRST_FLOAT]) & MASK
        return _csr(hart, number - FIRST_CSR)

    def set_register(self, core: int, number: int, value: int) -> bool:
        hart = self._machine.harts[core]
        if number < REGISTERS - 1:
            hart.set_x(number, value)
        elif number == REGISTERS - 1:
            hart.pc = value
        elif number < FIRST_CSR:
            hart.set_f32(number - FIRST_FLOAT, value)
        elif _csr(hart, number - FIRST_CSR) is None:
            return False
        else:
            try:
                csr.write(hart, number - FIRST_CSR, value)
            except Trap:
                return False
        return True

    def read(self, core: int, address: int, size_bytes: int) -> bytes | None:
        try:
            return self._machine.memory.read(core, address, size_bytes)
        except SimulationError:
            return None

    def write(self, core: int, address: int, data: bytes) -> bool:
        try:
            self._machine.memory.write(core, address, data, "debugger")
        except SimulationError:
            return False
        self._machine.forget_code()
        return True

    def step(self, core: int) -> Stop:
        wanted = self._machine.harts[core]

        def one() -> Stop | None:
            hart = self._next(wanted)
            self._machine.one(hart)
            return Stop(hart.index) if hart is wanted else None

        return self._until(one)

    def resume(self, breakpoints: frozenset[int], interrupted: Callable[[], bool], core: int | None) -> Stop:
        wanted = None if core is None else self._machine.harts[core]
        told, count = self._told, 0

        def one() -> Stop | None:
            nonlocal told, count
            hart = self._next(wanted)
            if hart.pc in breakpoints and wanted in (None, hart):
                if (hart.index, hart.pc) != told:
                    return Stop(hart.index)
                told = None
            self._machine.one(hart)
            count += 1
            return Stop(hart.index, SIGINT) if count % POLLED_AFTER == 0 and interrupted() else None

        return self._until(one)

    def finish(self) -> Stop:
        found = self._until(lambda: self._machine.one(self._machine.turn()))
        return found if found.exit_code is not None else self.finish()

    def _next(self, wanted: Hart | None) -> Hart:
        """The core that runs next: a wanted one whenever it does not wait."""
        return self._machine.turn() if wanted is None or wanted.waiting is not None else wanted

    def _until(self, one: Callable[[], Stop | None]) -> Stop:
        """Run one instruction after the other until there is a reason to stop."""
        if isinstance(self.ended, Fault):
            return Stop(0, exit_code=self.ended.exit_code)
        try:
            while (stop := one()) is None:
                pass
            self._told = stop.core, self._machine.harts[stop.core].pc
            return stop
        except Finished as finished:
            self.ended = finished.code
            return Stop(0, exit_code=finished.code)
        except Stopped as stopped:
            self.ended = stopped.fault
            return Stop(self._machine.last.index, SIGSEGV, words=f"{stopped.fault.kind}: {stopped.fault.message}")


def _csr(hart: Hart, number: int) -> int | None:
    """A CSR, those of the floating-point unit even where it is off; None where there is none."""
    if number >= len(hart.csr):
        return None
    flags, mode = int(hart.csr[csr.FFLAGS]), int(hart.csr[csr.FRM])
    of_floats = {csr.FFLAGS: flags, csr.FRM: mode, csr.FCSR: mode << 5 | flags}
    if number in of_floats:
        return of_floats[number]
    try:
        return csr.read(hart, number) & MASK
    except Trap:
        return None
