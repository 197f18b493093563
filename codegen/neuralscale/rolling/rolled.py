"""Code of a program's cores with loops, as one text for all cores.

    Program --align--> SharedStep, ... --roll--> Node, ... --LoopedCode--> items

Before the shared code each core sets two registers: a bit for its place, by which it skips the work of others, and its
row of a table after the code, which holds the differences of its addresses from those of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.neuralscale.asm.assembler import Item, Label, Word, branch, far_jump, load_address, load_immediate
from codegen.neuralscale.emit.emit import EVERY_CORE, Written, comment
from codegen.neuralscale.emit.expansion import A0, T0, ZERO
from codegen.neuralscale.isa.table import instruction
from codegen.neuralscale.rolling.alignment import align
from codegen.neuralscale.rolling.looped_code import CodePiece, LoopedCode
from codegen.neuralscale.rolling.registers import CORE_BIT, TABLE
from codegen.neuralscale.rolling.repeats import roll
from codegen.target import symbol_of
from isched.program.program import Program

SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Rolled:
    """Items in order: the entry of each core to the shared code, the shared code in stretches of one operator, its end,
    and the table after it."""

    entries: tuple[tuple[int, tuple[Item, ...]], ...]
    pieces: tuple[CodePiece, ...]
    end: tuple[Item, ...]
    table: tuple[Item, ...]


def rolled(program: Program) -> Rolled:
    """Shared code of all cores of a program."""
    steps, spreads = align(program)
    code = LoopedCode(program.cluster, spreads, (1 << len(program.streams)) - 1)
    code.write(roll(steps))
    used = sorted(code.registers.used, key=code.registers.used.__getitem__)
    table: list[Item] = []
    entries = []
    for number, stream in enumerate(program.streams):
        entries.append((stream.core, tuple(_entry(stream.core, number))))
        table.append(Label(f"table{stream.core}"))
        table += [Word((spreads.rows[spread][number] or 0) & 0xFFFF_FFFF) for spread in used]
    return Rolled(tuple(entries), tuple(code.pieces()), tuple(_end(program)), tuple(table))


def shared(program: Program) -> Iterator[Written]:
    """One code for all cores, with loops: symbol, core, operator, items."""
    made = rolled(program)
    for core, entry in made.entries:
        yield f"core{core}.entry", core, "", [*entry]
    begun: list[Item] = [Label(SHARED)]
    for number, piece in enumerate(made.pieces):
        name = f"cores.{number:04d}.{symbol_of(piece.source)}"
        begun += [Label(name), comment(piece.source or "no operator")]
        yield name, EVERY_CORE, piece.source, [*begun, *piece.items]
        begun = []
    yield "cores.end", EVERY_CORE, "", [*begun, *made.end]
    yield "cores.table", EVERY_CORE, "", [*made.table]


def _entry(core: int, number: int) -> Iterator[Item]:
    yield Label(f"core{core}")
    yield from load_immediate(CORE_BIT, 1 << number)
    yield load_address(TABLE, f"table{core}")
    yield far_jump(SHARED, T0)


def _end(program: Program) -> Iterator[Item]:
    """Code in which core 0 reports success, while the others sleep until it does."""
    first = next(number for number, stream in enumerate(program.streams) if stream.core == 0)
    yield instruction("andi", T0, CORE_BIT, 1 << first)
    yield branch("bne", T0, ZERO, "ending")
    yield far_jump("sleep", T0)
    yield Label("ending")
    yield instruction("addi", A0, ZERO, 0)
    yield far_jump("exit", T0)
