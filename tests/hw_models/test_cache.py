"""Results that are kept: found again, never trusted when they are not what was written, and bounded in size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hw_models.cache import Cache, key_of

WRITE = """
import sys
from pathlib import Path
from hw_models.cache import Cache
cache = Cache(Path(sys.argv[1]), 4000)
for number in range(60):
    cache.keep(f"{number % 7}", bytes([number % 7]) * 900)
    found = cache.find(f"{(number + 3) % 7}")
    assert found in (None, bytes([(number + 3) % 7]) * 900)
"""


@pytest.mark.parametrize("data", [b"", b"\n", b"a\nb", bytes(100_000)])
def test_what_was_kept_is_found(tmp_path: Path, data: bytes) -> None:
    cache = Cache(tmp_path / "made" / "here")
    assert cache.find("key") is None
    cache.keep("key", data)
    assert cache.find("key") == data
    assert cache.find("another") is None
    assert [file.name for file in (tmp_path / "made" / "here").iterdir()] == ["key"]


@pytest.mark.parametrize("damage", [b"", b"x", b"0" * 64 + b"\nabc", b"\xff\n\n"])
def test_a_damaged_entry_is_absent_and_made_anew(tmp_path: Path, damage: bytes) -> None:
    cache = Cache(tmp_path)
    cache.keep("key", b"abc")
    (tmp_path / "key").write_bytes(damage)
    assert cache.find("key") is None
    cache.keep("key", b"abc")
    assert cache.find("key") == b"abc"


def test_an_entry_that_is_larger_than_the_cache_is_not_read(tmp_path: Path) -> None:
    Cache(tmp_path).keep("key", bytes(1000))
    assert Cache(tmp_path, 500).find("key") is None


def test_a_folder_that_cannot_be_made_and_none_at_all_cost_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for cache in (Cache(tmp_path / "file" / "folder"), Cache(None)):
        cache.keep("key", b"1")
        assert cache.find("key") is None
        assert cache.size_bytes() == 0


def test_folders_and_links_in_place_of_entries_stay(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"mine")
    folder = tmp_path / "cache"
    (folder / "key").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "outside")
    cache = Cache(folder, 100)
    cache.keep("key", b"1")
    assert cache.find("key") is None
    cache.clear()
    assert sorted(file.name for file in folder.iterdir()) == ["key", "link"]
    assert (tmp_path / "outside").read_bytes() == b"mine"


def test_what_was_unused_for_longest_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, 3 * 165)
    for age, key in enumerate("abc"):
        cache.keep(key, bytes(100))
        os.utime(tmp_path / key, (age + 1, age + 1))
    assert cache.size_bytes() == 3 * 165
    assert cache.find("a") is not None  # used now
    cache.keep("d", bytes(100))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "c", "d"]
    cache.clear()
    assert cache.size_bytes() == 0


def test_several_writers_neither_fail_nor_read_what_is_not_whole(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, tmp_path]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert Cache(tmp_path).size_bytes() <= 4000
    assert all(not file.name.startswith(".") for file in tmp_path.iterdir())


def test_keys_tell_parts_apart() -> None:
    assert len({key_of("a", "b"), key_of("ab"), key_of("ab", ""), key_of("", "ab"), key_of("b", "a")}) == 5


def test_the_users_folder_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert Cache.of_user("zoo").folder == Path("/somewhere/dsa-sched/zoo")
    monkeypatch.setenv("XDG_CACHE_HOME", "here")  # a relative one counts as unset
    monkeypatch.setenv("HOME", "/home/of/nobody")
    assert Cache.of_user("zoo").folder == Path("/home/of/nobody/.cache/dsa-sched/zoo")
