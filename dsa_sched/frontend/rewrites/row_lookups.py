"""A product of ones at the places of indices with a constant matrix, as the look-up of its rows that it is.

    Cast(Equal(Unsqueeze(ids), [0, 1, ..., n - 1])) x W [n, m]    -->    Gather(W, ids)
    OneHot(ids, n, [0, 1]) x W [n, m]                             -->    Gather(W, ids)

Indices beyond the n rows match no column, so the product is zero: where the type of the indices allows such indices,
they are sent to a row of zeros after the others. The ones are no longer computed unless something else reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.draft import rewritten
from dsa_sched.frontend.network.network import Network, Node

BOOL = int(onnx.TensorProto.BOOL)
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
    return rewritten(network, _write).pruned()


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


def _write(chain: Chain, node: Node) -> bool:
    """Write the look-up in place of a product."""
    ones = _factor(chain.network, node)
    if ones is None:
        return False
    table, dtype = node.inputs[1], chain.network.values[ones.indices].dtype
    shape = chain.shape(node.outputs[0])[:-1]
    extents = chain.array(np.array(shape, np.int64), None, "shape")
    index = chain.add("Reshape", ones.indices, extents, shape=shape, suffix="index", dtype=dtype)
    if not _holds_none_beyond(dtype, ones):
        index = _sent_beyond(chain, index, ones, dtype)
        rows = chain.network.constants[table]
        wide = np.concatenate([rows, np.zeros((1, rows.shape[1]), rows.dtype)])
        table = chain.array(wide, chain.network.term(table).pad(1, 0), "table")
    chain.add("Gather", table, index, shape=chain.shape(node.outputs[0]), settings=(("axis", 0),))
    return True


def _sent_beyond(chain: Chain, index: str, ones: _Ones, dtype: int) -> str:
    """Indices with those of no row replaced by the row after the last."""

    def constant(value: int, suffix: str) -> str:
        return chain.array(np.array(value).astype(helper.tensor_dtype_to_np_dtype(dtype)), None, suffix)

    def add(op_type: str, *inputs: str, suffix: str, truth: bool = False) -> str:
        return chain.add(op_type, *inputs, suffix=suffix, dtype=BOOL if truth else dtype)

    low, high = ones.start - (ones.count if ones.wrapped else 0), ones.start + ones.count
    above = add("Greater", index, constant(low - 1, f"bound{low - 1}"), suffix="above", truth=True)
    below = add("Less", index, constant(high, f"bound{high}"), suffix="below", truth=True)
    inside = add("And", above, below, suffix="inside", truth=True)
    if ones.start:
        index = add("Sub", index, constant(ones.start, "start"), suffix="place")
    if ones.wrapped:  # from the end of the rows, not of the row of zeros
        negative = add("Less", index, constant(0, "zero"), suffix="negative", truth=True)
        from_end = add("Add", index, constant(ones.count, "count"), suffix="behind")
        index = add("Where", negative, from_end, index, suffix="unwrapped")
    return add("Where", inside, index, constant(ones.count, "last"), suffix="row")


def _holds_none_beyond(dtype: int, ones: _Ones) -> bool:
    """Whether every number of the type has a row, in order from the first one."""
    bounds = np.iinfo(helper.tensor_dtype_to_np_dtype(dtype))
    return ones.start == 0 and bounds.min >= 0 and bounds.max < ones.count
