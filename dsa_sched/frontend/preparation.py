"""What integers decide: index arithmetic on words and lookups by them, done before everything else.

    ids --Equal, Not, CumSum, Add--> positions --Gather(table)--> rows        Network.prepared, in 32-bit words
    rows, Cast(mask), truth values of integers                                inputs of the network that is left

Everything that depends on integer inputs and constants alone is prepared; it is computed whole, in row-major order, as
words of 32 bits (constants beyond them are clipped). What meets computed numbers stays: a truth value of integers
enters as 0 or 1, and And, Or, Not and what moves truth values are left to the network, where they are cheap. Nodes that
cannot be prepared stay too, and are refused later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dsa_sched.frontend.network import Array, Network, Node, Value, node_proto
from partitioner.ir.graph import Attribute, Op

__all__ = ["WORD_OPERATORS", "prepare"]

Words = npt.NDArray[np.int64]

BOOL, INT32, INT64 = (int(getattr(onnx.TensorProto, name)) for name in ("BOOL", "INT32", "INT64"))
INTEGERS = frozenset([2, 3, 4, 5, INT32, INT64, BOOL])
"""TensorProto types whose values are words: UINT8 to INT16 too."""
WIDE = frozenset([INT32, INT64])
FLOATING = frozenset([1, 10, 11, 16])
MOST_WORDS = 1 << 20
"""Elements of a value that a scalar loop makes; larger ones are refused as before."""

SAME = frozenset(["Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout"])
MOVED = frozenset(["Transpose", "Slice", "Expand", "Tile", "Split"])
GATHERS = frozenset(["Gather", "GatherND", "GatherElements"])
BINARY: Mapping[str, str] = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "Min": "min",
    "Max": "max",
    "Sum": "add",
    "Equal": "equal",
    "Less": "less",
    "Greater": "greater",
    "LessOrEqual": "less_equal",
    "GreaterOrEqual": "greater_equal",
}
UNARY: Mapping[str, str] = {"Not": "not", "Neg": "neg", "Abs": "abs"}
REDUCED: Mapping[str, str] = {
    "ReduceSum": "sum",
    "ReduceMax": "greatest",
    "ReduceMin": "least",
    "ArgMax": "place_of_greatest",
    "ArgMin": "place_of_least",
}
WORD_OPERATORS = frozenset(
    {*SAME, *MOVED, *GATHERS, *BINARY, *UNARY, *REDUCED, "Mod", "Where", "Cast", "CumSum", "Concat", "OneHot", "Clip"}
    | {"Trilu"}
)
"""ONNX operators on integers that are prepared."""

LEFT_TO_TRUTHS = frozenset(["And", "Or", "Xor", "Not", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"]) | {
    "Transpose",
    "Slice",
    "Expand",
    "Tile",
}
"""What the network itself does with truth values (`masks.py`)."""


def prepare(network: Network) -> Network:
    """The network without the nodes that integers alone decide, which are in its `prepared`."""
    integers = frozenset(name for name in network.inputs if network.values[name].dtype in INTEGERS)
    if not integers:
        return network
    maker = _Maker(network, integers)
    nodes = [node for node in network.nodes if not maker.takes(node)]
    kept = [node for node in nodes if node.outputs[0] not in maker.able]
    for node in kept:
        for name in node.inputs:
            maker.demand_truth(name)
    left = {node.name for node in kept} | maker.left
    nodes = [
        replace(new, inputs=tuple(maker.entered.get(name, name) for name in new.inputs))
        for node in network.nodes
        for new in maker.instead.get(node.name, (node,) if node.name in left else ())
    ]
    floats = tuple(name for name in network.inputs if name not in integers)
    read = {name for op in maker.ops for name in op.inputs}
    unread = tuple(name for name in network.inputs if name in integers and name not in read)
    return replace(
        network,
        nodes=tuple(nodes),
        inputs=(*floats, *(op.outputs[0] for op in maker.ops if op.outputs[0] in maker.results)),
        constants={**network.constants, **maker.constants},
        values={**network.values, **maker.values},
        prepared=tuple(maker.ops),
        raw=tuple(name for name in network.inputs if name in integers and (name in read or name in unread)),
    )


class Unprepared(Exception):
    """Why a value cannot be made of words."""


@dataclass(slots=True)
class _Maker:
    """Prepared operators so far. `able`: values that words can be made of; `roots`: the words that hold a value in
    row-major order; `entered`: the name under which a truth value enters the network; `left`: nodes on truth values
    that stay; `results`: what the network reads; `instead`: nodes that take the place of one, by its name."""

    network: Network
    integers: frozenset[str]
    able: set[str] = field(init=False)
    ops: list[Op] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    entered: dict[str, str] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    results: set[str] = field(default_factory=set)
    instead: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.able = set(self.integers)
        for node in self.network.nodes:
            if self._is_able(node):
                self.able.update(node.outputs)

    def _is_able(self, node: Node) -> bool:
        """On integers alone, with an integer result; what a rule cannot do is found later."""
        if node.op_type not in RULES or not any(name in self.able for name in node.inputs):
            return False
        known = all(not name or name in self.able or name in self.network.constants for name in node.inputs) and all(
            name in self.network.values for name in node.outputs if name
        )
        return known and all(
            self.network.values[name].dtype in INTEGERS and prod(self.shape(name)) <= MOST_WORDS
            for name in node.outputs
            if name
        )

    # What leaves the integers

    def takes(self, node: Node) -> bool:
        """A node that makes numbers of integers: prepared where it can be."""
        before = self._mark()
        try:
            return self._takes(node)
        except Unprepared:
            self._back_to(before)
            return False

    def _mark(self) -> tuple[int, dict[str, str], dict[str, Array], dict[str, Value]]:
        return len(self.ops), dict(self.roots), dict(self.constants), dict(self.values)

    def _back_to(self, mark: tuple[int, dict[str, str], dict[str, Array], dict[str, Value]]) -> None:
        count, self.roots, self.constants, self.values = mark
        del self.ops[count:]

    def _takes(self, node: Node) -> bool:
        value = self.network.values.get(node.outputs[0])
        if value is None or value.dtype not in FLOATING or not node.inputs:
            return False
        if node.op_type == "Cast" and node.inputs[0] in self.able:
            if self.dtype(node.inputs[0]) == BOOL:
                return False  # the network's own
            self._result(node, "number", (self.word(node.inputs[0]),))
            return True
        if node.op_type in GATHERS and node.input(1) in self.able and node.inputs[0] in self.network.constants:
            rows, index = self._rows(node)
            self._result(node, "lookup", (node.inputs[0], index), {"rows": rows})
            return True
        if node.op_type in GATHERS and node.input(1) in self.able and node.inputs[0] in self.network.values:
            self._product(node)
            return True
        if node.op_type == "OneHot" and node.inputs[0] in self.able:
            self._one_hot(node)
            return True
        return False

    def _result(
        self, node: Node, kind: str, inputs: tuple[str, ...], attributes: Mapping[str, Attribute] | None = None
    ) -> None:
        """The node's output as an input of the network that is left."""
        output = node.outputs[0]
        name = f"{output}::prepared" if output in self.network.outputs else output
        self._add(node, kind, inputs, name, attributes)
        self.values[name] = self.network.values[output]
        self.results.add(name)
        if name != output:
            self.instead[node.name] = (Node(node.name, "Identity", (name,), (output,)),)

    def _product(self, node: Node) -> None:
        """Rows of a computed table: the product of ones at the places of the indices with the table."""
        data, output = node.inputs[0], node.outputs[0]
        rows, index = self._rows(node)
        width = prod(self.shape(data)) // rows
        count = prod(self.shape(output)) // width
        if count * rows > MOST_WORDS:
            raise Unprepared
        index = self._from_the_front(node, index, (count,), rows)
        spread = self._taken(node, index, np.repeat(np.arange(count), rows))
        truth = self._function(
            node, "equal", (spread, self._constant(node, np.tile(np.arange(rows), count))), (count * rows,)
        )
        ones = f"{output}::ones"
        self._add(node, "number", (truth,), ones)
        dtype = self.network.values[output].dtype
        shapes = {"table": (rows, width), "rows": (count, width), "ones": (count, rows)}
        self.values |= {f"{output}::{name}": Value(shape, dtype) for name, shape in shapes.items()}
        self.results.add(ones)
        for name, shape in (("table", (rows, width)), ("rows", self.shape(output))):
            self.constants[f"{output}::{name}_shape"] = np.array(shape, np.int64)
            self.values[f"{output}::{name}_shape"] = Value((len(shape),), INT64)
        self.instead[node.name] = (
            Node(f"{node.name}::table", "Reshape", (data, f"{output}::table_shape"), (f"{output}::table",)),
            Node(f"{node.name}::product", "MatMul", (ones, f"{output}::table"), (f"{output}::rows",)),
            Node(node.name, "Reshape", (f"{output}::rows", f"{output}::rows_shape"), (output,)),
        )

    def _one_hot(self, node: Node) -> None:
        """Ones where the index is the place, times the difference of the two values, plus the first of them."""
        depth, pair = (self.network.constants.get(name) for name in node.inputs[1:3])
        if depth is None or pair is None or pair.size != 2:
            raise Unprepared
        output, shape = node.outputs[0], self.shape(node.outputs[0])
        axis = node.integer("axis", -1) % len(shape)
        extent = int(depth.reshape(-1)[0])
        index = self._from_the_front(node, self.word(node.inputs[0]), self.shape(node.inputs[0]), extent)
        at = np.broadcast_to(np.expand_dims(_numbers(self.shape(node.inputs[0])), axis), shape)
        places = np.arange(extent).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        spread = self._taken(node, index, at)
        truth = self._function(node, "equal", (spread, self._constant(node, np.broadcast_to(places, shape))), shape)
        off, on = (float(v) for v in pair.reshape(-1))
        plain = (off, on) == (0.0, 1.0) and output not in self.network.outputs
        name = output if plain else f"{output}::ones"
        self._add(node, "number", (truth,), name)
        self.values[name] = Value(shape, self.network.values[output].dtype)
        self.results.add(name)
        if not plain:
            step, base = f"{output}::step", f"{output}::base"
            self.constants |= {step: np.array(on - off, np.float32), base: np.array(off, np.float32)}
            for constant in (step, base):
                self.values[constant] = Value((), int(onnx.TensorProto.FLOAT))
            self.values[f"{output}::scaled"] = self.values[name]
            scaled = Node(f"{node.name}::scale", "Mul", (name, step), (f"{output}::scaled",))
            self.instead[node.name] = (scaled, Node(node.name, "Add", (f"{output}::scaled", base), (output,)))

    def demand_truth(self, name: str) -> None:
        """A truth value of integers that a node of the network reads: left to the network where that makes it of
        others, else prepared as 0 or 1."""
        if name not in self.able or name in self.entered or self.dtype(name) != BOOL:
            return
        producer = self.network.producer.get(name)
        if producer is not None and producer.op_type in LEFT_TO_TRUTHS:
            of_truths = all(
                other in self.network.constants or self.dtype(other) == BOOL
                for other in (producer.inputs if producer.op_type in BINARY else producer.inputs[:1])
            )
            if of_truths:
                self.entered[name] = name
                self.left.add(producer.name)
                for other in producer.inputs:
                    self.demand_truth(other)
                return
        before = self._mark()
        try:
            word = self.word(name)
        except Unprepared:
            self._back_to(before)
            return
        entered = f"{name}::number" if name in self.integers else name
        source = producer or Node(name, "Cast", (name,), (name,))
        self.ops.append(Op(self._name(source), "number", (word,), (entered,), (), (), 0, source.op_type))
        self.values[entered] = Value(self.shape(name), BOOL)
        self.results.add(entered)
        self.entered[name] = entered

    # Words

    def shape(self, name: str) -> tuple[int, ...]:
        return self.network.shape(name)

    def dtype(self, name: str) -> int:
        return self.network.values[name].dtype

    def word(self, name: str) -> str:
        """The words of a value, made where they are not yet. Raises Unprepared."""
        if name in self.roots:
            return self.roots[name]
        if name in self.integers:
            self.roots[name] = name
        elif name in self.network.constants:
            array = self.network.constants[name]
            if array.dtype.kind not in "iub":
                raise Unprepared
            self.roots[name] = self._stored(f"{name}::words", array)
        else:
            producer = self.network.producer.get(name)
            if name not in self.able or producer is None:
                raise Unprepared
            RULES[producer.op_type](self, producer, name)
        return self.roots[name]

    def _stored(self, name: str, array: Array) -> str:
        limits = np.iinfo(np.int32)
        words = np.clip(array.astype(np.int64), limits.min, limits.max).astype(np.int32)
        self.constants[name] = words
        self.values[name] = Value(words.shape, INT32)
        return name

    def _constant(self, node: Node, array: Array) -> str:
        self.count += 1
        return self._stored(f"{node.outputs[0]}::words{self.count}", array)

    def _name(self, node: Node) -> str:
        taken = {op.name for op in self.ops}
        name, number = node.name, 1
        while name in taken:
            number += 1
            name = f"{node.name}::{number}"
        return name

    def _add(
        self,
        node: Node,
        kind: str,
        inputs: tuple[str, ...],
        output: str,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> None:
        given = tuple((attributes or {}).items())
        self.ops.append(Op(self._name(node), kind, inputs, (output,), given, (), 0, node.op_type))

    def _fresh(
        self,
        node: Node,
        kind: str,
        inputs: tuple[str, ...],
        shape: tuple[int, ...],
        attributes: Mapping[str, Attribute] | None = None,
    ) -> str:
        """Words of a name of their own."""
        self.count += 1
        output = f"{node.outputs[0]}::words{self.count}"
        self.values[output] = Value(shape, INT32)
        self._add(node, kind, inputs, output, attributes)
        return output

    def _function(self, node: Node, function: str, operands: tuple[str, ...], shape: tuple[int, ...]) -> str:
        """`operands` have as many elements as the shape, or one."""
        return self._fresh(node, "words", operands, shape, {"function": function})

    def _taken(self, node: Node, source: str, places: Words) -> str:
        """The words at these linear places."""
        size = prod(self.values[source].shape) if source in self.values else prod(self.shape(source))
        if places.size == size and (places.reshape(-1) == np.arange(size)).all():
            return source
        if source in self.constants:
            return self._constant(node, self.constants[source].reshape(-1)[places])
        return self._fresh(node, "take", (source, self._constant(node, places)), places.shape)

    def _spread(self, node: Node, name: str, shape: tuple[int, ...]) -> str:
        """A value's words, broadcast to the shape unless it is one word."""
        word, own = self.word(name), self.shape(name)
        return word if prod(own) == 1 else self._taken(node, word, np.broadcast_to(_numbers(own), shape))

    def _from_the_front(self, node: Node, index: str, shape: tuple[int, ...], extent: int) -> str:
        """Indices that count from the end, made such that count from the front."""
        negative = self._function(node, "less", (index, self._constant(node, np.array(0))), shape)
        moved = self._function(node, "mul", (negative, self._constant(node, np.array(extent))), shape)
        return self._function(node, "add", (index, moved), shape)

    def _rows(self, node: Node) -> tuple[int, str]:
        """Of a gather the number of rows of its table, and the row of each result as words."""
        data, where = self.shape(node.inputs[0]), self.shape(node.inputs[1])
        index = self.word(node.inputs[1])
        match node.op_type:
            case "Gather":
                axis = node.integer("axis", 0) % len(data)
                outer, extent = prod(data[:axis]), data[axis]
                if outer == 1:
                    return extent, index
                index = self._from_the_front(node, index, where, extent)
                shape = (outer, prod(where))
                spread = self._taken(node, index, np.broadcast_to(np.arange(prod(where)), shape))
                first = np.repeat(np.arange(outer) * extent, prod(where)).reshape(shape)
                return outer * extent, self._function(node, "add", (spread, self._constant(node, first)), shape)
            case "GatherElements":
                axis = node.integer("axis", 0) % len(data)
                if data == where[:1] and axis == 0 and len(data) == 1:
                    return data[0], index
                index = self._from_the_front(node, index, where, data[axis])
                step = self._constant(node, np.array(prod(data[axis + 1 :])))
                scaled = self._function(node, "mul", (index, step), where)
                places = np.indices(where)
                places[axis] = 0
                first = np.ravel_multi_index(tuple(places), data)
                return prod(data), self._function(node, "add", (scaled, self._constant(node, first)), where)
            case _:
                batch, depth = node.integer("batch_dims", 0), where[-1]
                extents, shape = data[batch : batch + depth], where[:-1]
                rows = prod(data[: batch + depth])
                lines = _numbers(where)
                items = prod(data[:batch])
                first = np.repeat(np.arange(items) * prod(extents), prod(shape) // items).reshape(shape)
                total = "" if batch == 0 else self._constant(node, first)
                for place, extent in enumerate(extents):
                    part = self._taken(node, index, lines[..., place])
                    if depth > 1 or total:
                        part = self._from_the_front(node, part, shape, extent)
                    step = prod(extents[place + 1 :])
                    if step > 1:
                        part = self._function(node, "mul", (part, self._constant(node, np.array(step))), shape)
                    total = self._function(node, "add", (total, part), shape) if total else part
                return rows, total


def _numbers(shape: tuple[int, ...]) -> Words:
    """The linear place of each element."""
    return np.arange(prod(shape)).reshape(shape)


Rule = Callable[[_Maker, Node, str], None]
"""Makes the words of one output of a node and notes where they are. Raises Unprepared."""


def _same(maker: _Maker, node: Node, output: str) -> None:
    if output != node.outputs[0]:
        raise Unprepared
    maker.roots[output] = maker.word(node.inputs[0])


def _cast(maker: _Maker, node: Node, output: str) -> None:
    word, to = maker.word(node.inputs[0]), node.integer("to", 0)
    if to == BOOL and maker.dtype(node.inputs[0]) != BOOL:
        word = maker._function(node, "truth", (word,), maker.shape(output))
    elif to not in (BOOL, *WIDE) and maker.dtype(node.inputs[0]) not in (to, BOOL):
        raise Unprepared  # what does not fit wraps around
    maker.roots[output] = word


def _moved(maker: _Maker, node: Node, output: str) -> None:
    """As the node moves the places of its first operand."""
    places = _evaluated(maker.network, node, output)
    maker.roots[output] = maker._taken(node, maker.word(node.inputs[0]), places)


def _evaluated(network: Network, node: Node, output: str) -> Words:
    """What the node makes of the linear places of its first operand."""
    import onnxruntime

    if any(name and name not in network.constants for name in node.inputs[1:]):
        raise Unprepared
    named = {name: network.constants[name] for name in node.inputs[1:] if name}
    named[node.inputs[0]] = _numbers(network.shape(node.inputs[0]))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in named.items()
    ]
    graph = helper.make_graph([node_proto(node)], "places", inputs, [onnx.ValueInfoProto(name=output)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", network.opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        (found,) = session.run([output], named)
    except Exception as error:  # onnxruntime raises several unrelated classes
        raise Unprepared from error
    return np.asarray(found, np.int64)


def _gather(maker: _Maker, node: Node, output: str) -> None:
    """By constants as a move; by words one word at a time."""
    if node.inputs[0] in maker.able and node.inputs[1] in maker.network.constants:
        _moved(maker, node, output)
        return
    rows, index = maker._rows(node)
    source, shape = maker.word(node.inputs[0]), maker.shape(output)
    width = prod(maker.shape(node.inputs[0])) // rows
    if width > 1:
        taken = prod(shape) // width
        index = maker._from_the_front(node, index, (taken,), rows)
        index = maker._taken(node, index, np.repeat(np.arange(taken), width))
        scaled = maker._function(node, "mul", (index, maker._constant(node, np.array(width))), (taken * width,))
        ends = maker._constant(node, np.tile(np.arange(width), taken))
        index = maker._function(node, "add", (scaled, ends), (taken * width,))
    maker.roots[output] = maker._fresh(node, "take", (source, index), shape)


def _binary(maker: _Maker, node: Node, output: str) -> None:
    shape, function = maker.shape(output), BINARY[node.op_type]
    words = [maker._spread(node, name, shape) for name in node.inputs]
    total = words[0]
    for word in words[1:]:
        total = maker._function(node, function, (total, word), shape)
    maker.roots[output] = total


def _modulo(maker: _Maker, node: Node, output: str) -> None:
    shape = maker.shape(output)
    words = tuple(maker._spread(node, name, shape) for name in node.inputs)
    maker.roots[output] = maker._function(node, "remainder" if node.integer("fmod", 0) else "mod", words, shape)


def _unary(maker: _Maker, node: Node, output: str) -> None:
    word = maker.word(node.inputs[0])
    maker.roots[output] = maker._function(node, UNARY[node.op_type], (word,), maker.shape(output))


def _where(maker: _Maker, node: Node, output: str) -> None:
    shape = maker.shape(output)
    words = tuple(maker._spread(node, name, shape) for name in node.inputs)
    maker.roots[output] = maker._function(node, "where", words, shape)


def _clip(maker: _Maker, node: Node, output: str) -> None:
    shape, word = maker.shape(output), maker.word(node.inputs[0])
    for position, function in ((1, "max"), (2, "min")):
        if node.input(position):
            word = maker._function(node, function, (word, maker.word(node.inputs[position])), shape)
    maker.roots[output] = word


def _triangle(maker: _Maker, node: Node, output: str) -> None:
    shape = maker.shape(output)
    diagonal = maker.network.constants.get(node.input(1), np.array(0)) if node.input(1) else np.array(0)
    if node.input(1) and node.input(1) not in maker.network.constants:
        raise Unprepared
    ones, first = np.ones(shape, np.int64), int(np.asarray(diagonal).reshape(-1)[0])
    kept = np.triu(ones, first) if node.integer("upper", 1) else np.tril(ones, first)
    words = (maker.word(node.inputs[0]), maker._constant(node, kept))
    maker.roots[output] = maker._function(node, "mul", words, shape)


def _running_sum(maker: _Maker, node: Node, output: str) -> None:
    axis = maker.network.constants.get(node.inputs[1])
    if axis is None:
        raise Unprepared
    shape = maker.shape(output)
    place = int(axis.reshape(-1)[0]) % len(shape)
    flags = {name: node.integer(name, 0) for name in ("exclusive", "reverse")}
    word = maker.word(node.inputs[0])
    maker.roots[output] = maker._fresh(node, "cumsum", (word,), shape, {**_lines(shape, place, place + 1), **flags})


def _lines(shape: tuple[int, ...], first: int, last: int) -> dict[str, Attribute]:
    """Axes from `first` to before `last` as one that lines lie along."""
    return {"outer": prod(shape[:first]), "count": prod(shape[first:last]), "inner": prod(shape[last:])}


def _reduce(maker: _Maker, node: Node, output: str) -> None:
    shape = maker.shape(node.inputs[0])
    if node.op_type in ("ArgMax", "ArgMin"):
        axes: tuple[int, ...] = (node.integer("axis", 0),)
    elif node.input(1):
        if node.inputs[1] not in maker.network.constants:
            raise Unprepared
        axes = tuple(int(v) for v in maker.network.constants[node.inputs[1]].reshape(-1))
    else:
        axes = node.integers("axes", ())
    if not axes and node.integer("noop_with_empty_axes", 0):
        maker.roots[output] = maker.word(node.inputs[0])
        return
    along = sorted(axis % len(shape) for axis in axes) or list(range(len(shape)))
    if along != list(range(along[0], along[-1] + 1)):
        raise Unprepared
    given = {**_lines(shape, along[0], along[-1] + 1), "last": node.integer("select_last_index", 0)}
    word, function = maker.word(node.inputs[0]), REDUCED[node.op_type]
    maker.roots[output] = maker._fresh(node, "reduce", (word,), maker.shape(output), {"function": function, **given})


def _concat(maker: _Maker, node: Node, output: str) -> None:
    shape = maker.shape(output)
    axis = node.integer("axis", 0) % len(shape)
    words = tuple(maker.word(name) for name in node.inputs if 0 not in maker.shape(name))
    maker.roots[output] = maker._fresh(node, "join", words, shape, {"outer": prod(shape[:axis])})


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(SAME, _same),
    **dict.fromkeys(MOVED, _moved),
    **dict.fromkeys(GATHERS, _gather),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(REDUCED, _reduce),
    "Mod": _modulo,
    "Where": _where,
    "Cast": _cast,
    "Clip": _clip,
    "Trilu": _triangle,
    "CumSum": _running_sum,
    "Concat": _concat,
}
