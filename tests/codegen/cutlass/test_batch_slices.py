"""Networks in slices of the batch on the executor: the numbers of the whole network, and how launches are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from codegen.cutlass.emission.launch_list import printable, read_launch_list, slice_name, slice_of
from codegen.cutlass.runner.runner import MAX_NAME, LaunchList
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.verification.verify import verify_model
from partitioner.ir.slice_segments import slice_segments
from partitioner.planners.levels import planner_or_auto
from tests.codegen.cutlass.families.networks import Network
from tests.small_models import save


def branching(batch: int, seed: int = 0) -> onnx.ModelProto:
    """A convolution over three channels, a depthwise one, a sum of two branches that is read twice, a pool, classes."""
    random = np.random.default_rng(seed)
    net = Network([("x", (batch, 3, 8 + seed % 3, 8))], seed)
    wide = 8 * int(random.integers(1, 4))
    stem = net.add("Relu", net.conv("x", wide, 3, pads=[1, 1, 1, 1], strides=[1 + seed % 2] * 2))
    deep = net.conv(net.conv(stem, wide, 3, pads=[1, 1, 1, 1], group=wide), wide, 1)
    total = net.add("Add", stem, deep)
    last = net.add("Relu", net.conv(total, 16, 1))
    pooled = net.add("GlobalAveragePool", last)
    net.channels[pooled] = 16
    flat = net.add("Flatten", pooled)
    net.add("Gemm", flat, net.drawn(16, 8, scale=0.25), net.drawn(8))
    return net.model(net.nodes[-1].output[0], total)


def plain(batch: int) -> onnx.ModelProto:
    """Without products, whose kernels take long to compile: a depthwise convolution, a sum, an average of maps."""
    net = Network([("x", (batch, 16, 8, 8))])
    net.channels["x"] = 16
    total = net.add("Add", "x", net.conv("x", 16, 3, pads=[1, 1, 1, 1], group=16))
    return net.model(net.add("GlobalAveragePool", net.add("Relu", total)), total)


def run(model: Path, slices: int, feeds: dict[str, np.ndarray], level: str) -> tuple[Compilation, list[np.ndarray]]:
    """The compilation, and its results."""
    compilation = compile_model(model, "h200", CompileOptions(planner_or_auto(level), slices=slices))
    return compilation, list(compilation.artifact.run(feeds).values())


def listed(compilation: Compilation) -> LaunchList:
    return read_launch_list(compilation.files.files["launches.json"])


def test_slices_leave_the_numbers_of_the_whole(tmp_path: Path) -> None:
    require_equal(plain(4), tmp_path, "O3")


@pytest.mark.nightly
@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("seed", range(25))
def test_slices_of_drawn_networks_leave_the_numbers_of_the_whole(seed: int, level: str, tmp_path: Path) -> None:
    require_equal(branching(4, seed), tmp_path, level)


def require_equal(made: onnx.ModelProto, folder: Path, level: str) -> None:
    """All groups are in two slices, have the same kernels and leave the same numbers."""
    model = save(made, folder / "net.onnx")
    shape = [dim.dim_value for dim in made.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    whole, expected = run(model, 1, feeds, level)
    sliced, found = run(model, 2, feeds, level)
    (count, groups), *_ = ((each.count, len(each.groups)) for each in slice_segments(sliced.plan))
    assert (count, groups) == (2, len(sliced.plan.groups))
    assert [group.kernel for group in sliced.plan.groups] == [group.kernel for group in whole.plan.groups]
    for own, of_whole in zip(found, expected, strict=True):  # but for the order in which numpy adds on the executor
        assert np.mean(own == of_whole) > 0.99
        np.testing.assert_allclose(own, of_whole, rtol=2**-10, atol=2**-12)
    names = [launch.layer for launch in listed(sliced).launches]
    assert names[0].startswith("slice 1 of 2: ")
    assert list(dict.fromkeys(map(slice_of, names[len(names) // 2 :]))) == [
        (name, 1, 2) for name in dict.fromkeys(launch.layer for launch in listed(whole).launches)
    ]
    assert listed(sliced).arena_bytes <= listed(whole).arena_bytes


@pytest.mark.nightly
def test_a_network_in_slices_is_within_its_bounds() -> None:
    report = verify_model("mobilenet_v2-mini", "h200", CompileOptions(planner_or_auto("O3"), batch=4, slices=2))
    assert report.failures == ()
    assert all(layer.samples and layer.samples_wrong == 0 for layer in report.layers)


@pytest.mark.parametrize("name", ["conv", "slice 2 of 3: conv", "integers: conv", "c" * 2 * MAX_NAME, "a\nb"])
def test_names_of_slices_are_those_of_no_group(name: str) -> None:
    assert slice_of(printable(name))[1:] == (0, 1)
    made = slice_name(name, 2, 4)
    assert len(made) <= MAX_NAME
    assert made.isprintable()
    assert slice_of(made)[1:] == (2, 4)
    assert slice_of(slice_name("conv", 0, 128)) == ("conv", 0, 128)
