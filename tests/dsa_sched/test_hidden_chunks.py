"""Hidden values in chunks, from a file to its verdict: level auto finds them, and what it makes is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dsa_sched
from codegen.neuralscale.target import TARGET
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.verification.verify import verify_model
from hw_models.chip import Chip
from isched.timing.cycle_model import time_program
from partitioner.planners.levels import Auto, Streamed
from tests.chip_runs import small_chip
from tests.small_models import save

WIDTH, HIDDEN = 64, 2_400  # three runs of 800 products
INPUT = "g::0"  # what the first chunk of g would be called


def cycles_of(made: Compilation) -> float:
    return time_program(made.program, made.chip, TARGET).cycles


def chip() -> Chip:
    return small_chip(4, data_bytes=64 << 10, llb_bytes=192 << 10)


@pytest.fixture(scope="module")
def feed_forward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)

    def constant(name: str, *shape: int, scale: float) -> TensorProto:
        return numpy_helper.from_array(random.normal(0, scale, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("MatMul", [INPUT, "A"], ["xa"], name="wide"),
        helper.make_node("Add", ["xa", "a"], ["h"], name="bias"),
        helper.make_node("Gelu", ["h"], ["g"], name="gelu"),
        helper.make_node("MatMul", ["g", "B"], ["gb"], name="narrow"),
        helper.make_node("Add", ["gb", INPUT], ["y"], name="residual"),
    ]
    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [4, 16, WIDTH])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16, WIDTH])
    constants = [
        constant("A", WIDTH, HIDDEN, scale=0.1),
        constant("a", HIDDEN, scale=0.1),
        constant("B", HIDDEN, WIDTH, scale=0.03),
    ]
    graph = helper.make_graph(nodes, "feed_forward", [image], [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return save(model, tmp_path_factory.mktemp("model") / "feed_forward.onnx")


@pytest.fixture(scope="module")
def made(feed_forward: Path) -> Compilation:
    """At level auto."""
    return compile_model(feed_forward, chip(), CompileOptions(Auto()))


@pytest.mark.nightly
def test_auto_takes_them_where_they_are_faster_and_says_so(feed_forward: Path, made: Compilation) -> None:
    assert made.options.planner == Streamed(chunks=True)
    reasons = [f"{each.verdict}: {each.reason}" for each in made.plan.decisions if each.subject == "level"]
    assert any(", hidden values in chunks" in reason for reason in reasons)
    streamed = compile_model(feed_forward, chip(), CompileOptions(Streamed(), schedule=True))
    assert cycles_of(made) < cycles_of(streamed)


@pytest.mark.nightly
def test_their_results_are_those_of_o0_and_the_verdict_is_passed(feed_forward: Path, made: Compilation) -> None:
    feed = {INPUT: np.random.default_rng(1).normal(size=(4, 16, WIDTH)).astype(np.float32)}
    plain = dsa_sched.compile(feed_forward, chip=chip(), level="O0").run(feed)["y"]
    assert plain.tobytes() == made.artifact.run(feed)["y"].tobytes()
    report = verify_model(feed_forward, chip(), CompileOptions(made.options.planner, schedule=True))
    assert report.failures == ()
    assert {layer.name for layer in report.layers} >= {f"{name}::{n}" for name in ("wide", "narrow") for n in range(3)}
