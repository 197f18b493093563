"""A test that takes too long fails the run where the limit is held, unless its reason is listed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processor_times
from tests.conftest import spread_numbers

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests import processor_times

processor_times.LIMIT_SECONDS = 0.2
processor_times.excused = lambda: {"test_some.py::test_excused": "for this test"}


def pytest_configure(config):
    config.pluginmanager.register(processor_times.ProcessorTimes(None, %s), "times")
"""
TESTS = """
import time


def busy():
    began = time.process_time()
    while time.process_time() - began < 0.4:
        pass


def test_short(): pass


def test_excused(): busy()
"""
LONG = "def test_long(): busy()"
FIRST = "done = []\n\n\ndef test_long(): done or busy(); done.append(1)"


@pytest.mark.parametrize(
    ("added", "enforced", "exit_code"),
    [("", True, 0), (LONG, True, 1), (LONG, False, 0), (FIRST, True, 0)],
    ids=["none too long", "one too long", "not held", "long the first time alone"],
)
@pytest.mark.commit
def test_the_limit_is_held(added: str, enforced: bool, exit_code: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST % enforced)
    (tmp_path / "test_some.py").write_text(f"{TESTS}\n\n{added}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True, check=False)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert ("TOO LONG test_some.py::test_long" in done.stdout) == bool(exit_code)


def test_files_that_are_listed_as_long_exist_the_longest_first() -> None:
    listed = processor_times.long_files()
    assert [path for path in listed if not (ROOT / path).is_file()] == []
    assert list(listed.values()) == sorted(listed.values(), reverse=True)


def test_sums_by_file_are_written_where_they_are_large() -> None:
    seconds = {
        "tests/a.py::test_x[1]": 5.0,
        "tests/a.py::test_y": 4.0,
        "tests/b.py::test_z": 20.0,
        "tests/c.py::t": 1.0,
    }
    assert list(processor_times.files_of(seconds).items()) == [("tests/b.py", 20), ("tests/a.py", 9)]


@pytest.mark.parametrize(("cases", "count"), [(35, 3), (12, 12), (5, 8), (7, 1)])
def test_spread_cases_are_as_many_as_asked_for(cases: int, count: int) -> None:
    chosen = spread_numbers(cases, count)
    assert len(chosen) == min(cases, count)
    assert chosen <= set(range(cases))


def test_spread_cases_differ_in_inner_parameters() -> None:
    """Of 6 networks at 5 levels each, one of each network, at all levels."""
    assert [divmod(number, 5) for number in sorted(spread_numbers(30, 6))] == [(n, n % 5) for n in range(6)]
