"""Caches that stay where they are: which writes of rows into an input are its next value, and may be done in its place.

    TensorScatter(past, rows, place) = present    present is the next value of the input past, and only attention
                                                  reads it: attention may read past and the rows apart instead, and the
                                                  rows are written after everything else
    Transpose, ScatterND, Transpose back          the same, as PyTorch's exporter writes it

Pairs of an input and its next value are known by names, or said (`artifact/state_names.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dsa_sched.artifact.state_names import state_of
from dsa_sched.frontend.decomposition.attention import in_heads
from dsa_sched.frontend.decomposition.mask_columns import knows_columns
from dsa_sched.frontend.integers.preparation import preparing
from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import FLOATING, Network, Node
from partitioner.ir.decisions import Decision
from partitioner.ir.operators import Trait, onnx_names

VERDICT = "cache"
"""Verdict of the decisions about writes into caches."""
ROWS_FIRST, BACK = (2, 0, 1, 3), (1, 2, 0, 3)
"""Permutations with which PyTorch's exporter puts the rows of a cache first and back."""
PASSES = onnx_names(Trait.VIEW) | {"Cast"}
"""Operators that leave integers as they are."""
MOVED = onnx_names(Trait.VIEW, Trait.MOVES) | {"Cast"}
"""Operators whose result may have the bytes of its operand."""


@dataclass(frozen=True, slots=True)
class Write:
    """`count` rows of `update` that are written into the input `cache`, of four axes: from the rows `places` on, one
    place per item, and from the first row on where there is none; or, with `each`, at a place of its own for each row,
    the same for all items. The axes of the update are put into the `order` of the cache, if one is given."""

    cache: str
    update: str
    places: str
    count: int
    each: bool = False
    order: tuple[int, ...] = ()


def require_pairs(network: Network, given: Mapping[str, str]) -> None:
    """Raises ModelError for pairs `given` as output=input that do not go together."""
    if given:
        state_of(_NamedEnds(network), given)


def writes_in_place(network: Network, given: Mapping[str, str]) -> tuple[dict[str, Write], list[Decision]]:
    """Writes by the outputs that they make, and a decision about each write whose output is an input's next value, as
    names say or as is `given`, as output=input."""
    pairs, prepares = state_of(_NamedEnds(network), given), preparing(network)
    found: dict[str, Write] = {}
    decided: dict[str, Decision] = {}
    for node in network.nodes:
        output = node.outputs[0]
        write = _write(network, node) if output in pairs else None
        if write is None or pairs[output] != write.cache:
            continue
        problem = _problem(network, output, write, prepares)
        if not problem:
            found[output] = write
        rows = f"{write.count} of {network.shape(write.cache)[2]} rows"
        decided[output] = Decision(node.name, VERDICT, problem or f"{rows} are written in the place of {write.cache}")
    while unread := [name for name in found if not _read_apart(network, name, found, prepares)]:
        for name in unread:
            del found[name]
            reason = "written whole, since more than an attention with a mask of integers reads it"
            decided[name] = Decision(decided[name].subject, VERDICT, reason)
    return found, [*decided.values()]


def _write(network: Network, node: Node) -> Write | None:
    """The write that a node makes or ends; None for others."""
    if node.op_type == "TensorScatter":
        cache, update = node.inputs[:2]
        shape, new, rank = network.known_shape(cache) or (), network.known_shape(update) or (), 4
        linear = node.integer("axis", -2) % rank == 2 and node.text("mode", "linear") == "linear"
        fits = len(shape) == len(new) == rank and (*shape[:2], shape[3]) == (*new[:2], new[3])
        return Write(cache, update, node.input(2), new[2]) if linear and fits else None
    if node.op_type != "Transpose" or node.integers("perm", ()) != BACK:
        return None
    writer = network.producer.get(node.inputs[0])
    before = network.producer.get(writer.inputs[0]) if writer is not None and writer.op_type == "ScatterND" else None
    if writer is None or before is None or before.op_type != "Transpose" or before.integers("perm", ()) != ROWS_FIRST:
        return None
    known = [network.known_shape(name) or () for name in writer.inputs]
    (rows, *rest), places, new = known if all(known) else ((0,), (), ())
    fits = len(places) == 2 and places[1] == 1 and new == (places[0], *rest)
    alone = all(len(network.readers[made.outputs[0]]) == 1 for made in (before, writer))
    if not (rows and fits and alone) or writer.text("reduction", "none") != "none":
        return None
    order: tuple[int, ...] = BACK
    update = writer.inputs[2]
    made = network.producer.get(update)
    if made is not None and made.op_type == "Transpose" and made.integers("perm", ()) == ROWS_FIRST:
        update, order = made.inputs[0], ()
    return Write(before.inputs[0], update, writer.inputs[1], new[0], True, order)


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


def _problem(network: Network, output: str, write: Write, prepares: Callable[[str], bool]) -> str:
    """Why a write cannot be done in the place of its input; empty where it can."""
    cache, update, places = write.cache, write.update, write.places
    items, _, rows, _ = network.shape(cache)
    if not 0 < write.count < rows:
        return "written whole, since all of its rows are new"
    if network.values[cache].dtype not in FLOATING:
        return "written whole, since its elements are no floating-point numbers"
    if _is_given(network, update):
        return "written whole, since the rows are given as they are"
    if len(network.readers[cache]) > 1:
        return f"written whole, since more than this reads {cache}"
    if network.outputs.count(output) != 1 or cache in network.outputs:
        return "written whole, since it is several outputs"
    if places and not write.each and network.known_shape(places) != (items,):
        return "written whole, since it has not one place per item"
    if places and not prepares(places):
        return "written whole, since its places are not computed of integers alone"
    return ""


def _is_given(network: Network, name: str) -> bool:
    """Whether a value may have the bytes of an input or of a constant."""
    while (node := network.producer.get(name)) is not None and node.op_type in MOVED:
        name = node.inputs[0]
    return name in network.inputs or name in network.constants


def _read_apart(network: Network, name: str, found: Mapping[str, Write], prepares: Callable[[str], bool]) -> bool:
    """Whether all that reads a written cache can read its old rows and the new ones apart."""
    return all(_can_read_apart(network, node, found, prepares) for node in network.readers.get(name, ()))


def _can_read_apart(network: Network, node: Node, found: Mapping[str, Write], prepares: Callable[[str], bool]) -> bool:
    """Whether a node is attention to rows that are written at the same places of two caches, with a mask of which it is
    known what it says of a place."""
    if node.op_type != "Attention" or any([*node.inputs[4:6], *node.outputs[1:]]):
        return False
    k, v = (found.get(name) for name in node.inputs[1:3])
    if k is None or v is None or not {node.inputs[0], *node.inputs[3:]}.isdisjoint(node.inputs[1:3]):
        return False
    items, _, room, _ = network.shape(k.cache)
    if (k.places, k.count, k.each) != (v.places, v.count, v.each) or in_heads(Chain(network, node), node) is None:
        return False
    mask = node.input(3)
    if not mask:
        return True
    shape, places = network.known_shape(mask) or (), (1 if k.each else items, 1, 1, k.count)
    return 0 < len(shape) <= 4 and shape[-1] in (1, room) and knows_columns(network, mask, places, prepares)


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
