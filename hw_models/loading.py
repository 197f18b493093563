"""From a chip file to a `Chip`, or to one error that lists every problem of the file with its line.

    stcp920 | path/to/chip.yaml  -->  bytes  -->  YAML values with lines  -->  fields  -->  Chip

The file is untrusted: its size is bounded here, its YAML in `yaml_nodes`; nothing in it is executed.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from hw_models.chip import Chip
from hw_models.chip_rules import Finding, contradictions, parts_of_kind
from hw_models.errors import ChipError, FileError, FileProblem
from hw_models.field_problems import field_problems
from hw_models.plausibility import implausible
from hw_models.yaml_nodes import Document, read_document

MAX_FILE_BYTES = 1 << 20
KEPT_CHIPS = 16
"""Number of chips kept for callers that ask for the same text again: reading one takes 7 to 17 ms."""


def builtin_chips() -> tuple[str, ...]:
    """Names of the chips that come with the package, sorted."""
    folder = resources.files("hw_models") / "chips"
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml")))


def load_chip(name_or_path: str | Path) -> Chip:
    """A built-in chip by name, or a chip file by path. There is no default chip.

    A text is a path when it has a folder separator or ends in .yaml or .yml. Raises ChipError.
    """
    text, file = chip_text(name_or_path)
    return parse_chip(text, file)


def chip_text(name_or_path: str | Path) -> tuple[str, str]:
    """The text of a built-in chip's file, or of a chip file, and what messages call it. Raises ChipError."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or "/" in text or "\\" in text or text.endswith((".yaml", ".yml")):
        path = Path(name_or_path)
        return read_text(path, "chip file", ChipError, _suggestion(path)), str(path)
    names = builtin_chips()
    if text not in names:
        close = difflib.get_close_matches(text, names, 1)
        guess = f"did you mean {close[0]!r}? Otherwise " if close else ""
        raise ChipError(
            f"chip {text!r}",
            needs="the name of a built-in chip or the path of a chip file",
            has=f"built-in chips {', '.join(names)}",
            change=f"{guess}give a path such as ./{text or 'chip'}.yaml",
        )
    source = resources.files("hw_models") / "chips" / f"{text}.yaml"
    return source.read_text(encoding="utf-8"), f"{text}.yaml (built-in)"


def inspect_chip(path: Path) -> tuple[Chip, tuple[FileProblem, ...]]:
    """The chip of a file, and everything in it that is possible but unlikely, in the order of its lines. Raises
    ChipError."""
    text = read_text(path, "chip file", ChipError, _suggestion(path))
    chip, document = parse_chip(text, str(path)), read_document(text)
    return chip, tuple(sorted((document.problem(*f) for f in implausible(chip)), key=lambda problem: problem.line))


def read_text(
    path: Path,
    sort: str,
    error: type[FileError],
    suggestion: str = "check the path",
    most_bytes: int = MAX_FILE_BYTES,
) -> str:
    """The text of a file of at most this many bytes. Raises `error`, which calls the file a `sort`."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise error(str(path), needs=f"a {sort}", has="no such file", change=suggestion) from None
    except IsADirectoryError:
        raise error(str(path), needs=f"a {sort}", has="a folder", change=suggestion) from None
    except (OSError, ValueError) as wrong:
        reason = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else str(wrong)
        raise error(str(path), needs=f"a readable {sort}", has=reason.lower()) from None
    if len(data) > most_bytes:
        usual = f"a {sort} has a few KiB" if most_bytes == MAX_FILE_BYTES else ""
        needs = f"a {sort} of at most {most_bytes >> 20} MiB"
        raise error(str(path), needs=needs, has="a larger file", change=usual)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as wrong:
        line = data.count(b"\n", 0, wrong.start) + 1
        said = f"byte 0x{data[wrong.start]:02x} at offset {wrong.start} is not UTF-8 text"
        raise error(str(path), problems=(FileProblem(line, "", said, "save the file as UTF-8"),)) from None


@lru_cache(KEPT_CHIPS)
def parse_chip(text: str, file: str) -> Chip:
    """Build the chip that a YAML text describes; messages call the text `file`. Raises ChipError.

    Equal text gives the same chip, which is immutable.
    """
    document = read_document(text)
    if document.problems:
        raise _error(file, document.problems)
    parts = tuple(document.problem(*finding) for finding in _parts(document))
    try:
        chip = Chip.model_validate_json(json.dumps(document.value))
    except ValidationError as error:
        raise _error(file, (*parts, *field_problems(error, document, Chip))) from None
    found = parts or tuple(document.problem(*finding) for finding in contradictions(chip))
    if found:
        raise _error(file, found)
    return chip


def _parts(document: Document) -> Iterator[Finding]:
    """Findings about the parts that the kind of chip needs; none where the kind is unknown, which the schema
    reports."""
    match document.value:
        case dict() as fields:
            kind = fields.get("kind", "cores")
            if kind == "cores" or kind == "gpu":
                yield from parts_of_kind(kind, fields)


def _error(file: str, problems: tuple[FileProblem, ...]) -> ChipError:
    return ChipError(file, problems=tuple(sorted(problems, key=lambda problem: problem.line)))


def _suggestion(path: Path) -> str:
    known = ", ".join(builtin_chips())
    return f"built-in chips are given by name alone: {known}" if path.stem in builtin_chips() else "check the path"
