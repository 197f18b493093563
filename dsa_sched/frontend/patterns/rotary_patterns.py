"""Rotary embeddings that a file spells out, found again as the operators that they are.

    x * cos + Concat(-x[half:], x[:half]) * sin  -->  RotaryEmbedding(x, cos, sin)

x is (batch, head, row, element), or (batch, row, head, element); cosines and sines are constants, equal for both halves
of a head and for all heads.
"""

from __future__ import annotations

import numpy as np

from dsa_sched.frontend.network.chain import Chain, Settings, Shape
from dsa_sched.frontend.network.matching import Captured, PatternRule, op, value
from dsa_sched.frontend.network.network import Network
from dsa_sched.frontend.network.traced import TracedArray

X, COSINES, SINES = value("x"), value("cosines", computed=False), value("sines", computed=False)
EXCHANGED = op(
    "Concat", op("Neg", op("Slice|Split", X, name="second")), op("Slice|Split", X, name="first"), name="ends"
)
ROTARY = op("Add", op("Mul", X, COSINES), op("Mul", EXCHANGED, SINES))


def _write(chain: Chain, found: Captured) -> None:
    network, x = chain.network, found.values["x"]
    shape, exchanged = chain.shape(x), network.producer[found.values["ends"]]
    if len(exchanged.inputs) != 2 or len(shape) != 4 or shape[3] % 2 or exchanged.integer("axis", 0) % 4 != 3:
        return
    halves = [_begin_of_half(network, found.values[name]) for name in ("second", "first")]
    if halves != [shape[3] // 2, 0] or not found.is_closed(network) or chain.shape(chain.node.outputs[0]) != shape:
        return
    tables = [found.values[name] for name in ("cosines", "sines") if found.values[name] in network.constants]
    for by_head in (True, False):
        known = [half for name in tables if (half := _half_table(network.traced(name), shape, by_head=by_head))]
        if len(known) == 2:
            _write_embedding(chain, x, known, by_head)
            return


def _begin_of_half(network: Network, name: str) -> int | None:
    """Index at which a Slice or a result of a Split begins that is one half of its operand along the last axis."""
    node, part = network.producer[name], network.known_shape(name)
    whole = network.shape(node.inputs[0])
    if not part or whole[-1] != 2 * part[-1] or whole[:-1] != part[:-1]:
        return None
    if node.op_type == "Split":
        last = node.integer("axis", 0) % len(whole) == len(whole) - 1
        return node.outputs.index(name) * part[-1] if last and len(node.outputs) == 2 else None
    given = [network.constants.get(node.input(position)) for position in (1, 3, 4)]
    starts, axes, steps = (None if array is None else [int(v) for v in array.reshape(-1)] for array in given)
    if starts is None or axes is None or len(axes) != 1 or axes[0] % len(whole) != len(whole) - 1:
        return None
    if (node.input(4) and steps is None) or (steps or [1]) != [1]:
        return None
    return starts[0] + whole[-1] if starts[0] < 0 else starts[0]


def _half_table(table: TracedArray, shape: Shape, *, by_head: bool) -> TracedArray | None:
    """Cosines or sines as (batch, row, half); None where heads or halves differ, or rows are not those of x."""
    own = (1,) * (4 - len(table.shape)) + table.shape
    rows, heads = (2, 1) if by_head else (1, 2)
    half = shape[3] // 2
    if len(own) > 4 or table.array.dtype.kind != "f" or own[heads] != 1 or own[0] not in (1, shape[0]):
        return None
    if (own[rows], own[3]) != (shape[rows], shape[3]):
        return None
    plain = table.reshape(own[0] * shape[rows], shape[3])
    if not np.array_equal(plain.array[:, :half], plain.array[:, half:]):
        return None
    first = plain.transpose(1, 0).take(range(half)).transpose(1, 0)
    return first.reshape(own[0], shape[rows], half).broadcast(shape[0], shape[rows], half)


def _write_embedding(chain: Chain, x: str, tables: list[TracedArray], by_head: bool) -> None:
    names, shape = [chain.store(table) for table in tables], chain.shape(x)
    if by_head:
        chain.add("RotaryEmbedding", x, *names, shape=shape)
        return
    batch, rows, heads, size = shape
    settings: Settings = (("num_heads", heads),)
    flat = chain.add("Reshape", x, shape=(batch, rows, heads * size))
    result = chain.add("RotaryEmbedding", flat, *names, shape=(batch, rows, heads * size), settings=settings)
    chain.add("Reshape", result, shape=shape)


ROTARIES = (PatternRule(ROTARY, _write),)
