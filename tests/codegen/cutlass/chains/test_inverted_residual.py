"""The block of MobileNet-v2 as one kernel: chosen where it pays, right on ragged shapes, explained."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import onnx
import pytest
from click.testing import CliRunner

import hw_models
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from hw_models.errors import UserError
from partitioner.ir.kernels import read_kernel
from partitioner.ir.plan import Plan
from partitioner.planners.levels import O0, O3
from tests.codegen.cutlass.chains.forced import judged_as, only, slow_launches
from tests.codegen.cutlass.families.networks import Network, judged
from tests.small_models import save

TEMPLATE = "inverted_residual"


def block(
    shape: tuple[int, int, int, int],
    expanded: int | None,
    out: int,
    stride: int = 1,
    *,
    summed: bool = True,
    after: str | None = "Relu6",
    seed: int = 0,
) -> onnx.ModelProto:
    """Expand, depthwise, project; the sum with the block's input where shapes allow. No expansion where `expanded` is
    None."""
    net = Network([("x", shape)], seed)

    def activated(x: str) -> str:
        return net.relu6(x) if after == "Relu6" else net.add(after, x) if after else x

    wide = activated(net.conv("x", expanded, 1)) if expanded else "x"
    between = expanded or shape[1]
    pads = [1, 1, 1, 1]
    filtered = net.conv(wide, between, 3, group=between, strides=[stride, stride], pads=pads, bias=False)
    narrow = net.conv(activated(filtered), out, 1)
    return net.model(net.add("Relu", net.add("Add", narrow, "x")) if summed else narrow)


def fused(model: onnx.ModelProto, folder: Path, chip: str = "a100") -> Plan:
    return plan_model(save(model, folder / "net.onnx"), chip, CompileOptions(O3())).plan


def drawn(seed: int) -> onnx.ModelProto:
    """Expansions of 1 are chains of two; every third block has a stride of 2."""
    draw = Random(seed)
    stride = 2 if seed % 3 == 2 else 1
    channels = 8 * draw.randint(1, 21)
    shape = (draw.randint(1, 3), channels, draw.randint(1, 30), draw.randint(1, 30))
    out = channels if stride == 1 else 8 * draw.randint(1, 40)
    expanded = (16 * draw.randint(1, 20), channels * 6)[seed % 2]
    after = draw.choice(("Relu6", "HardSwish", None))
    if seed % 4 == 3:
        channels = 16 * draw.randint(1, 12)
        return block((*shape[:1], channels, *shape[2:]), None, out, stride, after=after, summed=False, seed=seed)
    expanded = -(-expanded // 16) * 16
    return block(shape, expanded, out, stride, after=after, summed=stride == 1, seed=seed)


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("shape", "expanded", "out", "stride", "summed"),
    [
        ((2, 24, 13, 19), 144, 24, 1, True),  # ragged in both directions; 24 channels are padded to a depth of 32
        ((1, 16, 11, 9), 96, 24, 2, False),  # every second pixel, of an odd image
        ((3, 40, 7, 5), 80, 40, 1, True),  # smaller than a tile; 80 channels go through 16 at a time
        ((1, 32, 17, 9), None, 16, 1, False),  # without an expansion
        ((2, 96, 9, 9), None, 40, 2, False),
        ((1, 160, 7, 7), 480, 320, 1, False),  # too many weights to stay
    ],
)
@pytest.mark.commit
def test_one_kernel_computes_the_block(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, int, int, int],
    expanded: int | None,
    out: int,
    stride: int,
    summed: bool,
) -> None:
    model = block(shape, expanded, out, stride, summed=summed)
    assert judged_as(TEMPLATE, model, tmp_path, monkeypatch).failures == ()


@pytest.mark.nightly
def test_blocks_that_keep_their_weights_go_from_tile_to_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More tiles than are on the chip at once; a chip of few cores, so that they are few."""
    only(monkeypatch, TEMPLATE)
    text = slow_launches("a100", tmp_path).read_text(encoding="utf-8")
    chip = tmp_path / "few.yaml"
    chip.write_text(re.sub(r"cores_per_cluster: \d+", "cores_per_cluster: 3", text), encoding="utf-8")
    model = block((3, 16, 29, 31), 96, 16)
    file = save(model, tmp_path / "net.onnx")
    (group,) = plan_model(file, chip, CompileOptions(O3())).plan.groups
    assert read_kernel(group.kernel)[1]["weights"] == "resident"
    assert judged(model, tmp_path, str(chip), level="O3", samples=4096).failures == ()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(50))
def test_drawn_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chip = ["a100", "h200"][seed // 2 % 2]
    assert judged_as(TEMPLATE, drawn(seed), tmp_path, monkeypatch, chip).failures == ()


def test_values_that_others_read_stay_outside(tmp_path: Path) -> None:
    """What another operator or the user reads is stored, so that nothing around it is one kernel."""
    net = Network([("x", (1, 16, 12, 12))])
    wide = net.relu6(net.conv("x", 96, 1))
    filtered = net.relu6(net.conv(wide, 96, 3, group=96, pads=[1, 1, 1, 1]))
    narrow = net.conv(filtered, 16, 1)
    plan = fused(net.model(narrow, wide, filtered), tmp_path)
    assert [len(group.layers) for group in plan.groups] == [1, 1, 1]
    plan = fused(net.model(narrow, wide), tmp_path)
    assert [len(group.layers) for group in plan.groups] == [1, 2]


@pytest.mark.parametrize("change", [{"dilations": [2, 2], "pads": [2, 2, 2, 2]}, {"strides": [2, 1]}, {"group": 48}])
def test_what_the_template_does_not_take(tmp_path: Path, change: dict[str, object]) -> None:
    net = Network([("x", (1, 16, 12, 12))])
    wide = net.conv("x", 96, 1)
    attributes: dict[str, Any] = {"group": 96, "pads": [1, 1, 1, 1], **change}
    filtered = net.conv(wide, 96, 3, bias=True, **attributes)
    plan = fused(net.model(net.conv(filtered, 24, 1)), tmp_path)
    assert all(read_kernel(group.kernel)[0] != "inverted_residual" for group in plan.groups)


@pytest.mark.nightly
def test_blocks_of_mobilenet_are_fused_and_explained() -> None:
    planned = plan_model("mobilenet_v2", "h200", CompileOptions(O3(), batch=32))
    plan, graph = planned.plan, planned.context.graph
    blocks = [group for group in plan.groups if read_kernel(group.kernel or "none")[0] == TEMPLATE]
    large = [group for group in blocks if graph.by_name[group.layers[0].anchor(graph).inputs[0]].shape[1] >= 56]
    # the blocks of 112 pixels, the first without an expansion: some smaller ones were measured to be faster apart
    assert [len(group.layers) for group in large[:2]] == [2, 3]
    merged = [decision for decision in plan.decisions if decision.verdict.startswith("one kernel with")]
    assert all("separately they take" in decision.reason for decision in merged)
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
    plan = plan_model(file, chip, CompileOptions(O3())).plan
    used = [size for d in plan.decisions for size in re.findall(r"(\d+) shared_bytes", d.reason)]
    assert all(int(size) <= 40_000 for size in used)
    assert "inverted_residual" in str(plan)
    chip.write_text(text.replace("threads_per_block: 1_024", "threads_per_block: 64"), encoding="utf-8")
    with pytest.raises(UserError, match="with what a block of a100 may occupy"):
        plan_model(file, chip, CompileOptions(O0()))
