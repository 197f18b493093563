"""One setting for all property tests: the same examples every time, so that a red run is red for everybody.

Look for new examples with `python -m pytest --hypothesis-profile=explore`. `--update-goldens` writes the goldens of the
tests that run (tests/golden) in the place of comparing them.
"""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write the goldens of the tests that run")


def pytest_collection_finish() -> None:
    """Thousands of tests and all modules stay to the end: the collector need not walk them after every network."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def update_goldens(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-goldens"))
