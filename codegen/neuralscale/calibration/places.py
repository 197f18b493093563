"""Where the operands of micro-benchmarks lie, and how large they may be on a chip."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.neuralscale.emit.memory_map import DATA_BASE
from codegen.neuralscale.instructions.arithmetic import FP16, Arithmetic
from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from hw_models.chip import Chip
from isched.program.program import Region

LARGEST_BLOCK_BYTES = 1 << 15
"""Most bytes of one transfer of a core, and of one operand of an engine."""


@dataclass(frozen=True, slots=True)
class OperandPlaces:
    """The memories of a chip, in the names of the instruction set, and instructions for it."""

    chip: Chip

    def build(self, source: str, arithmetic: Arithmetic = FP16) -> InstructionBuilder:
        """A builder of the instructions of the part `source` of a benchmark."""
        return InstructionBuilder(self.chip, source, arithmetic)

    @property
    def data_bytes(self) -> int:
        """Bytes of the L1 where data may lie, from its start."""
        memory = self.chip.memory("L1")
        return memory.buffers[0].size_bytes if memory.buffers else memory.size_bytes // 2

    @property
    def weights_bytes(self) -> int:
        """Bytes of the L1 after its data."""
        return self.chip.memory("L1").size_bytes - self.data_bytes

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of data, a power of two; eight of them leave half of the L1's data to other operands."""
        block = LARGEST_BLOCK_BYTES
        while block * 16 > self.data_bytes:
            block //= 2
        return block

    def data(
        self, rows: int, columns: int, slot: int = 0, *, item_bytes: int = 2, stride_bytes: int = 0
    ) -> MatrixPlace:
        """A matrix in the L1's data, in the block `slot`."""
        return MatrixPlace("L1", slot * self.block_bytes, rows, columns, item_bytes, stride_bytes)

    def weights(self, rows: int, columns: int, item_bytes: int = 2) -> MatrixPlace:
        """A matrix in the L1's weights."""
        return MatrixPlace("L1", self.data_bytes, rows, columns, item_bytes)

    def sums(self, rows: int, columns: int, slot: int = 0, item_bytes: int = 2) -> MatrixPlace:
        """A matrix in one half of the IM."""
        return MatrixPlace("IM", slot * (self.chip.memory("IM").size_bytes // 2), rows, columns, item_bytes)

    def product_fits(self, pixels: int, channels: int, reduction: int, operand_bytes: int, sum_bytes: int) -> bool:
        """Whether a product's operands and two results have room."""
        return (
            pixels * channels * sum_bytes * 2 <= self.chip.memory("IM").size_bytes
            and pixels * reduction * operand_bytes <= self.data_bytes
            and reduction * channels * operand_bytes <= self.weights_bytes
        )

    def main(self, size_bytes: int, offset_bytes: int = 0, rows: int = 1, stride_bytes: int = 0) -> Region:
        """Bytes of the DDR."""
        return Region("DDR", DATA_BASE + offset_bytes, size_bytes, rows, stride_bytes)

    def staged(self, size_bytes: int, offset_bytes: int = 0, rows: int = 1, stride_bytes: int = 0) -> Region:
        """Bytes of the LLB."""
        return Region("LLB", offset_bytes, size_bytes, rows, stride_bytes)

    def local(self, size_bytes: int, slot: int = 0) -> Region:
        """Bytes of the L1's data, in the block `slot`."""
        return Region("L1", slot * self.block_bytes, size_bytes)
