"""Nothing outlives a compilation: no function remembers what it was asked, no module fills a table of its own.

What a compilation remembers lies in its context (`partitioner.context.plan_context`). Read from the source. Below the
compiler's middle some tables of the instruction set are filled as they are used; each is listed here with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("partitioner", "isched", "codegen")

A_TABLE = "one entry a mnemonic: a table of the instruction set, made from isa/table.py when it is first used"
WORDS = "words of the instruction set by their numbers, bounded: equal ones are one object; no graph or chip enters"
FORMS = "loops by their numbers -> instructions, bounded; no graph or chip enters"
TOOL = "what an installed tool says of its version, asked by starting it; no graph or chip enters"
ALLOWED = {
    "codegen/cutlass/emission/nvcc.py:_version": TOOL,
    "codegen/cutlass/emission/nvcc.py:cutlass_version": TOOL,
    "codegen/cutlass/sources/__init__.py:source_text": "texts of the package's own files; no graph or chip enters",
    "codegen/cutlass/ptx/text/parse.py:_parsed": "PTX by its text, bounded; readers get copies; no graph enters",
    "codegen/gemmini/isa/table.py:instruction": WORDS,
    "codegen/neuralscale/asm/assembler.py:_immediate": WORDS,
    "codegen/neuralscale/asm/assembly_text.py:_gnu_plan": A_TABLE,
    "codegen/neuralscale/emit/expansion.py:register_fields": A_TABLE,
    "codegen/neuralscale/isa/syntax.py:_template": A_TABLE,
    "codegen/neuralscale/isa/table.py:_made": WORDS,
    "codegen/riscv/codec.py:_narrow_operands": A_TABLE,
    "codegen/neuralscale/isa/table.py:decode": WORDS,
    "codegen/neuralscale/simulator/core/code.py:_fetched": WORDS,
    "codegen/neuralscale/simulator/core/code.py:table": A_TABLE,
    "codegen/neuralscale/simulator/core/compressed.py:expand": WORDS,
    "codegen/neuralscale/templates/strided.py:best_form": FORMS,
    "codegen/neuralscale/templates/strided.py:move_form": FORMS,
}
"""File and function -> why it may remember from one compilation to the next."""

REMEMBERING = frozenset({"cache", "lru_cache"})
FILLING = frozenset({"add", "append", "extend", "setdefault", "update"})


def remembering(tree: ast.Module) -> Iterator[str]:
    """Functions outside classes that keep what they were asked, and module-level names that functions fill."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and REMEMBERING & {_called(name) for name in node.decorator_list}:
            yield node.name
    named = {node.id for line in tree.body if isinstance(line, (ast.Assign, ast.AnnAssign))
             for node in ast.walk(line) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            match node:
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()) if name in named:
                    yield name
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if (
                    name in named and attr in FILLING
                ):
                    yield name


def _called(decorator: ast.expr) -> str:
    """The last name of `@name`, `@module.name` and `@name(...)`."""
    return ast.unparse(decorator).partition("(")[0].rpartition(".")[2]


def found() -> set[str]:
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return {
        f"{file.relative_to(ROOT).as_posix()}:{name}"
        for file in files
        for name in remembering(parsed(file.read_text()))
    }


@pytest.mark.commit
def test_only_tables_of_the_instruction_set_are_kept() -> None:
    assert found() == set(ALLOWED)


@pytest.mark.parametrize(
    "source",
    [
        "from functools import cache\n@cache\ndef f(): ...",
        "import functools\n@functools.lru_cache(maxsize=3)\ndef f(): ...",
        "f: dict[int, int] = {}\ndef g(x):\n    f[x] = 1",
        "f = set()\nclass A:\n    def g(self, x):\n        f.add(x)",
    ],
)
def test_what_remembers_is_found(source: str) -> None:
    assert list(remembering(parsed(source))) == ["f"]


@pytest.mark.parametrize("source", ["f = {1: 2}\ndef g(x):\n    return f[x]", "def g(x):\n    f = {}\n    f[x] = 1"])
def test_tables_that_are_only_read_do_not_remember(source: str) -> None:
    assert not list(remembering(parsed(source)))
