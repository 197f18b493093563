"""Convolutions by CUTLASS: strides, dilations, one-sided padding, groups, every alignment, what follows them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from partitioner.ir.kernels import read_kernel
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.networks import Network, judged
from tests.small_models import save


@pytest.mark.commit
def test_windows_and_groups(tmp_path: Path) -> None:
    """Eight channels at a time, each followed by a ReLU, so that one kernel serves all."""
    net = Network([("x", (2, 16, 11, 9))])
    strided = net.add("Relu", net.conv("x", 24, 3, pads=[1, 1, 1, 1], strides=[2, 2]))
    dilated = net.add("Relu", net.conv("x", 40, 3, dilations=[2, 2], pads=[2, 1, 2, 3]))
    one_sided = net.add("Relu", net.conv("x", 8, (1, 5), pads=[0, 0, 0, 4], bias=False))
    tall = net.add("Relu", net.conv("x", 72, (3, 1), strides=[1, 3]))
    grouped = net.add("Relu", net.conv("x", 32, 3, pads=[1, 1, 1, 1], group=2))
    report = judged(net.model(strided, dilated, one_sided, tall, grouped), tmp_path)
    assert report.failures == ()
    assert len(report.layers) == 5


def odd_channels() -> onnx.ModelProto:
    net = Network([("x", (1, 3, 10, 7)), ("r", (1, 12, 10, 7))])
    first = net.add("Relu", net.conv("x", 12, 3, pads=[1, 1, 1, 1]))
    second = net.conv(first, 12, 3, pads=[1, 1, 1, 1])
    summed = net.add("Relu", net.add("Add", net.add("Tanh", second), "r"))
    return net.model(net.conv(net.conv(summed, 10, 1), 6, 3, bias=False))


@pytest.mark.commit
def test_channels_that_are_no_multiple_of_eight(tmp_path: Path) -> None:
    """3 are padded, 12 and 10 are read as they are; a sum with a map and what follows it are taken in."""
    planned = plan_model(save(odd_channels(), tmp_path / "net.onnx"), "a100", CompileOptions(O0()))
    kernels = [read_kernel(group.kernel) for group in planned.plan.groups]
    assert [parameters["aligned"] for _, parameters in kernels] == [4, 4, 4, 2]
    assert [len(layer.ops) for group in planned.plan.groups for layer in group.layers] == [2, 4, 1, 1]


@pytest.mark.nightly  # nvcc takes 25 seconds for its four kernels
def test_channels_that_are_no_multiple_of_eight_are_within_the_bound(tmp_path: Path) -> None:
    assert judged(odd_channels(), tmp_path).failures == ()


def large_map() -> onnx.ModelProto:
    net = Network([("x", (3, 64, 60, 60))])
    net.add("Relu", net.conv("x", 256, 3, pads=[1, 1, 1, 1]))
    return net.model()


@pytest.mark.parametrize("chip", ["a100", "h200"])
def test_large_maps_take_large_tiles(tmp_path: Path, chip: str) -> None:
    """Blocks for all cores are left with them."""
    model = large_map()
    planned = plan_model(save(model, tmp_path / "net.onnx"), chip, CompileOptions(O0()))
    (group,) = planned.plan.groups
    assert read_kernel(group.kernel)[1]["tile"] != "64x64"


@pytest.mark.nightly
@pytest.mark.parametrize("chip", ["a100", "h200"])
def test_large_tiles_are_within_the_bound(tmp_path: Path, chip: str) -> None:
    assert judged(large_map(), tmp_path, chip).failures == ()


def long_kernels() -> onnx.ModelProto:
    net = Network([("x", (1, 8, 44, 44))])
    return net.model(*(net.conv("x", 8, taps) for taps in ((1, 32), (32, 1), (1, 33), (33, 1))))


@pytest.mark.commit
def test_long_kernels_are_left_to_the_cuda_cores(tmp_path: Path) -> None:
    """CUTLASS keeps the taps of a row in 32 bits; 33 of them would be wrong there without a word."""
    planned = plan_model(save(long_kernels(), tmp_path / "net.onnx"), "a100", CompileOptions(O0()))
    templates = [read_kernel(group.kernel)[0] for group in planned.plan.groups]
    assert templates == ["conv2d", "conv2d", "direct_conv", "direct_conv"]


@pytest.mark.nightly
def test_long_kernels_are_within_the_bound(tmp_path: Path) -> None:
    assert judged(long_kernels(), tmp_path, samples=256).failures == ()


def test_clips_with_bounds_the_wrong_way_round(tmp_path: Path) -> None:
    net = Network([("x", (1, 8, 5, 5))])
    net.add("Clip", "x", net.constant(2), net.constant(1))
    assert judged(net.model(), tmp_path).failures == ()


@pytest.mark.commit
def test_sums_of_many_maps_are_several_kernels(tmp_path: Path) -> None:
    """Each operand takes room among a kernel's parameters."""
    names = [f"x{i}" for i in range(140)]
    net = Network([(name, (1, 8)) for name in names])
    net.add("Sum", *names)
    model = net.model()
    planned = plan_model(save(model, tmp_path / "net.onnx"), "a100", CompileOptions(O0()))
    assert 2 <= len(planned.plan.groups) <= 5
    assert judged(model, tmp_path, samples=8).failures == ()


def test_names_that_no_list_can_hold(tmp_path: Path) -> None:
    """Of a node and a tensor: control characters, and more than a thousand characters."""
    net = Network([("x", (1, 8))])
    net.add("Relu", "x")
    net.add("Tanh", "relu0_out")
    model = net.model()
    model.graph.node[0].name = "a\nb"
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "t" * 2000
    model.graph.output[0].name = model.graph.node[1].output[0] = "y\x01"
    assert judged(model, tmp_path, samples=8).failures == ()


def test_a_value_under_two_names_is_read_by_one_kernel(tmp_path: Path) -> None:
    """A reshape gives the same bytes another name; what is read under both is read once."""
    net = Network([("x", (1, 4, 4))])
    value = net.add("Tanh", net.add("Exp", "x"))
    flat = net.add("Reshape", value, net.constant_ints([4, 4]))
    net.add("Mul", net.add("Softmax", value), net.add("Relu", net.add("Sub", value, flat)))
    net.add("Max", value, flat)
    outputs = [node.output[0] for node in net.nodes[-2:]]
    assert judged(net.model(*outputs), tmp_path, samples=16).failures == ()


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("channels", "kernel", "pads", "strides", "aligned"),
    [
        (3, (7, 7), [3, 3, 3, 3], (2, 2), 4),
        (3, (3, 4), [0, 2, 1, 1], (1, 2), 8),
        (1, (5, 3), [2, 0, 2, 3], (1, 1), 4),
        (7, (2, 3), [1, 0, 0, 0], (2, 3), 8),
        (5, (1, 2), [0, 0, 0, 0], (1, 1), 8),
    ],
)
@pytest.mark.commit
def test_taps_of_a_row_are_read_as_one_where_channels_are_few(
    channels: int, kernel: tuple[int, int], pads: list[int], strides: tuple[int, int], aligned: int, tmp_path: Path
) -> None:
    """Images with rows that windows do not reach, and edges on one side."""
    net = Network([("x", (2, channels, 13, 17))])
    model = net.model(net.add("Relu", net.conv("x", 16, kernel, pads=pads, strides=strides)))
    planned = plan_model(save(model, tmp_path / "net.onnx"), "a100", CompileOptions(O0()))
    _, parameters = read_kernel(planned.plan.groups[0].kernel)
    assert (parameters.get("taps"), parameters["aligned"]) == ("rows", aligned)
    assert judged(model, tmp_path).failures == ()


def lines_of_words() -> onnx.ModelProto:
    net = Network([("x", (2, 16, 37))])
    wide = net.add("Relu", net.conv("x", 24, (3,), pads=[2, 1], strides=[2]))
    dilated = net.add("Relu", net.conv("x", 8, (5,), pads=[0, 3], dilations=[3]))
    grouped = net.add("Relu", net.conv("x", 32, (3,), pads=[1, 1], group=2))
    return net.model(wide, dilated, grouped)


@pytest.mark.commit
def test_convolutions_along_a_line_are_of_images_one_pixel_high(tmp_path: Path) -> None:
    model = lines_of_words()
    planned = plan_model(save(model, tmp_path / "net.onnx"), "a100", CompileOptions(O0()))
    templates = [read_kernel(group.kernel)[0] for group in planned.plan.groups]
    assert templates.count("conv2d") >= 2
    assert judged(model, tmp_path).failures == ()


@pytest.mark.commit
def test_few_channels_along_a_line_are_read_by_taps(tmp_path: Path) -> None:
    net = Network([("x", (1, 3, 19))])
    net.add("Relu", net.conv("x", 16, (5,), pads=[3, 1], strides=[2]))
    model = net.model()
    planned = plan_model(save(model, tmp_path / "net.onnx"), "a100", CompileOptions(O0()))
    assert read_kernel(planned.plan.groups[0].kernel)[1].get("taps") == "rows"
    assert judged(model, tmp_path).failures == ()
