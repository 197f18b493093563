"""Findings of pydantic in a chip file (or a similar file), with the paths and lines of that file.

In: pydantic's errors, the document that they are about, the class of its fields. Out: one `FileProblem` per field, in
pydantic's words, with a suggestion where one helps.
"""

from __future__ import annotations

import difflib
import re
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hw_models.errors import FileProblem
from hw_models.parts import LINE_PATTERN, NAME_PATTERN
from hw_models.yaml_nodes import Document, Path

Models = tuple[type[BaseModel], ...]

SUGGESTIONS = {
    "bool_type": "write true or false",
    "int_type": "write a whole number such as 1_048_576",
    "string_type": "put it in quotes if it is meant as a text",
    "tuple_type": "write one item per line, each after '- '",
    "model_type": "write fields as 'name: value'",
    "dict_type": "write fields as 'name: value'",
}
PATTERNS = {
    NAME_PATTERN: ("a name", "write a letter, then letters, digits, '_' and '-'"),
    LINE_PATTERN: ("one line of text", "write it without line breaks and control characters"),
}

_SHIFTS = {"KiB": 10, "MiB": 20, "GiB": 30}
_SIZE = re.compile(r"([1-9][0-9]{0,9}) ?(KiB|MiB|GiB)")


def field_problems(error: ValidationError, document: Document, model: type[BaseModel]) -> tuple[FileProblem, ...]:
    """One problem for every field that `model`, the class of the file, refuses."""
    found = error.errors(include_url=False)
    return tuple(_problem(details, document, model) for details in found if not _follows(details, found))


def _follows(details: ErrorDetails, found: list[ErrorDetails]) -> bool:
    """Whether a list is too short only because its items were refused."""
    place = details["loc"]
    return details["type"] == "too_short" and any(
        len(other["loc"]) > len(place) and other["loc"][: len(place)] == place for other in found
    )


def _problem(details: ErrorDetails, document: Document, model: type[BaseModel]) -> FileProblem:
    """The finding at its path. Pydantic's location also has the `kind` that chose one of several classes, which is no
    step of the file."""
    path: Path = ()
    models: Models = (model,)
    known: tuple[str, ...] = ()
    for step in details["loc"]:
        if isinstance(step, int):
            path = (*path, step)
        elif len(models) > 1:
            models = tuple(each for each in models if _kind(each) == step)
        else:
            fields = {field.alias or name: field for each in models for name, field in each.model_fields.items()}
            path, known = (*path, step), tuple(fields)
            models = _models(fields[step].annotation) if step in fields else ()
    return document.problem(path, *_words(details, known, tuple(map(_kind, models)) if len(models) > 1 else ()))


def _models(annotation: object) -> Models:
    """The classes of fields that an annotation names, also inside lists and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for part in get_args(annotation) for model in _models(part))


def _kind(model: type[BaseModel]) -> str:
    return str(get_args(model.model_fields["kind"].annotation)[0])


def _words(details: ErrorDetails, known: tuple[str, ...], kinds: tuple[str, ...]) -> tuple[str, str]:
    """The words of a finding: what is wrong, what is allowed. `known` are the fields next to this one, `kinds` those
    that it may have."""
    given = _given(details["input"])
    match details["type"]:
        case "missing":
            return "missing", "add this field"
        case "extra_forbidden":
            return "unknown field", _close(details["loc"][-1], known) or f"known fields: {', '.join(known)}"
        case "union_tag_not_found":
            return f"{given} needs the field kind", f"allowed: {', '.join(kinds)}"
        case "union_tag_invalid":
            tag = details["ctx"]["tag"]
            return f"kind {tag!r} is unknown", _close(tag, kinds) or f"allowed: {', '.join(kinds)}"
        case "literal_error":
            choices = re.findall(r"'([^']*)'", details["ctx"]["expected"])
            return _said(details["msg"], given), _close(details["input"], choices)
        case "string_pattern_mismatch" if details["ctx"]["pattern"] in PATTERNS:
            what, suggestion = PATTERNS[details["ctx"]["pattern"]]
            return f"{given} is not {what}", suggestion
        case "int_type" if (size := _SIZE.fullmatch(str(details["input"]))) is not None:
            return _said(details["msg"], given), f"write the number of bytes, {int(size[1]) << _SHIFTS[size[2]]:_}"
        case sort:
            return _said(details["msg"], given), SUGGESTIONS.get(sort, "")


def _said(message: str, given: str) -> str:
    """Pydantic's message with what was given as its subject."""
    return re.sub(r"^(Input|String|Tuple) ", lambda _: f"{given} ", message)


def _close(given: object, choices: tuple[str, ...] | list[str]) -> str:
    close = difflib.get_close_matches(str(given), choices, 1)
    return f"did you mean {close[0]!r}?" if close else ""


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
