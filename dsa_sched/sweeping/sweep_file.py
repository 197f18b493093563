"""sweep.yaml: networks x chips with fields varied x options, each a list of values.

sweep.yaml --read_sweep--> SweepFile, whose points `dsa_sched.sweeping.points` lists
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from itertools import chain
from math import prod
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from dsa_sched.sweeping.job_file import (
    MOST_CHIPS,
    MOST_VALUES,
    Effort,
    Extent,
    JobPart,
    Level,
    Networks,
    PerPassValue,
    chip_problem,
    chip_source,
    fields_listed,
    read_job,
)
from hw_models.changes import field_values
from hw_models.chip_rules import Finding
from hw_models.loading import load_chip
from hw_models.parts import Line, Name
from hw_models.yaml_nodes import Path as FieldPath
from hw_models.yaml_nodes import Value
from partitioner.planners.levels import SPILLS

SORT = "sweep file"

MOST_POINTS = 10_000
"""Largest number of points of a sweep."""

EXAMPLE = """\
# A sweep: every network on every chip with every combination of options.
schema_version: 1
name: l1_and_bandwidth

networks:                       # names of the zoo (dsa-sched models), ONNX files, or files with shapes:
  - wide_deep-mini              #   {model: mine.onnx, shape: {x: [1, 3, 224, 224]}, bind: {sr: 16000}}

chips:                          # a built-in chip or a chip file
  - chip: stcp920
    set: {clusters: 1}          # one other value of a field, for all points of this chip
    vary:                       # several: all combinations are tried; paths are those of the file
      memories.L1.size_bytes: [655_360, 1_310_720]
      links.ddr_to_llb.bandwidth_bytes_per_cycle: [13.5, 27.0]

options:                        # as on the command line; a list is several values
  level: [O1, O3]
  batch: 1
"""
"""A file that shows every part; the help of the command prints it."""

Scalar = bool | int | float | str
Scalars = Annotated[tuple[Scalar, ...], Field(min_length=1, max_length=MOST_VALUES)]


class SweptChip(JobPart):
    """A chip, with other values of some fields (`set`), and several values of others (`vary`)."""

    chip: Line
    set: dict[str, Scalar] = Field(default_factory=dict)
    vary: dict[str, Scalars] = Field(default_factory=dict)


class SweptOptions(JobPart):
    """Values of options of compilation, each a list; those that are left out have their defaults."""

    level: Annotated[tuple[Level, ...], Field(min_length=1, max_length=MOST_VALUES)] = ("auto",)
    spill: Annotated[tuple[Line, ...], Field(min_length=1, max_length=MOST_VALUES)] = ("none",)
    effort: Annotated[tuple[Effort, ...], Field(min_length=1, max_length=MOST_VALUES)] = ("normal",)
    batch: Annotated[tuple[Extent | None, ...], Field(min_length=1, max_length=MOST_VALUES)] = (None,)
    clusters: Annotated[tuple[Extent, ...], Field(min_length=1, max_length=MOST_VALUES)] = (1,)
    per_pass: Annotated[tuple[PerPassValue, ...], Field(min_length=1, max_length=MOST_VALUES)] = (None,)
    schedule: Annotated[tuple[bool | None, ...], Field(min_length=1, max_length=MOST_VALUES)] = (None,)
    roll: Annotated[tuple[bool | None, ...], Field(min_length=1, max_length=MOST_VALUES)] = (None,)
    keep_values: Annotated[tuple[bool, ...], Field(min_length=1, max_length=MOST_VALUES)] = (False,)

    @property
    def lists(self) -> Mapping[str, tuple[Scalar | None, ...]]:
        return {name: getattr(self, name) for name in type(self).model_fields}


class SweepFile(JobPart):
    """A sweep: what is compiled for what, and how."""

    schema_version: Literal[1]
    name: Name
    description: Line | None = None
    networks: Networks
    chips: Annotated[tuple[SweptChip, ...], Field(min_length=1, max_length=MOST_CHIPS)]
    options: SweptOptions = SweptOptions()

    @property
    def size(self) -> int:
        """Number of points."""
        chips = sum(prod(map(len, each.vary.values())) for each in self.chips)
        return len(self.networks) * chips * prod(map(len, self.options.lists.values()))


def read_sweep(path: Path) -> SweepFile:
    """Read and check a sweep file. Raises JobFileError with every problem of the file."""
    return read_job(path, SORT, SweepFile, parts_listed, contradictions)


def parts_listed(fields: dict[str, Value]) -> None:
    fields_listed(fields, ("chips",))
    chips = fields.get("chips")
    if isinstance(chips, list):
        mappings: list[Value] = [{"chip": each} if isinstance(each, str) else each for each in chips]
        fields["chips"] = mappings
        for chip in mappings:
            varied = chip.get("vary") if isinstance(chip, dict) else None
            if isinstance(varied, dict):
                fields_listed(varied, tuple(varied))
    options = fields.get("options")
    if isinstance(options, dict):
        fields_listed(options, tuple(options))


def contradictions(made: SweepFile, folder: Path) -> tuple[Finding, ...]:
    if made.size > MOST_POINTS:
        return ((("chips",), f"{made.size:,} points", f"a sweep has at most {MOST_POINTS:,}"),)
    found = [*_repeated(made)]
    for number, each in enumerate(made.chips):
        if wrong := chip_problem(each.chip, folder):
            found.append((("chips", number, "chip"), wrong, ""))
        else:
            known = field_values(load_chip(chip_source(each.chip, folder)))
            found += _changes(("chips", number), each, known)
    return tuple(found)


def _repeated(made: SweepFile) -> Iterator[Finding]:
    labels = [network.label for network in made.networks]
    for number, label in enumerate(labels):
        if label in labels[:number]:
            yield (("networks", number), f"a second network called {label!r}", "give it another name")
    for name, values in made.options.lists.items():
        yield from _twice(("options", name), values)
    for number, spill in enumerate(made.options.spill):
        if spill not in SPILLS:
            close = difflib.get_close_matches(spill, SPILLS, 1)
            guess = f"did you mean {close[0]!r}?" if close else f"allowed: {', '.join(SPILLS)}"
            yield ("options", "spill", number), f"{spill!r} is unknown", guess


def _changes(path: FieldPath, chip: SweptChip, known: Mapping[str, object]) -> Iterator[Finding]:
    """What is wrong with the values of fields: fields that there are not, values of another kind, values given
    twice."""
    given = chain((("set", name, (value,)) for name, value in chip.set.items()),
                  (("vary", name, values) for name, values in chip.vary.items()))  # fmt: skip
    for way, name, values in given:
        place = (*path, way, name)
        if name not in known:
            close = [each for each in known if each.startswith(name)] or difflib.get_close_matches(name, known, 1, 0.5)
            guess = f"did you mean {close[0]!r}?" if close else "such as memories.L1.size_bytes"
            yield place, "the chip has no such field", guess
            continue
        if way == "vary" and name in chip.set:
            yield place, "is in set, too", "give it in one of them"
        yield from _twice(place, values)
        for value in values:
            if known[name] is not None and _kind(value) != _kind(known[name]):
                has = f"the chip has {known[name]!r}"
                yield place, f"{value!r} is not {_kind(known[name])}", has


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, int | float) else "a text"


def _twice(path: FieldPath, values: tuple[Scalar | None, ...]) -> Iterator[Finding]:
    texts = [repr(value) for value in values]
    for number, text in enumerate(texts):
        if text in texts[:number]:
            yield path, f"{text} is given twice", "give each value once"
            return
