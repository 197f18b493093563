"""Programs from their text form (`isched/program/program.py`)."""

from __future__ import annotations

from isched.program.program import Instr, Program, Region, Stream, TensorPlacement
from partitioner.ir.text import Fields, Json, TextError, as_int, parse_lines

__all__ = ["parse_program"]


def parse_program(text: str) -> Program:
    """The converse of `str(program)`. Raises TextError naming the line."""
    header: Fields = {}
    placements: list[TensorPlacement] = []
    streams: list[tuple[int, list[Instr]]] = []
    for number, tag, fields in parse_lines(text):
        try:
            match tag:
                case "program":
                    header = fields
                case "place":
                    placements.append(_parse_placement(fields))
                case "core":
                    streams.append((as_int(fields["id"]), []))
                case "instr":
                    streams[-1][1].append(_parse_instr(fields))
                case _:
                    raise TextError(who=f"line {number}", needs="program, place, core or instr", has=tag)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise TextError(who=f"line {number}", needs=f"a complete {tag} line", has=repr(error)) from error
    try:
        return Program(
            str(header["name"]),
            str(header["chip"]),
            as_int(header["cluster"]),
            str(header["barrier"]),
            tuple(placements),
            tuple(Stream(core, tuple(instrs)) for core, instrs in streams),
        )
    except (KeyError, TypeError) as error:
        raise TextError(who="text", needs="a complete program line first", has=repr(error)) from error


def _parse_placement(fields: Fields) -> TensorPlacement:
    return TensorPlacement(
        str(fields["tensor"]),
        str(fields["kind"]),
        str(fields["memory"]),
        as_int(fields["offset_bytes"]),
        as_int(fields["size_bytes"]),
        str(fields["of"]),
    )


def _parse_region(value: Json) -> Region:
    if not isinstance(value, list) or len(value) != 5:
        raise TypeError(f"a region of five fields, not {value!r}")
    memory, *numbers = value
    offset, row, rows, stride = (as_int(number) for number in numbers)
    return Region(str(memory), offset, row, rows, stride)


def _parse_instr(fields: Fields) -> Instr:
    operands, reads, writes, cycles = fields["operands"], fields["reads"], fields["writes"], fields["cycles"]
    if not isinstance(operands, dict) or not isinstance(reads, list) or not isinstance(writes, list):
        raise TypeError("operands is an object; reads and writes are lists")
    if not isinstance(cycles, (int, float)):
        raise TypeError("cycles is a number")
    return Instr(
        str(fields["engine"]),
        str(fields["opcode"]),
        tuple((key, as_int(value)) for key, value in operands.items()),
        tuple(_parse_region(region) for region in reads),
        tuple(_parse_region(region) for region in writes),
        cycles,
        str(fields["source"]),
        str(fields.get("starts", "")),
        str(fields.get("awaits", "")),
        as_int(fields.get("meets", 0)),
    )
