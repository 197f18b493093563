"""A chip like another one, with some fields changed: for questions such as "what if L1 were twice as large?".

stcp920, {"memories.L1.size_bytes": 2_621_440, ...} --changed_chip--> Chip, checked like a chip file
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from hw_models.chip import Chip
from hw_models.errors import ChipError
from hw_models.loading import parse_chip

Given = TypeVar("Given")


def chip_json(chip: Chip) -> str:
    """A chip as JSON, which is YAML as well: a chip file. Lists that are empty are left out, since some kinds of chips
    may not have them."""
    fields = {name: value for name, value in chip.model_dump(mode="json").items() if value != []}
    return json.dumps(fields, indent=1) + "\n"


def changed_chip(chip: Chip, changes: Mapping[str, object]) -> Chip:
    """The chip with other values at some fields, by their paths in the file; memories, engines, links and buffers are
    named (`memories.L1.size_bytes`). Raises ChipError for a path that leads nowhere and for a chip that cannot be."""
    fields = json.loads(chip_json(chip))
    for path, value in changes.items():
        *way, last = path.split(".")
        place: object = fields
        for number, name in enumerate(way):
            place = _step(place, name, ".".join(way[: number + 1]), chip)
        if not isinstance(place, dict):
            raise ChipError(f"chip {chip.name}", needs=f"a field {path}", has="a list; name one of its parts")
        place[last] = value
    try:
        text = json.dumps(fields, indent=1)
    except (TypeError, ValueError) as error:
        needs = "numbers, texts, truth values, lists or mappings of these"
        raise ChipError(f"changes of chip {chip.name}", needs=needs, has=str(error)) from error
    return parse_chip(text, f"{chip.name}, changed")


def differing_fields(before: Chip, after: Chip) -> tuple[tuple[str, str, str], ...]:
    """Fields that two chips do not share: path, value before, value after; "" where a chip has no such field. Names and
    descriptions of the chips are no fields in this sense."""
    sides = [dict(_leaves(json.loads(chip_json(chip)), "")) for chip in (before, after)]
    paths = (path for path in dict.fromkeys((*sides[0], *sides[1])) if path not in ("name", "description"))
    pairs = ((path, sides[0].get(path, ""), sides[1].get(path, "")) for path in paths)
    return tuple(pair for pair in pairs if pair[1] != pair[2])


def field_values(chip: Chip) -> Mapping[str, object]:
    """All fields of a chip that have one value, by their paths: `memories.L1.size_bytes` and its number."""
    return dict(_leaf_values(json.loads(chip_json(chip)), ""))


def with_parts(chip: Chip, values: Mapping[str, Given]) -> dict[str, Given | int]:
    """The same values, and new sizes of the parts of memories whose own sizes are among them: the same shares, the
    first part takes the rest, also of parts whose sizes are given, which stay."""
    found: dict[str, Given | int] = {}
    for memory in chip.memories:
        size = values.get(f"memories.{memory.name}.size_bytes")
        if not isinstance(size, int) or not memory.buffers:
            continue
        paths = [f"memories.{memory.name}.buffers.{part.name}.size_bytes" for part in memory.buffers]
        shares = [size * part.size_bytes // memory.size_bytes for part in memory.buffers]
        aligned = [share - share % memory.alignment_bytes for share in shares]
        given = [values.get(path) for path in paths]
        sizes = [each if isinstance(each, int) else share for each, share in zip(given, aligned, strict=True)]
        found |= dict(zip(paths, (max(0, size - sum(sizes[1:])), *sizes[1:]), strict=True))
    return found | dict(values)


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    """All numbers and texts below a place, as texts, by their paths."""
    return ((name, str(leaf)) for name, leaf in _leaf_values(value, path))


def _leaf_values(value: object, path: str) -> Iterator[tuple[str, object]]:
    """All numbers and texts below a place, by their paths; parts of a list by their names or numbers."""
    parts: Iterable[tuple[str, object]]
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        names = [
            str(part["name"]) if isinstance(part, dict) and "name" in part else str(n) for n, part in enumerate(value)
        ]
        parts = zip(names, value, strict=True)
    else:
        yield path, value
        return
    for name, part in parts:
        yield from _leaf_values(part, f"{path}.{name}" if path else name)


def _step(place: object, name: str, path: str, chip: Chip) -> object:
    """The part of this name in a list or object. Raises ChipError, with the names that there are."""
    if isinstance(place, list):
        known = {str(part["name"]): part for part in place if isinstance(part, dict) and "name" in part}
    else:
        known = place if isinstance(place, dict) else {}
    if name not in known:
        raise ChipError(f"chip {chip.name}", needs=f"a part {path}", has=", ".join(known) or "none there")
    return known[name]
