"""Recurrent networks whose state is fed back for 200 steps: their error is at most four times that of fp16 storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import dsa_sched

Array = npt.NDArray[np.float64]
Rounding = Callable[[Array], Array]
State = tuple[Array, Array]

HIDDEN = 8
STEPS, AT_A_TIME = 200, 10
GATES = {"LSTM": 4, "GRU": 3}
OPENED = {"LSTM": 2, "GRU": 0}
"""The gate that keeps the state: its bias makes it stay open."""


def stored(values: Array) -> Array:
    return values.astype(np.float16).astype(np.float64)


def exact(values: Array) -> Array:
    return values


def sigmoid(values: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-values)))


def weights_of(kind: str, seed: int) -> Mapping[str, Array]:
    rng, gates = np.random.default_rng(seed), GATES[kind]
    bias = rng.normal(0, 0.3, (1, 2 * gates * HIDDEN))
    bias[0, OPENED[kind] * HIDDEN : (OPENED[kind] + 1) * HIDDEN] += 4
    w, r = rng.normal(0, 0.5, (1, gates * HIDDEN, HIDDEN)), rng.normal(0, 0.25, (1, gates * HIDDEN, HIDDEN))
    return {"W": stored(w), "R": stored(r), "B": stored(bias)}


def write_model(kind: str, weights: Mapping[str, Array], path: Path) -> None:
    states = ("h", "c")[: 2 if kind == "LSTM" else 1]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 1, HIDDEN)) for name in states]
    left = [helper.make_tensor_value_info(f"{name}_last", TensorProto.FLOAT, (1, 1, HIDDEN)) for name in states]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (AT_A_TIME, 1, HIDDEN))
    outputs = ["", *(value.name for value in left)]
    node = helper.make_node(kind, ["x", "W", "R", "B", "", *states], outputs, hidden_size=HIDDEN)
    constants = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    graph = helper.make_graph([node], "fed_back", [x, *given], left, constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def lstm(x: Array, state: State, weights: Mapping[str, Array], rounded: Rounding) -> State:
    """A step in float64 whose every value is stored by `rounded`."""
    h, c = state
    bias = weights["B"][0].reshape(2, -1)
    z = rounded(rounded(x @ weights["W"][0].T + bias.sum(0)) + rounded(h @ weights["R"][0].T))
    i, o, f, g = np.split(z, 4)
    entered = rounded(rounded(sigmoid(i)) * rounded(np.tanh(g)))
    c = rounded(rounded(rounded(sigmoid(f)) * c) + entered)
    return rounded(rounded(sigmoid(o)) * rounded(np.tanh(c))), c


def gru(x: Array, state: State, weights: Mapping[str, Array], rounded: Rounding) -> State:
    h, _ = state
    w, r, bias = weights["W"][0], weights["R"][0], weights["B"][0].reshape(2, -1).sum(0)
    p = rounded(x @ w.T + bias)
    z, reset = np.split(rounded(p[: 2 * HIDDEN] + rounded(h @ r[: 2 * HIDDEN].T)), 2)
    recalled = rounded(rounded(rounded(sigmoid(reset)) * h) @ r[2 * HIDDEN :].T)
    candidate = rounded(np.tanh(rounded(recalled + p[2 * HIDDEN :])))
    return rounded(h + rounded(rounded(sigmoid(-z)) * rounded(candidate - h))), h


@pytest.mark.spread(1)
@pytest.mark.parametrize(("kind", "seed"), [("LSTM", 3), ("GRU", 4)])
@pytest.mark.commit
def test_the_state_stays_within_four_times_the_error_of_storage(kind: str, seed: int, tmp_path: Path) -> None:
    weights, step = weights_of(kind, seed), {"LSTM": lstm, "GRU": gru}[kind]
    write_model(kind, weights, tmp_path / "cell.onnx")
    artifact = dsa_sched.compile(tmp_path / "cell.onnx", "stcp920", level="O0")
    xs = stored(np.random.default_rng(seed).normal(0, 1, (STEPS, HIDDEN)))
    names = ("h", "c") if kind == "LSTM" else ("h",)
    chip = {name: np.zeros((1, 1, HIDDEN), np.float32) for name in names}
    right, rounded = ((np.zeros(HIDDEN), np.zeros(HIDDEN)) for _ in range(2))
    own, storage = [], []
    for first in range(0, STEPS, AT_A_TIME):
        some = xs[first : first + AT_A_TIME]
        found = artifact.run({"x": some[:, None].astype(np.float32), **chip})
        chip = {name: np.asarray(found[f"{name}_last"], np.float32) for name in names}
        for x in some:
            right, rounded = step(x, right, weights, exact), step(x, rounded, weights, stored)
        kept = names.index("c") if "c" in names else 0
        own.append(chip[names[kept]].reshape(-1) - right[kept])
        storage.append(rounded[kept] - right[kept])
    assert np.linalg.norm(own) <= 4 * np.linalg.norm(storage)
