"""CUDA templates of the families, by file name; words between two @ are replaced."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["filled", "source_text"]


@cache
def source_text(name: str) -> str:
    """The text of a file of this folder."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def filled(name: str, **words: str | int) -> str:
    """A template with every @WORD@ in it replaced. Raises KeyError for words that it does not have, ValueError where
    one of its own is left."""
    text = source_text(name)
    for word, value in words.items():
        if f"@{word}@" not in text:
            raise KeyError(f"{name} has no @{word}@")
        text = text.replace(f"@{word}@", str(value))
    if "@" in text:
        raise ValueError(f"{name}: @ is left in {next(line for line in text.splitlines() if '@' in line)!r}")
    return text
