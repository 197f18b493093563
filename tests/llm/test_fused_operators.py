"""onnxruntime's fused operators, spelled out, against onnxruntime on the operators themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dsa_sched
from dsa_sched.frontend.decomposition.fused_operators import FUSED
from dsa_sched.frontend.load import read_source
from dsa_sched.frontend.network.spelling import MICROSOFT
from hw_models.errors import ModelError, UserError

Arrays = Mapping[str, npt.NDArray[Any]]
RANDOM = np.random.default_rng(5)


def normal(*shape: int) -> npt.NDArray[np.float32]:
    return RANDOM.normal(size=shape).astype(np.float32)


def model_of(
    op_type: str,
    feed: Arrays,
    stored: Arrays,
    operands: Sequence[str],
    outputs: int,
    opset: int = 21,
    **attributes: Any,
) -> onnx.ModelProto:
    """One operator; what is in `feed` is an input, what is in `stored` a constant."""
    names = ["y", "second", "third", "fourth"][:outputs]
    domain = "" if op_type == "SimplifiedLayerNormalization" else MICROSOFT
    node = helper.make_node(op_type, list(operands), names, domain=domain, **attributes)
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
              for name, array in feed.items()]  # fmt: skip
    kept = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in stored.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    graph = helper.make_graph([node], "fused", inputs, results, kept)
    sets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def results(model: onnx.ModelProto, feed: Arrays) -> list[npt.NDArray[Any]]:
    """Without optimisation, which would fuse what is spelled out into operators of another arithmetic."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: list[npt.NDArray[Any]] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed)
    return found


def agree(model: onnx.ModelProto, feed: Arrays, rows: int | None = None) -> None:
    """The results of a model and of its spelling; of caches, as many rows as are written."""
    theirs = results(model, feed)
    spelled = read_source(model).model
    assert not {node.domain for node in spelled.graph.node} - {""}
    ours = results(spelled, feed)
    for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        kept = slice(None) if rows is None or not number else slice(0, rows)
        assert np.allclose(one[:, :, kept] if number else one, other[:, :, kept] if number else other, atol=2e-5)


@pytest.mark.parametrize("opset", [17, 21])
def test_norms(opset: int) -> None:
    x, gain, more = normal(2, 3, 8), normal(8), {"b": normal(8), "c": normal(8)}
    agree(model_of("SimplifiedLayerNormalization", {"x": x}, {"g": gain}, ["x", "g"], 1, opset, epsilon=1e-6), {"x": x})
    both = {"x": x, "s": normal(2, 3, 8)}
    skipped = "SkipSimplifiedLayerNormalization"
    agree(model_of(skipped, both, {"g": gain}, ["x", "s", "g"], 1, opset, epsilon=1e-6), both)
    node = model_of(skipped, both, {"g": gain, **more}, ["x", "s", "g", "b"], 1, opset)
    node.graph.node[0].output.extend(["", "", "sum"])
    node.graph.output.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, None))
    agree(node, both)
    agree(model_of("SkipLayerNormalization", both, {"g": gain, **more}, ["x", "s", "g", "b", "c"], 1, opset), both)


@pytest.mark.parametrize(
    ("op_type", "operands", "attributes"),
    [
        ("Gelu", ["x"], {}),
        ("BiasGelu", ["x", "b"], {}),
        ("FastGelu", ["x"], {}),
        ("FastGelu", ["x", "b"], {}),
        ("QuickGelu", ["x"], {"alpha": 1.5}),
    ],
)
def test_functions(op_type: str, operands: list[str], attributes: dict[str, Any]) -> None:
    feed = {"x": normal(2, 3, 8)}
    agree(model_of(op_type, feed, {"b": normal(8)}, operands, 1, **attributes), feed)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("rows", "block"), [(32, 32), (48, 16), (40, 16)])
@pytest.mark.parametrize("zeros", [False, True])
def test_products_by_packed_weights(bits: int, rows: int, block: int, zeros: bool) -> None:
    """With one block, the weights stay integers; with more, they are numbers."""
    columns, blocks = 6, -(-rows // block)
    stored: dict[str, npt.NDArray[Any]] = {
        "w": RANDOM.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8),
        "s": np.abs(normal(columns, blocks)) / 16,
    }
    if zeros:
        stored["z"] = RANDOM.integers(0, 256, (columns, -(-blocks * bits // 8))).astype(np.uint8)
    feed = {"x": normal(3, rows)}
    node = model_of("MatMulNBits", feed, stored, ["x", "w", "s", *(["z"] if zeros else [])], 1,
                    bits=bits, K=rows, N=columns, block_size=block)  # fmt: skip
    agree(node, feed)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("places", [np.array([3]), np.array([[3, 4], [0, 1]])])
def test_rotary_embeddings(interleaved: int, places: npt.NDArray[np.int64]) -> None:
    feed: dict[str, npt.NDArray[Any]] = {"x": normal(2, 2, 16), "p": places.astype(np.int64)}
    stored: dict[str, npt.NDArray[Any]] = {"c": np.cos(normal(8, 4)), "s": np.sin(normal(8, 4))}
    agree(
        model_of("RotaryEmbedding", feed, stored, ["x", "p", "c", "s"], 1, num_heads=2, interleaved=interleaved), feed
    )


ATTENTIONS: Sequence[tuple[int, int, dict[str, Any]]] = [
    (1, 5, {}),
    (1, 5, {"do_rotary": 1}),
    (3, 5, {"do_rotary": 1, "rotary_interleaved": 1, "softcap": 3.0, "scale": 0.3}),
    (1, 5, {"local_window_size": 3}),
    (5, 5, {"do_rotary": 1}),
]


@pytest.mark.parametrize(("rows", "total", "attributes"), ATTENTIONS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("room", [True, False])
def test_group_query_attention(rows: int, total: int, attributes: dict[str, Any], packed: bool, room: bool) -> None:
    """Caches with room for eight rows, or with exactly the past ones, where the total length is a constant."""
    heads, groups, width, past = 4, 2, 16, 8 if room else total - rows
    if not room and (attributes.get("local_window_size") or not past):
        pytest.skip("windows need places, and a first run has no caches")
    items = 2 if rows == 1 else 1  # onnxruntime takes several rows of one item only
    flat = [normal(items, rows, count * width) for count in (heads, groups, groups)]
    feed: dict[str, npt.NDArray[Any]] = (
        {"q": np.concatenate(flat, 2)} if packed else dict(zip("qkv", flat, strict=True))
    )
    feed |= {"pk": normal(items, groups, past, width), "pv": normal(items, groups, past, width)}
    feed["n"] = np.full(items, total - 1, np.int32)
    stored: dict[str, npt.NDArray[Any]] = {"c": np.cos(normal(16, width // 2)), "s": np.sin(normal(16, width // 2))}
    (feed if room else stored)["t"] = np.array(total, np.int32)
    tables = ["c", "s"] if attributes.get("do_rotary") else []
    operands = ["q", *(["", ""] if packed else ["k", "v"]), "pk", "pv", "n", "t", *tables]
    model = model_of(
        "GroupQueryAttention", feed, stored, operands, 3, num_heads=heads, kv_num_heads=groups, **attributes
    )
    agree(model, feed, total)


def test_what_is_not_spelled_out_is_refused_by_name() -> None:
    row, cache = normal(1, 1, 16), normal(1, 2, 4, 8)
    feed: dict[str, npt.NDArray[Any]] = {"q": row, "k": row, "v": row, "pk": cache, "pv": cache}
    feed |= {"n": np.array([2], np.int32), "t": np.array(3, np.int32)}
    model = model_of("GroupQueryAttention", feed, {}, [*feed], 3, num_heads=2, kv_num_heads=2, smooth_softmax=1)
    with pytest.raises(ModelError, match="GroupQueryAttention"):
        dsa_sched.compile(model, chip="stcp920", level="O0")


@pytest.mark.parametrize(("domain", "op_type"), FUSED)
@pytest.mark.parametrize("count", [0, 1, 3, 9])
def test_damaged_operators_compile_or_are_refused_in_words(domain: str, op_type: str, count: int) -> None:
    """Operands that are missing or of other shapes, attributes of other types."""
    attributes: dict[str, Any] = {"num_heads": [1], "kv_num_heads": "two", "bits": 4.5, "K": [8], "axis": 7}
    node = helper.make_node(op_type, ["x"] * count, ["y"], domain=domain, **attributes)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3, 8)) for name in ("x", "y")]
    sets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(
        helper.make_graph([node], "damaged", ends[:1], ends[1:]), opset_imports=sets, ir_version=10
    )
    with suppress(UserError):  # any other error fails the test
        dsa_sched.compile(model, chip="stcp920", level="O0", cache=False)
