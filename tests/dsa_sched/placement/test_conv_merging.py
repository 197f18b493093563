"""Merging of convolutions of a model: the rule, and the price against a model that has the merged one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dsa_sched.placement.methods.registry import Search, find_method
from dsa_sched.placement.model.conv_merging import merging_of
from dsa_sched.placement.model.from_onnx import task_model_of
from dsa_sched.placement.model.pricing import priced, roofline_of
from dsa_sched.placement.model.problem import Merged, Problem
from dsa_sched.placement.model.scenario import Scenario, read_scenario

CHANNELS, SIZE = 6, 9

SCENARIO = """
schema_version: 1
name: two
description: A card with streams and a slow one
devices:
  - kind: roofline
    name: fast
    streams: 3
    stage_us: 2
    roofline: {flops_per_second: 1e9, bytes_per_second: 1e9, launch_us: 3, full_bytes: 10_000}
  - {kind: roofline, name: slow, roofline: {flops_per_second: 1e8, bytes_per_second: 1e8}}
links:
  - {between: [fast, slow], latency_us: 10, gigabytes_per_second: 1}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    path = tmp_path / "two.yaml"
    path.write_text(SCENARIO)
    return read_scenario(path)


Weights = tuple[np.ndarray, np.ndarray]


def weights(seed: int, channels: int, kernel: tuple[int, int], depth: int = CHANNELS) -> Weights:
    rng = np.random.default_rng(seed)
    shape = channels, depth, *kernel
    return rng.standard_normal(shape).astype(np.float32), rng.standard_normal(channels).astype(np.float32)


def branches(*convs: tuple[Weights, dict[str, Any], str]) -> onnx.ModelProto:
    """Convolutions of one input, each with an activation or none, and a concatenation of what they make."""
    nodes, constants, made = [], [], []
    for number, ((weight, bias), attributes, activation) in enumerate(convs):
        own = {name: value for name, value in attributes.items() if name != "source"}
        source = attributes.get("source", "x")
        constants += [numpy_helper.from_array(weight, f"w{number}"), numpy_helper.from_array(bias, f"b{number}")]
        nodes.append(helper.make_node("Conv", [source, f"w{number}", f"b{number}"], [f"c{number}"], f"conv{number}",
                                      **own))  # fmt: skip
        made.append(f"c{number}")
        if activation:
            nodes.append(helper.make_node(activation, [made[-1]], [f"a{number}"], f"act{number}"))
            made[-1] = f"a{number}"
    nodes.append(helper.make_node("GlobalAveragePool", [made[0]], ["p"], "pool"))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (*made, "p")]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, CHANNELS, SIZE, SIZE)) for name in "xy"]
    graph = helper.make_graph(nodes, "branches", inputs, outputs, constants)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )


def problem_of(model: onnx.ModelProto, scenario: Scenario) -> Problem:
    tasks = task_model_of(model)
    plain = priced(tasks.graph, scenario)
    return Problem(
        plain.graph, plain.costs, merging_of(tasks, [roofline_of(device) for device in scenario.devices], plain)
    )


def merged(problem: Problem, *names: str) -> Merged | None:
    assert problem.merging is not None
    return problem.merging.merged(tuple(problem.graph.number[name] for name in names))


SMALL = (weights(0, 4, (1, 1)), {"pads": [0, 0, 0, 0]}, "Relu")
WIDE = (weights(1, 8, (1, 3)), {"pads": [0, 1, 0, 1]}, "Relu")
LARGE = (weights(2, 5, (3, 1)), {"pads": [1, 0, 1, 0]}, "Relu")


def test_the_price_is_that_of_a_model_with_the_merged_convolution(scenario: Scenario) -> None:
    """17 channels, a window of 3 x 3."""
    found = merged(problem_of(branches(SMALL, WIDE, LARGE), scenario), "conv0", "conv1", "conv2")
    whole = problem_of(branches((weights(3, 17, (3, 3)), {"pads": [1, 1, 1, 1]}, "Relu")), scenario)
    task = whole.graph.number["conv0"]
    assert found is not None
    assert found.work_ns == whole.costs.work_ns[task]
    assert found.shares == whole.costs.shares[task]
    assert (found.macs, found.constant_bytes) == (whole.graph.tasks[task].macs, whole.graph.tasks[task].constant_bytes)


def test_the_merged_convolution_computes_the_same() -> None:
    """Smaller windows lie in the middle of the largest, among zeros; channels are one behind the other."""
    together, biases = [], []
    for (weight, bias), _, _ in (SMALL, WIDE, LARGE):
        grown = np.zeros((*weight.shape[:2], 3, 3), np.float32)
        top, left = ((3 - size) // 2 for size in weight.shape[2:])
        grown[:, :, top : top + weight.shape[2], left : left + weight.shape[3]] = weight
        together.append(grown)
        biases.append(bias)
    one = (np.concatenate(together), np.concatenate(biases)), {"pads": [1, 1, 1, 1]}, "Relu"
    feed = np.random.default_rng(4).standard_normal((2, CHANNELS, SIZE, SIZE)).astype(np.float32)
    feeds = {"x": feed, "y": feed}
    apart = onnxruntime.InferenceSession(branches(SMALL, WIDE, LARGE).SerializeToString()).run(None, feeds)[:3]
    merged_ = onnxruntime.InferenceSession(branches(one).SerializeToString()).run(None, feeds)[0]
    np.testing.assert_allclose(merged_, np.concatenate(apart, axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "other",
    [
        (weights(1, 4, (1, 1)), {"source": "y"}, "Relu"),
        (weights(1, 4, (1, 1)), {}, ""),
        (weights(1, 4, (1, 1)), {}, "Sigmoid"),
        (weights(1, 4, (1, 1)), {"strides": [2, 2]}, "Relu"),
        (weights(1, 6, (1, 1), 3), {"group": 2}, "Relu"),
        (weights(1, 4, (3, 3)), {}, "Relu"),
        (weights(1, 4, (2, 2)), {"pads": [1, 1, 0, 0]}, "Relu"),
        (weights(1, 4, (3, 3)), {"auto_pad": "SAME_UPPER"}, "Relu"),
        (weights(1, 4, (3, 3)), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}, "Relu"),
    ],
    ids=["input", "no activation", "activation", "stride", "groups", "resolution", "pads", "auto_pad", "dilations"],
)
def test_what_does_not_merge(scenario: Scenario, other: tuple[Weights, dict[str, Any], str]) -> None:
    problem = problem_of(branches(SMALL, other), scenario)
    assert merged(problem, "conv0", "conv1") is None
    assert merged(problem, "conv1", "conv0") is None


def test_other_layers_do_not_merge(scenario: Scenario) -> None:
    problem = problem_of(branches(SMALL, WIDE), scenario)
    assert merged(problem, "conv0", "pool") is None
    assert merged(problem, "conv0", "%inputs") is None


def test_both_kinds_of_stages_of_a_model(scenario: Scenario) -> None:
    problem = problem_of(branches(SMALL, WIDE, LARGE), scenario)
    found = {name: find_method(name)(problem, Search()) for name in ("sequential", "ios", "ios-merge", "ios-both")}
    makespan = {name: outcome.makespan_ns for name, outcome in found.items()}
    assert makespan["ios-both"] <= min(makespan.values())
    assert makespan["ios-merge"] <= makespan["sequential"]
