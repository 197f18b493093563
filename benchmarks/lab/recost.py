"""A program on a chip with other numbers: order, addresses and operands stay, what its instructions cost does not.

    Program + chip --recosted--> Program whose cycles are those of that chip

What a plan, a tile size or an order would be on that chip is not asked: compile for it to know. Transfers are costed by
the cycle model itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from codegen.neuralscale.instructions.arithmetic import FP16
from hw_models.chip import Chip
from isched.program.program import Instr, Program

__all__ = ["recosted", "work_cycles"]


def recosted(program: Program, chip: Chip) -> Program:
    """Equal to what the machine code of the program asks of `chip` (`Target.trace`), without emitting it."""
    known: dict[tuple[str, tuple[tuple[str, int], ...]], float] = {}

    def on_chip(instr: Instr) -> Instr:
        if not instr.cycles or instr.engine not in ("matrix", "vector"):
            return instr
        key = (instr.opcode, instr.operands)
        if key not in known:
            known[key] = work_cycles(instr.opcode, dict(instr.operands), chip)
        return instr if known[key] == instr.cycles else replace(instr, cycles=known[key])

    streams = (replace(stream, instrs=tuple(map(on_chip, stream.instrs))) for stream in program.streams)
    return replace(program, chip=chip.name, streams=tuple(streams))


def work_cycles(opcode: str, operands: Mapping[str, int], chip: Chip) -> float:
    """Work of an fp16 matrix or vector instruction by the extents in its operands, as `issue` wrote them."""
    if opcode in ("memul.mm", "memul.ts.mm"):
        columns, rows = _halves(operands["m_shape_s1"])
        depth, pixels = (columns, rows) if opcode == "memul.mm" else (rows, columns)
        return FP16.matrix_cycles(chip, pixels, _halves(operands["m_shape_s2"])[0], depth)
    if opcode == "meconv.mm":
        width, height = _halves(operands["conv_FM_out"])
        taps = (operands["conv_kernel"] >> 24) * (operands["conv_kernel"] >> 16 & 0xFF)
        channels = _halves(operands["conv_Depth_in"])[1]
        return FP16.matrix_cycles(chip, height * width, _halves(operands["conv_Depth_out"])[1], taps * channels)
    columns, rows = _halves(operands["m_shape_s1" if opcode == "metr.m" else "shape_s1"])
    return (FP16.lookup_cycles if opcode == "velut.m" else FP16.vector_cycles)(chip, rows * columns)


def _halves(value: int) -> tuple[int, int]:
    """(high, low) field of 16 bits of a CSR."""
    return value >> 16, value & 0xFFFF
