"""Prices that are kept: found again, never trusted when they are no times."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsa_sched.io.cost_cache import CostCache
from hw_models.cache import Cache


@pytest.mark.parametrize("price", [0, 123456789])
def test_what_was_kept_is_found(tmp_path: Path, price: int) -> None:
    times = CostCache(Cache(tmp_path))
    assert times.find("part", "device") is None
    times.keep("part", "device", price)
    assert times.find("part", "device") == price
    assert times.find("part", "another device") is None
    assert times.find("another part", "device") is None
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"-5", b"1e3", b" 7", b"7\n", b"true", b"9" * 16, b"[" * 5000, b"\xb2"])
def test_entries_that_are_no_times_are_absent_and_made_anew(tmp_path: Path, content: bytes) -> None:
    cache = Cache(tmp_path)
    times = CostCache(cache)
    times.keep("part", "device", 1000)
    (file,) = tmp_path.iterdir()
    cache.keep(file.name, f"{file.name} ".encode() + content)
    assert times.find("part", "device") is None
    times.keep("part", "device", 1000)
    assert times.find("part", "device") == 1000


def test_the_users_folder_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert CostCache.of_user("costs").cache.folder == tmp_path / "dsa-sched" / "costs"
