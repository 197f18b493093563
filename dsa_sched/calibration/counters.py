"""Measured cycles from a CSV file, which may come from anywhere.

    benchmark,repetition,counter,cycles --read_counters--> MeasuredCycles by benchmark and counter

Lines that begin with # are for the reader, but for `# programs HASH`, which says by which programs the cycles were
measured. A line without a number of cycles was not measured.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hw_models.errors import CountersError, FileProblem
from hw_models.loading import read_text

COLUMNS = ("benchmark", "repetition", "counter", "cycles")
MOST_REPETITIONS = 9_999
MOST_PROBLEMS = 40
"""Problems after which a file is read no further."""

MOST_SHOWN = 40
"""Most characters of a field in a message."""

PROGRAMS = re.compile(r"#\s*programs ([0-9a-f]{12})\s*")
_REPETITION = re.compile(r"[0-9]{1,4}")
_CYCLES = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")

Key = tuple[str, str]
"""Name of what was measured, and of the counter."""


@dataclass(frozen=True, slots=True)
class MeasuredCycles:
    """Measured cycles of every repetition, by benchmark and counter; `programs` is the hash that the file names, or
    empty."""

    cycles: Mapping[Key, tuple[float, ...]]
    programs: str = ""


def read_counters(path: Path, known: Mapping[str, tuple[str, ...]], first: str = COLUMNS[0]) -> MeasuredCycles:
    """The cycles in a file of at most 1 MiB; `known` has the counters of everything that the column `first` may name.
    Raises CountersError with every problem and its line."""
    lines = read_text(path, "file of counters", CountersError).splitlines()
    hashes = [found[1] for line in lines if (found := PROGRAMS.fullmatch(line))]
    problems: list[FileProblem] = []
    cycles: dict[Key, dict[int, float]] = {}
    for line, row in _rows(lines, (first, *COLUMNS[1:]), problems):
        if len(problems) >= MOST_PROBLEMS:
            break
        name, repetition, counter, text = row
        wrong = _wrong(row, known, first)
        of = cycles.setdefault((name, counter), {}) if wrong is None else {}
        if wrong is None and int(repetition) in of:
            wrong = ("repetition", f"{repetition} of {name}, {counter}, comes twice", "number the repetitions")
        if wrong is not None:
            problems.append(FileProblem(line, *wrong))
        elif text:
            of[int(repetition)] = float(text)
    measured = {key: tuple(of.values()) for key, of in cycles.items() if of}
    if not problems and not measured:
        problems.append(FileProblem(0, "", "there are no measured cycles", "fill in the column cycles"))
    if problems:
        raise CountersError(str(path), problems=tuple(problems))
    return MeasuredCycles(measured, hashes[0] if hashes else "")


def _rows(
    lines: list[str], columns: tuple[str, ...], problems: list[FileProblem]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line and fields of each row after the heading, in the order of `columns`; what is wrong is added to
    `problems`."""
    places: tuple[int, ...] | None = None
    for number, text in enumerate(lines, 1):
        if not text.strip() or text.startswith("#"):
            continue
        try:
            (fields,) = csv.reader([text], strict=True)
        except csv.Error as error:
            problems.append(FileProblem(number, "", f"not a line of CSV: {error}"))
            continue
        fields = [field.strip() for field in fields]
        if places is None:
            if sorted(fields) != sorted(columns):
                said = ", ".join(map(_shown, fields))
                problems.append(FileProblem(number, "", f"the columns are {said}", f"they are {', '.join(columns)}"))
                return
            places = tuple(fields.index(name) for name in columns)
        elif len(fields) != len(columns):
            problems.append(FileProblem(number, "", f"{len(fields)} fields", f"there are {len(columns)} columns"))
        else:
            yield number, tuple(fields[place] for place in places)
    if places is None:
        problems.append(FileProblem(0, "", "there is no heading", f"the columns are {', '.join(columns)}"))


def _wrong(row: tuple[str, ...], known: Mapping[str, tuple[str, ...]], first: str) -> tuple[str, str, str] | None:
    """Column, what is wrong with it, and what is allowed; None for a good row."""
    name, repetition, counter, cycles = row
    if name not in known:
        return first, f"there is no {first} {_shown(name)}", f"known: {_some(tuple(known))}"
    if counter not in known[name]:
        return "counter", f"{name} has no counter {_shown(counter)}", f"known: {', '.join(known[name])}"
    if _REPETITION.fullmatch(repetition) is None:
        return "repetition", f"{_shown(repetition)} is no number", f"a whole number from 0 to {MOST_REPETITIONS:,}"
    if cycles and _CYCLES.fullmatch(cycles) is None:
        allowed = "a number from 0 to 10^15, such as 1234 or 1234.5; empty if it was not measured"
        return "cycles", f"{_shown(cycles)} is no number of cycles", allowed
    if cycles and not float(cycles):
        return "cycles", "0 cycles", "leave it empty if it was not measured"
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "...")


def _some(names: tuple[str, ...]) -> str:
    """The first of some names."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
