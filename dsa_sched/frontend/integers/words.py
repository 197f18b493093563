"""Values of integers as 32-bit words, and the prepared operators that make them.

    Equal(ids, 1)  --WordMaker.word-->  the name of the words that hold it in row-major order, and Ops that compute them

Rules make each ONNX operator out of a few kinds: functions of one element of each operand (`words`), words at
places (`take`), sums that run (`cumsum`), reductions along lines (`reduce`), operands side by side (`join`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isqrt, prod

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.network.network import FLOATING, Array, Network, Node, Value
from partitioner.ir.graph import Attribute, Op
from partitioner.ir.operators import Trait, onnx_names

Words = npt.NDArray[np.int64]

BOOL, INT32, INT64 = (int(getattr(onnx.TensorProto, name)) for name in ("BOOL", "INT32", "INT64"))
INTEGERS = frozenset([2, 3, 4, 5, INT32, INT64, BOOL])
"""TensorProto types whose values are words: UINT8 to INT16 too."""
WIDE = frozenset([INT32, INT64])
WORD_BYTES = 4
MOST_WORDS = 1 << 20
"""Largest number of elements of a value that a scalar loop makes; larger ones are refused as before."""
GATHERS = onnx_names(Trait.GATHERS)


PLACES: Mapping[str, str] = {"ArgMax": "ReduceMax", "ArgMin": "ReduceMin"}
"""Operators that say where an extreme is, and those that say what it is."""
LEAST_BLOCKED = 512
"""Extent from which on a search looks at the extremes of blocks first."""


def block_of(extent: int) -> int | None:
    """The divisor of an extent with which it takes least time to look at all blocks' extremes and at one block; None
    where it is no less than a quarter of the extent."""
    if extent < LEAST_BLOCKED:
        return None
    small = [number for number in range(1, isqrt(extent) + 1) if extent % number == 0][-1]
    return small if 4 * (small + extent // small) <= extent else None


class Unprepared(Exception):
    """Raised where a value cannot be made of words, with the reason."""


Mark = tuple[int, int, dict[str, str], dict[str, Array], dict[str, Value]]
"""State of a maker at one moment."""


@dataclass(slots=True)
class WordMaker:
    """Makes prepared operators. `integers` are inputs; `able` are values that words can be made of, by `rules`; `roots`
    are the words that hold a value; `constants` and `values` are further ones. `chosen` are integer results of computed
    numbers; nodes that read those numbers read them as words in the same order (`ordered`). `nodes` make further
    numbers of them, in the network.
    """

    network: Network
    integers: frozenset[str]
    rules: Mapping[str, Rule]
    chosen: frozenset[str] = frozenset()
    able: set[str] = field(init=False)
    numbers: frozenset[str] = field(init=False)
    ops: list[Op] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.able = set(self.integers)
        choosing = (node for node in self.network.nodes if node.outputs[0] in self.chosen)
        self.numbers = frozenset(name for node in choosing for name in node.inputs)
        for node in self.network.nodes:
            if self._is_able(node):
                self.able.update(node.outputs)

    def _is_able(self, node: Node) -> bool:
        """Whether the node reads only integers and gives integers; what a rule cannot do is found later."""
        if node.op_type not in self.rules:
            return False
        if node.outputs[0] in self.chosen:
            return self._few_chosen(node)
        if not any(name in self.able for name in node.inputs):
            return False
        known = all(not name or name in self.able or name in self.network.constants for name in node.inputs) and all(
            name in self.network.values for name in node.outputs if name
        )
        return known and all(
            self.network.values[name].dtype in INTEGERS and prod(self.shape(name)) <= MOST_WORDS
            for name in node.outputs
            if name
        )

    def _few_chosen(self, node: Node) -> bool:
        """Whether scalar loops have time for a node that chooses: for all numbers, or for blocks of them."""
        sizes = [prod(self.shape(name)) for name in (*node.inputs, *node.outputs) if name]
        block = self.block(node)
        if block is not None:
            sizes[0] = max(sizes[0] // block, sizes[0] // self.shape(node.inputs[0])[-1] * block)
        return max(sizes) <= MOST_WORDS

    def block(self, node: Node) -> int | None:
        """The size of the blocks by which a node looks for the place of an extreme among computed numbers; None where
        it is no such node, or its lines have no blocks."""
        name, shape = node.inputs[0], self.shape(node.inputs[0])
        last = node.op_type in PLACES and shape and node.integer("axis", 0) % len(shape) == len(shape) - 1
        chosen = name in self.numbers and self.dtype(name) in FLOATING and name not in self.network.constants
        return block_of(shape[-1]) if last and chosen else None

    def mark(self) -> Mark:
        """The present state, to return to where something cannot be made after all."""
        return len(self.ops), len(self.nodes), dict(self.roots), dict(self.constants), dict(self.values)

    def back_to(self, mark: Mark) -> None:
        """Return to the state at a mark."""
        count, nodes, self.roots, self.constants, self.values = mark
        del self.ops[count:], self.nodes[nodes:]

    def shape(self, name: str) -> tuple[int, ...]:
        known = self.network.known_shape(name)
        return self.values[name].shape if known is None and name in self.values else self.network.shape(name)

    def dtype(self, name: str) -> int:
        """TensorProto type of a value, computed or constant."""
        constant = self.network.constants.get(name)
        if constant is not None and name not in self.network.values:
            return int(onnx.helper.np_dtype_to_tensor_dtype(constant.dtype))
        return self.network.values[name].dtype

    def word(self, name: str) -> str:
        """Words of a value, made if they do not exist yet. Raises Unprepared."""
        if name in self.roots:
            return self.roots[name]
        if name in self.integers:
            self.roots[name] = name
        elif name in self.numbers and self.dtype(name) in FLOATING:
            self.roots[name] = self.ordered(name)
        elif name in self.network.constants:
            array = self.network.constants[name]
            if array.dtype.kind not in "iub":
                raise Unprepared
            self.roots[name] = self.stored(f"{name}::words", array)
        else:
            producer = self.network.producer.get(name)
            if name not in self.able or producer is None:
                raise Unprepared
            self.rules[producer.op_type](self, producer, name)
        return self.roots[name]

    def word_or_none(self, name: str) -> str | None:
        """Words of a value; None, and nothing is made, where they cannot be."""
        before = self.mark()
        try:
            return self.word(name)
        except Unprepared:
            self.back_to(before)
            return None

    def ordered(self, name: str) -> str:
        """Words in the order of the numbers: the magnitude of their bit patterns, negated for negative ones; twice that
        for types of fewer bits than words, where a constant that the device cannot store lies between two of them.
        """
        words = f"{name}::ordered"
        if name not in self.network.constants:
            return self.of_numbers(name, "ordered", words)
        numbers, rounding = self.network.constants[name].astype(np.float64), self.network.rounding
        rounded = rounding.rounded(numbers)
        narrow = rounded.astype(rounding.dtype)
        bits = narrow.view(f"i{narrow.itemsize}").astype(np.int64)
        size = bits & ((1 << 8 * narrow.itemsize - 1) - 1)
        beside = np.sign(np.nan_to_num(numbers - rounded)).astype(np.int64)
        order = np.where(bits < 0, -size, size)
        return self.stored(words, order if narrow.itemsize >= WORD_BYTES else 2 * order + beside)

    def of_numbers(self, name: str, kind: str, words: str) -> str:
        """Words that an operator of this kind makes of computed numbers, element by element."""
        self.values[words] = Value(self.shape(name), INT32)
        self.ops.append(Op(words, kind, (name,), (words,), (("of", name),), (), 0, "Cast"))
        return words

    def ordered_at(self, node: Node, name: str, index: str, lines: int) -> str:
        """The words of `ordered` for computed numbers at linear places, of which each line of the numbers has as many
        as the others."""
        self.count += 1
        words = f"{node.outputs[0]}::words{self.count}"
        self.values[words] = Value(self.values[index].shape, INT32)
        given: tuple[tuple[str, Attribute], ...] = (("of", name), ("lines", lines))
        self.ops.append(Op(words, "ordered", (name, index), (words,), given, (), 0, "Cast"))
        return words

    def best_of_blocks(self, name: str, op_type: str, block: int) -> str:
        """The extremes of all blocks of computed numbers along the last axis, as the network finds them."""
        shape, dtype = self.shape(name), self.dtype(name)
        parts, best = f"{name}::blocks{block}", f"{name}::{op_type}{block}"
        if best not in self.values:
            extents = np.array([*shape[:-1], shape[-1] // block, block])
            self.constants |= {f"{parts}::shape": extents, f"{best}::axes": np.array([-1])}
            self.values |= {
                f"{parts}::shape": Value(extents.shape, INT64),
                f"{best}::axes": Value((1,), INT64),
                parts: Value(tuple(map(int, extents)), dtype),
                best: Value((*shape[:-1], shape[-1] // block), dtype),
            }
            self.nodes += [
                Node(parts, "Reshape", (name, f"{parts}::shape"), (parts,)),
                Node(best, op_type, (parts, f"{best}::axes"), (best,), (("keepdims", 0),)),
            ]
        return best

    def stored(self, name: str, array: Array) -> str:
        limits = np.iinfo(np.int32)
        words = np.clip(array.astype(np.int64), limits.min, limits.max).astype(np.int32)
        self.constants[name] = words
        self.values[name] = Value(words.shape, INT32)
        return name

    def constant(self, node: Node, array: Array) -> str:
        self.count += 1
        return self.stored(f"{node.outputs[0]}::words{self.count}", array)

    def name(self, node: Node) -> str:
        taken = {op.name for op in self.ops}
        name, number = node.name, 1
        while name in taken:
            number += 1
            name = f"{node.name}::{number}"
        return name

    def add(
        self,
        node: Node,
        kind: str,
        inputs: tuple[str, ...],
        output: str,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> None:
        given = tuple((attributes or {}).items())
        self.ops.append(Op(self.name(node), kind, inputs, (output,), given, (), 0, node.op_type))

    def fresh(
        self,
        node: Node,
        kind: str,
        inputs: tuple[str, ...],
        shape: tuple[int, ...],
        attributes: Mapping[str, Attribute] | None = None,
    ) -> str:
        """Words with a new name."""
        self.count += 1
        output = f"{node.outputs[0]}::words{self.count}"
        self.values[output] = Value(shape, INT32)
        self.add(node, kind, inputs, output, attributes)
        return output

    def function(self, node: Node, function: str, operands: tuple[str, ...], shape: tuple[int, ...]) -> str:
        """`operands` have as many elements as the shape, or one."""
        return self.fresh(node, "words", operands, shape, {"function": function})

    def taken(self, node: Node, source: str, places: Words) -> str:
        """The words at these linear places."""
        size = prod(self.values[source].shape) if source in self.values else prod(self.shape(source))
        if places.size == size and (places.reshape(-1) == np.arange(size)).all():
            return source
        if source in self.constants:
            return self.constant(node, self.constants[source].reshape(-1)[places])
        return self.fresh(node, "take", (source, self.constant(node, places)), places.shape)

    def spread(self, node: Node, name: str, shape: tuple[int, ...]) -> str:
        """A value's words, broadcast to the shape unless it is one word."""
        word, own = self.word(name), self.shape(name)
        return word if prod(own) == 1 else self.taken(node, word, np.broadcast_to(linear_places(own), shape))

    def from_the_front(self, node: Node, index: str, shape: tuple[int, ...], extent: int) -> str:
        """Indices counted from the front, made of those that may count from the end."""
        negative = self.function(node, "less", (index, self.constant(node, np.array(0))), shape)
        moved = self.function(node, "mul", (negative, self.constant(node, np.array(extent))), shape)
        return self.function(node, "add", (index, moved), shape)

    def rows(self, node: Node) -> tuple[int, str]:
        """Number of rows of a gather's table, and the row of each result as words."""
        data, where = self.shape(node.inputs[0]), self.shape(node.inputs[1])
        index = self.word(node.inputs[1])
        match node.op_type:
            case "Gather":
                axis = node.integer("axis", 0) % len(data)
                outer, extent = prod(data[:axis]), data[axis]
                if outer == 1:
                    return extent, index
                index = self.from_the_front(node, index, where, extent)
                shape = (outer, prod(where))
                spread = self.taken(node, index, np.broadcast_to(np.arange(prod(where)), shape))
                first = np.repeat(np.arange(outer) * extent, prod(where)).reshape(shape)
                return outer * extent, self.function(node, "add", (spread, self.constant(node, first)), shape)
            case "GatherElements":
                axis = node.integer("axis", 0) % len(data)
                if data == where[:1] and axis == 0 and len(data) == 1:
                    return data[0], index
                index = self.from_the_front(node, index, where, data[axis])
                step = self.constant(node, np.array(prod(data[axis + 1 :])))
                scaled = self.function(node, "mul", (index, step), where)
                places = np.indices(where)
                places[axis] = 0
                first = np.ravel_multi_index(tuple(places), data)
                return prod(data), self.function(node, "add", (scaled, self.constant(node, first)), where)
            case _:
                batch, depth = node.integer("batch_dims", 0), where[-1]
                extents, lead = data[batch : batch + depth], where[:-1]
                rows = prod(data[: batch + depth])
                lines = linear_places(where)
                items = prod(data[:batch])
                first = np.repeat(np.arange(items) * prod(extents), prod(lead) // items).reshape(lead)
                total = "" if batch == 0 else self.constant(node, first)
                for number, extent in enumerate(extents):
                    part = self.taken(node, index, lines[..., number])
                    if depth > 1 or total:
                        part = self.from_the_front(node, part, lead, extent)
                    width = prod(extents[number + 1 :])
                    if width > 1:
                        part = self.function(node, "mul", (part, self.constant(node, np.array(width))), lead)
                    total = self.function(node, "add", (total, part), lead) if total else part
                return rows, total


def linear_places(shape: tuple[int, ...]) -> Words:
    """The linear place of each element."""
    return np.arange(prod(shape)).reshape(shape)


Rule = Callable[[WordMaker, Node, str], None]
"""Makes the words of one output of a node and notes where they are. Raises Unprepared."""
