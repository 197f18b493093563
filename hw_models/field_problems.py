"""Findings of the schema in a chip file (or a similar file), in the words and with the lines of that file.

In: pydantic's errors and the document that they are about. Out: one `FileProblem` per field, with what is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hw_models.chip import Chip
from hw_models.errors import FileProblem
from hw_models.yaml_nodes import Document, Path

Models = tuple[type[BaseModel], ...]


@dataclass(frozen=True)
class FileSchema:
    """One sort of file: the class of its fields, the name of the file in messages, and the names of the items of its
    lists.

    Where a list holds several classes, each has a field `kind` that says which."""

    whole: str
    model: type[BaseModel]
    owners: Mapping[str, str]


CHIP_FILE = FileSchema("a chip", Chip, {"memories": "a memory", "engines": "an engine", "links": "a link"})


@dataclass(frozen=True, slots=True)
class _Place:
    """Position of a finding: its path in the file, the class that the field belongs to, whether a `kind` chose that
    class, and the classes that the value may have."""

    path: Path
    owner: type[BaseModel] | None
    chosen: bool
    models: Models


def field_problems(error: ValidationError, document: Document, file: FileSchema = CHIP_FILE) -> tuple[FileProblem, ...]:
    """One problem for every field that the schema refuses."""
    found = error.errors(include_url=False, include_context=True)
    return tuple(_problem(details, document, file) for details in found if not _follows(details, found))


def _follows(details: ErrorDetails, found: list[ErrorDetails]) -> bool:
    """Whether a list is too short only because its items were refused."""
    place = details["loc"]
    return details["type"] == "too_short" and any(
        len(other["loc"]) > len(place) and other["loc"][: len(place)] == place for other in found
    )


def _problem(details: ErrorDetails, document: Document, file: FileSchema) -> FileProblem:
    place = _place(details["loc"], file)
    return document.problem(place.path, *_words(details, place, file))


def _place(location: tuple[int | str, ...], file: FileSchema) -> _Place:
    """Pydantic's location without the kinds that it inserts, which are not fields of the file."""
    found = _Place((), None, False, (file.model,))
    chosen = False
    for step in location:
        if isinstance(step, int):
            found = _Place((*found.path, step), found.owner, found.chosen, found.models)
        elif len(found.models) > 1:
            models = tuple(model for model in found.models if _kind(model) == step)
            found, chosen = _Place(found.path, found.owner, found.chosen, models), True
        else:
            owner = next(iter(found.models), None)
            found, chosen = _Place((*found.path, step), owner, chosen, _field_models(owner, step)), False
    return found


def _field_models(owner: type[BaseModel] | None, name: str) -> Models:
    fields = owner.model_fields.items() if owner is not None else ()
    return next((_models(field.annotation) for own, field in fields if (field.alias or own) == name), ())


def _models(annotation: object) -> Models:
    """The classes of fields that an annotation names, also inside lists and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for part in get_args(annotation) for model in _models(part))


def _kind(model: type[BaseModel]) -> str:
    return str(get_args(model.model_fields["kind"].annotation)[0])


def _words(details: ErrorDetails, place: _Place, file: FileSchema) -> tuple[str, str]:
    """Description of one kind of finding: what is wrong and what is allowed."""
    context, path = details.get("ctx", {}), place.path
    given = _given(details["input"])
    match details["type"]:
        case "missing":
            return "missing", f"{_owner(place, file)} needs this field"
        case "extra_forbidden":
            return "unknown field", _known_fields(place)
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
            return f"{given} is not a schema version that is known", f"this program reads {context['expected']}"
        case "literal_error" | "union_tag_invalid":
            expected = str(context.get("expected") or context.get("expected_tags"))
            return f"{_tag_given(details)} is not allowed", f"allowed: {expected}{_close(details, expected)}"
        case "union_tag_not_found":
            return f"{_item(path, file)} needs the field kind", f"allowed: {', '.join(map(_kind, place.models))}"
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


def _owner(place: _Place, file: FileSchema) -> str:
    if len(place.path) == 1:
        return file.whole
    return _item(place.path[:-1], file) + (" of this kind" if place.chosen else "")


def _item(path: Path, file: FileSchema) -> str:
    """Name of the items in the list, or of the group of fields, at a path."""
    name = next(step for step in reversed(path) if isinstance(step, str))
    return file.owners.get(name, name)


def _known_fields(place: _Place) -> str:
    if place.owner is None:
        return "remove it"
    names = tuple(field.alias or name for name, field in place.owner.model_fields.items())
    close = difflib.get_close_matches(str(place.path[-1]), names, 1)
    return f"did you mean {close[0]!r}?" if close else f"known fields: {', '.join(names)}"


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
