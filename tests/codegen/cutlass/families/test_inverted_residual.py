"""The block of MobileNet-v2 as one kernel: chosen where it pays, right on ragged shapes, explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner

import hw_models
from dsa_sched.cli import cli
from dsa_sched.pipeline.compilation import CompileOptions
from dsa_sched.pipeline.driver import plan_model
from hw_models.errors import UserError
from partitioner.ir.kernels import read_kernel
from partitioner.ir.plan import Plan
from tests.codegen.cutlass.families.networks import Network, judged
from tests.small_models import save


def block(
    shape: tuple[int, int, int, int], expanded: int, out: int, stride: int = 1, *, summed: bool = True
) -> onnx.ModelProto:
    """Expand, depthwise, project; the sum with the block's input where shapes allow."""
    net = Network([("x", shape)])
    wide = net.relu6(net.conv("x", expanded, 1))
    pads = [1, 1, 1, 1]
    filtered = net.relu6(net.conv(wide, expanded, 3, group=expanded, strides=[stride, stride], pads=pads, bias=False))
    narrow = net.conv(filtered, out, 1)
    return net.model(net.add("Relu", net.add("Add", narrow, "x")) if summed else narrow)


def fused(model: onnx.ModelProto, folder: Path, chip: str = "a100") -> Plan:
    return plan_model(save(model, folder / "net.onnx"), chip, CompileOptions("O3")).plan


@pytest.mark.parametrize(
    ("shape", "expanded", "out", "stride", "summed"),
    [
        ((2, 24, 13, 19), 144, 24, 1, True),  # ragged in both directions; 24 channels are padded to a depth of 32
        ((1, 16, 11, 9), 96, 24, 2, False),  # every second pixel, of an odd image
        ((3, 40, 7, 5), 80, 40, 1, True),  # smaller than a tile; 80 channels go through 16 at a time
    ],
)
def test_one_kernel_computes_the_block(
    tmp_path: Path, shape: tuple[int, int, int, int], expanded: int, out: int, stride: int, summed: bool
) -> None:
    model = block(shape, expanded, out, stride, summed=summed)
    (group,) = fused(model, tmp_path).groups
    assert read_kernel(group.kernel)[0] == "inverted_residual"
    report = judged(model, tmp_path, level="O3", samples=2048)
    assert report.failures == ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_drawn_blocks(tmp_path: Path, seed: int) -> None:
    draw = Network([], seed).random
    stride = int(draw.integers(1, 3))
    channels = 8 * int(draw.integers(1, 13))
    shape = (int(draw.integers(1, 4)), channels, int(draw.integers(1, 30)), int(draw.integers(1, 30)))
    out = channels if stride == 1 else 8 * int(draw.integers(1, 13))
    model = block(shape, 16 * int(draw.integers(1, 20)), out, stride, summed=stride == 1)
    report = judged(model, tmp_path, chip=["a100", "h200"][seed % 2], level="O3")
    assert report.failures == ()


def test_values_that_others_read_stay_outside(tmp_path: Path) -> None:
    """What another operator or the user reads is stored, so that nothing around it is one kernel."""
    net = Network([("x", (1, 16, 12, 12))])
    wide = net.relu6(net.conv("x", 96, 1))
    filtered = net.relu6(net.conv(wide, 96, 3, group=96, pads=[1, 1, 1, 1]))
    narrow = net.conv(filtered, 16, 1)
    plan = fused(net.model(narrow, wide), tmp_path)
    assert [len(group.layers) for group in plan.groups] == [1, 1, 1]


@pytest.mark.parametrize("change", [{"dilations": [2, 2], "pads": [2, 2, 2, 2]}, {"strides": [2, 1]}, {"group": 48}])
def test_what_the_template_does_not_take(tmp_path: Path, change: dict[str, object]) -> None:
    net = Network([("x", (1, 16, 12, 12))])
    wide = net.conv("x", 96, 1)
    attributes: dict[str, Any] = {"group": 96, "pads": [1, 1, 1, 1], **change}
    filtered = net.conv(wide, 96, 3, bias=True, **attributes)
    plan = fused(net.model(net.conv(filtered, 24, 1)), tmp_path)
    assert all(read_kernel(group.kernel)[0] != "inverted_residual" for group in plan.groups)


def test_blocks_of_mobilenet_are_fused_and_explained() -> None:
    plan = plan_model("mobilenet_v2", "h200", CompileOptions("O3", batch=32)).plan
    kernels = [read_kernel(group.kernel)[0] for group in plan.groups if group.kernel]
    assert kernels.count("inverted_residual") >= 10
    merged = [decision for decision in plan.decisions if decision.verdict.startswith("one kernel with")]
    assert all("apart they take" in decision.reason for decision in merged)
    told = CliRunner().invoke(cli, ["explain", "mobilenet_v2", "--chip", "h200", "--level", "O3", "--batch", "32"])
    assert told.exit_code == 0
    assert "inverted_residual(rows=" in told.stdout
    assert "bound by" in told.stdout


def test_what_a_block_of_the_chip_may_occupy(tmp_path: Path) -> None:
    """With little shared memory no kernel is offered that needs more, and what no kernel can compute is refused."""
    text = (Path(hw_models.__file__).parent / "chips" / "a100.yaml").read_text(encoding="utf-8")
    chip = tmp_path / "small.yaml"
    chip.write_text(text.replace("shared_bytes_per_block: 166_912", "shared_bytes_per_block: 40_000"), encoding="utf-8")
    file = save(block((2, 24, 13, 19), 144, 24), tmp_path / "net.onnx")
    plan = plan_model(file, chip, CompileOptions("O3")).plan
    used = [size for d in plan.decisions for size in re.findall(r"(\d+) shared_bytes", d.reason)]
    assert all(int(size) <= 40_000 for size in used)
    assert "inverted_residual" in str(plan)
    chip.write_text(text.replace("threads_per_block: 1_024", "threads_per_block: 64"), encoding="utf-8")
    with pytest.raises(UserError, match="with what a block of a100 may occupy"):
        plan_model(file, chip, CompileOptions("O0"))
