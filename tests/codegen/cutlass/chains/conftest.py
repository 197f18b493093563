"""Whole models compiled: what nvcc makes of them stays in pytest's cache between runs, not in the user's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def nvcc_cache(request: pytest.FixtureRequest) -> Iterator[None]:
    assert request.config.cache is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("nvcc")))
        yield
