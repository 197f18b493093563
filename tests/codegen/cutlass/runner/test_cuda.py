"""Both runners on a CUDA driver: cuda-bindings and the runner in C are the real ones, libcuda.so.1 is a fake one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.codegen.cutlass.runner.cuda_cases import CASES
from tests.codegen.cutlass.runner.small_network import save_input

ROOT = Path(__file__).parents[4]


@pytest.mark.spread(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.commit
def test_on_the_fake_driver(case: object, folder: Path, fake_cuda: Path, c_library: Path, tmp_path: Path) -> None:
    name = getattr(case, "__name__", "")
    module = "tests.codegen.cutlass.runner.cuda_cases"
    places = [folder, fake_cuda / "libcuda.so.1", c_library]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", module, name, *map(str, places)],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(fake_cuda), "FAKE_CUDA_LOG": str(tmp_path / "log")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_copied_runner_runs_alone(folder: Path, fake_cuda: Path, tmp_path: Path) -> None:
    """The folder's own `runner.py`, without this project on the path."""
    save_input(tmp_path / "x.npz")
    files = ["--input", str(tmp_path / "x.npz"), "--output", str(tmp_path / "y.npz"), "--time", "2", "--launches"]
    done = subprocess.run(
        [sys.executable, "-I", str(folder / "runner.py"), str(folder), *files],
        cwd=tmp_path, env=os.environ | {"LD_LIBRARY_PATH": str(fake_cuda)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 launches, 2 runs: median 1.0000 ms, 1.0000 to 1.0000\n  Scale/1 (scale_add): median 0.5" in done.stdout
    with np.load(tmp_path / "y.npz") as file:
        assert file["y"].shape == (3, 40)


def test_without_a_driver_it_says_so(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "libcuda.so.1"
    empty.write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-I", str(folder / "runner.py"), str(folder)],
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: needs an NVIDIA driver: ")


def test_without_cuda_bindings_it_says_so(folder: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); sys.modules['cuda'] = None\n"
        f"import runner; raise SystemExit(runner.main([{str(folder)!r}]))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: needs cuda-bindings: pip install 'cuda-bindings>=13,<14'\n")
