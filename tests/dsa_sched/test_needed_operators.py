"""Operators that real files need, compiled and run, against onnxruntime: at O0 and at O3, in many ways of writing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.dsa_sched.frontend.onnx_models import Attribute, ModelBuilder
from tests.reference_runs import drawn, reference, require_near

Build = Callable[[ModelBuilder], str]


def binary(op_type: str, left: tuple[int, ...], right: tuple[int, ...], constant: str = "") -> Build:
    """Of two operands, the `left` or the `right` one constant."""

    def build(b: ModelBuilder) -> str:
        sides = (("left", left), ("right", right))
        names = [b.constant(0.5 + b.random.random(s)) if side == constant else b.input(*s) for side, s in sides]
        return b.node(op_type, *names)

    return build


BROADCAST: dict[str, Build] = {
    "rows and columns": binary("Add", (6, 1), (1, 5)),
    "a vector and a column": binary("Sub", (7,), (5, 1)),
    "a constant column": binary("Mul", (1, 9), (6, 1), "right"),
    "a constant row first": binary("Sub", (1, 9), (6, 1), "left"),
    "images": binary("Max", (2, 4, 1, 1), (2, 1, 5, 6)),
    "a constant of fewer axes": binary("Min", (2, 4, 1, 6), (5, 1), "right"),
    "five axes": binary("Add", (3, 2, 1, 1, 1), (1, 4, 1, 3)),
    "one number of more axes": binary("Mul", (5,), (1, 1, 1), "right"),
}


def product(left: tuple[int, ...], right: tuple[int, ...], constant: str = "") -> Build:
    return binary("MatMul", left, right, constant)


VECTORS: dict[str, Build] = {
    "matrix and vector": product((4, 9), (9,)),
    "matrix and constant vector": product((2, 3, 4, 9), (9,), "right"),
    "vector and matrices": product((9,), (2, 9, 4)),
    "constant vector and matrix": product((9,), (9, 4), "left"),
    "two vectors": product((9,), (9,)),
}


def einsum(equation: str, *shapes: tuple[int, ...], constant: int = -1) -> Build:
    def build(b: ModelBuilder) -> str:
        names = [b.weights(*shape) if place == constant else b.input(*shape) for place, shape in enumerate(shapes)]
        return b.node("Einsum", *names, equation=equation)

    return build


EINSUMS: dict[str, Build] = {
    "grouped weights": einsum("btgi,gih->btgh", (1, 5, 3, 4), (3, 4, 6), constant=1),
    "weights first": einsum("oi,bit->bot", (6, 4), (2, 4, 5), constant=0),
    "heads": einsum("bthd,bshd->bhts", (2, 5, 3, 4), (2, 6, 3, 4)),
    "heads back": einsum("bhts,bshd->bthd", (2, 3, 5, 6), (2, 6, 3, 4)),
    "implicit result": einsum("ij,jk", (4, 5), (5, 3)),
    "implicit result, sorted": einsum("ba", (4, 5)),
    "ellipsis": einsum("...ij,...jk->...ik", (2, 3, 4, 5), (2, 1, 5, 6)),
    "ellipsis, implicit result": einsum("...i,...i", (2, 3, 5), (2, 3, 5)),
    "outer product": einsum("i,j->ij", (4,), (5,)),
    "elements": einsum("bcij,c->bcij", (1, 4, 3, 5), (4,), constant=1),
    "a sum of one operand": einsum("bij->bj", (2, 3, 4)),
    "a sum of all": einsum("ij->", (3, 4)),
    "a trace": einsum("bii->b", (2, 4, 4)),
    "a diagonal and a factor": einsum("ii,ij->j", (4, 4), (4, 5)),
    "labels of one operand alone": einsum("ijk,jl->il", (2, 3, 4), (3, 5)),
    "an inner product": einsum("i,i->", (6,), (6,)),
    "an axis of one element": einsum("ij,jk->ik", (4, 1), (5, 3)),
    "three operands": einsum("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
}


def running_sum(shape: tuple[int, ...], axis: int, **settings: Attribute) -> Build:
    return lambda b: b.node("CumSum", b.input(*shape), b.constant(axis, dtype=np.int64), attributes=settings)


SUMS: dict[str, Build] = {
    "last axis": running_sum((3, 7), -1),
    "first axis, exclusive": running_sum((6, 2, 3), 0, exclusive=1),
    "channels, reverse": running_sum((2, 5, 3, 4), 1, reverse=1),
    "both, one axis": running_sum((9,), 0, exclusive=1, reverse=1),
    "a long axis": running_sum((2, 700), 1),
    "a long axis before the last, both": running_sum((600, 3), 0, exclusive=1, reverse=1),
}


def clipped(lower: str, upper: str) -> Build:
    """Between bounds that are `computed`, `constant`, or not there."""

    def build(b: ModelBuilder) -> str:
        x = b.input(2, 3, 4)
        mean, half = b.node("ReduceMean", x, keepdims=0), b.constant(0.5)
        bounds = {"computed": mean, "constant": half, "": ""}
        return b.node("Clip", x, bounds[lower], bounds[upper])

    return build


CLIPS: dict[str, Build] = {
    "a computed lower bound": clipped("computed", ""),
    "a computed upper bound": clipped("", "computed"),
    "one computed, one constant": clipped("computed", "constant"),
}

WAYS = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


def resized(mode: str, shape: tuple[int, ...], scales: tuple[float, ...], **settings: Attribute) -> Build:
    def build(b: ModelBuilder) -> str:
        return b.node("Resize", b.input(*shape), "", b.constant(scales), mode=mode, attributes=settings)

    return build


def cropped(mode: str) -> Build:
    """Of the middle and beyond one end."""

    def build(b: ModelBuilder) -> str:
        roi, sizes = b.constant([0, 0, 0.2, 0.3, 1, 1, 0.8, 1.4]), b.integers(1, 2, 4, 6)
        settings: dict[str, Attribute] = {"coordinate_transformation_mode": "tf_crop_and_resize"}
        x = b.input(1, 2, 5, 7)
        return b.node("Resize", x, roi, "", sizes, mode=mode, extrapolation_value=0.5, attributes=settings)

    return build


RESIZED: dict[str, Build] = {
    **{f"cubic, {w}": resized("cubic", (1, 2, 4, 5), (1, 1, 2, 0.8), coordinate_transformation_mode=w) for w in WAYS},
    "cubic, ends do not count": resized("cubic", (1, 2, 4, 5), (1, 1, 1.5, 2), exclude_outside=1),
    "cubic, another parameter": resized("cubic", (4, 5), (2, 1.7), cubic_coeff_a=-0.5),
    "linear, symmetric": resized("linear", (1, 2, 4, 5), (1, 1, 1.6, 0.7), coordinate_transformation_mode=WAYS[-1]),
    "nearest, symmetric": resized("nearest", (1, 2, 4, 5), (1, 1, 1.6, 0.7), coordinate_transformation_mode=WAYS[-1]),
    "channels": resized("nearest", (1, 2, 3, 3), (1, 2, 1, 1)),
    "linear, cropped": cropped("linear"),
    "nearest, cropped": cropped("nearest"),
}  # fmt: skip


def padded(mode: str, shape: tuple[int, ...], *pads: int) -> Build:
    return lambda b: b.node("Pad", b.input(*shape), b.integers(*pads), mode=mode)


def conv(shape: tuple[int, ...], weights: tuple[int, ...], **settings: Attribute) -> Build:
    return lambda b: b.node("Conv", b.input(*shape), b.weights(*weights), b.weights(weights[0]), attributes=settings)


PADDED: dict[str, Build] = {
    "edge, negative": padded("edge", (4, 9), -1, 2, 0, -3),
    "reflect, negative": padded("reflect", (1, 2, 5, 6), 0, 0, -2, 2, 0, 0, 1, -1),
    "constant, negative": padded("constant", (2, 5, 6), 0, -2, 2, 1, 1, -1),
}
CONVOLUTIONS: dict[str, Build] = {
    "one tap, padded": conv((1, 3, 6, 6), (5, 3, 1, 1), pads=[1, 1, 1, 1]),
    "padding beyond the window, groups": conv((2, 4, 5, 4), (4, 2, 2, 3), pads=[2, 0, 3, 4], group=2, strides=[2, 2]),
    "one window along an axis whose step is larger": conv(
        (2, 3, 5, 4), (4, 3, 1, 3), strides=[1, 3], dilations=[1, 2], pads=[2, 2, 3, 0]
    ),
    "one window among rows of several": conv((1, 2, 9, 6), (3, 2, 3, 2), strides=[2, 5]),
    "a long window": conv((1, 1, 640), (6, 1, 256), strides=[128]),
    "a long window, no multiple of the step, padded": conv((2, 2, 900), (5, 2, 300), strides=[70], pads=[150, 130]),
    "a long window, step by step": conv((1, 2, 320), (3, 2, 300), pads=[9, 4]),
    "a long window, few taps": conv((1, 2, 700), (3, 2, 3), dilations=[300]),
    "a long window of groups along rows": conv((1, 4, 3, 600), (6, 2, 2, 260), strides=[1, 65], group=2),
    "a long step": conv((1, 3, 700), (4, 3, 5), strides=[290], pads=[2, 2]),
    "long windows of images": conv((1, 1, 300, 280), (2, 1, 257, 256), strides=[20, 8]),
    "one window": conv((2, 1, 512), (4, 1, 512)),
    "depthwise": conv((1, 4, 5, 4), (4, 1, 1, 1), pads=[2, 1, 0, 1], group=4),
}


def pooled(op_type: str, shape: tuple[int, ...], **settings: Attribute) -> Build:
    return lambda b: b.node("Relu", b.node(op_type, b.input(*shape), ceil_mode=1, attributes=settings))


WINDOW: dict[str, Attribute] = {"kernel_shape": [1, 2], "strides": [1, 3], "pads": [0, 1, 0, 1]}
POOLS: dict[str, Build] = {
    "a mean of padding alone is left out": pooled("AveragePool", (1, 3, 4, 5), **WINDOW),
    "the same, padding counted": pooled("AveragePool", (1, 3, 4, 5), count_include_pad=1, **WINDOW),
    "a maximum of padding alone": pooled("MaxPool", (1, 3, 4, 5), **WINDOW),
    "along one axis of two, beyond the padding along the other": pooled(
        "AveragePool", (2, 3, 6, 5), kernel_shape=[3, 2], strides=[2, 3], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "one axis": pooled("AveragePool", (1, 2, 5), kernel_shape=[2], strides=[3], pads=[1, 1]),
    "a step beyond the end": pooled("MaxPool", (1, 2, 5), kernel_shape=[1], strides=[3]),
    "two in a row": lambda b: b.node(
        "MaxPool", pooled("MaxPool", (1, 2, 4, 14), **WINDOW)(b), ceil_mode=1, attributes=WINDOW
    ),
}


def gathered(shape: tuple[int, ...], where: tuple[int, ...], axis: int) -> Build:
    return lambda b: b.node("Gather", b.input(*shape), b.input(*where, dtype=TensorProto.INT64), axis=axis)


GATHERED: dict[str, Build] = {
    "last axis": gathered((2, 3, 6, 5), (1, 3), 3),
    "channels": gathered((2, 6, 3, 5), (4,), 1),
    "one index": gathered((2, 6, 5), (), -2),
    "first axis": gathered((6, 5), (2, 2), 0),
}


def one_hot(first: int, swapped: bool = False, dtype: type[np.generic] = np.int64) -> Build:
    """Of indices of which some are beyond the rows."""

    def build(b: ModelBuilder) -> str:
        ids = b.input(2, 5, dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        places = b.constant(np.arange(first, first + 3).reshape(1, 1, 3), dtype=dtype)
        pair = (b.node("Unsqueeze", ids, b.integers(2)), places)
        ones = b.node("Cast", b.node("Equal", *(pair[::-1] if swapped else pair)), to=TensorProto.FLOAT)
        return b.node("MatMul", ones, b.weights(3, 4))

    return build


def hot(b: ModelBuilder) -> str:
    ones = b.node("OneHot", b.input(2, 5, dtype=TensorProto.INT64), b.constant(3, dtype=np.int64), b.constant([0, 1]))
    return b.node("MatMul", ones, b.weights(3, 4))


LOOKED_UP: dict[str, Build] = {
    "places from 0": one_hot(0),
    "places from 1, first": one_hot(1, swapped=True),
    "int32, from below": one_hot(-1, dtype=np.int32),
    "OneHot": hot,
}

CASES = {
    f"{kind}: {name}": build
    for kind, builds in {
        "broadcast": BROADCAST,
        "product": VECTORS,
        "Einsum": EINSUMS,
        "CumSum": SUMS,
        "Clip": CLIPS,
        "Resize": RESIZED,
        "Pad": PADDED,
        "Conv": CONVOLUTIONS,
        "Pool": POOLS,
        "Gather": GATHERED,
        "rows": LOOKED_UP,
    }.items()
    for name, build in builds.items()
}


@pytest.mark.spread(14)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.commit
def test_near_the_reference(name: str, tmp_path: Path) -> None:
    builder = ModelBuilder()
    tolerance = 8e-3 if "long window" in name or "one window" in name else 2e-3  # sums of hundreds of products
    require_near(builder.model(CASES[name](builder)), tmp_path, tolerance=tolerance)


@pytest.mark.parametrize(
    "name", ["broadcast: a constant column", "product: constant vector and matrix", "CumSum: last axis"]
)
def test_of_files_in_fp16(name: str, tmp_path: Path) -> None:
    """Inputs and constants in fp16; the reference is that of the file in fp32."""
    builder = ModelBuilder()
    model = builder.model(CASES[name](builder))
    wanted, feed = reference(model, drawn(model)), drawn(model)
    for item in (*model.graph.input, *model.graph.output):
        item.type.tensor_type.elem_type = TensorProto.FLOAT16
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    require_near(model, tmp_path, feed={name: x.astype(np.float16) for name, x in feed.items()}, wanted=wanted)


def test_indices_that_count_from_the_end(tmp_path: Path) -> None:
    builder = ModelBuilder()
    model = builder.model(gathered((2, 3, 6), (4,), 2)(builder))
    feed = {**drawn(model), "x1": np.array([-1, 0, -6, 5])}
    require_near(model, tmp_path, feed=feed)


@pytest.mark.parametrize("opset", [10, 19, 22])
def test_windows_in_the_padding_whatever_the_operator_set(opset: int, tmp_path: Path) -> None:
    """onnxruntime leaves them out in all sets, ONNX says so from 22 on."""
    builder = ModelBuilder(opset=opset)
    require_near(builder.model(POOLS["the same, padding counted"](builder)), tmp_path)


@pytest.mark.parametrize("name", LOOKED_UP)
def test_ones_in_front_of_a_product_are_a_look_up(name: str, tmp_path: Path) -> None:
    """Indices on both sides of the rows, too."""
    builder = ModelBuilder()
    model = builder.model(LOOKED_UP[name](builder))
    dtype = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    ids = np.array([[0, 1, 2, 3, -1], [-2, -3, -4, 99, 1]]).astype(dtype)
    made = require_near(model, tmp_path, feed={"x0": ids})
    assert "matmul" not in {op.kind for op in made.model.graph.ops}
