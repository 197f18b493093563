"""Files that say what is to be compiled: networks, and how; read like chip files, with every problem located.

    YAML text --bounded, no tags, no anchors--> fields with lines --> pydantic's classes, or one error

Nothing in such a file is executed. Where a list is expected, a single value may stand for a list of one, and the name
of a network for a network without anything else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from dsa_sched.sweeping.fault import error_text
from hw_models.chip_rules import Finding
from hw_models.errors import ChipError, FileProblem, JobFileError
from hw_models.field_problems import field_problems
from hw_models.loading import load_chip, read_text
from hw_models.parts import Line
from hw_models.yaml_nodes import Value, read_document

MOST_NETWORKS = 1000
MOST_CHIPS = 1000
MOST_VALUES = 1000
"""Largest number of values of one field or option."""

Level = Literal["O0", "O1", "O2", "O3", "streamed", "astitch", "auto"]
Effort = Literal["fast", "normal", "high"]
Extent = Annotated[int, Field(ge=1, le=999_999_999)]
ReadFile = TypeVar("ReadFile", bound="JobPart")


class JobPart(BaseModel):
    """Rules of every part of such a file: immutable, no conversion between types, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class JobNetwork(JobPart):
    """A network: a name of the zoo or an ONNX file (relative to the folder of the file that names it), with the shapes
    of inputs that it leaves open, and inputs that become constants. `name` is how the table calls it."""

    model: Line
    name: Line | None = None
    shape: dict[str, tuple[Extent, ...]] = Field(default_factory=dict)
    bind: dict[str, tuple[int | float, ...]] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.name or Path(self.model).stem


Networks = Annotated[tuple[JobNetwork, ...], Field(min_length=1, max_length=MOST_NETWORKS)]


def _per_pass(value: object) -> object:
    if value is None or value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise PydanticCustomError("per_pass", "Input should be auto, or a number that is at least 1")


PerPassValue = Annotated[Any, BeforeValidator(_per_pass)]
"""A number, `auto`, or nothing."""


def read_job(
    path: Path,
    sort: str,
    model: type[ReadFile],
    listed: Callable[[dict[str, Value]], None],
    contradictions: Callable[[ReadFile, Path], tuple[Finding, ...]],
) -> ReadFile:
    """Read, check and build a file of the class `model`, which messages call a `sort`. `listed` puts lists in the place
    of single values, `contradictions` finds what is wrong between fields. Raises JobFileError."""
    text = read_text(path, sort, JobFileError)
    document = read_document(text, sort)
    if document.problems:
        raise job_error(path, document.problems)
    value = document.value
    if isinstance(value, dict):
        networks_listed(value)
        listed(value)
    try:
        made = model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise job_error(path, field_problems(error, document, model)) from None
    if found := contradictions(made, path.parent):
        raise job_error(path, tuple(document.problem(*finding) for finding in found))
    return made


def job_error(path: Path, problems: tuple[FileProblem, ...]) -> JobFileError:
    """An error of the file, its problems in the order of the lines."""
    return JobFileError(str(path), problems=tuple(sorted(problems, key=lambda problem: problem.line)))


def networks_listed(fields: dict[str, Value]) -> None:
    """Put a list of mappings in the place of names of networks."""
    fields_listed(fields, ("networks",))
    networks = fields.get("networks")
    if isinstance(networks, list):
        mappings: list[Value] = [{"model": each} if isinstance(each, str) else each for each in networks]
        fields["networks"] = mappings
        for network in mappings:
            for name in ("shape", "bind"):
                inputs = network.get(name) if isinstance(network, dict) else None
                if isinstance(inputs, dict):
                    fields_listed(inputs, tuple(inputs))


def fields_listed(fields: dict[str, Value], names: tuple[str, ...]) -> None:
    """Put lists of one in the place of single values at some fields."""
    for name in names:
        if name in fields and not isinstance(fields[name], list):
            fields[name] = [fields[name]]


def chip_problem(reference: str, folder: Path) -> str:
    """What is wrong with a chip that a file names; empty where nothing is."""
    try:
        load_chip(chip_source(reference, folder))
    except ChipError as error:
        return error_text(error)
    return ""


def chip_source(reference: str, folder: Path) -> str | Path:
    """The name of a built-in chip, or the path of a chip file."""
    is_file = "/" in reference or "\\" in reference or reference.endswith((".yaml", ".yml"))
    return folder / reference if is_file else reference


def model_source(reference: str, folder: Path) -> str:
    """The name of a network of the zoo, or the path of an ONNX file, as `compile` takes it. A file wins, as there."""
    from dsa_sched.zoo import zoo_names

    path = folder / reference
    return reference if reference in zoo_names() and not path.exists() else str(path)
