"""An instruction of the vector or matrix engine as a core issues it, and the operands that registers and CSRs
describe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.neuralscale.simulator.arithmetic import fp16
from codegen.neuralscale.simulator.core import csr
from codegen.neuralscale.simulator.core.hart import Hart
from codegen.neuralscale.simulator.core.operands import MatrixOperand, Operands


@dataclass(frozen=True, slots=True)
class IssuedInstruction:
    """Register numbers and the direction bits of the word; shapes and strides are those of the vector engine."""

    hart: Hart
    operands: Operands
    rd: int
    rs1: int
    rs2: int
    dm: int
    dmc: int

    @property
    def rows(self) -> int:
        return int(self.hart.csr[csr.SHAPE_S1]) & 0xFFFF

    @property
    def columns(self) -> int:
        return int(self.hart.csr[csr.SHAPE_S1]) >> 16

    def source(self, item: int = 2) -> MatrixOperand:
        """Operand rs1: [rows, columns] with the low half of stride_s."""
        stride = int(self.hart.csr[csr.STRIDE_S]) & 0xFFFF
        return MatrixOperand(int(self.hart.x[self.rs1]), self.rows, self.columns, item, stride)

    def second(self) -> MatrixOperand:
        """Operand rs2 of an mm form: [rows, columns] with the high half of stride_s."""
        stride = int(self.hart.csr[csr.STRIDE_S]) >> 16
        return MatrixOperand(int(self.hart.x[self.rs2]), self.rows, self.columns, 2, stride)

    def target(self, item: int = 2) -> MatrixOperand:
        """Operand rd: [rows, columns] with stride_d."""
        return MatrixOperand(int(self.hart.x[self.rd]), self.rows, self.columns, item, self.stride_d)

    @property
    def stride_d(self) -> int:
        return int(self.hart.csr[csr.STRIDE_D]) & 0xFFFF

    def vector(self, address: int, *, per_row: bool) -> MatrixOperand:
        """A contiguous vector as a matrix that broadcasts: [rows, 1] or [1, columns]."""
        return MatrixOperand(address, self.rows, 1) if per_row else MatrixOperand(address, 1, self.columns)

    def scalar(self, register: int) -> np.uint16:
        """An FPR converted to fp16 as on the chip: truncated."""
        return np.uint16(fp16.from_f32(self.hart.f32(register)))
