"""Windows over any axes, transposed convolutions, padding by what a value holds: for targets of images and for others.

Our graph is evaluated plainly from attributes alone, against onnxruntime on the user's model; a target that wants
windows over images gets no other ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from onnx import numpy_helper

from codegen.generic import NEUTRAL
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.file_constants import worked_out
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import ModelError
from partitioner.ir.wants import Wants, floats_as
from partitioner.planners.levels import planner_or_auto
from tests.dsa_sched.frontend.numpy_graph import layer_errors
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.dsa_sched.frontend.test_operators import LARGEST_ERROR, Build, conv, load, pool

IMAGES = Wants(floats_as("float16"), "channels_last", windows="images")
"""As a target wants it whose kernels have windows over images only."""
Attribute = int | str | Sequence[int]


def transposed(shape: tuple[int, ...], weights: tuple[int, ...], **attributes: Attribute) -> Build:
    def build(b: ModelBuilder) -> str:
        groups = attributes.get("group", 1)
        assert isinstance(groups, int)
        operands = (b.input(*shape), b.weights(*weights), b.weights(weights[1] * groups))
        return b.node("ConvTranspose", *operands, attributes=attributes)

    return build


def padded(mode: str, shape: tuple[int, ...], *pads: int) -> Build:
    return lambda b: b.node("Pad", b.input(*shape), b.integers(*pads), mode=mode)


VOLUME = (2, 3, 6, 7, 8)
VOLUME_POOL: dict[str, list[int]] = {"kernel_shape": [3, 2, 2], "strides": [2, 1, 2], "pads": [1, 0, 1, 1, 0, 0]}

WINDOWS: dict[str, Build] = {
    "one axis": conv((2, 3, 17), (4, 3, 3), pads=[1, 1], strides=[2], dilations=[2]),
    "one axis, groups": conv((2, 4, 17), (4, 2, 3), group=2),
    "one axis, depthwise": conv((2, 4, 17), (4, 1, 5), group=4, pads=[2, 2]),
    "one axis, auto_pad": conv((2, 3, 17), (4, 3, 4), strides=[2], auto_pad="SAME_UPPER"),
    "padding of whole windows": conv((2, 3, 5), (4, 3, 1), pads=[1, 2]),
    "strides that differ": conv((2, 3, 9, 8), (4, 3, 3, 2), strides=[2, 1], pads=[1, 0, 0, 1]),
    "strides and dilations that differ, groups": conv(
        (2, 4, 9, 8), (4, 2, 3, 2), strides=[1, 2], dilations=[2, 1], group=2
    ),
    "a stride along one row": conv((2, 3, 1, 8), (4, 3, 1, 3), strides=[1, 2]),
    "a dilation along one row": conv((2, 3, 6, 8), (4, 3, 1, 3), dilations=[1, 2]),
    "three axes": conv(VOLUME, (4, 3, 3, 2, 3), pads=[1, 0, 1, 0, 1, 1]),
    "three axes, strides that differ": conv(VOLUME, (4, 3, 3, 2, 3), strides=[2, 1, 2], pads=[1, 0, 1, 0, 1, 1]),
    "three axes, depthwise": conv((2, 4, 6, 7, 8), (4, 1, 3, 2, 3), group=4),
    "maxima along one axis": pool("MaxPool", (2, 3, 9), kernel_shape=[3], strides=[2], pads=[1, 1]),
    "means along one axis": pool("AveragePool", (2, 3, 10), kernel_shape=[3], strides=[2], ceil_mode=1),
    "maxima along three axes": pool("MaxPool", VOLUME, **VOLUME_POOL),
    "means along three axes": pool("AveragePool", VOLUME, **VOLUME_POOL),
    "means along three axes, padding counted": pool("AveragePool", VOLUME, count_include_pad=1, **VOLUME_POOL),
    "means, padding counted, windows beyond it": pool(
        "AveragePool",
        (1, 3, 6, 5),
        kernel_shape=[3, 4],
        strides=[2, 3],
        pads=[1, 2, 1, 2],
        ceil_mode=1,
        count_include_pad=1,
    ),
    "means, no padding to count, windows beyond": pool(
        "AveragePool", (1, 3, 6, 4), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad=1
    ),
    "means along one axis, padding counted, windows beyond it": pool(
        "AveragePool",
        (2, 3, 10),
        kernel_shape=[3],
        strides=[3],
        pads=[1, 1],
        ceil_mode=1,
        count_include_pad=1,
    ),
    "a mean by a window far larger than the image": pool(
        "AveragePool", (1, 3, 7, 7), kernel_shape=[1280, 1280], strides=[1280, 1280], ceil_mode=1, count_include_pad=1
    ),
    "a maximum by a window far larger than the image": pool(
        "MaxPool", (1, 3, 7, 7), kernel_shape=[320, 320], strides=[320, 320], ceil_mode=1
    ),
    "mean of one axis": pool("GlobalAveragePool", (2, 3, 6)),
    "mean of three axes": pool("GlobalAveragePool", (2, 3, 6, 5, 4)),
    "maximum of three axes": pool("GlobalMaxPool", (2, 3, 6, 5, 4)),
}

FOUR_AXES = conv((1, 2, 4, 4, 4, 5), (3, 2, 2, 2, 3, 2))

TRANSPOSED: dict[str, Build] = {
    "doubling": transposed((2, 3, 5, 4), (3, 4, 2, 2), strides=[2, 2]),
    "a tap more than the stride": transposed(
        (2, 3, 5, 4), (3, 4, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]
    ),
    "groups, dilation": transposed(
        (2, 4, 5, 4), (4, 3, 4, 3), strides=[3, 1], pads=[1, 0, 0, 1], dilations=[2, 1], group=2
    ),
    "depthwise": transposed((1, 3, 4, 5), (3, 1, 3, 3), group=3, strides=[2, 2]),
    "one axis": transposed((2, 3, 5), (3, 4, 4), strides=[2], pads=[1, 1]),
    "three axes": transposed((1, 3, 3, 4, 2), (3, 4, 2, 3, 2), strides=[2, 1, 2]),
    "SAME_UPPER": transposed((1, 3, 4, 5), (3, 2, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER"),
    "SAME_LOWER": transposed((1, 3, 4, 5), (3, 2, 4, 3), strides=[2, 2], auto_pad="SAME_LOWER"),
    "VALID": transposed((1, 3, 4, 5), (3, 2, 4, 3), strides=[2, 2], auto_pad="VALID"),
    "output_shape": transposed((1, 3, 4, 5), (3, 2, 3, 3), strides=[3, 2], output_shape=[11, 10]),
    "gaps between the taps": transposed((1, 3, 4, 5), (3, 2, 1, 1), strides=[3, 2], output_padding=[2, 1]),
    "much cut off": transposed((1, 3, 4, 5), (3, 2, 5, 5), strides=[1, 2], pads=[3, 4, 2, 3]),
}

PADDED: dict[str, Build] = {
    **{
        f"{mode}, {len(shape)} axes": padded(mode, shape, *pads)
        for mode in ("edge", "reflect", "wrap")
        for shape, pads in (((2, 3, 5, 4), (0, 1, 2, 3, 1, 0, 4, 1)), ((2, 5), (0, 4, 0, 4)))
    },
    **{f"{mode}, cut off": padded(mode, (2, 3, 6), 0, -1, 2, 1, 0, -2) for mode in ("edge", "reflect", "wrap")},
    "edge, far": padded("edge", (1, 3), 0, 5, 0, 7),
    "nothing": lambda b: b.node("Pad", b.node("Relu", b.input(2, 3)), b.integers(0, 0, 0, 0), mode="edge"),
    "one element": padded("edge", (2, 1), 0, 2, 0, 3),
}

CASES = WINDOWS | {f"transposed, {name}": case for name, case in TRANSPOSED.items()} | PADDED


@pytest.mark.parametrize("wants", [IMAGES, NEUTRAL], ids=["images", "any"])
@pytest.mark.parametrize("name", CASES)
def test_our_graph_computes_what_the_file_says(name: str, wants: Wants, tmp_path: Path) -> None:
    model, inputs = load(CASES[name], tmp_path, wants=wants)
    errors = layer_errors(model.graph, model.constants, model.source, inputs)
    assert set(model.graph.outputs) <= set(errors)
    assert max(errors.values()) < LARGEST_ERROR, errors


@pytest.mark.parametrize("name", [*WINDOWS, "four axes"])
def test_who_wants_images_gets_images(name: str, tmp_path: Path) -> None:
    model, _ = load({**WINDOWS, "four axes": FOUR_AXES}[name], tmp_path, wants=IMAGES)
    windows = [op for op in model.graph.ops if op.kind in ("conv", "max_pool", "average_pool")]
    assert windows
    for op in windows:
        assert len(op.ints("kernel")) == 2
        if op.kind == "conv":
            assert len(set(op.ints("strides"))) == len(set(op.ints("dilations"))) == 1
            reach = [(k - 1) * d + 1 for k, d in zip(op.ints("kernel"), op.ints("dilations"), strict=True)]
            assert all(0 <= pad < size for pad, size in zip(op.ints("pads"), reach * 2, strict=True))


def test_a_chain_along_one_axis_moves_nothing(tmp_path: Path) -> None:
    """Between convolutions along one axis there are views alone."""

    def build(b: ModelBuilder) -> str:
        y = b.node("Relu", b.node("Conv", b.input(1, 4, 16), b.weights(8, 4, 3)))
        return b.node("Conv", y, b.weights(4, 8, 3))

    model, _ = load(build, tmp_path, wants=IMAGES)
    assert [op.kind for op in model.graph.ops] == ["view", "conv", "view", "relu", "view", "conv", "view"]


@pytest.mark.parametrize("name", [f"transposed, {name}" for name in TRANSPOSED])
def test_weights_of_phases_follow_from_the_file(name: str, tmp_path: Path) -> None:
    """As `verify` works them out, from the terms alone."""
    model, _ = load(CASES[name], tmp_path, wants=IMAGES)
    file = {item.name: item for item in model.source.graph.initializer}
    weights = [tensor for tensor in model.graph.tensors if tensor.constant]
    assert weights
    for tensor in weights:
        expected = worked_out(model.terms[tensor.name], lambda key: numpy_helper.to_array(file[key]))
        stored = model.constants[tensor.constant]
        assert expected.astype(stored.dtype).tobytes() == stored.tobytes()


def test_computed_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="weights and bias must be const"):
        load(lambda b: b.node("ConvTranspose", b.input(1, 3, 4, 4), b.input(3, 2, 2, 2)), tmp_path)


CHOSEN: dict[str, Callable[[ModelBuilder], str]] = {
    name: CASES[name]
    for name in (
        "one axis",
        "one axis, depthwise",
        "strides and dilations that differ, groups",
        "three axes, strides that differ",
        "means along three axes, padding counted",
        "mean of three axes",
        "transposed, a tap more than the stride",
        "transposed, one axis",
        "reflect, 4 axes",
    )
}


@pytest.mark.spread(4)
@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.commit
def test_machine_code_is_right(name: str, level: str, tmp_path: Path) -> None:
    """Every layer as the emulation has it, every constant as the file has it, the end as onnxruntime has it."""
    builder = ModelBuilder()
    path = builder.save(tmp_path, CHOSEN[name](builder))
    report = verify_model(
        path, "stcp920", CompileOptions(planner_or_auto(level), schedule=True), VerifyOptions(samples=256)
    )
    assert report.failures == ()
    assert report.against_file.undeclared == ()
