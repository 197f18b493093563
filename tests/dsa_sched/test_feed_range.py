"""Inputs that the device's type cannot hold are told once, by `run` and by `verify --feed`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dsa_sched.artifact.tensors import TensorEntry
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.feed_range import range_warnings, type_warnings
from partitioner.planners.levels import O0
from tests.small_models import one_node, save

SHAPE = (1, 3, 2, 2)


def entry(device: str) -> TensorEntry:
    """An input of float32 that the device keeps in this type."""
    fields = {"name": "x", "kind": "input", "shape": SHAPE, "dtype": "float32", "layout": (0, 1, 2, 3), "address": 0}
    return TensorEntry.model_validate({**fields, "device_dtype": device, "bytes": 12 * np.dtype(device).itemsize})


def told(device: str, *numbers: float, dtype: str = "float64") -> tuple[str, ...]:
    array = np.zeros(12, dtype)
    array[: len(numbers)] = numbers
    return range_warnings((entry(device),), ({"x": array.reshape(SHAPE)},))


LOST = "of 12 values {} beyond {} and taken as infinite, the largest {}"


@pytest.mark.parametrize(
    ("device", "numbers", "said"),
    [
        ("float16", (65504.0, -65504.0, 1.0), None),
        ("float16", (65519.0,), None),  # rounds to the largest
        ("float16", (65520.0,), "1 " + LOST.format("is", "65504 of float16", "65520")),
        ("float16", (7e4, -1e6, 3.0), "2 " + LOST.format("are", "65504 of float16", "-1e+06")),
        ("float16", (np.inf, -np.inf, np.nan), None),
        ("float16", (1e-9, 1.0), None),  # some of it is lost, as with any rounding
        ("float16", (1e-9, -2e-9), "all 2 values that are not zero become 0 in float16, the largest of 2e-09"),
        ("float16", (0.0,), None),
        ("float32", (7e4, 1e300), "1 " + LOST.format("is", "3.40282e+38 of float32", "1e+300")),
        ("int8", (127, -128), None),
        (
            "int8",
            (128, -1000, 4),
            "2 of 12 values are beyond -128 to 127 of int8 and wrapped around, the largest -1000",
        ),
    ],
)
def test_what_is_lost(device: str, numbers: tuple[float, ...], said: str | None) -> None:
    assert told(device, *numbers) == (() if said is None else (f"input x: {said}",))


def test_integers_for_a_device_of_floating_point_numbers() -> None:
    (warning,) = told("float16", 70_000, 65_504, dtype="int64")
    assert "1 of 12 values is beyond 65504" in warning


def test_several_feeds_are_one_warning() -> None:
    feeds = tuple({"x": np.full(SHAPE, value)} for value in (1.0, 1e5, -2e5))
    (warning,) = range_warnings((entry("float16"),), feeds)
    assert warning.startswith("input x: 24 of 36 values are beyond 65504")
    assert warning.endswith("the largest -200000")


def test_texts_and_missing_arrays_are_left_to_others() -> None:
    assert range_warnings((entry("float16"),), ({"x": np.full(SHAPE, "a")}, {"y": np.zeros(SHAPE)})) == ()


def test_run_and_verify_warn(tmp_path: Path) -> None:
    model, folder, feed = save(one_node("Relu", SHAPE), tmp_path / "m.onnx"), tmp_path / "out", tmp_path / "x.npz"
    compile_model(model, "stcp920", CompileOptions(O0())).artifact.save(folder)
    x = np.ones(SHAPE, np.float32)
    x[0, 0, 0, 0] = 1e6
    np.savez(feed, x=x)
    said = "warning: input x: 1 of 12 values is beyond 65504 of float16 and taken as infinite, the largest 1e+06"
    run = CliRunner().invoke(cli, ["run", str(folder), "--input", str(feed), "--output", str(tmp_path / "y.npz")])
    assert run.exit_code == 0
    assert run.stderr.count(said) == 1
    other = tmp_path / "other.npz"
    np.savez(other, x=np.linspace(-1, 1, 12, dtype=np.float32).reshape(SHAPE))
    feeds = ["--feed", str(feed), "--feed", str(other)]
    verified = CliRunner().invoke(cli, ["verify", str(model), "--chip", "stcp920", *feeds])
    assert verified.output.count(said.replace("of 12", "of 24")) == 1


@pytest.mark.parametrize(
    ("given", "wanted", "converted"),
    [
        ("float64", "float32", True),
        ("int64", "int32", True),
        ("float32", "int64", True),
        ("float32", "float32", False),
        ("float16", "float32", False),
        ("int32", "int64", False),
        ("bool", "float32", False),
    ],
)
def test_arrays_of_another_type_than_the_models(given: str, wanted: str, converted: bool) -> None:
    said = f"input x: the array is {given}, the model's input {wanted}, to which it is converted"
    assert type_warnings({"x": wanted}, {"x": np.zeros(SHAPE, given)}) == ((said,) if converted else ())


def test_arrays_that_are_missing_or_hold_no_numbers_are_not_converted() -> None:
    assert type_warnings({"x": "float32"}, {"x": np.full(SHAPE, "a"), "y": np.zeros(SHAPE)}) == ()
    assert type_warnings({"x": "float32"}, {}) == ()


def test_run_and_verify_say_that_float64_is_converted(tmp_path: Path) -> None:
    path = save(one_node("Relu", SHAPE), tmp_path / "m.onnx")
    compile_model(path, "stcp920", CompileOptions(O0())).artifact.save(tmp_path / "out")
    feed = tmp_path / "x.npz"
    np.savez(feed, x=np.ones(SHAPE))
    run = ["run", str(tmp_path / "out"), "--input", str(feed), "--output", str(tmp_path / "y.npz")]
    verify = ["verify", str(tmp_path / "out"), "--model", str(path), "--feed", str(feed), "--feed", str(feed)]
    for command in (run, verify):
        done = CliRunner().invoke(cli, command)
        assert done.output.count("the array is float64, the model's input float32, to which it is converted") == 1
