"""Networks that leave fp16 in between are found by drawn inputs where the rules that mend them are taken out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsa_sched.frontend.patterns import patterns
from dsa_sched.frontend.ranges import rules
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from partitioner.planners.levels import O0
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

Made = Callable[[ModelBuilder, str], str]


def mean_of_sum(b: ModelBuilder, x: str) -> str:
    """Of 2,048 values that are not centred."""
    total = b.node("ReduceSum", b.node("Abs", x), b.integers(1, 2), keepdims=1)
    return b.node("Div", total, b.constant(2048.0))


def norm_by_squares(b: ModelBuilder, x: str) -> str:
    mean = b.node("ReduceMean", x, b.integers(2))
    squares = b.node("ReduceMean", b.node("Mul", x, x), b.integers(2))
    variance = b.node("Sub", squares, b.node("Mul", mean, mean))
    root = b.node("Sqrt", b.node("Add", variance, b.constant(1e-5)))
    return b.node("Div", b.node("Sub", x, mean), root)


def unbiased_deviation(b: ModelBuilder, x: str) -> str:
    off = b.node("Sub", x, b.node("ReduceMean", x, b.integers(2)))
    total = b.node("ReduceSum", b.node("Mul", off, off), b.integers(2))
    return b.node("Sqrt", b.node("Div", total, b.constant(255.0)))


def magnitude(b: ModelBuilder, x: str) -> str:
    left, right = (b.node("Slice", x, *(b.integers(n) for n in (low, low + 4, 1))) for low in (0, 4))
    return b.node("Sqrt", b.node("Add", b.node("Mul", left, left), b.node("Mul", right, right)))


def logarithm_of_square(b: ModelBuilder, x: str) -> str:
    return b.node("Log", b.node("Add", b.node("Mul", x, x), b.constant(1e-10)))


def guarded_norm(b: ModelBuilder, x: str) -> str:
    return b.node("Div", x, b.node("Max", b.node("ReduceL2", x, b.integers(2)), b.constant(1e-12)))


def guarded_sum(b: ModelBuilder, x: str) -> str:
    x = b.node("Abs", x)
    return b.node("Div", x, b.node("Add", b.node("ReduceSum", x, b.integers(2)), b.constant(1e-9)))


def softplus(b: ModelBuilder, x: str) -> str:
    return b.node("Log", b.node("Add", b.node("Exp", x), b.constant(1.0)))


KINDS: tuple[Made, ...] = (
    mean_of_sum,
    norm_by_squares,
    unbiased_deviation,
    magnitude,
    logarithm_of_square,
    guarded_norm,
    guarded_sum,
    softplus,
)


def verdict(made: Made, folder: Path) -> str:
    builder = ModelBuilder()
    model = builder.save(folder, made(builder, builder.input(1, 8, 256)))
    return verify_model(model, "stcp920", CompileOptions(O0()), VerifyOptions(samples=128)).verdict


@pytest.mark.spread(3)
@pytest.mark.parametrize("made", KINDS)
@pytest.mark.commit
def test_a_fault_is_found_and_what_is_mended_passes(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verdict(made, tmp_path) == "passed"
    monkeypatch.setattr(rules, "RULES", ())
    monkeypatch.setattr(patterns, "SEARCHES", ())
    assert verdict(made, tmp_path) in ("failed", "inconclusive")
