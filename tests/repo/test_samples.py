"""Every sample runs as it is, and leaves nothing where it is called."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("[0-9]*.py"))
LONG = ("03_place", "04_gpu", "06_what_if")
"""Which take 12 to 25 seconds each: their types are checked at every commit, and they run at night."""


def marked(sample: Path) -> object:
    return pytest.param(sample, marks=pytest.mark.nightly if sample.stem in LONG else (), id=sample.stem)


@cache
def said(sample: Path) -> str:
    """What the sample prints."""
    with TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, str(sample)], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not [*Path(folder).iterdir()]
    return done.stdout


@pytest.mark.parametrize("sample", [*map(marked, SAMPLES)])
@pytest.mark.commit
def test_sample_runs(sample: Path) -> None:
    assert said(sample).strip()


def test_first_sample_agrees_with_onnxruntime() -> None:
    found = re.search(r"relative error against onnxruntime: (\S+)", said(SAMPLES[0]))
    assert found
    assert float(found[1]) < 5e-3


def test_all_levels_leave_the_same_bits() -> None:
    lines = said(SAMPLES[1]).splitlines()
    assert [line.split(":")[0] for line in lines] == ["O0", "O1", "O2", "O3"]
    assert all(line.endswith("the bits of O0: True") for line in lines)


@pytest.mark.nightly
def test_the_exact_method_places_no_worse_than_others() -> None:
    rows = [line.split() for line in said(SAMPLES[2]).splitlines()[1:6]]
    assert {row[0] for row in rows} == {"single", "heft", "duet", "sphinx", "exact"}
    times = {row[0]: float(row[2]) for row in rows}  # method, tasks, makespan
    assert times["exact"] == min(times.values()) > 0
