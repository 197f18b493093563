"""Alignment of cores: steps that are alike on several cores become one, with its cores and the differences of its
values.

    steps of each core, which meet at rendezvous of all cores --align--> one list of SharedStep, in every core's order

Between two rendezvous there are few steps, so the longest common order is found exactly; long stretches are compared
like texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from codegen.neuralscale.rolling.steps import RollingStep, StepKind, step_of
from isched.program.program import Instr, Program

EXACT_CELLS = 40_000
"""Largest table, in cells, that is filled to find a longest common order."""

WINDOW = 1024
"""Number of steps of two cores that are compared at a time; time grows with the square of it."""


@dataclass
class Spreads:
    """Differences of values between cores, by number: differences to the lowest core that has the value, None for
    others. Number 0: on no core."""

    cores: int
    known: dict[tuple[int | None, ...], int] = field(default_factory=dict)
    rows: list[tuple[int | None, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows.append((0,) * self.cores)

    def number(self, values: Sequence[int | None]) -> int:
        first = next(value for value in values if value is not None)
        row = tuple(None if value is None else value - first for value in values)
        if not any(row):
            return 0
        if row not in self.known:
            self.known[row] = len(self.rows)
            self.rows.append(row)
        return self.known[row]

    def apart(self, held: int, wanted: int, mask: int) -> int | None:
        """Amount by which `wanted` exceeds `held` on every core of the mask, when their lowest cores are equal; None
        where it is not the same on all."""
        one, other = self.rows[held], self.rows[wanted]
        found: int | None = None
        for core in range(self.cores):
            if mask >> core & 1:
                a, b = one[core], other[core]
                if a is None or b is None or (found is not None and b - a != found):
                    return None
                found = b - a
        return found


@dataclass(frozen=True, slots=True)
class SharedStep:
    """A step of the cores in `mask` (one bit each, by their position): the values of the lowest of them, and for each
    value the number of its spread over the others."""

    kind: StepKind
    mask: int
    values: tuple[int, ...]
    spreads: tuple[int, ...]


@dataclass(slots=True)
class _Row:
    kind: int
    steps: dict[int, RollingStep]


def align(program: Program) -> tuple[tuple[SharedStep, ...], Spreads]:
    """All steps of a program, in an order that keeps the order of every core."""
    numbers: dict[StepKind, int] = {}
    known: dict[int, tuple[int, RollingStep]] = {}  # by identity: cores mostly share their instructions

    def numbered(instr: Instr) -> tuple[int, RollingStep]:
        found = known.get(id(instr))
        if found is None:
            step = step_of(instr, program.cluster)
            found = known[id(instr)] = numbers.setdefault(step.kind, len(numbers)), step
        return found

    streams = [[numbered(instr) for instr in stream.instrs] for stream in program.streams]
    spreads = Spreads(len(streams))
    rows = [row for stretch in _stretches(program, streams) for row in _merged(stretch)]
    return tuple(_shared(row, spreads) for row in rows), spreads


def _stretches(
    program: Program, streams: list[list[tuple[int, RollingStep]]]
) -> Iterator[list[tuple[int, list[tuple[int, RollingStep]]]]]:
    """The steps of each core up to each rendezvous of all cores, the rendezvous itself, and the steps after the
    last."""
    meetings = [
        [place for place, instr in enumerate(stream.instrs) if program.is_full_rendezvous(instr)]
        for stream in program.streams
    ]
    begun = [0] * len(streams)
    for places in zip(*meetings, strict=True):
        yield [(n, streams[n][begun[n] : place]) for n, place in enumerate(places)]
        yield [(n, [streams[n][place]]) for n, place in enumerate(places)]
        begun = [place + 1 for place in places]
    yield [(n, stream[begun[n] :]) for n, stream in enumerate(streams)]


def _merged(stretch: list[tuple[int, list[tuple[int, RollingStep]]]]) -> list[_Row]:
    rows: list[_Row] = []
    for core, steps in stretch:
        rows = _with(rows, core, steps)
    return rows


def _with(rows: list[_Row], core: int, steps: list[tuple[int, RollingStep]]) -> list[_Row]:
    """The rows with one more core."""
    merged: list[_Row] = []
    at = 0
    done = 0
    for row, step, length in _common([row.kind for row in rows], [kind for kind, _ in steps]):
        merged += rows[at:row]
        merged += [_Row(kind, {core: own}) for kind, own in steps[done:step]]
        for offset in range(length):
            rows[row + offset].steps[core] = steps[step + offset][1]
        merged += rows[row : row + length]
        at, done = row + length, step + length
    return merged + rows[at:] + [_Row(kind, {core: own}) for kind, own in steps[done:]]


def _common(first: list[int], second: list[int]) -> Iterator[tuple[int, int, int]]:
    """Blocks (position in the first, position in the second, length) of a long common order."""
    if first == second:
        yield 0, 0, len(first)
    elif len(first) * len(second) > EXACT_CELLS:
        yield from _windows(first, second)
    elif first and second:
        yield from _longest(first, second)


def _windows(first: list[int], second: list[int]) -> Iterator[tuple[int, int, int]]:
    """Blocks of one window after the other, each starting after the last block that was found well inside the previous
    one."""
    one = other = 0
    while one < len(first) and other < len(second):
        ours, theirs = first[one : one + WINDOW], second[other : other + WINDOW]
        last = one + WINDOW >= len(first) and other + WINDOW >= len(second)
        inside = WINDOW if last else 3 * WINDOW // 4
        end_one = end_other = 0
        for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
            if block.size and block.a < inside and block.b < inside:
                yield one + block.a, other + block.b, block.size
                end_one, end_other = block.a + block.size, block.b + block.size
        if last:
            return
        if max(end_one, end_other) < WINDOW // 2:  # nothing more is alike in these windows
            end_one = end_other = WINDOW // 2
        one, other = one + end_one, other + end_other


def _longest(first: list[int], second: list[int]) -> Iterator[tuple[int, int, int]]:
    width = len(second) + 1
    table = [[0] * width for _ in range(len(first) + 1)]
    for one in range(len(first) - 1, -1, -1):
        row, below, wanted = table[one], table[one + 1], first[one]
        for other in range(width - 2, -1, -1):
            same = second[other] == wanted
            row[other] = below[other + 1] + 1 if same else max(below[other], row[other + 1])
    one = other = 0
    while one < len(first) and other < len(second):
        if first[one] == second[other]:
            yield one, other, 1
            one, other = one + 1, other + 1
        elif table[one + 1][other] >= table[one][other + 1]:
            one += 1
        else:
            other += 1


def _shared(row: _Row, spreads: Spreads) -> SharedStep:
    cores = sorted(row.steps)
    first = row.steps[cores[0]]
    mask = sum(1 << core for core in cores)
    if len(cores) == 1:
        return SharedStep(first.kind, mask, first.values, (0,) * len(first.values))
    numbers = []
    for place in range(len(first.values)):
        by_core = {core: step.values[place] for core, step in row.steps.items()}
        numbers.append(spreads.number([by_core.get(core) for core in range(spreads.cores)]))
    return SharedStep(first.kind, mask, first.values, tuple(numbers))
