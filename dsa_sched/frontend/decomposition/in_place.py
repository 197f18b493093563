"""Caches that stay where they are: which writes of rows into an input are its next value, and may be done in its place.

    TensorScatter(past, rows, place) = present    present is the next value of the input past, and only attention
                                                  reads it: attention may read past and the rows apart instead, and the
                                                  rows are written after everything else

Pairs of an input and its next value are known by names, or said (`artifact/state_names.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsa_sched.artifact.state_names import state_of
from dsa_sched.frontend.integers.preparation import prepares
from dsa_sched.frontend.network.network import FLOATING, Network, Node
from partitioner.ir.decisions import Decision
from partitioner.ir.operators import Trait, onnx_names

VERDICT = "cache"
"""Verdict of the decisions about writes into caches."""
PASSES = onnx_names(Trait.VIEW) | {"Cast"}
"""Operators that leave integers as they are."""


@dataclass(frozen=True, slots=True)
class Write:
    """`count` rows of `update` that are written into the input `cache` from the rows `places` on, one place per item;
    from the first row on where there is none."""

    cache: str
    update: str
    places: str
    count: int


def writes_in_place(network: Network, given: Mapping[str, str]) -> tuple[dict[str, Write], list[Decision]]:
    """Writes by the outputs that they make, and a decision about each write whose output is an input's next value.
    Raises ModelError for pairs `given` as output=input that do not go together."""
    pairs = state_of(_NamedEnds(network), given)
    found: dict[str, Write] = {}
    decided: dict[str, Decision] = {}
    for node in network.nodes:
        output = node.outputs[0]
        if node.op_type != "TensorScatter" or pairs.get(output) != node.inputs[0]:
            continue
        write = Write(node.inputs[0], node.inputs[1], node.input(2), network.shape(node.inputs[1])[-2])
        problem = _problem(network, node)
        if not problem:
            found[output] = write
        rows = f"{write.count} of {network.shape(node.inputs[0])[-2]} rows"
        decided[output] = Decision(node.name, VERDICT, problem or f"{rows} are written in the place of {write.cache}")
    while unread := [name for name in found if not _read_apart(network, name, found)]:
        for name in unread:
            del found[name]
            reason = "written whole, since more than an attention without a mask of its own reads it"
            decided[name] = Decision(decided[name].subject, VERDICT, reason)
    return found, [*decided.values()]


@dataclass(frozen=True, slots=True)
class _NamedEnd:
    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _NamedEnds:
    network: Network

    @property
    def inputs(self) -> tuple[_NamedEnd, ...]:
        return tuple(self._known(self.network.inputs))

    @property
    def outputs(self) -> tuple[_NamedEnd, ...]:
        return tuple(self._known(self.network.outputs))

    def _known(self, names: tuple[str, ...]) -> Iterator[_NamedEnd]:
        for name in names:
            shape = self.network.known_shape(name)
            if shape is not None:
                yield _NamedEnd(name, shape)


def _problem(network: Network, node: Node) -> str:
    """Why a write of rows cannot be done in the place of its input; empty where it can."""
    cache, update, places = node.inputs[0], node.inputs[1], node.input(2)
    shape, new, rank = network.shape(cache), network.shape(update), len(network.shape(cache))
    if rank != 4 or node.integer("axis", -2) % rank != rank - 2 or node.text("mode", "linear") != "linear":
        return "written whole, since its rows are no whole rows of heads"
    if (*shape[:2], shape[3]) != (*new[:2], new[3]) or not 0 < new[2] < shape[2]:
        return "written whole, since all of its rows are new"
    if network.values[cache].dtype not in FLOATING or network.values[update].dtype != network.values[cache].dtype:
        return "written whole, since its numbers have another type"
    if update in network.inputs or update in network.constants:
        return "written whole, since the rows are given as they are"
    if len(network.readers[cache]) > 1:
        return f"written whole, since more than this reads {cache}"
    if network.outputs.count(node.outputs[0]) != 1 or cache in network.outputs:
        return "written whole, since it is several outputs"
    if places and (network.known_shape(places) != shape[:1] or not prepares(network, places)):
        return "written whole, since its place is not computed of integers alone"
    return ""


def _read_apart(network: Network, name: str, found: Mapping[str, Write]) -> bool:
    """Whether all that reads a written cache can read its old rows and the new ones apart."""
    return all(reads_apart(node, found) for node in network.readers.get(name, ()))


def reads_apart(node: Node, found: Mapping[str, Write]) -> bool:
    """Whether a node is attention to rows that are written at the same places of two caches."""
    if node.op_type != "Attention" or any([*node.inputs[3:6], *node.outputs[1:]]):
        return False
    k, v = (found.get(name) for name in node.inputs[1:3])
    if k is None or v is None or not {node.inputs[0], *node.inputs[3:]}.isdisjoint(node.inputs[1:3]):
        return False
    return (k.places, k.count) == (v.places, v.count)


def difference(network: Network, a: str, b: str) -> int | None:
    """a - b, where both follow from one integer value by constants alone; None where they do not."""
    (first, more), (second, less) = (_followed(network, name) for name in (a, b))
    return more - less if first == second else None


def _followed(network: Network, name: str) -> tuple[str, int]:
    """The value from which an integer value follows by adding a constant."""
    total = 0
    while (node := network.producer.get(name)) is not None:
        if node.op_type in PASSES:
            name = node.inputs[0]
            continue
        constants = [network.constants.get(each) for each in node.inputs]
        if node.op_type not in ("Add", "Sub") or constants[1] is None or constants[1].size != 1:
            break
        value = int(constants[1].reshape(-1)[0])
        name, total = node.inputs[0], total + (value if node.op_type == "Add" else -value)
    return name, total
