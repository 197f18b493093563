"""What `verify` says of networks whose values leave fp16: failed or inconclusive, and of right ones: passed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto

from dsa_sched.cli import cli
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.bisect import bisect
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.verdict import VerifyReport
from dsa_sched.verification.verify import VerifyOptions, verify_model
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import one_node, save

AT_O0 = CompileOptions(O0())


def judged(model: onnx.ModelProto, folder: Path, *feeds: dict[str, np.ndarray]) -> VerifyReport:
    """At O0, by drawn inputs or by these."""
    files = []
    for number, feed in enumerate(feeds):
        files.append(folder / f"feed{number}.npz")
        np.savez(files[-1], **feed)  # type: ignore[arg-type]
    options = VerifyOptions(samples=256, feeds=tuple(files))
    return verify_model(save(model, folder / "m.onnx"), "stcp920", AT_O0, options)


def outcomes(report: VerifyReport) -> dict[str, str]:
    return {each.label: each.outcome for each in report.extremes}


def test_a_right_network_is_judged_by_inputs_of_all_sizes(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Relu", builder.node("Conv", builder.input(1, 4, 8, 8), builder.weights(8, 4, 3, 3)))
    report = judged(builder.model(y), tmp_path)
    assert (report.verdict, report.failures) == ("passed", ())
    sizes = ("inputs times 2^-10", "inputs times 2^7", "a row of zeros", "inputs of zeros")
    assert outcomes(report) == dict.fromkeys(sizes, "held")
    assert report.reason == (
        "1 layer and 1 output within their bounds for 2 inputs, the outputs also for inputs times 2^-10, inputs times "
        "2^7, a row of zeros, inputs of zeros"
    )


def cubed(builder: ModelBuilder, x: str) -> str:
    """(x^3)^2 / x^5: no rule mends it, and its values are far beyond fp16 between ordinary ones."""
    square = builder.node("Mul", x, x)
    fourth = builder.node("Mul", square, square)
    return builder.node("Div", fourth, builder.node("Mul", square, x))


def test_what_leaves_the_range_in_between_is_found_by_large_inputs(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = cubed(builder, builder.node("Relu", builder.input(1, 4, 8, 8)))
    model = builder.model(builder.node("Add", y, builder.input(1, 4, 8, 8)))
    report = judged(model, tmp_path)
    assert report.verdict == "failed"
    assert outcomes(report)["inputs times 2^7"] == "failed"
    failed = next(failure for failure in report.failures if failure.startswith("inputs times 2^7: "))
    assert "elements are NaN or infinite, where the reference has" in failed
    assert "in between, beyond fp16" in failed


def test_what_the_files_own_products_make_of_large_inputs_is_not_judged(tmp_path: Path) -> None:
    """No order of computing keeps them in the range: a remark, and the network passes."""
    builder = ModelBuilder()
    conv = builder.node("Conv", builder.input(1, 8, 8, 8), builder.weights(8, 8, 3, 3, scale=40.0))
    y = builder.node(
        "Softmax", builder.node("Flatten", builder.node("Conv", conv, builder.weights(8, 8, 3, 3, scale=0.01)))
    )
    report = judged(builder.model(y), tmp_path)
    assert (report.verdict, report.failures) == ("passed", ())
    (line,) = [each.line for each in report.extremes if each.label == "inputs times 2^7"]
    assert line.startswith("values of v0 (Conv) reach ")
    assert line.endswith(", beyond fp16")


def variance(builder: ModelBuilder, x: str) -> str:
    """E[x^2] - E[x]^2 by products of matrices, which no rule knows."""
    ones = builder.constant(np.full((64, 1), 1 / 64))
    square = builder.node("MatMul", builder.node("Mul", x, x), ones)
    mean = builder.node("MatMul", x, ones)
    return builder.node("Sub", square, builder.node("Mul", mean, mean), outputs=["variance"])


def test_an_output_that_rounding_may_make_wrong_is_inconclusive_and_says_where(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(4, 64)
    y = builder.node("Div", builder.node("Sub", x, builder.constant(8.0)), variance(builder, x))
    random = np.random.default_rng(0)
    feeds = [{"x0": random.normal(8, 0.02, (4, 64)).astype(np.float32)} for _ in range(2)]
    report = judged(builder.model(y), tmp_path, *feeds)
    assert (report.verdict, report.failures) == ("inconclusive", ())
    assert "rounding alone may make it wrong; Sub variance: a difference of nearly equal values, " in report.reason


def test_verdicts_have_exit_codes_of_their_own(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(4, 64)
    y = builder.node("Div", builder.node("Sub", x, builder.constant(8.0)), variance(builder, x))
    model = save(builder.model(y), tmp_path / "m.onnx")
    feed, file = tmp_path / "x.npz", tmp_path / "report.json"
    np.savez(feed, x0=np.random.default_rng(0).normal(8, 0.02, (4, 64)).astype(np.float32))
    command = ["verify", str(model), "--chip", "stcp920", "--level", "O0", "--feed", str(feed), "--json", str(file)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 4
    lines = done.output.splitlines()
    assert lines[-1] == "INCONCLUSIVE"
    data = json.loads(file.read_text())
    assert (data["verdict"], data["passed"]) == ("inconclusive", False)
    assert f"inconclusive: {data['reason']}" == lines[-2]


def test_outputs_beyond_the_range_are_inconclusive(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Mul", builder.input(1, 4, 8, 8), builder.constant(50_000.0))
    report = judged(builder.model(y), tmp_path)
    assert (report.verdict, report.failures) == ("inconclusive", ())
    assert "values of the reference for input 0 are beyond 65504, the largest of fp16; they reach " in report.reason
    assert outcomes(report)["inputs times 2^-10"] == "held"


def test_an_output_without_finite_values_is_said_to_be_so(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Log", builder.node("Neg", builder.node("Abs", builder.input(1, 64))))
    report = judged(builder.model(y), tmp_path)
    assert report.verdict == "inconclusive"
    assert report.reason == "v2: the reference has no finite value for input 0, so nothing is compared"


def test_one_feed_is_enough(tmp_path: Path) -> None:
    """How far outputs of such inputs are apart says the reference for the same numbers in another order."""
    model = one_node("Relu", (1, 3, 4, 4))
    report = judged(model, tmp_path, {"x": np.random.default_rng(0).normal(0, 1, (1, 3, 4, 4)).astype(np.float32)})
    assert (report.verdict, report.inputs, report.extremes) == ("passed", 1, ())
    assert report.logits[0].distance > 1


def indexed(builder: ModelBuilder) -> str:
    """A computed table of three rows."""
    table = builder.node("Relu", builder.input(3, 4))
    return builder.node("Gather", table, builder.input(5, dtype=TensorProto.INT64, name="i"), axis=0)


def shifted(builder: ModelBuilder) -> str:
    """(i - 20) / 3 of a table of four rows."""
    moved = builder.node("Sub", builder.input(5, dtype=TensorProto.INT64, name="i"), builder.integers(20))
    index = builder.node("Div", moved, builder.integers(3))
    return builder.node("Add", builder.node("Gather", builder.weights(4, 6), index), builder.input(5, 6))


def divided(builder: ModelBuilder) -> str:
    """n / d of a table of nine rows, both inputs."""
    n, d = (builder.input(5, dtype=TensorProto.INT64, name=name) for name in "nd")
    return builder.node("Gather", builder.weights(9, 4), builder.node("Div", n, d))


def multiplied(builder: ModelBuilder) -> str:
    """n * d of a table of four rows: nothing of the graph says how large either is."""
    n, d = (builder.input(5, dtype=TensorProto.INT64, name=name) for name in "nd")
    return builder.node("Gather", builder.weights(4, 4), builder.node("Mul", n, d))


@pytest.mark.parametrize("made", [indexed, shifted, divided, multiplied])
def test_integers_are_drawn_that_the_reference_takes(made: Callable[[ModelBuilder], str], tmp_path: Path) -> None:
    builder = ModelBuilder()
    report = judged(builder.model(made(builder)), tmp_path)
    assert report.failures == ()
    refused = [warning for warning in report.warnings if "drawn inputs" in warning]
    assert bool(refused) == (made is multiplied)
    assert all("were refused: " in warning for warning in refused)


def test_inputs_that_onnxruntime_refuses_are_said_in_one_line(tmp_path: Path) -> None:
    builder = ModelBuilder()
    model, feed = save(builder.model(indexed(builder)), tmp_path / "m.onnx"), tmp_path / "x.npz"
    np.savez(feed, x0=np.ones((3, 4), np.float32), i=np.full(5, 7))
    done = CliRunner().invoke(cli, ["verify", str(model), "--chip", "stcp920", "--level", "O0", "--feed", str(feed)])
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert "needs inputs for which onnxruntime computes the network; has " in done.output


def test_a_part_that_leaves_the_range_for_large_inputs_is_found(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = cubed(builder, builder.node("Relu", builder.input(1, 4, 8, 8)))
    model = save(builder.model(builder.node("Add", y, builder.constant(1.0))), tmp_path / "m.onnx")
    report = verify_model(model, "stcp920", AT_O0, VerifyOptions(samples=256))
    found = bisect(model, "stcp920", AT_O0, VerifyOptions(samples=256), None, report)
    assert found is not None
    assert {node.op_type for node in found.part.model.graph.node} <= {"Mul", "Div"}


def test_integers_of_sixteen_bits_are_drawn_as_sounds_are(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.node("Cast", builder.input(1, 64, dtype=TensorProto.INT16), to=TensorProto.FLOAT)
    square = builder.node("Mul", x, x)
    report = judged(builder.model(builder.node("Div", square, builder.node("Add", x, builder.constant(1.0)))), tmp_path)
    assert outcomes(report) == {"integers to 32,767": "failed"}


def test_an_output_of_another_shape_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside another output that is right."""
    builder = ModelBuilder()
    x = builder.input(1, 4, 8, 8)
    model = builder.model(builder.node("Relu", x), builder.node("Abs", x))
    right = OnnxReference.values

    def wrong(self: OnnxReference, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = right(self, inputs)
        return values | {"v1": values["v1"][:, :, :-1]} if "v1" in values else values

    monkeypatch.setattr(OnnxReference, "values", wrong)
    report = judged(model, tmp_path)
    assert report.failures == ("output v1: its shape is [1, 4, 8, 8], that of the reference is [1, 4, 7, 8]",)


def test_a_guard_that_fp16_does_not_have_is_judged_as_the_network_has_it(tmp_path: Path) -> None:
    """Each layer reads the reference's values; 1e-12 is none of fp16, and what the network stores for it is read."""
    builder = ModelBuilder()
    x = builder.input(1, 8, 64)
    norm = builder.node("ReduceL2", x, builder.integers(2), keepdims=1)
    held = builder.node("Max", norm, builder.constant(1e-12))
    model = builder.model(builder.node("Div", x, held))
    feed = np.random.default_rng(0).normal(0, 1, (1, 8, 64)).astype(np.float32)
    feed[:, 3] = 0
    report = judged(model, tmp_path, {"x0": feed})
    assert (report.verdict, report.failures) == ("passed", ())
