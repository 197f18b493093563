"""The instruction set of the NeuralScale v1 core: one table of rows, and encode and decode derived from it.

Instruction("meconv.mm", (("rd", 10), ("rs1", 11), ("rs2", 12)))  <-- encode, decode -->  0x68c5857b
"""

from __future__ import annotations

from functools import lru_cache

from codegen.neuralscale.isa.npu import NPU_ROWS
from codegen.neuralscale.isa.row import InstructionRow
from codegen.neuralscale.isa.scalar import SCALAR_ROWS
from codegen.riscv.codec import Codec, Instruction

ROWS: tuple[InstructionRow, ...] = (*NPU_ROWS, *SCALAR_ROWS)
"""Every instruction, the NPU's first."""

_CODEC = Codec(ROWS)
row = _CODEC.row
encode = _CODEC.encode


def instruction(mnemonic: str, *values: int) -> Instruction:
    """The instruction with these operand values, in the row's order: `instruction("addi", 10, 0, 5)` is a0 = 5.

    Equal ones are mostly one object: programs repeat a small part of their words."""
    return _made(mnemonic, values)


@lru_cache(maxsize=1 << 17)
def _made(mnemonic: str, values: tuple[int, ...]) -> Instruction:
    return _CODEC.instruction(mnemonic, values)


@lru_cache(maxsize=1 << 16)
def decode(word: int) -> Instruction | None:
    """The instruction of a 32-bit word, or None when no row matches or a field holds a reserved value."""
    return _CODEC.decode(word)
