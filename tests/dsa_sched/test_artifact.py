"""Artifact folders from strangers: what is wrong with one is said in one message, nothing outside is read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dsa_sched
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.tensors import TensorEntry, from_device, to_device
from hw_models.errors import ModelError, TargetError
from tests.small_models import one_node, save

Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return dsa_sched.compile(
        save(one_node("Relu"), tmp_path_factory.mktemp("model") / "m.onnx"), chip="stcp920", level="O0"
    )


@pytest.fixture
def folder(artifact: Artifact, tmp_path: Path) -> Path:
    artifact.save(tmp_path / "out")
    return tmp_path / "out"


def test_save_and_load_are_inverse(artifact: Artifact, folder: Path, tmp_path: Path) -> None:
    loaded = Artifact.load(folder)
    assert loaded.manifest == artifact.manifest
    loaded.save(tmp_path / "again")
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 6
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (folder / file).read_bytes()


def test_saving_replaces_an_artifact_and_nothing_else(artifact: Artifact, folder: Path, tmp_path: Path) -> None:
    artifact.save(folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(TargetError, match=r"has other files \(notes\.txt\)"):
        artifact.save(folder)
    assert (folder / "notes.txt").read_text() == "mine"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(TargetError, match=r"mine: needs a folder that is new, empty or an artifact; has other files"):
        artifact.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "out"], "nothing half-written is left"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_saving_that_is_interrupted_leaves_what_was_there(
    artifact: Artifact, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Between moving the old folder away and putting the new one in its place both are scratch."""
    replace, before = os.replace, (folder / "manifest.json").stat().st_ino

    def interrupted(source: Path, target: Path) -> None:
        if source.name == "new":
            raise error
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(TargetError if error is OSError else error):
        artifact.save(folder)
    assert (folder / "manifest.json").stat().st_ino == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    Artifact.load(folder)


def test_saving_where_nothing_can_be_written(artifact: Artifact, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TargetError, match=r"needs a folder that can be written; has (Not a directory|File exists)"):
        artifact.save(tmp_path / "file" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def elf(manifest: Manifest) -> Manifest:
    """The entry of the executable among the files of the program."""
    entry: Manifest = manifest["programs"][0]["files"][0]
    return entry


def escape(manifest: Manifest) -> None:
    elf(manifest)["path"] = "../outside/program.elf"


def absolute(manifest: Manifest) -> None:
    elf(manifest)["path"] = "/etc/hostname"


def wrong_hash(manifest: Manifest) -> None:
    elf(manifest)["sha256"] = "0" * 64


def wrong_size(manifest: Manifest) -> None:
    elf(manifest)["bytes"] += 1


def huge_tensor(manifest: Manifest) -> None:
    manifest["inputs"][0]["shape"] = [1 << 20, 3, 1 << 20, 8]


def huge_address(manifest: Manifest) -> None:
    manifest["inputs"][0]["address"] = 1 << 50


def bad_layout(manifest: Manifest) -> None:
    manifest["outputs"][0]["layout"] = [0, 1, 1, 3]


def negative_layout(manifest: Manifest) -> None:
    manifest["outputs"][0]["layout"] = [0, 2, 3, -3]


def negative_shape(manifest: Manifest) -> None:
    manifest["inputs"][0]["shape"] = [1, -3, -8, 8]


def other_format(manifest: Manifest) -> None:
    manifest["format"] = "dsa-sched-artifact/4"


def object_dtype(manifest: Manifest) -> None:
    manifest["inputs"][0]["dtype"] = "object"


def unknown_field(manifest: Manifest) -> None:
    manifest["run_this"] = "rm -rf"


def older_with_a_long_number(manifest: Manifest) -> None:
    manifest.update(format="dsa-sched-artifact/2", batch="LONG")


def no_cores(manifest: Manifest) -> None:
    manifest["programs"][0]["cores"] = 0


def odd_execution(manifest: Manifest) -> None:
    manifest["programs"][0]["execution"]["kind"] = "rm -rf"


def no_programs(manifest: Manifest) -> None:
    manifest["programs"] = []


def missing_elf(manifest: Manifest) -> None:
    manifest["programs"][0]["execution"]["file"] = "cluster0/other.elf"


def missing_field(manifest: Manifest) -> None:
    del manifest["chip"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (escape, "needs files inside the folder; has ../outside/program.elf"),
        (absolute, "needs files inside the folder; has /etc/hostname"),
        (wrong_hash, "has another SHA-256; compile again"),
        (wrong_size, "program.elf: needs "),
        (huge_tensor, "bytes of x; has 384"),
        (huge_address, "inputs.0.address"),
        (bad_layout, "needs a layout of y that permutes its axes"),
        (negative_layout, "needs a layout of y that permutes its axes"),
        (negative_shape, "inputs.0.shape.1"),
        (other_format, "needs a manifest of format dsa-sched-artifact/3"),
        (object_dtype, "inputs.0.dtype"),
        (unknown_field, "run_this"),
        (no_programs, "programs"),
        (missing_elf, "needs the file cluster0/other.elf"),
        (older_with_a_long_number, "needs a manifest of format dsa-sched-artifact/3"),
        (no_cores, "machine code needs at least one core"),
        (odd_execution, "programs.0.execution.kind"),
        (missing_field, "chip"),
    ],
)
def test_hostile_manifests_are_refused(folder: Path, change: Callable[[Manifest], None], said: str) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "program.elf").write_bytes((folder / "cluster0" / "program.elf").read_bytes())
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest).replace('"LONG"', "9" * 5000), encoding="utf-8")
    with pytest.raises(TargetError) as caught:
        dsa_sched.load(folder)
    assert said in str(caught.value)


def test_a_manifest_that_is_cut_off_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(TargetError, match=r"needs a manifest of format dsa-sched-artifact/3; has Invalid JSON: EOF"):
        dsa_sched.load(folder)


@pytest.mark.parametrize("content", [b"", b"not a program", b"\x7fELF" + bytes(60)])
def test_a_program_that_is_none_is_refused_when_it_runs(folder: Path, content: bytes) -> None:
    """Size and hash are right; the simulator says what the file lacks."""
    (folder / "cluster0" / "program.elf").write_bytes(content)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    elf(manifest).update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(TargetError, match=r"program\.elf: "):
        dsa_sched.load(folder).run({"x": np.zeros((1, 3, 8, 8))})


def test_more_cores_than_a_cluster_has_are_refused_when_it_runs(folder: Path) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["programs"][0]["cores"] = 99
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(TargetError, match="99"):
        dsa_sched.load(folder).run({"x": np.zeros((1, 3, 8, 8))})


def test_a_changed_file_is_refused(folder: Path) -> None:
    program = folder / "cluster0" / "program.elf"
    data = bytearray(program.read_bytes())
    data[-1] ^= 1
    program.write_bytes(bytes(data))
    with pytest.raises(TargetError, match="another SHA-256"):
        dsa_sched.load(folder)


def test_a_link_out_of_the_folder_is_refused(folder: Path) -> None:
    program = folder / "cluster0" / "program.elf"
    program.rename(folder.parent / "elsewhere.elf")
    program.symlink_to(folder.parent / "elsewhere.elf")
    with pytest.raises(TargetError, match="needs files inside the folder"):
        dsa_sched.load(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"{}", b"[" * 100_000])
def test_a_manifest_that_is_none_is_refused(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(TargetError, match=r"manifest\.json: needs a manifest of format"):
        dsa_sched.load(folder)


def test_a_folder_without_a_manifest_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="name a folder that `dsa-sched compile` wrote"):
        dsa_sched.load(tmp_path)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "inputs: needs x; has none"),
        ({"x": np.zeros((1, 3, 8, 8)), "z": np.zeros(1)}, "inputs: needs x; has x, z"),
        ({"x": np.zeros((1, 8, 8, 3))}, "input x: needs shape [1, 3, 8, 8]; has [1, 8, 8, 3]"),
        ({"x": np.full((1, 3, 8, 8), "a")}, "input x: needs numbers (float32); has <U1"),
    ],
)
def test_wrong_inputs_are_named(artifact: Artifact, inputs: dict[str, npt.NDArray[np.generic]], said: str) -> None:
    with pytest.raises(ModelError) as caught:
        artifact.run(inputs)
    assert str(caught.value) == said


def test_arrays_come_back_as_they_went() -> None:
    entry = TensorEntry(
        name="t",
        kind="value",
        shape=(2, 3, 4, 5),
        dtype="float32",
        layout=(0, 2, 3, 1),
        device_dtype="float16",
        address=0,
        bytes=240,
    )
    array = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    data = to_device(entry, array)
    assert np.array_equal(np.frombuffer(data, np.float16).reshape(2, 4, 5, 3), array.transpose(0, 2, 3, 1))
    assert np.array_equal(from_device(entry, data), array)


@pytest.mark.parametrize(
    ("runner", "said"),
    [
        ("", "needs a command with {elf}, {cores}, {cluster}, {loads}, {dumps}, {out}; has nothing"),
        ("simulate", "needs a command with {elf}"),
        ("simulate '{elf} {out}", "needs a command that a shell could split"),
        ("no-such-simulator {elf} {out}", "needs the command no-such-simulator; has No such file"),
        ("sh -c 'echo broken pipe >&2; exit 4' {elf} {out}", "needs exit code 0; has 4: broken pipe"),
        ("true {elf} {out}", "needs the dump 0x"),
        ("sh -c 'for r in $(echo $2 | tr , \" \"); do echo > $1/$(echo $r | tr : _).bin; done' - {out} {dumps} {elf}",
         "has 1"),
    ],
)  # fmt: skip
def test_a_runner_that_cannot_be_used_is_named(artifact: Artifact, runner: str, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        artifact.run({"x": np.zeros((1, 3, 8, 8))}, runner)
    assert str(caught.value).startswith("--runner: ")
    assert said in str(caught.value)
