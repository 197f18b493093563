"""How the array finishes a layer: which values it adds to the sums of products, and how they become int8.

    round(scale * (sums + factor * value + ...)), bounded below by an activation

A value of int8 that is added is one of the array's terms if its scale is a whole number of units of the sums: `factor`.
The sum is then exact, as that of the products is. Files have such scales by chance; `dsa-sched quantize --per-layer`
chooses scales of weights so that they do.
"""

from __future__ import annotations

from dataclasses import dataclass

from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer

MOST_WHOLE = 1 << 16
"""Largest whole number that a value is multiplied by: a pass of the array multiplies by 127 at most."""

NEAREST_WHOLE = 2.0**-20
"""Largest distance, relative to it, of a ratio of scales from a whole number: three roundings to float32 move a ratio
by less."""


@dataclass(frozen=True, slots=True)
class AddedTerm:
    """A value of int8 that is added to the sums, times a whole number."""

    name: str
    factor: int


@dataclass(frozen=True, slots=True)
class Finish:
    """How sums become the result: `terms` are added, all is scaled once, with or without Relu, on the array; or the
    core does what follows the products."""

    on_array: bool
    relu: bool = False
    scale: float = 0.0
    terms: tuple[AddedTerm, ...] = ()


BY_CORE = Finish(False)


def groups_of(anchor: Op) -> int:
    """Groups of channels of a convolution; a matrix product has one."""
    return int(anchor.number("groups")) if anchor.kind == "conv" else 1


def finish_of(graph: Graph, constants: Constants, layer: Layer) -> Finish:
    """How the sums of a product layer become its result."""
    anchor, epilogue = layer.anchor(graph), layer.epilogue(graph)
    scale = constants.get(graph.by_name[anchor.inputs[2]].constant or "")
    if scale is None or scale.size != 1 or not epilogue or not _rounds(epilogue[-1]):
        return BY_CORE
    factor = float(scale.reshape(-1)[0])
    kinds = [op.kind for op in epilogue[:-1]]
    relu = kinds[-1:] == ["relu"]
    terms = [_term(graph, op, factor) for op in epilogue[: len(kinds) - int(relu)]]
    found = [term for term in terms if term is not None]
    if len(found) < len(terms) or len({term.name for term in found}) < len(found) or (found and groups_of(anchor) > 1):
        return BY_CORE
    return Finish(True, relu, factor, tuple(found))


def _rounds(op: Op) -> bool:
    attributes = dict(op.attributes)
    return op.kind == "narrow" and attributes.get("rounding") == "nearest" and "centre" not in attributes


def _term(graph: Graph, op: Op, scale: float) -> AddedTerm | None:
    """What an operator adds, in whole units of a scale; None where it does something else."""
    if op.kind != "add_scaled" or graph.by_name[op.inputs[1]].shape != graph.by_name[op.outputs[0]].shape:
        return None
    ratio = op.number("scale") / scale if scale else 0.0
    whole = round(ratio) if abs(ratio) <= MOST_WHOLE else 0
    return AddedTerm(op.inputs[1], whole) if whole >= 1 and abs(ratio - whole) <= NEAREST_WHOLE * whole else None


def added_values(graph: Graph, layer: Layer) -> tuple[str, ...]:
    """Values of int8 and of the result's shape that operators after a product add: perhaps terms, by their scales."""
    shape = graph.by_name[layer.output].shape
    added = (op.inputs[1] for op in layer.epilogue(graph) if op.kind == "add_scaled")
    return tuple(dict.fromkeys(name for name in added if graph.by_name[name].shape == shape))
