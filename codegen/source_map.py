"""The file of a program that says which operator each part of its code is for.

ranges --source_map_text--> source_map.json --source_ranges--> ranges, sorted by address
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

SOURCE_MAP = "source_map.json"
"""Its name among the files of a cluster."""

ALL_CORES = -1


@dataclass(frozen=True, slots=True, order=True)
class SourceRange:
    """Code addresses [start, end) of one core (ALL_CORES: shared) that belong to one operator (empty name: start-up and
    end)."""

    start: int
    end: int
    core: int
    source: str


class SourceMapError(ValueError):
    """A source map that cannot be read."""


def printable(text: str) -> str:
    """Text with names of a model, which may hold any character, in which what cannot be printed is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def source_map_text(ranges: Iterable[SourceRange]) -> str:
    """The source map as text, one range per line: start, end, core, operator."""
    lines = [json.dumps([r.start, r.end, r.core, r.source]) for r in ranges]
    return '{"fields": ["start", "end", "core", "operator"],\n "ranges": [\n  ' + ",\n  ".join(lines) + "\n]}\n"


def source_ranges(text: bytes) -> tuple[SourceRange, ...]:
    """The ranges of a source map, sorted. Raises SourceMapError."""
    try:
        ranges = json.loads(text)["ranges"]
        return tuple(
            sorted(SourceRange(int(start), int(end), int(core), str(name)) for start, end, core, name in ranges)
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceMapError(f"{SOURCE_MAP} is damaged: {error!r}") from error
