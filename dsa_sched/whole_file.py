"""Writing a file whole or not at all: it appears under its name when it is complete, and a failure leaves nothing.

A link is followed: the file that it names is written. What is no file to be replaced (a device, a pipe, or the standard
output under a name such as /dev/stdout) is written to as it is.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from stat import S_IMODE
from typing import IO, TextIO

from hw_models.errors import UserError

__all__ = ["real_path", "write_whole"]


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
            _replace(real_path(path), write)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(str(path), needs="a place that can be written", has=reason) from None


def _standard_stream(path: Path) -> TextIO | None:
    """Our standard output or error where `path` names the same thing."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and os.path.samestat(path.stat(), os.fstat(stream.fileno())):
                return stream
        except OSError:  # nothing has that name, or the stream has no descriptor
            continue
    return None


def _replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Fill a file beside `path` and rename it."""
    scratch = path.with_name(f".dsa-sched-{secrets.token_hex(8)}")
    with scratch.open("xb") as stream:
        try:
            write(stream)
            stream.close()
            if path.exists():
                scratch.chmod(S_IMODE(path.stat().st_mode))
            os.replace(scratch, path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
