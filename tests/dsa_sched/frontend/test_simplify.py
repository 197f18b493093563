"""Rewrites: what is left, under which names, and that it still computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsa_sched.frontend import Model, load_model
from dsa_sched.frontend.network.refusals import Judge
from partitioner.ir.wants import Wants, floats_as
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

WHOLE = Judge(Wants(floats_as("float32"), "channels_last", products_by_row=True))


def batch_norm(builder: ModelBuilder, x: str, channels: int, **more: float) -> str:
    positive = builder.constant(builder.random.uniform(0.5, 2.0, channels))
    parameters = (builder.weights(channels), builder.weights(channels), builder.weights(channels), positive)
    return builder.node("BatchNormalization", x, *parameters, attributes=more)


def checked(builder: ModelBuilder, folder: Path, *outputs: str, judge: Judge | None = None) -> Model:
    """The loaded model, after its values were compared with those of the file."""
    model = load_model(builder.save(folder, *outputs), judge=judge)
    inputs = {}
    for item in builder.inputs:
        shape = tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
        inputs[item.name] = builder.random.standard_normal(shape).astype(np.float32)
    errors = layer_errors(model.graph, model.constants, model.source, inputs, model.origins)
    assert set(outputs) <= set(errors)
    assert max(errors.values()) < 1e-3, errors
    return model


def listed(model: Model) -> list[tuple[str, str, str]]:
    return [(op.name, op.kind, op.outputs[0]) for op in model.graph.ops]


@pytest.mark.parametrize("bias", [True, False])
def test_batch_norm_goes_into_the_convolution_and_leaves_its_name(bias: bool, tmp_path: Path) -> None:
    builder = ModelBuilder()
    weights = [builder.weights(4, 3, 3, 3), *([builder.weights(4)] if bias else [])]
    y = batch_norm(builder, builder.node("Conv", builder.input(1, 3, 6, 6), *weights), 4, epsilon=0.1)
    model = checked(builder, tmp_path, builder.node("Relu", y))
    assert listed(model) == [("conv0", "conv", y), ("relu2", "relu", "v2")]


def test_a_chain_of_channel_maps_goes_into_one_convolution(tmp_path: Path) -> None:
    """Batch norm, then Unsqueeze(vector) * and +, as older exporters write them."""
    builder = ModelBuilder()
    y = batch_norm(builder, builder.node("Conv", builder.input(1, 3, 6, 6), builder.weights(4, 3, 1, 1)), 4)
    y = builder.node("Mul", y, builder.node("Unsqueeze", builder.weights(4), builder.integers(1, 2)))
    y = builder.node("Add", builder.node("Unsqueeze", builder.weights(4), builder.integers(1, 2)), y)
    y = builder.node("Sub", y, builder.constant(0.25))
    assert listed(checked(builder, tmp_path, y)) == [("conv0", "conv", y)]


def test_grouped_and_flat_products_absorb_too(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Conv", builder.input(1, 4, 6, 6), builder.weights(4, 2, 1, 1), group=2)
    y = builder.node("Flatten", batch_norm(builder, y, 4))
    y = batch_norm(builder, builder.node("Gemm", y, builder.weights(5, 144), builder.weights(5), transB=1), 5)
    assert [op.kind for op in checked(builder, tmp_path, y).graph.ops] == ["conv", "view", "matmul"]


def test_batch_norm_after_something_else_is_one_scale_and_shift(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = batch_norm(builder, builder.node("Relu", builder.input(2, 4, 3, 3)), 4)
    y = builder.node("Add", builder.node("Mul", y, builder.weights(1, 4, 1, 1)), builder.weights(4, 1, 1))
    model = checked(builder, tmp_path, y)
    assert listed(model) == [("relu0", "relu", "v0"), ("batchnormalization1", "scale_shift", y)]
    assert [model.graph.by_name[name].shape for name in model.graph.ops[1].inputs] == [(2, 3, 3, 4), (4,), (4,)]


def test_a_value_that_others_read_is_not_folded_away(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Conv", builder.input(1, 3, 6, 6), builder.weights(4, 3, 1, 1))
    z = batch_norm(builder, y, 4)
    model = checked(builder, tmp_path, builder.node("Add", y, z))
    assert [op.kind for op in model.graph.ops] == ["conv", "scale_shift", "add"]


def test_an_output_of_the_network_is_not_folded_away(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Conv", builder.input(1, 3, 6, 6), builder.weights(4, 3, 1, 1))
    model = checked(builder, tmp_path, y, batch_norm(builder, y, 4))
    assert [op.kind for op in model.graph.ops] == ["conv", "scale_shift"]


def test_maps_along_other_axes_stay(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Conv", builder.input(1, 3, 4, 4), builder.weights(4, 3, 1, 1))
    y = builder.node("Mul", y, builder.weights(4))  # along the width, which has as many elements as there are channels
    y = builder.node("Add", builder.node("Relu", y), builder.weights(1, 1, 4, 1))
    assert [op.kind for op in checked(builder, tmp_path, y).graph.ops] == ["conv", "mul", "relu", "add"]


def test_a_constant_that_widens_the_value_is_no_channel_map(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Conv", builder.input(1, 3, 1, 1), builder.weights(4, 3, 1, 1))
    y = builder.node("Add", y, builder.weights(1, 4, 5, 1))
    assert [op.kind for op in checked(builder, tmp_path, y).graph.ops] == ["conv", "add"]


def test_one_constant_divided_by_the_value_is_no_channel_map(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Exp", builder.input(2, 3))
    y = builder.node("Div", builder.constant(2.0), y)
    assert [op.kind for op in checked(builder, tmp_path, y).graph.ops] == ["exp", "div"]


def test_no_ops_vanish_and_outputs_keep_their_names(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Identity", builder.node("Dropout", builder.node("Relu", builder.input(2, 3))))
    z = builder.node("Cast", builder.node("Neg", y), to=1)
    model = checked(builder, tmp_path, y, z)
    assert listed(model) == [("relu0", "relu", y), ("neg3", "neg", z)]


def test_two_names_of_one_output_need_a_copy(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Relu", builder.input(2, 3))
    z = builder.node("Identity", y)
    assert listed(checked(builder, tmp_path, y, z)) == [("relu0", "relu", y), ("identity1", "view", z)]


def test_a_sum_is_a_chain_that_keeps_the_first_name(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Sum", *(builder.input(2, 3) for _ in range(4)))
    model = checked(builder, tmp_path, y)
    assert [op.name for op in model.graph.ops] == ["sum0", "sum0::2", "sum0::3"]
    assert model.graph.ops[-1].outputs == (y,)


def test_empty_pieces_and_concatenations_of_one_vanish(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(2, 3)
    empty = builder.node("Slice", x, builder.integers(3), builder.integers(9), builder.integers(1))
    y = builder.node("Neg", builder.node("Concat", builder.node("Relu", x), empty, axis=1))
    assert [op.kind for op in checked(builder, tmp_path, y).graph.ops] == ["relu", "neg"]


def test_what_no_output_needs_is_gone(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(2, 3)
    y = builder.node("Relu", x)
    builder.node("Add", x, builder.weights(2, 3))
    model = checked(builder, tmp_path, y)
    assert [op.kind for op in model.graph.ops] == ["relu"]
    assert not model.constants


def test_constants_are_fp16_by_rounding_to_even_and_saturate_with_a_warning(tmp_path: Path) -> None:
    builder = ModelBuilder()
    halfway = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.0, 65520.0, -1e9, 2.0**-25]
    y = builder.node("Add", builder.input(1, 6), builder.constant([halfway], name="w"), name="adder")
    model = load_model(builder.save(tmp_path, y))
    (stored,) = model.constants.values()
    assert stored.dtype == np.float16
    assert stored.tolist() == [[1.0, 1 + 2.0**-9, 65504.0, 65504.0, -65504.0, 0.0]]
    assert model.warnings == (
        "adder: 2 of 6 elements of w saturate at 65504 in fp16",
        "adder: 1 of 6 elements of w become zero in fp16, the largest is 2.98e-08",
    )


def test_weights_that_are_not_numbers_are_allowed_with_a_warning(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Add", builder.input(1, 2), builder.constant([[1.0, np.nan]], name="w"), name="adder")
    model = load_model(builder.save(tmp_path, y))
    assert model.warnings == ("adder: 1 of 2 elements of w are not numbers (NaN)",)


def test_mask_constants_become_the_most_negative_finite_value(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Add", builder.input(1, 2), builder.constant([[0.0, -3.4e38]], name="mask"), name="adder")
    model = load_model(builder.save(tmp_path, y))
    (stored,) = model.constants.values()
    assert stored.tolist() == [[0.0, -65504.0]]


def test_the_same_constant_in_two_layouts_has_two_names(tmp_path: Path) -> None:
    builder = ModelBuilder()
    shared = builder.weights(4, 2, 1, 1)
    x = builder.input(1, 2, 3, 3)
    a = builder.node("Conv", x, shared)
    b = builder.node("Conv", builder.input(1, 4, 3, 3), shared, group=2)
    model = checked(builder, tmp_path, builder.node("Add", a, b))
    names = [op.inputs[1] for op in model.graph.ops[:2]]
    assert names == [shared, f"{shared}::2"]
    assert [model.graph.by_name[name].shape for name in names] == [(1, 1, 2, 4), (2, 1, 1, 2, 2)]


def test_loading_twice_gives_the_same_text(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = batch_norm(builder, builder.node("Conv", builder.input(1, 3, 6, 6), builder.weights(4, 3, 3, 3)), 4)
    path = builder.save(tmp_path, y)
    assert str(load_model(path).graph) == str(load_model(path).graph)


def preactivated(
    builder: ModelBuilder, scale: np.ndarray, readers: int = 2, shift: float = 0.5, mean: float = 0.5, pad: int = 1
) -> list[str]:
    """Batch norm and Relu after a Relu, read by convolutions."""
    statistics = (builder.weights(6, scale=mean), builder.constant(builder.random.uniform(0.5, 2.0, 6)))
    x = builder.node("Relu", builder.input(2, 6, 5, 5))
    y = builder.node("BatchNormalization", x, builder.constant(scale), builder.weights(6, scale=shift), *statistics)
    y = builder.node("Relu", y)
    return [builder.node("Conv", y, builder.weights(4, 6, 3, 3), pads=[pad] * 4) for _ in range(readers)]


def test_positive_gains_before_relu_go_into_the_convolutions_behind(tmp_path: Path) -> None:
    builder = ModelBuilder()
    outputs = preactivated(builder, builder.random.uniform(0.1, 3.0, 6))
    model = checked(builder, tmp_path, *outputs)
    assert [op.kind for op in model.graph.ops] == ["relu", "add", "relu", "conv", "conv"]
    assert {name: origin.name for name, origin in model.origins.items()} == {"v1::unscaled": "v1", "v2::unscaled": "v2"}


def test_before_convolutions_without_padding_the_shift_goes_there_too(tmp_path: Path) -> None:
    builder = ModelBuilder()
    outputs = preactivated(builder, builder.random.uniform(0.1, 3.0, 6), pad=0)
    biased = builder.node("Conv", "v2", builder.weights(4, 6, 1, 1), builder.weights(4))
    model = checked(builder, tmp_path, *outputs, biased)
    assert [op.kind for op in model.graph.ops] == ["relu", "max", "conv", "conv", "conv"]
    assert {name: origin.name for name, origin in model.origins.items()} == {"v2::unscaled": "v2"}


def test_the_shift_stays_where_sums_would_be_much_less_exact(tmp_path: Path) -> None:
    """Means far from zero beside their deviations: Relu makes them small, a maximum would leave them large. Nor does it
    go where nothing is known of them, or where another reader pads."""
    builder = ModelBuilder()
    model = checked(builder, tmp_path, *preactivated(builder, np.ones(6), mean=10.0, pad=0))
    assert "add" in [op.kind for op in model.graph.ops]

    builder = ModelBuilder()
    x = builder.node("Relu", builder.input(2, 6, 5, 5))
    y = builder.node("Mul", x, builder.constant(builder.random.uniform(0.5, 2.0, (6, 1, 1))))
    y = builder.node("Relu", builder.node("Add", y, builder.weights(6, 1, 1)))
    model = checked(builder, tmp_path, builder.node("Conv", y, builder.weights(4, 6, 1, 1)))
    assert [op.kind for op in model.graph.ops] == ["relu", "add", "relu", "conv"]

    builder = ModelBuilder()
    outputs = preactivated(builder, np.ones(6), pad=0)
    padded = builder.node("Conv", "v2", builder.weights(4, 6, 3, 3), pads=[0, 1, 0, 1])
    assert "add" in [op.kind for op in checked(builder, tmp_path, *outputs, padded).graph.ops]


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize(
    ("scale", "shift"),
    [
        (np.array([1.0, 2.0, -0.5, 1.0, 1.0, 1.0]), 0.5),
        (np.array([1.0, 0.0, 1.0, 1.0, 1.0, 1.0]), 0.5),
        (np.array([1.0, 1e-5, 1.0, 1.0, 1.0, 1.0]), 0.5),  # what is added would be too large
        (np.full(6, 1e-5), 1e-5),  # weights would lose digits below the normal numbers of fp16
    ],
    ids=["negative", "zero", "small", "all small"],
)
def test_gains_stay_where_signs_or_sizes_forbid_to_move_them(
    scale: np.ndarray, shift: float, pad: int, tmp_path: Path
) -> None:
    builder = ModelBuilder()
    model = load_model(builder.save(tmp_path, *preactivated(builder, scale, 1, shift, pad=pad)))
    assert [op.kind for op in model.graph.ops] == ["relu", "scale_shift", "relu", "conv"]
    assert not model.origins


@pytest.mark.parametrize("pad", [0, 1])
def test_gains_stay_where_something_else_reads_what_they_scale(pad: int, tmp_path: Path) -> None:
    builder = ModelBuilder()
    (y,) = preactivated(builder, np.ones(6), 1, pad=pad)
    model = checked(builder, tmp_path, y, "v2")
    assert "scale_shift" in [op.kind for op in model.graph.ops]


def test_the_shift_stays_where_one_output_alone_would_suffer(tmp_path: Path) -> None:
    """Output 0 reads a channel whose mean is far below zero, and its bias would be beyond fp16; all others do not."""
    builder = ModelBuilder()
    x = builder.node("Relu", builder.input(2, 2, 5, 5))
    statistics = builder.constant(np.array([-100.0, 0.0])), builder.constant(np.ones(2))
    affine = builder.constant(np.ones(2)), builder.constant(np.array([0.0, 0.0]))
    y = builder.node("Relu", builder.node("BatchNormalization", x, *affine, *statistics))
    weights = np.zeros((512, 2, 1, 1))
    weights[0, 0], weights[1:, 1] = 1000.0, 8000.0
    model = load_model(builder.save(tmp_path, builder.node("Conv", y, builder.constant(weights))))
    assert [op.kind for op in model.graph.ops] == ["relu", "add", "relu", "conv"]
    assert not model.warnings


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bias", [True, False])
def test_products_of_flattened_rows_are_of_what_was_flattened(bias: bool, turned: bool, tmp_path: Path) -> None:
    builder = ModelBuilder()
    rows = builder.node("Reshape", builder.input(2, 5, 6), builder.integers(10, 6))
    operands = [builder.weights(*((8, 6) if turned else (6, 8))), *([builder.weights(8)] if bias else [])]
    y = builder.node("Gemm", rows, *operands, transB=int(turned))
    y = builder.node("Reshape", y, builder.integers(2, 5, 8))
    model = checked(builder, tmp_path, builder.node("Relu", y), judge=WHOLE)
    assert [op.kind for op in model.graph.ops] == ["matmul", "relu"]
    assert model.graph.by_name[model.graph.ops[0].outputs[0]].shape == (2, 5, 8)


def test_flattened_rows_that_come_back_otherwise_stay(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(2, 5, 6)
    y = builder.node("Gemm", builder.node("Reshape", x, builder.integers(10, 6)), builder.weights(6, 8))
    z = builder.node("Gemm", builder.node("Reshape", x, builder.integers(20, 3)), builder.weights(3, 8))
    y = builder.node("Reshape", y, builder.integers(5, 2, 8))
    z = builder.node("Reshape", z, builder.integers(2, 5, 16))
    model = checked(builder, tmp_path, builder.node("Relu", y), builder.node("Relu", z), judge=WHOLE)
    assert [op.kind for op in model.graph.ops].count("view") == 4
