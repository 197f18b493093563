"""LSTM and GRU step by step, each value rounded and each product made as the caller says, by the ONNX
specification.

Default activations, no peepholes, sequences of full length, layout 0: anything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

__all__ = ["gru", "lstm"]

Array = npt.NDArray[Any]
Round = Callable[[Array], Array]
Product = Callable[[Array, Array], Array]
Step = Callable[[Array, list[Array]], list[Array]]

READ_ATTRIBUTES = frozenset(["hidden_size", "direction", "linear_before_reset", "activations", "layout"])
ACTIVATIONS = {"LSTM": [b"Sigmoid", b"Tanh", b"Tanh"], "GRU": [b"Sigmoid", b"Tanh"]}


def lstm(node: onnx.NodeProto, operands: Sequence[Array | None], round_to: Round, product: Product) -> list[Array]:
    """i, o, f by Sigmoid; C' = f C + i tanh(c); H' = o tanh(C')."""

    def of(w: Array, r: Array, w_bias: Array, r_bias: Array) -> Step:
        def step(x: Array, state: list[Array]) -> list[Array]:
            h, c = state
            gates = round_to(round_to(product(x, w.T) + w_bias) + round_to(product(h, r.T) + r_bias))
            i, o, f, new = np.split(gates, 4, -1)
            i, o, f = (round_to(_sigmoid(gate)) for gate in (i, o, f))
            c = round_to(round_to(f * c) + round_to(i * round_to(np.tanh(new))))
            return [round_to(o * round_to(np.tanh(c))), c]

        return step

    return _directions(node, operands, 4, of)


def gru(node: onnx.NodeProto, operands: Sequence[Array | None], round_to: Round, product: Product) -> list[Array]:
    """z, r by Sigmoid; n by Tanh; H' = n + z (H - n)."""
    linear_first = any(item.name == "linear_before_reset" and item.i for item in node.attribute)

    def of(w: Array, r: Array, w_bias: Array, r_bias: Array) -> Step:
        def part(value: Array, weights: Array, bias: Array, gate: int) -> Array:
            rows = slice(gate * value_size, (gate + 1) * value_size)
            return round_to(product(value, weights[rows].T) + bias[rows])

        value_size = r.shape[-1]

        def step(x: Array, state: list[Array]) -> list[Array]:
            (h,) = state
            z, reset = (
                round_to(_sigmoid(round_to(part(x, w, w_bias, gate) + part(h, r, r_bias, gate)))) for gate in (0, 1)
            )
            inner = part(h, r, r_bias, 2) if linear_first else part(round_to(reset * h), r, r_bias, 2)
            if linear_first:
                inner = round_to(reset * inner)
            n = round_to(np.tanh(round_to(part(x, w, w_bias, 2) + inner)))
            return [round_to(n + round_to(z * round_to(h - n)))]

        return step

    return _directions(node, operands, 3, of)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))), np.float32)


def _directions(
    node: onnx.NodeProto, operands: Sequence[Array | None], gates: int, of: Callable[[Array, Array, Array, Array], Step]
) -> list[Array]:
    """Y, Y_h and, of an LSTM, Y_c."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    x, w, r, *rest = operands
    assert x is not None
    assert w is not None
    assert r is not None
    count, size, batch = len(w), r.shape[-1], x.shape[1]
    plain = attributes.get("activations") in (None, ACTIVATIONS[node.op_type] * count)
    if not attributes.keys() <= READ_ATTRIBUTES or not plain or attributes.get("layout") or len(operands) > 7:
        raise NotImplementedError(f"{node.op_type} with {sorted(attributes)}")
    bias, _lengths, *initial = tuple(rest) + (None,) * (4 - len(rest))
    biases = np.zeros((count, 2 * gates * size), np.float32) if bias is None else bias
    results = []
    for direction in range(count):
        w_bias, r_bias = np.split(biases[direction], 2)
        step = of(w[direction], r[direction], w_bias, r_bias)
        firsts = initial[: 2 if gates == 4 else 1]
        state = [np.zeros((batch, size), np.float32) if first is None else first[direction] for first in firsts]
        backward = direction == 1 or attributes.get("direction") == b"reverse"
        made = np.empty((len(x), batch, size), np.float32)
        for time in range(len(x))[:: -1 if backward else 1]:
            state = step(x[time], state)
            made[time] = state[0]
        results.append([made, *state])
    return [np.stack(parts, axis=0 if place else 1) for place, parts in enumerate(zip(*results, strict=True))]
