"""Faults: what ends work on a point and is not the user's doing, a fault of the compiler or of the machine."""

from __future__ import annotations

from hw_models.errors import FileError

FAULT = "fault"
"""Status of a point that was not done because of a fault; it is tried again."""


def fault_text(error: Exception) -> str:
    """An error that is none of the user's, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def error_text(error: Exception) -> str:
    """An error in one line, without what is only meant for a file of its own."""
    problems = error.problems if isinstance(error, FileError) else ()
    if problems:
        return "; ".join(f"{each.field}: {each.wrong}" if each.field else each.wrong for each in problems[:3])
    return "; ".join(" ".join(line.split()) for line in str(error).splitlines() if line.strip()).replace(":;", ":")
