"""Write the reference pages that follow from the code: command line, chip files, manifest, operators, Python.

    python docs/reference/generate.py       writes docs/reference/generated/*.md, which git ignores

click commands, pydantic fields, docstrings, tried operators --> {file name: Markdown text}. `docs/conf.py` calls
`write_pages` before every build, so that no page is older than the code.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LARGE = 1 << 24
"""Upper limits from here on only keep numbers from overflowing, and are not listed."""

UNITS = {
    "_bytes_per_cycle": "bytes per cycle",
    "_per_cycle": "per cycle",
    "_bytes": "bytes",
    "_cycles": "cycles",
    "_hz": "Hz",
    "_us": "microseconds",
}
"""Units by the ends of names; the first one that fits counts."""

GENERATED = Path(__file__).resolve().parent / "generated"
CHIPS_OF_OPERATORS = ("stcp920", "a100")
"""The built-in chips whose operators are listed, one for each kind of target."""


# Text.


def prose(text: str) -> str:
    """Plain text as Markdown: outside of `code`, nothing is read as markup."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[\]#])", r"\\\1", part) for part in parts)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def blocks(text: str) -> Iterator[str]:
    """Paragraphs of a docstring or a help text; indented ones, and those after \\b, keep their lines."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        kept, _, rest = paragraph.partition("\b\n")
        if rest and not kept.strip():
            yield f"```text\n{rest.rstrip()}\n```"
        elif all(line.startswith("    ") for line in paragraph.splitlines()):
            yield f"```text\n{inspect.cleandoc(paragraph)}\n```"
        elif paragraph.strip():
            yield prose(paragraph)


def _page(title: str, source: str, parts: Iterable[str]) -> str:
    note = f"<!-- Made by docs/reference/generate.py from {source}; do not edit. -->"
    return "\n\n".join((note, f"# {title}", *parts)) + "\n"


# The command line.


def command_line() -> str:
    """Every command with its help and its options."""
    from dsa_sched.cli import cli

    return _page("Command line", "the commands themselves", _commands("dsa-sched", cli))


def _commands(name: str, command: click.Command) -> Iterator[str]:
    with click.Context(command, info_name=name) as context:
        if name != "dsa-sched":
            yield f"## {name}"
        yield f"```text\n{' '.join((name, *command.collect_usage_pieces(context)))}\n```"
        yield from blocks(command.help or command.short_help or "")
        rows = [_option(param, context) for param in command.params if isinstance(param, click.Option)]
        if rows:
            yield table(("option", "default", "what it does"), rows)
        children = getattr(command, "commands", {})
        for child in children.values():
            yield from _commands(f"{name} {child.name}", child)


def _option(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    spelled = ", ".join(option.opts) + (f" / {', '.join(option.secondary_opts)}" if option.secondary_opts else "")
    value = "" if option.is_flag or option.count else f" {option.make_metavar(context)}"
    default = option.get_default(context)
    shown = "required" if option.required else str(default) if isinstance(default, str | int | float) else ""
    return f"`{spelled}{value}`", "" if isinstance(default, bool) else prose(shown), prose(option.help or "")


# Files that pydantic describes.


def _fields(model: type[BaseModel]) -> Iterator[str]:
    """A heading, what the record is, and a row for each field."""
    yield f"## {model.__name__}"
    yield from blocks(model.__doc__ or "")
    schema = model.model_json_schema(by_alias=True)
    needed = schema.get("required", [])
    rows = []
    for name, entry in schema["properties"].items():
        default = "required" if name in needed else _default(entry.get("default"))
        rows.append((f"`{name}`", prose(_type(entry)), _unit(name), default))
    yield table(("field", "value", "unit", "default"), rows)


def _unit(name: str) -> str:
    """The unit that the end of a field's name says; empty for counts, names and choices."""
    return next((unit for ending, unit in UNITS.items() if name.endswith(ending)), "")


def _default(value: object) -> str:
    return "none" if value in (None, [], {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(entry: dict[str, Any]) -> str:
    """What a value may be, in words."""
    if "const" in entry:
        return f"`{entry['const']}`"
    if "enum" in entry:
        return "one of " + ", ".join(f"`{value}`" for value in entry["enum"])
    if "$ref" in entry:
        return entry["$ref"].rsplit("/", 1)[1]
    for union in ("anyOf", "oneOf"):
        if union in entry:
            return " or ".join(dict.fromkeys(_type(each) for each in entry[union] if each.get("type") != "null"))
    kind = entry.get("type", "any")
    if kind == "array" and isinstance(entry.get("items"), dict):
        return f"list of {_type(entry['items'])}"
    words = {"integer": "integer", "number": "number", "string": "text", "boolean": "`true` or `false`"}
    limits = [f"at least {entry['minimum']:,}"] if "minimum" in entry else []
    limits += [f"at most {entry['maximum']:,}"] if entry.get("maximum", LARGE) < LARGE else []
    return ", ".join((words.get(kind, "mapping" if kind == "object" else str(kind)), *limits))


def _nested(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A record and all that its fields hold, each once, in the order of the fields."""
    seen: dict[type[BaseModel], None] = {}

    def visit(annotation: object) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in seen:
            seen[annotation] = None
            for field in annotation.model_fields.values():
                visit(field.annotation)
        for inner in getattr(annotation, "__args__", ()):
            visit(inner)

    visit(model)
    return iter(seen)


def chip_fields() -> str:
    """Every field of a chip file."""
    from hw_models.chip import Chip

    intro = "[Chip files](../../chips.md) says how a file is written and checked."
    parts = (part for model in _nested(Chip) for part in _fields(model))
    return _page("Fields of a chip file", "the records of hw_models/", (intro, *parts))


def manifest() -> str:
    """Every key of an artifact's manifest."""
    from dsa_sched.artifact.format import Manifest

    intro = "`manifest.json` lies in every folder that `dsa-sched compile -o` writes."
    parts = (part for model in _nested(Manifest) for part in _fields(model))
    return _page("Keys of manifest.json", "dsa_sched/artifact/", (intro, *parts))


# Operators.


def operators() -> str:
    """What each built-in kind of target computes, each way of writing an operator tried."""
    return _page("Operators", "`dsa-sched ops`, which tries each way of writing an operator", _operators())


def _operators() -> Iterator[str]:
    from dsa_sched.analysis.operator_support import operator_support
    from dsa_sched.stages.targets import target_of
    from hw_models.loading import load_chip

    yield "`yes` is what `compile` takes, `no` what it refuses, with its words. `--host` leaves the rest to the host."
    for name in CHIPS_OF_OPERATORS:
        chip = load_chip(name)
        rows = [row for support in operator_support(chip, target_of(chip)) for row in support.rows]
        yield f"## {name}"
        yield table(
            ("ONNX operator", "computed", "as, or why not"),
            [(f"`{kind}`", word, prose(how)) for kind, word, how in rows],
        )


# Python.


def python() -> str:
    """The functions and classes that a user of the package calls."""
    return _page("Python", "docstrings", _python())


def _python() -> Iterator[str]:
    import dsa_sched
    from dsa_sched.api.results import (
        ExplanationReport,
        PlacementReport,
        QuantizeResult,
        TimelineReport,
        TimingReport,
        VerificationReport,
    )
    from dsa_sched.artifact.format import Artifact
    from hw_models.errors import UserError

    yield "From a model to results, as on the command line. Each error that a user can cause is a `UserError`."
    for name in dsa_sched.__all__:
        if inspect.isfunction(function := getattr(dsa_sched, name)):
            yield from _function(f"dsa_sched.{name}", function)
    yield "## dsa_sched.Options"
    yield from blocks(dsa_sched.Options.__doc__ or "")
    reports = (ExplanationReport, TimingReport, TimelineReport, VerificationReport, PlacementReport, QuantizeResult)
    for kind in (Artifact, *reports):
        yield from _class(kind)
    yield "## hw_models.errors.UserError"
    yield from blocks(UserError.__doc__ or "")


def _class(kind: type) -> Iterator[str]:
    """A class with its documented methods and properties."""
    yield f"## {kind.__name__}"
    yield from blocks(kind.__doc__ or "")
    for name, member in vars(kind).items():
        made = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if name.startswith("_"):
            continue
        if inspect.isfunction(made) and made.__doc__:
            yield from _function(f"{kind.__name__}.{name}", made, "###")
        if isinstance(made, property | cached_property) and made.__doc__:
            yield f"### {kind.__name__}.{name}"
            yield from blocks(made.__doc__)


def _function(name: str, function: Callable[..., object], level: str = "##") -> Iterator[str]:
    yield f"{level} {name}"
    signature = re.sub(r"<function [^>]*>", "...", str(inspect.signature(function)))
    signature = re.sub(r"""(?<=[:>] )(['"])(.*?)\1(?=[,) ]|$)""", r"\2", signature)
    yield f"```python\n{name}{signature}\n```"
    yield from blocks(function.__doc__ or "")


# All of them.

QUICK: dict[str, Callable[[], str]] = {
    "command-line.md": command_line,
    "chip-fields.md": chip_fields,
    "manifest.md": manifest,
    "python.md": python,
}
"""Pages that take no time to make."""

PAGES: dict[str, Callable[[], str]] = {**QUICK, "operators.md": operators}


def write_pages() -> None:
    """Write all pages; a page whose text has not changed keeps its time, so that Sphinx does not read it again."""
    GENERATED.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        path, text = GENERATED / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages()
