"""One setting for all property tests: the same examples every time, so that a red run is red for everybody.

Look for new examples with `python -m pytest --hypothesis-profile=explore`. `--update-goldens` writes the goldens of the
tests that run (tests/golden) in the place of comparing them.
"""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

from tests.processor_times import ProcessorTimes

os.environ["DSA_SCHED_BUILD_CACHE"] = "off"  # tests compile what they say that they compile
os.environ["DSA_SCHED_JOBS"] = "1"  # the workers that run the tests take all cores already

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write the goldens of the tests that run")
    parser.addoption("--processor-times", metavar="FILE", help="write the processor seconds of every test as JSON")
    parser.addoption("--processor-limit", action="store_true", help="fail where an ordinary test takes too long")


def pytest_configure(config: pytest.Config) -> None:
    times = ProcessorTimes(config.getoption("--processor-times"), config.getoption("--processor-limit"))
    config.pluginmanager.register(times, "processor_times")


def pytest_collection_finish() -> None:
    """Thousands of tests and all modules stay to the end: the collector need not walk them after every network."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`slow(at_commit=N)`: N cases of a function, evenly spread, are run at every commit; the others are nightly."""
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("slow")
        if marker and "at_commit" in marker.kwargs:
            cases.setdefault((item.nodeid.split("[")[0], marker.kwargs["at_commit"]), []).append(item)
    for (_, count), together in cases.items():
        chosen = {number * len(together) // count for number in range(count)}
        for number, item in enumerate(together):
            if number not in chosen:
                item.add_marker(pytest.mark.nightly)


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-goldens"))
