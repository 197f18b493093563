"""Operators on int32 values in the main memory, and lookups of rows by them: work of the scalar core and the DMA.

    words           one loop of the scalar core over the main memory per operator
    looked-up rows  chains of descriptors that the scalar core writes, one row each: table -> staging memory -> result,
                    or no farther than the staging memory for a layer that reads them there
    assigned rows   the converse (`assigned_rows.py`)

Whatever an index holds, only the table is read; planning assumes that a chunk reads the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from codegen.neuralscale.emit.descriptors import CHAIN_SHARE, linear_control
from codegen.neuralscale.emit.integer_loops import FUNCTIONS, INTEGER_PREFIX
from codegen.neuralscale.emit.memory_map import address_of
from codegen.neuralscale.emit.memory_names import MAIN, STAGING
from codegen.neuralscale.kernels.assigned_rows import assigned_rows, row_problem
from codegen.neuralscale.kernels.staged_chunks import INWARD, OUTWARD, await_transfer, buffer_bytes, in_turn
from hw_models.chip import Chip
from isched.program.program import Instr, Region
from isched.program.target import RowRun
from partitioner.ir.graph import Graph, Op

GATHER = "dma.gather"
"""A chain of descriptors, one per row, whose sources the scalar core computes from indices."""


def preparation_instructions(graph: Graph, op: Op, places: Mapping[str, int], chip: Chip) -> tuple[Instr, ...]:
    """The instructions of one core for an operator; `places` gives the addresses of its tensors in the main memory.
    Everything has landed after the last instruction."""
    if op.kind == "lookup":
        return tuple(_lookup(graph, op, places, chip))
    if op.kind == "assign":
        return tuple(assigned_rows(graph, op, places, chip))
    if op.kind == "join":
        return tuple(_join(graph, op, places))
    return (_loop(graph, op, places),)


def refused_preparation(graph: Graph, op: Op, chip: Chip) -> str | None:
    """Why an operator cannot be prepared; None where it can."""
    if op.kind == "lookup" and (size := _row_bytes(graph, op)) > (most := buffer_bytes(chip)):
        return f"a row of its table has {size:,} bytes; at most {most:,} are looked up at a time"
    return row_problem(graph, op, chip) if op.kind == "assign" else None


def _whole(graph: Graph, name: str, places: Mapping[str, int]) -> Region:
    return Region(MAIN, places[name], graph.by_name[name].size_bytes)


def _count(graph: Graph, name: str) -> int:
    return prod(graph.by_name[name].shape)


def _instr(
    op: Op, function: str, operands: tuple[tuple[str, int], ...], reads: tuple[Region, ...], writes: Region
) -> Instr:
    return Instr("scalar", f"{INTEGER_PREFIX}{function}", operands, reads, (writes,), 0.0, op.name)


def _loop(graph: Graph, op: Op, places: Mapping[str, int]) -> Instr:
    """The instruction of an operator that is one loop."""
    addresses = [address_of(MAIN, places[name]) for name in op.inputs]
    out, count = ("out", address_of(MAIN, places[op.outputs[0]])), _count(graph, op.outputs[0])
    match op.kind:
        case "words":
            function = str(op.attribute("function"))
            operands: tuple[tuple[str, int], ...] = (out, ("count", count))
            for letter, name, address in zip("abc", op.inputs, addresses, strict=False):
                step = 0 if _count(graph, name) == 1 else graph.by_name[name].item_bytes
                operands += ((letter, address), (f"{letter}_step", step))
            assert FUNCTIONS[function][0] == len(op.inputs)  # the frontend writes them this way
        case "take":
            function, rows = "take", _count(graph, op.inputs[0])
            operands = (("a", addresses[0]), ("index", addresses[1]), ("rows", rows), out, ("count", count))
        case "ordered" if len(op.inputs) == 2:
            function, rows = "ordered_at", _count(graph, op.inputs[0])
            operands = (("a", addresses[0]), ("index", addresses[1]), ("rows", rows), out, ("count", count))
        case "number" | "ordered" | "whole":
            function, operands = op.kind, (("a", addresses[0]), out, ("count", count))
        case _:  # along lines: running sums and reductions
            function = "cumsum" if op.kind == "cumsum" else str(op.attribute("function"))
            given = tuple((name, value) for name, value in op.attributes if isinstance(value, int))
            operands = (("a", addresses[0]), out, *given)
    reads = tuple(_whole(graph, name, places) for name in dict.fromkeys(op.inputs))
    return _instr(op, function, operands, reads, _whole(graph, op.outputs[0], places))


def _join(graph: Graph, op: Op, places: Mapping[str, int]) -> Iterator[Instr]:
    """Copy operands side by side: in each of `outer` rows first the first operand's part, then the next one's."""
    result = op.outputs[0]
    outer = int(op.number("outer"))
    item = graph.by_name[result].item_bytes
    step, at = _count(graph, result) // outer * item, 0
    for name in op.inputs:
        length = _count(graph, name) // outer * item
        writes = Region(MAIN, places[result] + at, length, outer, step if outer > 1 else 0)
        operands = (
            ("a", address_of(MAIN, places[name])),
            ("a_step", length),
            ("out", address_of(MAIN, places[result] + at)),
            ("out_step", step),
            ("rows", outer),
            ("count", length // item),
        )
        yield _instr(op, "copy_rows", operands, (_whole(graph, name, places),), writes)
        at += length


def _lookup(graph: Graph, op: Op, places: Mapping[str, int], chip: Chip) -> Iterator[Instr]:
    """Look up chunks of rows on the engines in turn; a chunk leaves while the next one arrives."""
    row_bytes, total = _row_bytes(graph, op), _count(graph, op.inputs[1])
    most = max(1, min(chip.dma.max_descriptors // CHAIN_SHARE, buffer_bytes(chip) // row_bytes))
    chunks = [(start, min(most, total - start)) for start in range(0, total, most)]

    def bring(number: int, engine: int, offset: int) -> Instr:
        return _gathered(graph, op, places, RowRun(*chunks[number], offset), engine, op.name, chip)

    def leave(number: int, engine: int, offset: int) -> Instr:
        start, count = chunks[number]
        return _leave(op, engine, offset, places[op.outputs[0]] + start * row_bytes, count * row_bytes, chip)

    return in_turn(op.name, len(chunks), bring, leave, chip)


def looked_up_rows(
    graph: Graph, op: Op, places: Mapping[str, int], runs: tuple[RowRun, ...], source: str, chip: Chip
) -> tuple[Instr, ...]:
    """The instructions of one core that bring some rows of a lookup's result into the staging memory, for the operator
    `source`. Everything has landed after the last instruction."""
    return tuple(_chains(graph, op, places, runs, source, chip))


def _chains(
    graph: Graph, op: Op, places: Mapping[str, int], runs: tuple[RowRun, ...], source: str, chip: Chip
) -> Iterator[Instr]:
    """The chains of rows on the engines in turn: while one gathers, the next chain is written for the other."""
    most, row_bytes = max(1, chip.dma.max_descriptors // CHAIN_SHARE), _row_bytes(graph, op)
    chunks = [
        RowRun(run.first + start, min(most, run.count - start), run.offset_bytes + start * row_bytes)
        for run in runs
        for start in range(0, run.count, most)
    ]
    engines = chip.dma.engines_per_cluster
    for number, chunk in enumerate(chunks):
        if number >= engines:
            yield await_transfer(source, number % engines, INWARD)
        yield _gathered(graph, op, places, chunk, number % engines, source, chip)
    for number in range(max(0, len(chunks) - engines), len(chunks)):
        yield await_transfer(source, number % engines, INWARD)


def _gathered(
    graph: Graph, op: Op, places: Mapping[str, int], rows: RowRun, engine: int, source: str, chip: Chip
) -> Instr:
    """One chain, with a descriptor per row."""
    table, index = op.inputs
    row_bytes, count = _row_bytes(graph, op), rows.count
    return Instr(
        chip.dma.engine,
        GATHER,
        (
            ("engine", engine),
            ("channel", INWARD),
            ("index", address_of(MAIN, places[index] + 4 * rows.first)),
            ("table", address_of(MAIN, places[table])),
            ("rows", int(op.number("rows"))),
            ("row_bytes", row_bytes),
            *_pitch(graph, op),
            ("destination", address_of(STAGING, rows.offset_bytes)),
            ("count", count),
        ),
        (_whole(graph, table, places), Region(MAIN, places[index] + 4 * rows.first, 4 * count)),
        (Region(STAGING, rows.offset_bytes, row_bytes, count, row_bytes if count > 1 else 0),),
        0.0,
        source,
        starts=f"dma{engine}.{INWARD}",
    )


def _row_bytes(graph: Graph, op: Op) -> int:
    """Bytes of a row of a lookup's table."""
    return graph.by_name[op.outputs[0]].size_bytes // _count(graph, op.inputs[1])


def _pitch(graph: Graph, op: Op) -> tuple[tuple[str, int], ...]:
    """Operand with the bytes from the start of one row of a table to the next, where rows overlap."""
    step = dict(op.attributes).get("step")
    return (("pitch_bytes", int(op.number("step")) * graph.by_name[op.inputs[0]].item_bytes),) if step else ()


def _leave(op: Op, engine: int, place: int, to: int, size_bytes: int, chip: Chip) -> Instr:
    words = (linear_control(size_bytes), address_of(STAGING, place), address_of(MAIN, to), 0, 0)
    operands = (("engine", engine), ("channel", OUTWARD), *((f"w{i}", word) for i, word in enumerate(words)))
    reads, writes = (Region(STAGING, place, size_bytes),), (Region(MAIN, to, size_bytes),)
    return Instr(chip.dma.engine, "dma.start", operands, reads, writes, 0.0, op.name, starts=f"dma{engine}.{OUTWARD}")
