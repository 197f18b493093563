"""Rows of the NeuralScale core: those of RISC-V with the unit that executes them and the direction of a variant."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

from codegen.riscv.row import Row


class Engine(Enum):
    """Unit that executes an instruction."""

    SCALAR = "scalar"
    VME = "VME"
    MME = "MME"
    MTE = "MTE"
    SYNC = "SYNC"


class Direction(Enum):
    """Direction in which a vector is applied to a matrix, or in which a matrix is reduced."""

    NONE = ""
    FULL = "full"
    DIM_H = "dim_h"
    DIM_W = "dim_w"


@dataclass(frozen=True, slots=True)
class InstructionRow(Row):
    """One instruction, with the unit that executes it. Variants of a `family` differ by direction among others."""

    engine: Engine = Engine.SCALAR
    direction: Direction = Direction.NONE

    @classmethod
    def of(cls, row: Row) -> InstructionRow:
        """An instruction of the scalar core."""
        return cls(**{field.name: getattr(row, field.name) for field in fields(row)})
