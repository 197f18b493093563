"""compile, run, verify, models and ops as a user meets them: what they print, write, and exit with."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper

import dsa_sched
from benchmarks.lab.readers.layouts import parse_layout
from benchmarks.lab.readers.programs import parse_program
from dsa_sched.cli import cli
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions, Lowered
from dsa_sched.zoo import zoo_names
from isched.lowering.lower import lower_layout
from partitioner.context.plan_context import Context
from partitioner.ir.graph_text import parse_graph
from partitioner.ir.plan import parse_plan
from partitioner.planners.levels import AUTO, EFFORTS, LEVELS, O3, PLANNERS, SPILLS
from tests.small_models import classifier, one_node, save


def invoke(*arguments: object) -> Result:
    """Run `dsa-sched` with these arguments; an exception that would be a traceback fails the test."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(classifier(), tmp_path_factory.mktemp("model") / "classifier.onnx")


@pytest.fixture(scope="module")
def folder(model: Path) -> Path:
    path = model.parent / "out"
    result = invoke("compile", model, "--chip", "stcp920", "--level", "O0", "-o", path)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("classifier for stcp920, O0, batch 1: ")
    return path


@pytest.fixture
def image() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(1, 3, 12, 12)).astype(np.float32)


def test_the_artifact_says_everything_about_itself(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (program,) = manifest["programs"]
    assert program["execution"] == {"kind": "elf", "file": "cluster0/program.elf"}
    assert (program["cluster"], program["cores"]) == (0, 8)
    (x,), (y,) = manifest["inputs"], manifest["outputs"]
    assert (x["name"], x["shape"], x["dtype"]) == ("x", [1, 3, 12, 12], "float32")
    assert (x["layout"], x["device_dtype"], x["bytes"]) == ([0, 2, 3, 1], "float16", 2 * 3 * 12 * 12)
    assert (y["name"], y["shape"], y["device_dtype"]) == ("y", [1, 10], "float16")
    listed = {file["path"] for file in (*program["files"], *manifest["files"])}
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there == listed | {"manifest.json"}
    assert parse_plan((folder / "plan.txt").read_text(encoding="utf-8")).level == "O0"


def test_run_computes_what_onnxruntime_computes(
    model: Path, folder: Path, tmp_path: Path, image: npt.NDArray[np.float32]
) -> None:
    np.savez(tmp_path / "x.npz", x=image)
    result = invoke("run", folder, "--input", tmp_path / "x.npz", "--output", tmp_path / "new" / "y.npz", "--seed", 7)
    assert (result.exit_code, result.stderr) == (0, "running\n")
    assert result.stdout == f"y: float32 [1, 10] in {tmp_path / 'new' / 'y.npz'}\n"
    ours = np.load(tmp_path / "new" / "y.npz")["y"]
    exact = onnxruntime.InferenceSession(model).run(["y"], {"x": image})[0]
    assert ours.dtype == np.float32
    assert np.abs(ours - exact).max() < 2e-3
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["y.npz"]


def test_python_gives_the_same_as_the_command_line(
    model: Path, folder: Path, tmp_path: Path, image: npt.NDArray[np.float32]
) -> None:
    np.savez(tmp_path / "x.npz", x=image)
    assert invoke("run", folder, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz").exit_code == 0
    compiled = dsa_sched.compile(model, chip="stcp920", level="O0").run({"x": image})
    loaded = dsa_sched.load(folder).run({"x": image})
    written = np.load(tmp_path / "y.npz")
    assert np.array_equal(compiled["y"], written["y"])
    assert np.array_equal(loaded["y"], written["y"])


@pytest.mark.parametrize("level", LEVELS)
def test_an_input_may_be_an_output(tmp_path: Path, level: str) -> None:
    """One that something reads, and one that nothing does."""
    x, z, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 8, 8]) for name in "xzy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "passed_on", [x, z], [z, y, x])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = {name: np.random.default_rng(0).integers(-9, 9, (1, 3, 8, 8)).astype(np.float32) for name in "xz"}
    outputs = dsa_sched.compile(save(made, tmp_path / "m.onnx"), "stcp920", level=level).run(given)
    assert list(outputs) == ["z", "y", "x"]
    expected = given | {"y": np.maximum(given["x"], 0)}
    assert all(np.array_equal(outputs[name], expected[name]) for name in outputs)


STAGES: tuple[tuple[str, Callable[[str], object]], ...] = (
    ("graph", parse_graph),
    ("plan", parse_plan),
    ("layout", parse_layout),
    ("program", parse_program),
)


@pytest.mark.parametrize(("stage", "parse"), STAGES)
def test_print_shows_the_text_form_of_a_stage(model: Path, stage: str, parse: Callable[[str], object]) -> None:
    result = invoke("compile", model, "--chip", "stcp920", "--level", "O0", "--print", stage)
    assert result.exit_code == 0
    assert str(parse(result.stdout)) == result.stdout


def test_the_layout_that_is_printed_is_that_of_the_build(model: Path, tmp_path: Path) -> None:
    """Alone, beside an artifact, and, of a scheduled build, the one that its program has."""
    how = ("compile", model, "--chip", "stcp920", "--level", "O3", "--batch", 2, "--print", "layout")
    alone, beside = invoke(*how).stdout, invoke(*how, "-o", tmp_path / "out").stdout
    assert alone == beside
    assert not parse_layout(alone).options.rounds_ahead
    ahead = parse_layout(invoke(*how, "--schedule").stdout).options
    found = compile_model(model, "stcp920", CompileOptions(O3(), 2, schedule=True))
    assert ahead == found.layout.options
    assert isinstance(found.made, Lowered)
    ctx = Context(found.model.graph, found.model.constants, found.chip, found.made.target)
    program = lower_layout(found.layout, ctx, ctx.target.data_base_bytes)
    work = [
        sorted((i.opcode, i.operands, i.reads, i.writes) for i in p.streams[0].instrs if i.engine != "sync")
        for p in (program, found.program)
    ]
    assert work[0] == work[1], "a schedule is another order of what the layout is lowered to"


def test_a_layout_needs_no_code_generator(model: Path, tmp_path: Path) -> None:
    chip = (Path(__file__).parents[2] / "hw_models" / "chips" / "stcp920.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(chip.replace("isa: neuralscale-v1", "isa: not-there-yet"), encoding="utf-8")
    how = ("compile", model, "--chip", tmp_path / "mine.yaml", "--print", "layout")
    assert parse_layout(invoke(*how).stdout).steps
    refused = invoke(*how, "--schedule")
    assert refused.exit_code == 1
    assert "needs a code generator for not-there-yet" in refused.stderr


def test_print_asm_shows_the_assembly_of_the_artifact(model: Path, folder: Path) -> None:
    result = invoke("compile", model, "--chip", "stcp920", "--level", "O0", "--print", "asm")
    assert result.stdout == (folder / "cluster0" / "program.s").read_text(encoding="utf-8")


def test_verify_passes_prints_a_table_and_writes_json(model: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    result = invoke("verify", model, "--chip", "stcp920", "--level", "O0", "--batch", 2, "--json", report)
    assert result.exit_code == 0, result.stdout
    lines = result.stdout.splitlines()
    assert lines[0] == "classifier on stcp920, O0, batch 2, 2 inputs"
    assert [line.split()[0] for line in lines[3:10]] == ["conv1", "conv2", "pool", "mean", "fc", "softmax", "total"]
    assert lines[-1] == "passed"
    assert "ran the network on input 1 of 2" in result.stderr
    assert json.loads(report.read_text(encoding="utf-8"))["passed"] is True


@pytest.mark.nightly
def test_verify_exits_3_on_a_mismatch(model: Path, tmp_path: Path) -> None:
    """A runner that runs the program well and then zeroes its last bytes."""
    runner = tmp_path / "runner.py"
    runner.write_text(
        "import pathlib, subprocess, sys\n"
        "elf, cores, loads, dumps, out = sys.argv[1:]\n"
        "subprocess.run([sys.executable, '-m', 'dsa_sched', 'iss', elf, '--cores', cores, '--load', loads,\n"
        "                '--dump', dumps, '--dump-path', out], check=True)\n"
        "for path in pathlib.Path(out).iterdir():\n"
        "    path.write_bytes(path.read_bytes()[:-2] + bytes(2))\n"
    )
    command = f"{sys.executable} {runner} {{elf}} {{cores}} {{loads}} {{dumps}} {{out}}"
    result = invoke("verify", model, "--chip", "stcp920", "--level", "O0", "--runner", command)
    assert result.exit_code == 3
    assert result.stdout.splitlines()[-1] == "FAILED"
    assert "failed: constant " in result.stdout
    assert "failed: layer fc: " in result.stdout


def test_models_lists_the_zoo_with_sizes() -> None:
    result = invoke("models")
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == list(zoo_names())
    resnet = next(row for row in rows if row[0] == "resnet50")
    assert resnet[-6:] == ["176", "25.6", "M", "4.089", "21.20", "MiB"]
    mini = next(row for row in rows if row[0] == "mobilenet_v2-mini")
    assert mini[-6:] == ["48", "26", "k", "0.002", "152.03", "KiB"]
    bert = next(row for row in rows if row[0] == "bert_base")
    assert bert[1:] == ["input_ids", "[1,", "128]", "and", "2", "more", "400", "109.5", "M", "11.174", "27.00", "MiB"]


def test_ops_lists_every_kind_with_its_rules() -> None:
    from codegen.neuralscale.kernels.dispatch import TEMPLATES

    result = invoke("ops", "--chip", "stcp920")
    operators, _, kinds = result.stdout.split("\n\n")
    rows = kinds.splitlines()[1:]
    assert [row.split()[0] for row in rows] == list(TEMPLATES)
    assert all(len(row.split()) > 3 for row in rows)
    assert {row.split()[1] for row in operators.splitlines() if row.startswith("Conv ")} == {"yes", "no"}


def test_help_says_what_each_level_does_and_how_values_are_spilled() -> None:
    shown = " ".join(invoke("compile", "--help").stdout.split())
    assert f"[{'|'.join((*LEVELS, AUTO))}]" in shown
    assert f"[{'|'.join(EFFORTS)}]" in shown
    assert f"[{'|'.join(SPILLS)}]" in shown
    assert all(f"{name}: {kind.summary}" in shown for name, kind in PLANNERS.items())


def test_help_loads_no_planner() -> None:
    """So that it comes at once."""
    code = "import sys, dsa_sched.commands.compile; assert not {'numpy', 'pydantic'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["compile", "m.onnx", "-o", "out"],
            "There is no default chip. Built-in chips: a100, gemmini, gemmini_32, h100, h200, stcp920; or",
        ),
        (["verify", "squeezenet"], "There is no default chip."),
        (["verify", "m.onnx"], "m.onnx is not a folder that compile wrote, a file, or a network of the zoo"),
        (["time", "none.out"], "none.out is not a folder that compile wrote, a file, or a network of the zoo"),
        (["ops"], "There is no default chip."),
        (["compile", "m.onnx", "--chip", "stcp920"], "Nothing to do: give -o DIR, --print STAGE or both."),
        (["compile", "m.onnx", "--chip", "stcp920", "--shape", "x=1,0"], "for example data=1,3,224,224"),
        (["compile", "m.onnx", "--chip", "stcp920", "--shape", "1,3"], "is not NAME=N,C,H,W"),
        (["compile", "m.onnx", "--chip", "stcp920", "--level", "O9"], "'O9' is not"),
        (["compile", "m.onnx", "--chip", "stcp920", "--batch", "0"], "0 is not in the range"),
        (["verify", "m.onnx", "--chip", "stcp920", "--inputs", "1"], "1 is not in the range"),
        (["run", "out", "--input", "x.npz"], "Missing option '--output'"),
    ],
)
def test_wrong_usage_exits_2_and_says_what_is_right(arguments: list[str], said: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.commit
def test_open_dimensions_come_from_shape_or_batch(tmp_path: Path) -> None:
    path = save(classifier("N"), tmp_path / "open.onnx")
    for flags in (["--shape", "x=2,3,12,12"], ["--batch", "2"]):
        result = invoke("compile", path, "--chip", "stcp920", "-o", tmp_path / "out", *flags)
        assert result.exit_code == 0, result.stderr
        assert "batch 2" in result.stdout
        assert dsa_sched.load(tmp_path / "out").manifest.inputs[0].shape == (2, 3, 12, 12)


def digest(folder: Path) -> str:
    """Names and bytes of every file."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            total.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return total.hexdigest()


@pytest.mark.parametrize("seed", ["1", pytest.param("271828", marks=pytest.mark.nightly)])
def test_compiling_elsewhere_under_another_hash_seed_gives_the_same_bytes(
    model: Path, tmp_path: Path, seed: str
) -> None:
    """At the level that is taken when none is said, which searches."""
    assert invoke("compile", model, "--chip", "stcp920", "-o", tmp_path / "here").exit_code == 0
    away = model.parent / f"elsewhere{seed}"
    away.mkdir()
    copy = away / "another_name.onnx"
    copy.write_bytes(model.read_bytes())
    command = [sys.executable, "-m", "dsa_sched", "compile", str(copy), "--chip", "stcp920", "-o", "out"]
    subprocess.run(command, cwd=away, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True)
    assert digest(away / "out") == digest(tmp_path / "here")


def test_a_model_without_weights_works_too(tmp_path: Path) -> None:
    path = save(one_node("Relu"), tmp_path / "relu.onnx")
    result = invoke("verify", path, "--chip", "stcp920")
    assert result.exit_code == 0, result.stdout
    assert "constants: 0, 0 bytes" in result.stdout
