"""The networks of IOS: the reader of their schema, hostile files, task graphs and ONNX."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.lab.ios.network import Network
from benchmarks.lab.ios.onnx_file import onnx_model
from benchmarks.lab.ios.schema import (
    MAX_FILE_BYTES,
    builtin_networks,
    load_network,
    parse_networks,
    read_networks,
)
from benchmarks.lab.ios.tasks import task_graph, task_parts
from benchmarks.lab.readers.schedules import parse_task_graph
from dsa_sched.frontend import load_model
from dsa_sched.placement.model.task_graph import INPUTS, OUTPUTS, verify_task_graph
from hw_models.errors import ModelError, UserError

FACTS = {
    "squeezenet": (50, 12, None, None),
    "inception_v3": (119, 13, 5.71e9, 21.8e6),
    "randwire_large": (120, 6, None, None),
    "nasnet_large": (374, 25, None, None),
}
"""Operators and parts of the authors' repository; multiplications and weights as known of Inception V3 without its last
layer. The others are variants."""


def conv(name: str, *terms: list[list[object]], shape: list[int], **changes: object) -> dict[str, Any]:
    own = {"type": "conv", "name": name, "inputs": list(terms), "out_channels": shape[0], "kernel": [3, 3],
           "stride": [1, 1], "padding": [1, 1], "groups": 1, "act": "relu", "output_shape": shape}  # fmt: skip
    return {**own, **changes}


def pool(name: str, kind: str, source: str, shape: list[int], **changes: object) -> dict[str, Any]:
    own = {"type": "pool", "name": name, "inputs": [[[source, 0, shape[0]]]], "pool_type": kind, "kernel": [3, 3],
           "stride": [2, 2], "padding": [1, 1], "output_shape": shape}  # fmt: skip
    return {**own, **changes}


def everything() -> dict[str, Any]:
    """Every kind of node, sums, slices and concatenations, a sequence, two blocks."""
    separable = {
        "type": "sequential",
        "name": "s",
        "nodes": [
            {"type": "relu", "name": "s1", "inputs": [[["a", 0, 4], ["b", 2, 6]]], "output_shape": [4, 8, 8]},
            conv("s2", [["s1", 0, 4]], shape=[4, 8, 8], groups=4, act="identity"),
            conv("s3", [["s2", 0, 4]], shape=[5, 8, 8], kernel=[1, 1], padding=[0, 0], act="identity"),
        ],
        "output_shape": [5, 8, 8],
    }
    joined = {"type": "identity", "name": "j", "inputs": [[["s", 0, 5]], [["a", 1, 4], ["b", 0, 3]]]}
    tail = [
        pool("p", "max", "j", [8, 4, 4]),
        pool("q", "avg", "j", [8, 4, 4]),
        {"type": "identity", "name": "i", "inputs": [[["p", 0, 8]]], "output_shape": [8, 4, 4]},
        pool("g", "global_max", "q", [8, 1, 1], kernel=[4, 4], stride=[1, 1], padding=[0, 0]),
        pool("h", "global_avg", "i", [8, 1, 1], kernel=[4, 4], stride=[1, 1], padding=[0, 0]),
    ]
    end = {"type": "relu", "name": "z", "inputs": [[["g", 0, 8], ["h", 0, 8]]], "output_shape": [8, 1, 1]}
    start = {"type": "placeholder", "name": "x", "output_shape": [3, 8, 8]}
    first = [conv("a", [["x", 0, 3]], shape=[4, 8, 8]), conv("b", [["x", 0, 3]], shape=[6, 8, 8]), separable]
    return {
        "name": "everything",
        "input": start,
        "blocks": [
            {"enter_name": "x", "inner_nodes": first, "exit_node": {**joined, "output_shape": [8, 8, 8]}},
            {"inner_nodes": tail, "exit_node": end, "parts": [["p", "q"], ["i", "g", "h", "z"]], "stages": []},
        ],
    }


def parsed(document: object) -> Network:
    return next(iter(parse_networks(json.dumps(document).encode(), "test").values()))


def test_the_papers_networks_come_with_the_package() -> None:
    assert set(builtin_networks()) == set(FACTS)


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_the_networks(name: str) -> None:
    operators, parts, macs, weights = FACTS[name]
    network = load_network(name)
    graph = task_graph(network)
    verify_task_graph(graph)
    assert (len(network.operators), len(network.parts)) == (operators, parts)
    assert [graph.tasks[0].name, graph.tasks[-1].name] == [INPUTS, OUTPUTS]
    assert parse_task_graph(str(graph)) == graph
    if macs is not None:
        assert sum(task.macs for task in graph.tasks) == pytest.approx(macs, rel=0.06)
    if weights is not None:
        assert sum(task.constant_bytes for task in graph.tasks) / 4 == pytest.approx(weights, rel=0.06)


def test_values_and_work_grow_with_the_batch_and_weights_do_not() -> None:
    network = load_network("squeezenet")
    one, four = task_graph(network), task_graph(network, 4)
    assert [4 * value.size_bytes for value in one.values] == [value.size_bytes for value in four.values]
    assert [(4 * task.macs, task.constant_bytes) for task in one.tasks] == [
        (task.macs, task.constant_bytes) for task in four.tasks
    ]


def test_everything_of_the_schema_runs() -> None:
    """Against numpy where it is short: the joined value, whose terms are sums of slices."""
    network = parsed(everything())
    assert task_parts(network) == ((1, 2, 3, 4), (5, 6), (7, 8, 9, 10))
    model = onnx_model(network, seed=1, batch=2)
    model.graph.output.extend([onnx.helper.make_empty_tensor_value_info(name) for name in ("a", "b", "s", "j")])
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feed = np.random.default_rng(0).standard_normal((2, 3, 8, 8), np.float32)
    last, a, b, s, j = session.run(None, {"x": feed})
    assert last.shape == (2, 8, 1, 1)
    np.testing.assert_array_equal(j, np.concatenate([s, a[:, 1:4] + b[:, :3]], axis=1))


def test_nodes_of_tasks_are_those_of_the_file() -> None:
    network = parsed(everything())
    names = [node.name for node in onnx_model(network).graph.node]
    assert [name for task in task_graph(network).tasks for name in task.nodes] == names


def test_the_frontend_reads_what_is_written(tmp_path: Path) -> None:
    network = load_network("squeezenet")
    path = tmp_path / "squeezenet.onnx"
    onnx.save(onnx_model(network), path)
    model = load_model(path)
    assert sum(op.macs for op in model.graph.ops) == sum(task.macs for task in task_graph(network).tasks)


LARGE = [pytest.param(name, marks=pytest.mark.slow(at_commit=1)) for name in ("randwire_large", "nasnet_large")]


@pytest.mark.parametrize("name", ["squeezenet", pytest.param("inception_v3", marks=pytest.mark.nightly), *LARGE])
def test_activations_keep_their_size(name: str) -> None:
    network = load_network(name)
    session = onnxruntime.InferenceSession(onnx_model(network).SerializeToString())
    feed = np.random.default_rng(0).standard_normal((1, *network.input_shape), np.float32)
    (result,) = session.run(None, {network.input_name: feed})
    assert result.shape == (1, *network.operators[-1].output_shape)
    assert 0.1 < result.std() < 10


def test_equal_seeds_give_equal_bytes() -> None:
    network = load_network("squeezenet")
    one, same, other = (onnx_model(network, seed).SerializeToString(deterministic=True) for seed in (1, 1, 2))
    assert one == same != other


def test_a_file_has_one_network_or_several(tmp_path: Path) -> None:
    path = tmp_path / "networks.json"
    path.write_text(json.dumps({"one": everything(), "two": everything()}))
    assert list(read_networks(path)) == ["one", "two"]
    path.write_text(json.dumps(everything()))
    assert list(read_networks(path)) == ["everything"]


def changed(*path: object, to: object) -> bytes:
    """The document with one place changed; without `to`, nothing there."""
    document = deepcopy(everything())
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return json.dumps(document).encode()


FIRST = ("blocks", 0, "inner_nodes", 0)

HOSTILE = {
    "no json": (b"\x00\xff", "a network of the IOS schema"),
    "empty": (b"", "a network of the IOS schema"),
    "a list": (b"[]", "a network of the IOS schema"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "a network of the IOS schema"),
    "large": (b" " * (MAX_FILE_BYTES + 1), "at most 16777216 bytes"),
    "no blocks": (changed("blocks", to=[]), "blocks: list should have at least 1 item"),
    "unknown kind": (changed(*FIRST, "type", to="rnn"), "inner_nodes.0"),
    "negative": (changed(*FIRST, "kernel", to=[-3, 3]), "kernel.0: input should be greater than or equal to 1"),
    "huge": (changed(*FIRST, "out_channels", to=10**12), "out_channels: input should be less than"),
    "huge number": (changed(*FIRST, "groups", to=10**4000), "groups"),
    "float": (changed(*FIRST, "groups", to=1.5), "groups"),
    "name": (changed(*FIRST, "name", to="a b\n"), "name: string should match"),
    "end": (changed(*FIRST, "name", to="%inputs"), "name: string should match"),
    "twice": (changed(*FIRST, "name", to="b"), "node b: needs a name of its own"),
    "input twice": (changed(*FIRST, "name", to="x"), "node x: needs a name of its own"),
    "later": (changed(*FIRST, "inputs", to=[[["b", 0, 6]]]), "node a: needs inputs that are made before it; has b"),
    "itself": (changed(*FIRST, "inputs", to=[[["a", 0, 4]]]), "node a: needs inputs that are made before it"),
    "hidden": (changed("blocks", 0, "exit_node", "inputs", to=[[["s2", 0, 4]]]), "node j: needs inputs that are made"),
    "channels": (changed(*FIRST, "inputs", to=[[["x", 0, 4]]]), "node a: needs channels of the 3 of x"),
    "no channels": (changed(*FIRST, "inputs", to=[[["x", 2, 2]]]), "node a: needs channels of the 3 of x"),
    "no inputs": (changed(*FIRST, "inputs", to=[]), "inputs: list should have at least 1 item"),
    "no values": (changed(*FIRST, "inputs", to=[[]]), "inputs.0: list should have at least 1 item"),
    "sum": (changed("blocks", 0, "exit_node", "inputs", to=[[["a", 0, 4], ["b", 0, 6]]]), "needs inputs of one shape"),
    "groups": (changed(*FIRST, "groups", to=2), "node a: needs channels in 2 groups"),
    "shape": (changed(*FIRST, "output_shape", to=[4, 9, 8]), "a: needs output shape (4, 8, 8); has (4, 9, 8)"),
    "sequence": (changed("blocks", 0, "inner_nodes", 2, "output_shape", to=[6, 8, 8]), "needs output shape (5, 8, 8)"),
    "window": (changed("blocks", 1, "inner_nodes", 0, "kernel", to=[99, 3]), "p: needs output shape"),
    "huge input": (changed("input", "output_shape", to=[60000, 60000, 3]), "input x: needs at most 2147483648"),
    "part": (changed("blocks", 1, "parts", to=[["p"], ["nobody"]]), "needs nodes of their block; has nobody"),
    "parts": (changed("blocks", 1, "parts", to=[["p"]]), "parts of everything: needs every node once"),
    "part twice": (changed("blocks", 1, "parts", to=[["p", "p"]]), "parts of everything: needs every node once"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_files_that_are_no_networks_are_refused(case: str) -> None:
    data, said = HOSTILE[case]
    with pytest.raises(ModelError) as raised:
        parse_networks(data, "test.json")
    assert said in str(raised.value)


SCRAPS: list[object] = [None, 0, -1, 2, 5, 1 << 16, 10**30, 1.5, "", "x", "a", "relu", "%inputs", [], {}, [3, 3], True]


@pytest.mark.parametrize("seed", range(10))
def test_broken_files_are_networks_or_are_refused(seed: int) -> None:
    """One to three places of a good file changed, dropped or doubled: forty files a seed."""
    rng = np.random.default_rng(seed)
    for _ in range(40):
        document = everything()
        for _ in range(rng.integers(1, 4)):
            break_somewhere(document, rng)
        with suppress(ModelError):
            for network in parse_networks(json.dumps(document).encode(), "test").values():
                verify_task_graph(task_graph(network))
                onnx_model(network)


def break_somewhere(place: Any, rng: np.random.Generator) -> None:
    """Walk down by chance, and spoil what is there."""
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = keys[int(rng.integers(len(keys)))]
        if not isinstance(place[key], (dict, list)) or rng.random() < 0.2:
            break
        place = place[key]
    match int(rng.integers(3)):
        case 0:
            del place[key]
        case 1 if isinstance(place, list):
            place.insert(key, deepcopy(place[key]))
        case _:
            place[key] = SCRAPS[int(rng.integers(len(SCRAPS)))]


def test_more_weights_than_a_file_may_have() -> None:
    wide = conv("a", [["x", 0, 60000]], shape=[30000, 8, 8], kernel=[1, 1], padding=[0, 0])
    start = {"type": "placeholder", "name": "x", "output_shape": [60000, 8, 8]}
    network = parsed({"name": "wide", "input": start, "blocks": [{"inner_nodes": [], "exit_node": wide}]})
    with pytest.raises(ModelError, match="at most 268435456 weights; has 1800030000"):
        onnx_model(network)


def test_more_work_than_is_priced() -> None:
    """2^46 multiplications: a window as high as most of its input."""
    wide = conv("a", [["x", 0, 16]], shape=[16384, 64, 1024], kernel=[4096, 1], padding=[0, 0])
    start = {"type": "placeholder", "name": "x", "output_shape": [16, 4159, 1024]}
    with pytest.raises(ModelError, match="node a: needs at most 2147483648 elements and 17592186044416 mult"):
        parsed({"name": "wide", "input": start, "blocks": [{"inner_nodes": [], "exit_node": wide}]})


def test_unknown_networks_and_files_are_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="network resnet: needs one of inception_v3"):
        load_network("resnet")
    with pytest.raises(UserError, match="a file that can be read; has no such file"):
        read_networks(tmp_path / "nothing.json")
