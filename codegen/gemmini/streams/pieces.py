"""Streams cut into pieces of few instructions, and what a piece touches.

Loop(34, (mvin,))  --pieces of at most 16-->  Loop(16, ...), Loop(16, ...), Loop(2, ...), each from where it begins
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codegen.gemmini.isa.geometry import ACCUMULATOR, BASE, MAIN, SCRATCHPAD
from codegen.gemmini.isa.operations import ACCUMULATOR as SUMS
from codegen.gemmini.isa.operations import FULL_WIDTH, GARBAGE
from codegen.gemmini.streams.streams import WORD, Do, Item, Loop, Operand, dynamic_count
from isched.program.program import Region

LOCAL_ROW = 0x1FFFFFFF
MOVES_IN = {"mvin": 0, "mvin2": 1, "mvin3": 2}
COMPUTES = ("compute_preloaded", "compute_accumulated")


def pieces(stream: Sequence[Item], most: int) -> list[tuple[Item, ...]]:
    """The stream as pieces of at most so many instructions, as long as can be; bodies of loops stay whole."""
    found: list[list[Item]] = []
    room = 0
    for item in stream:
        for part in _cut(item, most):
            count = dynamic_count((part,))
            if count > room:
                found.append([])
                room = max(most, count)
            found[-1].append(part)
            room -= count
    return [tuple(piece) for piece in found]


def _cut(item: Item, most: int) -> Iterator[Item]:
    if not isinstance(item, Loop) or dynamic_count((item,)) <= most:
        yield item
        return
    once = dynamic_count(item.body)
    if once <= most or not any(isinstance(part, Loop) for part in item.body):
        for start in range(0, item.count, max(1, most // once)):
            count = min(max(1, most // once), item.count - start)
            body = tuple(_moved(part, start, keeps=count > 1) for part in item.body)
            if count > 1:
                yield Loop(count, body)
            else:
                yield from body
        return
    for number in range(item.count):
        for part in item.body:
            yield from _cut(_moved(part, number, keeps=False), most)


def _moved(item: Item, passes: int, keeps: bool) -> Item:
    """An item of a loop's body as it is after some passes, inside of the loop or, where it is not kept, without it."""
    if isinstance(item, Loop):
        return Loop(item.count, tuple(_moved(part, passes, keeps) for part in item.body))
    assert isinstance(item, Do)  # others are the core's

    def moved(operand: Operand) -> Operand:
        value = operand.value + operand.steps[0] * passes & WORD
        return Operand(value, operand.steps if keeps else operand.steps[1:])

    return replace(item, first=moved(item.first), second=moved(item.second))


@dataclass(slots=True)
class _Spread:
    """The smallest range around what was noted."""

    low: int = 1 << 62
    high: int = 0

    def note(self, low: int, high: int) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)

    def regions(self, memory: str, unit_bytes: int = 1, base: int = 0) -> tuple[Region, ...]:
        if self.low >= self.high:
            return ()
        return (Region(memory, (self.low - base) * unit_bytes, (self.high - self.low) * unit_bytes),)


@dataclass(slots=True)
class Touching:
    """What is set of each state of moving in, (bytes from row to row, rows from block to block), and of the others:
    bytes from row to row of the result, and rows of the factor and of the sums from one to the next. `dim` is the
    width of the array."""

    dim: int
    load: list[tuple[int, int]]
    store: int = 0
    execute: tuple[int, int] = (1, 1)

    def regions(self, stream: Sequence[Item]) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """The smallest ranges around what a stream of one controller reads and writes, as times of machine code know
        them; what is set is noted. Sums that are added to are read too."""
        main, local, first, second, to = (_Spread() for _ in range(5))
        sums = first_sums = False
        does = ""
        for do, counts in _nested(stream, ()):
            ends = _operands(do, counts)
            begin, name = ends[0], do.function
            if name == "config":
                does = self._configured(*begin) or does
            elif name in MOVES_IN or name == "mvout":
                does, sums = name, bool(begin[1] & SUMS)
                stride, gap = self.load[MOVES_IN[name]] if name in MOVES_IN else (self.store, self.dim)
                wide = begin[1] & FULL_WIDTH if name == "mvout" else sums  # int32 is moved in to sums
                for dram, block in ends:
                    row, columns, rows = _block(block)
                    row &= LOCAL_ROW if name != "mvout" else 0x3FFFFFF
                    local.note(row, row + rows + (-(-columns // self.dim) - 1) * gap)
                    if dram:
                        main.note(dram, dram + (rows - 1) * stride + columns * (4 if wide else 1))
            elif name == "preload":
                does, sums = "compute", bool(begin[1] & SUMS)
                for b_block, c_block in ends:
                    _noted(b_block, second, 1)
                    _noted(c_block, to, self.execute[1])
            elif name in COMPUTES:
                first_sums = bool(begin[0] & SUMS)
                for a_block, _ in ends:
                    _noted(a_block, first, self.execute[0])
        where, row_bytes = (ACCUMULATOR, 4 * self.dim) if sums else (SCRATCHPAD, self.dim)
        if does == "compute":
            results = to.regions(where, row_bytes)
            factor = (ACCUMULATOR, 4 * self.dim) if first_sums else (SCRATCHPAD, self.dim)
            added = results if sums else ()
            return (*first.regions(*factor), *second.regions(SCRATCHPAD, self.dim), *added), results
        outside, inside = main.regions(MAIN, 1, BASE), local.regions(where, row_bytes)
        return (inside, outside) if does == "mvout" else (outside, inside)

    def _configured(self, first: int, second: int) -> str:
        """Note what is set; what comes after settings of moving out."""
        match first & 3:
            case 0:
                self.execute = first >> 16 & 0xFFFF, second >> 48 & 0xFFFF
            case 1:
                self.load[first >> 3 & 3] = second, first >> 16 & 0xFFFF
            case 2:
                self.store = second & 0xFFFFFFFF
                return "mvout"
        return ""


def _block(operand: int) -> tuple[int, int, int]:
    """Local row, columns and rows of the block that an operand names."""
    return operand & GARBAGE, operand >> 32 & 0xFFFF, operand >> 48


def _noted(operand: int, spread: _Spread, step: int) -> None:
    """Note a block whose rows are so many local rows apart."""
    row, _, rows = _block(operand)
    if row != GARBAGE:
        row &= LOCAL_ROW
        spread.note(row, row + max(0, rows - 1) * step + 1)


def _nested(stream: Sequence[Item], counts: tuple[int, ...]) -> Iterator[tuple[Do, tuple[int, ...]]]:
    """Operations with the counts of the loops around them."""
    for item in stream:
        if isinstance(item, Loop):
            yield from _nested(item.body, (*counts, item.count))
        elif isinstance(item, Do):
            yield item, counts


def _operands(do: Do, counts: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Both operands in the first pass of all loops, and in the last one where there are several; steps are not
    negative."""
    first = do.first.value, do.second.value
    if all(count == 1 for count in counts):
        return (first,)
    last = [
        operand.value + sum(step * (count - 1) for step, count in zip(operand.steps, counts, strict=True)) & WORD
        for operand in (do.first, do.second)
    ]
    return first, (last[0], last[1])
