"""The text of a chip file like a built-in one, or like another file: some values given, all comments kept.

    stcp920, {"memories.L1.size_bytes": 786_432, ...} --derived_text--> YAML text, checked like a chip file

A comment at a value that was given says so and what the other chip has; all others are that chip's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from hw_models.changes import with_parts
from hw_models.chip import Chip
from hw_models.errors import ChipError
from hw_models.loading import chip_text, parse_chip
from hw_models.yaml_nodes import Path, Value, read_document

Number = int | float

COMMENT_COLUMN = 32
"""Column at which comments begin in built-in files."""

GIVEN, SHARE = "[given]", "[share]"
"""Marks of values that were given, and of parts of a memory that follow its size."""

_FIELD = re.compile(r"^(?P<field>\s*(?:- )?\w+: *)(?P<value>[^#]*?)\s*(?:#.*)?$")


def derived_text(like: str, name: str, values: Mapping[str, Number]) -> str:
    """The text of a chip file like the built-in chip or the chip file `like`, called `name`, with these values at
    fields that are named by their paths. The parts of a memory whose size is given keep their shares of it. Raises
    ChipError for a path that leads to no number, and for a chip that cannot be."""
    text, file = chip_text(like)
    chip = parse_chip(text, file)
    document, lines = read_document(text), text.splitlines()
    given: dict[str, Number | str] = {"name": name, "description": f"Like {chip.name}, with other values"}
    for path, value in {**given, **with_parts(chip, values)}.items():
        place = place_of(document.value, path, chip)
        number = document.lines[place] - 1
        if _continues(lines, number):
            raise ChipError(f"chip {chip.name}", needs=f"{path} on a line of its own", has=lines[number].strip())
        mark = GIVEN if path in values else SHARE
        said = f"{mark}; {chip.name}: {_value_of(lines[number])}"
        lines[number] = with_value(lines[number], path, value, said, chip)
    head = [
        f"# {name}: made by `dsa-sched chip new` from {chip.name}. Values marked {GIVEN} were given; parts marked",
        f"# {SHARE} keep their share of a memory whose size was given; all others are those of {chip.name}, and so are",
        "# the sources in brackets: replace them by those of your chip.",
        "#",
    ]
    made = "\n".join((*head, *lines)) + "\n"
    parse_chip(made, name)
    return made


def place_of(value: Value, path: str, chip: Chip) -> Path:
    """The place of a field in the file's value; parts of a list are named. Raises ChipError."""
    place: list[str | int] = []
    here = value
    for name in path.split("."):
        step: str | int | None
        if isinstance(here, list):
            known = [str(part.get("name")) if isinstance(part, dict) else "" for part in here]
            step = known.index(name) if name in known else None
        else:
            known = list(here) if isinstance(here, dict) else []
            step = name if name in known else None
        if step is None:
            raise ChipError(
                f"chip {chip.name}", needs=f"a field {path}", has=", ".join(filter(None, known)) or "none there"
            )
        place.append(step)
        here = here[step]  # type: ignore[index]  # a name in a mapping, a number in a list
    if isinstance(here, list | dict):
        raise ChipError(f"chip {chip.name}", needs=f"a number at {path}", has="several fields; name one of them")
    return tuple(place)


def with_value(line: str, path: str, value: Number | str, comment: str, chip: Chip) -> str:
    """A line of a chip file with another value; a number gets the comment in place of its own. Raises ChipError for a
    line that has not one field alone."""
    found = _FIELD.match(line)
    if found is None:
        raise ChipError(f"chip {chip.name}", needs=f"{path} on a line of its own", has=line.strip())
    if isinstance(value, str):
        return found["field"] + json.dumps(value)
    written = f"{value:_}" if isinstance(value, int) else str(value)
    return f"{found['field'] + written:<{COMMENT_COLUMN - 1}} # {comment}"


def _value_of(line: str) -> str:
    """The value on a line of a chip file; empty where there is not one field alone."""
    found = _FIELD.match(line)
    return found["value"] if found is not None else ""


def _continues(lines: list[str], number: int) -> bool:
    """Whether the value on a line goes on in the next one, which is indented further."""
    column = len(lines[number]) - len(lines[number].lstrip(" -"))
    after = next((line for line in lines[number + 1 :] if line.strip()), "")
    return len(after) - len(after.lstrip(" ")) > column and not after.lstrip().startswith("#")
