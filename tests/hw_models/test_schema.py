"""The JSON schema of chip files accepts the built-in chips, and refuses what reading a file refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import pytest
from click.testing import CliRunner

from dsa_sched.cli import cli
from hw_models.loading import builtin_chips
from hw_models.schema import chip_schema
from hw_models.yaml_nodes import read_document

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "null": lambda value: value is None,
}
LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    "const": lambda value, limit: bool(value == limit),
    "enum": lambda value, limit: value in limit,
    "minimum": lambda value, limit: bool(value >= limit),
    "maximum": lambda value, limit: bool(value <= limit),
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "exclusiveMinimum": lambda value, limit: bool(value > limit),
    "pattern": lambda value, limit: re.search(limit, value) is not None,
}
STRUCTURE = {"$ref", "$defs", "$schema", "anyOf", "oneOf", "allOf", "type", "properties", "required", "items"}
NOTES = {"additionalProperties", "title", "description", "default", "discriminator"}


def problems(schema: dict[str, Any], value: Any, whole: dict[str, Any], at: str = "") -> Iterator[str]:
    """Places of a value that a schema does not allow, by the keywords that chip schemas have."""
    assert set(schema) <= STRUCTURE | NOTES | set(LIMITS) | {"if", "then"}, schema
    if "$ref" in schema:
        yield from problems(whole["$defs"][schema["$ref"].rsplit("/", 1)[1]], value, whole, at)
    for some in (schema.get("anyOf"), schema.get("oneOf")):
        if some and all(any(problems(each, value, whole)) for each in some):
            yield f"{at}: none of the alternatives"
    for each in schema.get("allOf", ()):
        if not any(problems(each["if"], value, whole)):
            yield from problems(each["then"], value, whole, at)
    if "type" in schema and not TYPES[schema["type"]](value):
        yield f"{at}: no {schema['type']}"
        return
    yield from (f"{at}: {word}" for word, holds in LIMITS.items() if word in schema and not holds(value, schema[word]))
    if isinstance(value, dict):
        yield from (f"{at}.{name}: missing" for name in schema.get("required", ()) if name not in value)
        fields = schema.get("properties", {})
        if schema.get("additionalProperties") is False:
            yield from (f"{at}.{name}: unknown" for name in value if name not in fields)
        for name in fields.keys() & value.keys():
            yield from problems(fields[name], value[name], whole, f"{at}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from problems(schema["items"], item, whole, f"{at}[{number}]")


def builtin(name: str) -> Any:
    return read_document((resources.files("hw_models") / "chips" / f"{name}.yaml").read_text(encoding="utf-8")).value


@pytest.mark.parametrize("name", builtin_chips())
def test_the_schema_accepts_the_built_in_chips(name: str) -> None:
    assert list(problems(chip_schema(), builtin(name), chip_schema())) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clusters": 0}, ".clusters: minimum"),
        ({"clock_hz": "fast"}, ".clock_hz: no integer"),
        ({"color": "red"}, ".color: unknown"),
        ({"name": "2nd"}, ".name: pattern"),
        ({"kind": "gpu"}, ".simt: missing"),
        ({"dma": None}, ".dma: no object"),
    ],
)
def test_the_schema_refuses_what_no_chip_file_may_say(change: dict[str, Any], said: str) -> None:
    assert said in list(problems(chip_schema(), builtin("stcp920") | change, chip_schema()))


def test_the_parts_of_an_array_of_cores_are_required() -> None:
    fields = {name: value for name, value in builtin("stcp920").items() if name not in ("links", "dma", "assumed")}
    found = list(problems(chip_schema(), fields, chip_schema()))
    assert found == [".links: missing", ".dma: missing", ".assumed: missing"]


def test_the_command_prints_the_schema() -> None:
    printed = CliRunner().invoke(cli, ["chip", "schema"])
    assert json.loads(printed.stdout) == chip_schema()
