"""One scalar instruction in full, in Python: those that the compiled loop leaves.

These are special loads and stores, half-precision accesses, atomics, CSRs and the machine instructions; arithmetic on
FPRs is in `single_float`. Every entry is `family -> function(step)`; the function changes registers, memory and, for
jumps, `step.following`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from codegen.neuralscale.simulator.arithmetic import fp16, softfloat
from codegen.neuralscale.simulator.core import csr
from codegen.neuralscale.simulator.core.csr import ILLEGAL_INSTRUCTION
from codegen.neuralscale.simulator.core.hart import FS_DIRTY, MASK, MSTATUS, Hart, WaitReason
from codegen.neuralscale.simulator.core.operands import check_vtype
from codegen.neuralscale.simulator.devices.bus import LOAD_FAULT, STORE_FAULT, Bus
from codegen.neuralscale.simulator.memory.faults import Trap

ECALL: Final = 11
MISALIGNED_ATOMIC: Final = 6
BREAKPOINT: Final = 3
_MIE, _MPIE = 0x8, 0x80


@dataclass(slots=True)
class ExecutionStep:
    """An instruction being executed: its fields, the bus, and the address of the next one."""

    hart: Hart
    bus: Bus
    word: int
    following: int
    flush: Callable[[], None]

    @property
    def rd(self) -> int:
        return self.word >> 7 & 31

    @property
    def rs1(self) -> int:
        return self.word >> 15 & 31

    @property
    def rs2(self) -> int:
        return self.word >> 20 & 31

    @property
    def address_i(self) -> int:
        """rs1 plus the signed immediate of a load."""
        offset = (self.word >> 20 ^ 0x800) - 0x800
        return int(self.hart.x[self.rs1]) + offset & MASK

    @property
    def address_s(self) -> int:
        """rs1 plus the signed immediate of a store."""
        offset = ((self.word >> 25 << 5 | self.rd) ^ 0x800) - 0x800
        return int(self.hart.x[self.rs1]) + offset & MASK

    @property
    def mode(self) -> int:
        """The rounding mode. Raises `Trap` when it is reserved."""
        mode = self.word >> 12 & 7
        mode = int(self.hart.csr[csr.FRM]) if mode == 7 else mode
        if mode > softfloat.RMM:
            raise Trap(ILLEGAL_INSTRUCTION)
        return mode

    def require_fp(self) -> None:
        """Check mstatus.FS, which scalar F instructions need. Raises Trap."""
        if not self.hart.fp_enabled:
            raise Trap(ILLEGAL_INSTRUCTION)

    def f(self, register: int) -> int:
        """An FPR as single-precision bits."""
        return self.hart.f32(register)

    def raise_flags(self, flags: int) -> None:
        """Accrue floating-point exceptions."""
        if flags:
            self.hart.csr[csr.FFLAGS] |= flags
            self.hart.csr[MSTATUS] |= FS_DIRTY


Execute = Callable[[ExecutionStep], None]


def _load(size: int, *, signed: bool) -> Execute:
    top = 1 << 8 * size - 1

    def execute(step: ExecutionStep) -> None:
        value = step.bus.load(step.hart, step.address_i, size)
        step.hart.set_x(step.rd, (value ^ top) - top if signed else value)

    return execute


def _store(size: int) -> Execute:
    def execute(step: ExecutionStep) -> None:
        step.bus.store(step.hart, step.address_s, size, int(step.hart.x[step.rs2]))

    return execute


def _flw(step: ExecutionStep) -> None:
    step.require_fp()
    step.hart.set_f32(step.rd, step.bus.load(step.hart, step.address_i, 4))


def _fsw(step: ExecutionStep) -> None:
    step.require_fp()
    step.bus.store(step.hart, step.address_s, 4, int(step.hart.f[step.rs2]))


def _flhw(step: ExecutionStep) -> None:
    step.require_fp()
    half = step.bus.load(step.hart, int(step.hart.x[step.rs1]), 2)
    step.hart.set_f32(step.rd, fp16.to_f32_bits(half))


def _fshw(step: ExecutionStep) -> None:
    step.require_fp()
    bits = int(step.hart.f[step.rs2]) & MASK
    step.bus.store(step.hart, int(step.hart.x[step.rs1]), 2, fp16.from_f32(bits))


def _load_reserved(step: ExecutionStep) -> None:
    address = int(step.hart.x[step.rs1])
    if not step.bus.is_memory(step.hart, address):
        raise Trap(LOAD_FAULT, address)
    value = step.bus.load(step.hart, address, 4)
    step.hart.reservation = address
    step.hart.set_x(step.rd, value)


def _store_conditional(step: ExecutionStep) -> None:
    """Store conditional: checks its address even when it has no reservation, and then fails."""
    address = int(step.hart.x[step.rs1])
    held = step.hart.reservation == address
    if not step.bus.is_memory(step.hart, address):
        raise Trap(STORE_FAULT, address)
    _check_atomic(address)
    step.hart.reservation = None
    if held:
        step.bus.store(step.hart, address, 4, int(step.hart.x[step.rs2]))
    step.hart.set_x(step.rd, not held)


def _check_atomic(address: int) -> None:
    if address & 3:
        raise Trap(MISALIGNED_ATOMIC, address)


def signed_word(value: int) -> int:
    """A register's value as a signed number."""
    return (value ^ 0x8000_0000) - 0x8000_0000


_ATOMICS: Final[dict[str, Callable[[int, int], int]]] = {
    "amoswap.w": lambda _, b: b,
    "amoadd.w": lambda a, b: a + b,
    "amoxor.w": lambda a, b: a ^ b,
    "amoand.w": lambda a, b: a & b,
    "amoor.w": lambda a, b: a | b,
    "amomin.w": lambda a, b: min(a, b, key=signed_word),
    "amomax.w": lambda a, b: max(a, b, key=signed_word),
    "amominu.w": min,
    "amomaxu.w": max,
}


def _atomic(compute: Callable[[int, int], int]) -> Execute:
    def execute(step: ExecutionStep) -> None:
        address, operand = int(step.hart.x[step.rs1]), int(step.hart.x[step.rs2])
        _check_atomic(address)
        try:
            old = step.bus.load(step.hart, address, 4)
        except Trap as trap:
            raise Trap(STORE_FAULT, trap.value) from None
        step.bus.store(step.hart, address, 4, compute(old, operand))
        step.hart.set_x(step.rd, old)

    return execute


def _csr_access(combine: Callable[[int, int], int] | None, *, immediate: bool) -> Execute:
    """CSR access. `combine` joins old value and operand; None is the plain write, which happens even from x0."""

    def execute(step: ExecutionStep) -> None:
        number, operand = step.word >> 20, step.rs1 if immediate else int(step.hart.x[step.rs1])
        writes = combine is None or step.rs1 != 0
        if writes and number >> 10 == 3:
            raise Trap(ILLEGAL_INSTRUCTION)
        old = csr.read(step.hart, number)
        if writes:
            csr.write(step.hart, number, (operand if combine is None else combine(old, operand)) & MASK)
        step.hart.set_x(step.rd, old)

    return execute


def _illegal(_: ExecutionStep) -> None:
    raise Trap(ILLEGAL_INSTRUCTION)


def _ecall(_: ExecutionStep) -> None:
    raise Trap(ECALL)


def _ebreak(step: ExecutionStep) -> None:
    raise Trap(BREAKPOINT, step.hart.pc)


def _mret(step: ExecutionStep) -> None:
    check_vtype(step.hart)
    status = int(step.hart.csr[MSTATUS])
    status = status & ~_MIE | _MPIE | (_MIE if status & _MPIE else 0)
    step.hart.csr[MSTATUS] = status
    step.following = int(step.hart.csr[csr.MEPC])


def _wfi(step: ExecutionStep) -> None:
    step.hart.waiting = WaitReason.WFI


def _jump(step: ExecutionStep) -> None:
    """A jump to itself, the only jump that comes here: nothing ends it, as there are no interrupts."""
    step.hart.waiting = WaitReason.HALT
    step.following = step.hart.pc


def _fence_i(step: ExecutionStep) -> None:
    step.flush()


SINGLE: Final[dict[str, Execute]] = {
    "lb": _load(1, signed=True),
    "lh": _load(2, signed=True),
    "lw": _load(4, signed=False),
    "lbu": _load(1, signed=False),
    "lhu": _load(2, signed=False),
    "sb": _store(1),
    "sh": _store(2),
    "sw": _store(4),
    "flw": _flw,
    "fsw": _fsw,
    "flhw": _flhw,
    "fshw": _fshw,
    "lr.w": _load_reserved,
    "sc.w": _store_conditional,
    **{name: _atomic(compute) for name, compute in _ATOMICS.items()},
    "csrrw": _csr_access(None, immediate=False),
    "csrrs": _csr_access(lambda old, bits: old | bits, immediate=False),
    "csrrc": _csr_access(lambda old, bits: old & ~bits, immediate=False),
    "csrrwi": _csr_access(None, immediate=True),
    "csrrsi": _csr_access(lambda old, bits: old | bits, immediate=True),
    "csrrci": _csr_access(lambda old, bits: old & ~bits, immediate=True),
    # The compiled loop runs these two unless the FP unit is off.
    "fmv.x.w": _illegal,
    "fmv.w.x": _illegal,
    "ecall": _ecall,
    "ebreak": _ebreak,
    "mret": _mret,
    "wfi": _wfi,
    "jal": _jump,
    "fence.i": _fence_i,
    "fence.tso": lambda _: None,
}
"""Implementation of each scalar instruction that Python executes, by family."""
