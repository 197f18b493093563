"""A pack for the executor, and a checkout beside which there is only NumPy, as a GPU machine has it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from benchmarks.gpu.branching import branching_model
from benchmarks.gpu.pack import Wanted, build
from benchmarks.gpu.store import NEEDED
from benchmarks.gpu.study import SMALL_SUBJECTS
from tests.codegen.cutlass.chains.forced import by_floors

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Machine:
    """A folder with the files that steps need, and nothing else."""

    checkout: Path

    def steps(self, pack: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
        """A rehearsal."""
        return self.run(pack, out, "--rehearse", *options)

    def run(self, pack: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
        script = Path(__file__).with_name("numpy_only.py")
        words = [sys.executable, "-P", str(script), str(self.checkout), str(self.checkout / "benchmarks/gpu/steps.py")]
        words += [str(pack), "--out", str(out), *options]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, cwd=out)


@pytest.fixture(scope="session")
def branching_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "branching.onnx"
    onnx.save(branching_model(), path)
    return path


@pytest.fixture(scope="session")
def chip_by_floors(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The H200 without measured rates: there the fused kernel of the network pays."""
    return str(by_floors("h200", tmp_path_factory.mktemp("chip")))


@pytest.fixture(scope="session", params=["network", pytest.param("study", marks=pytest.mark.nightly)])
def pack(
    request: pytest.FixtureRequest, branching_file: Path, chip_by_floors: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """One network, batch 2, with PTX; at night also one with the small subjects of the case study."""
    folder = tmp_path_factory.mktemp("pack")
    subjects = SMALL_SUBJECTS if request.param == "study" else ()
    wanted = Wanted((str(branching_file),), (2,), (chip_by_floors,), ptx=True, small=True, subjects=subjects)
    manifest, _ = build(folder, wanted, lambda _said: None)
    assert not manifest["left_out"]
    return folder


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    checkout = tmp_path_factory.mktemp("checkout")
    for package in NEEDED:
        shutil.copytree(ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))
    return Machine(checkout)
