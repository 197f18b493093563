"""What a micro-benchmark consists of before it is machine code: instructions of each core, or a writer of scalar code.

No benchmark depends on the values that it moves or computes with: operands are what the memories hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from codegen.neuralscale.asm.assembler import Item, Label, branch, load_immediate
from codegen.neuralscale.emit.emit import Written
from codegen.neuralscale.emit.expansion import T0, ZERO
from codegen.neuralscale.emit.frame import ending
from codegen.neuralscale.isa.table import instruction
from codegen.neuralscale.rolling.rolled import shared
from isched.program.program import Instr, Program

BARRIER = "sync"

SCALAR_BLOCK = 64
"""Scalar instructions of one iteration of the loop that measures the scalar core."""

Code = Callable[[Program], Iterator[Written]]


@dataclass(frozen=True, slots=True)
class BenchmarkDraft:
    """One benchmark. `streams` are the instructions of its cores; `code` writes them, by default with loops. `counters`
    are those in addition to the cycles of the whole program."""

    name: str
    measures: str
    streams: tuple[tuple[Instr, ...], ...]
    isolates: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    code: Code = shared
    every_cluster: bool = False


def spin(iterations: int) -> Code:
    """Code of one core that runs a loop of scalar instructions alone."""

    def code(_program: Program) -> Iterator[Written]:
        items: list[Item] = [Label("core0"), *load_immediate(T0, iterations), Label("spin")]
        items += [instruction("addi", T0 + 1, ZERO, number) for number in range(SCALAR_BLOCK - 2)]
        items += [instruction("addi", T0, T0, -1), branch("bne", T0, ZERO, "spin")]
        yield "core0.0000.spin", 0, "scalar", items
        yield "core0.end", 0, "", ending(0, "")

    return code


def straight_line(count: int) -> Code:
    """Code of one core that runs `count` scalar instructions one after the other, each once."""

    def code(_program: Program) -> Iterator[Written]:
        items: list[Item] = [Label("core0"), *(instruction("addi", T0, ZERO, n % 2048) for n in range(count))]
        yield "core0.0000.line", 0, "scalar", items
        yield "core0.end", 0, "", ending(0, "")

    return code
