"""Folders that a stranger made: both runners say what is wrong, and neither ends in any other way.

The runner in C runs under the address and undefined-behaviour sanitizers, on the fake driver.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen.cutlass.runner.executor_driver import ExecutorDriver
from codegen.cutlass.runner.runner import GpuNetwork, RunnerError
from tests.codegen.cutlass.runner.conftest import build
from tests.codegen.cutlass.runner.damages import CHANGES, FILES, TEXTS, Change
from tests.codegen.cutlass.runner.record_damages import RECORDS, Damage
from tests.codegen.cutlass.runner.small_network import example, write_lists

MUTANTS = 150


class CubinDriver(ExecutorDriver):
    """Asks for machine code, so that it is checked, and has the PTX next to it executed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._ptx = (folder / "kernels" / "two.ptx").read_bytes()

    @property
    def loads(self) -> str:
        return "cubin"

    def load(self, image: bytes) -> object:
        assert image[:4] == b"\x7fELF"
        return super().load(self._ptx)


def in_python(folder: Path) -> str:
    """The message of the runner in Python; empty where the network runs."""
    try:
        with GpuNetwork(folder, CubinDriver(folder)) as network:
            network.run({"x/in": example()})
    except RunnerError as error:
        return str(error)
    return ""


def in_c(program: Path, fake_cuda: Path, folder: Path) -> str:
    """The message of the runner in C; empty where the network runs. Sanitizers end the test."""
    raw = folder.parent / "x.bin"
    raw.write_bytes(example().tobytes())
    done = subprocess.run(
        [program, folder, "--input", f"x/in={raw}", "--output", f"y={folder.parent / 'y.bin'}"],
        env=os.environ | {"LD_LIBRARY_PATH": str(fake_cuda)}, capture_output=True, check=False,
    )  # fmt: skip
    error = done.stderr.decode(errors="replace")
    assert "Sanitizer" not in error, error
    assert "runtime error" not in error, error
    assert (done.returncode, error) == (0, "") or (done.returncode == 1 and error.startswith("error: ")), error
    return error


@pytest.mark.parametrize(("change", "python"), [one[1:] for one in CHANGES], ids=[one[0] for one in CHANGES])
def test_lists_that_lie(folder: Path, change: Change, python: str) -> None:
    path = folder / "launches.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    assert re.search(python, in_python(folder)), in_python(folder)


@pytest.mark.parametrize(("damage", "python"), [one[1:] for one in TEXTS], ids=[one[0] for one in TEXTS])
def test_lists_that_are_damaged(folder: Path, damage: Damage, python: str) -> None:
    path = folder / "launches.json"
    path.write_bytes(damage(path.read_bytes()))
    assert re.search(python, in_python(folder)), in_python(folder)


@pytest.mark.parametrize(("damage", "c"), [one[1:] for one in RECORDS], ids=[one[0] for one in RECORDS])
@pytest.mark.commit
def test_records_that_are_damaged(folder: Path, fake_cuda: Path, c_program: Path, damage: Damage, c: str) -> None:
    path = folder / "launches.bin"
    before = path.read_bytes()
    path.write_bytes(damage(before))
    assert path.read_bytes() != before
    assert c in in_c(c_program, fake_cuda, folder), in_c(c_program, fake_cuda, folder)


@pytest.mark.parametrize(("file", "damage", "python", "c"), [one[1:] for one in FILES], ids=[one[0] for one in FILES])
def test_files_that_are_damaged(
    folder: Path, fake_cuda: Path, c_program: Path, file: str, damage: Damage, python: str, c: str
) -> None:
    path = folder / file
    path.write_bytes(damage(path.read_bytes()))
    assert re.search(python, in_python(folder)), in_python(folder)
    assert c in in_c(c_program, fake_cuda, folder), in_c(c_program, fake_cuda, folder)


def test_links_that_lead_out_of_the_folder(folder: Path, fake_cuda: Path, c_program: Path) -> None:
    data = folder / "data" / "c.bin"
    outside = folder.parent / "network.bin"
    data.rename(outside)
    data.symlink_to(outside)
    for message in (in_python(folder), in_c(c_program, fake_cuda, folder)):
        assert "data/c.bin: leads out of the folder" in message


def test_a_folder_behind_a_link_runs(folder: Path, fake_cuda: Path, c_program: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert in_python(link) == ""
    assert in_c(c_program, fake_cuda, link) == ""


def test_other_alphabets_in_names(folder: Path, fake_cuda: Path, c_program: Path) -> None:
    """JSON may escape them; the records hold them in UTF-8."""
    path = folder / "launches.json"
    name = 'größe "z" \\ 入力 \U0001f600/x'
    value = json.loads(path.read_text())
    value["tensors"][0]["name"] = name
    write_lists(folder, value)
    for ascii_only in (True, False):
        path.write_text(json.dumps(value, ensure_ascii=ascii_only), encoding="utf-8")
        with GpuNetwork(folder, ExecutorDriver()) as network:
            assert list(network.inputs) == [name]
    done = subprocess.run(
        [c_program, folder], env=os.environ | {"LD_LIBRARY_PATH": str(fake_cuda)}, capture_output=True, check=True
    )
    described = f"input  {name}: float16 3 40, 240 bytes\noutput y: float16 3 40, 240 bytes\n"
    assert done.stdout.decode() == described


def mutants(data: bytes) -> Iterator[bytes]:
    """Texts with some bytes changed, dropped, doubled or exchanged."""
    draw = random.Random(3)
    for _ in range(MUTANTS):
        changed = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(changed))
            match draw.randrange(4):
                case 0:
                    changed[at] = draw.choice(b'{}[]",:0129-.eE\\u\x00\xffabcx/')
                case 1:
                    del changed[at : at + draw.randint(1, 30)]
                case 2:
                    changed[at:at] = changed[at : at + draw.randint(1, 30)]
                case _:
                    del changed[at:]
        yield bytes(changed)


def test_random_damage_of_the_list_ends_in_a_message_or_a_run(folder: Path) -> None:
    path = folder / "launches.json"
    refused = 0
    for text in mutants(path.read_bytes()):
        path.write_bytes(text)
        refused += bool(in_python(folder))
    assert MUTANTS // 2 < refused < MUTANTS


@pytest.mark.commit
def test_random_damage_of_the_records_ends_in_a_message_or_a_run(
    folder: Path, fake_cuda: Path, c_program: Path
) -> None:
    """Bytes and whole numbers at random places; what else happens is a finding of the sanitizers."""
    path = folder / "launches.bin"
    whole, draw = path.read_bytes(), random.Random(5)
    refused = 0
    for _ in range(MUTANTS):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            at = 4 * draw.randrange(len(changed) // 4)
            value = draw.choice((0, 1, draw.randrange(256), draw.randrange(1 << 32), (1 << 32) - 1))
            changed[at : at + 4] = value.to_bytes(4, "little")
        path.write_bytes(changed)
        refused += bool(in_c(c_program, fake_cuda, folder))
    assert MUTANTS // 4 < refused < MUTANTS


@pytest.mark.parametrize(
    "function",
    ["cuInit", "cuCtxGetCurrent", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuDeviceGetAttribute", "cuMemAlloc",
     "cuMemcpyHtoD", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel", "cuMemcpyDtoH",
     "cuCtxSynchronize"],
)  # fmt: skip
def test_each_function_of_the_driver_may_fail(
    folder: Path, fake_cuda: Path, c_program: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setenv("FAKE_CUDA_FAIL", function)
    assert "out of memory\n" in in_c(c_program, fake_cuda, folder)


def test_no_driver_and_another_device(folder: Path, fake_cuda: Path, c_program: Path, tmp_path: Path,
                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    assert "error: needs an NVIDIA driver: " in in_c(c_program, tmp_path, folder)
    other = tmp_path / "other"
    other.mkdir()
    (other / "empty.c").write_text("int cuInit(unsigned flags) { return (int)flags; }")
    build("-shared", "-fPIC", other / "empty.c", "-o", other / "libcuda.so.1")
    assert "error: the NVIDIA driver lacks cuGetErrorString" in in_c(c_program, other, folder)
    monkeypatch.setenv("FAKE_CUDA_SM", "90")
    assert "machine code for sm_80, the device is sm_90" in in_c(c_program, fake_cuda, folder)
