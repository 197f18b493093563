"""Streams: loops of instructions whose operands move by a step with each loop, of the accelerator and of the core.

    Loop(4, (Do("mvin", Operand(first, (1024,)), Operand(second, (16,))),))   four mvin, each 1,024 bytes and 16 rows on
    Loop(9, (Elements(sources, constants, steps, result),))                   nine elements, computed in float32

A program's instruction carries one stream as numbered operands, which `stream_of` reads back. Operands are numbers of
64 bits, added without regard to overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from codegen.gemmini.isa.operations import operands, operation
from codegen.gemmini.isa.unrolled import PARTS, Part

WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Operand:
    """Its value in the first pass of all loops around it, and what each of these adds, the outermost first."""

    value: int
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Do:
    """One function of the accelerator with its two operands."""

    function: str
    first: Operand
    second: Operand


Placed = tuple[str, Operand]
"""Type and address of an element in the main memory."""

TYPES = ("float32", "int8", "int32")
STEPS = ("multiply", "add", "subtract", "divide", "smaller", "larger", "nearest", "power", "root")
"""What one step makes of two numbers in float32; `nearest` makes the nearest int32 of the first alone, ties to even;
`power` makes two to the power of the first, which is a whole number from -126 to 127; `root` its square root."""

ROUNDINGS = ("nearest", "truncate")


@dataclass(frozen=True, slots=True)
class Elements:
    """One element of a result from elements of its `sources`, by the core. Values are numbered: the `constants` (bits
    of float32) first, then the sources, made float32, then what each of the `steps` makes of two values. The last value
    is stored; integers are rounded, `nearest` with ties to even or by `truncate`; an int8 was bounded."""

    constants: tuple[int, ...]
    sources: tuple[Placed, ...]
    steps: tuple[tuple[str, int, int], ...]
    result: Placed
    rounding: str = "nearest"

    @property
    def values(self) -> int:
        return len(self.constants) + len(self.sources) + len(self.steps)


INTEGER_FUNCTIONS: Mapping[str, int] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "remainder", "mod"), 2),
    **dict.fromkeys(("and", "or", "xor", "min", "max"), 2),
    **dict.fromkeys(("equal", "less", "greater", "less_equal", "greater_equal"), 2),
    **dict.fromkeys(("copy", "not", "neg", "abs", "truth", "order"), 1),
    "where": 3,
}
"""Functions of integers, with their numbers of operands. Comparisons make 1 or 0, `not` turns one into the other,
`where` takes its second operand where the first is not 0, else the third; `div` is toward zero, `remainder` has the
sign of the dividend and `mod` that of the divisor; `order` makes integers of the bits of float32 numbers, in their
order."""


@dataclass(frozen=True, slots=True)
class Integers:
    """One int32, at the address `result`, that the core makes of int32 values: a function of INTEGER_FUNCTIONS, which
    wraps around."""

    function: str
    sources: tuple[Operand, ...]
    result: Operand


@dataclass(frozen=True, slots=True)
class RowCopy:
    """A row of a table, copied by the core to the address `result`. The int32 at the address `index` is its number
    among `rows` rows, which begin `pitch_bytes` apart; a negative one counts from the end, and one that is still
    outside is the nearest end. A row is `count` items of four bytes or of one."""

    index: Operand
    table: int
    result: Operand
    rows: int
    pitch_bytes: int
    count: int
    item_bytes: int

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.table, self.rows, self.pitch_bytes, self.count, self.item_bytes


@dataclass(frozen=True, slots=True)
class BestPlace:
    """The place, from 0, of the greatest or least of `count` int32 values that lie `step_bytes` apart from the address
    `line` on, as an int32 at the address `result`: of several the first, or the last."""

    line: Operand
    result: Operand
    count: int
    step_bytes: int
    greatest: bool
    last: bool

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.count, self.step_bytes, int(self.greatest), int(self.last)


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Work of the accelerator that is part of a loop of its own, asked for here or before: no code."""

    part: Part


@dataclass(frozen=True, slots=True)
class Loop:
    """What is done `count` times, at least once."""

    count: int
    body: tuple[Item, ...]


Item: TypeAlias = Do | Elements | Integers | RowCopy | BestPlace | Unrolled | Loop


def once(mnemonic: str, **fields: float) -> Do:
    """An operation alone."""
    return looped(mnemonic, (), **fields)


def looped(mnemonic: str, steps: Sequence[Mapping[str, int]], **fields: float) -> Do:
    """An operation inside as many loops as there are `steps`, each of which adds to some fields. Raises IsaError for
    fields of the first pass that do not fit."""
    found = operation(mnemonic)
    first, second = operands(mnemonic, **fields)
    adds = [(_adds(found.first, step), _adds(found.second, step)) for step in steps]
    return Do(
        found.function,
        Operand(first, tuple(add for add, _ in adds)),
        Operand(second, tuple(add for _, add in adds)),
    )


def _adds(bits: Sequence[object], step: Mapping[str, int]) -> int:
    return sum(step.get(field.name, 0) << field.low for field in bits) & WORD  # type: ignore[attr-defined]


def nested(counts: Sequence[int], body: tuple[Item, ...]) -> tuple[Item, ...]:
    """The body inside of loops, the outermost first."""
    for count in reversed(counts):
        body = (Loop(count, body),)
    return body


def operands_of(stream: Sequence[Item]) -> tuple[tuple[str, int], ...]:
    """The stream as numbered operands."""
    return tuple((f"{number}.{name}", value) for number, (name, value) in enumerate(_flat(stream)))


def _flat(stream: Sequence[Item]) -> Iterator[tuple[str, int]]:
    for item in stream:
        if isinstance(item, Loop):
            yield "loop", item.count
            yield from _flat(item.body)
            yield "end", 0
        elif isinstance(item, Elements):
            yield "elements", len(item.constants)
            yield "sources", len(item.sources)
            yield "steps", len(item.steps)
            yield "rounding", ROUNDINGS.index(item.rounding)
            yield from (("constant", bits) for bits in item.constants)
            for dtype, operand in (*item.sources, item.result):
                yield dtype, len(operand.steps)
                yield from (("operand", value) for value in (operand.value, *operand.steps))
            for step, left, right in item.steps:
                yield step, left
                yield "with", right
        elif isinstance(item, Unrolled):
            yield "unrolled", PARTS.index(item.part)
        elif isinstance(item, Integers):
            yield "integers", len(item.sources)
            yield item.function, len(item.result.steps)
            for operand in (*item.sources, item.result):
                yield from (("operand", value) for value in (operand.value, *operand.steps))
        elif isinstance(item, RowCopy | BestPlace):
            kind, first = ("row", item.index) if isinstance(item, RowCopy) else ("place", item.line)
            yield kind, len(first.steps)
            yield from (("number", value) for value in item.numbers)
            for operand in (first, item.result):
                yield from (("operand", value) for value in (operand.value, *operand.steps))
        else:
            yield item.function, len(item.first.steps)
            for operand in (item.first, item.second):
                for value in (operand.value, *operand.steps):
                    yield "operand", value


def stream_of(given: Sequence[tuple[str, int]]) -> tuple[Item, ...]:
    """The converse of `operands_of`."""
    words = iter([(name.partition(".")[2], value) for name, value in given])
    return _read(words)


def _read(words: Iterator[tuple[str, int]]) -> tuple[Item, ...]:
    items: list[Item] = []
    for name, value in words:
        if name == "end":
            break
        if name == "loop":
            items.append(Loop(value, _read(words)))
            continue
        if name == "elements":
            items.append(_elements(value, words))
            continue
        if name == "unrolled":
            items.append(Unrolled(PARTS[value]))
            continue
        if name == "integers":
            function, depth = next(words)
            *sources, result = (_operand(depth, words) for _ in range(value + 1))
            items.append(Integers(function, tuple(sources), result))
            continue
        if name == "row":
            table, *numbers = (next(words)[1] for _ in range(5))
            index, result = (_operand(value, words) for _ in range(2))
            items.append(RowCopy(index, table, result, *numbers))
            continue
        if name == "place":
            count, step, greatest, last = (next(words)[1] for _ in range(4))
            line, result = (_operand(value, words) for _ in range(2))
            items.append(BestPlace(line, result, count, step, bool(greatest), bool(last)))
            continue
        first, second = (_operand(value, words) for _ in range(2))
        items.append(Do(name, first, second))
    return tuple(items)


def _operand(depth: int, words: Iterator[tuple[str, int]]) -> Operand:
    value, *steps = (next(words)[1] for _ in range(depth + 1))
    return Operand(value, tuple(steps))


def _elements(constants: int, words: Iterator[tuple[str, int]]) -> Elements:
    sources, steps, rounding = (next(words)[1] for _ in range(3))
    bits = tuple(next(words)[1] for _ in range(constants))
    placed: list[Placed] = []
    for _ in range(sources + 1):
        dtype, depth = next(words)
        placed.append((dtype, _operand(depth, words)))
    made = []
    for _ in range(steps):
        step, left = next(words)
        made.append((step, left, next(words)[1]))
    return Elements(bits, tuple(placed[:-1]), tuple(made), placed[-1], ROUNDINGS[rounding])


def dynamic_count(stream: Sequence[Item]) -> int:
    """Number of the accelerator's instructions, and of elements, that are executed."""
    return sum(map(_count, stream))


def _count(item: Item) -> int:
    match item:
        case Loop():
            return item.count * dynamic_count(item.body)
        case RowCopy() | BestPlace():
            return item.count
        case Unrolled():
            return 0
        case _:
            return 1
