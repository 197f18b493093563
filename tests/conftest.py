"""One setting for all property tests: the same examples every time, so that a red run is red for everybody.

Look for new examples with `python -m pytest --hypothesis-profile=explore`. `--update-goldens` writes the goldens of the
tests that run (tests/golden) in the place of comparing them.
"""

from __future__ import annotations

import gc
import os
from itertools import pairwise

import pytest
from hypothesis import settings

from tests.processor_times import ProcessorTimes, long_files

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
    """`slow(at_commit=N)`, `spread(N)`: N cases of a function are run at every commit; the others are nightly.

    Files that take longest come first, so that no worker is left with one of them at the end.
    """
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        slow, spread = (item.get_closest_marker(name) for name in ("slow", "spread"))
        count = slow.kwargs.get("at_commit") if slow else spread.args[0] if spread else None
        if count is not None:
            cases.setdefault((item.nodeid.split("[")[0], count), []).append(item)
    for (_, count), together in cases.items():
        chosen = spread_numbers(len(together), count)
        for number, item in enumerate(together):
            if number not in chosen:
                item.add_marker(pytest.mark.nightly)
    seconds = long_files()
    items.sort(key=lambda item: -seconds.get(item.nodeid.split("::")[0], 0.0))


def spread_numbers(cases: int, count: int) -> set[int]:
    """One of each of `count` stretches of equal length: of the first its first, of the second its second, and so on, so
    that inner parameters differ where their number divides that length."""
    ends = [number * cases // count for number in range(count + 1)]
    return {low + number % (high - low) for number, (low, high) in enumerate(pairwise(ends)) if high > low}


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-goldens"))
