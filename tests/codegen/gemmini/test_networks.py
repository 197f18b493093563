"""Quantised networks compile for Gemmini, run on its simulator bit for bit as emulated, and hold against the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

from codegen.gemmini.kernels import block_moves, finish, loop_products, product_input, product_tile, products
from codegen.gemmini.kernels.product_shape import ProductShape, Window
from codegen.gemmini.streams.streams import Item, looped
from codegen.gemmini.target import GemminiTarget
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import CompileOptions, Lowered
from dsa_sched.verification.verify import VerifyOptions, verify_model
from partitioner.planners.levels import O0, Auto
from tests.codegen.gemmini.quantised_networks import (
    QuantisedNetwork,
    convolution,
    grouped,
    joined,
    joined_rows,
    means_of_numbers,
    own_input,
    pooled,
    probabilities,
    product,
    residual,
    separable,
    turned,
    zero_points,
)
from tests.small_models import save

NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "one block": lambda: product(16, 16, 16),
    "odd extents": lambda: product(33, 50, 21, relu=True),
    "a scale per column": lambda: product(20, 40, 24, each=True),
    "stem": lambda: convolution(13, 12, 3, 8, kernel=3, stride=2, pad=1),
    "many channels": lambda: convolution(7, 7, 70, 40, kernel=3, pad=1),
    "dilated": lambda: convolution(11, 14, 20, 17, kernel=3, pad=2, dilation=2),
    "single pixels": lambda: convolution(9, 6, 33, 18),
    "every second pixel": lambda: convolution(10, 10, 16, 64, stride=2),
    "a scale per channel": lambda: convolution(8, 8, 5, 20, kernel=5, pad=2, each=True),
    "residual": residual,
    "residual before rounding": lambda: residual("sums"),
    "separable": separable,
    "every channel by itself": lambda: grouped(48, 48, 48, stride=2),
    "channels by themselves that are no whole blocks": lambda: grouped(58, 58, 58, each=True),
    "several results of each channel": lambda: grouped(12, 36, 12),
    "narrow groups": lambda: grouped(64, 64, 16),
    "groups wider than the array": lambda: grouped(40, 200, 2, bias=False),
    "means of numbers": means_of_numbers,
    "zero points": zero_points,
    "joined": joined,
    "joined rows": joined_rows,
    "largest of three": lambda: pooled(kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "largest of three below zero": lambda: pooled(relu=False, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 2, 2, 1]),
    "largest of two": lambda: pooled(kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    "largest of pixels": lambda: pooled(kernel_shape=[1, 1], strides=[3, 3]),
    "largest of five": lambda: pooled(relu=False, kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4),
    "largest of a long image": lambda: pooled((1, 3, 4, 600), kernel_shape=[2, 2], strides=[1, 1]),
    "probabilities": lambda: probabilities((2, 3, 5, 8)),
    "far apart": lambda: probabilities((40, 16), 300.0),
    "turned": turned,
    "own input added": own_input,
}


def judged(model: onnx.ModelProto, folder: Path) -> tuple[str, ...]:
    path = save(model, folder / "net.onnx")
    report = verify_model(path, "gemmini", CompileOptions(Auto()), VerifyOptions(samples=256))
    assert all(layer.samples > 0 for layer in report.layers)
    return report.failures


@pytest.mark.spread(9)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.commit
def test_a_quantised_network_holds(name: str, tmp_path: Path) -> None:
    assert judged(NETWORKS[name](), tmp_path) == ()


@pytest.mark.parametrize("name", ["odd extents", "many channels", "joined", "narrow groups", "largest of three"])
@pytest.mark.commit
def test_an_array_of_another_width(name: str, tmp_path: Path) -> None:
    path = save(NETWORKS[name](), tmp_path / "net.onnx")
    report = verify_model(path, "gemmini_32", CompileOptions(Auto()), VerifyOptions(samples=256))
    assert report.failures == ()


def test_layers_larger_than_the_accumulator_are_cut(tmp_path: Path) -> None:
    model = convolution(40, 40, 64, 64, kernel=3, pad=1, groups=2)
    path = save(model, tmp_path / "net.onnx")
    (part,) = compile_clusters(path, "gemmini", CompileOptions(O0()))
    assert isinstance(part.made, Lowered)
    moved = [instr for instr in part.made.program.streams[0].instrs if instr.opcode == "mvout"]
    assert len(moved) >= 40 * 40 * 4 // 1024
    assert judged(model, tmp_path) == ()


@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "joined_groups"),
    [(64, 64, 64, {"gemmini": 4, "gemmini_32": 2}), (64, 64, 16, {"gemmini": 4, "gemmini_32": 2}),
     (24, 24, 24, {"gemmini": 2, "gemmini_32": 1}), (64, 32, 2, {"gemmini": 2, "gemmini_32": 2})],
)  # fmt: skip
def test_narrow_groups_are_made_one_up_to_the_width_of_the_array(
    channels: int, outputs: int, groups: int, joined_groups: dict[str, int], tmp_path: Path
) -> None:
    """Weights are those of the file, with zeros where a channel was in another group."""
    path = save(grouped(channels, outputs, groups), tmp_path / "net.onnx")
    for chip, number in joined_groups.items():
        (part,) = compile_clusters(path, chip, CompileOptions(O0()))
        graph = part.model.graph
        (conv,) = (op for op in graph.ops if op.kind == "conv")
        assert conv.number("groups") == number
        weights = part.model.constants[graph.by_name[conv.inputs[1]].constant]
        depth = channels // number
        assert weights.shape == (3, 3, depth, outputs)
        file = numpy_helper.to_array(onnx.load(path).graph.initializer[2])
        assert file.shape == (outputs, channels // groups, 3, 3)
        for channel in range(outputs):
            first = channel * groups // outputs * (channels // groups) - channel * number // outputs * depth
            wide = np.zeros((depth, 3, 3), np.int8)
            wide[first : first + channels // groups] = file[channel]
            assert np.array_equal(weights[..., channel].transpose(2, 0, 1), wide)


@pytest.mark.parametrize(
    ("name", "kind", "by_core"),
    [("largest of three", "max_pool", False), ("largest of a long image", "max_pool", False),
     ("largest of five", "max_pool", True), ("joined", "concat", False), ("joined rows", "concat", False)],
)  # fmt: skip
def test_the_core_has_no_part_in_what_moving_does(name: str, kind: str, by_core: bool, tmp_path: Path) -> None:
    """Maxima and joined values of int8; a sound result of the same networks is tested above."""
    (part,) = compile_clusters(save(NETWORKS[name](), tmp_path / "net.onnx"), "gemmini", CompileOptions(O0()))
    assert isinstance(part.made, Lowered)
    graph = part.model.graph
    found = [op for op in graph.ops if op.kind == kind]
    assert {graph.by_name[value].dtype for op in found for value in (*op.inputs, *op.outputs)} == {"int8"}
    layers = {layer.name for group in part.plan.groups for layer in group.layers if layer.anchor(graph) in found}
    engines = {i.engine for i in part.made.program.streams[0].instrs if i.source in layers and i.opcode != "barrier"}
    assert engines == ({"core"} if by_core else {"load", "store"})


def brought_bytes(path: Path) -> dict[str, int]:
    (part,) = compile_clusters(path, "gemmini", CompileOptions(O0()))
    assert isinstance(part.made, Lowered)
    found: dict[str, int] = {}
    for instr in part.made.program.streams[0].instrs:
        read = sum(region.size_bytes for region in instr.reads if region.memory == "DRAM")
        found[instr.opcode] = found.get(instr.opcode, 0) + read
    return found


def test_a_tile_brings_nothing_that_the_tile_before_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Weights once for all rows; the input once where it fits, for all channels: tile after tile, as planned."""
    monkeypatch.setattr(GemminiTarget, "in_fastest_forms", staticmethod(lambda program, *_: program))
    wide = save(convolution(40, 40, 16, 48, kernel=3, pad=1), tmp_path / "wide.onnx")
    assert brought_bytes(wide)["mvin2"] == 16 * 48 * 9
    deep = save(convolution(14, 14, 64, 256), tmp_path / "deep.onnx")
    found = brought_bytes(deep)
    assert (found["mvin2"], found["mvin"]) == (64 * 256, 14 * 14 * 64)
    assert judged(convolution(14, 14, 64, 256), tmp_path) == ()


def test_patches_with_equal_boxes_and_other_padding_are_told_apart() -> None:
    """Each row of the result reads both rows of the input, the first with padding before and the second after."""
    whole = ((0, 1), (0, 2), (0, 5), (0, 8))
    for part, apart in (((0, 1), True), ((1, 2), True), ((0, 2), False)):
        shape, all_of_it = (tile_shape((whole[0], rows, *whole[2:])) for rows in (part, (0, 2)))
        assert product_input.ambiguous(shape, all_of_it) == apart


def tile_shape(box: tuple[tuple[int, int], ...]) -> ProductShape:
    window = Window(taps=5, pad=2)
    return ProductShape(box[:1], box[1], box[2], box[3], (1,), 2, 5, 16, 8, window, Window(), False)


def damaged(monkeypatch: pytest.MonkeyPatch, change: Callable[..., Item]) -> None:
    for module in (block_moves, product_input, products):
        monkeypatch.setattr(module, "looped", change)


def wrong_column(mnemonic: str, steps: Any, **fields: Any) -> Item:
    moved = {"a_row": fields["a_row"] + 1} if mnemonic == "compute_preloaded" and fields["a_row"] > 0 else {}
    return looped(mnemonic, steps, **{**fields, **moved})


def no_accumulating(mnemonic: str, steps: Any, **fields: Any) -> Item:
    kept = {"c_row": fields["c_row"] & ~(1 << 30)} if mnemonic == "preload" else {}
    return looped(mnemonic, steps, **{**fields, **kept})


def wrong_bank(mnemonic: str, steps: Any, **fields: Any) -> Item:
    moved = {"row": fields["row"] + 4096} if mnemonic == "mvin2" else {}
    return looped(mnemonic, steps, **{**fields, **moved})


@pytest.mark.parametrize("change", [wrong_column, no_accumulating, wrong_bank])
def test_damaged_instructions_are_found(
    change: Callable[..., Item], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    damaged(monkeypatch, change)
    path = save(convolution(7, 7, 80, 32, kernel=3, pad=1, groups=2), tmp_path / "net.onnx")
    done = CliRunner().invoke(cli, ["verify", str(path), "--chip", "gemmini"])
    assert done.exit_code in (1, 3)
    assert "FAILED" in done.stdout or "were not written" in done.stderr or "has unwritten bytes" in done.stderr


def test_a_wrong_scale_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    right = finish.finish_of
    for module in (product_tile, loop_products):
        monkeypatch.setattr(
            module, "finish_of", lambda *given: replace(right(*given), scale=right(*given).scale * 1.001)
        )
    assert any(failure.startswith("layer") for failure in judged(product(32, 32, 32), tmp_path))


def refused(model: onnx.ModelProto, folder: Path, *words: str) -> str:
    path = save(model, folder / "net.onnx")
    done = CliRunner().invoke(cli, ["compile", str(path), "--chip", "gemmini", "-o", str(folder / "out"), *words])
    assert done.exit_code == 1
    return done.stderr


def test_what_is_not_computed_is_said(tmp_path: Path) -> None:
    net = QuantisedNetwork((1, 4, 8, 8))
    floats = net.model(net.node("Conv", "x", net.constant(net.random.normal(size=(8, 4, 3, 3)).astype("float32"))))
    said = "a conv of float32 and float32; the array multiplies int8 by int8: quantise the network"
    assert said in refused(floats, tmp_path)
    needs = "--level: needs O0, O3 or auto for this target; has gemmini-v3, whose tiles move their operands themselves"
    assert needs in refused(product(4, 4, 4), tmp_path, "--level", "O2")


def test_the_commands_know_the_target(tmp_path: Path) -> None:
    """Compiled twice alike; listed, run by itself and checked as programs of the first target are."""
    path = save(product(8, 24, 8), tmp_path / "net.onnx")
    for name in ("one", "two"):
        done = CliRunner().invoke(cli, ["compile", str(path), "--chip", "gemmini", "-o", str(tmp_path / name)])
        assert done.exit_code == 0, done.stderr
    files = [sorted(file for file in (tmp_path / name).rglob("*") if file.is_file()) for name in ("one", "two")]
    assert [one.read_bytes() for one in files[0]] == [two.read_bytes() for two in files[1]]
    program = str(tmp_path / "one" / "cluster0" / "program.elf")
    listed = CliRunner().invoke(cli, ["disasm", program])
    assert "loop_ws_config_bounds" in listed.stdout, listed.output
    ran = CliRunner().invoke(cli, ["iss", program, "--trace", str(tmp_path / "trace")])
    assert ran.exit_code == 0, ran.output
    assert "config_ex weight_stationary=1 a_stride=1 c_stride=1" in (tmp_path / "trace").read_text()
    dumped = CliRunner().invoke(cli, ["iss", program, "--dump", "0x80000000:4", "--dump-path", str(tmp_path)])
    assert (dumped.exit_code, (tmp_path / "0x80000000_0x4.bin").stat().st_size) == (0, 4), dumped.output
    for words, said in (
        (("--dump", "0x10:4"), "are not memory"),
        (("--dump", "0:0x80000000:4"), "needs addresses of the main memory"),
        (("--load", f"0x80000000={tmp_path / 'none'}"), "none"),
    ):
        wrong = CliRunner().invoke(cli, ["iss", program, "--trace", str(tmp_path / "not"), *words])
        assert (wrong.exit_code, said in wrong.stderr) in ((1, True), (2, True)), wrong.output
        assert not (tmp_path / "not").exists()
    poisoned = CliRunner().invoke(cli, ["iss", program, "--poison"])
    assert (poisoned.exit_code, "were not written" in poisoned.stderr) == (126, True)
