"""Work of a program for each layer, added up: instructions and cycles by engine, bytes by pair of memories.

    machine code, timed --by the operator of each instruction, Plan--> {layer: LayerWork}
    Program             --likewise--> the same by the cost model

The figures are the program's own, from its instructions; nothing is run. Kernels that are whole groups have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from codegen.target import symbol_of
from hw_models.chip import Chip
from isched.program.program import Instr, Program
from isched.program.timed_ops import TimedOp
from partitioner.ir.plan import Plan

if TYPE_CHECKING:
    from dsa_sched.analysis.artifact_timing import TimedProgram

MOVERS = ("transfer", "dma")
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class LayerWork:
    """`cycles` are those in which engines work, summed over cores; `busiest_cycles` is the most that one core has, by
    engine.

    `moved_bytes` counts the bytes that DMA and transfer engines read, by "source->destination".
    """

    instructions: Mapping[str, int]
    cycles: Mapping[str, float]
    busiest_cycles: Mapping[str, float]
    moved_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TimedWork:
    """The work of one program's machine code for each layer, and its cycles, launch included, for one pass."""

    cycles: float
    layers: Mapping[str, LayerWork]


NO_WORK = LayerWork({}, {}, {}, {})
"""Work of a layer whose instructions are unknown."""


def layer_work(program: Program, chip: Chip, plan: Plan) -> dict[str, LayerWork]:
    """Work by the layer whose operator the instructions serve (`Instr.source`), in order of first appearance."""
    owner = {op: layer.name for group in plan.groups for layer in group.layers for op in layer.ops}
    movers = {engine.name for engine in chip.engines if engine.kind in MOVERS}
    order = tuple(engine.name for engine in chip.engines)
    by_layer: dict[str, dict[int, list[Instr]]] = {}
    for stream in program.streams:
        for instr in stream.instrs:
            by_layer.setdefault(owner.get(instr.source, instr.source), {}).setdefault(stream.core, []).append(instr)
    return {name: _work(tuple(cores.values()), movers, order) for name, cores in by_layer.items()}


def timed_work(program: TimedProgram, chip: Chip, plan: Plan) -> TimedWork:
    """Work of machine code that was timed, in cycles of the cycle model, by layer in order of first appearance. DMA
    transfers count for the core that starts them."""
    owner: dict[str, str] = {}
    for layer in (layer for group in plan.groups for layer in group.layers):
        for name in layer.ops:
            owner.setdefault(symbol_of(name), layer.name)  # machine code names operators by their symbols
    engines = tuple(engine.name for engine in chip.engines)
    spans = iter(program.timeline.spans)
    by_layer: dict[str, dict[int, list[tuple[TimedOp, float]]]] = {}
    for stream in program.streams:
        for op in stream.ops:
            span = next(spans)
            cycles = span.end - span.start if span.unit else 0.0
            by_layer.setdefault(owner.get(op.source, op.source), {}).setdefault(stream.core, []).append((op, cycles))
    layers = {name: _timed(tuple(cores.values()), engines) for name, cores in by_layer.items()}
    return TimedWork(program.timeline.cycles, layers)


def _timed(cores: tuple[list[tuple[TimedOp, float]], ...], engines: tuple[str, ...]) -> LayerWork:
    instructions, cycles, busiest = dict.fromkeys(engines, 0), dict.fromkeys(engines, 0.0), dict.fromkeys(engines, 0.0)
    moved: Counter[str] = Counter()
    for ops in cores:
        own: dict[str, float] = {}
        for op, spent in ops:
            instructions[op.engine] += 1
            own[op.engine] = own.get(op.engine, 0.0) + spent
            if op.moved_bytes and op.reads and op.writes:
                moved[f"{op.reads[0].memory}->{op.writes[0].memory}"] += op.moved_bytes
        for engine, number in own.items():
            cycles[engine] += number
            busiest[engine] = max(busiest[engine], number)
    return LayerWork(instructions, cycles, busiest, dict(moved))


def add_work(parts: Iterable[LayerWork]) -> LayerWork:
    """Sum of the work of layers that run in sequence, so that their busiest cores add up."""
    work = tuple(parts)
    return LayerWork(
        _total(part.instructions for part in work),
        _total(part.cycles for part in work),
        _total(part.busiest_cycles for part in work),
        _total(part.moved_bytes for part in work),
    )


def _total(parts: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    total: dict[str, Number] = {}
    for part in parts:
        for key, number in part.items():
            total[key] = total[key] + number if key in total else number
    return total


def _work(cores: tuple[list[Instr], ...], movers: set[str], order: tuple[str, ...]) -> LayerWork:
    """Engines in the order of the chip file, ways in the order of first use."""
    instructions = dict.fromkeys(order, 0)
    cycles, busiest = dict.fromkeys(order, 0.0), dict.fromkeys(order, 0.0)
    moved: Counter[str] = Counter()
    for instrs in cores:
        own: dict[str, float] = {}
        for instr in instrs:
            instructions[instr.engine] += 1
            own[instr.engine] = own.get(instr.engine, 0.0) + instr.cycles
            if instr.engine in movers and instr.reads and instr.writes:  # not one that only sets up or makes zeros
                way = f"{instr.reads[0].memory}->{instr.writes[0].memory}"
                moved[way] += sum(region.size_bytes for region in instr.reads)
        for engine, number in own.items():
            cycles[engine] += number
            busiest[engine] = max(busiest[engine], number)
    return LayerWork(instructions, cycles, busiest, dict(moved))
