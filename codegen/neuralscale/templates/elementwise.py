"""Element-wise operators on the vector engine: as anchors of their own kernel and in the epilogue of another.

Order of operations (the emulation follows it): binary operators compute `running value op other operand`; a subtraction
whose running value is the second operand is (-1 * value) + first. Division multiplies by a reciprocal, which is refined
as in `curves.py`; functions that take several passes are there. A lookup reads a table, its second operand, with one
value per fp16 number; the bits of the first operand are the index.

`narrow` is the last operator of its layer: it converts the running value to int8 in the place of the result. Its
rounding to the nearest integer adds and subtracts ROUNDING_OFFSET, at which fp16 numbers are integers. `add_scaled`
converts its int8 operand in a scratch tile, multiplies it there and adds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import copysign, inf, prod

from codegen.neuralscale.instructions.arithmetic import is_immediate
from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from codegen.neuralscale.templates.broadcast import combine, operand_box, padded_shape, same_shape
from codegen.neuralscale.templates.curves import CURVES, DIVISOR, curve
from codegen.neuralscale.templates.steps import VectorStep, instructions, registers
from codegen.neuralscale.templates.tile import Tile
from hw_models.chip import Chip
from isched.program.program import Instr
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.regions import Box, box_shape, full_box
from partitioner.ir.target import TileLoad

BINARY = {"add": "veadd", "sub": "vesub", "mul": "veemul", "max": "vemax", "min": "vemin", "div": "veemul"}

BINARY_PASSES = {"scale_shift": 2, "sub": 2, "div": len(DIVISOR) + 1, "add_scaled": 2}
"""Vector passes of the operators with several operands that take more than one pass."""

CONVERTING = ("widen", "narrow", "add_scaled")
"""Operators that convert between int8 and fp16, each with one pass."""

ROUNDING_OFFSET = 1536.0
"""From 1,024 to 2,048 fp16 numbers are the integers: numbers from -512 to 512 are rounded where this is added to
them."""

UNARY = {
    "relu": 1,
    "leaky_relu": 1,
    "clip": 2,
    "neg": 1,
    "abs": 1,
    "hard_sigmoid": 4,
}
"""Vector passes of each unary operator that has no list of steps in `curves.py`."""

LOOKUP_BYTES = 1 << 17
"""Bytes of a table: one fp16 entry per fp16 input. `velut.m` checks the range of the first half of it and reads all."""


def running_operand(graph: Graph, op: Op) -> str:
    """The operand that the tile starts from where `op` is the anchor: the first one with the output's shape."""
    return next(name for name in op.inputs if same_shape(graph, name, op.outputs[0]))


def operand_loads(graph: Graph, op: Op, names: tuple[str, ...], box: Box, prefix: str) -> tuple[TileLoad, ...]:
    """The boxes of the operands `names` that `op` reads for a box of its output: no immediates, and whole tables."""
    return tuple(
        TileLoad(name, _read_box(graph, op, name, box), f"{prefix}.{name}")
        for name in dict.fromkeys(names)
        if not is_immediate(graph, name) or same_shape(graph, name, op.outputs[0])
    )


def table_operand(op: Op) -> str | None:
    """The name of the table in which `op` looks up."""
    return op.inputs[1] if op.kind == "lookup" else None


def _read_box(graph: Graph, op: Op, name: str, box: Box) -> Box:
    if name == table_operand(op):
        return full_box(graph.by_name[name].shape)
    return operand_box(graph, name, op.outputs[0], box)


def accepts(graph: Graph, op: Op, chip: Chip) -> str | None:
    """None, or why the vector engine cannot compute `op`."""
    del chip
    if op.kind == "narrow" and truncates(op) and centre_of(op):
        return "a centre is added to rounded numbers alone, not to those that are cut off"
    if op.kind in UNARY or op.kind in CURVES or op.kind in ("lookup", "widen", "narrow"):
        return None
    if op.kind == "add_scaled":
        apart = [name for name in op.inputs if not same_shape(graph, name, op.outputs[0])]
        return f"{apart[0]} is broadcast; both operands of {op.kind} must have one shape" if apart else None
    if op.kind == "scale_shift":
        wide = [name for name in op.inputs[1:] if graph.by_name[name].shape != graph.by_name[op.outputs[0]].shape[-1:]]
        return f"{wide[0]} does not have one element per channel" if wide else None
    if op.kind not in BINARY:
        return f"no vector template for {op.kind}"
    if not any(same_shape(graph, name, op.outputs[0]) for name in op.inputs):
        return f"both operands of {op.kind} are broadcast; one of them must have the shape of the output"
    return None


def passes(graph: Graph, op: Op) -> int:
    """Number of fp16 vector instructions over the whole tile that `op` takes: none for a lookup and a conversion, which
    have rates of their own. The reciprocal of a broadcast divisor counts as two."""
    if op.kind in ("lookup", "widen"):
        return 0
    if op.kind == "narrow":
        return 0 if truncates(op) else 2
    if op.kind in CURVES:
        return len(curve(op))
    if op.kind == "div" and not same_shape(graph, op.inputs[1], op.outputs[0]):
        return 3
    return BINARY_PASSES.get(op.kind) or UNARY.get(op.kind, 1)


def conversions(op: Op) -> int:
    """Number of conversions of the whole tile between int8 and fp16."""
    return 1 if op.kind in CONVERTING else 0


def truncates(op: Op) -> bool:
    """Whether a `narrow` only truncates toward zero."""
    return op.attribute("rounding") == "truncate"


def centre_of(op: Op) -> float:
    """The integer that a `narrow` to the nearest adds after rounding."""
    return op.number("centre") if "centre" in dict(op.attributes) else 0.0


def scratch_tiles(op: Op) -> int:
    """Number of further tiles that the operator needs: registers of a function, or of a reciprocal and one for its
    result."""
    if op.kind == "div":
        return len(registers(DIVISOR)) + 1
    if op.kind == "add_scaled":
        return 1
    return len(registers(curve(op))) if op.kind in CURVES else 0


def apply(
    tile: Tile, issue: InstructionBuilder, op: Op, current: MatrixPlace, output: MatrixPlace, prefix: str
) -> Iterator[Instr]:
    """Compute `output` = `op` of the running value `current`; the names of the other operands' buffers begin with
    `prefix`."""
    if op.kind == "lookup":
        table = tile.matrix(f"{prefix}.{table_operand(op)}", 1, LOOKUP_BYTES // current.item_bytes)
        yield from issue.lookup(output, current, table)
    elif op.kind in CONVERTING:
        yield from _converted(tile, issue, op, current, output, prefix)
    elif op.kind in UNARY:
        yield from _unary(issue, op, current, output)
    elif op.kind in CURVES:
        yield from _computed(tile, issue, curve(op), current, output)
    elif op.kind == "scale_shift":
        for mnemonic, name, source in zip(("veemul", "veadd"), op.inputs[1:], (current, output), strict=True):
            if is_immediate(tile.graph, name):  # of a single channel
                yield from issue.scalar(mnemonic, output, source, scalar_value(tile.graph, tile.constants, name))
            else:
                yield from issue.by_column(mnemonic, output, source, _operand(tile, name, op, prefix))
    else:
        yield from _binary(tile, issue, op, current, output, prefix)


def _converted(
    tile: Tile, issue: InstructionBuilder, op: Op, current: MatrixPlace, output: MatrixPlace, prefix: str
) -> Iterator[Instr]:
    if op.kind == "widen":
        yield from issue.widen(output, current)
    elif op.kind == "narrow":
        if not truncates(op):
            yield from issue.scalar("veadd", output, current, ROUNDING_OFFSET)
            yield from issue.scalar("veadd", output, output, centre_of(op) - ROUNDING_OFFSET)
            current = output
        yield from issue.narrow(tile.result, current)
    else:
        operand = _operand(tile, op.inputs[1], op, prefix)
        operand = operand.reshaped(output.rows, output.columns) if operand.dense else operand
        scratch = tile.scratch(output.rows, output.columns)
        yield from issue.widen(scratch, operand)
        yield from issue.scalar("veemul", scratch, scratch, op.number("scale"))
        yield from issue.binary("veadd", output, current, scratch)


def _binary(
    tile: Tile, issue: InstructionBuilder, op: Op, current: MatrixPlace, output: MatrixPlace, prefix: str
) -> Iterator[Instr]:
    inside = {name for layer_op in tile.layer.ops for name in tile.graph.op_by_name[layer_op].outputs}
    running = next((name for name in op.inputs if name in inside), "") or running_operand(tile.graph, op)
    other = next((name for name in op.inputs if name != running), running)
    swapped = op.inputs[1] == running != other
    if is_immediate(tile.graph, other) and other != running:
        value = scalar_value(tile.graph, tile.constants, other)
        yield from _with_scalar(tile, issue, op.kind, current, output, value, swapped)
        return
    operand = current if other == running else _operand(tile, other, op, prefix)
    mnemonic = BINARY[op.kind]
    if op.kind == "sub" and swapped:
        yield from issue.scalar("veemul", output, current, -1.0)
        current, mnemonic = output, "veadd"
    elif op.kind == "div" and swapped:
        yield from _computed(tile, issue, DIVISOR, current, output)
        current = output
    elif op.kind == "div":
        scratch = tile.scratch(operand.rows, operand.columns)
        yield from _computed(tile, issue, DIVISOR, operand, scratch, 1)
        operand = scratch
    shape = box_shape(tile.box)
    padded = padded_shape(tile.graph, other, op.outputs[0])
    met = tuple(min(extent, full) for extent, full in zip(padded, shape, strict=True))
    yield from combine(issue, mnemonic, output, current, operand, shape, met)


def _with_scalar(
    tile: Tile,
    issue: InstructionBuilder,
    kind: str,
    current: MatrixPlace,
    output: MatrixPlace,
    value: float,
    swapped: bool,
) -> Iterator[Instr]:
    if kind == "sub" and swapped:
        yield from issue.scalar("veemul", output, current, -1.0)
        yield from issue.scalar("veadd", output, output, value)
    elif kind == "div" and swapped:
        yield from _computed(tile, issue, DIVISOR, current, output)
        yield from issue.scalar("veemul", output, output, value)
    elif kind == "div":
        yield from issue.scalar("veemul", output, current, 1.0 / value if value else copysign(inf, value))
    else:
        yield from issue.scalar(BINARY[kind], output, current, value)


def _unary(issue: InstructionBuilder, op: Op, current: MatrixPlace, output: MatrixPlace) -> Iterator[Instr]:
    match op.kind:
        case "relu":
            yield from issue.scalar("vemax", output, current, 0.0)
        case "leaky_relu":
            yield from issue.scalar("velkrelu", output, current, op.number("alpha"))
        case "clip":
            yield from _clip(issue, current, output, op.number("min"), op.number("max"))
        case "neg":
            yield from issue.scalar("veemul", output, current, -1.0)
        case "abs":
            yield from issue.scalar("velkrelu", output, current, -1.0)
        case "hard_sigmoid":
            yield from issue.scalar("veemul", output, current, op.number("alpha"))
            yield from issue.scalar("veadd", output, output, op.number("beta"))
            yield from _clip(issue, output, output, 0.0, 1.0)


def _computed(
    tile: Tile, issue: InstructionBuilder, steps: Sequence[VectorStep], x: MatrixPlace, y: MatrixPlace, first: int = 0
) -> Iterator[Instr]:
    """The instructions from `x` to `y`; the registers of the steps are scratch tiles from number `first` on."""
    names = registers(steps)
    scratch = {name: tile.scratch(x.rows, x.columns, number) for number, name in enumerate(names, first)}
    yield from instructions(steps, issue, {"x": x, "y": y, **scratch})


def _clip(
    issue: InstructionBuilder, current: MatrixPlace, output: MatrixPlace, low: float, high: float
) -> Iterator[Instr]:
    yield from issue.scalar("vemax", output, current, low)
    yield from issue.scalar("vemin", output, output, high)


def _operand(tile: Tile, name: str, op: Op, prefix: str) -> MatrixPlace:
    """An operand of the tile: a matrix like the output's where it has a pitch, else one row of all its elements."""
    buffer = f"{prefix}.{name}"
    if buffer in tile.pitches_bytes:
        return tile.matrix(buffer, tile.output.rows, tile.output.columns)
    return tile.matrix(buffer, 1, prod(box_shape(operand_box(tile.graph, name, op.outputs[0], tile.box))))


def scalar_value(graph: Graph, constants: Constants, name: str) -> float:
    """The value of a one-element constant, as the device's fp16 value."""
    return float(constants[graph.by_name[name].constant].reshape(-1)[0])
