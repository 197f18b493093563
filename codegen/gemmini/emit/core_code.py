"""Code of the RISC-V core that executes streams: constants into registers, loops, and steps of operands.

Loop(4, (mvin,))  -->  li a, first; li b, second; li n, 4; loop: mvin a, b; add a, ...; addi n, n, -1; bne n, zero
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from codegen.gemmini.emit.integer_code import TEMPORARIES, better_code, index_code, integer_code
from codegen.gemmini.isa.table import instruction
from codegen.gemmini.streams.float_registers import FLOAT_REGISTERS, float_registers
from codegen.gemmini.streams.streams import (
    WORD,
    BestPlace,
    Do,
    Elements,
    Integers,
    Item,
    Loop,
    Operand,
    RowCopy,
    Unrolled,
)
from codegen.riscv.codec import Instruction

ZERO = 0
SPARE = 31
"""Register of constants that are needed once."""

POOL = tuple(range(1, 31))
"""Registers that code between two instructions of a program may use; none keeps its value longer."""

NEAREST, TOWARD_ZERO = 0, 1
"""Rounding modes of the core."""

EXPONENT_BIAS, MANTISSA_BITS = 127, 23
"""Of a float32."""

_STEP_CODE = {
    "multiply": "fmul.s",
    "add": "fadd.s",
    "subtract": "fsub.s",
    "divide": "fdiv.s",
    "smaller": "fmin.s",
    "larger": "fmax.s",
}

NEAR_BYTES = 4_000
"""Largest distance of a branch that is one instruction."""


def constant(register: int, value: int) -> Iterator[Instruction]:
    """Instructions that put a number of 64 bits into a register."""
    signed = ((value & WORD) ^ 1 << 63) - (1 << 63)
    low = (signed + 0x800 & 0xFFF) - 0x800
    if signed == low:
        yield instruction("addi", register, ZERO, low)
    elif -(1 << 31) <= signed < 1 << 31:
        yield instruction("lui", register, (signed - low >> 12) & 0xFFFFF)
        if low:
            yield instruction("addiw", register, register, low)
    else:
        high, zeros = signed - low >> 12, 12
        while not high & 1:
            high, zeros = high >> 1, zeros + 1
        yield from constant(register, high)
        yield instruction("slli", register, register, zeros)
        if low:
            yield instruction("addi", register, register, low)


@dataclass(frozen=True, slots=True)
class StreamCode:
    """Code that executes a stream once, and how often each of its instructions is executed then, by mnemonic."""

    instructions: tuple[Instruction, ...]
    executed: Counter[str]


def stream_code(stream: Sequence[Item]) -> list[Instruction]:
    """Code that executes a stream once."""
    return list(counted_code(stream).instructions)


def counted_code(stream: Sequence[Item]) -> StreamCode:
    """Code that executes a stream once, with how often it executes its instructions."""
    made = [_Nest().code(item) for item in stream]
    code = tuple(each for instructions, _ in made for each in instructions)
    return StreamCode(code, sum((executed for _, executed in made), Counter()))


def branch_back(body: list[Instruction], counter: int) -> list[Instruction]:
    """The body again and again while the counter, one less each time, is not zero."""
    code = [*body, instruction("addi", counter, counter, -1)]
    back = -4 * len(code)
    if -back <= NEAR_BYTES:
        return [*code, instruction("bne", counter, ZERO, back)]
    return [*code, instruction("beq", counter, ZERO, 8), instruction("jal", ZERO, back - 4)]


def _counted(code: Sequence[Instruction]) -> Counter[str]:
    return Counter(each.mnemonic for each in code)


@dataclass(slots=True)
class _Nest:
    """Registers of one outermost item."""

    taken: int = 0
    operands: dict[tuple[Operand, tuple[int, ...]], int] = field(default_factory=dict)
    """Register of each operand, by its value and the loops around it."""

    constants: dict[int, int] = field(default_factory=dict)
    before: list[Instruction] = field(default_factory=list)

    def code(self, item: Item) -> tuple[list[Instruction], Counter[str]]:
        """The code of the item, and how often each instruction is executed."""
        body, _, executed = self._item(item, (), ())
        return [*self.before, *body], executed + _counted(self.before)

    def _register(self) -> int | None:
        if self.taken == len(POOL):
            return None
        self.taken += 1
        return POOL[self.taken - 1]

    def _needed(self) -> int:
        register = self._register()
        assert register is not None, "a stream has more operands than the core has registers"
        return register

    def _row(self, item: RowCopy, path: tuple[int, ...]) -> tuple[list[Instruction], dict[int, Operand], Counter[str]]:
        """A row of a table: its number brought into the table, its address, and a loop over its items."""
        index, result = (self._operand(operand, path) for operand in (item.index, item.result))
        rows, table, pitch = (self._needed() for _ in range(3))
        for register, value in ((rows, item.rows), (table, item.table), (pitch, item.pitch_bytes)):
            self.before += constant(register, value)
        place, to, counter, spare = (self._needed() for _ in range(4))
        start = [
            instruction("lw", place, 0, index),
            *index_code(place, rows, spare),
            instruction("mul", place, place, pitch),
            instruction("add", place, place, table),
            instruction("addi", to, result, 0),
            *constant(counter, item.count),
        ]
        load, store = ("lw", "sw") if item.item_bytes == 4 else ("lb", "sb")
        body = [
            instruction(load, spare, 0, place),
            instruction(store, spare, 0, to),
            instruction("addi", place, place, item.item_bytes),
            instruction("addi", to, to, item.item_bytes),
        ]
        looped = branch_back(body, counter)
        times = Counter({name: item.count * number for name, number in _counted(looped).items()})
        return [*start, *looped], {index: item.index, result: item.result}, times + _counted(start)

    def _place(
        self, item: BestPlace, path: tuple[int, ...]
    ) -> tuple[list[Instruction], dict[int, Operand], Counter[str]]:
        """The place of the best value of a line: the first one, then a loop over all."""
        line, result = (self._operand(operand, path) for operand in (item.line, item.result))
        best, value, place, number, mask, at, counter = (self._needed() for _ in range(7))
        start = [
            instruction("lw", best, 0, line),
            *(instruction("addi", register, ZERO, 0) for register in (place, number)),
            instruction("addi", at, line, 0),
            *constant(counter, item.count),
        ]
        body = [
            instruction("lw", value, 0, at),
            *better_code(best, value, (place, number), (mask, SPARE), (item.greatest, item.last)),
            instruction("addi", number, number, 1),
            *self._added(at, item.step_bytes),
        ]
        looped = branch_back(body, counter)
        end = [instruction("sw", place, 0, result)]
        times = Counter({name: item.count * number for name, number in _counted(looped).items()})
        if looped[-1].mnemonic == "jal":  # the last pass jumps over it
            times["jal"] -= 1
        return [*start, *looped, *end], {line: item.line, result: item.result}, times + _counted([*start, *end])

    def _item(
        self, item: Item, counts: tuple[int, ...], path: tuple[int, ...]
    ) -> tuple[list[Instruction], dict[int, Operand], Counter[str]]:
        """Code of an item inside loops of these counts and identities, the operands that move in it, by register, and
        how often each instruction is executed each time that the item is."""
        if isinstance(item, Elements):
            elements, moved = self._elements(item, path)
            return elements, moved, _counted(elements)
        if isinstance(item, Integers):
            values = [*item.sources, item.result]
            registers = [self._operand(operand, path) for operand in values]
            integers = integer_code(item.function, registers, [self._needed() for _ in range(TEMPORARIES)])
            return integers, dict(zip(registers, values, strict=True)), _counted(integers)
        if isinstance(item, RowCopy):
            return self._row(item, path)
        if isinstance(item, BestPlace):
            return self._place(item, path)
        if isinstance(item, Unrolled):
            return [], {}, Counter()
        if isinstance(item, Do):
            registers = [self._operand(operand, path) for operand in (item.first, item.second)]
            moved = dict(zip(registers, (item.first, item.second), strict=True))
            return [instruction(item.function, *registers)], moved, Counter((item.function,))
        counter = self._needed()
        body: list[Instruction] = []
        executed: Counter[str] = Counter()
        operands: dict[int, Operand] = {}
        depth = len(counts)
        deeper: dict[int, int] = {}
        for part in item.body:
            code, moved, times = self._item(part, (*counts, item.count), (*path, id(item)))
            body += code
            executed += times
            operands |= moved
            if isinstance(part, Loop):
                deeper |= dict.fromkeys(moved, part.count)
        for register, operand in operands.items():
            inner = deeper.get(register, 0) * operand.steps[depth + 1] if register in deeper else 0
            added = self._added(register, operand.steps[depth] - inner)
            body += added
            executed += _counted(added)
        start, looped = list(constant(counter, item.count)), branch_back(body, counter)
        executed += _counted(looped[len(body) :])
        times = Counter({name: item.count * number for name, number in executed.items()}) + _counted(start)
        if looped[-1].mnemonic == "jal":  # the last pass jumps over it
            times["jal"] -= 1
        return [*start, *looped], operands, times

    def _elements(self, item: Elements, path: tuple[int, ...]) -> tuple[list[Instruction], dict[int, Operand]]:
        operands = [operand for _, operand in (*item.sources, item.result)]
        registers = [self._operand(operand, path) for operand in operands]
        for number, bits in enumerate(item.constants):
            self.before += [*constant(SPARE, bits), instruction("fmv.w.x", number, SPARE)]
        code: list[Instruction] = []
        at = float_registers(len(item.constants), len(item.sources), item.steps)
        assert max(at, default=0) < FLOAT_REGISTERS, "a chain has more values at once than the core has registers"
        for number, (dtype, _) in enumerate(item.sources):
            value, pointer = at[len(item.constants) + number], registers[number]
            if dtype == "float32":
                code.append(instruction("flw", value, 0, pointer))
            else:
                load = "lb" if dtype == "int8" else "lw"
                code += [instruction(load, SPARE, 0, pointer), instruction("fcvt.s.w", value, SPARE, NEAREST)]
        made = len(item.constants) + len(item.sources)
        for value, (step, first, second) in enumerate(item.steps, made):
            number, left, right = at[value], at[first], at[second]
            if step == "power":
                code += [
                    instruction("fcvt.w.s", SPARE, left, NEAREST),
                    instruction("addi", SPARE, SPARE, EXPONENT_BIAS),
                    instruction("slli", SPARE, SPARE, MANTISSA_BITS),
                    instruction("fmv.w.x", number, SPARE),
                ]
                continue
            if step == "nearest":
                code += [instruction("fcvt.w.s", SPARE, left, NEAREST), instruction("fcvt.s.w", number, SPARE, NEAREST)]
                continue
            if step == "root":
                code.append(instruction("fsqrt.s", number, left, NEAREST))
                continue
            rounding = () if step in ("smaller", "larger") else (NEAREST,)
            code.append(instruction(_STEP_CODE[step], number, left, right, *rounding))
        last, pointer = at[item.values - 1], registers[-1]
        if item.result[0] == "float32":
            code.append(instruction("fsw", last, 0, pointer))
        else:
            rounding = (NEAREST if item.rounding == "nearest" else TOWARD_ZERO,)
            store = "sb" if item.result[0] == "int8" else "sw"
            code += [instruction("fcvt.w.s", SPARE, last, *rounding), instruction(store, SPARE, 0, pointer)]
        return code, dict(zip(registers, operands, strict=True))

    def _operand(self, operand: Operand, path: tuple[int, ...]) -> int:
        assert len(operand.steps) == len(path), "an operand has a step per loop around it"
        key = operand, path if any(operand.steps) else ()
        if key not in self.operands:
            register = self._needed()
            self.operands[key] = register
            self.before += constant(register, operand.value)
        return self.operands[key]

    def _added(self, register: int, step: int) -> list[Instruction]:
        signed = ((step & WORD) ^ 1 << 63) - (1 << 63)
        if not signed:
            return []
        if -2048 <= signed < 2048:
            return [instruction("addi", register, register, signed)]
        known = self.constants.get(signed)
        if known is None:
            known = self._register()
            if known is None:
                return [*constant(SPARE, signed), instruction("add", register, register, SPARE)]
            self.constants[signed] = known
            self.before += constant(known, signed)
        return [instruction("add", register, register, known)]
