"""Static shapes: what --shape and --batch may say, and what happens to exported reshapes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dsa_sched.frontend import Model, load_model
from hw_models.errors import ModelError
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import Attribute, ModelBuilder

Dim = int | str | None


def image_model(folder: Path, *shape: Dim) -> Path:
    builder = ModelBuilder()
    y = builder.node("Conv", builder.input(*shape, name="image"), builder.weights(4, 3, 3, 3))
    return builder.save(folder, builder.node("GlobalAveragePool", y))


def classifier(folder: Path, target: tuple[int, ...] = (1, 36), first: Dim = 1) -> Path:
    """Conv, Relu, a Reshape with the batch written into it, a product."""
    builder = ModelBuilder()
    y = builder.node(
        "Relu", builder.node("Conv", builder.input(first, 3, 5, 5, name="image"), builder.weights(4, 3, 3, 3))
    )
    y = builder.node("Reshape", y, builder.integers(*target), name="flatten")
    return builder.save(folder, builder.node("MatMul", y, builder.weights(36, 2)))


def refusal(path: Path, shapes: dict[str, tuple[int, ...]] | None = None, batch: int | None = None) -> str:
    with pytest.raises(ModelError) as error:
        load_model(path, shapes or {}, batch)
    return str(error.value)


def input_shape(model: Model) -> tuple[int, ...]:
    return model.graph.by_name[model.graph.inputs[0]].source_shape


def test_open_dimensions_need_the_flag(tmp_path: Path) -> None:
    assert refusal(image_model(tmp_path, "N", 3, None, None)) == (
        "input image [N, 3, ?, ?]: needs static dimensions; has dimensions left open by the model; "
        "give them, for example --shape image=1,3,224,224"
    )


def test_open_dimensions_given(tmp_path: Path) -> None:
    model = load_model(image_model(tmp_path, "N", 3, None, None), {"image": (2, 3, 6, 7)})
    assert input_shape(model) == (2, 3, 6, 7)
    assert model.graph.by_name[model.graph.outputs[0]].source_shape == (2, 4, 1, 1)
    dims = model.source.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [2, 3, 6, 7]


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"picture": (1, 3, 6, 6)}, "--shape picture: needs the name of an input of the model; has inputs image"),
        ({"image": (1, 4, 6, 6)}, "Conv conv0 (1x4x6x6, 4x3x3x3): 4 channels for weights of 3 in each of 1 groups"),
        ({"image": (1, 3, 6)}, "needs a shape that agrees with the model's [N, 3, ?, ?]; has [1, 3, 6]"),
        ({"image": (0, 3, 6, 6)}, "needs a shape that agrees with the model's"),
    ],
)
def test_shapes_that_do_not_agree(shapes: dict[str, tuple[int, ...]], said: str, tmp_path: Path) -> None:
    assert said in refusal(image_model(tmp_path, "N", 3, None, None), shapes)


def follower(*nodes: tuple[str, tuple[int, ...], dict[str, Attribute]]) -> Callable[[Path], Path]:
    """A convolution of [1, 3, 8, 8] to [1, 4, 8, 8], and operators by constants behind it."""

    def build(folder: Path) -> Path:
        b = ModelBuilder()
        y = b.node("Conv", b.input(1, 3, 8, 8, name="image"), b.weights(4, 3, 3, 3), pads=[1, 1, 1, 1])
        for op_type, numbers, settings in nodes:
            y = b.node(op_type, y, *([b.integers(*numbers)] if numbers else ()), name=op_type, attributes=settings)
        return b.save(folder, y)

    return build


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([("MaxPool", (), {"kernel_shape": [2, 2], "strides": [2, 2]})], (1, 4, 6, 5)),
        ([("Reshape", (1, 4, -1), {})], (1, 4, 120)),
        ([("Reshape", (0, 0, -1), {}), ("Softmax", (), {"axis": -1})], (1, 4, 120)),
        ([("GlobalAveragePool", (), {}), ("Reshape", (1, 4), {})], (1, 4)),
    ],
)
def test_fixed_extents_that_operators_follow(
    nodes: list[tuple[str, tuple[int, ...], dict[str, Attribute]]], shape: tuple[int, ...], tmp_path: Path
) -> None:
    model = load_model(follower(*nodes)(tmp_path), {"image": (1, 3, 12, 10)})
    assert input_shape(model) == (1, 3, 12, 10)
    assert model.graph.by_name[model.graph.outputs[0]].source_shape == shape


@pytest.mark.parametrize(
    ("op_type", "numbers"), [("Reshape", (1, 256)), ("Reshape", (-1, 256)), ("Reshape", (1, 4, 8, -1))]
)
def test_fixed_extents_that_an_operator_holds(op_type: str, numbers: tuple[int, ...], tmp_path: Path) -> None:
    said = refusal(follower((op_type, numbers, {}))(tmp_path), {"image": (1, 3, 16, 16)})
    assert f"{op_type} {op_type}: needs extents that follow its operand, [1, 4, 8, 8] in the file" in said


def test_a_window_that_no_longer_fits(tmp_path: Path) -> None:
    path = follower(("AveragePool", (), {"kernel_shape": [8, 8]}))(tmp_path)
    said = refusal(path, {"image": (1, 3, 6, 8)})
    assert said.startswith("AveragePool AveragePool: needs at least one element along each axis of its result")


def test_an_extent_that_weights_hold(tmp_path: Path) -> None:
    """The product behind a Flatten has a row for each element."""
    b = ModelBuilder()
    y = b.node("Flatten", b.node("Relu", b.input(1, 3, 4, 4, name="image")))
    path = b.save(tmp_path, b.node("Gemm", y, b.weights(48, 2), name="fc"))
    assert refusal(path, {"image": (1, 3, 5, 4)}).startswith("Gemm fc: needs shapes that agree")


def test_ends_and_sizes_that_are_fixed(tmp_path: Path) -> None:
    b = ModelBuilder()
    y = b.node("Relu", b.input(1, 3, 4, 4, name="image"))
    y = b.node("Slice", y, b.integers(1), b.integers(4), b.integers(2), name="cut")
    path = b.save(tmp_path, b.node("Resize", y, "", "", b.integers(1, 3, 6, 8), name="up"))
    assert "Slice cut: needs extents that follow" in refusal(path, {"image": (1, 3, 6, 4)})
    assert "Resize up: needs extents that follow" in refusal(path, {"image": (1, 3, 4, 6)})


def test_shapes_that_the_operators_cannot_take(tmp_path: Path) -> None:
    said = refusal(image_model(tmp_path, 1, 5, 6, 6))
    assert "Conv conv0 (1x5x6x6, 4x3x3x3): 5 channels for weights of 3 in each of 1 groups" in said


def test_shapes_that_inference_finds_wrong(tmp_path: Path) -> None:
    builder = ModelBuilder()
    path = builder.save(tmp_path, builder.node("MatMul", builder.input(2, 3), builder.weights(4, 5)))
    assert (
        refusal(path)
        == "MatMul matmul0: needs shapes that agree; has Incompatible dimensions for matrix multiplication"
    )


@pytest.mark.parametrize("perm", [(0, 1), (0, 1, 1), (0, 1, 3), (-1, 0, 1)])
def test_a_transposition_that_is_no_permutation_is_refused(perm: tuple[int, ...], tmp_path: Path) -> None:
    """onnxruntime refuses it, too; shape inference lets some of them pass."""
    b = ModelBuilder()
    path = b.save(tmp_path, b.node("Transpose", b.node("Relu", b.input(2, 3, 4)), perm=perm))
    assert "Transpose transpose1: needs " in refusal(path)


@pytest.mark.parametrize(("op_type", "opset"), [("LayerNormalization", 18), ("RMSNormalization", 23)])
@pytest.mark.parametrize("axis", [3, 9, -4])
def test_a_norm_along_an_axis_that_is_not_there_is_refused(op_type: str, opset: int, axis: int, tmp_path: Path) -> None:
    b = ModelBuilder(opset=opset)
    path = b.save(tmp_path, b.node(op_type, b.node("Relu", b.input(2, 3, 4)), b.weights(4), axis=axis))
    assert f"{op_type} {op_type.lower()}1: needs " in refusal(path)


def test_batch_fills_an_open_dimension(tmp_path: Path) -> None:
    assert input_shape(load_model(image_model(tmp_path, "N", 3, 6, 6), batch=4)) == (4, 3, 6, 6)


def test_batch_with_other_open_dimensions_names_them(tmp_path: Path) -> None:
    said = refusal(image_model(tmp_path, "N", 3, "H", 6), batch=4)
    assert said.startswith("input image [N, 3, H, 6]: needs static dimensions")


def test_batch_replaces_a_fixed_one(tmp_path: Path) -> None:
    assert input_shape(load_model(image_model(tmp_path, 1, 3, 6, 6), batch=3)) == (3, 3, 6, 6)


@pytest.mark.parametrize("target", [(1, 36), (1, -1), (-1, 36)])
def test_batch_rewrites_reshapes_that_hold_it(target: tuple[int, ...], tmp_path: Path) -> None:
    model = load_model(classifier(tmp_path, target), batch=3)
    inputs = {"image": np.random.default_rng(0).standard_normal((3, 3, 5, 5)).astype(np.float32)}
    errors = layer_errors(model.graph, model.constants, model.source, inputs)
    assert model.graph.by_name[model.graph.outputs[0]].shape == (3, 2)
    assert max(errors.values()) < 1e-3


def test_the_same_target_of_two_reshapes_keeps_its_other_use(tmp_path: Path) -> None:
    """A constant is also reshaped to [1, 36]: that one must not follow the batch."""
    builder = ModelBuilder()
    target = builder.integers(1, 36)
    y = builder.node("Reshape", builder.input(1, 4, 3, 3, name="image"), target)
    y = builder.node("Add", y, builder.node("Reshape", builder.weights(36), target))
    model = load_model(builder.save(tmp_path, y), batch=2)
    assert model.graph.by_name[y].shape == (2, 36)


def test_a_batch_that_moves_elsewhere_is_refused(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Reshape", builder.input(1, 36, name="image"), builder.integers(6, -1), name="rows")
    said = refusal(builder.save(tmp_path, y), batch=2)
    assert said.startswith("Reshape rows: needs an output that changes with the batch in its leading dimension only")
    assert "export the model with a dynamic batch dimension" in said


def test_a_reshape_that_cannot_follow_is_refused(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Reshape", builder.input(1, 36, name="image"), builder.integers(4, 9), name="rows")
    said = refusal(builder.save(tmp_path, y), batch=2)
    assert "Reshape rows (2x36, 2): 72 elements into the 36 of 4x9" in said


@pytest.mark.parametrize("batch", [0, -2, 1 << 63])
def test_a_batch_that_the_file_format_cannot_say_is_refused(tmp_path: Path, batch: int) -> None:
    said = refusal(image_model(tmp_path, 1, 3, 6, 6), batch=batch)
    assert said == f"--batch {batch}: needs a batch of 1 to {(1 << 63) - 1}"


@pytest.mark.parametrize("extent", [0, 1 << 63])
def test_an_extent_that_the_file_format_cannot_say_is_refused(tmp_path: Path, extent: int) -> None:
    said = refusal(image_model(tmp_path, "n", 3, 6, 6), {"image": (extent, 3, 6, 6)})
    assert "needs a shape that agrees with the model's [n, 3, 6, 6]" in said


def test_inputs_of_different_batches(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Add", builder.input(1, 4), builder.input(2, 4))
    assert "needs inputs that agree on their leading dimension" in refusal(builder.save(tmp_path, y), batch=2)


def test_a_scalar_input_has_no_batch(tmp_path: Path) -> None:
    builder = ModelBuilder()
    y = builder.node("Mul", builder.input(1, 4), builder.input(name="factor"))
    assert "needs a leading dimension of every input; has factor without one" in refusal(
        builder.save(tmp_path, y), batch=2
    )


def test_a_batch_equal_to_the_fixed_one_changes_nothing(tmp_path: Path) -> None:
    path = classifier(tmp_path)
    assert load_model(path, batch=1).graph == load_model(path).graph


@pytest.mark.parametrize("extent", [-1, 0])
def test_extents_that_are_not_positive_are_open(extent: int, tmp_path: Path) -> None:
    """Some exporters write -1 for an open dimension. The inference of ONNX ends the process at a Slice of it."""
    builder = ModelBuilder()
    bounds = [builder.integers(value) for value in (0, 2, 0, 1)]
    path = builder.save(tmp_path, builder.node("Slice", builder.input(extent, 6, name="x"), *bounds))
    assert "x [?, 6]: needs static dimensions" in refusal(path)
    assert input_shape(load_model(path, {"x": (4, 6)})) == (4, 6)
