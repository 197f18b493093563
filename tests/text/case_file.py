"""A text case: one small file with what goes in, what comes out, and in its first lines what it shows.

# what it shows           a comment of one line or more
level: O1                 options, one a line
== graph                  sections of input
conv0 = conv x 32
== expected               what the compiler makes of them; `--update-goldens` writes this section and nothing else
group name="conv0" ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Case", "compare", "read_case"]

MARK = "== "
EXPECTED = "expected"


@dataclass(frozen=True, slots=True)
class Case:
    """One file. `head` is its text before the expected section; `expected` is None where that is missing."""

    path: Path
    says: str
    options: Mapping[str, str]
    sections: Mapping[str, str]
    head: str
    expected: str | None


def read_case(path: Path) -> Case:
    """Raises ValueError for a file that says nothing about itself or whose parts are not as above."""
    head, mark, expected = path.read_text(encoding="utf-8").partition(f"{MARK}{EXPECTED}\n")
    first, *parts = f"\n{head}".split(f"\n{MARK}")
    lines = [line for line in first.splitlines() if line.strip()]
    says = " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    if not says:
        raise ValueError(f"{path.name}: begins with a comment that says what it shows")
    options = {}
    for line in lines:
        if not line.startswith("#"):
            key, colon, value = line.partition(":")
            if not colon or key in options:
                raise ValueError(f"{path.name}: {line!r} is not 'option: value', each once")
            options[key] = value.strip()
    sections = {}
    for part in parts:
        name, _, text = part.partition("\n")
        if name in sections:
            raise ValueError(f"{path.name}: section {name} is there twice")
        sections[name] = text
    return Case(path, says, options, sections, head, expected if mark else None)


def compare(case: Case, text: str, update: bool) -> None:
    """Raises AssertionError with the differing lines, and the command that accepts them; with `update` writes."""
    command = f"python -m pytest tests/text --update-goldens -k {case.path.stem}"
    if update:
        case.path.write_text(f"{case.head.rstrip()}\n\n{MARK}{EXPECTED}\n{text}", encoding="utf-8")
        return
    assert case.expected is not None, f"{case.path.name} has no expected section; make it by: {command}"
    assert text == case.expected, f"{case.path.name} ({case.says}) differs; accept by: {command}"
