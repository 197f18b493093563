"""RV32C: each 16-bit instruction as the 32-bit one that it stands for."""

from __future__ import annotations

import pytest

from codegen.neuralscale.isa.syntax import format_instruction
from codegen.neuralscale.isa.table import decode
from codegen.neuralscale.simulator.core.compressed import expand


@pytest.mark.parametrize(
    ("half", "text"),
    [
        (0x0020, "addi s0, sp, 8"),
        (0x1FFC, "addi a5, sp, 1020"),
        (0x5FFC, "lw a5, 124(a5)"),
        (0xDFFC, "sw a5, 124(a5)"),
        (0x7FFC, "flw fa5, 124(a5)"),
        (0xFFFC, "fsw fa5, 124(a5)"),
        (0x0001, "addi zero, zero, 0"),
        (0x1FFD, "addi t6, t6, -1"),
        (0x5FFD, "addi t6, zero, -1"),
        (0x717D, "addi sp, sp, -16"),
        (0x6105, "addi sp, sp, 32"),
        (0x7FFD, "lui t6, 0xfffff"),
        (0x2001, "jal ra, .+0"),
        (0xBFFD, "jal zero, .-2"),
        (0x83FD, "srli a5, a5, 31"),
        (0x87FD, "srai a5, a5, 31"),
        (0x9BFD, "andi a5, a5, -1"),
        (0x8C01, "sub s0, s0, s0"),
        (0x8FBD, "xor a5, a5, a5"),
        (0x8C41, "or s0, s0, s0"),
        (0x8FFD, "and a5, a5, a5"),
        (0xDFFD, "beq a5, zero, .-2"),
        (0xE001, "bne s0, zero, .+0"),
        (0x0FFE, "slli t6, t6, 31"),
        (0x5FFE, "lw t6, 252(sp)"),
        (0x7FFE, "flw ft11, 252(sp)"),
        (0xDFFE, "sw t6, 252(sp)"),
        (0xFFFE, "fsw ft11, 252(sp)"),
        (0x8082, "jalr zero, 0(ra)"),
        (0x9F82, "jalr ra, 0(t6)"),
        (0x8FFE, "add t6, zero, t6"),
        (0x9FFE, "add t6, t6, t6"),
        (0x9002, "ebreak"),
    ],
)
def test_expansion(half: int, text: str) -> None:
    word = expand(half)
    assert word is not None
    instruction = decode(word)
    assert instruction is not None
    assert format_instruction(instruction) == text


@pytest.mark.parametrize("half", [0x0000, 0x6101, 0x6001, 0x2000, 0xA000, 0x8002, 0x4002, 0x1002, 0x9001, 0x9C01])
def test_reserved_and_64_bit_forms_are_illegal(half: int) -> None:
    assert expand(half) is None


def test_every_expansion_is_an_instruction_of_the_table() -> None:
    words = [expand(half) for half in range(1 << 16) if half & 3 != 3]
    assert sum(word is not None for word in words) == 37_015
    assert all(word is None or decode(word) is not None for word in words)
