"""Writing a file whole or not at all: it appears under its name when it is complete, and a failure leaves nothing.

    require_file(PATH) --> long work --> its report --> write_whole(PATH, ...)

Commands ask first whether what they are to write can be written, and print what they found before they write it.

A link is followed: the file that it names is written. What is no file to be replaced (a device, a pipe, or the standard
output under a name such as /dev/stdout) is written to as it is.
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
    """What `path` names when links are followed, whether or not it exists."""
    return Path(os.path.realpath(path))


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Have `write` fill a file beside the one that `path` names, then give it that name. A new file has the mode that
    the umask gives, another keeps its own. Raises UserError with the system's reason."""
    try:
        standard = _standard_stream(path)
        if standard is not None:
            # By our own stream, so that what is printed before and after stands before and after.
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
    """Refuse before long work a file that could not be written after it; `folders_made` says that whoever writes it
    makes the folders above it. Raises UserError; leaves nothing behind."""
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


def require_folder(path: Path, beside: bool = False, option: str = "-o") -> None:
    """Refuse before long work a folder that could not be made or filled after it; `beside` says that one that is there
    is not filled but replaced. What may be in it is not looked at. Raises UserError, which names the `option`; leaves
    nothing behind."""
    place = real_path(path)
    try:
        if place.exists() and not place.is_dir():
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR))
        require_room(_nearest(place.parent if beside else place))
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
    """Our standard output or error where `path` names the same thing."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and os.path.samestat(path.stat(), os.fstat(stream.fileno())):
                return stream
        except OSError:  # nothing has that name, or the stream has no descriptor
            continue
    return None
