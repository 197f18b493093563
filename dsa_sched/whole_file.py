"""Writing a file whole or not at all: it appears under its name when it is complete, and a failure leaves nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from hw_models.errors import UserError

__all__ = ["write_whole"]


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Have `write` fill a file beside `path`, then give it its name. Raises UserError with the system's reason."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".dsa-sched-", delete=False) as stream:
            scratch = Path(stream.name)
            try:
                write(stream)
                stream.close()
                scratch.chmod(0o644)
                os.replace(scratch, path)
            except BaseException:
                scratch.unlink(missing_ok=True)
                raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(str(path), needs="a place that can be written", has=reason) from None
