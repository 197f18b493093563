"""Every operator rule: our graph, evaluated plainly from attributes alone, against onnxruntime on the user's model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from codegen.generic import NEUTRAL
from dsa_sched.frontend import Model, load_model
from dsa_sched.frontend.network.refusals import Judge
from hw_models.errors import ModelError
from partitioner.ir.wants import Wants
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder

INT64 = onnx.TensorProto.INT64
Build = Callable[[ModelBuilder], str]
LARGEST_ERROR = 1e-3
"""Weights are rounded to fp16, 2**-11 each; nothing else differs from float32."""


def unary(op_type: str, **attributes: float) -> Build:
    return lambda b: b.node(op_type, b.input(1, 5, 3, 4), attributes=attributes)


def positive(op_type: str) -> Build:
    return lambda b: b.node(op_type, b.node("Exp", b.input(2, 7)))


def bounded(op_type: str) -> Build:
    return lambda b: b.node(op_type, b.node("Tanh", b.input(2, 7)))


def conv(shape: tuple[int, ...], weights: tuple[int, ...], **attributes: int | str | list[int]) -> Build:
    def build(b: ModelBuilder) -> str:
        return b.node("Conv", b.input(*shape), b.weights(*weights), b.weights(weights[0]), attributes=attributes)

    return build


def pool(op_type: str, shape: tuple[int, ...] = (1, 3, 9, 8), **attributes: int | str | list[int]) -> Build:
    return lambda b: b.node(op_type, b.node("Relu", b.input(*shape)), attributes=attributes)


def binary(op_type: str, left: tuple[int, ...], right: tuple[int, ...]) -> Build:
    return lambda b: b.node(op_type, b.input(*left), b.input(*right))


def with_constant(op_type: str, shape: tuple[int, ...], constant: tuple[int, ...], after_conv: bool = False) -> Build:
    def build(b: ModelBuilder) -> str:
        x = b.input(*shape)
        if after_conv:
            x = b.node("Relu", b.node("Conv", x, b.weights(shape[1], shape[1], 1, 1)))
        return b.node(op_type, x, b.constant(b.random.uniform(0.5, 2.0, constant)))

    return build


def mapped(after: Build) -> Build:
    """The operator in the middle of channels-last values."""

    def build(b: ModelBuilder) -> str:
        y = after(b)
        return b.node("Conv", y, b.weights(2, 4, 1, 1))

    return build


def feature_map(b: ModelBuilder) -> str:
    return b.node("Conv", b.input(2, 3, 6, 5), b.weights(4, 3, 1, 1))


CASES: dict[str, Build] = {
    **{name: unary(name) for name in ("Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Erf", "Softplus", "HardSwish")},
    **{name: positive(name) for name in ("Log", "Sqrt", "Reciprocal")},
    **{name: unary(name) for name in ("Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh")},
    **{name: unary(name) for name in ("Floor", "Ceil", "Round", "Sign")},
    **{name: bounded(name) for name in ("Asin", "Acos", "Atanh")},
    "Acosh": lambda b: b.node("Acosh", b.node("Add", b.node("Exp", b.input(2, 3)), b.constant(1.0))),
    "Pow": lambda b: b.node("Pow", b.node("Exp", b.input(2, 3)), b.constant(1.7)),
    "LogSoftmax": lambda b: b.node("LogSoftmax", b.input(2, 3, 4), axis=1),
    "ReduceLogSum": lambda b: b.node("ReduceLogSum", b.node("Exp", b.input(2, 3, 4)), b.integers(1), keepdims=0),
    "ReduceLogSumExp": lambda b: b.node("ReduceLogSumExp", b.input(2, 3, 4), b.integers(0, -1)),
    "ReduceLogSumExp of all": lambda b: b.node("ReduceLogSumExp", b.input(1, 3, 4), b.integers(1, 2), keepdims=0),
    "LeakyRelu": unary("LeakyRelu", alpha=0.1),
    "HardSigmoid": unary("HardSigmoid", alpha=0.3),
    "Clip": lambda b: b.node("Clip", b.input(2, 3), b.constant(-0.5), b.constant(0.25)),
    "Clip without bounds": lambda b: b.node("Clip", b.input(2, 3)),
    "Conv": conv((2, 3, 8, 7), (4, 3, 3, 3), pads=[1, 1, 1, 1]),
    "Conv uneven": conv((1, 3, 8, 7), (4, 3, 3, 2), pads=[2, 0, 1, 1], strides=[2, 1], dilations=[1, 2]),
    "Conv same upper": conv((1, 3, 8, 7), (4, 3, 3, 2), auto_pad="SAME_UPPER", strides=[2, 2]),
    "Conv same lower": conv((1, 3, 8, 7), (4, 3, 4, 2), auto_pad="SAME_LOWER", strides=[3, 2]),
    "Conv valid": conv((1, 3, 8, 7), (4, 3, 3, 2), auto_pad="VALID"),
    "Conv grouped": conv((1, 6, 5, 5), (4, 3, 3, 3), group=2),
    "Conv depthwise": conv((1, 6, 5, 5), (6, 1, 3, 3), group=6, pads=[1, 1, 1, 1]),
    "Conv depthwise with multiplier": conv((1, 3, 5, 5), (6, 1, 3, 3), group=3),
    "Conv 1d": conv((1, 3, 9), (4, 3, 3), pads=[1, 1]),
    "Conv 3d": conv((1, 2, 4, 5, 4), (3, 2, 3, 3, 2)),
    "MaxPool": pool("MaxPool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1]),
    "MaxPool ceil": pool("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "MaxPool dilated": pool("MaxPool", kernel_shape=[2, 2], dilations=[2, 3]),
    "MaxPool 1d": pool("MaxPool", (1, 2, 9), kernel_shape=[3]),
    "AveragePool": pool("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "AveragePool counted": pool("AveragePool", kernel_shape=[3, 3], pads=[1, 0, 1, 1], count_include_pad=1),
    "AveragePool ceil": pool("AveragePool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "AveragePool same": pool("AveragePool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    "GlobalAveragePool": pool("GlobalAveragePool"),
    "GlobalMaxPool": pool("GlobalMaxPool"),
    "LRN": lambda b: b.node("LRN", b.input(1, 7, 3, 4), size=5, alpha=0.3, beta=0.6, bias=2.0),
    "Gemm": lambda b: b.node("Gemm", b.input(3, 4), b.weights(4, 5), b.weights(5)),
    "Gemm scaled": lambda b: b.node(
        "Gemm", b.input(3, 4), b.weights(5, 4), b.weights(1), transB=1, alpha=0.5, beta=2.0
    ),
    "Gemm with one number a row": lambda b: b.node("Gemm", b.input(5, 4), b.weights(4, 5), b.weights(5, 1)),
    "Gemm with one number a row, scaled": lambda b: b.node(
        "Mul", b.node("Gemm", b.input(5, 4), b.weights(4, 5), b.weights(5, 1)), b.weights(5)
    ),
    "Gemm with a factor for one number a row": lambda b: b.node(
        "Gemm", b.input(5, 4), b.weights(4, 5), b.weights(5, 1), beta=0.5
    ),
    "Gemm with a matrix of one row": lambda b: b.node("Gemm", b.input(3, 4), b.weights(4, 5), b.weights(1, 5)),
    "Gemm transposed": lambda b: b.node("Gemm", b.input(4, 3), b.input(5, 4), transA=1, transB=1),
    "Gemm with a matrix": lambda b: b.node("Gemm", b.input(3, 4), b.weights(4, 5), b.input(3, 5)),
    "MatMul": lambda b: b.node("MatMul", b.input(2, 3, 4), b.weights(4, 5)),
    "MatMul with bias": lambda b: b.node("Add", b.node("MatMul", b.input(2, 3, 4), b.weights(4, 5)), b.weights(5)),
    "MatMul batched": lambda b: b.node("MatMul", b.input(2, 3, 4), b.input(2, 4, 5)),
    "Add": binary("Add", (2, 3, 4), (2, 3, 4)),
    "Sub broadcast": binary("Sub", (2, 3, 4, 5), (2, 3, 1, 1)),
    "Mul lower rank": binary("Mul", (2, 3, 4, 5), (4, 5)),
    "Div": lambda b: b.node("Div", b.input(2, 3), b.node("Exp", b.input(2, 3))),
    "Max": lambda b: b.node("Max", b.input(2, 3), b.input(3), b.input(2, 1)),
    "Min of one": lambda b: b.node("Relu", b.node("Min", b.input(2, 3))),
    "Sum": lambda b: b.node("Sum", b.input(2, 3), b.input(2, 3), b.input(2, 3)),
    "x + x": lambda b: b.node("Add", b.input(2, 3, name="x"), "x"),
    "Add of a channel constant": with_constant("Add", (1, 3, 4, 5), (3, 1, 1)),
    "Mul by rows": with_constant("Mul", (1, 3, 4, 5), (4, 1), after_conv=True),
    "Div by one number": with_constant("Div", (1, 3, 4, 5), (), after_conv=True),
    "number minus x": lambda b: b.node("Sub", b.constant(3.0), b.input(2, 3)),
    "scale and shift": lambda b: b.node(
        "Relu",
        b.node("Add", b.node("Mul", b.node("Relu", b.input(1, 4, 3, 3)), b.weights(4, 1, 1)), b.weights(4, 1, 1)),
    ),
    "Softmax": lambda b: b.node("Softmax", b.input(2, 3, 4), axis=1),
    "Softmax of a map": mapped(lambda b: b.node("Softmax", feature_map(b), axis=1)),
    "Concat": lambda b: b.node("Concat", b.input(2, 3, 4), b.input(2, 1, 4), axis=1),
    "Concat with a constant": lambda b: b.node("Concat", b.input(2, 3), b.weights(2, 2), axis=-1),
    "Concat of maps": mapped(lambda b: b.node("Concat", b.input(2, 1, 6, 5), b.input(2, 3, 6, 5), axis=1)),
    "Transpose": lambda b: b.node("Transpose", b.input(2, 3, 4), perm=[1, 2, 0]),
    "Transpose by default": lambda b: b.node("Transpose", b.input(2, 3, 4)),
    "Transpose to channels last": lambda b: b.node("Transpose", feature_map(b), perm=[0, 2, 3, 1]),
    "Transpose from channels last": lambda b: b.node(
        "Conv", b.node("Transpose", b.input(1, 5, 6, 3), perm=[0, 3, 1, 2]), b.weights(4, 3, 3, 3)
    ),
    "Reshape": lambda b: b.node("Reshape", b.input(2, 3, 4), b.integers(2, -1)),
    "Flatten": lambda b: b.node("Relu", b.node("Flatten", feature_map(b), axis=1)),
    "Flatten into a product": lambda b: b.node("MatMul", b.node("Flatten", feature_map(b)), b.weights(120, 3)),
    "Flatten of the input": lambda b: b.node("MatMul", b.node("Flatten", b.input(2, 3, 4, 5)), b.weights(60, 3)),
    "Squeeze": lambda b: b.node("Squeeze", b.node("GlobalAveragePool", feature_map(b)), b.integers(2, 3)),
    "Unsqueeze": lambda b: b.node("Unsqueeze", b.input(2, 3), b.integers(0, 2)),
    "Reshape read in both layouts": lambda b: b.node(
        "Add",
        b.node("GlobalMaxPool", b.node("Reshape", b.input(5, 4, 5), b.integers(1, 5, 4, 5), outputs=["map"])),
        b.node("Squeeze", "map", b.integers(0)),
    ),
    "Reshape into a map": mapped(lambda b: b.node("Reshape", b.input(2, 120), b.integers(2, 4, 5, 6))),
    "channel shuffle": mapped(
        lambda b: b.node(
            "Reshape",
            b.node("Transpose", b.node("Reshape", feature_map(b), b.integers(2, 2, 2, 6, 5)), perm=[0, 2, 1, 3, 4]),
            b.integers(2, 4, 6, 5),
        )
    ),
    "tokens of a map": lambda b: b.node(
        "MatMul",
        b.node("Transpose", b.node("Reshape", feature_map(b), b.integers(2, 4, 30)), perm=[0, 2, 1]),
        b.weights(4, 3),
    ),
    "MatMul over a map": lambda b: b.node("MatMul", feature_map(b), b.weights(5, 2)),
    "map from a MatMul": mapped(lambda b: b.node("MatMul", b.input(2, 4, 6, 3), b.weights(3, 5))),
    "Slice": lambda b: b.node(
        "Slice", b.input(3, 8, 5), b.integers(1, -1), b.integers(7, -100), b.integers(1, 2), b.integers(2, -1)
    ),
    "Slice of a map": mapped(
        lambda b: b.node("Slice", b.input(2, 6, 6, 5), b.integers(2), b.integers(6), b.integers(1))
    ),
    "Split": lambda b: b.node(
        "Concat", b.node("Split", b.input(2, 7), b.integers(3, 4), axis=1, outputs=["s", "t"]), "t", "s", axis=1
    ),
    "Pad": lambda b: b.node("Pad", b.input(2, 3, 4), b.integers(0, 1, 2, 0, 0, 1), b.constant(0.5)),
    "Pad of a map": mapped(lambda b: b.node("Pad", feature_map(b), b.integers(0, 0, 1, 2, 0, 0, 0, 1))),
    "ReduceMean": lambda b: b.node("ReduceMean", b.input(2, 3, 4), b.integers(1)),
    "ReduceMean of a map": lambda b: b.node("ReduceMean", feature_map(b), b.integers(2, 3), keepdims=0),
    "ReduceSum of a map": lambda b: b.node("ReduceSum", feature_map(b), b.integers(-1, 1), keepdims=1),
    "ReduceMax": lambda b: b.node("ReduceMax", b.input(2, 3, 4), b.integers(0, 2), keepdims=0),
    "Gather": lambda b: b.node("Gather", b.input(5, 3), b.integers(4, 0), axis=0),
    "Gather of uneven places": lambda b: b.node("Gather", b.input(2, 6, 3), b.integers(4, 0, 5), axis=1),
    "Gather by computed indices": lambda b: b.node("Gather", b.weights(7, 3), b.input(2, 4, name="i", dtype=INT64)),
    "Resize": lambda b: b.node("Resize", feature_map(b), "", b.constant([1, 1, 2, 3])),
    "Resize to sizes": lambda b: b.node("Resize", feature_map(b), "", "", b.integers(2, 4, 9, 7)),
    "Resize smaller": lambda b: b.node("Resize", feature_map(b), "", "", b.integers(2, 4, 4, 2), nearest_mode="ceil"),
    "Resize by factors": lambda b: b.node(
        "Resize",
        feature_map(b),
        "",
        b.constant([1, 1, 1.4, 2.1]),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "Resize linear": lambda b: b.node("Resize", feature_map(b), "", b.constant([1, 1, 2, 2.5]), mode="linear"),
    "Resize between corners": lambda b: b.node(
        "Resize",
        feature_map(b),
        "",
        "",
        b.integers(2, 4, 9, 3),
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "Gather of one": lambda b: b.node("Gather", b.input(2, 5, 3), b.constant(2, dtype=np.int64), axis=1),
    "Dropout": lambda b: b.node("Relu", b.node("Dropout", b.input(2, 3))),
    "Identity as output": lambda b: b.node("Identity", b.node("Relu", b.input(2, 3))),
    "Identity alone": lambda b: b.node("Identity", b.input(2, 3)),
    "squeeze and excitation": lambda b: b.node(
        "Mul",
        b.node("Conv", b.input(2, 3, 6, 5), b.weights(4, 3, 3, 3), outputs=["map"]),
        b.node("Sigmoid", b.node("Conv", b.node("GlobalAveragePool", "map"), b.weights(4, 4, 1, 1))),
    ),
}


def load(build: Build, folder: Path, opset: int = 18, wants: Wants = NEUTRAL) -> tuple[Model, dict[str, np.ndarray]]:
    builder = ModelBuilder(opset=opset)
    path = builder.save(folder, build(builder))
    inputs = {}
    for item in builder.inputs:
        shape = tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim)
        floating = item.type.tensor_type.elem_type != INT64
        drawn = builder.random.standard_normal(shape) if floating else builder.random.integers(0, 7, shape)
        inputs[item.name] = drawn.astype(np.float32 if floating else np.int64)
    return load_model(path, judge=Judge(wants)), inputs


@pytest.mark.parametrize("name", CASES)
def test_our_graph_computes_what_the_file_says(name: str, tmp_path: Path) -> None:
    model, inputs = load(CASES[name], tmp_path)
    errors = layer_errors(model.graph, model.constants, model.source, inputs)
    assert set(model.graph.outputs) <= set(errors)
    assert max(errors.values()) < LARGEST_ERROR, errors


@pytest.mark.parametrize("opset", [11, 12])
def test_resize_to_sizes_before_factors_could_be_left_out(opset: int, tmp_path: Path) -> None:
    def build(b: ModelBuilder) -> str:
        return b.node("Resize", feature_map(b), b.constant([]), b.constant([]), b.integers(2, 4, 9, 7))

    model, inputs = load(build, tmp_path, opset)
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < LARGEST_ERROR


def test_old_upsampling(tmp_path: Path) -> None:
    model, inputs = load(lambda b: b.node("Upsample", feature_map(b), b.constant([1, 1, 2, 1.5])), tmp_path, opset=9)
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < LARGEST_ERROR


@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 5), 1), ((2, 5, 1, 1), 1), ((3, 1, 4), 1), ((3, 4), None), ((2, 3, 4), 2)]
)
def test_old_softmax_over_one_wide_axis(shape: tuple[int, ...], axis: int | None, tmp_path: Path) -> None:
    attributes = {} if axis is None else {"axis": axis}
    model, inputs = load(lambda b: b.node("Softmax", b.input(*shape), attributes=attributes), tmp_path, opset=9)
    assert max(layer_errors(model.graph, model.constants, model.source, inputs).values()) < 1e-5


def kinds(model: Model) -> list[str]:
    return [op.kind for op in model.graph.ops]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("channel shuffle", ["conv", "view", "transpose", "view", "conv"]),
        ("tokens of a map", ["conv", "view", "view", "matmul"]),
        ("Flatten into a product", ["conv", "view", "matmul"]),
        ("Transpose from channels last", ["view", "conv"]),
        ("Transpose to channels last", ["conv", "view"]),
        ("MatMul over a map", ["conv", "transpose", "matmul"]),
        ("map from a MatMul", ["matmul", "transpose", "conv"]),
        ("ReduceMean of a map", ["conv", "average_pool", "view"]),
        ("scale and shift", ["relu", "scale_shift", "relu"]),
        ("MatMul with bias", ["matmul"]),
        ("Sum", ["add", "add"]),
    ],
)
def test_no_more_operators_than_needed(name: str, wanted: list[str], tmp_path: Path) -> None:
    assert kinds(load(CASES[name], tmp_path)[0]) == wanted


def test_inserted_transposes_carry_the_name_of_their_reader(tmp_path: Path) -> None:
    model, _ = load(CASES["MatMul over a map"], tmp_path)
    assert [op.name for op in model.graph.ops] == ["conv0", "matmul1::layout", "matmul1"]


def test_a_permuted_flatten_is_not_comparable_and_others_are(tmp_path: Path) -> None:
    model, _ = load(CASES["Flatten into a product"], tmp_path)
    axes = {op.outputs[0]: model.graph.by_name[op.outputs[0]].axes for op in model.graph.ops}
    assert axes == {"v0": (0, 2, 3, 1), "v1": (), "v2": (0, 1)}


REFUSED: dict[str, tuple[Build, str]] = {
    "even window": (lambda b: b.node("LRN", b.input(1, 7, 3, 4), size=4), "size is 4; it must be odd"),
    "computed weights": (
        lambda b: b.node("Conv", b.input(1, 3, 4, 4), b.input(2, 3, 1, 1)),
        "Conv conv0 (1x3x4x4, 2x3x1x1): weights and bias must be constant",
    ),
    "indices": (
        lambda b: b.node("Add", b.node("MaxPool", b.input(1, 1, 4, 4), kernel_shape=[2, 2], outputs=["m", "i"]),
                         b.node("Cast", "i", to=1)),
        "MaxPool maxpool0 (1x1x4x4): i is int64",
    ),
    "batch normalisation in training": (
        lambda b: b.node("BatchNormalization", b.input(1, 2, 3), *(b.input(2) for _ in range(4))),
        "BatchNormalization batchnormalization0 (1x2x3, 2, 2, 2, 2): training mode, and statistics that are",
    ),
    "padding that cuts everything off": (
        lambda b: b.node("Pad", b.input(2, 3), b.integers(1, 0, -2, 1)),
        "of the 2 elements along axis 0, padding by 1 and -2 leaves none",
    ),
    "nothing left": (
        lambda b: b.node("Relu", b.node("Slice", b.input(2, 3), b.integers(3), b.integers(9), b.integers(1))),
        "Slice slice0 (2x3, 1, 1, 1): v0 is empty (2x0)",
    ),
    "antialias": (
        lambda b: b.node("Resize", b.input(1, 2, 4, 4), "", "", b.integers(1, 2, 3, 3), mode="cubic", antialias=1),
        "Resize resize0 (1x2x4x4, 4): antialias is not supported",
    ),
    "computed axis": (
        lambda b: b.node("CumSum", b.input(3, 4), b.input(dtype=INT64)),
        "CumSum cumsum0 (3x4, scalar): the axis is computed at run time; it must be constant",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_node_its_shapes_and_the_reason(name: str, tmp_path: Path) -> None:
    build, said = REFUSED[name]
    builder = ModelBuilder()
    path = builder.save(tmp_path, build(builder))
    with pytest.raises(ModelError) as error:
        load_model(path)
    assert said in str(error.value)


def test_all_refusals_come_together(tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.input(1, 3, 4, 4)
    y = builder.node("Conv", x, builder.input(2, 3, 1, 1), name="first")
    y = builder.node("LRN", y, size=4, name="second")
    with pytest.raises(ModelError) as error:
        load_model(builder.save(tmp_path, y))
    lines = str(error.value).splitlines()
    assert lines[0] == f"{tmp_path / 'small.onnx'}: 2 unsupported operators"
    assert [line.split()[1] for line in lines[1:]] == ["first", "second"]


def test_old_softmax_over_several_axes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"over axes \[1, 2\] together"):
        load(lambda b: b.node("Softmax", b.input(2, 3, 4), axis=1), tmp_path, opset=9)
