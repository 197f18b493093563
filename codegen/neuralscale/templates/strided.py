"""Nested loops over strided elements as the fewest instructions of rows x columns.

    [pixels, g, C/g] -> [pixels, C/g, g]    loops (extent, bytes in destination, bytes in source)
        (784, 480, 480) (60, 8, 2) (4, 2, 120)  -->  4 x 60 moves of 784 x 1, or 784 transposed blocks, or ...

Loops that are contiguous for every operand become one. Then one loop may be the columns (all operands step by one
element), one the rows (all steps positive and within the 16-bit strides), and the others are enumerated; every choice
is tried and the one with the fewest instructions taken. A move has one more choice: `metr` transposes, through IM, a
block of two loops that are contiguous on one side each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from codegen.neuralscale.instructions.arithmetic import Arithmetic
from codegen.neuralscale.instructions.builder import MAX_EXTENT, MAX_STRIDE_BYTES, InstructionBuilder, MatrixPlace
from hw_models.chip import Chip
from isched.program.program import Instr


@dataclass(frozen=True, slots=True)
class StridedLoop:
    """One loop: its number of iterations, and the bytes by which each operand steps (the destination first)."""

    extent: int
    steps_bytes: tuple[int, ...]

    def contiguous(self, item_bytes: int) -> bool:
        return all(step == item_bytes for step in self.steps_bytes)

    @property
    def strided(self) -> bool:
        """Whether every operand's step fits a stride field."""
        return all(0 < step <= MAX_STRIDE_BYTES for step in self.steps_bytes)


@dataclass(frozen=True, slots=True)
class LoopForm:
    """A choice of the loops that make the rows and the columns, and of those that are enumerated."""

    outer: tuple[StridedLoop, ...]
    rows: StridedLoop
    columns: StridedLoop
    item_bytes: int
    block: int = 0

    @property
    def instructions(self) -> int:
        """Number of instructions that one operation over all the loops takes."""
        times = prod(loop.extent for loop in self.outer)
        if self.block:
            return times * 2 * -(-self.rows.extent // self.block)
        return times * -(-self.rows.extent // MAX_EXTENT) * -(-self.columns.extent // MAX_EXTENT)

    @property
    def block_bytes(self) -> int:
        """Bytes of IM that a transposed block takes."""
        return self.item_bytes * min(self.block, self.rows.extent) * self.columns.extent


def strides_of(shape: tuple[int, ...], item_bytes: int, pitch_bytes: int = 0) -> tuple[int, ...]:
    """Bytes between neighbours on each axis of a row-major array whose rows lie `pitch_bytes` apart (0: densely)."""
    row = pitch_bytes or item_bytes * prod(shape[-1:])
    return tuple(
        row * prod(shape[axis + 1 : -1]) if axis < len(shape) - 1 else item_bytes for axis in range(len(shape))
    )


def merged(loops: tuple[StridedLoop, ...]) -> tuple[StridedLoop, ...]:
    """The loops over these elements merged into as few as possible, the destination's outermost first."""
    result: list[StridedLoop] = []
    for loop in sorted((loop for loop in loops if loop.extent > 1), key=lambda loop: -loop.steps_bytes[0]):
        whole = tuple(step * loop.extent for step in loop.steps_bytes)
        if result and result[-1].steps_bytes == whole:
            result[-1] = StridedLoop(result[-1].extent * loop.extent, loop.steps_bytes)
        else:
            result.append(loop)
    return tuple(result)


@lru_cache(maxsize=4096)
def best_form(loops: tuple[StridedLoop, ...], item_bytes: int) -> LoopForm:
    """The form with the fewest instructions. Every loop has as many operands as the others, and there is at least one
    loop."""
    return min(_forms(merged(loops), len(loops[0].steps_bytes), item_bytes), key=lambda form: form.instructions)


@lru_cache(maxsize=4096)
def move_form(loops: tuple[StridedLoop, ...], turn_bytes: int, item_bytes: int) -> LoopForm:
    """The form of a move (destination, source) with the fewest instructions; blocks of up to `turn_bytes` may be
    transposed."""
    plain = best_form(loops, item_bytes)
    return min((plain, *_turned_forms(merged(loops), turn_bytes, item_bytes)), key=lambda form: form.instructions)


def _forms(loops: tuple[StridedLoop, ...], operands: int, item_bytes: int) -> Iterator[LoopForm]:
    single = StridedLoop(1, (item_bytes,) * operands)
    for columns in (*(loop for loop in loops if loop.contiguous(item_bytes)), single):
        left = tuple(loop for loop in loops if loop is not columns)
        width = columns.extent * item_bytes
        for rows in (*(loop for loop in left if loop.strided and loop.steps_bytes[0] >= width), single):
            yield LoopForm(tuple(loop for loop in left if loop is not rows), rows, columns, item_bytes)


def _turned_forms(loops: tuple[StridedLoop, ...], turn_bytes: int, item_bytes: int) -> Iterator[LoopForm]:
    """Transposed forms, in which `columns` is contiguous in the destination and `rows` in the source."""
    for columns in loops:
        for rows in loops:
            block = min(MAX_EXTENT, turn_bytes // (item_bytes * columns.extent))
            contiguous = columns.steps_bytes[0] == item_bytes == rows.steps_bytes[1] and columns is not rows
            if contiguous and columns.strided and rows.strided and block and columns.extent <= MAX_EXTENT:
                outer = tuple(loop for loop in loops if loop is not rows and loop is not columns)
                yield LoopForm(outer, rows, columns, item_bytes, block)


def matrices(form: LoopForm, bases: tuple[MatrixPlace, ...]) -> Iterator[tuple[MatrixPlace, ...]]:
    """One matrix per operand for each step of the enumerated loops; `bases` are where the operands start."""
    for point in product(*(range(loop.extent) for loop in form.outer)):
        yield tuple(
            MatrixPlace(
                base.memory,
                base.offset_bytes + sum(i * loop.steps_bytes[k] for i, loop in zip(point, form.outer, strict=True)),
                form.rows.extent,
                form.columns.extent,
                base.item_bytes,
                form.rows.steps_bytes[k] if form.rows.extent > 1 else 0,
            )
            for k, base in enumerate(bases)
        )


def move(
    issue: InstructionBuilder, form: LoopForm, destination: MatrixPlace, source: MatrixPlace, turned: MatrixPlace | None
) -> Iterator[Instr]:
    """Move by `mov.m` or, where the form has a block, by `metr.m` into `turned` and `mov.m` from there."""
    if not form.block:
        for d, a in matrices(form, (destination, source)):
            yield from issue.unary("mov.m", d, a)
        return
    assert turned is not None  # every caller that passes a form with a block has a place for it
    for point in product(*(range(loop.extent) for loop in form.outer)):
        starts = [
            base.offset_bytes + sum(i * loop.steps_bytes[k] for i, loop in zip(point, form.outer, strict=True))
            for k, base in enumerate((destination, source))
        ]
        for row in range(0, form.rows.extent, form.block):
            count, width = min(form.block, form.rows.extent - row), form.columns.extent
            item, step = form.item_bytes, form.rows.steps_bytes[0]
            a = MatrixPlace(source.memory, starts[1] + row * item, width, count, item, form.columns.steps_bytes[1])
            to = MatrixPlace(turned.memory, turned.offset_bytes, count, width, item)
            d = MatrixPlace(destination.memory, starts[0] + row * step, count, width, item, step)
            yield issue.transpose(to, a)
            yield from issue.unary("mov.m", d, to)


def move_cycles(chip: Chip, arithmetic: Arithmetic, form: LoopForm) -> float:
    """Vector cycles of a move: its elements, and the start of every instruction."""
    elements = form.rows.extent * form.columns.extent * prod(loop.extent for loop in form.outer)
    passes = arithmetic.vector_cycles(chip, elements, 2 if form.block else 1)
    return form.instructions * arithmetic.vector_cycles(chip, 1) + passes
