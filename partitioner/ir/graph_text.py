"""The parser of the text form of a graph, which has one line per tensor, operator and stage.

str(graph) --> graph / tensor / prepared / op / stage / concluded, a line each  --parse_graph--> the same Graph
"""

from __future__ import annotations

from partitioner.ir.access import View, access_from_json
from partitioner.ir.graph import Attribute, Axis, Graph, LoopNest, Op, Tensor
from partitioner.ir.quantisation import quantisation_of
from partitioner.ir.text import Fields, Json, TextError, as_ints, as_names, parse_lines

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
