"""A product of ones at the places of indices with a constant matrix, as the look-up of its rows that it is.

    Cast(Equal(Unsqueeze(ids), [0, 1, ..., n - 1])) x W [n, m]    -->    Gather(W, ids)
    OneHot(ids, n, [0, 1]) x W [n, m]                             -->    Gather(W, ids)

Indices beyond the n rows match no column, so the product is zero: where the type of the indices allows such indices,
they are sent to a row of zeros after the others. The ones are no longer computed unless something else reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dsa_sched.frontend.network.network import Array, Network, Node, Value
from dsa_sched.frontend.network.terms import Term

BOOL, INT64 = int(onnx.TensorProto.BOOL), int(onnx.TensorProto.INT64)
WHOLE = frozenset([2, 3, 4, 5, 6, 7, 12, 13])
"""TensorProto types of integers."""


@dataclass(frozen=True, slots=True)
class _Ones:
    """Ones at the places of `indices`, less `start`, along a last axis of `count`; `wrapped` indices count from the end
    where they are negative.
    """

    indices: str
    start: int
    count: int
    wrapped: bool


def with_row_lookups(network: Network) -> Network:
    """The network with every such product as a Gather."""
    maker = _Maker(network, dict(network.constants), dict(network.values), dict(network.terms))
    nodes: list[Node] = []
    for node in network.nodes:
        ones = _factor(network, node)
        nodes += [node] if ones is None else maker.looked_up(node, ones)
    if len(nodes) == len(network.nodes):
        return network
    result = replace(network, nodes=tuple(nodes), constants=maker.constants, values=maker.values, terms=maker.terms)
    return result.pruned()


def _factor(network: Network, node: Node) -> _Ones | None:
    """The ones that a product with a constant matrix reads."""
    if node.op_type != "MatMul" or node.outputs[0] not in network.values:
        return None
    table = network.constants.get(node.inputs[1])
    if table is None or table.ndim != 2 or table.dtype.kind not in "fV":
        return None
    made = network.producer.get(node.inputs[0])
    if made is not None and made.op_type == "Cast" and made.inputs[0] in network.producer:
        found = _of_equal(network, network.producer[made.inputs[0]])
    else:
        found = _of_one_hot(network, made) if made is not None and made.op_type == "OneHot" else None
    return found if found is not None and found.count == table.shape[0] else None


def _of_equal(network: Network, node: Node) -> _Ones | None:
    if node.op_type != "Equal" or node.outputs[0] not in network.values:
        return None
    constant = [name for name in node.inputs if name in network.constants]
    computed = [name for name in node.inputs if name not in network.constants]
    if len(constant) != 1 or len(computed) != 1 or computed[0] not in network.values:
        return None
    value, places, shape = network.values[computed[0]], network.constants[constant[0]], network.shape(node.outputs[0])
    if (
        value.dtype not in WHOLE
        or value.shape != (*shape[:-1], 1)
        or places.ndim < 1
        or places.size != places.shape[-1]
    ):
        return None
    numbers: npt.NDArray[np.int64] = places.reshape(-1).astype(np.int64)
    if not np.array_equal(numbers, numbers[0] + np.arange(len(numbers))):
        return None
    return _Ones(computed[0], int(numbers[0]), len(numbers), wrapped=False)


def _of_one_hot(network: Network, node: Node) -> _Ones | None:
    depth, pair = (network.constants.get(name) for name in node.inputs[1:3])
    value, rank = network.values.get(node.inputs[0]), len(network.shape(node.outputs[0]))
    if depth is None or pair is None or pair.reshape(-1).tolist() != [0, 1] or value is None:
        return None
    if value.dtype not in WHOLE or node.integer("axis", -1) % rank != rank - 1:
        return None
    return _Ones(node.inputs[0], 0, int(depth.reshape(-1)[0]), wrapped=True)


@dataclass(slots=True)
class _Maker:
    network: Network
    constants: dict[str, Array]
    values: dict[str, Value]
    terms: dict[str, Term]

    def looked_up(self, node: Node, ones: _Ones) -> list[Node]:
        """The nodes in place of a product."""
        table, output, dtype = node.inputs[1], node.outputs[0], self.network.values[ones.indices].dtype
        nodes: list[Node] = []
        shape = self.network.shape(output)[:-1]
        extents = self._constant(node, "shape", np.array(shape, np.int64))
        index = self._add(nodes, node, "Reshape", (ones.indices, extents), "index", Value(shape, dtype))
        if not _holds_none_beyond(dtype, ones):
            index = self._sent_beyond(nodes, node, index, ones)
            rows = self.network.constants[table]
            wide = np.concatenate([rows, np.zeros((1, rows.shape[1]), rows.dtype)])
            table = self._constant(node, "table", wide, self.network.term(node.inputs[1]).pad(1, 0))
        nodes.append(Node(node.name, "Gather", (table, index), (output,), (("axis", 0),)))
        return nodes

    def _sent_beyond(self, nodes: list[Node], node: Node, index: str, ones: _Ones) -> str:
        """Indices with those of no row replaced by the row after the last."""
        value = self.values[index]
        truth = Value(value.shape, BOOL)
        dtype = helper.tensor_dtype_to_np_dtype(value.dtype)
        low = ones.start - (ones.count if ones.wrapped else 0)
        bounds = [
            self._constant(node, f"bound{n}", np.array(n).astype(dtype)) for n in (low - 1, ones.start + ones.count)
        ]
        above = self._add(nodes, node, "Greater", (index, bounds[0]), "above", truth)
        below = self._add(nodes, node, "Less", (index, bounds[1]), "below", truth)
        inside = self._add(nodes, node, "And", (above, below), "inside", truth)
        if ones.start:
            start = self._constant(node, "start", np.array(ones.start).astype(dtype))
            index = self._add(nodes, node, "Sub", (index, start), "place", value)
        if ones.wrapped:  # from the end of the rows, not of the row of zeros
            zero = self._constant(node, "zero", np.array(0).astype(dtype))
            count = self._constant(node, "count", np.array(ones.count).astype(dtype))
            negative = self._add(nodes, node, "Less", (index, zero), "negative", truth)
            behind = self._add(nodes, node, "Add", (index, count), "behind", value)
            index = self._add(nodes, node, "Where", (negative, behind, index), "unwrapped", value)
        last = self._constant(node, "last", np.array(ones.count).astype(dtype))
        return self._add(nodes, node, "Where", (inside, index, last), "row", value)

    def _constant(self, node: Node, suffix: str, array: Array, term: Term | None = None) -> str:
        name = f"{node.outputs[0]}::{suffix}"
        self.constants[name] = array
        if term is not None:
            self.terms[name] = term
        self.values[name] = Value(tuple(array.shape), helper.np_dtype_to_tensor_dtype(array.dtype))
        return name

    def _add(
        self, nodes: list[Node], node: Node, op_type: str, inputs: tuple[str, ...], suffix: str, value: Value
    ) -> str:
        name = f"{node.outputs[0]}::{suffix}"
        self.values[name] = value
        nodes.append(Node(f"{node.name}::{suffix}", op_type, inputs, (name,)))
        return name


def _holds_none_beyond(dtype: int, ones: _Ones) -> bool:
    """Whether every number of the type has a row, in order from the first one."""
    bounds = np.iinfo(helper.tensor_dtype_to_np_dtype(dtype))
    return ones.start == 0 and bounds.min >= 0 and bounds.max < ones.count
