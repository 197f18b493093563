"""Truth values, choices and masks as arithmetic, and activations that are found again: against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from codegen.generic import NEUTRAL
from codegen.neuralscale.target import TARGET
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError
from partitioner.ir.wants import Wants
from partitioner.planners.levels import O0, O3, planner_or_auto
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.test_operators import LARGEST_ERROR, Build, load

BOOL = onnx.TensorProto.BOOL
SHAPE = (2, 4, 5)


def compared(op_type: str) -> Build:
    """Of halves, some of them equal."""

    def build(b: ModelBuilder) -> str:
        x = b.node("Relu", b.input(*SHAPE))
        truth = b.node(op_type, x, b.node("Relu", b.input(*SHAPE)))
        return b.node("Where", truth, b.input(*SHAPE), b.constant(-3.0))

    return build


def connected(op_type: str) -> Build:
    def build(b: ModelBuilder) -> str:
        x = b.input(*SHAPE)
        truth = b.node(op_type, b.node("Greater", x, b.constant(-0.5)), b.node("Less", x, b.constant(0.5)))
        return b.node("Cast", truth, to=onnx.TensorProto.FLOAT)

    return build


def infinite(b: ModelBuilder) -> str:
    """What is chosen may be infinite, and what is not leaves no trace."""
    x = b.input(*SHAPE)
    far = b.node("Reciprocal", b.node("Relu", x))
    return b.node("Where", b.node("Less", x, b.constant(0.0)), far, b.constant(1.5))


def constant_mask(first: bool) -> Build:
    def build(b: ModelBuilder) -> str:
        mask = b.constant(b.random.integers(0, 2, (4, 1)), dtype=np.bool_)
        x, number = b.input(*SHAPE), b.constant(-2.5)
        return b.node("Where", mask, x, number) if first else b.node("Where", mask, number, x)

    return build


def causal(guarded: bool, masked: float) -> Build:
    """As exporters write the mask of attention, and guard it against rows without anything."""

    def build(b: ModelBuilder) -> str:
        scores = b.node("MatMul", b.input(1, 2, 6, 4), b.input(1, 2, 4, 6))
        mask = b.constant(np.triu(np.full((6, 6), masked, np.float32), 1))
        weights = b.node("Softmax", b.node("Add", scores, mask), axis=-1)
        if guarded:
            weights = b.node("Where", b.node("IsNaN", weights), b.constant(0.0), weights)
        return b.node("MatMul", weights, b.input(1, 2, 6, 4))

    return build


def guarded_softplus(b: ModelBuilder) -> str:
    x = b.input(*SHAPE)
    return b.node("Where", b.node("Greater", x, b.constant(20.0)), x, b.node("Softplus", x))


CASES: dict[str, Build] = {
    **{name: compared(name) for name in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")},
    **{name: connected(name) for name in ("And", "Or", "Xor", "Equal")},
    "Not": lambda b: b.node(
        "Where", b.node("Not", b.node("Greater", b.input(3, 4, name="x"), b.constant(0.0))), "x", b.constant(7.0)
    ),
    "truth with a constant": lambda b: b.node(
        "Cast",
        b.node("And", b.node("Greater", b.input(3, 4), b.constant(0.0)), b.constant([1, 0, 1, 0], dtype=np.bool_)),
        to=onnx.TensorProto.FLOAT,
    ),
    "truth of a number": lambda b: b.node(
        "Where", b.node("Cast", b.node("Relu", b.input(3, 4, name="x")), to=BOOL), "x", b.constant(-1.0)
    ),
    "moved truth": lambda b: b.node(
        "Where",
        b.node("Unsqueeze", b.node("Greater", b.input(3, 4), b.constant(0.0)), b.integers(0)),
        b.input(2, 3, 4),
        b.constant(0.25),
    ),
    "infinities": infinite,
    "equal infinities": lambda b: number(
        b, b.node("Equal", b.node("Reciprocal", b.node("Relu", b.input(*SHAPE))), b.constant(np.inf))
    ),
    "the whole of one": lambda b: b.node(
        "Where", b.constant(np.ones((4, 1)), dtype=np.bool_), b.node("Softmax", b.input(*SHAPE)), b.constant(0.0)
    ),
    "constant mask, x where it is true": constant_mask(True),
    "constant mask, x where it is false": constant_mask(False),
    "ThresholdedRelu": lambda b: b.node("ThresholdedRelu", b.input(*SHAPE), alpha=0.25),
    "upper triangle": lambda b: b.node("Trilu", b.input(2, 4, 5)),
    "lower triangle, moved": lambda b: b.node("Trilu", b.input(2, 4, 5), b.constant(-1, dtype=np.int64), upper=0),
    "from a Softmax without a mask": lambda b: b.node(
        "Where",
        b.constant([1, 0, 1, 0, 1], dtype=np.bool_),
        b.node("Softmax", b.node("MatMul", b.input(3, 4), b.input(4, 5))),
        b.constant(-1.0),
    ),
    "causal": causal(False, -np.inf),
    "causal, guarded": causal(True, -np.inf),
    "guarded Softplus": guarded_softplus,
    "Expand": lambda b: b.node("Expand", b.input(1, 3, 1), b.integers(2, 1, 4)),
    "Expand with axes ahead": lambda b: b.node("Expand", b.input(3, 1), b.integers(2, 3, 4)),
    "Tile": lambda b: b.node("Tile", b.input(2, 3), b.integers(2, 3)),
}


@pytest.mark.parametrize("wants", [TARGET.wants, NEUTRAL], ids=["stcp920", "neutral"])
@pytest.mark.parametrize("name", CASES)
def test_our_graph_computes_what_the_file_says(name: str, wants: Wants, tmp_path: Path) -> None:
    model, inputs = load(CASES[name], tmp_path, wants=wants)
    with np.errstate(all="ignore"):
        errors = layer_errors(model.graph, model.constants, model.source, inputs)
    assert set(model.graph.outputs) <= set(errors)
    assert max(errors.values()) < LARGEST_ERROR, errors


def test_guards_leave_nothing(tmp_path: Path) -> None:
    softmax = [op.kind for op in load(causal(False, -np.inf), tmp_path)[0].graph.ops]
    assert [op.kind for op in load(causal(True, -np.inf), tmp_path)[0].graph.ops] == softmax
    assert [op.kind for op in load(guarded_softplus, tmp_path)[0].graph.ops] == ["softplus"]


def test_a_guard_of_rows_that_may_be_masked_as_a_whole_is_refused(tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        scores = b.node("MatMul", b.input(1, 2, 6, 4), b.input(1, 2, 4, 6))
        mask = b.constant(np.full((6, 6), -np.inf, np.float32))
        weights = b.node("Softmax", b.node("Add", scores, mask), axis=-1)
        return b.node("Where", b.node("IsNaN", weights), b.constant(0.0), weights)

    with pytest.raises(ModelError, match=r"IsNaN .*: only where it guards a Softmax of which no row is masked"):
        load(build, tmp_path)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            lambda b: b.node("Where", b.input(3, dtype=BOOL), b.input(3), b.input(3)),
            "the condition is constant or a truth value of floating-point numbers",
        ),
        (
            lambda b: b.node(
                "Where",
                b.node("Greater", b.input(3, 4, name="x"), b.constant(0.0)),
                b.node("Softmax", "x"),
                b.constant(0.0),
            ),
            "not from a Softmax of which a row may be masked as a whole, whose NaN would stay",
        ),
        (
            lambda b: number(b, b.node("And", b.input(3, dtype=BOOL), b.input(3, dtype=BOOL))),
            "operands are truth values of floating-point numbers",
        ),
        (
            lambda b: number(b, b.node("Greater", b.input(3, dtype=onnx.TensorProto.INT64), b.integers(2))),
            "operands are floating-point numbers or truth values of such",
        ),
        (
            lambda b: b.node("Trilu", b.input(3, 3), b.input(dtype=onnx.TensorProto.INT64)),
            "floating-point numbers, and a constant diagonal",
        ),
    ],
)
def test_refusals(build: Build, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        load(build, tmp_path)


def number(b: ModelBuilder, truth: str) -> str:
    return b.node("Cast", truth, to=onnx.TensorProto.FLOAT)


def gelu(b: ModelBuilder, x: str, way: str) -> str:
    """In the orders in which exporters write it."""
    match way:
        case "torch":
            e = b.node("Erf", b.node("Div", x, b.constant(2**0.5)))
            return b.node("Mul", b.node("Mul", x, b.node("Add", e, b.constant(1.0))), b.constant(0.5))
        case "half first":
            e = b.node("Erf", b.node("Mul", x, b.constant(0.5**0.5)))
            return b.node("Mul", b.node("Mul", b.constant(0.5), x), b.node("Add", b.constant(1.0), e))
        case "tanh, power":
            cube = b.node("Mul", b.node("Pow", x, b.constant(3.0)), b.constant(0.044715))
            t = b.node("Tanh", b.node("Mul", b.node("Add", x, cube), b.constant(0.7978845608)))
            return b.node("Mul", b.node("Mul", x, b.constant(0.5)), b.node("Add", t, b.constant(1.0)))
        case "tanh, factored":
            square = b.node("Mul", b.node("Mul", x, x), b.constant(0.044715))
            inner = b.node("Mul", b.node("Mul", x, b.constant(0.7978845608)), b.node("Add", square, b.constant(1.0)))
            return b.node(
                "Mul", b.node("Mul", x, b.constant(0.5)), b.node("Add", b.node("Tanh", inner), b.constant(1.0))
            )
        case _:
            return b.node("Mul", x, b.node("Tanh", b.node("Softplus", x)))


@pytest.mark.parametrize("way", ["torch", "half first", "tanh, power", "tanh, factored", "mish"])
def test_an_activation_is_found_again_however_it_is_written(way: str, tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        return gelu(b, b.node("Relu", b.input(*SHAPE)), way)

    model, inputs = load(build, tmp_path, wants=TARGET.wants)
    assert [op.kind for op in model.graph.ops] == ["relu", "mish" if way == "mish" else "gelu"]
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < LARGEST_ERROR
    kinds = [op.kind for op in load(build, tmp_path)[0].graph.ops]
    assert len(kinds) > 2  # who does not want it whole gets the file's own operators


def nearly(b: ModelBuilder, wrong: str) -> str:
    x = b.input(*SHAPE)
    factor, shift, outer = b.constant(0.5**0.5), 1.0, 0.5
    match wrong:
        case "factor":
            factor = b.constant(0.8)
        case "shift":
            shift = 1.1
        case "outer":
            outer = 0.4
        case "vector":
            factor = b.constant(np.full(5, 0.5**0.5))
    e = b.node("Erf", b.node("Mul", x, factor))
    other = b.input(*SHAPE) if wrong == "another value" else x
    return b.node("Mul", b.node("Mul", other, b.node("Add", e, b.constant(shift))), b.constant(outer))


@pytest.mark.parametrize("wrong", ["factor", "shift", "outer", "vector", "another value"])
def test_what_is_nearly_an_activation_stays_what_it_is(wrong: str, tmp_path: Path) -> None:
    model, inputs = load(lambda b: nearly(b, wrong), tmp_path, wants=TARGET.wants)
    assert "gelu" not in [op.kind for op in model.graph.ops]
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < LARGEST_ERROR


def test_a_value_inside_an_activation_that_is_an_output_stays(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(*SHAPE)
    e = builder.node("Erf", builder.node("Mul", x, builder.constant(0.5**0.5)))
    y = builder.node(
        "Mul", builder.node("Mul", x, builder.node("Add", e, builder.constant(1.0))), builder.constant(0.5)
    )
    path = builder.save(tmp_path, e, y)
    report = verify_model(path, "stcp920", CompileOptions(), VerifyOptions(samples=64))
    assert report.failures == ()


@pytest.mark.spread(3)
@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("masked", [-np.inf, -3.4028235e38, -1e9])
@pytest.mark.commit
def test_masked_attention_is_right(masked: float, level: str, tmp_path: Path) -> None:
    """Masks beyond the range are the largest number of fp16, which needs no warning, and compared as such."""
    builder = ModelBuilder()
    path = builder.save(tmp_path, causal(True, masked)(builder))
    report = verify_model(
        path, "stcp920", CompileOptions(planner_or_auto(level), schedule=True), VerifyOptions(samples=256)
    )
    assert report.failures == ()
    assert not any("saturate" in line for line in report.warnings)


def by_a_product(builder: ModelBuilder, shares: bool) -> str:
    """Scores and a mask as BERT's exporters write it: (1 - there) times the least number. With `shares`, `there` is not
    0 or 1 but any number."""
    scores, there = builder.input(*SHAPE), builder.input(*SHAPE)
    if not shares:
        truth = builder.node("Greater", there, builder.constant(-1.0))
        there = builder.node("Cast", truth, to=onnx.TensorProto.FLOAT)
    absent = builder.node("Sub", builder.constant(1.0), there)
    mask = builder.node("Mul", absent, builder.constant(float(np.finfo(np.float32).min)))
    shared = builder.node("Softmax", builder.node("Add", scores, mask), axis=-1)
    return builder.node("MatMul", shared, builder.weights(SHAPE[-1], 3))


def test_a_mask_that_is_a_product_is_right(tmp_path: Path) -> None:
    builder = ModelBuilder()
    path = builder.save(tmp_path, by_a_product(builder, shares=False))
    report = verify_model(path, "stcp920", CompileOptions(O0()), VerifyOptions(samples=256))
    assert report.failures == ()
    assert not any("saturate" in line for line in report.warnings)


def test_a_part_of_a_mask_is_not_the_end_of_the_range(tmp_path: Path) -> None:
    """A third of the least float32 is beyond the range, a third of the largest half is not."""
    builder = ModelBuilder()
    path = builder.save(tmp_path, by_a_product(builder, shares=True))
    report = verify_model(path, "stcp920", CompileOptions(O0()), VerifyOptions(samples=256))
    assert report.failures


@pytest.mark.parametrize("name", ["Greater", "Xor", "infinities", "constant mask, x where it is true", "Tile"])
@pytest.mark.commit
def test_machine_code_chooses_as_the_file_says(name: str, tmp_path: Path) -> None:
    builder = ModelBuilder()
    path = builder.save(tmp_path, CASES[name](builder))
    report = verify_model(path, "stcp920", CompileOptions(O3()), VerifyOptions(samples=256))
    assert report.failures == ()
    assert report.against_file.undeclared == ()
