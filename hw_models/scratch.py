"""Files and folders that are filled under a temporary name before they get the one that the user asked for.

    scratch_folder(PLACE) --filled--> renamed, or gone at the end    replace_file(PATH, write) -> whole or not at all

A process that is killed leaves its scratch files; the next one that works in the same place removes them. The creator
of a scratch file holds a lock on it (the system drops it with the last process that has it), so that nobody removes a
file in use, whatever its container or user. Links are never followed, and files of other users stay.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISREG
from typing import IO

PREFIX = ".dsa-sched-"
NAME = re.compile(re.escape(PREFIX) + "[0-9a-f]{16}")

NEW, OLD = "new", "old"
"""Parts of a scratch folder that replaces another one. Where both exist, a process was killed after moving the old one
away and before putting the new one in its place; they are the user's only copies, and `clean` leaves them."""

_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class ScratchFolder:
    """A folder of this process. A program that goes on working in it after this process is killed must also hold
    `lock`, an open descriptor."""

    path: Path
    lock: int


@contextmanager
def scratch_folder(place: Path) -> Iterator[ScratchFolder]:
    """An empty folder inside the folder `place`, which nobody else may enter; it is removed at the end with its
    content.

    Raises OSError where none can be made.
    """
    clean(place)
    path, lock = _claimed(place, lambda path: path.mkdir(0o700))
    try:
        yield ScratchFolder(path, lock)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Have `write` fill a file next to `path`, then give it that name. A new file has the mode that the umask gives; a
    replaced one keeps its mode. A failure leaves the old file unchanged. Raises OSError."""
    clean(path.parent)
    scratch, lock = _claimed(path.parent, lambda path: path.touch(exist_ok=False))
    try:
        with scratch.open("r+b") as stream:
            write(stream)
        if path.exists():
            scratch.chmod(S_IMODE(path.stat().st_mode))
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    finally:
        os.close(lock)


def require_room(place: Path) -> None:
    """Raises OSError with the system's reason where no file can be made in the folder `place`. Leaves nothing there."""
    try:
        # A file without a name disappears with its descriptor, whatever happens.
        os.close(os.open(place, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError:  # also raised where the file system has no such files
        path = _fresh(place)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        path.unlink()


@cache
def clean(place: Path) -> None:
    """Remove the scratch files that killed processes of this user left in the folder `place`; once per process."""
    with suppress(OSError), os.scandir(place) as entries:
        left = [entry.name for entry in entries if NAME.fullmatch(entry.name)]
        for name in left:
            with suppress(OSError):
                _remove(place / name)


def _fresh(place: Path) -> Path:
    return place / f"{PREFIX}{secrets.token_hex(8)}"


def _claimed(place: Path, make: Callable[[Path], object]) -> tuple[Path, int]:
    """A new file or folder and the lock on it. Another process may take it for abandoned and remove it before it is
    locked; then the next one is tried."""
    for _ in range(_ATTEMPTS):
        path = _fresh(place)
        make(path)
        try:
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        # Where the file system has no locks, nobody else gets one either, and nothing is removed.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)
        if _is(path, lock):
            return path, lock
        os.close(lock)
    raise OSError(f"no temporary file can be kept in {place}")


def _is(path: Path, opened: int) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(opened))
    except OSError:
        return False


def _remove(path: Path) -> None:
    """Remove a scratch file or folder that nobody holds. Raises OSError; BlockingIOError where somebody holds it."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(opened)
        if status.st_uid != os.geteuid() or not (S_ISDIR(status.st_mode) or S_ISREG(status.st_mode)):
            return
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is(path, opened):
            return
        if S_ISREG(status.st_mode):
            path.unlink()
        elif not all((path / part).exists() for part in (NEW, OLD)):
            shutil.rmtree(path)
    finally:
        os.close(opened)
