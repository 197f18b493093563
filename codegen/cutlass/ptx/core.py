"""What an instruction is bound to when a kernel is decoded: registers, memories and the shape of the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from codegen.cutlass.ptx.async_copies import AsyncCopies
from codegen.cutlass.ptx.barriers import Barriers
from codegen.cutlass.ptx.errors import Unsupported
from codegen.cutlass.ptx.global_memory import GlobalMemory
from codegen.cutlass.ptx.matrix_groups import MatrixGroups
from codegen.cutlass.ptx.mbarriers import MBarriers
from codegen.cutlass.ptx.registers import Registers
from codegen.cutlass.ptx.scalars import Array
from codegen.cutlass.ptx.shared_memory import SharedMemory

__all__ = ["WINDOWS", "Core"]

WINDOWS: Final = {
    "global": 0,
    "const": 0,
    "shared": 1 << 56,
    "shared::cta": 1 << 56,
    "shared::cluster": 1 << 56,
    "local": 1 << 57,
    "param": 1 << 58,
}
"""Where each memory begins among generic addresses."""


@dataclass(frozen=True, slots=True)
class Core:
    """A batch of CTAs, `threads` threads in all. `symbols`: address of each name within its memory."""

    threads: int
    warps_per_cta: int
    registers: Registers
    memory: GlobalMemory
    shared: SharedMemory
    local: Array
    local_bytes: int
    parameters: Array
    copies: AsyncCopies
    matrix: MatrixGroups
    barriers: Barriers
    mbarriers: MBarriers
    symbols: Mapping[str, int]
    counts: Counter[str] = field(default_factory=Counter)

    def address_of(self, name: str, offset_bytes: int) -> int:
        """The address of a variable or parameter, in its own memory's terms. Raises Unsupported for what has no
        address."""
        if name not in self.symbols:
            raise Unsupported(f"the name {name} is not known")
        return self.symbols[name] + offset_bytes & (1 << 64) - 1

    def window(self, space: str) -> int:
        """The generic address at which a memory begins."""
        return WINDOWS[space]
