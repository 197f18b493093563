"""Operators on int32 values in the main memory, and lookups of rows by them: done by the core before all layers.

    ids --functions of integers--> numbers of rows --RowCopy--> rows of a table        mask --> the same as float32

Every operator is loops over its whole operands. Whatever a number of a row is, only the table is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from codegen.gemmini.isa.geometry import BASE, MAIN
from codegen.gemmini.kernels.elements import ElementPlace, Placed, element_loops
from codegen.gemmini.kernels.loops import BoxLoop, merged
from codegen.gemmini.kernels.windows import combined
from codegen.gemmini.streams.instructions import core_instr, fence
from codegen.gemmini.streams.streams import (
    INTEGER_FUNCTIONS,
    BestPlace,
    Elements,
    Integers,
    Item,
    Operand,
    RowCopy,
    nested,
)
from hw_models.chip import Chip
from isched.program.program import Instr, Region
from partitioner.ir.graph import Graph, Op

INT32_BYTES = 4
EXTREMES: Mapping[str, str] = {"sum": "add", "greatest": "max", "least": "min"}
"""Reductions of lines, as functions of two values."""

KINDS = ("words", "number", "lookup", "take", "join", "cumsum", "reduce", "ordered", "whole")

Array = tuple[int, Sequence[int]]
"""Address of an int32, and bytes from one to the next along the axes of a loop."""


def preparation_instrs(graph: Graph, op: Op, places: Mapping[str, int], chip: Chip) -> tuple[Instr, ...]:
    """Instructions of an operator whose tensors lie at offsets of the main memory."""
    del chip
    at = {name: BASE + places[name] for name in (*op.inputs, *op.outputs)}
    reads, writes = (
        tuple(Region(MAIN, places[name], graph.by_name[name].size_bytes) for name in dict.fromkeys(names))
        for names in (op.inputs, op.outputs)
    )
    return (fence(op.name), core_instr("elements", tuple(_stream(graph, op, at)), reads, writes, op.name))


def refused_preparation(graph: Graph, op: Op, chip: Chip) -> str | None:
    """Why an operator is not prepared; None where it is."""
    del graph, chip
    function = dict(op.attributes).get("function", "")
    if op.kind == "words" and function not in INTEGER_FUNCTIONS:
        return f"{function} of integers is not computed here"
    if op.kind not in KINDS:
        return f"{op.kind} of integers is not computed here"
    return None


def _stream(graph: Graph, op: Op, at: Mapping[str, int]) -> Iterator[Item]:
    result = op.outputs[0]
    count, out = _count(graph, result), at[result]
    match op.kind:
        case "words":
            steps = [0 if _count(graph, name) == 1 else INT32_BYTES for name in op.inputs]
            sources = [(at[name], (step,)) for name, step in zip(op.inputs, steps, strict=True)]
            yield from integers(str(op.attribute("function")), (count,), sources, (out, (INT32_BYTES,)))
        case "number":
            number: Placed = ("int32", at[op.inputs[0]], (INT32_BYTES,))
            to: Placed = ("float32", out, (graph.by_name[result].item_bytes,))
            yield from combined((count,), (("larger", 0, 0),), (number, to))
        case "lookup" | "take":
            yield from _rows(graph, op, at)
        case "join":
            yield from _joined(graph, op, at)
        case "cumsum":
            yield from _running_sums(op, at)
        case "ordered":
            yield from _ordered(graph, op, at)
        case "whole":
            yield from _whole(count, at[op.inputs[0]], out)
        case _:
            yield from _reduced(op, at)


def integers(function: str, counts: Sequence[int], sources: Sequence[Array], result: Array) -> tuple[Item, ...]:
    """Loops over axes of these counts."""
    arrays = (*sources, result)
    axes = (
        BoxLoop(count, tuple((str(number), steps[axis]) for number, (_, steps) in enumerate(arrays)))
        for axis, count in enumerate(counts)
    )
    loops = merged(tuple(axes))
    operands = [
        Operand(start, tuple(loop.step(str(number)) for loop in loops)) for number, (start, _) in enumerate(arrays)
    ]
    return nested([loop.count for loop in loops], (Integers(function, tuple(operands[:-1]), operands[-1]),))


def _count(graph: Graph, name: str) -> int:
    return prod(graph.by_name[name].shape)


def _rows(graph: Graph, op: Op, at: Mapping[str, int]) -> tuple[Item, ...]:
    table, index = op.inputs
    result = graph.by_name[op.outputs[0]]
    count = _count(graph, index)
    row_bytes = result.size_bytes // count
    attributes = dict(op.attributes)
    rows = int(op.number("rows")) if "rows" in attributes else _count(graph, table)
    pitch = int(op.number("step")) * result.item_bytes if attributes.get("step") else row_bytes
    size = INT32_BYTES if row_bytes % INT32_BYTES == pitch % INT32_BYTES == 0 else 1
    steps = ((INT32_BYTES,), (row_bytes,)) if count > 1 else ((), ())
    number, to = (Operand(at[name], step) for name, step in zip((index, op.outputs[0]), steps, strict=True))
    return nested([count] if count > 1 else [], (RowCopy(number, at[table], to, rows, pitch, row_bytes // size, size),))


def _joined(graph: Graph, op: Op, at: Mapping[str, int]) -> Iterator[Item]:
    """Operands side by side, in each of some outer rows."""
    outer, start = int(op.number("outer")), at[op.outputs[0]]
    step = INT32_BYTES * _count(graph, op.outputs[0]) // outer
    for name in op.inputs:
        length = _count(graph, name) // outer
        own = (INT32_BYTES * length, INT32_BYTES)
        yield from integers("copy", (outer, length), ((at[name], own),), (start, (step, INT32_BYTES)))
        start += INT32_BYTES * length


def _lines(op: Op) -> tuple[int, int, int]:
    """Outer lines, values of a line, and inner lines, whose values lie next to each other."""
    outer, count, inner = (int(op.number(name)) for name in ("outer", "count", "inner"))
    return outer, count, inner


def _running_sums(op: Op, at: Mapping[str, int]) -> Iterator[Item]:
    """Sums along lines: `exclusive` leaves out the value itself, `reverse` begins at the end."""
    outer, count, inner = _lines(op)
    step, source, out = INT32_BYTES * inner, at[op.inputs[0]], at[op.outputs[0]]
    if op.number("reverse"):
        source, out, step = source + (count - 1) * step, out + (count - 1) * step, -step
    around = (INT32_BYTES * inner * count, INT32_BYTES)
    exclusive = bool(op.number("exclusive"))
    first: Array = (source, around)
    yield from integers("sub" if exclusive else "copy", (outer, inner), (first,) * (1 + exclusive), (out, around))
    if count == 1:
        return
    own = (around[0], step, around[1])
    added = source if exclusive else source + step
    yield from integers("add", (outer, count - 1, inner), ((out, own), (added, own)), (out + step, own))


def _ordered(graph: Graph, op: Op, at: Mapping[str, int]) -> Iterator[Item]:
    """Integers in the order of numbers, of all of them or of those at some places."""
    result = op.outputs[0]
    source = at[op.inputs[0]]
    if len(op.inputs) > 1:
        yield from _rows(graph, op, at)
        source = at[result]
    own = (INT32_BYTES,)
    yield from integers("order", (_count(graph, result),), ((source, own),), (at[result], own))


def _whole(count: int, source: int, out: int) -> tuple[Item, ...]:
    """Numbers without their fractions; those out of range become the nearest int32."""

    def make(sources: Sequence[ElementPlace], to: ElementPlace) -> Elements:
        return Elements((), tuple(sources), (("larger", 0, 0),), to, "truncate")

    own = (INT32_BYTES,)
    return element_loops((count,), make, (("float32", source, own), ("int32", out, own)))


def _places(op: Op, at: Mapping[str, int], function: str) -> tuple[Item, ...]:
    """The place of the best value of each line."""
    outer, count, inner = _lines(op)
    step = INT32_BYTES * inner
    axes = (BoxLoop(outer, (("line", step * count), ("out", step))),
            BoxLoop(inner, (("line", INT32_BYTES), ("out", INT32_BYTES))))  # fmt: skip
    loops = merged(axes)
    line, result = (
        Operand(start, tuple(loop.step(name) for loop in loops))
        for start, name in ((at[op.inputs[0]], "line"), (at[op.outputs[0]], "out"))
    )
    best = BestPlace(line, result, count, step, function.endswith("greatest"), bool(op.number("last")))
    return nested([loop.count for loop in loops], (best,))


def _reduced(op: Op, at: Mapping[str, int]) -> Iterator[Item]:
    """One value per line."""
    function = str(op.attribute("function"))
    if function not in EXTREMES:
        yield from _places(op, at, function)
        return
    outer, count, inner = _lines(op)
    step, source, out = INT32_BYTES * inner, at[op.inputs[0]], at[op.outputs[0]]
    around = (step * count, INT32_BYTES)
    yield from integers("copy", (outer, inner), ((source, around),), (out, (step, INT32_BYTES)))
    if count > 1:
        own, to = (step * count, step, INT32_BYTES), (step, 0, INT32_BYTES)
        yield from integers(EXTREMES[function], (outer, count - 1, inner), ((out, to), (source + step, own)), (out, to))
