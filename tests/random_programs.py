"""Small random programs of real instructions for the stcp920, each right by `verify_program`, and costs of issue.

seed --draw, verify, draw again where cores would race--> Program of one or two cores, up to `most` instructions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from random import Random
from typing import cast

from codegen.neuralscale.instructions.arithmetic import FP16
from codegen.neuralscale.instructions.builder import InstructionBuilder as Maker
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.kernels.transfers import copy_instructions
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.hazards.verify_program import verify_program
from isched.program.program import Instr, Program, Region, Stream, TensorPlacement
from isched.program.target import MemoryCopy, Timeable
from isched.program.timed_ops import CoreIssue, IssueCost, TimedOp
from isched.timing.engines import conflict, touched_by
from tests.chip_runs import small_chip

__all__ = ["FIXED_COSTS", "PROMPT_COSTS", "changed", "duo", "neighbours", "orders_of", "random_program"]

SIDE = 64
SLOT_BYTES = SIDE * SIDE * 2
LOCAL, WEIGHTS = ("L1", 0), ("L1", 1 << 20)
SLOTS = 2
"""Slots of a memory, a 64x64 matrix each: few, so that instructions meet."""


@dataclass(frozen=True)
class _FixedCosts:
    """Issue costs that an instruction keeps wherever it stands. A wait asks every `period` instructions."""

    period: int
    barrier: str = "sync"

    def issue_costs(self, program: Program, chip: Chip) -> tuple[CoreIssue, ...]:
        del chip
        return tuple(CoreIssue(7, tuple(map(self._cost, stream.instrs)), 3) for stream in program.streams)

    def _cost(self, instr: Instr) -> IssueCost:
        if instr.awaits:
            return IssueCost(2, 4, self.period)
        before = {"matrix": 9, "vector": 6, "transfer": 5, "dma": 14}.get(instr.engine, 1)
        return IssueCost(before)


FIXED_COSTS = cast(Timeable, _FixedCosts(3))
"""A target of which only the issue costs are asked for."""

PROMPT_COSTS = cast(Timeable, _FixedCosts(1))
"""The same, and the end of a transfer is seen at once: what ends earlier is never seen later."""


def duo() -> Chip:
    """The stcp920 with two cores and no cost of a launch."""
    chip = small_chip(2)
    return chip.model_copy(update={"assumed": chip.assumed.model_copy(update={"launch_cycles": 0})})


@dataclass
class _Drawing:
    """Streams on their way; `rows` says how many rows of a slot hold data, by (core or -1, memory, slot)."""

    random: Random
    chip: Chip
    cores: int
    streams: list[list[Instr]] = field(default_factory=list)
    rows: dict[tuple[int, str, int], int] = field(default_factory=dict)
    open: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def slot(self, core: int, memory: str, wanted: Callable[[int], bool]) -> int:
        """A random slot whose filled rows are wanted; -1 when there is none."""
        shared = -1 if memory in ("LLB", "DDR") else core
        found = [n for n in range(SLOTS) if wanted(self.rows.get((shared, memory, n), 0))]
        return self.random.choice(found) if found else -1

    def take(self, core: int, memory: str) -> tuple[int, int]:
        """A filled slot and how many of its rows to read; (-1, 0) when there is none."""
        number = self.slot(core, memory, bool)
        shared = -1 if memory in ("LLB", "DDR") else core
        return number, self.random.randint(1, self.rows[shared, memory, number]) if number >= 0 else 0

    def fill(self, core: int, memory: str, number: int, rows: int) -> None:
        key = (-1 if memory in ("LLB", "DDR") else core, memory, number)
        self.rows[key] = max(rows, self.rows.get(key, 0))

    def any(self) -> int:
        return self.random.randrange(SLOTS)


def _region(memory: str, number: int, rows: int) -> Region:
    base = {"weights": 1 << 20, "DDR": TARGET.data_base_bytes}.get(memory, 0)
    return Region("L1" if memory == "weights" else memory, base + number * SLOT_BYTES, rows * SIDE * 2)


def _matrix(memory: str, number: int, rows: int) -> MatrixPlace:
    region = _region(memory, number, rows)
    return MatrixPlace(region.memory, region.offset_bytes, rows, SIDE, FP16.item_bytes)


def _left(number: int, rows: int, columns: int) -> MatrixPlace:
    """The first columns of the rows of a slot."""
    return MatrixPlace("L1", number * SLOT_BYTES, rows, columns, FP16.item_bytes, SIDE * FP16.item_bytes)


def _load(drawing: _Drawing, core: int) -> None:
    source, rows = drawing.take(core, "LLB")
    if source >= 0:
        memory, target = drawing.random.choice(["L1", "weights"]), drawing.any()
        copy = MemoryCopy(_region(memory, target, rows), _region("LLB", source, rows))
        drawing.streams[core] += copy_instructions((MemoryCopy(copy.destination, copy.source),), "load", drawing.chip)
        drawing.fill(core, memory, target, rows)


def _load_together(drawing: _Drawing, core: int) -> None:
    source, rows = drawing.take(core, "LLB")
    if source >= 0 and drawing.cores > 1:
        target = drawing.any()
        copy = MemoryCopy(_region("LLB", source, rows), _region("weights", target, rows))
        (instr,) = copy_instructions((copy,), "together", drawing.chip)
        for number, stream in enumerate(drawing.streams):
            stream.append(TARGET.broadcast(instr, tuple(range(drawing.cores))))
            drawing.fill(number, "weights", target, rows)


def _store(drawing: _Drawing, core: int) -> None:
    source, rows = drawing.take(core, "L1")
    if source >= 0:
        target = drawing.any()
        copy = MemoryCopy(_region("L1", source, rows), _region("LLB", target, rows))
        drawing.streams[core] += copy_instructions((copy,), "store", drawing.chip)
        drawing.fill(core, "LLB", target, rows)


def _multiply(drawing: _Drawing, core: int) -> None:
    a, rows = drawing.take(core, "L1")
    b = drawing.slot(core, "weights", bool)
    if a >= 0 and b >= 0:
        target, depth = drawing.any(), drawing.rows[core, "weights", b]
        make = Maker(drawing.chip, "multiply", FP16)
        drawing.streams[core].append(
            make.memul(_matrix("IM", target, rows), _left(a, rows, depth), _matrix("weights", b, depth))
        )
        drawing.fill(core, "IM", target, rows)


def _finish(drawing: _Drawing, core: int) -> None:
    memory = drawing.random.choice(["IM", "L1", "IM"])
    source, rows = drawing.take(core, memory)
    if source >= 0:
        target = drawing.any()
        make = Maker(drawing.chip, "finish", FP16)
        drawing.streams[core] += make.scalar("vemax", _matrix("L1", target, rows), _matrix(memory, source, rows), 0.0)
        drawing.fill(core, "L1", target, rows)


def _fetch(drawing: _Drawing, core: int) -> None:
    """Starts a transfer from the main memory, or awaits the one under way."""
    if drawing.open:
        _await(drawing)
        return
    rows, target = drawing.random.choice([SIDE, SIDE, drawing.random.randint(1, SIDE)]), drawing.any()
    copy = MemoryCopy(_region("DDR", drawing.any(), rows), _region("LLB", target, rows))
    start, wait = copy_instructions((copy,), "fetch", drawing.chip)
    drawing.streams[core].append(start)
    drawing.open[wait.awaits] = (core, target, rows)


def _await(drawing: _Drawing) -> None:
    (token, (core, target, rows)), *_ = drawing.open.items()
    engine, channel = map(int, token.removeprefix("dma").split("."))
    drawing.streams[core].append(
        Instr("scalar", "dma.wait", (("engine", engine), ("channel", channel)), source="fetch", awaits=token)
    )
    drawing.fill(core, "LLB", target, rows)
    del drawing.open[token]


def _meet(drawing: _Drawing, core: int) -> None:
    del core
    for stream in drawing.streams:
        stream.append(TARGET.synchronise("meet"))


_Step = Callable[[_Drawing, int], None]
_STEPS: Mapping[_Step, int] = {_load: 4, _load_together: 1, _store: 3, _multiply: 12, _finish: 8, _fetch: 2, _meet: 2}
"""Steps and how often they are tried; the first ones are loads, since nothing else can be done."""


def random_program(
    seed: int, chip: Chip, most: int = 12, cores: int = 2, *, moving: bool = True, rendezvous: bool = True
) -> Program:
    """A program of at most `most` instructions; with DMA where something is `moving` in the background, with barriers
    and broadcasts where `rendezvous` says so. On the stcp920 it never asks for more bandwidth than there is."""
    random = Random(seed)
    left_out = [*([] if moving else [_fetch]), *([] if rendezvous else [_meet, _load_together])]
    steps = {step: weight for step, weight in _STEPS.items() if step not in left_out}
    while True:
        program = _draw(random, chip, most, cores, steps)
        if program is None:
            continue
        try:
            verify_program(program, chip)
        except PlanError:
            continue
        return program


def _draw(random: Random, chip: Chip, most: int, cores: int, steps: Mapping[_Step, int]) -> Program | None:
    drawing = _Drawing(random, chip, cores, [[] for _ in range(cores)])
    for number in range(SLOTS):
        drawing.fill(-1, "LLB", number, SIDE)
    placements = (
        TensorPlacement("main", "input", "DDR", TARGET.data_base_bytes, SLOTS * SLOT_BYTES),
        TensorPlacement("staged", "input", "LLB", 0, SLOTS * SLOT_BYTES),
    )
    while sum(map(len, drawing.streams)) + len(drawing.open) < most - 1:
        (step,) = random.choices(tuple(steps), tuple(steps.values()))
        step(drawing, random.randrange(cores))
    while drawing.open:
        _await(drawing)
    if sum(map(len, drawing.streams)) > most:
        return None
    streams = tuple(Stream(core, tuple(instrs)) for core, instrs in enumerate(drawing.streams))
    return Program("random", chip.name, 0, TARGET.barrier, placements, streams)


def changed(chip: Chip, **values: float) -> Chip:
    """The chip with other assumptions."""
    return chip.model_copy(update={"assumed": chip.assumed.model_copy(update=values)})


def orders_of(program: Program, core: int) -> Iterator[tuple[int, ...]]:
    """All orders of one core's instructions that keep conflicting accesses in theirs, a transfer under way until it is
    awaited; barriers may be left out. Whether cores and DMA then race is for `verify_program` to say."""
    instrs = program.streams[core].instrs
    touched = [touched_by(TimedOp("", "", IssueCost(1), reads=i.reads, writes=i.writes)) for i in instrs]
    done = [_done(instrs, n) for n in range(len(instrs))]
    pairs = [(done[a], b) for b in range(len(instrs)) for a in range(b) if conflict(touched[b], touched[a])]
    pairs += [(a, b) for a, b in enumerate(done) if a != b]
    pairs += [(done[a], b) for b in range(len(instrs)) for a in range(b) if instrs[a].starts == instrs[b].starts != ""]
    work = [n for n, instr in enumerate(instrs) if instr.opcode != program.barrier]
    barriers = [n for n in range(len(instrs)) if n not in work]
    for kept in range(len(barriers) + 1):
        for order in permutations([*work, *barriers[:kept]]):
            place = {n: position for position, n in enumerate(order)}
            if all(place[a] < place[b] for a, b in pairs):
                yield order


def _done(instrs: tuple[Instr, ...], number: int) -> int:
    """Where an instruction is over: a transfer with its wait."""
    token = instrs[number].starts
    return next(n for n in range(number, len(instrs)) if instrs[n].awaits == token) if token else number


def neighbours(program: Program, chip: Chip, random: Random) -> Iterator[Program]:
    """Valid orders of a program, each two instructions of one core apart from the one before; ends when it has tried
    often enough."""
    for _ in range(2_000):
        core = random.randrange(len(program.streams))
        instrs = list(program.streams[core].instrs)
        if len(instrs) < 2:
            continue
        at = random.randrange(len(instrs) - 1)
        a, b = instrs[at : at + 2]
        free = not (a.starts and b.awaits) and not conflict(
            *(touched_by(TimedOp("", "", IssueCost(1), reads=i.reads, writes=i.writes)) for i in (a, b))
        )
        if not free or all(instr.meets or instr.opcode == program.barrier for instr in (a, b)):
            continue
        instrs[at : at + 2] = b, a
        streams = tuple(Stream(s.core, tuple(instrs)) if n == core else s for n, s in enumerate(program.streams))
        swapped = replace(program, streams=streams)
        try:
            verify_program(swapped, chip)
        except PlanError:
            continue
        program = swapped
        yield program
