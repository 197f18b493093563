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

    def line(self, path: Path) -> int:
        """The line of a path, or of the nearest path around it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 0)

    def problem(self, path: Path, wrong: str, allowed: str) -> FileProblem:
        """A problem with the field at a path, with its line."""
        return FileProblem(self.line(path), path_text(path), wrong, allowed)


def path_text(path: Path) -> str:
    """A path as a reader writes it: `memories[2].size_bytes`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def read_document(text: str, sort: str = "chip file") -> Document:
    """Read one YAML document. Never raises for wrong text: its errors are in `problems`, which call the text a
    `sort`."""
    try:
        root: Node | None = YAML(typ="safe", pure=True).compose(text)
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
    reader = _Reader(sort)
    value = reader.read(root, ())
    return Document(value, reader.lines, tuple(reader.problems))


def _failed(line: int, wrong: str) -> Document:
    return Document(None, {}, (FileProblem(line, "", wrong),))


@dataclass(slots=True)
class _Reader:
    """Walks the nodes of one file once and collects lines and problems."""

    sort: str
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[FileProblem] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def read(self, node: Node, path: Path) -> Value:
        self.lines.setdefault(path, _line(node))
        if id(node) in self.seen or node.anchor:
            return self._refused(node, path, f"anchors and aliases (&name, *name) are not used in {self.sort}s")
        self.seen.add(id(node))
        if len(path) > MAX_DEPTH:
            return self._refused(node, path, f"nested deeper than {MAX_DEPTH} levels")
        match node:
            case MappingNode():
                return self._mapping(node, path)
            case SequenceNode():
                return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
            case ScalarNode():
                return self._scalar(node, path)
            case _:
                return self._refused(node, path, f"not a value that {self.sort}s use")

    def _mapping(self, node: MappingNode, path: Path) -> Value:
        fields: dict[str, Value] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._refuse(key_node, path, "a field name must be plain text")
                continue
            key = str(key_node.value)
            place = (*path, key)
            if key in fields:
                self._refuse(key_node, place, f"given twice, first in line {self.lines[place]}")
                continue
            self.lines[place] = _line(key_node)
            fields[key] = self.read(value_node, place)
        return fields

    def _scalar(self, node: ScalarNode, path: Path) -> Value:
        text = str(node.value)
        try:
            match str(node.tag).rpartition(":")[2]:
                case "str":
                    text.encode()  # refuses halves of surrogate pairs
                    return text
                case "int":
                    return int(text.replace("_", ""), 0)
                case "float":
                    return _float(text)
                case "bool":
                    return text.lower() in ("true", "yes", "on")
                case "null":
                    return None
                case _:
                    return self._refused(node, path, f"{_short(text)} is not a number, a text or true/false")
        except ValueError:
            return self._refused(node, path, f"{_short(text)} cannot be held by a {self.sort}")

    def _refused(self, node: Node, path: Path, wrong: str) -> Value:
        self._refuse(node, path, wrong)
        return None

    def _refuse(self, node: Node, path: Path, wrong: str) -> None:
        self.problems.append(FileProblem(_line(node), path_text(path), wrong))


def _float(text: str) -> float:
    plain = text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")
    return float(plain)


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
