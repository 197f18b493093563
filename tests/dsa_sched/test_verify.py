"""`verify` passes what is right and catches what is wrong: faults are planted in the machine code or the program."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codegen.target import ClusterFiles, Execution
from dsa_sched.artifact.format import Artifact
from dsa_sched.pipeline.driver import compile_graph, compile_model
from dsa_sched.report.json_form import report_json
from dsa_sched.stages.compilation import Compilation, CompileOptions, Lowered
from dsa_sched.verification.bisect import failing_check
from dsa_sched.verification.kept_report import FORMAT
from dsa_sched.verification.tolerances import allowance
from dsa_sched.verification.verdict import LevelResult, VerifyReport
from dsa_sched.verification.verify import Runner, VerifyOptions, simulator, verify_compiled, verify_model
from dsa_sched.zoo import seeded_inputs, zoo_names
from dsa_sched.zoo.drawn_networks import DRAWN
from hw_models.errors import ModelError, PlanError, TargetError
from isched.hazards.verify_program import verify_program
from isched.program.program import Instr, Program
from partitioner.planners.levels import LEVELS, O0, O2, O3, planner_or_auto
from tests.dsa_sched.frontend.onnx_models import ModelBuilder
from tests.small_models import classifier, save

Operands = dict[str, int]
OPTIONS = VerifyOptions(samples=512)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier(), tmp_path_factory.mktemp("model") / "classifier.onnx")


@pytest.fixture(scope="module")
def whole(model_file: Path) -> Compilation:
    return compile_model(model_file, "stcp920", CompileOptions(O0(), keep_values=True))


@pytest.fixture(scope="module")
def isolated(whole: Compilation) -> Compilation:
    return compile_graph(whole.model, whole.chip, whole.target, CompileOptions(O0(), isolated=True))


def judge(whole: Compilation, isolated: Compilation, run: Runner = simulator) -> VerifyReport:
    return verify_compiled(whole, isolated, tuple(seeded_inputs(whole.model.source, 2, 0)), OPTIONS, run)


def planted(compilation: Compilation, change: Program) -> Compilation:
    """The same compilation with another program; its machine code is emitted anew."""
    assert isinstance(compilation.made, Lowered)
    return replace(compilation, made=replace(compilation.made, program=change))


def edit(program: Program, operator: str, opcode: str, change: Callable[[Operands], Operands]) -> Program:
    """Change operands of every `opcode` that serves an operator."""

    def edited(instr: Instr) -> Instr:
        if (instr.source, instr.opcode) != (operator, opcode):
            return instr
        old = dict(instr.operands)
        return replace(instr, operands=tuple((old | change(old)).items()))

    streams = tuple(replace(s, instrs=tuple(edited(i) for i in s.instrs)) for s in program.streams)
    changed = replace(program, streams=streams)
    assert changed != program
    return changed


def pad_other_side(operands: Operands) -> Operands:
    """A column of padding goes from one side of the image to the other, so that all shapes stay right."""
    word = operands["conv_padding"]
    left, right = word >> 8 & 0xFF, word & 0xFF
    move = 1 if right else -min(left, 1)
    return {"conv_padding": word & 0xFFFF0000 | left + move << 8 | right - move}


def swap(operands: Operands) -> Operands:
    """b - a instead of a - b."""
    return {"rs1": operands["rs2"], "rs2": operands["rs1"]}


def test_a_right_network_passes_and_every_check_was_active(whole: Compilation, isolated: Compilation) -> None:
    report = judge(whole, isolated)
    assert report.failures == ()
    assert [layer.name for layer in report.layers] == ["conv1", "conv2", "pool", "mean", "fc", "softmax"]
    for layer in report.layers:
        assert layer.isolated_error is not None
        assert 0 < layer.isolated_error < 0.015
        assert 0 < layer.floor < layer.bound
        assert layer.channel is not None
        assert 0 < layer.channel.share < 1
        assert layer.whole_error is not None
        assert layer.samples > 0
        assert sum(layer.work.instructions.values()) > 0
        assert layer.work.moved_bytes["DDR->LLB"] > 0
    assert [result.tensor for result in report.logits] == ["logits", "logits"]
    for result in report.logits:
        assert result.statement
        assert 0 < result.apart < result.together < result.bound < result.distance
        assert 0 < result.error < result.bound
        assert (result.rows, result.top1_same, result.top1_wrong, result.top1_entries) == (1, 1, 0, 10)
        assert result.top1_candidates < 10
    assert report.end_to_end == "passed"
    assert report.constants == 5
    assert (report.against_file.copied, report.against_file.computed) == (5, 0)


@pytest.fixture(scope="module")
def preactivated(tmp_path_factory: pytest.TempPathFactory) -> Compilation:
    """Twice batch norm, Relu and convolution, padded and not: the scales, from 0.02 to 5, are in the weights."""
    builder = ModelBuilder()
    y = builder.input(1, 8, 10, 10)
    for pad in (1, 0):
        statistics = (builder.weights(8), builder.constant(builder.random.uniform(0.1, 1.0, 8)))
        y = builder.node(
            "BatchNormalization", y, builder.constant(np.geomspace(0.02, 1.6, 8)), builder.weights(8), *statistics
        )
        y = builder.node("Conv", builder.node("Relu", y), builder.weights(8, 8, 3, 3), pads=[pad] * 4)
        y = builder.node("MaxPool", y, kernel_shape=[2, 2])
    path = builder.save(tmp_path_factory.mktemp("preactivated"), y)
    compiled = compile_model(path, "stcp920", CompileOptions(O0(), keep_values=True))
    assert sorted(origin.name for origin in compiled.model.origins.values()) == ["v0", "v1", "v5"]
    return compiled


def twin(whole: Compilation) -> Compilation:
    return compile_graph(whole.model, whole.chip, whole.target, CompileOptions(O0(), isolated=True))


def test_values_that_a_rewrite_put_in_the_place_of_the_files_are_judged_by_them(preactivated: Compilation) -> None:
    """Each layer is fed with what the file's values are in our terms, so that errors are those of the layer alone."""
    report = judge(preactivated, twin(preactivated))
    assert report.failures == ()
    errors = {layer.output: (layer.isolated_error, layer.whole_error) for layer in report.layers}
    assert list(errors) == ["v1::unscaled", "v2", "v5::unscaled", "v6", "v7"]
    isolated, inside = errors["v6"]
    assert isolated is not None
    assert inside is not None
    assert isolated < inside  # fed with the network's own values it would be the same


def test_a_wrong_scale_of_such_a_value_is_caught(preactivated: Compilation) -> None:
    origins = dict(preactivated.model.origins)
    origins["v5::unscaled"] = replace(origins["v5::unscaled"], scale=origins["v5::unscaled"].scale * 1.02)
    wrong = replace(preactivated, model=replace(preactivated.model, origins=origins))
    report = judge(wrong, twin(wrong))
    layers = ("maxpool3", "conv6")  # that which ends in the value and that which reads it
    assert [failure.split(":")[0] for failure in report.failures] == [f"layer {name}" for name in layers]
    assert failing_check(report)[0] == "layer"


def test_bytes_moved_and_instructions_agree_with_what_the_simulator_counted(whole: Compilation) -> None:
    from dsa_sched.analysis.work import add_work, layer_work

    executions: list[Execution] = []

    def spy(artifact: Artifact, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
        executions.append(simulator(artifact, loads, dumps, seed))
        return executions[-1]

    feed = seeded_inputs(whole.model.source, 1, 0)[0]
    spy(whole.artifact, whole.artifact.encode(feed), (), 0)
    total = add_work(layer_work(whole.program, whole.chip, whole.plan).values())
    moved = executions[0].moved_bytes
    assert {way: moved[way] for way in total.moved_bytes} == total.moved_bytes


def test_a_changed_weight_in_the_machine_code_is_caught(whole: Compilation, isolated: Compilation) -> None:
    """One bit of one weight of conv2: its constant has changed, and its samples no longer agree."""
    tensor = whole.model.graph.by_name["w2"]
    weights = np.ascontiguousarray(whole.model.constants[tensor.constant]).tobytes()

    def run(artifact: Artifact, loads: Mapping[int, bytes], dumps: tuple[tuple[int, int], ...], seed: int) -> Execution:
        files = artifact.clusters[0]
        elf = files.files[files.executable]
        at = elf.index(weights) + 3
        broken = elf[:at] + bytes([elf[at] ^ 0x04]) + elf[at + 1 :]
        changed = ClusterFiles(files.cores, files.executable, {**files.files, files.executable: broken})
        return simulator(replace(artifact, clusters=(changed,)), loads, dumps, seed)

    report = judge(whole, isolated, run)
    assert f"constant w2: 1 of {len(weights)} bytes changed in memory, first at 3" in report.failures
    assert any(failure.startswith("layer conv2: ") and "samples differ" in failure for failure in report.failures)
    assert not any("layer conv1" in failure for failure in report.failures)


def test_wrong_padding_is_caught(whole: Compilation, isolated: Compilation) -> None:
    """The image moves by one pixel to the left: right shapes, wrong values."""
    programs = [edit(c.program, "conv2", "meconv.mm", pad_other_side) for c in (whole, isolated)]
    report = judge(planted(whole, programs[0]), planted(isolated, programs[1]))
    assert any(f.startswith("layer conv2: relative error") and "by itself" in f for f in report.failures)
    assert any(f.startswith("layer conv2: ") and "samples differ" in f for f in report.failures)
    assert not any("layer conv1" in f or "layer pool" in f for f in report.failures), "only conv2 itself is to blame"


def test_swapped_operands_are_caught(whole: Compilation, isolated: Compilation) -> None:
    assert any(i.opcode == "vesub.mm" for s in whole.program.streams for i in s.instrs)
    programs = [edit(c.program, "sub", "vesub.mm", swap) for c in (whole, isolated)]
    report = judge(planted(whole, programs[0]), planted(isolated, programs[1]))
    assert any(f.startswith("layer conv2: relative error") for f in report.failures)
    assert any(f.startswith("logits for input 0: error") for f in report.failures)


def test_a_fault_in_one_program_only_is_caught_by_the_samples(whole: Compilation, isolated: Compilation) -> None:
    """The isolated twin is right; the network itself is judged by what it stored."""
    report = judge(planted(whole, edit(whole.program, "conv2", "meconv.mm", pad_other_side)), isolated)
    assert any(f.startswith("layer conv2: ") and "samples differ" in f for f in report.failures)
    assert not any("by itself" in f for f in report.failures)


@pytest.fixture(scope="module")
def at_o2(whole: Compilation) -> Compilation:
    return compile_graph(whole.model, whole.chip, whole.target, CompileOptions(O2(), keep_values=True))


def judge_level(at_o2: Compilation, whole: Compilation, isolated: Compilation) -> VerifyReport:
    feeds = tuple(seeded_inputs(whole.model.source, 2, 0))
    return verify_compiled(at_o2, isolated, feeds, OPTIONS, simulator, plain=whole)


def test_a_level_is_judged_by_what_it_stores(at_o2: Compilation, whole: Compilation, isolated: Compilation) -> None:
    """Layers are those of O0; work, constants and logits those of the level."""
    report, plain = judge_level(at_o2, whole, isolated), judge(whole, isolated)
    assert report.failures == ()
    assert plain.against_o0 is None
    assert isinstance(report.against_o0, LevelResult)
    assert (report.level, report.against_o0.outputs, report.against_o0.different) == ("O2", 1, ())
    assert 0 < report.against_o0.values < len(report.layers)
    assert [layer.isolated_error for layer in report.layers] == [layer.isolated_error for layer in plain.layers]
    assert report.logits == plain.logits
    assert report.total.moved_bytes["LLB->DDR"] < plain.total.moved_bytes["LLB->DDR"]


def test_a_fault_in_the_program_of_a_level_is_caught(
    at_o2: Compilation, whole: Compilation, isolated: Compilation
) -> None:
    """All of O0 is right; the first value that is stored behind the fault is named, once for each input."""
    report = judge_level(planted(at_o2, edit(at_o2.program, "sub", "vesub.mm", swap)), whole, isolated)
    assert [failure.split(" is the first")[0] for failure in report.failures] == [
        "level O2: y for input 0",
        "level O2: y for input 1",
    ]
    assert failing_check(report) == ("level", report.failures[0])


@pytest.mark.commit
def test_every_level_is_compiled_with_the_twins_that_judge_it(model_file: Path) -> None:
    for level in LEVELS:
        report = verify_model(model_file, "stcp920", CompileOptions(planner_or_auto(level)), OPTIONS)
        assert report.failures == ()
        assert report.level == level
        assert (report.against_o0 is None) == (level == "O0")


def without_wait(program: Program, layer: str) -> Program:
    """The program without the first wait for DMA of a layer."""
    first, *rest = program.streams
    at = next(k for k, i in enumerate(first.instrs) if i.awaits and i.source == layer)
    return replace(program, streams=(replace(first, instrs=first.instrs[:at] + first.instrs[at + 1 :]), *rest))


def test_a_dropped_wait_is_caught_before_and_during_the_run(whole: Compilation, isolated: Compilation) -> None:
    broken = without_wait(whole.program, "conv2")
    with pytest.raises(PlanError, match=r"awaited|transfer"):
        verify_program(broken, whole.chip)
    with pytest.raises(TargetError, match="conv2"):
        judge(planted(whole, broken), isolated)


def test_the_json_form_holds_every_figure(whole: Compilation, isolated: Compilation) -> None:
    report = judge(whole, isolated)
    data = json.loads(report_json(report))
    assert (data["format"], data["passed"], data["failures"]) == (FORMAT, True, [])
    assert data["layers"][0]["isolated_error"] == report.layers[0].isolated_error
    assert data["layers"][0]["work"]["moved_bytes"] == dict(report.layers[0].work.moved_bytes)
    assert data["logits"][1]["share"] == report.logits[1].share


def test_two_inputs_are_needed(whole: Compilation, isolated: Compilation) -> None:
    with pytest.raises(ModelError, match="at least 2"):
        verify_compiled(whole, isolated, tuple(seeded_inputs(whole.model.source, 1, 0)))


@pytest.mark.nightly
def test_another_runner_gives_the_same_verdict(model_file: Path) -> None:
    """Our own `iss` in the place of another simulator, told everything by the command line."""
    command = (
        f"{sys.executable} -m dsa_sched iss {{elf}} --cores {{cores}} --cluster {{cluster}} --load {{loads}} "
        "--dump {dumps} --dump-path {out}"
    )
    report = verify_model(model_file, "stcp920", CompileOptions(O0(), batch=2), OPTIONS, command)
    assert report.failures == ()
    assert report.batch == 2
    assert all(result.rows == 2 for result in report.logits)


OTHERS = tuple(name for name in zoo_names() if name not in ("resnet50", "squeezenet") and name not in DRAWN)
"""Of one image and calibrated; small ones of all others: tests/dsa_sched/test_zoo_drawn.py."""


@pytest.mark.parametrize(
    "network", [pytest.param("mobilenet_v2-mini", marks=pytest.mark.nightly), "resnet18_tailor-mini"]
)
def test_minis_of_the_zoo_pass_at_o3(network: str) -> None:
    report = verify_model(network, "stcp920", CompileOptions(O3()))
    assert report.failures == ()
    assert all(layer.isolated_error is not None for layer in report.layers)
    assert report.end_to_end == "passed"


@pytest.mark.nightly
@pytest.mark.parametrize("network", ["mobilenet_v2", "resnet18_tailor"])
def test_networks_of_full_size_pass_at_o3_with_schedule(network: str) -> None:
    assert verify_model(network, "stcp920", CompileOptions(O3(), schedule=True)).failures == ()


@pytest.mark.parametrize(
    ("network", "batch"),
    [
        ("resnet18_tailor-mini", 2),
        *(pytest.param(name, n, marks=pytest.mark.nightly) for name in ("squeezenet", "resnet50") for n in (1, 2)),
        *(pytest.param(name, 1, marks=pytest.mark.nightly) for name in OTHERS),
    ],
)
def test_networks_of_the_zoo_pass(network: str, batch: int) -> None:
    report = verify_model(network, "stcp920", CompileOptions(O0(), batch=batch))
    assert report.failures == ()
    assert [result.rows for result in report.logits] == [batch, batch]
    assert all(layer.isolated_error is not None for layer in report.layers)
    assert report.end_to_end == "passed"
    assert all(result.top1_candidates < result.top1_entries / 10 for result in report.logits)
    assert (report.against_file.undeclared, report.against_file.different) == ((), ())


def test_rows_that_are_alike_may_be_off_together(tmp_path: Path) -> None:
    """Words of a text become alike in the deep layers of an encoder; then a channel's errors are one, not one a row."""
    width = 768
    b = ModelBuilder()
    each = b.node("Mul", b.input(1, 64, width, name="x"), b.constant(1e-4))
    rows = b.node("Add", each, b.input(1, 1, width, name="row"))
    model = b.model(b.node("MatMul", rows, b.weights(width, width, scale=width**-0.5)))
    report = verify_model(save(model, tmp_path / "alike.onnx"), "stcp920", CompileOptions(O0()), OPTIONS)
    assert report.failures == ()
    product = report.layers[-1].channel
    assert product is not None
    assert allowance(64) * product.floor < product.error < product.bound  # 64 rows apart would not be off so far
