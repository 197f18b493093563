"""Nothing decides by the words of an error, and planners do not catch errors: what finds no room is a value.

Read from the source of all packages. Words are the fields of a caught error or of a parameter that is one, what `str`
makes of it, and what `hw_models.errors` makes of an `Infeasible`; whoever prints may put them together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hw_models", "partitioner", "isched", "codegen", "dsa_sched")
PLANNING = ("partitioner", "isched")

ERRORS = frozenset({
    "UserError", "FileError", "ChipError", "CountersError", "JobFileError", "ModelError", "PlacementError", "PlanError",
    "DoesNotFit", "RefusedInput", "TargetError", "OtherProgram", "TextError", "Unsupported",
    "ChangedByPadding",
})  # fmt: skip
EVERYTHING = frozenset({"Exception", "BaseException", ""})
"""Handlers that catch our errors too."""

FIELDS = frozenset({"who", "needs", "has", "change", "line", "args"})
WORDS = frozenset({"str", "repr", "reason_text", "reason_of", "place_text", "subject_text"})

BOUNDARIES = frozenset({
    ("partitioner/memory/no_plan.py", "PlanError"),  # a broken rule of planning becomes a value
    ("partitioner/ir/graph_text.py", "TextError"),  # a reader of text adds the number of the line
})  # fmt: skip
PRINTERS = frozenset({
    "dsa_sched/analysis/operator_support.py",  # the table of operators: the words of a refusal without its name
    "dsa_sched/search/candidates.py",  # a refusal as one line of a decision
})  # fmt: skip


def caught(handler: ast.ExceptHandler) -> frozenset[str]:
    """Names of the classes that a handler catches; an empty one for all."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return frozenset("" if kind is None else ast.unparse(kind).rpartition(".")[2] for kind in kinds)


def handlers(tree: ast.AST) -> Iterator[ast.ExceptHandler]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler))


def swallowed(source: str, path: str) -> list[str]:
    """Handlers of a file that take an error of ours for an answer and are no declared boundary."""
    return [
        f"{path}:{handler.lineno}: catches {kind or 'everything'}: return an Infeasible instead"
        for handler in handlers(parsed(source))
        for kind in sorted(caught(handler) & (ERRORS | EVERYTHING))
        if (path, kind) not in BOUNDARIES
    ]


def error_names(scope: ast.AST) -> Iterator[str]:
    """Names of every caught error and every parameter that is an error of ours."""
    for node in ast.walk(scope):
        match node:
            case ast.ExceptHandler(name=str(name)) if caught(node) & ERRORS:
                yield name
            case ast.FunctionDef(args=ast.arguments(args=arguments)):
                for argument in arguments:
                    if argument.annotation is not None and ast.unparse(argument.annotation) in ERRORS:
                        yield argument.arg


class Words:
    """Which expressions are words of errors; local names that words are given to are words too."""

    def __init__(self, errors: frozenset[str], scope: ast.AST) -> None:
        self.errors = errors
        self.names: frozenset[str] = frozenset()
        self.names = frozenset(
            target.id
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and self.holds(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        )

    def holds(self, node: ast.AST | None) -> bool:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                return name in self.errors and attr in FIELDS
            case ast.Attribute(value=ast.Call(func=ast.Name(id="DoesNotFit")), attr=attr):
                return attr in FIELDS
            case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
                return name in self.errors
            case ast.Call(func=ast.Name(id=function)):
                return function in WORDS - {"str", "repr"}
            case ast.JoinedStr(values=values):
                return any(self.formats(value) for value in values)
            case ast.Name(id=name):
                return name in self.names
        return False

    def formats(self, node: ast.AST) -> bool:
        return isinstance(node, ast.FormattedValue) and (
            self.holds(node.value) or (isinstance(node.value, ast.Name) and node.value.id in self.errors)
        )

    def uses(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node decides by, or takes apart."""
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
                yield test
            case ast.Compare(left=left, comparators=others):
                yield from (left, *others)
            case ast.BoolOp(values=values):
                yield from values
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield operand
            case ast.Match(subject=subject):
                yield subject
            case ast.Subscript(value=value):
                yield value
            case ast.Call(func=ast.Attribute(value=value)):
                yield value


def decided_by_words(source: str, path: str) -> list[str]:
    """Where a file decides by the words of an error, or takes them apart."""
    tree = parsed(source)
    if path in PRINTERS:
        return []
    found = {
        (used.lineno, ast.unparse(used))
        for scope in ast.walk(tree)
        if isinstance(scope, ast.FunctionDef)
        for words in (Words(frozenset(error_names(scope)), scope),)
        for node in ast.walk(scope)
        for used in words.uses(node)
        if isinstance(used, ast.expr) and words.holds(used)
    }
    return [f"{path}:{line}: decides by words: {text}" for line, text in sorted(found)]


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.commit
def test_nothing_decides_by_the_words_of_an_error(package: str) -> None:
    files = sources(package)
    assert files
    found = [line for file in files for line in decided_by_words(file.read_text(), file.relative_to(ROOT).as_posix())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PLANNING)
def test_planning_catches_no_errors(package: str) -> None:
    files = sources(package)
    assert files
    found = [line for file in files for line in swallowed(file.read_text(), file.relative_to(ROOT).as_posix())]
    assert not found, "\n".join(found)


def test_every_boundary_and_every_printer_is_needed() -> None:
    for path, kind in BOUNDARIES:
        assert any(kind in caught(handler) for handler in handlers(parsed((ROOT / path).read_text()))), path
    for path in PRINTERS:
        assert decided_by_words((ROOT / path).read_text(), "elsewhere.py"), path


def test_all_classes_of_errors_are_known() -> None:
    made = {
        node.name
        for package in PACKAGES
        for file in sources(package)
        for node in ast.walk(parsed(file.read_text()))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).rpartition(".")[2] in ERRORS for base in node.bases)
    }
    assert made | {"UserError"} == ERRORS


HANDLER = "def f():\n    try:\n        g()\n    except PlanError as error:\n        {}\n"


@pytest.mark.parametrize(
    "body",
    [
        "return error.who.startswith('layer ')",
        "return error.where if error.who == 'value x' else ''",
        "return error.needs.split(' ')[0]",
        "return str(error)[:5]",
        "return error.args[0]",
        "text = error.line\n        return text.split(':')",
        "if f'{error}':\n            pass",
        "match error.who:\n            case 'x':\n                pass",
        "while not error.has:\n            pass",
    ],
)
def test_a_decision_by_words_is_found(body: str) -> None:
    assert decided_by_words(HANDLER.format(body), "partitioner/a.py")


@pytest.mark.parametrize(
    "source",
    [
        "def f(found):\n    return reason_text(found) == 'x'",
        "def f(found):\n    return place_text(found).split()[0]",
        "def f(found):\n    return subject_text(found.subject) in names",
        "def f(found):\n    return DoesNotFit(found).line.startswith('value')",
        "def f(error: DoesNotFit):\n    return error.who in names",
    ],
)
def test_a_decision_by_the_words_of_a_value_is_found(source: str) -> None:
    assert decided_by_words(source, "partitioner/a.py")


@pytest.mark.parametrize(
    "body",
    [
        "raise ModelError(error.who, needs=error.needs) from error",
        "reasons.append(Decision('order', 'tried again', error.line))",
        "return f'{error}'",
        "return error.infeasible.memory == 'L1'",
    ],
)
def test_words_may_be_handed_on(body: str) -> None:
    assert decided_by_words(HANDLER.format(body), "partitioner/a.py") == []


@pytest.mark.parametrize(
    "kinds", ["UserError", "DoesNotFit", "errors.PlanError", "(KeyError, ChipError)", "Exception", "BaseException", ""]
)
def test_a_handler_in_a_planner_is_found(kinds: str) -> None:
    source = f"try:\n    g()\nexcept {kinds}:\n    pass\n"
    assert len(swallowed(source, "partitioner/planners/o9.py")) == 1
    assert swallowed("try:\n    g()\nexcept KeyError:\n    pass\n", "partitioner/planners/o9.py") == []
