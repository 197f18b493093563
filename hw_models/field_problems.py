"""What the schema finds wrong with a chip file or its like, said in the words and with the lines of that file.

In: pydantic's errors and the document they are about. Out: one `Problem` a field, with what is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hw_models import chip as schema
from hw_models.errors import Problem
from hw_models.yaml_nodes import Document, Path

__all__ = ["CHIP_FILE", "FileSchema", "field_problems"]


@dataclass(frozen=True)
class FileSchema:
    """The classes of one sort of file. `parts` are by the fields on the way to them, without places in lists.

    Items of the list `variants` are of the classes `kinds`, by their field kind. `owners` says in words what a list of
    that name holds.
    """

    whole: str
    variant: str
    variants: str
    kinds: Mapping[str, type[BaseModel]]
    parts: Mapping[tuple[str, ...], type[BaseModel]]
    owners: Mapping[str, str]
    version: int


CHIP_FILE = FileSchema(
    whole="a chip",
    variant="an engine",
    variants="engines",
    kinds={
        "scalar": schema.ScalarEngine,
        "matrix": schema.MatrixEngine,
        "vector": schema.VectorEngine,
        "transfer": schema.TransferEngine,
        "dma": schema.DmaEngine,
        "sync": schema.SyncEngine,
        "simt": schema.SimtEngine,
        "tensor": schema.TensorEngine,
    },
    parts={
        (): schema.Chip,
        ("memories",): schema.Memory,
        ("memories", "buffers"): schema.Buffer,
        ("engines", "rates"): schema.Rate,
        ("engines", "instruction_cache"): schema.InstructionCache,
        ("links",): schema.Link,
        ("dma",): schema.Dma,
        ("assumed",): schema.Assumed,
        ("simt",): schema.Simt,
    },
    owners={"memories": "a memory", "engines": "an engine of this kind", "links": "a link"},
    version=schema.SCHEMA_VERSION,
)


def field_problems(error: ValidationError, document: Document, file: FileSchema = CHIP_FILE) -> tuple[Problem, ...]:
    """Every field that the schema refuses."""
    found = error.errors(include_url=False, include_context=True)
    return tuple(_problem(details, document, file) for details in found if not _follows(details, found))


def _follows(details: ErrorDetails, found: list[ErrorDetails]) -> bool:
    """Whether a list is too short only because what is in it was refused."""
    place = details["loc"]
    return details["type"] == "too_short" and any(
        len(other["loc"]) > len(place) and other["loc"][: len(place)] == place for other in found
    )


def _problem(details: ErrorDetails, document: Document, file: FileSchema) -> Problem:
    path = _path(details["loc"], file)
    wrong, allowed = _words(details, path, document, file)
    return document.problem(path, wrong, allowed)


def _path(location: tuple[int | str, ...], file: FileSchema) -> Path:
    """Pydantic's location without the kind that it inserts: that is no field of the file."""
    if location[:1] == (file.variants,) and len(location) > 2:
        return (*location[:2], *location[3:])
    return location


def _words(details: ErrorDetails, path: Path, document: Document, file: FileSchema) -> tuple[str, str]:
    """What is wrong and what is allowed, for one kind of finding."""
    context = details.get("ctx", {})
    given = _given(details["input"])
    match details["type"]:
        case "missing":
            return "missing", f"{_owner(path, file)} needs this field"
        case "extra_forbidden":
            return "unknown field", _known_fields(path, document, file)
        case "int_type" | "int_parsing" | "int_from_float":
            return f"{given} is not a whole number", "write a whole number such as 1_048_576"
        case "float_type" | "float_parsing" | "finite_number":
            return f"{given} is not a number", "write a finite number"
        case "string_type":
            return f"{given} is not a text", "put it in quotes if it is meant as a text"
        case "bool_type" | "bool_parsing":
            return f"{given} is neither true nor false", "write true or false"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return f"{given} is out of range", _range(details["type"], context)
        case "literal_error" if path == ("schema_version",):
            return f"{given} is not a schema version that is known", f"this program reads {file.version}"
        case "literal_error" | "union_tag_invalid":
            expected = str(context.get("expected") or context.get("expected_tags"))
            return f"{_tag_given(details)} is not allowed", f"allowed: {expected}{_close(details, expected)}"
        case "union_tag_not_found":
            return f"{file.variant} needs the field kind", f"allowed: {', '.join(file.kinds)}"
        case "tuple_type" | "list_type":
            return f"{given} is not a list", "write one item a line, each after '- '"
        case "too_short":
            return f"a list of {context['actual_length']} items is too short", f"write at least {context['min_length']}"
        case "too_long":
            return f"a list of {context['actual_length']} items is too long", f"write at most {context['max_length']}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{given} has no fields", "write fields as 'name: value'"
        case "string_pattern_mismatch" if path == ("description",):
            return f"{given} is not one line of text", "write it without line breaks and control characters"
        case "string_pattern_mismatch":
            return f"{given} is not a name", "a letter, then letters, digits, '_' and '-'"
        case _:
            return f"{given}: {details['msg'][:1].lower()}{details['msg'][1:]}", ""


def _owner(path: Path, file: FileSchema) -> str:
    if len(path) == 1:
        return file.whole
    names = [step for step in path[:-1] if isinstance(step, str)]
    return file.owners.get(names[-1], f"{names[-1]}")


def _known_fields(path: Path, document: Document, file: FileSchema) -> str:
    part = _part(path[:-1], document, file)
    if part is None:
        return "remove it"
    names = tuple(field.alias or name for name, field in part.model_fields.items())
    close = difflib.get_close_matches(str(path[-1]), names, 1)
    return f"did you mean {close[0]!r}?" if close else f"known fields: {', '.join(names)}"


def _part(path: Path, document: Document, file: FileSchema) -> type[BaseModel] | None:
    names = tuple(step for step in path if isinstance(step, str))
    if names != (file.variants,):
        return file.parts.get(names)
    value = document.at(path)
    kind = value.get("kind") if isinstance(value, dict) else None
    return file.kinds.get(kind) if isinstance(kind, str) else None


def _range(kind: str, context: dict[str, object]) -> str:
    words = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}
    said = {"gt": "must be above", "ge": "must be at least", "lt": "must be below", "le": "must be at most"}
    bound = words[kind]
    return f"{said[bound]} {context[bound]}"


def _tag_given(details: ErrorDetails) -> str:
    tag = details.get("ctx", {}).get("tag")
    return _given(details["input"]) if tag is None else f"kind {tag!r}"


def _close(details: ErrorDetails, expected: str) -> str:
    text = details.get("ctx", {}).get("tag", details["input"])
    choices = [word.strip(" '") for word in expected.replace(" or ", ",").split(",")]
    close = difflib.get_close_matches(text, choices, 1) if isinstance(text, str) else []
    return f"; did you mean {close[0]!r}?" if close else ""


def _given(value: object) -> str:
    match value:
        case dict():
            return "a group of fields"
        case list():
            return "a list"
        case None:
            return "an empty value"
        case bool():
            return str(value).lower()
        case _:
            text = repr(value)
            return text if len(text) <= 60 else text[:57] + "..."
