"""Granularity of a kernel's shared memory: the smallest access decides the cells in which races are detected."""

from __future__ import annotations

from codegen.cutlass.ptx.module import Immediate, PtxInstruction, PtxKernel
from codegen.cutlass.ptx.scalars import BYTES

LARGEST = 16
OBJECT_BYTES = 8
"""Bytes of an mbarrier object."""


def cell_bytes(kernel: PtxKernel) -> int:
    """Bytes of a cell, 1 to 16: the size of every access of the kernel is a multiple of it."""
    widths = [_width(item) for item in kernel.body if isinstance(item, PtxInstruction)]
    return min([LARGEST, *(width for width in widths if width)])


def _width(instruction: PtxInstruction) -> int:
    """Bytes of shared memory of one access by the instruction; 0 where there is none."""
    parts = instruction.parts
    if parts[0] == "cp" and "shared" in {part.removesuffix("::cta") for part in parts}:
        size = instruction.operands[2] if len(instruction.operands) > 2 else None
        return size.value if isinstance(size, Immediate) and size.value in (4, 8, 16) else 0
    if parts[0] == "mbarrier":
        return OBJECT_BYTES
    if parts[0] not in ("ld", "ldu", "st"):
        return 0
    spaces = {part.removesuffix("::cta") for part in parts} & {"global", "shared", "local", "param", "const"}
    if spaces and "shared" not in spaces:
        return 0
    count = next((int(part[1]) for part in parts if part in ("v2", "v4")), 1)
    return BYTES.get(parts[-1], 1) * count
