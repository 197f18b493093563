"""Integer computations around the network: index arithmetic on words and lookups by them, before everything else.

    ids --Equal, Not, CumSum, Add--> positions --Gather(table)--> rows        Network.prepared, in 32-bit words
    rows, Cast(mask), truth values of integers                                inputs of the network that is left

Everything that depends only on integer inputs and constants is prepared; it is computed whole, in row-major order, as
words of 32 bits (constants beyond them are clipped). Operators that also read computed numbers stay: a truth value of
integers enters as 0 or 1, and And, Or, Not and operators that move truth values are left to the network, where they are
cheap. Rows of a computed table are its product with ones at the places of the indices. Nodes that cannot be prepared
stay too, and are refused later.

    logits --ArgMax--> next word        scores --Greater(0)--> mask        Network.concluded, in 32-bit words

Integers and truth values that leave the network are words too: those that integers alone decide are prepared; those
that depend on computed numbers are concluded, after everything else. A network that goes on from there is refused.

    Assign(cache, rows, places)      -->  concluded: the rows are written into the cache, an input, in its place
    Steps(length)                    -->  prepared: a row of a table of ones and zeros
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.integers.word_rules import RULES
from dsa_sched.frontend.integers.words import (
    BOOL,
    GATHERS,
    INT64,
    INTEGERS,
    MOST_WORDS,
    WIDE,
    Unprepared,
    WordMaker,
    linear_places,
)
from dsa_sched.frontend.network.network import ASSIGN, FLOATING, STEPS, Network, Node, Value
from partitioner.ir.graph import Attribute, Op
from partitioner.ir.operators import Trait, onnx_names

Words = npt.NDArray[np.int64]

WORD_OPERATORS = frozenset({*RULES, "OneHot"})
"""ONNX operators on integers that are prepared."""

LEFT_TO_TRUTHS = onnx_names(Trait.LOGIC, Trait.VIEW, Trait.MOVES)
"""Operators on truth values that the network itself computes (`rewrites/masks.py`)."""
CHOOSING = onnx_names(Trait.COMPARES) | {"ArgMax", "ArgMin", "Cast"}
"""Operators that make integers and truth values of numbers."""
OF_NUMBERS = frozenset(["ordered", "whole"])
"""Kinds of operators that make words of numbers."""
LATE = OF_NUMBERS | {"assign"}
"""Kinds of operators that read what the network computes."""


def prepare(network: Network, *, gathers: bool = False) -> Network:
    """The network without the nodes that integers alone decide, which are in its `prepared`, and without those between
    computed numbers and integers that leave the network, which are in its `concluded`. With `gathers`, lookups stay in
    the network, and read prepared indices; so do integers that are nothing but indices of lookups."""
    integers, leaving = _integers(network), _leaving(network)
    integers = frozenset(name for name in integers if not (gathers and _only_looks_up(network, name)))
    written = tuple(node.outputs[0] for node in network.nodes if node.op_type == ASSIGN)
    if not integers and not leaving and not written:
        return network
    words = WordMaker(network, integers, RULES, _chosen(network, leaving))
    maker = _Border(network, words, _depending_on(network, words.chosen), gathers=gathers)
    nodes = [node for node in network.nodes if not maker.takes(node)]
    answers = (*(name for name in leaving if maker.leaves(name)), *written)
    needed = _needed(network, answers)
    kept = [
        node
        for node in nodes
        if node.outputs[0] not in words.able or (node.outputs[0] in maker.late and node.name in needed)
    ]
    for node in kept:
        for name in node.inputs:
            maker.demand_truth(name)
    left = {node.name for node in kept} | maker.left
    nodes = [
        replace(new, inputs=tuple(maker.entered.get(name, name) for name in new.inputs))
        for node in network.nodes
        for new in maker.instead.get(node.name, (node,) if node.name in left else ())
    ]
    nodes += words.nodes
    prepared, concluded = _by_time(words.ops)
    floats = tuple(name for name in network.inputs if name not in integers)
    read = {name for op in words.ops for name in op.inputs}
    unread = tuple(name for name in network.inputs if name in integers and name not in read)
    rest = replace(
        network,
        nodes=tuple(nodes),
        inputs=(*floats, *(op.outputs[0] for op in words.ops if op.outputs[0] in maker.results)),
        constants={**network.constants, **words.constants},
        values={**network.values, **words.values},
        prepared=prepared,
        raw=tuple(name for name in network.inputs if name in integers and (name in read or name in unread)),
    )
    return _with_answers(rest, answers, concluded) if answers else rest


def preparing(network: Network) -> Callable[[str], bool]:
    """Whether an integer value is constant, or can be made of integer inputs before everything else."""
    maker = WordMaker(network, _integers(network), RULES)
    return lambda name: name in network.constants or maker.word_or_none(name) is not None


def _integers(network: Network) -> frozenset[str]:
    """Inputs that are words."""
    return frozenset(
        name for name in network.inputs if network.values[name].dtype in INTEGERS and name not in network.numbers
    )


def _only_looks_up(network: Network, name: str) -> bool:
    """Whether a value is nothing but the index of lookups."""
    readers = network.readers.get(name, ())
    alone = all(node.op_type == "Gather" and node.inputs[0] != name for node in readers)
    return bool(readers) and alone and network.values[name].dtype in WIDE and name not in network.outputs


def _leaving(network: Network) -> tuple[str, ...]:
    """Outputs that are integers or truth values."""
    computed = (name for name in network.outputs if name not in network.constants and name in network.values)
    return tuple(
        name
        for name in dict.fromkeys(computed)
        if network.values[name].dtype in INTEGERS and name not in network.numbers
    )


def _chosen(network: Network, leaving: tuple[str, ...]) -> frozenset[str]:
    """Values chosen by computed numbers, among all that the outgoing integers depend on."""
    found, seen, todo = set[str](), set[str](), list(leaving)
    while todo:
        name = todo.pop()
        node = network.producer.get(name)
        if name in seen or node is None:
            continue
        seen.add(name)
        operands = [other for other in node.inputs if other in network.values and other not in network.constants]
        if node.op_type in CHOOSING and any(network.values[other].dtype in FLOATING for other in operands):
            found.add(name)
        else:
            todo += (other for other in operands if network.values[other].dtype in INTEGERS)
    return frozenset(found)


def _needed(network: Network, answers: tuple[str, ...]) -> frozenset[str]:
    """Names of nodes on which outputs depend that are not words."""
    read, found = set(network.outputs) - set(answers), set[str]()
    for node in reversed(network.nodes):
        if not read.isdisjoint(node.outputs):
            found.add(node.name)
            read.update(node.inputs)
    return frozenset(found)


def _depending_on(network: Network, chosen: frozenset[str]) -> frozenset[str]:
    """Values computed from chosen ones, including these."""
    found = set(chosen)
    for node in network.nodes if chosen else ():
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return frozenset(found)


def _by_time(ops: Sequence[Op]) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """Operators before the network, and those after it."""
    behind = set[str]()
    before: list[Op] = []
    for op in ops:
        if op.kind in LATE or not behind.isdisjoint(op.inputs):
            behind.update(op.outputs)
        else:
            before.append(op)
    return tuple(before), tuple(op for op in ops if op.outputs[0] in behind)


def _with_answers(network: Network, answers: tuple[str, ...], concluded: tuple[Op, ...]) -> Network:
    """The network whose `answers` are words. Its own values of these names are renamed, in case it reads them too."""
    numbers = (op.inputs[op.kind == "assign"] for op in concluded if op.kind in LATE)
    given = {*network.inputs, *(output for op in network.prepared for output in op.outputs)}
    named = {name: f"{name}::in_network" for name in answers}
    nodes = tuple(node.renamed(named) for node in network.nodes)
    ends = (*(name for name in network.outputs if name not in answers), *(n for n in numbers if n not in given))
    return replace(
        network,
        nodes=nodes,
        values={**network.values, **{new: network.values[name] for name, new in named.items()}},
        outputs=tuple(dict.fromkeys(ends)),
        answers=network.outputs,
        concluded=concluded,
    ).pruned()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of zeros and ones by a place, from `least` to as many as it has columns, both of which say the same as
    places beyond them: `before` the place, at it, and after it."""

    name: str
    before: int
    at: int
    after: int
    least: int = 0

    def numbers(self, width: int) -> npt.NDArray[np.float32]:
        """The lines of all places, each one element after that of the place before, in the order of falling places."""
        parts = ((self.before, width), *(((self.at, 1),) if self.least else ()), (self.after, width))
        return np.repeat(np.array([number for number, _ in parts], np.float32), [count for _, count in parts])


STEP, RISE, ONE = Line("steps", 1, 0, 0), Line("rises", 0, 1, 1), Line("ones", 0, 1, 0, -1)
COMPARED: Mapping[str, tuple[Line, int]] = {
    "Less": (STEP, 0),
    "LessOrEqual": (STEP, 1),
    "Greater": (RISE, 1),
    "GreaterOrEqual": (RISE, 0),
    "Equal": (ONE, 0),
}
"""Lines of comparisons of columns with a place, and how much farther the place of the line is."""
FLIPPED = {
    "Less": "Greater",
    "LessOrEqual": "GreaterOrEqual",
    "Greater": "Less",
    "GreaterOrEqual": "LessOrEqual",
}


def counts_up(constant: npt.NDArray[np.generic], columns: int) -> bool:
    """Whether a constant has the numbers of columns, at least two, from any number on."""
    flat = constant.reshape(-1)
    if constant.dtype.kind not in "iu" or constant.ndim < 1 or not flat.size == constant.shape[-1] == columns > 1:
        return False
    return bool(np.array_equal(flat.astype(np.int64), int(flat[0]) + np.arange(columns)))


@dataclass(slots=True)
class _Border:
    """Border between integers and network. `late`: values for which no node may be prepared, because they depend on
    computed numbers; `entered`: the name under which a truth value enters the network; `left`: nodes on truth values
    that stay; `results`: values that the network reads; `instead`: nodes that replace one, by its name; `indices`: by
    the name of an index, its words as the network reads them. With `gathers`, lookups stay in the network.
    """

    network: Network
    words: WordMaker
    late: frozenset[str]
    entered: dict[str, str] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    results: set[str] = field(default_factory=set)
    instead: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    indices: dict[str, str] = field(default_factory=dict)
    gathers: bool = False

    def takes(self, node: Node) -> bool:
        """A node that makes numbers of integers: prepared where it can be."""
        if not self.late.isdisjoint(node.inputs):
            return False
        before = self.words.mark()
        try:
            return self._takes(node)
        except Unprepared:
            self.words.back_to(before)
            return False

    def _takes(self, node: Node) -> bool:
        if node.op_type == ASSIGN:
            self._assigned(node)
            return True
        if node.op_type == STEPS:
            self._steps(node)
            return True
        value = self.network.values.get(node.outputs[0])
        if value is None or value.dtype not in FLOATING or not node.inputs:
            return False
        if node.op_type == "Cast" and node.inputs[0] in self.words.able:
            if self.words.dtype(node.inputs[0]) == BOOL:
                return False  # the network's own
            self._result(node, "number", (self.words.word(node.inputs[0]),))
            return True
        if self.gathers and node.op_type == "Gather" and node.input(1) in self.words.able:
            self.instead[node.name] = (replace(node, inputs=(node.inputs[0], self._index(node))),)
            return True
        if node.op_type in GATHERS and node.input(1) in self.words.able and node.inputs[0] in self.network.constants:
            rows, index = self.words.rows(node)
            self._result(node, "lookup", (node.inputs[0], index), {"rows": rows})
            return True
        if node.op_type in GATHERS and node.input(1) in self.words.able and node.inputs[0] in self.network.values:
            self._product(node)
            return True
        if node.op_type == "OneHot" and node.inputs[0] in self.words.able:
            self._one_hot(node)
            return True
        return False

    def _index(self, node: Node) -> str:
        """The index of a lookup as an input of the network that is left."""
        name, words = node.inputs[1], self.words
        if name not in self.indices:
            word, shape = words.word(name), words.shape(name)
            made = word in words.values and word not in words.constants and words.shape(word) == shape
            self.indices[name] = word if made else words.function(node, "copy", (word,), shape)
            self.results.add(self.indices[name])
        return self.indices[name]

    def _assigned(self, node: Node) -> None:
        """Rows of the second operand at places of the first, which has `regions` of `rows` rows each; a region takes
        `pieces` of rows next to each other."""
        cache, update, places = node.inputs
        attributes: dict[str, Attribute] = {name: node.integer(name, 1) for name in ("regions", "pieces", "rows")}
        self.words.add(node, "assign", (cache, update, self.words.word(places)), node.outputs[0], attributes)

    def _steps(self, node: Node) -> None:
        """Lines of truth values that hold before a place."""
        shape = self.words.shape(node.outputs[0])
        self._result(node, "lookup", *self._line(node, STEP, self.words.word(node.inputs[0]), 0, shape))

    def _line(
        self, node: Node, line: Line, place: str, more: int, shape: tuple[int, ...]
    ) -> tuple[tuple[str, str], dict[str, Attribute]]:
        """Operands and attributes of the lookup of lines by places, to which `more` is added: before that they are
        brought near the line, lest they wrap around."""
        width, where = shape[-1], shape[:-1]
        words = self.words
        for function, bound in (("max", line.least - more), ("min", width - more)):
            place = words.function(node, function, (place, words.constant(node, np.array(bound))), where)
        row = words.function(node, "sub", (words.constant(node, np.array(width - more)), place), where)
        table = f"{line.name}::{width}"
        words.constants[table] = line.numbers(width)
        words.values[table] = Value(words.constants[table].shape, int(onnx.TensorProto.FLOAT))
        return (table, row), {"rows": width + 1 - line.least, "step": 1}

    def _compared(self, name: str, node: Node | None) -> tuple[tuple[str, str], dict[str, Attribute]] | None:
        """The same for a comparison of an integer per line with the numbers of its columns; None for anything else."""
        if node is None or node.op_type not in COMPARED:
            return None
        shape = self.words.shape(name)
        columns = [self.network.constants.get(other) for other in node.inputs]
        flipped = columns[0] is None
        numbers, other = columns[flipped], node.inputs[not flipped]
        if numbers is None or not shape or not counts_up(numbers, shape[-1]) or other not in self.words.able:
            return None
        if self.words.shape(other)[-1:] not in ((), (1,)) or prod(self.words.shape(other)) != prod(shape[:-1]):
            return None
        word = self.words.word_or_none(other)
        if word is None:
            return None
        line, more = COMPARED[FLIPPED.get(node.op_type, node.op_type) if flipped else node.op_type]
        return self._line(node, line, word, more - int(numbers.reshape(-1)[0]), shape)

    def _result(
        self, node: Node, kind: str, inputs: tuple[str, ...], attributes: Mapping[str, Attribute] | None = None
    ) -> None:
        """The node's output as an input of the network that is left."""
        output = node.outputs[0]
        name = f"{output}::prepared" if output in self.network.outputs else output
        self.words.add(node, kind, inputs, name, attributes)
        self.words.values[name] = self.network.values[output]
        self.results.add(name)
        if name != output:
            self.instead[node.name] = (Node(node.name, "Identity", (name,), (output,)),)

    def _product(self, node: Node) -> None:
        """Rows of a computed table: the product of ones at the places of the indices with the table."""
        shape = self.words.shape(node.inputs[0])
        if node.op_type == "Gather" and prod(shape[: node.integer("axis", 0) % len(shape)]) > 1:
            self._inner_product(node, node.integer("axis", 0) % len(shape))
            return
        data, output = node.inputs[0], node.outputs[0]
        rows, index = self.words.rows(node)
        width = prod(self.words.shape(data)) // rows
        count = prod(self.words.shape(output)) // width
        if count * rows > MOST_WORDS:
            raise Unprepared
        index = self.words.from_the_front(node, index, (count,), rows)
        self._ones(node, index, np.repeat(np.arange(count), rows), np.tile(np.arange(rows), count), (count, rows))
        self._multiplied(node, (rows, width), (count, width), ones_first=True)

    def _inner_product(self, node: Node, axis: int) -> None:
        """Product along an inner axis: the same ones for every part of the table, in front of its matrices, or after
        its rows where these lie along the axis.
        """
        shape, where = self.words.shape(node.inputs[0]), self.words.shape(node.inputs[1])
        outer, extent, inner, count = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]), prod(where)
        if count * extent > MOST_WORDS:
            raise Unprepared
        index = self.words.from_the_front(node, self.words.word(node.inputs[1]), where, extent)
        of_index, of_place = np.indices((count, extent)) if inner > 1 else np.indices((extent, count))[::-1]
        self._ones(node, index, of_index.reshape(-1), of_place.reshape(-1), of_index.shape)
        if inner > 1:
            self._multiplied(node, (outer, extent, inner), (outer, count, inner), ones_first=True)
        else:
            self._multiplied(node, (outer, extent), (outer, count), ones_first=False)

    def _ones(self, node: Node, index: str, of_index: Words, of_place: Words, shape: tuple[int, ...]) -> None:
        """A matrix that is one where the index, of this number among the indices, is the place."""
        output = node.outputs[0]
        places = self.words.constant(node, of_place)
        truth = self.words.function(node, "equal", (self.words.taken(node, index, of_index), places), (prod(shape),))
        self.words.add(node, "number", (truth,), f"{output}::ones")
        self.words.values[f"{output}::ones"] = Value(shape, self.network.values[output].dtype)
        self.results.add(f"{output}::ones")

    def _multiplied(self, node: Node, table: tuple[int, ...], rows: tuple[int, ...], *, ones_first: bool) -> None:
        """Replace the node by the product of the ones with its table, both in the shapes that they need."""
        data, output = node.inputs[0], node.outputs[0]
        for name, shape in (("table", table), ("rows", rows)):
            self.words.values[f"{output}::{name}"] = Value(shape, self.network.values[output].dtype)
        for name, shape in (("table", table), ("rows", self.words.shape(output))):
            self.words.constants[f"{output}::{name}_shape"] = np.array(shape, np.int64)
            self.words.values[f"{output}::{name}_shape"] = Value((len(shape),), INT64)
        factors = (f"{output}::ones", f"{output}::table")
        self.instead[node.name] = (
            Node(f"{node.name}::table", "Reshape", (data, f"{output}::table_shape"), (f"{output}::table",)),
            Node(f"{node.name}::product", "MatMul", factors if ones_first else factors[::-1], (f"{output}::rows",)),
            Node(node.name, "Reshape", (f"{output}::rows", f"{output}::rows_shape"), (output,)),
        )

    def _one_hot(self, node: Node) -> None:
        """Ones where the index is the place, times the difference of the two values, plus the first of them."""
        depth, pair = (self.network.constants.get(name) for name in node.inputs[1:3])
        if depth is None or pair is None or pair.size != 2:
            raise Unprepared
        output, shape = node.outputs[0], self.words.shape(node.outputs[0])
        axis = node.integer("axis", -1) % len(shape)
        extent = int(depth.reshape(-1)[0])
        index = self.words.from_the_front(
            node, self.words.word(node.inputs[0]), self.words.shape(node.inputs[0]), extent
        )
        at = np.broadcast_to(np.expand_dims(linear_places(self.words.shape(node.inputs[0])), axis), shape)
        places = np.arange(extent).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        spread = self.words.taken(node, index, at)
        truth = self.words.function(
            node, "equal", (spread, self.words.constant(node, np.broadcast_to(places, shape))), shape
        )
        off, on = (float(v) for v in pair.reshape(-1))
        plain = (off, on) == (0.0, 1.0) and output not in self.network.outputs
        name = output if plain else f"{output}::ones"
        self.words.add(node, "number", (truth,), name)
        self.words.values[name] = Value(shape, self.network.values[output].dtype)
        self.results.add(name)
        if not plain:
            step, base = f"{output}::step", f"{output}::base"
            self.words.constants |= {step: np.array(on - off, np.float32), base: np.array(off, np.float32)}
            for constant in (step, base):
                self.words.values[constant] = Value((), int(onnx.TensorProto.FLOAT))
            self.words.values[f"{output}::scaled"] = self.words.values[name]
            scaled = Node(f"{node.name}::scale", "Mul", (name, step), (f"{output}::scaled",))
            self.instead[node.name] = (scaled, Node(node.name, "Add", (f"{output}::scaled", base), (output,)))

    def leaves(self, name: str) -> bool:
        """Words for an output: prepared or concluded where they can be. The user's own input is not copied."""
        word = self.words.word_or_none(name)
        if word is None:
            return False
        if word != name:
            source = self.network.producer[name]
            self.words.values[name] = Value(self.words.shape(name), self.words.dtype(name))
            self.words.add(source, "words", (word,), name, {"function": "copy"})
        return True

    def demand_truth(self, name: str) -> None:
        """A truth value of integers that a node of the network reads: left to the network where that makes it of
        others, else prepared as 0 or 1."""
        if name not in self.words.able or name in self.entered or self.words.dtype(name) != BOOL or name in self.late:
            return
        producer = self.network.producer.get(name)
        if producer is not None and producer.op_type in LEFT_TO_TRUTHS:
            of_truths = all(
                other in self.network.constants or self.words.dtype(other) == BOOL
                for other in (producer.inputs if producer.op_type in ("And", "Or", "Xor") else producer.inputs[:1])
            )
            if of_truths:
                self.entered[name] = name
                self.left.add(producer.name)
                for other in producer.inputs:
                    self.demand_truth(other)
                return
        taken = name in self.words.integers or name in self.network.outputs
        entered = f"{name}::number" if taken else name
        source = producer or Node(name, "Cast", (name,), (name,))
        compared = self._compared(name, producer)
        if compared is not None:
            self.words.add(source, "lookup", compared[0], entered, compared[1])
        else:
            word = self.words.word_or_none(name)
            if word is None:
                return
            self.words.add(source, "number", (word,), entered)
        self.words.values[entered] = Value(self.words.shape(name), BOOL)
        self.results.add(entered)
        self.entered[name] = entered
