"""The numbers of a chip by their paths in its file: their values, and where the file says they come from.

Chip, {"links.ddr_to_llb.latency_cycles": 71.5, ...} --with_numbers--> Chip
text of a chip file --source_of--> the comment at a number, and whether that names a document
                    --with_comments--> the same text with other numbers and comments at some paths
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hw_models.chip import Chip
from hw_models.derived_chip import place_of, with_value
from hw_models.errors import ChipError
from hw_models.yaml_nodes import read_document

NOT_A_SOURCE = ("guess", "measured")
"""Marks in brackets that name no document: values nobody has published, and values that a fit has written."""

_MARK = re.compile(r"\[([^\]]+)\]")


@dataclass(frozen=True, slots=True)
class NumberSource:
    """What the file says of a number: the comment next to it, and whether that names a document in brackets and calls
    nothing a guess. Numbers of `assumed` are never documented."""

    comment: str
    documented: bool


def number_at(chip: Chip, path: str) -> float:
    """The number at a path, also where it is a default that the file need not give. Raises KeyError where there is
    none."""
    here: object = chip
    for name in path.split("."):
        parts = here if isinstance(here, tuple) else ()
        here = next((part for part in parts if part.name == name), None) if parts else getattr(here, name, None)
    if isinstance(here, bool) or not isinstance(here, int | float):
        raise KeyError(path)
    return here


def with_numbers(chip: Chip, values: Mapping[str, float]) -> Chip:
    """The chip with other numbers at these paths, each within the range of its field. Rules between fields are not
    checked. Raises KeyError for a path that leads to no part, ValidationError for a field that is not there."""
    fields = {name: value for name, value in chip.model_dump(mode="json").items() if value != []}
    for path, value in values.items():
        *way, last = path.split(".")
        here: object = fields
        for name in way:
            here = _named(here)[name]
        _named(here)[last] = value
    return Chip.model_validate_json(json.dumps(fields))


def _named(value: object) -> dict[str, object]:
    """The parts of a value by name: fields of a mapping, items of a list that have names."""
    if isinstance(value, dict):
        return value
    items = value if isinstance(value, list) else []
    return {str(item["name"]): item for item in items if isinstance(item, dict) and "name" in item}


def source_of(text: str, path: str, chip: Chip) -> NumberSource:
    """What the text of a chip file says of the number at a path, whose comment may go on in the lines after it; nothing
    where the number is a default that the file does not give."""
    document, lines = read_document(text), text.splitlines()
    try:
        first = document.lines[place_of(document.value, path, chip)] - 1
    except ChipError:
        return NumberSource("", documented=False)
    parts = [lines[first].partition("#")[2].strip()]
    for line in lines[first + 1 :]:
        if not (line.startswith(" ") and line.strip().startswith("#")):
            break
        parts.append(line.strip().lstrip("#").strip())
    comment = " ".join(filter(None, parts))
    marks = _MARK.findall(comment)
    guessed = path.startswith("assumed.") or any(mark in NOT_A_SOURCE for mark in marks)
    return NumberSource(comment, bool(marks) and not guessed)


def with_comments(text: str, values: Mapping[str, tuple[float, str]], chip: Chip) -> str:
    """The text of a chip file with other numbers at these paths, each with a comment in place of its own on the line;
    all other lines stay. Raises ChipError where a number does not stand on a line of its own, as in JSON."""
    document, lines = read_document(text), text.splitlines()
    for path, (value, comment) in values.items():
        number = document.lines[place_of(document.value, path, chip)] - 1
        lines[number] = with_value(lines[number], path, value, comment, chip)
    return "\n".join(lines) + "\n"
