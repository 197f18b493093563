"""Everything of a model that cannot be compiled, in one list, by the names that nodes have in the user's file.

    nodes without a rule, rules that refuse, what the chip cannot compute  -->  one Unsupported

Readable parts are judged even if other parts of the model cannot be read: a refused node is cut out, its results become
inputs of the rest and its operands outputs of it, and the rest goes on to the next judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import helper

from dsa_sched.frontend.network.network import Array, Network, Value, graphs_of
from dsa_sched.frontend.network.shapes import initializer_names, shape_text
from hw_models.errors import ModelError
from partitioner.ir.graph import Graph, Op
from partitioner.ir.target import WeightPacking, WeightUse
from partitioner.ir.wants import Wants

Refuses = Callable[[Graph, Mapping[str, Array]], Sequence[tuple[Op, str]]]
"""The operators of a graph that a chip cannot compute, each with the reason."""


TableFor = Callable[[Graph, Op], Array | None]
"""The table of an operator of one operand, with entries by its bits; None for an operator that is not looked up."""


Packs = Callable[[WeightUse], WeightPacking]
"""Whether weights that are int8 in the file stay int8 in one use of them by values in floating point."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Questions of the frontend to a target: how it wants the graph, what of it its chip cannot compute (None where
    refusals are not asked for), which operators it looks up in tables, and which weights stay int8 next to values in
    floating point (None where it packs none).
    """

    wants: Wants
    refuses: Refuses | None = None
    table_for: TableFor | None = None
    packing: Packs | None = None


PLACE = (
    "--host (of compile and verify) leaves such operators to the host; `dsa-sched place MODEL --scenario FILE` gives "
    "such layers to other devices (docs/placement.md)"
)


@dataclass(frozen=True, slots=True)
class RefusedNode:
    """A node of the file that cannot be compiled. `shapes` are those of its operands, `?` where it is unknown; a
    `standard` node is an operator of ONNX, which other devices may know.
    """

    name: str
    op_type: str
    shapes: tuple[str, ...]
    reason: str
    standard: bool = True

    def __str__(self) -> str:
        return f"{self.op_type} {self.name} ({', '.join(self.shapes)}): {self.reason}"


class Unsupported(ModelError):
    """Raised with all nodes of a model that cannot be compiled. With `place`, other devices can take them."""

    def __init__(self, who: str, refused: tuple[RefusedNode, ...], *, place: bool = False) -> None:
        several = "s" if len(refused) > 1 else ""
        super().__init__(f"{who}: {len(refused)} unsupported operator{several}", change=PLACE if place else "")
        self.refused = refused

    def __str__(self) -> str:
        return "\n".join((self.who, *(f"  {node}" for node in self.refused), *([self.change] if self.change else [])))


def refused_nodes(
    model: onnx.ModelProto, values: Mapping[str, Value], refusals: Iterable[tuple[str, str, str]]
) -> tuple[RefusedNode, ...]:
    """Refusals of operators of ours, as (name, ONNX operator, reason), by the nodes of the file that they come from.
    Several refusals of one node become one line; constants of the file count as values."""
    places = {proto.name: number for number, proto in enumerate(model.graph.node)}
    found: dict[str, dict[str, None]] = {}
    types: dict[str, str] = {}
    for name, op_type, reason in refusals:
        own = _file_name(name, places)
        found.setdefault(own, {})[reason] = None
        types[own] = model.graph.node[places[own]].op_type if own in places else op_type
    known = dict(values) | {item.name: Value(tuple(item.dims), item.data_type) for item in model.graph.initializer}
    return tuple(
        RefusedNode(name, types[name], _shapes(model, places.get(name), known), "; ".join(found[name]))
        for name in found
    )


def _file_name(name: str, places: Mapping[str, int]) -> str:
    """File's name of a node: `norm::3::kept` -> `norm`. Rewrites and rules append to the name of a node of the file."""
    short = name
    while short not in places:
        short, separator, _ = short.rpartition("::")
        if not separator:
            return name
    return short


def _shapes(model: onnx.ModelProto, place: int | None, values: Mapping[str, Value]) -> tuple[str, ...]:
    names = [] if place is None else [name for name in model.graph.node[place].input if name]
    return tuple(shape_text(values[name].shape) if name in values else "?" for name in names)


def network_without(network: Network, dropped: frozenset[str]) -> Network:
    """The network without the nodes of these names. All values that cross the cut must have shapes."""
    nodes = tuple(node for node in network.nodes if node.name not in dropped)
    made = {name for node in nodes for name in node.outputs if name}
    known = {*made, *network.inputs, *network.constants}
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name and name not in known)
    lost = (name for node in network.nodes if node.name in dropped for name in node.inputs if name in made)
    kept = (name for name in network.outputs if name in known)
    return replace(
        network, nodes=nodes, inputs=(*network.inputs, *read), outputs=tuple(dict.fromkeys((*kept, *lost)))
    ).pruned()


def model_without(
    model: onnx.ModelProto, dropped: frozenset[str], values: Mapping[str, Value]
) -> onnx.ModelProto | None:
    """The model without the nodes of these names, and without those that would then read a value of unknown shape. None
    where nothing is left. `model` is not changed.
    """
    given = {item.name for item in model.graph.input} | initializer_names(model)
    kept: list[onnx.NodeProto] = []
    made, entering, lost = set[str](), dict[str, None](), dict[str, None]()
    for node in model.graph.node:
        read = dict.fromkeys(node_reads(node))
        unknown = [name for name in read if name not in made and name not in given]
        if node.name in dropped or any(name not in values or not values[name].dtype for name in unknown):
            lost.update(read)
            continue
        entering.update(dict.fromkeys(unknown))
        made.update(filter(None, node.output))
        kept.append(node)
    if not kept:
        return None
    rest = onnx.ModelProto()
    rest.CopyFrom(model)
    for field in (rest.graph.node, rest.graph.output, rest.functions):
        del field[:]
    rest.graph.node.extend(kept)
    rest.graph.input.extend(_typed(name, values[name]) for name in entering)
    rest.graph.output.extend(item for item in model.graph.output if item.name in made or item.name in given)
    leaving = [name for name in lost if name in made and name in values and values[name].dtype]
    listed = {item.name for item in rest.graph.output}
    rest.graph.output.extend(_typed(name, values[name]) for name in leaving if name not in listed)
    return rest


def _typed(name: str, value: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, value.dtype, value.shape)


def node_reads(node: onnx.NodeProto) -> Iterator[str]:
    """Values that a node reads, including those that graphs inside it read."""
    yield from filter(None, node.input)
    for graph in graphs_of(node):
        for inner in graph.node:
            yield from node_reads(inner)
