"""The text form of graphs, plans and programs: one item per line, a tag and then fields in JSON.

    op name="conv1" kind="conv" inputs=["data", "w"]      <-->      ("op", {"name": "conv1", ...})

JSON values keep any name (quotes, blanks, non-ASCII) unambiguous, and the same few lines parse all three types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from hw_models.errors import UserError

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]
Fields = dict[str, Json]


class TextError(UserError):
    """A text form that cannot be read; names the line."""


def format_line(tag: str, *fields: tuple[str, object]) -> str:
    """`tag key=value key=value`; tuples print as lists, and keys keep the order given."""
    return " ".join([tag, *(f"{key}={json.dumps(value)}" for key, value in fields)])


def parse_lines(text: str) -> Iterator[tuple[int, str, Fields]]:
    """Yield (line number, tag, fields) of every line that is neither blank nor a comment (`#`)."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield (number, *_parse_line(number, stripped))


def as_int(value: Json) -> int:
    """A field that must be an integer. Raises TypeError."""
    if not isinstance(value, int):
        raise TypeError(f"an integer, not {value!r}")
    return value


def as_list(value: Json) -> list[Json]:
    """A field that must be a list. Raises TypeError."""
    if not isinstance(value, list):
        raise TypeError(f"a list, not {value!r}")
    return value


def as_names(value: Json) -> tuple[str, ...]:
    """A field that must be a list of names. Raises TypeError."""
    return tuple(str(item) for item in as_list(value))


def as_ints(value: Json) -> tuple[int, ...]:
    """A field that must be a list of integers. Raises TypeError."""
    return tuple(as_int(item) for item in as_list(value))


def _parse_line(number: int, line: str) -> tuple[str, Fields]:
    tag, _, rest = line.partition(" ")
    fields: Fields = {}
    position, end = 0, len(rest)
    while position < end:
        equals = rest.find("=", position)
        if equals < 0:
            raise TextError(who=f"line {number}", needs="key=value", has=rest[position:])
        key = rest[position:equals].strip()
        try:
            value, position = _decoder.raw_decode(rest, equals + 1)
        except (ValueError, RecursionError) as error:  # an integer of too many digits is a ValueError
            raise TextError(
                who=f"line {number}", needs=f"a JSON value for {key}", has=rest[equals + 1 :][:60]
            ) from error
        fields[key] = cast(Json, value)
        position += 1
    return tag, fields


_decoder = json.JSONDecoder()
