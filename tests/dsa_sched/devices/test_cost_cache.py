"""Prices that are kept: found again, never trusted when they are not what was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsa_sched.io.cost_cache import CostCache


@pytest.mark.parametrize("price", [0, 123456789])
def test_what_was_kept_is_found(tmp_path: Path, price: int) -> None:
    cache = CostCache(tmp_path / "made" / "here")
    assert cache.find("part", "device") is None
    cache.keep("part", "device", price)
    assert cache.find("part", "device") == price
    assert cache.find("part", "another device") is None
    assert cache.find("another part", "device") is None
    assert len(list(cache.folder.iterdir())) == 1


def file_of(cache: CostCache) -> Path:
    cache.keep("part", "device", 1000)
    (file,) = cache.folder.iterdir()
    return file


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[" * 5000,
        b"[" * 3000,
        b"{}",
        b"null",
        b'{"ns": 1}',
        b'{"ns": -5}',
        b'{"ns": 1e3}',
        b'{"ns": true}',
        b'{"ns": 99999999999999999999}',
        b"\xff\xfe",
        b" " * (1 << 20),
    ],
)
def test_damaged_entries_are_absent_and_made_anew(tmp_path: Path, content: bytes) -> None:
    cache = CostCache(tmp_path)
    file = file_of(cache)
    file.write_bytes(content)
    assert cache.find("part", "device") is None
    cache.keep("part", "device", 1000)
    assert cache.find("part", "device") == 1000


def test_changed_numbers_and_entries_of_other_parts_are_absent(tmp_path: Path) -> None:
    cache = CostCache(tmp_path)
    file = file_of(cache)
    good = file.read_bytes()
    file.write_bytes(json.dumps({**json.loads(good), "ns": 1}, indent=1).encode() + b"\n")
    assert cache.find("part", "device") is None
    cache.keep("other", "device", 5)
    (other,) = set(tmp_path.iterdir()) - {file}
    other.write_bytes(good)
    assert cache.find("other", "device") is None


def test_a_folder_that_cannot_be_made_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CostCache(tmp_path / "file" / "folder")
    cache.keep("part", "device", 1)
    assert cache.find("part", "device") is None


def test_folders_in_place_of_entries_are_absent(tmp_path: Path) -> None:
    cache = CostCache(tmp_path)
    file = file_of(cache)
    file.unlink()
    file.mkdir()
    assert cache.find("part", "device") is None
    cache.keep("part", "device", 1)
    assert list(tmp_path.iterdir()) == [file]


def test_the_users_folder_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = CostCache.of_user()
    assert cache is not None
    assert cache.folder == tmp_path / "dsa-sched" / "costs"
