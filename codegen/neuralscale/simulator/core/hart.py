"""State of one core: registers, CSRs, and the reason why it is not running."""

from __future__ import annotations

from enum import Enum
from typing import Final

import numpy as np

from codegen.neuralscale.simulator.arithmetic.softfloat import CANONICAL_NAN
from codegen.neuralscale.simulator.core import scalar

MASK: Final = 0xFFFF_FFFF
MSTATUS: Final = 0x300
FS: Final = 0x6000
FS_DIRTY: Final = 0x8000_6000
_BOOT_ROM: Final = 0xC060_1000
_BOOT_INSTRUCTIONS: Final = 5
_BOX: Final = -1 << 32

VECTOR_BYTES: Final = 128
VECTOR_ELEMENTS: Final = VECTOR_BYTES // 2
VTYPE_RESET: Final = 4  # 16-bit elements, one register per group
VTYPE_ILLEGAL: Final = 0x8000_0000


class WaitReason(Enum):
    """Reason why a core does not execute."""

    SYNC = "sync"
    PLD = "pld"
    WFI = "wfi"
    HALT = "a jump to itself"


class Hart:
    """One core. `x` has a spare entry for writes to x0; FPRs are boxed to 64 bits, so that an unwritten one is NaN."""

    def __init__(self, index: int, hart_id: int, rows: int, entry: int) -> None:
        self.index = index
        self.hart_id = hart_id
        self.x = np.zeros(33, np.uint32)
        self.xs = self.x.view(np.int32)
        self.f = np.zeros(32, np.int64)
        self.v = np.zeros((32, VECTOR_ELEMENTS), np.uint16)
        self.csr = np.zeros(4096, np.uint32)
        self.counts = np.zeros(rows + 1, np.int64)
        self.state = np.zeros(scalar.STATE_WORDS, np.int64)
        self.cache = np.zeros(scalar.CACHE_WORDS, np.int64)
        self.cache[scalar.LINE_BITS] = scalar.NO_CACHE
        self.retired = 0
        self.counter_offset = _BOOT_INSTRUCTIONS  # minstret minus the instructions that this simulator retired
        self.waiting: WaitReason | None = None
        self.pending: tuple[int, int] | None = None  # destination and source of a pld that waits for its partners
        self.reservation: int | None = None
        self.vl = VECTOR_ELEMENTS
        self.vtype = VTYPE_RESET
        self.csr[MSTATUS] = 0x1800
        # State that the boot ROM leaves: hart id, device tree, entry.
        self.x[10], self.x[11], self.x[5] = hart_id, _BOOT_ROM + 0x20, entry
        self.pc = entry

    @property
    def pc(self) -> int:
        """Address of the next instruction."""
        return int(self.state[scalar.PC])

    @pc.setter
    def pc(self, address: int) -> None:
        self.state[scalar.PC] = address & MASK

    def set_x(self, number: int, value: int) -> None:
        """Write a GPR; x0 stays 0."""
        if number:
            self.x[number] = value & MASK

    def f32(self, number: int) -> int:
        """The bits of an FPR as a single; NaN when it was never written."""
        value = int(self.f[number])
        return value & MASK if value >> 32 == -1 else CANONICAL_NAN

    def set_f32(self, number: int, bits: int) -> None:
        """Write an FPR and mark the FP state dirty."""
        self.f[number] = bits | _BOX
        self.csr[MSTATUS] |= FS_DIRTY

    @property
    def fp_enabled(self) -> bool:
        """Whether mstatus.FS is not off."""
        return bool(int(self.csr[MSTATUS]) & FS)
