"""Writes a file whole or not at all: it appears under its name when it is complete, and a failure leaves nothing.

    require_file(PATH) --> long work --> its report --> write_whole(PATH, ...)

Commands check first whether their output can be written, and print their results before they write it.

A link is followed: the file that it names is written. A target that is not a regular file (a device, a pipe, or the
standard output under a name such as /dev/stdout) is written to directly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from errno import EACCES, ENOTDIR
from pathlib import Path
from typing import IO, TextIO

from hw_models.errors import UserError
from hw_models.scratch import replace_file, require_room


def real_path(path: Path) -> Path:
    """The path with links followed, whether or not it exists."""
    return Path(os.path.realpath(path))


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Have `write` fill a file next to the one that `path` names, then give it that name. A new file has the mode that
    the umask gives; an existing one keeps its own. Raises UserError with the system's reason.
    """
    try:
        standard = _standard_stream(path)
        if standard is not None:
            # Through our own stream, so that it appears in order with what is printed before and after.
            standard.flush()
            write(standard.buffer)
            standard.flush()
        elif path.exists() and not path.is_file():
            with path.open("wb") as stream:
                write(stream)
        else:
            replace_file(real_path(path), write)
    except OSError as error:
        raise _refused(path, error) from None


def require_file(path: Path, folders_made: bool = False) -> None:
    """Refuse, before long work, a file that could not be written afterwards; `folders_made` says that the writer makes
    the folders above it. Raises UserError; leaves no file.
    """
    try:
        if path.is_dir():
            raise UserError(str(path), needs="a file to write", has="a folder", change="name a file in it")
        if _standard_stream(path) is not None:
            return
        if path.exists() and not path.is_file():
            if not os.access(path, os.W_OK):
                raise PermissionError(EACCES, os.strerror(EACCES))
            return
        place = real_path(path)
        if folders_made:
            require_room(_nearest(place.parent))
            return
        if not place.parent.is_dir():
            raise UserError(str(path), needs="a folder that exists", has="none", change="create it first")
        place.exists()  # a name that is too long is refused here
        require_room(place.parent)
    except OSError as error:
        raise _refused(path, error) from None


def require_folder(path: Path, replaced: bool = False, option: str = "-o") -> None:
    """Refuse, before long work, a folder that could not be made or filled afterwards; `replaced` says that an existing
    one is replaced, not filled. Its contents are not checked. Raises UserError, which names the `option`; leaves no
    file.
    """
    place = real_path(path)
    try:
        if place.exists() and not place.is_dir():
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR))
        require_room(_nearest(place.parent if replaced else place))
    except OSError as error:
        raise _refused(path, error, "a folder", f"choose another folder with {option}") from None


def _nearest(place: Path) -> Path:
    """The first that is there, upwards from `place`."""
    while not place.exists():
        place = place.parent
    return place


def _refused(path: Path, error: OSError, what: str = "a place", change: str = "") -> UserError:
    reason = (error.strerror or str(error)).lower()
    return UserError(str(path), needs=f"{what} that can be written", has=reason, change=change)


def _standard_stream(path: Path) -> TextIO | None:
    """Our standard output or error if `path` names the same file."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and os.path.samestat(path.stat(), os.fstat(stream.fileno())):
                return stream
        except OSError:  # nothing has that name, or the stream has no descriptor
            continue
    return None
