"""Wrong input, from the outside: one message that names the thing, exit code 1, no traceback, nothing left."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper

import dsa_sched
from dsa_sched.cli import cli
from tests.small_models import classifier, one_node, save

STCP920 = (resources.files("hw_models") / "chips" / "stcp920.yaml").read_text(encoding="utf-8")


def invoke(*arguments: object) -> Result:
    """Run `dsa-sched` with these arguments; an exception that would be a traceback fails the test."""
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="dsa-sched")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(*arguments: object, folder: Path) -> str:
    """The one message of a command that fails; `folder` must look as before."""
    before = sorted(folder.rglob("*"))
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    progress, _, message = result.stderr.partition("dsa-sched: error: ")
    assert message, result.stderr
    assert "error" not in progress
    assert "Traceback" not in result.stderr
    assert sorted(folder.rglob("*")) == before
    return message


def compile_refused(model: Path | str, folder: Path, *flags: str, chip: str = "stcp920") -> str:
    return refused("compile", model, "--chip", chip, "-o", folder / "out", *flags, folder=folder)


@pytest.mark.parametrize("kept", [0, 1, 100, 1000])
def test_a_truncated_file(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(classifier().SerializeToString()[:kept])
    assert compile_refused(path, tmp_path).startswith(f"{path}: needs a")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("to be, or not to be")
    assert compile_refused(path, tmp_path).startswith(f"{path}: needs a")


def test_a_model_that_does_not_exist_and_one_with_a_typing_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.onnx"
    assert str(missing) in compile_refused(missing, tmp_path)
    message = compile_refused("resnet5", tmp_path)
    assert "did you mean" in message
    assert "resnet50" in message


def test_all_unsupported_operators_are_listed_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Det", ["x"], ["d"], name="first"),
        helper.make_node("Relu", ["d"], ["r"], name="fine"),
        helper.make_node("NonZero", ["r"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "odd",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    message = compile_refused(save(model, tmp_path / "odd.onnx"), tmp_path)
    for word in ("Det", "first", "NonZero", "second", "1x3x8x8"):
        assert word in message
    assert "fine" not in message


def test_an_operator_of_a_foreign_domain(tmp_path: Path) -> None:
    message = compile_refused(save(one_node("Magic", domain="com.example"), tmp_path / "m.onnx"), tmp_path)
    assert "the_magic" in message
    assert "com.example" in message


def test_an_operator_that_the_chip_cannot_compute(tmp_path: Path) -> None:
    """A chip without room for tables."""
    chip = tmp_path / "small.yaml"
    chip.write_text(STCP920.replace("1_310_720", "1_114_112").replace("262_144     # 0.25", "65_536     # 64 KiB, not"))
    message = compile_refused(save(one_node("Log"), tmp_path / "m.onnx"), tmp_path, chip=str(chip))
    needs = "a table of 128 KiB, for which the weights part of L1 must have 256 KiB and has 64 KiB"
    assert f"Log the_log (1x3x8x8): log needs {needs}" in message


def test_an_open_dimension_names_the_input_and_the_flag(tmp_path: Path) -> None:
    message = compile_refused(save(classifier("N"), tmp_path / "m.onnx"), tmp_path)
    assert "input x" in message
    assert "--shape x=" in message


@pytest.mark.parametrize(("shape", "said"), [("z=1,3,12,12", "z"), ("x=1,3,12", "x"), ("x=1,4,12,12", "x")])
def test_a_shape_that_does_not_fit_the_input(tmp_path: Path, shape: str, said: str) -> None:
    assert said in compile_refused(save(classifier("N"), tmp_path / "m.onnx"), tmp_path, "--shape", shape).split(":")[0]


def test_an_unknown_chip_and_an_unknown_field_of_one(tmp_path: Path) -> None:
    model = save(one_node("Relu"), tmp_path / "m.onnx")
    assert "did you mean 'stcp920'?" in compile_refused(model, tmp_path, chip="stcp90")
    file = tmp_path / "mine.yaml"
    file.write_text(STCP920.replace("clusters: 4", "clusters: 4\ncolour: red"), encoding="utf-8")
    message = compile_refused(model, tmp_path, chip=str(file))
    assert "mine.yaml:" in message
    assert "colour" in message


def test_a_chip_whose_instruction_set_has_no_code_generator(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STCP920.replace("isa: neuralscale-v1", "isa: abacus-v2"), encoding="utf-8")
    message = compile_refused(save(one_node("Relu"), tmp_path / "m.onnx"), tmp_path, chip=str(file))
    assert "needs a code generator for abacus-v2; has gemmini-v3, neuralscale-v1" in message
    assert "needs a code generator for abacus-v2" in refused("ops", "--chip", file, folder=tmp_path)


def test_a_tensor_that_cannot_fit(tmp_path: Path) -> None:
    """Two values of 2 GiB each in a DDR of 4 GiB minus what the program needs."""
    message = compile_refused(save(one_node("Relu", (1, 1024, 1024, 1024)), tmp_path / "m.onnx"), tmp_path)
    assert "GiB of DDR" in message
    assert "largest tensor" in message


@pytest.mark.parametrize("flags", [("--level", "O0"), ("--level", "O3"), ("--level", "O3", "--clusters", "4")])
@pytest.mark.parametrize("command", ["compile", "explain"])
@pytest.mark.commit
def test_a_batch_that_no_plan_can_hold_is_refused_before_planning(
    tmp_path: Path, command: str, flags: tuple[str, ...]
) -> None:
    """Planning so many items at O3 would take all the memory of this machine and not end."""
    place = ("-o", tmp_path / "out") if command == "compile" else ()
    message = refused(command, "unet", "--chip", "stcp920", "--batch", 9_000_000, *flags, *place, folder=tmp_path)
    assert message.startswith("graph unet (largest tensor ")
    assert "GiB of DDR; has 3 GiB" in message
    assert "change one of: a smaller batch, a chip with more DDR" in message
    assert "from the start to the end" in message


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    model = save(one_node("Relu"), tmp_path / "m.onnx")
    (tmp_path / "file").write_text("")
    message = refused("compile", model, "--chip", "stcp920", "-o", tmp_path / "file" / "out", folder=tmp_path)
    assert "needs a folder that can be written" in message
    assert "choose another folder with -o" in message


def test_other_peoples_folders_are_left_alone(tmp_path: Path) -> None:
    model = save(one_node("Relu"), tmp_path / "m.onnx")
    message = refused("compile", model, "--chip", "stcp920", "-o", tmp_path, folder=tmp_path)
    assert "needs a folder that is new, empty or an artifact" in message


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    dsa_sched.compile(save(one_node("Relu"), folder / "m.onnx"), chip="stcp920", level="O0").save(folder / "out")
    return folder / "out"


def run_refused(artifact: Path, tmp_path: Path, *flags: str) -> str:
    files = ("--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    return refused("run", artifact, *files, *flags, folder=tmp_path)


def test_run_without_its_input_file(artifact: Path, tmp_path: Path) -> None:
    assert "x.npz: needs an .npz file that can be read; has no such file" in run_refused(artifact, tmp_path)


def test_run_with_files_that_are_no_arrays(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"nothing like it")
    assert "x.npz: needs an .npz file of arrays; has File is not a zip file" in run_refused(artifact, tmp_path)
    np.savez(tmp_path / "x.npz", x=np.array([{"never": "unpickled"}], dtype=object))
    assert "array x.npy: needs a plain array of numbers" in run_refused(artifact, tmp_path)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00")
    assert "array x.npy: needs a plain array of numbers" in run_refused(artifact, tmp_path)


def test_run_refuses_a_small_file_that_unpacks_to_a_large_one(artifact: Path, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(1 << 24, np.uint8))
    assert (tmp_path / "x.npz").stat().st_size < 1 << 16
    assert "needs at most 1.50 KiB of arrays; has 16.00 MiB" in run_refused(artifact, tmp_path)


def test_run_names_inputs_that_do_not_fit(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", y=np.zeros((1, 3, 8, 8), np.float32))
    assert "inputs: needs x; has y" in run_refused(artifact, tmp_path)
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 3, 8, 7), np.float32))
    assert "input x: needs shape [1, 3, 8, 8]; has [1, 3, 8, 7]" in run_refused(artifact, tmp_path)


def test_run_says_why_a_runner_fails_and_writes_nothing(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 3, 8, 8), np.float32))
    assert "needs the dump" in run_refused(artifact, tmp_path, "--runner", "true {elf} {out}")


def test_run_into_a_place_that_cannot_be_written(artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 3, 8, 8), np.float32))
    (tmp_path / "file").write_text("")
    flags = ("--input", tmp_path / "x.npz", "--output", tmp_path / "file" / "y.npz")
    assert "needs a place that can be written" in refused("run", artifact, *flags, folder=tmp_path)


def test_verify_refuses_what_compile_refuses(tmp_path: Path) -> None:
    model = save(classifier("N"), tmp_path / "m.onnx")
    assert "--shape x=" in refused("verify", model, "--chip", "stcp920", folder=tmp_path)
    flags = ("--batch", "1", "--json", tmp_path / "none" / "r.json")
    message = refused("verify", model, "--chip", "stcp920", *flags, folder=tmp_path)
    assert message == f"{tmp_path / 'none' / 'r.json'}: needs a folder that exists; has none; create it first\n"


def test_a_real_process_says_it_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dsa_sched", "compile", "resnet5", "--chip", "stcp920", "-o", "out"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.count("\n") <= 2
    assert "Traceback" not in run.stderr
    assert list(tmp_path.iterdir()) == []
