"""Reads the files that a user names; failures become user errors."""

from __future__ import annotations

from pathlib import Path

from hw_models.errors import UserError


def read_bytes(path: Path, what: str) -> bytes:
    """The bytes of a file. Raises UserError with the system's reason."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UserError(str(path), needs=f"{what} that can be read", has=(reason or str(error)).lower()) from None
