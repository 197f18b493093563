"""Processor time of every test: what the slowest take, and which ordinary tests take more than they may.

    a test  --os.times of its process and of the processes that it waited for-->  seconds  -->  ten slowest, the limit

`tests/conftest.py` registers the plugin. A test over the limit is run a second time before it counts, since the first
run pays for what later ones share: a network that is compiled once per worker, a function that numba compiles.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

__all__ = ["ProcessorTimes"]

LIMIT_SECONDS = 5.0
"""For a test without the marker `slow` or `nightly`."""
SHOWN = 10
TIMES, OVER = "processor_seconds", "over_the_limit"
EXCUSED = Path(__file__).with_name("long_tests.json")
"""Ordinary tests that may take longer, or the functions of such, and why."""
LONG_FILES = Path(__file__).with_name("long_files.json")
"""Processor seconds of the files that take longest at a commit; see `long_files`."""
LEAST_SECONDS = 8.0
"""Of a file that is listed there."""


def processor_seconds() -> float:
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


class ProcessorTimes:
    """A plugin of pytest: measures where tests run, and reports where their results come together."""

    def __init__(self, json_path: str | None, enforced: bool) -> None:
        self.json_path = json_path
        self.enforced = enforced
        self.began = self.taken = 0.0
        self.seconds: dict[str, float] = {}
        self.over: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: pytest.Item | None) -> Generator[None, object, object]:
        self.began = processor_seconds()
        result = yield
        ordinary = not any(item.get_closest_marker(name) for name in ("slow", "nightly"))
        if self.enforced and ordinary and self.taken > LIMIT_SECONDS and item.nodeid.split("[")[0] not in excused():
            self.over[item.nodeid] = min(self.taken, _again(item, nextitem))
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "teardown":
            self.taken = processor_seconds() - self.began
            item.user_properties.append((TIMES, round(self.taken, 3)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.seconds.update(
                (report.nodeid, float(str(value))) for name, value in report.user_properties if name == TIMES
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.over = {name: taken for name, taken in self.over.items() if taken > LIMIT_SECONDS}
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[OVER] = self.over
            return
        if self.json_path:
            Path(self.json_path).write_text(json.dumps(dict(sorted(self.seconds.items())), indent=0))
        if self.over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker of pytest-xdist found."""
        self.over.update(getattr(node, "workeroutput", {}).get(OVER, {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        slowest = sorted(self.seconds.items(), key=lambda each: -each[1])[:SHOWN]
        if len(self.seconds) > SHOWN:
            terminalreporter.section(f"processor time: {sum(self.seconds.values()):.0f} s, the slowest tests")
            for name, taken in slowest:
                terminalreporter.write_line(f"{taken:8.1f} s  {name}")
        for name, taken in sorted(self.over.items()):
            terminalreporter.write_line(
                f"TOO LONG {name}: {taken:.1f} s of processor time; an ordinary test may take {LIMIT_SECONDS:.0f}: "
                f"make it smaller, mark it `commit`, or give the reason in tests/{EXCUSED.name}"
            )


def excused() -> dict[str, str]:
    return dict(json.loads(EXCUSED.read_text()))


def long_files() -> dict[str, float]:
    """The order of files counts, not the numbers: `python -m tests.processor_times FILE` writes them anew, from what
    `--processor-times FILE` wrote of a whole run."""
    return dict(json.loads(LONG_FILES.read_text())) if LONG_FILES.exists() else {}


def files_of(seconds: dict[str, float]) -> dict[str, float]:
    """The sums by file that are `LEAST_SECONDS` and more, the largest first."""
    sums: dict[str, float] = {}
    for name, taken in seconds.items():
        path = name.split("::")[0]
        sums[path] = sums.get(path, 0.0) + taken
    listed = sorted((path for path in sums if sums[path] >= LEAST_SECONDS), key=lambda path: (-sums[path], path))
    return {path: round(sums[path]) for path in listed}


def _again(item: Any, nextitem: pytest.Item | None) -> float:
    """Processor time of a second run."""
    began = processor_seconds()
    item._initrequest()
    runtestprotocol(item, nextitem=nextitem, log=False)
    return processor_seconds() - began


if __name__ == "__main__":
    LONG_FILES.write_text(json.dumps(files_of(json.loads(Path(sys.argv[1]).read_text())), indent=1) + "\n")
