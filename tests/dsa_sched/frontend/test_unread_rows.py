"""Rows that nothing reads: what is left of the layers that make them, and that it is the same as of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from dsa_sched.frontend import Model, load_model
from dsa_sched.frontend.network.network import NetworkPart
from dsa_sched.frontend.network.refusals import Judge
from hw_models.errors import ModelError
from partitioner.ir.wants import Wants, floats_as
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

ROWS, WIDTH = 7, 12
KERNELS = Judge(Wants(floats_as("float32"), "channels_last", norms_of_lines=True, attention_width=8))

Take = Callable[[ModelBuilder, str], str]


def first_row(b: ModelBuilder, x: str) -> str:
    return b.node("Gather", x, b.constant(0, dtype=np.int64), axis=1)


def last_rows(b: ModelBuilder, x: str) -> str:
    return b.node("Slice", x, b.integers(-2), b.integers(1 << 40), b.integers(1))


def some_rows(b: ModelBuilder, x: str) -> str:
    return b.node("Gather", x, b.integers(3, 4, 5), axis=1)


def norm(b: ModelBuilder, x: str) -> str:
    return b.node("LayerNormalization", x, b.constant(b.random.uniform(0.5, 2, WIDTH)), b.weights(WIDTH))


def product(b: ModelBuilder, x: str, columns: int = WIDTH) -> str:
    return b.node("Add", b.node("MatMul", x, b.weights(WIDTH, columns)), b.weights(columns))


def encoder_layer(b: ModelBuilder, x: str) -> str:
    """As a ViT has it: norm, attention of three heads, sum, norm, two products around an activation, sum."""
    y = norm(b, x)
    split = b.constant(np.array([2, ROWS, 3, 4]), dtype=np.int64)
    q, k, v = (b.node("Transpose", b.node("Reshape", product(b, y), split), perm=[0, 2, 1, 3]) for _ in range(3))
    scores = b.node("Mul", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 1, 3, 2])), b.constant(0.5))
    taken = b.node("Transpose", b.node("MatMul", b.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    joined = b.node("Reshape", taken, b.constant(np.array([2, ROWS, WIDTH]), dtype=np.int64))
    x = b.node("Add", product(b, joined), x)
    return b.node("Add", product(b, b.node("Tanh", product(b, norm(b, x)))), x)


def checked(b: ModelBuilder, folder: Path, *outputs: str) -> Model:
    """The loaded model, after each of its values was compared with the part of the file's that it is."""
    model = load_model(b.save(folder, *outputs), judge=KERNELS)
    inputs = {
        item.name: b.random.standard_normal([dim.dim_value for dim in item.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for item in b.inputs
    }
    errors = layer_errors(model.graph, model.constants, model.source, inputs, model.origins)
    assert {origin for origin in model.origins if origin in model.graph.by_name} <= set(errors)
    assert set(outputs) <= set(errors)
    assert max(errors.values()) < 1e-4, errors
    return model


def rows_of(model: Model, kind: str) -> list[int]:
    """Rows that operators of a kind make, in order."""
    return [model.graph.by_name[op.outputs[0]].shape[1] for op in model.graph.ops if op.kind == kind]


@pytest.mark.parametrize(("take", "rows"), [(first_row, 1), (last_rows, 2), (some_rows, 3)])
def test_an_encoder_layer_computes_the_rows_that_are_read(take: Take, rows: int, tmp_path: Path) -> None:
    """Keys and values of all rows, all else of those."""
    b = ModelBuilder(opset=18)
    model = checked(b, tmp_path, take(b, norm(b, encoder_layer(b, b.input(2, ROWS, WIDTH)))))
    assert rows_of(model, "attend") == [rows]
    assert sorted(rows_of(model, "matmul")) == sorted([rows, ROWS, ROWS, rows, rows, rows])
    assert rows_of(model, "normalise") == [ROWS, rows, rows]


def test_layers_before_the_last_compute_all(tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    x = encoder_layer(b, encoder_layer(b, b.input(2, ROWS, WIDTH)))
    model = checked(b, tmp_path, first_row(b, x))
    assert rows_of(model, "attend") == [ROWS, 1]


@pytest.mark.parametrize("op_type", ["Elu", "Selu", "Softsign", "Floor"])
def test_rows_are_followed_through_any_function_of_one_number(op_type: str, tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    y = b.node(op_type, product(b, b.input(2, ROWS, WIDTH)))
    assert rows_of(checked(b, tmp_path, first_row(b, y)), "matmul") == [1]


def test_parts_have_origins_that_say_which_they_are(tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    y = product(b, b.input(2, ROWS, WIDTH))
    model = checked(b, tmp_path, b.node("Relu", some_rows(b, b.node("Tanh", y))))
    parts = {origin.name: origin.part for origin in model.origins.values()}
    assert parts[y] == NetworkPart(1, 3, 6)


@pytest.mark.parametrize("other", ["output", "whole", "other rows"])
def test_what_is_read_otherwise_too_stays_whole(other: str, tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    y = product(b, b.input(2, ROWS, WIDTH))
    also = y if other == "output" else b.node("Relu", y) if other == "whole" else some_rows(b, y)
    assert rows_of(checked(b, tmp_path, first_row(b, y), also), "matmul") == [ROWS]


def test_an_index_outside_is_refused_all_the_same(tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    y = product(b, b.input(2, ROWS, WIDTH))
    with pytest.raises(ModelError, match=f"index {ROWS} of an axis of {ROWS} elements"):
        load_model(b.save(tmp_path, b.node("Gather", y, b.integers(ROWS), axis=1)), judge=KERNELS)


@pytest.mark.parametrize(
    "take",
    [
        lambda b, x: b.node("Gather", x, b.integers(1), axis=0),
        lambda b, x: b.node("Gather", x, b.integers(2, 4), axis=1),
        lambda b, x: b.node("Slice", x, b.integers(0), b.integers(ROWS), b.integers(1), b.integers(2)),
        lambda b, x: b.node("Slice", x, b.integers(0), b.integers(ROWS), b.integers(1)),
        lambda b, x: b.node("Gather", x, b.integers(1), axis=2),
    ],
    ids=["batch", "apart", "every other", "all", "columns"],
)
def test_other_parts_go_before_no_product(take: Take, tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    model = checked(b, tmp_path, take(b, product(b, b.input(2, ROWS, WIDTH))))
    (made,) = (model.graph.by_name[op.outputs[0]] for op in model.graph.ops if op.kind == "matmul")
    assert made.shape == (2, ROWS, WIDTH)


def test_a_softmax_along_the_axis_needs_all_of_it(tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    y = b.node("Softmax", product(b, b.input(2, ROWS, WIDTH)), axis=1)
    assert rows_of(checked(b, tmp_path, first_row(b, y)), "matmul") == [ROWS]


def test_rows_are_followed_through_a_transposition(tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    turned = b.node("Transpose", product(b, b.input(2, ROWS, WIDTH)), perm=[0, 2, 1])
    y = b.node("Gather", b.node("Tanh", turned), b.integers(1), axis=2)
    assert rows_of(checked(b, tmp_path, y), "matmul") == [1]


@pytest.mark.parametrize(("op_type", "opset"), [("LayerNormalization", 18), ("RMSNormalization", 23)])
@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (1, ROWS, WIDTH), (ROWS, 1)])
def test_a_norm_whose_scale_has_rows_is_made_whole_or_takes_that_row(
    op_type: str, opset: int, shape: tuple[int, ...], tmp_path: Path
) -> None:
    b = ModelBuilder(opset=opset)
    x = b.node("Relu", b.input(2, ROWS, WIDTH))
    checked(b, tmp_path, first_row(b, b.node(op_type, x, b.weights(*shape))))
    b = ModelBuilder(opset=opset)
    x, scale = b.node("Relu", b.input(2, ROWS, WIDTH)), b.input(*shape)
    checked(b, tmp_path, first_row(b, b.node(op_type, x, scale)))


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("cut", [1, 2])
def test_an_old_softmax_of_several_axes_is_refused_all_the_same(
    op_type: str, axis: int | None, cut: int, tmp_path: Path
) -> None:
    """Before operator set 13 it was along all axes from its own on, the second unless it said so."""
    b = ModelBuilder(opset=11)
    along = {} if axis is None else {"axis": axis}
    y = b.node(op_type, product(b, b.input(1, ROWS, WIDTH)), attributes=along)
    with pytest.raises(ModelError, match=r"together|several axes"):
        load_model(b.save(tmp_path, b.node("Gather", y, b.integers(0), axis=cut)), judge=KERNELS)


def test_an_old_softmax_along_the_last_axis_computes_the_rows_that_are_read(tmp_path: Path) -> None:
    b = ModelBuilder(opset=11)
    y = b.node("Softmax", product(b, b.input(1, ROWS, WIDTH)), axis=2)
    assert rows_of(checked(b, tmp_path, first_row(b, y)), "matmul") == [1]


def guarded(b: ModelBuilder) -> str:
    """A Softmax that a computed mask may close, zero where it is no number."""
    scores, open_ = product(b, b.input(2, ROWS, WIDTH)), b.node("Greater", b.input(2, ROWS, WIDTH), b.constant(0.0))
    mask = b.node("Where", open_, b.constant(0.0), b.constant(-np.inf))
    y = b.node("Softmax", b.node("Add", scores, mask), axis=-1)
    return b.node("Where", b.node("IsNaN", y), b.constant(0.0), y)


def chosen(b: ModelBuilder) -> str:
    """From a Softmax whose constant mask leaves something of every row, by a condition that is computed."""
    x = b.input(2, ROWS, WIDTH)
    mask = b.constant(np.where(np.tri(ROWS, WIDTH) > 0, 0, -np.inf)[None])
    y = b.node("Softmax", b.node("Add", product(b, x), mask), axis=-1)
    return b.node("Where", b.node("Greater", x, b.constant(0.0)), b.constant(0.0), y)


@pytest.mark.parametrize("make", [guarded, chosen])
def test_a_choice_that_compiles_whole_compiles_of_one_row(make: Callable[[ModelBuilder], str], tmp_path: Path) -> None:
    halves = Judge(Wants(floats_as("float16"), "channels_last", norms_of_lines=True))
    b = ModelBuilder(opset=18)
    load_model(b.save(tmp_path, first_row(b, make(b))), judge=halves)


def test_a_choice_that_could_let_a_nan_through_is_refused_of_one_row_too(tmp_path: Path) -> None:
    halves = Judge(Wants(floats_as("float16"), "channels_last", norms_of_lines=True))
    b = ModelBuilder(opset=18)
    x, mask = b.input(2, ROWS, WIDTH), b.input(2, ROWS, WIDTH)
    y = b.node("Softmax", b.node("Add", product(b, x), mask), axis=-1)
    y = b.node("Where", b.node("Greater", x, b.constant(0.0)), b.constant(0.0), y)
    with pytest.raises(ModelError, match="whose NaN would stay"):
        load_model(b.save(tmp_path, first_row(b, y)), judge=halves)


def test_what_is_refused_has_the_name_of_the_files_node(tmp_path: Path) -> None:
    b = ModelBuilder(opset=18)
    ids = b.node("Cast", b.input(2, ROWS, WIDTH, dtype=onnx.TensorProto.INT64), to=onnx.TensorProto.FLOAT)
    y = b.node("Mul", b.input(2, ROWS, WIDTH), ids)
    with pytest.raises(ModelError, match="Cast cast0"):
        load_model(b.save(tmp_path, first_row(b, y)), judge=KERNELS)


def test_parts_of_operands_with_fewer_axes(tmp_path: Path) -> None:
    """The part of a vector is along the first axis that it has."""
    b = ModelBuilder(opset=18)
    x, vector = b.input(2, WIDTH), b.node("Tanh", b.input(WIDTH))
    y = b.node("Slice", b.node("Add", x, vector), b.integers(1), b.integers(4), b.integers(1))
    assert vector in {origin.name for origin in checked(b, tmp_path, b.node("Relu", y)).origins.values()}
