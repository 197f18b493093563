"""YAML text to plain values that keep the line of every field.

    'a: {b: 1}'  -->  value {'a': {'b': 1}}, lines {('a',): 1, ('a', 'b'): 1}

Chip files need little of YAML, and they may come from anywhere: anchors, aliases, tags, several documents and duplicate
keys are problems, not features, and the depth is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from hw_models.errors import FileProblem

MAX_DEPTH = 12
Path = tuple[str | int, ...]
Value = str | int | float | bool | None | list["Value"] | dict[str, "Value"]


@dataclass(frozen=True, slots=True)
class Document:
    """Value of a file, the line (from 1) of every path in it, and its problems as YAML."""

    value: Value
    lines: Mapping[Path, int]
    problems: tuple[FileProblem, ...]

    def problem(self, path: Path, wrong: str, allowed: str) -> FileProblem:
        """A problem with the field at a path, with its line or that of the nearest path around it."""
        known = next((path[:size] for size in range(len(path), 0, -1) if path[:size] in self.lines), ())
        return FileProblem(self.lines.get(known, 0), path_text(path), wrong, allowed)


def path_text(path: Path) -> str:
    """A path as a reader writes it: `memories[2].size_bytes`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def read_document(text: str, sort: str = "chip file") -> Document:
    """Read one YAML document. Never raises for wrong text: its errors are in `problems`, which call the text a
    `sort`."""
    yaml = YAML(typ="safe", pure=True)
    try:
        root: Node | None = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        return _failed(mark.line + 1 if mark else 0, f"not valid YAML: {said}")
    except YAMLError as error:
        return _failed(0, f"not valid YAML: {str(error).splitlines()[0]}")
    except RecursionError:
        return _failed(0, f"nested deeper than {MAX_DEPTH} levels")
    if root is None:
        return _failed(0, "the file is empty")
    reader = _Reader(yaml, sort)
    value = reader.read(root, ())
    return Document(value, reader.lines, tuple(reader.problems))


def _failed(line: int, wrong: str) -> Document:
    return Document(None, {}, (FileProblem(line, "", wrong),))


@dataclass(slots=True)
class _Reader:
    """Walks the nodes of one file once and collects lines and problems."""

    yaml: YAML
    sort: str
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[FileProblem] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def read(self, node: Node, path: Path) -> Value:
        self.lines.setdefault(path, _line(node))
        if id(node) in self.seen or node.anchor:
            return self._refuse(node, path, f"anchors and aliases (&name, *name) are not used in {self.sort}s")
        self.seen.add(id(node))
        if len(path) > MAX_DEPTH:
            return self._refuse(node, path, f"nested deeper than {MAX_DEPTH} levels")
        match node:
            case MappingNode():
                return self._mapping(node, path)
            case SequenceNode():
                return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
            case _:
                return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> Value:
        fields: dict[str, Value] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            place = (*path, key)
            if not isinstance(key_node, ScalarNode):
                self._refuse(key_node, path, "a field name must be plain text")
            elif key in fields:
                self._refuse(key_node, place, f"given twice, first in line {self.lines[place]}")
            else:
                self.lines[place] = _line(key_node)
                fields[key] = self.read(value_node, place)
        return fields

    def _scalar(self, node: Node, path: Path) -> Value:
        text = str(node.value)
        said = repr(text if len(text) <= 40 else text[:37] + "...")
        try:
            value = self.yaml.constructor.construct_object(node)
            if isinstance(value, str):
                value.encode()  # refuses halves of surrogate pairs
        except YAMLError:
            value = ()  # a tag of a class
        except (ValueError, LookupError, TypeError, AttributeError):
            return self._refuse(node, path, f"{said} cannot be held by a {self.sort}")
        if value is None or isinstance(value, str | int | float):
            return value
        return self._refuse(node, path, f"{said} is not a number, a text or true/false")

    def _refuse(self, node: Node, path: Path, wrong: str) -> Value:
        self.problems.append(FileProblem(_line(node), path_text(path), wrong))
        return None


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
