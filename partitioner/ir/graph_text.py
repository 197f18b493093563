"""The text form of a graph: one line per tensor, operator and stage, and its parser.

str(graph) --> graph / tensor / prepared / op / stage / concluded, a line each  --parse_graph--> the same Graph
"""

from __future__ import annotations

from partitioner.ir.access import View, access_from_json, access_to_json
from partitioner.ir.graph import Attribute, Axis, Graph, LoopNest, Op, Tensor
from partitioner.ir.quantisation import quantisation_of
from partitioner.ir.text import Fields, Json, TextError, as_ints, as_names, format_line, parse_lines


def format_graph(graph: Graph) -> str:
    """The text form, with one tensor, operator or stage per line."""
    header = (("name", graph.name), ("inputs", graph.inputs), ("outputs", graph.outputs))
    further = (("raw", graph.raw), ("answers", graph.answers))
    lines = [format_line("graph", *header, *((name, names) for name, names in further if names))]
    for t in graph.tensors:
        extra: list[tuple[str, object]] = [("constant", t.constant)] if t.constant else []
        extra += [("quantisation", t.quantisation.json())] if t.quantisation else []
        lines.append(
            "  "
            + format_line(
                "tensor",
                ("name", t.name),
                ("dtype", t.dtype),
                ("shape", t.shape),
                ("axes", t.axes),
                ("source_dtype", t.source_dtype),
                *extra,
            )
        )
    lines += ["  " + _format_op("prepared", op) for op in graph.prepared]
    for op in graph.ops:
        lines.append("  " + _format_op("op", op))
        for s in op.stages:
            domain = " ".join(f"{'+' if a.reduce else ''}{a.name}:{a.extent}" for a in s.domain)
            lines.append(
                "    "
                + format_line(
                    "stage",
                    ("name", s.name),
                    ("domain", domain),
                    ("writes", access_to_json(s.writes)),
                    ("reads", [access_to_json(r) for r in s.reads]),
                )
            )
    lines += ["  " + _format_op("concluded", op) for op in graph.concluded]
    return "\n".join(lines) + "\n"


def _format_op(tag: str, op: Op) -> str:
    return format_line(
        tag,
        ("name", op.name),
        ("kind", op.kind),
        ("inputs", op.inputs),
        ("outputs", op.outputs),
        ("attributes", dict(op.attributes)),
        ("macs", op.macs),
        ("source", op.source),
    )


TAGS = frozenset({"graph", "tensor", "prepared", "op", "stage", "concluded"})


def parse_graph(text: str) -> Graph:
    """The converse of `str(graph)`. Raises TextError naming the line."""
    header: tuple[str, tuple[str, ...], tuple[str, ...]] | None = None
    raw: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    around: dict[str, list[Op]] = {"prepared": [], "concluded": []}
    tensors: list[Tensor] = []
    ops: list[tuple[Fields, list[LoopNest]]] = []
    for number, tag, fields in parse_lines(text):
        if tag not in TAGS:
            raise TextError(who=f"line {number}", needs="graph, tensor, prepared, op, stage or concluded", has=tag)
        try:
            match tag:
                case "graph":
                    header = str(fields["name"]), as_names(fields["inputs"]), as_names(fields["outputs"])
                    raw = as_names(fields["raw"]) if "raw" in fields else ()
                    answers = as_names(fields["answers"]) if "answers" in fields else ()
                case "prepared" | "concluded":
                    around[tag].append(_op(fields, []))
                case "tensor":
                    tensors.append(_tensor(fields))
                case "op":
                    ops.append((fields, []))
                case _:
                    ops[-1][1].append(_stage(fields))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise TextError(who=f"line {number}", needs=f"a complete {tag} line", has=f"{error!r}") from error
        except TextError as error:
            raise TextError(who=f"line {number}, {error.who}", needs=error.needs, has=error.has) from error
    if header is None:
        raise TextError(who="text", needs="a graph line first")
    found = tuple(_op(fields, stages) for fields, stages in ops)
    return Graph(*header, found, tuple(tensors), tuple(around["prepared"]), raw, tuple(around["concluded"]), answers)


def _tensor(fields: Fields) -> Tensor:
    return Tensor(
        str(fields["name"]),
        as_ints(fields["shape"]),
        str(fields["dtype"]),
        as_ints(fields["axes"]),
        str(fields["source_dtype"]),
        str(fields.get("constant", "")),
        quantisation_of(fields.get("quantisation")),
    )


def _stage(fields: Fields) -> LoopNest:
    domain = []
    for item in str(fields["domain"]).split():
        name, extent = item.removeprefix("+").split(":")
        domain.append(Axis(name, int(extent), item.startswith("+")))
    writes, reads = access_from_json(fields["writes"]), fields["reads"]
    if isinstance(writes, View) or not isinstance(reads, list):
        raise TypeError("writes is an access, reads a list of them")
    return LoopNest(str(fields["name"]), tuple(domain), writes, tuple(access_from_json(r) for r in reads))


def _op(fields: Fields, stages: list[LoopNest]) -> Op:
    attributes, macs = fields["attributes"], fields["macs"]
    if not isinstance(attributes, dict) or not isinstance(macs, int):
        raise TypeError("attributes is an object, macs an integer")
    return Op(
        str(fields["name"]),
        str(fields["kind"]),
        as_names(fields["inputs"]),
        as_names(fields["outputs"]),
        tuple((key, _attribute(value)) for key, value in attributes.items()),
        tuple(stages),
        macs,
        str(fields["source"]),
    )


def _attribute(value: Json) -> Attribute:
    match value:
        case list():
            return tuple(v for v in value if isinstance(v, (int, float)))
        case str() | int() | float():
            return value
    raise TypeError(f"attribute {value!r}")
