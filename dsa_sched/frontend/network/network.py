"""An ONNX model as plain data: the form in which the frontend reads, checks and rewrites networks.

    ModelProto  -->  Network(nodes, constants, values, inputs, outputs, opset)  -->  ModelProto

Nodes are frozen and axes are ONNX's; layout comes later, in `graph/layout.py`. Constants are arrays in the file's own
type, or float64 where a rewrite computed them. `values` gives shape and element type of every tensor, constants too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from dsa_sched.frontend.network.terms import Term, from_file
from dsa_sched.frontend.network.traced import TracedArray
from hw_models.errors import ModelError
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Op
from partitioner.ir.wants import Rounding

SCALE_SHIFT = "ScaleShift"
"""An operator type that ONNX does not have: x * scale + shift along axis 1."""

NEAREST, POWER = "ReduceNearest", "ReducePower"
"""Two more operator types, along `axes`, which stay with one element: the value nearest to zero between the smallest
and the largest element; and 64 over the power of two at or above the largest magnitude, after subtracting that value if
`centred`.
"""

NORMALISE = "Normalise"
"""Operator type: x, less its mean over `axes` if `centred`, over the root of the mean of its squares plus `epsilon`."""

FORMULA = "Formula"
"""Operator type: a function of one operand in `steps` (`partitioner/ir/formula.py`)."""

ATTEND = "Attend"
"""Operator type: attention of q, k, v and a mask that is added, heads side by side: (item, row, column) each."""

CACHED_ATTENTION, ASSIGN, STEPS = "CachedAttention", "Assign", "Steps"
"""Operator types of the frontend alone: attention of q to new and past k and v that are not joined, each with a mask
or nothing; rows of the second operand written into the first from places on, as its next value in its own place; and
for each integer a line of truth values, which hold before it."""

FLOATING = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.BFLOAT16,
)
"""Element types of values that the network computes."""

WIDEN, NARROW, ADD_SCALED = "Widen", "Narrow", "AddScaled"
"""Operator types: integers as numbers; numbers as integers, to the nearest or cut off (`rounding`), saturated; and the
sum of numbers and of integers times a `scale`."""

INTEGER_CONV, INTEGER_MATMUL = "IntegerConv", "IntegerMatMul"
"""Operator types: products of int8 factors, times a scale per output channel, plus a bias. The first factor may also
be in floating point."""

OF_INTEGERS = (WIDEN, NARROW, ADD_SCALED, INTEGER_CONV, INTEGER_MATMUL)
OURS = (SCALE_SHIFT, NEAREST, POWER, NORMALISE, FORMULA, ATTEND, *OF_INTEGERS)
"""Operator types that no file can hold."""

Array = npt.NDArray[np.generic]
Setting = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
"""The value of an attribute; tensors and graphs are not settings: folding and checks read the file."""


@dataclass(frozen=True, slots=True)
class Value:
    """Shape and ONNX element type (a `TensorProto` data type) of one tensor."""

    shape: tuple[int, ...]
    dtype: int


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX node. An absent optional input is an empty name; `captured` are values that graphs inside it read of
    the graph around them."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: tuple[tuple[str, Setting], ...] = ()
    captured: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """All values that must exist before the node runs."""
        return (*filter(None, self.inputs), *self.captured)

    def renamed(self, names: Mapping[str, str]) -> Node:
        """The node with other names of values that it reads and makes."""
        inputs, outputs = (tuple(names.get(name, name) for name in each) for each in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs)

    def setting(self, name: str, default: Setting) -> Setting:
        return dict(self.settings).get(name, default)

    def integer(self, name: str, default: int) -> int:
        """An integer attribute. Raises ModelError when the file holds something else."""
        value = self.setting(name, default)
        if not isinstance(value, int):
            raise ModelError(f"{self.op_type} {self.name}", needs=f"an integer attribute {name}", has=repr(value))
        return value

    def number(self, name: str, default: float) -> float:
        """A numeric attribute. Raises ModelError when the file holds something else."""
        value = self.setting(name, default)
        if not isinstance(value, (int, float)):
            raise ModelError(f"{self.op_type} {self.name}", needs=f"a number as attribute {name}", has=repr(value))
        return float(value)

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """A list of integers. Raises ModelError when the file holds something else."""
        value = self.setting(name, default)
        if not isinstance(value, tuple) or not all(isinstance(v, int) for v in value):
            raise ModelError(f"{self.op_type} {self.name}", needs=f"a list of integers as {name}", has=repr(value))
        return tuple(int(v) for v in value)

    def text(self, name: str, default: str) -> str:
        """A text attribute. Raises ModelError when the file holds something else."""
        value = self.setting(name, default)
        if not isinstance(value, str):
            raise ModelError(f"{self.op_type} {self.name}", needs=f"a text as attribute {name}", has=repr(value))
        return value

    def input(self, position: int) -> str:
        """The name of an input, empty where it is absent."""
        return self.inputs[position] if position < len(self.inputs) else ""


@dataclass(frozen=True, slots=True)
class NetworkPart:
    """The elements of a value from index `low` to `high` along an axis."""

    axis: int
    low: int
    high: int

    def of(self, array: Array) -> Array:
        """This part of an array."""
        return array[(slice(None),) * self.axis + (slice(self.low, self.high),)]


@dataclass(frozen=True, slots=True)
class Origin:
    """Derivation of a value of the file from one of ours that a rewrite put in its place: the file's `name`, or `part`
    of it, is ours * scale + shift, both with one element for each index of an axis, or one for all. Verification uses
    it to judge such a value by the file's, and to feed its readers with the file's.
    """

    name: str
    scale: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]
    part: NetworkPart | None = None
    axis: int = 1

    def of_file(self, theirs: Array) -> Array:
        """The part of the file's value that we have."""
        return self.part.of(theirs) if self.part else theirs

    def from_ours(self, ours: Array) -> Array:
        """The file's value for ours, as far as we have it."""
        scale, shift = self._along_axis(ours.ndim)
        return np.asarray(ours.astype(np.float64) * scale + shift)

    def to_ours(self, theirs: Array) -> Array:
        """Our value where the file's is this."""
        scale, shift = self._along_axis(theirs.ndim)
        return np.asarray((self.of_file(theirs).astype(np.float64) - shift) / scale)

    def _along_axis(self, rank: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        shape = [1] * rank
        shape[self.axis] = -1
        return self.scale.reshape(shape), self.shift.reshape(shape)


@dataclass(frozen=True, slots=True)
class Found:
    """A node that is one operator of those that exporters often take apart: its name, what readers call it, and whether
    the file has it `spelled` out, as several nodes of which this was the last."""

    name: str
    label: str
    spelled: bool


PLAIN = Rounding.to("float32")
"""Rounding of networks for which no target has been asked: the types of the file."""


@dataclass(frozen=True)
class Network:
    """Nodes in topological order. `origins` has our values that are not in the file, but map to one that is; `terms`
    says how constants that are not in the file follow from it; `found` lists operators before any was taken apart,
    `decisions` what was decided about the file's nodes; `unfolded` says why nodes that read only constants could not be
    computed; `rounding` is that of the type in which the target stores what the file has in fp32. `prepared`, `raw`,
    `concluded` and `answers` become those of the `Graph`, which says what they are.
    """

    name: str
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    origins: Mapping[str, Origin] = field(default_factory=dict)
    terms: Mapping[str, Term] = field(default_factory=dict)
    found: tuple[Found, ...] = ()
    decisions: tuple[Decision, ...] = ()
    prepared: tuple[Op, ...] = ()
    raw: tuple[str, ...] = ()
    concluded: tuple[Op, ...] = ()
    answers: tuple[str, ...] = ()
    unfolded: Mapping[str, str] = field(default_factory=dict)
    rounding: Rounding = PLAIN
    numbers: frozenset[str] = frozenset()
    """Inputs and outputs of integer types whose integers represent quantised numbers, and are not indices or counts."""

    def term(self, name: str) -> Term:
        """Derivation of a constant from the file: as a rewrite declares it, else the file's own value of that name."""
        return self.terms.get(name, from_file(name))

    def traced(self, name: str) -> TracedArray:
        """A constant with its derivation."""
        return TracedArray(self.constants[name], self.term(name))

    @cached_property
    def producer(self) -> dict[str, Node]:
        return {output: node for node in self.nodes for output in node.outputs if output}

    @cached_property
    def readers(self) -> dict[str, tuple[Node, ...]]:
        """Name -> nodes that read it, each once, in order."""
        result: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys((*node.inputs, *node.captured)):
                result.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in result.items()}

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor. Raises ModelError naming it when inference did not find one."""
        found = self.known_shape(name)
        if found is None:
            raise ModelError(f"tensor {name}", needs="a static shape", has="none that shape inference could find")
        return found

    def known_shape(self, name: str) -> tuple[int, ...] | None:
        """Shape of a tensor; None where inference did not find one."""
        if name in self.constants:
            return tuple(self.constants[name].shape)
        return self.values[name].shape if name in self.values else None

    def pruned(self) -> Network:
        """The network without nodes that no output depends on, and without constants that nothing reads."""
        needed, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                needed.update((*node.inputs, *node.captured))
                kept.append(node)
        read = needed | {name for op in (*self.prepared, *self.concluded) for name in op.inputs}
        constants = {name: array for name, array in self.constants.items() if name in read}
        return replace(self, nodes=tuple(reversed(kept)), constants=constants)


def array_of(tensor: onnx.TensorProto) -> Array:
    """The elements of a tensor. Raises ModelError if the file stores them in no way that fits its type and shape."""
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # onnx and numpy raise several unrelated classes for damaged tensors
        shape = ", ".join(map(str, tensor.dims))
        raise ModelError(
            f"tensor {tensor.name}", needs=f"the elements of [{shape}]", has=str(error)[:200] or type(error).__name__
        ) from error


def node_of(proto: onnx.NodeProto) -> Node:
    """The node with its plain attributes, those left out that hold a tensor or a graph."""
    settings: list[tuple[str, Setting]] = []
    for attribute in proto.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            settings.append((attribute.name, value.decode("utf-8", "replace")))
        elif isinstance(value, (int, float)):
            settings.append((attribute.name, value))
        elif isinstance(value, (list, tuple)) and all(isinstance(v, (int, float)) for v in value):
            settings.append((attribute.name, tuple(value)))
        elif isinstance(value, (list, tuple)) and all(isinstance(v, bytes) for v in value):
            settings.append((attribute.name, tuple(v.decode("utf-8", "replace") for v in value)))
    inputs, outputs = tuple(proto.input), tuple(proto.output)
    return Node(proto.name, proto.op_type, inputs, outputs, tuple(sorted(settings)), captured_by(proto))


def captured_by(proto: onnx.NodeProto) -> tuple[str, ...]:
    """Values that graphs inside a node read from the graph around it."""
    found: dict[str, None] = {}
    for graph in graphs_of(proto):
        own = {item.name for item in (*graph.input, *graph.initializer)}
        own |= {name for node in graph.node for name in node.output}
        read = [name for node in graph.node for name in (*node.input, *captured_by(node))]
        found |= dict.fromkeys(name for name in (*read, *(item.name for item in graph.output)) if name not in own)
    return tuple(name for name in found if name)


def graphs_of(proto: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside a node: branches, bodies of loops."""
    for attribute in proto.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def name_nodes(model: onnx.ModelProto) -> None:
    """Give every node of `model` a unique name: its own, or `OpType_index` where it has none or shares it."""
    counts: dict[str, int] = {}
    for proto in model.graph.node:
        counts[proto.name] = counts.get(proto.name, 0) + 1
    taken = {name for name, count in counts.items() if name and count == 1}
    for index, proto in enumerate(model.graph.node):
        if proto.name in taken:
            continue
        name = f"{proto.op_type}_{index}"
        while name in taken:
            name += "_"
        taken.add(name)
        proto.name = name


def network_of(
    model: onnx.ModelProto,
    nodes: Iterable[onnx.NodeProto],
    constants: Mapping[str, Array],
    values: Mapping[str, Value],
) -> Network:
    """The model's interface with the given nodes and constants."""
    inputs = tuple(item.name for item in model.graph.input if item.name not in constants)
    outputs = tuple(item.name for item in model.graph.output)
    name = model.graph.name or "graph"
    return Network(name, tuple(map(node_of, nodes)), constants, values, inputs, outputs, opset_of(model)).pruned()


def opset_of(model: onnx.ModelProto) -> int:
    """Version of the default operator set."""
    return next((int(item.version) for item in model.opset_import if item.domain in ("", "ai.onnx")), 1)


def replace_nodes(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Give a model these nodes, some of which may be its own."""
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)


def node_proto(node: Node) -> onnx.NodeProto:
    """The converse of `node_of`."""
    proto = helper.make_node(node.op_type, node.inputs, node.outputs, name=node.name)
    proto.attribute.extend(helper.make_attribute(name, value) for name, value in node.settings)
    return proto
