"""Values stay in the scratchpad between layers of the array: the same bits as at level O0, and fewer bytes moved."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from codegen.gemmini.target import TARGET
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import Compilation, CompileOptions, Lowered
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.chip import Chip
from hw_models.loading import load_chip
from isched.timing.cycle_model import time_program, time_streams
from partitioner.planners.levels import O0, O3, Auto, Planner
from tests.codegen.gemmini.drawn_networks import drawn_network
from tests.codegen.gemmini.quantised_networks import STEP, WEIGHT_STEP, QuantisedNetwork
from tests.small_models import save

DRAWN = 200
FIRST_OF_ROWS, TIES = 4, 26


def bottleneck(extent: int = 12, factor: int = 300, blocks: int = 1, channels: int = 32) -> onnx.ModelProto:
    """Blocks of three convolutions to which their input is added, times a whole number of units of the sums."""
    net = QuantisedNetwork((1, channels, extent, extent))
    value = net.rounded("x", STEP)
    step = STEP
    for _ in range(blocks):
        inner = net.rounded(net.node("Relu", net.conv(value, channels, channels, step=step)), 0.1)
        given = step / (WEIGHT_STEP * factor)
        inner = net.rounded(net.node("Relu", net.conv(inner, channels, channels, 3, pad=1, step=0.1)), given)
        total = net.node("Add", net.conv(inner, channels, channels, step=given), value)
        step = 0.1
        value = net.rounded(net.node("Relu", total), step)
    return net.model(net.rounded(net.conv(value, channels, 10, step=step), 0.5))


def compiled(path: Path, planner: Planner, chip: str | Chip = "gemmini") -> Compilation:
    (part,) = compile_clusters(path, chip, CompileOptions(planner))
    return part


def main_bytes(part: Compilation) -> int:
    """Bytes that the controllers move from and to the main memory."""
    assert isinstance(part.made, Lowered)
    instrs = part.made.program.streams[0].instrs
    return sum(region.size_bytes for instr in instrs if instr.engine != "core"
               for region in (*instr.reads, *instr.writes) if region.memory == "DRAM")  # fmt: skip


def group_sizes(part: Compilation) -> list[int]:
    return [len(group.layers) for group in part.plan.groups]


@pytest.mark.commit
@pytest.mark.parametrize("factor", [1, 127, 128, 1000])
def test_a_block_stays_and_holds(factor: int, tmp_path: Path) -> None:
    path = save(bottleneck(factor=factor), tmp_path / "net.onnx")
    part = compiled(path, O3())
    assert max(group_sizes(part)) == 4
    assert main_bytes(part) < main_bytes(compiled(path, O0())) / 2
    report = verify_model(path, "gemmini", CompileOptions(O3()), VerifyOptions(samples=128))
    assert report.failures == ()


@pytest.mark.nightly
def test_instances_of_a_group_hold(tmp_path: Path) -> None:
    """Values between layers are larger than the scratchpad, so rows are computed in parts, some rows twice."""
    path = save(bottleneck(96, blocks=2), tmp_path / "net.onnx")
    part = compiled(path, O3())
    assert max(group.split.instances for group in part.plan.groups if len(group.layers) > 1) > 1
    report = verify_model(path, "gemmini", CompileOptions(O3()), VerifyOptions(samples=128))
    assert report.failures == ()


@pytest.mark.commit
def test_a_wider_array_keeps_values_too(tmp_path: Path) -> None:
    path = save(bottleneck(), tmp_path / "net.onnx")
    assert max(group_sizes(compiled(path, O3(), "gemmini_32"))) == 4
    report = verify_model(path, "gemmini_32", CompileOptions(O3()), VerifyOptions(samples=128))
    assert report.failures == ()


@pytest.mark.commit
def test_a_build_without_the_way_through_the_array_keeps_nothing(tmp_path: Path) -> None:
    chip = load_chip("gemmini")
    lean = chip.model_copy(update={"links": tuple(link for link in chip.links if link.engine != "array")})
    part = compiled(save(bottleneck(), tmp_path / "net.onnx"), O3(), lean)
    assert set(group_sizes(part)) == {1}
    assert any("through the array" in decision.reason for decision in part.plan.decisions)


@pytest.mark.commit
def test_values_that_the_core_needs_do_not_stay(tmp_path: Path) -> None:
    """Twenty channels are no whole blocks; a scale per channel is applied by the core."""
    net = QuantisedNetwork((1, 16, 8, 8))
    value = net.rounded(net.conv(net.rounded("x", STEP), 16, 20, 3, pad=1), 0.1)
    value = net.rounded(net.conv(value, 20, 32, step=0.1, each=True), 0.1)
    path = save(net.model(net.rounded(net.conv(value, 32, 16, step=0.1), 0.5)), tmp_path / "net.onnx")
    part = compiled(path, O3())
    assert set(group_sizes(part)) == {1}
    reasons = " ".join(decision.reason for decision in part.plan.decisions)
    assert "20 channels" in reasons
    assert "finished by the core" in reasons


@pytest.mark.commit
def test_a_value_that_is_multiplied_on_the_array_and_added_by_the_core_does_not_stay(tmp_path: Path) -> None:
    """Its scale is 76.9 units of the sums: the core adds it, from the main memory."""
    net = QuantisedNetwork((1, 16, 8, 8))
    value = net.rounded(net.conv(net.rounded("x", STEP), 16, 16, 3, pad=1), 0.1)
    weights = net.weights((16, 16, 1, 1), 0.013, False, 0)
    total = net.rounded(net.node("Add", net.node("Conv", value, weights), value), 0.2)
    path = save(net.model(net.rounded(net.conv(total, 16, 16, step=0.2), 0.5)), tmp_path / "net.onnx")
    part = compiled(path, O3())
    assert set(group_sizes(part)) == {1}
    assert any("added by the core" in decision.reason for decision in part.plan.decisions)
    report = verify_model(path, "gemmini", CompileOptions(O3()), VerifyOptions(samples=64))
    assert report.failures == ()


@pytest.mark.commit
def test_a_value_that_finds_no_room_is_spilled_and_holds(tmp_path: Path) -> None:
    chip = load_chip("gemmini")
    memories = tuple(
        memory.model_copy(update={"size_bytes": 16_384}) if memory.name == "scratchpad" else memory
        for memory in chip.memories
    )
    small, path = chip.model_copy(update={"memories": memories}), save(bottleneck(16), tmp_path / "net.onnx")
    assert any(group.spills for group in compiled(path, O3("cost"), small).plan.groups)
    report = verify_model(path, small, CompileOptions(O3("cost")), VerifyOptions(samples=64))
    assert report.failures == ()


@pytest.mark.commit
def test_auto_takes_the_faster_level(tmp_path: Path) -> None:
    path = save(bottleneck(), tmp_path / "net.onnx")
    cycles = {}
    for planner in (O0(), O3(), Auto()):
        (part,) = compile_clusters(path, "gemmini", CompileOptions(planner))
        assert isinstance(part.made, Lowered)
        cycles[planner.name] = time_program(part.made.program, part.chip, TARGET).cycles
    assert cycles["auto"] == min(cycles["O0"], cycles["O3"])


@pytest.mark.commit
def test_times_of_program_and_machine_code_are_equal(tmp_path: Path) -> None:
    part = compiled(save(bottleneck(8), tmp_path / "net.onnx"), O3())
    assert isinstance(part.made, Lowered)
    files = TARGET.emit(part.made.program, part.model.graph, part.model.constants, part.chip)
    streams = TARGET.trace(files.files[files.executable], 1, part.chip)
    assert time_streams(streams, part.chip).cycles == time_program(part.made.program, part.chip, TARGET).cycles


@pytest.mark.nightly
@pytest.mark.spread(10)
@pytest.mark.parametrize("seeds", [range(low, low + 10) for low in range(0, DRAWN, 10)], ids=str)
def test_drawn_networks_hold_at_level_auto_and_where_values_stay(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        path = save(drawn_network(seed), tmp_path / f"{seed}.onnx")
        for planner in (Auto(), O3()):
            report = verify_model(path, "gemmini", CompileOptions(planner), VerifyOptions(samples=64))
            assert report.failures == (), f"seed {seed}, {planner.name}"


def test_drawn_networks_hold(tmp_path: Path) -> None:
    """One of images, one of rows whose last product has no whole blocks of columns, one that makes ties of a whole
    channel where small inputs become zeros."""
    for seed in (1000, FIRST_OF_ROWS, TIES):
        path = save(drawn_network(seed), tmp_path / f"{seed}.onnx")
        report = verify_model(path, "gemmini", CompileOptions(O3()), VerifyOptions(samples=64))
        assert report.failures == (), f"seed {seed}"
