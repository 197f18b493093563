"""Attention over caches, and writes into them, against onnxruntime: keys and values of the past, lengths, places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import dsa_sched
from hw_models.errors import ModelError, UserError

Arrays = Mapping[str, npt.NDArray[Any]]
NEAR = 0.006
"""Largest error of an element of the result, in fp16."""
OPERANDS = ("q", "k", "v", "m", "pk", "pv", "n")

LAST_OF_ONNXRUNTIME = 24
"""The newest operator set that the installed onnxruntime runs."""


def attention(feed: Arrays, outputs: int, opset: int = 24, **attributes: Any) -> onnx.ModelProto:
    operands = [name if name in feed else "" for name in OPERANDS]
    while not operands[-1]:
        operands.pop()
    return one_node("Attention", feed, operands, ["y", "present_k", "present_v", "scores"][:outputs], opset, attributes)


def one_node(
    op_type: str, feed: Arrays, operands: Sequence[str], results: Sequence[str], opset: int, attributes: Any
) -> onnx.ModelProto:
    node = helper.make_node(op_type, operands, results, **attributes)
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
              for name, array in feed.items()]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph([node], "cached", inputs, ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def expected(model: onnx.ModelProto, feed: Arrays) -> list[npt.NDArray[Any]]:
    """onnxruntime's results; ONNX's own where it does not run the model's operator set."""
    if model.opset_import[0].version > LAST_OF_ONNXRUNTIME:
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, dict(feed))]
    found: list[npt.NDArray[Any]] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    return found


def operands_of(
    rows: int,
    *,
    past: int = 0,
    columns: int = 0,
    groups: int = 4,
    flat: bool = False,
    mask: tuple[type, tuple[int, ...]] | None = None,
    lengths: Sequence[int] = (),
) -> Arrays:
    random, items, width = np.random.default_rng(3), 2, 8
    keys = columns or rows

    def part(heads: int, count: int) -> npt.NDArray[np.float32]:
        shape = (items, count, heads * width) if flat else (items, heads, count, width)
        return random.normal(size=shape).astype(np.float32)

    feed: dict[str, npt.NDArray[Any]] = {"q": part(4, rows), "k": part(groups, keys), "v": part(groups, keys)}
    if mask is not None:
        kind, shape = mask
        feed["m"] = random.random(shape) < 0.6 if kind is bool else random.normal(size=shape).astype(np.float32)
    if past:
        feed |= {name: random.normal(size=(items, groups, past, width)).astype(np.float32) for name in ("pk", "pv")}
    if lengths:
        feed["n"] = np.array(lengths, np.int64)
    return feed


CAUSAL = {"is_causal": 1}
COUNTS = {"q_num_heads": 4, "kv_num_heads": 2}
CASES: Sequence[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("past", {"rows": 3, "past": 5}, {}),
    ("past, causal", {"rows": 3, "past": 5}, CAUSAL),
    ("past, grouped, mask", {"rows": 3, "past": 5, "groups": 2, "mask": (float, (3, 8))}, CAUSAL),
    ("past, truth values", {"rows": 3, "past": 5, "groups": 2, "mask": (bool, (2, 1, 3, 8))}, {}),
    ("past, heads side by side", {"rows": 3, "past": 5, "groups": 2, "flat": True}, {**CAUSAL, **COUNTS}),
    ("past, softcap", {"rows": 3, "past": 5, "groups": 2}, {**CAUSAL, "softcap": 2.0, "scale": 0.5}),
    ("past, window", {"rows": 3, "past": 5, "groups": 2}, {**CAUSAL, "left_window_size": 2, "opset": 25}),
    ("no past", {"rows": 3, "groups": 2, "flat": True}, {**CAUSAL, **COUNTS}),
    ("lengths", {"rows": 3, "columns": 6, "lengths": (3, 6)}, {}),
    ("lengths, causal", {"rows": 3, "columns": 6, "groups": 2, "lengths": (3, 5)}, CAUSAL),
    ("rows before the cache", {"rows": 3, "columns": 6, "groups": 2, "lengths": (2, 5)}, CAUSAL),
    ("lengths, mask", {"rows": 3, "columns": 6, "groups": 2, "mask": (float, (3, 6)), "lengths": (2, 5)}, {}),
    ("lengths, truths", {"rows": 3, "columns": 6, "mask": (bool, (2, 4, 3, 6)), "lengths": (4, 5)}, CAUSAL),
    ("lengths, window", {"rows": 3, "columns": 6, "lengths": (4, 5)}, {**CAUSAL, "left_window_size": 1, "opset": 25}),
]


@pytest.mark.spread(5)
@pytest.mark.parametrize(("operands", "attributes"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_attention_over_a_cache(operands: dict[str, Any], attributes: dict[str, Any]) -> None:
    feed = operands_of(**operands)
    model = attention(feed, 1 if "n" in feed else 3, **attributes)
    wanted = expected(model, feed)
    found = dsa_sched.compile(model, chip="stcp920", level="O0", cache=False).run(feed)
    for name, array in zip(found, wanted, strict=True):
        near = NEAR if name == "y" else 0.0
        exact = array if name == "y" else array.astype(np.float16)
        assert np.abs(found[name].astype(np.float32) - exact).max() <= near, name


def test_scores_as_a_result_are_refused() -> None:
    feed = operands_of(3)
    with pytest.raises(ModelError, match="scores as an output"):
        dsa_sched.compile(attention(feed, 4), chip="stcp920", level="O0")


SCATTERS: Sequence[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3, 8, 4), (2, 3, 1, 4), (5, 0)),
    ((2, 3, 8, 4), (2, 3, 3, 4), (5, 0)),
    ((2, 3, 8, 4), (2, 3, 3, 4), ()),
    ((2, 3, 8, 4), (2, 3, 8, 4), ()),
    ((2, 8, 4), (2, 2, 4), (6, 1)),
]


@pytest.mark.parametrize(("cache", "update", "places"), SCATTERS)
def test_rows_are_written_at_their_places_to_the_bit(
    cache: tuple[int, ...], update: tuple[int, ...], places: tuple[int, ...]
) -> None:
    random = np.random.default_rng(3)
    feed: dict[str, npt.NDArray[Any]] = {
        name: random.normal(size=shape).astype(np.float16).astype(np.float32)
        for name, shape in (("cache", cache), ("update", update))
    }
    if places:
        feed["places"] = np.array(places, np.int64)
    model = one_node("TensorScatter", feed, list(feed), ["y"], 24, {})
    (wanted,) = expected(model, feed)
    found = dsa_sched.compile(model, chip="stcp920", level="O0", cache=False).run(feed)["y"]
    assert np.array_equal(found.astype(np.float32), wanted)


@pytest.mark.parametrize("places", [(5,), (-1,), (3, 0, -2)])
@pytest.mark.parametrize("shape", [(8, 4), (8, 2, 3, 4)])
@pytest.mark.parametrize("constant", [False, True])
def test_rows_are_assigned_to_the_bit(places: tuple[int, ...], shape: tuple[int, ...], constant: bool) -> None:
    random = np.random.default_rng(4)
    feed: dict[str, npt.NDArray[Any]] = {
        name: random.normal(size=(rows, *shape[1:])).astype(np.float16).astype(np.float32)
        for name, rows in (("cache", shape[0]), ("rows", len(places)))
    }
    feed["places"] = np.array(places, np.int64)[:, None]
    model = one_node("ScatterND", feed, ["cache", "places", "rows"], ["y"], 18, {})
    (wanted,) = expected(model, feed)
    if constant:
        bound = {"places": tuple(places)}
        found = dsa_sched.compile(model, chip="stcp920", level="O0", bind=bound, cache=False)
        feed.pop("places")
    else:
        found = dsa_sched.compile(model, chip="stcp920", level="O0", cache=False)
    assert np.array_equal(found.run(feed)["y"].astype(np.float32), wanted)


DAMAGED: Sequence[tuple[str, Sequence[tuple[int, ...]]]] = [
    ("TensorScatter", [(), ()]),
    ("TensorScatter", [(4,), (4,)]),
    ("TensorScatter", [(2, 4), (2, 1)]),
    ("TensorScatter", [(2, 3, 8, 4), (2, 3, 4)]),
    ("TensorScatter", [(2, 8, 4), (2, 1, 4), ()]),
    ("TensorScatter", [(2, 8, 4), (2, 1, 4), (3,)]),
    ("ScatterND", [(), (1, 1), (1,)]),
    ("ScatterND", [(8, 4), (), (1, 4)]),
    ("ScatterND", [(8, 4), (1, 1), (4,)]),
    ("Attention", [(1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), ()]),
    ("Attention", [(1, 2, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8), (3, 3), (2, 8), (2, 8)]),
    ("Attention", [(3, 8), (3, 8), (3, 8), (3, 3), (3, 8), (3, 8)]),
]


@pytest.mark.parametrize(("op_type", "shapes"), DAMAGED)
def test_operands_of_other_ranks_compile_or_are_refused_in_words(
    op_type: str, shapes: Sequence[tuple[int, ...]]
) -> None:
    whole = {"TensorScatter": 2, "ScatterND": 1}.get(op_type)
    feed: dict[str, npt.NDArray[Any]] = {
        f"x{number}": np.zeros(shape, np.int64 if number == whole else np.float32)
        for number, shape in enumerate(shapes)
    }
    with suppress(UserError):  # any other error fails the test
        dsa_sched.compile(one_node(op_type, feed, list(feed), ["y"], 24, {}), chip="stcp920", level="O0", cache=False)


def test_lengths_of_other_items_are_refused() -> None:
    feed = {**operands_of(3, columns=6, lengths=(3, 6)), "n": np.zeros((), np.int64)}
    with pytest.raises(UserError):
        dsa_sched.compile(attention(feed, 1), chip="stcp920", level="O0", cache=False)


@pytest.mark.parametrize("attributes", [{"mode": "circular"}, {"axis": 1}])
def test_other_writes_are_refused(attributes: dict[str, Any]) -> None:
    feed = {"cache": np.zeros((2, 8, 3, 4), np.float32), "update": np.zeros((2, 2, 3, 4), np.float32)}
    model = one_node("TensorScatter", feed, list(feed), ["y"], 24, attributes)
    with pytest.raises(ModelError, match="TensorScatter"):
        dsa_sched.compile(model, chip="stcp920", level="O0")
