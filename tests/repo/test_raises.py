"""A public function that raises an error of its own says so: in its docstring, its class's or its module's.

Read from the source. Counted are errors that a function raises by name and does not catch itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hw_models", "partitioner", "isched", "codegen", "dsa_sched")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def raised(node: ast.AST) -> Iterator[str]:
    """Names of the errors that leave a function, not those of functions inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            function = child.exc.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            if name[:1].isupper():
                yield name
        inner = [*child.handlers, *child.orelse, *child.finalbody] if isinstance(child, ast.Try) else [child]
        for part in inner:
            yield from raised(part)


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Commands are called by click, which tells the user what they raise."""
    return any("click.command" in ast.unparse(decorator) for decorator in node.decorator_list)


def silent(tree: ast.Module) -> list[str]:
    """`line name: errors` of every public function that raises what no docstring around it names."""
    found: list[str] = []

    def visit(node: ast.AST, said: str) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (*FUNCTIONS, ast.ClassDef)) or child.name.startswith("_"):
                continue
            here = said + (ast.get_docstring(child) or "")
            if isinstance(child, ast.ClassDef):
                visit(child, here)
            elif not is_command(child) and (missing := sorted({name for name in raised(child) if name not in here})):
                found.append(f"{child.lineno} {child.name}: {', '.join(missing)}")

    visit(tree, ast.get_docstring(tree) or "")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_raised_is_said(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    found = [f"{f.relative_to(ROOT)}:{line}" for f in files for line in silent(parsed(f.read_text()))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f():\n    raise ModelError('x')", ["1 f: ModelError"]),
        ('def f():\n    """Raises ModelError."""\n    raise ModelError("x")', []),
        ('"""All raise ModelError."""\ndef f():\n    raise ModelError("x")', []),
        ("def _f():\n    raise ModelError('x')", []),
        ("def f():\n    try:\n        raise ModelError('x')\n    except ModelError:\n        pass", []),
        ("def f():\n    try:\n        g()\n    except KeyError:\n        raise ModelError('x')", ["1 f: ModelError"]),
        ('class A:\n    """Raises KeyError."""\n    def f(self):\n        raise KeyError(1)', []),
        ("class A:\n    def f(self):\n        raise errors.ChipError(1)", ["2 f: ChipError"]),
    ],
)
def test_the_check_sees_what_it_is_to_see(source: str, said: list[str]) -> None:
    assert silent(parsed(source)) == said
