"""Which values leave the range of fp16: of given inputs, of all that a file allows, of its constants, of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.feed_range import not_finite
from dsa_sched.verification.given_ranges import ranges_of_any
from dsa_sched.zoo.meanings.declared_meanings import Range, with_declared
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import save

FP16 = "float16"


def energy(builder: ModelBuilder) -> str:
    """The mean of the squares of 64 values, times a small number."""
    x = builder.input(1, 64)
    square = builder.node("Mul", x, x)
    return builder.node("Mul", builder.node("ReduceMean", square, builder.integers(1)), builder.constant(1e-9))


def test_compile_says_which_values_of_given_inputs_leave_the_range(tmp_path: Path) -> None:
    builder = ModelBuilder()
    model, feed = save(builder.model(energy(builder)), tmp_path / "m.onnx"), tmp_path / "x.npz"
    command = ["compile", str(model), "--chip", "stcp920", "--level", "O0", "-o", str(tmp_path / "out")]
    np.savez(feed, x0=np.full((1, 64), 1000.0, np.float32))
    done = CliRunner().invoke(cli, [*command, "--feed", str(feed), "--feed", str(feed)])
    assert done.exit_code == 0
    assert "warning: Mul v0: 128 of 128 values are beyond 65504, the largest of fp16; they reach 1e+06" in done.stderr
    np.savez(feed, x0=np.full((1, 64), 10.0, np.float32))
    done = CliRunner().invoke(cli, [*command, "--feed", str(feed)])
    assert "warning: Mul v2: all 1 values that are not zero are below 6.1e-05, the smallest normal" in done.stderr
    done = CliRunner().invoke(cli, command)
    assert "values" not in done.stderr, "without inputs nothing is certain"


def declared(builder: ModelBuilder, output: str, least: float, most: float) -> onnx.ModelProto:
    return with_declared(builder.model(output), {"x0": Range(least, most)})


def squares(builder: ModelBuilder) -> str:
    x = builder.input(1, 64)
    return builder.node("Mul", x, x)


def small(builder: ModelBuilder) -> str:
    return builder.node("Mul", builder.node("Sigmoid", builder.input(1, 64)), builder.constant(1e-6))


def difference(builder: ModelBuilder) -> str:
    """x * 100 - x * 100: no input makes it what its interval allows."""
    x = builder.input(1, 64)
    return builder.node("Sub", *(builder.node("Mul", x, builder.constant(100.0)) for _ in range(2)))


def mask(builder: ModelBuilder) -> str:
    absent = builder.node("Mul", builder.input(1, 64), builder.constant(-3.4e38))
    return builder.node("Softmax", builder.node("Add", absent, builder.weights(1, 64)))


@pytest.mark.parametrize(
    ("made", "most", "said"),
    [
        (
            squares,
            1000.0,
            "Mul v0: values reach 1e+06 for inputs that the file allows, beyond 65504, the largest of fp16",
        ),
        (squares, 100.0, ""),
        (small, 1.0, "Mul v1: values are at most 7.31e-07, below 6.1e-05, the smallest normal of fp16"),
        (difference, 500.0, ""),
        (mask, 1.0, ""),
    ],
)
def test_declared_ranges_say_what_is_certain(made: Callable[[ModelBuilder], str], most: float, said: str) -> None:
    builder = ModelBuilder()
    output = made(builder)
    assert ranges_of_any(declared(builder, output, -most, most), FP16) == ((said,) if said else ())


def test_without_declared_ranges_functions_alone_have_one() -> None:
    builder = ModelBuilder()
    assert ranges_of_any(builder.model(small(builder)), FP16)
    builder = ModelBuilder()
    assert ranges_of_any(builder.model(squares(builder)), FP16) == ()


def warnings(made: Callable[[ModelBuilder], str], folder: Path) -> tuple[str, ...]:
    builder = ModelBuilder()
    return compile_model(builder.save(folder, made(builder)), "stcp920", CompileOptions(O0())).model.warnings


def scaled(*factors: float) -> Callable[[ModelBuilder], str]:
    return lambda builder: builder.node("Mul", builder.input(1, 4), builder.constant(factors))


def attended(builder: ModelBuilder) -> str:
    """A causal mask."""
    scores = builder.input(1, 8, 8)
    return builder.node("Softmax", builder.node("Add", scores, builder.constant(np.triu(np.full((8, 8), -1e9), 1))))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (scaled(5e-9), "1 of 1 elements of c0 become zero in fp16, the largest is 5e-09"),
        (
            scaled(1e-9, 1, 1, 1),
            "elements that become zero in fp16 next to larger ones, the largest 1e-09: mul0 (c0, 1 of 4)",
        ),
        (scaled(np.inf, 1, 1, 1), "1 of 4 elements of c0 are infinite: products with them are infinite or NaN"),
        (scaled(np.nan, 1, 1, 1), "1 of 4 elements of c0 are not numbers (NaN)"),
        (scaled(1e6, 1, 1, 1), "1 of 4 elements of c0 saturate at 65504 in fp16"),
        (scaled(0, 1, 2, 3), ""),
        (attended, ""),
    ],
)
def test_what_constants_lose_is_said_with_their_operator(
    made: Callable[[ModelBuilder], str], said: str, tmp_path: Path
) -> None:
    found = warnings(made, tmp_path)
    assert len(found) == bool(said)
    assert all(said in line and "mul0" in line for line in found)


def test_run_says_how_many_elements_are_no_numbers(tmp_path: Path) -> None:
    found = not_finite({"y": np.array([1, np.inf, np.nan, np.nan]), "z": np.zeros(3), "i": np.array([1])})
    assert found == ("output y: 2 of 4 elements are NaN, 1 of 4 elements are infinite",)
    builder = ModelBuilder()
    model = builder.save(tmp_path, builder.node("Mul", builder.input(1, 64), builder.constant(2.0)))
    folder, feed = tmp_path / "out", tmp_path / "x.npz"
    compile_model(model, "stcp920", CompileOptions(O0())).artifact.save(folder)
    np.savez(feed, x0=np.full((1, 64), 60_000.0, np.float32))
    done = CliRunner().invoke(cli, ["run", str(folder), "--input", str(feed), "--output", str(tmp_path / "y.npz")])
    assert done.exit_code == 0
    assert "warning: output v0: 64 of 64 elements are infinite" in done.stderr
