"""Scratch files and folders: gone at the end, taken away after a kill, and never while somebody works in them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import pytest

from hw_models.scratch import NEW, OLD, ScratchFolder, clean, replace_file, require_room, scratch_folder

HOLD = """
import subprocess, sys
from pathlib import Path
from hw_models.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as scratch:
    (scratch.path / "part").write_bytes(b"1")
    child = subprocess.Popen(["cat"], stdin=sys.stdin, pass_fds=(scratch.lock,)) if "shared" in sys.argv else None
    print(scratch.path, flush=True)
    sys.stdin.read()
"""
CLEAN = "import sys; from pathlib import Path; from hw_models.scratch import clean; clean(Path(sys.argv[1]))"


@contextmanager
def holder(place: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that works in a scratch folder until its input ends, and the folder."""
    run = subprocess.Popen(
        [sys.executable, "-c", HOLD, place, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    try:
        yield run, Path(run.stdout.readline().strip())
    finally:
        run.kill()
        run.wait()
        for pipe in (run.stdin, run.stdout):
            if pipe is not None:
                pipe.close()


def clean_by_another_process(place: Path) -> None:
    subprocess.run([sys.executable, "-c", CLEAN, place], check=True)


def test_a_scratch_folder_is_private_and_gone_at_the_end(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as scratch:
        assert scratch.path.parent == tmp_path
        assert scratch.path.stat().st_mode & 0o777 == 0o700
        (scratch.path / "deep").mkdir()
        (scratch.path / "deep" / "file").write_bytes(b"1")
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_no_folder(tmp_path: Path) -> None:
    def fail(scratch: ScratchFolder) -> None:
        (scratch.path / "file").write_bytes(b"1")
        raise ValueError

    with pytest.raises(ValueError), scratch_folder(tmp_path) as scratch:  # noqa: PT011 - our own, just above
        fail(scratch)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_taken_away_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    with holder(tmp_path) as (killed, left), holder(tmp_path) as (_, kept):
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert sorted(tmp_path.iterdir()) == sorted((left, kept))
        clean_by_another_process(tmp_path)
        assert list(tmp_path.iterdir()) == [kept]
        assert (kept / "part").read_bytes() == b"1"


def test_a_program_that_outlives_its_parent_keeps_the_folder(tmp_path: Path) -> None:
    with holder(tmp_path, "shared") as (killed, left):
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        clean_by_another_process(tmp_path)
        assert list(tmp_path.iterdir()) == [left]
        assert killed.stdin is not None
        killed.stdin.close()  # which ends the child
        assert killed.stdout is not None
        assert killed.stdout.read() == ""  # the child has the other end
        clean_by_another_process(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_is_taken_away(tmp_path: Path) -> None:
    """Names that are not ours, links and pipes under names that are, and the user's copies of an exchange."""
    place, other = tmp_path / "place", tmp_path / "other"
    digits = "0123456789abcde"
    names = (f".dsa-sched-{digits}", f".dsa-sched-{digits}g", f".dsa-sched-{digits}f0", f"dsa-sched-{digits}f")
    for folder in (place, other):
        folder.mkdir()
    for name in names:
        (place / name).write_bytes(b"1")
    (other / "file").write_bytes(b"1")
    (place / ".dsa-sched-00000000000000aa").symlink_to(other)
    (place / ".dsa-sched-00000000000000bb").symlink_to(other / "file")
    os.mkfifo(place / ".dsa-sched-00000000000000cc")
    for part in (NEW, OLD):
        (place / ".dsa-sched-00000000000000dd" / part).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    (place / ".dsa-sched-00000000000000ee" / OLD).mkdir(parents=True)
    (place / ".dsa-sched-00000000000000ff").write_bytes(b"1")
    (place / ".dsa-sched-00000000000000ee" / "link").symlink_to(other)
    clean(place)
    assert sorted(tmp_path.rglob("*")) == before


def test_files_are_replaced_while_others_clean(tmp_path: Path) -> None:
    def put(data: bytes, stream: IO[bytes]) -> None:
        stream.write(data)

    errors: list[BaseException] = []
    done = threading.Event()

    def work(number: int) -> None:
        try:
            for turn in range(100):
                replace_file(tmp_path / f"file{number % 2}", partial(put, f"{number} {turn}".encode()))
        except BaseException as error:
            errors.append(error)

    def sweep() -> None:
        while not done.is_set():
            clean.__wrapped__(tmp_path)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    sweeper = threading.Thread(target=sweep)
    for thread in (sweeper, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    sweeper.join()
    assert errors == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file0", "file1"]
    assert (tmp_path / "file0").read_bytes() in (b"0 99", b"2 99")


def test_a_failing_writer_leaves_what_was_there(tmp_path: Path) -> None:
    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_bytes(b"0")
    with pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "file", fail)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"0")]


def test_room_is_asked_for_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_room(tmp_path)
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # as where the file system has no files without names
    require_room(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No such file"):
        require_room(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="directory"):
        require_room(tmp_path / "file")
    with pytest.raises(OSError):  # noqa: PT011 - nobody, root neither, makes files there; the reason is the system's
        require_room(Path("/proc"))
