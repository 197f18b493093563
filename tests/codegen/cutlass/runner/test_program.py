"""The program around the runner in C: what it says, and how CMake builds it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.codegen.cutlass.runner.small_network import example


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "needs one for each input"),
        (["--input", "x/in=missing.bin"], "missing.bin: No such file or directory"),
        (["--input", "y=x.bin"], "y=x.bin: does not name an input of this network"),
        (["--input", "x/in"], "x/in: does not name an input of this network"),
        (["--input", "x/in=short.bin"], "short.bin: needs 240 bytes"),
        (["--input", "x/in=long.bin"], "long.bin: needs 240 bytes"),
        (["--input", "x/in=x.bin", "--output", "z=y.bin"], "z=y.bin: does not name an output of this network"),
        (["--input", "x/in=x.bin", "--output", "y=missing/y.bin"], "missing/y.bin: No such file or directory"),
        (["--inputs", "x/in=x.bin"], "usage: "),
        (["--input"], "usage: "),
    ],
)
def test_the_program_says_what_is_wrong(
    folder: Path, fake_cuda: Path, c_program: Path, tmp_path: Path, arguments: list[str], told: str
) -> None:
    for name, size in (("x", 240), ("short", 239), ("long", 241)):
        (tmp_path / f"{name}.bin").write_bytes(bytes(size))
    if not arguments:
        arguments = ["--output", "y=y.bin"]
    done = subprocess.run(
        [c_program, folder, *arguments], cwd=tmp_path,
        env=os.environ | {"LD_LIBRARY_PATH": str(fake_cuda)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert told in done.stderr


def test_the_folder_is_built_by_cmake_and_runs(folder: Path, fake_cuda: Path, tmp_path: Path) -> None:
    """As README.txt says. Without a GPU nothing is computed: the output is what fresh memory holds."""
    (tmp_path / "x.bin").write_bytes(example().tobytes())
    for command in (["cmake", "-S", ".", "-B", "build", "-DCMAKE_C_FLAGS=-Werror"], ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run(
        ["build/dsa_run", ".", "--input", f"x/in={tmp_path / 'x.bin'}", "--output", f"y={tmp_path / 'y.bin'}"],
        cwd=folder, env=os.environ | {"LD_LIBRARY_PATH": str(fake_cuda)}, check=True,
    )  # fmt: skip
    assert np.isnan(np.fromfile(tmp_path / "y.bin", np.float16)).all()
    assert (folder / "build" / "libdsa_runner.a").is_file()
