"""Size of each package, so that growth is seen: `python benchmarks/line_budget.py [--since REVISION]`.

    sources of a package --ast--> modules, lines, statements, public names      with --since: also what there was

Keys of a row: `package`, `modules`, `lines` (all of a file), `statements` (docstrings and notes are none) and
`public_names` (functions, classes and constants of modules without a leading underscore).
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.output import add_outputs, finish, table

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("hw_models", "partitioner", "isched", "codegen", "dsa_sched")
BESIDES = ("tests", "benchmarks", "samples")


@dataclass(frozen=True, slots=True)
class Size:
    """Of one package, or of several together."""

    modules: int = 0
    lines: int = 0
    statements: int = 0
    public_names: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def size_of(source: str) -> Size:
    """The size of one module."""
    tree = ast.parse(source)
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not _is_text(node)]
    return Size(1, len(source.splitlines()), len(statements), sum(1 for _ in public_names(tree)))


def public_names(tree: ast.Module) -> Iterator[str]:
    """Names that a module defines for others."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.Assign(targets=targets):
                names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def sources(package: str, revision: str | None) -> Iterator[str]:
    """The texts of a package's modules, as they are or as they were at a revision."""
    if revision is None:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.read_text(encoding="utf-8")
        return
    for name in _git("ls-tree", "-r", "--name-only", revision, "--", package).splitlines():
        if name.endswith(".py"):
            yield _git("show", f"{revision}:{name}")


def sizes(packages: tuple[str, ...], revision: str | None = None) -> dict[str, Size]:
    """By package."""
    return {package: sum(map(size_of, sources(package, revision)), Size()) for package in packages}


def rows(found: dict[str, Size], before: dict[str, Size] | None) -> list[tuple[str, ...]]:
    """The lines of the table; after each number, with `before`, what it was larger or smaller by."""

    def row(name: str, size: Size, old: Size | None) -> tuple[str, ...]:
        olds = astuple(old) if old else (None,) * 4
        pairs = zip(astuple(size), olds, strict=True)
        return (name, *(f"{new:,}" if was is None else f"{new:,} ({new - was:+,})" for new, was in pairs))

    product = sum((found[name] for name in PRODUCT), Size())
    old_product = sum((before[name] for name in PRODUCT), Size()) if before else None
    listed = [row(name, size, before[name] if before else None) for name, size in found.items()]
    return [*listed[: len(PRODUCT)], row("the product", product, old_product), *listed[len(PRODUCT) :]]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _git(*words: str) -> str:
    return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", metavar="REVISION", help="also say what changed since this revision of git")
    add_outputs(parser)
    options = parser.parse_args()
    found = sizes((*PRODUCT, *BESIDES))
    before = sizes((*PRODUCT, *BESIDES), options.since) if options.since else None
    headings = ("package", "modules", "lines", "statements", "public names")
    figures = [{"package": name, **asdict(size)} for name, size in found.items()]
    finish(options, figures, table(headings, rows(found, before)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
