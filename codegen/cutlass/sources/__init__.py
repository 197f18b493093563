"""CUDA templates of the families, by file name; words between two @ are replaced."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["filled", "source_text"]


OWN = re.compile(r'^#include "(\w+\.cuh)"\n', re.MULTILINE)


@cache
def source_text(*names: str) -> str:
    """The texts of files of this folder, one after the other, with those of the folder that they include."""
    text = "".join(files(__name__).joinpath(name).read_text(encoding="utf-8") for name in names)
    return OWN.sub(lambda found: source_text(found[1]), text)


def filled(name: str, **words: str | int) -> str:
    """A template with every @WORD@ in it replaced; truths become those of C++. Raises KeyError for words that it does
    not have, ValueError where one of its own is left."""
    text = source_text(name)
    for word, value in words.items():
        if f"@{word}@" not in text:
            raise KeyError(f"{name} has no @{word}@")
        text = text.replace(f"@{word}@", str(value).lower() if isinstance(value, bool) else str(value))
    if "@" in text:
        raise ValueError(f"{name}: @ is left in {next(line for line in text.splitlines() if '@' in line)!r}")
    return text
