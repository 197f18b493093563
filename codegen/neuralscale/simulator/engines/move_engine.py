"""The transfer engine's instructions (mov.l1.llb, mov.llb.l1, pld, icmov) and sync: legality and effect.

mov moves immediately. pld is a rendezvous: a core's copy happens when the last core of its map has arrived. icmov data
land only when the issuing core has passed a barrier afterwards; until then they are a transfer in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from codegen.neuralscale.simulator.core import csr
from codegen.neuralscale.simulator.core.hart import MASK, Hart
from codegen.neuralscale.simulator.core.operands import MatrixOperand, Operands, in_l1
from codegen.neuralscale.simulator.memory.faults import SimulationFault, Trap
from codegen.neuralscale.simulator.memory.memory import L1, LLB_BASE, LLB_BYTES, SimulatedMemory
from codegen.neuralscale.simulator.memory.transfer import MemoryTransfer, MovedPiece

BAD_ENCODING: Final = 0x38
BAD_CORE: Final = 0x39
BAD_START: Final = 0x3A
BAD_ICMOV_START: Final = 0x3B
BAD_END_L1: Final = 0x3C
BAD_END_LLB: Final = 0x3D
BAD_SHAPE: Final = 0x3E

_LARGEST_CORE: Final = 32
_ICMOV_ZERO_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """Contents of `mte_shape` and `mte_stride_llb`."""

    rows: int
    columns: int
    stride: int

    @property
    def l1_bytes(self) -> int:
        return self.rows * self.columns * 2

    @property
    def llb_bytes(self) -> int:
        """Bytes of the extent that is checked: the gap after the last row counts."""
        return self.stride * self.rows if self.stride else self.l1_bytes


def shape_of(hart: Hart) -> Shape:
    """The shape of the next move. Raises `Trap` when it is zero or its stride is less than a row."""
    value = int(hart.csr[csr.MTE_SHAPE])
    shape = Shape(value & 0xFFFF, value >> 16, int(hart.csr[csr.MTE_STRIDE_LLB]) & 0xFFFF)
    if not shape.rows or not shape.columns or 0 < shape.stride < shape.columns * 2:
        raise Trap(BAD_SHAPE)
    return shape


def _check_start_l1(address: int, cause: int = BAD_START) -> None:
    if not in_l1(address):
        raise Trap(cause, address)


def _check_end_l1(address: int) -> None:
    if not in_l1(address & MASK):
        raise Trap(BAD_END_L1, address)


def _check_start_llb(address: int, trap: Trap) -> None:
    if not LLB_BASE <= address < LLB_BASE + LLB_BYTES:
        raise trap


def _check_end_llb(address: int) -> None:
    if not LLB_BASE <= address & MASK <= LLB_BASE + LLB_BYTES:
        raise Trap(BAD_END_LLB, address)


def check_mov_l1_llb(target: int, source: int, shape: Shape) -> None:
    """Check the legality of LLB -> L1."""
    _check_start_llb(source, Trap(BAD_START, source))
    _check_start_l1(target)
    _check_end_llb(source + shape.llb_bytes)
    _check_end_l1(target + shape.l1_bytes)


def check_mov_llb_l1(target: int, source: int, shape: Shape) -> None:
    """Check the legality of L1 -> LLB."""
    _check_start_l1(source)
    _check_start_llb(target, Trap(BAD_START, target))
    _check_end_l1(source + shape.l1_bytes)
    _check_end_llb(target + shape.llb_bytes)


def check_pld(target: int, source: int, shape: Shape) -> None:
    """Check the legality of pld."""
    _check_start_l1(target)
    _check_start_llb(source, Trap(BAD_ENCODING))
    _check_end_l1(target + shape.l1_bytes)
    _check_end_llb(source + shape.llb_bytes)


def gather(operands: Operands, target: int, source: int, shape: Shape) -> None:
    """LLB -> L1: strided source, dense destination. Only the rows are read, not the gap after the last."""
    data = operands.read(MatrixOperand(source, shape.rows, shape.columns * 2, 1, shape.stride))
    operands.write(MatrixOperand(target, shape.rows, shape.columns * 2, 1), data)


def scatter(operands: Operands, target: int, source: int, shape: Shape) -> None:
    """L1 -> LLB: dense source, strided destination; the gaps keep their bytes."""
    data = operands.read(MatrixOperand(source, shape.rows, shape.columns * 2, 1))
    operands.write(MatrixOperand(target, shape.rows, shape.columns * 2, 1, shape.stride), data)


def icmov(
    memory: SimulatedMemory, hart: Hart, harts: dict[int, Hart], target: int, source: int, length: int
) -> MemoryTransfer:
    """The transfer that an icmov starts. Raises `Trap`, or `SimulationFault` for a core that is not there."""
    core = int(hart.csr[csr.MTE_ICDEST]) & 0x3F
    if core > _LARGEST_CORE:
        raise Trap(BAD_CORE)
    _check_start_l1(source)
    _check_start_l1(target, BAD_ICMOV_START)
    _check_end_l1(source + length)
    _check_end_l1(target + length)
    size = length or _ICMOV_ZERO_BYTES
    if core not in harts:
        raise SimulationFault("range", f"icmov to core {core}, which does not run")
    for side, address in (("source", source), ("destination", target)):
        if not L1.holds(address, size):
            raise SimulationFault("range", f"icmov {side} {address:#x}+{size:#x} goes past the end of L1")
    arena = memory.arena()
    start, to = memory.offset(hart.index, source), memory.offset(harts[core].index, target)
    return MemoryTransfer(
        f"icmov from core {hart.hart_id}", (MovedPiece(arena, start, arena, to, 1, size, size),), hart.hart_id
    )
