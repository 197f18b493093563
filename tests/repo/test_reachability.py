"""The command line, `dsa_sched`'s public names or a built-in target reach every module of the product.

What only tests and benchmarks use belongs in `benchmarks/lab/`. Read from the source: an import anywhere in a module
counts, and so does a text that names a module, as the tables of lazy imports do.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.repo.parsed import parsed
from tests.repo.test_layers import LAYERS, imported, sources

ROOT = Path(__file__).resolve().parents[2]
DOORS = ("dsa_sched", "dsa_sched.__main__", "dsa_sched.cli")

ALLOWED = {
    "codegen.cutlass.runner.executor_driver": "a command of its own: docs/gpu.md runs it by `python -m`",
    "dsa_sched.placement.mlir.operation_work": "for the user's scripts: imported by tensor_functions",
    "dsa_sched.placement.mlir.passes": "for the user's scripts: docs/placement.md, MLIR, and samples/05_mlir.py",
    "dsa_sched.placement.mlir.tensor_functions": "for the user's scripts: samples/05_mlir.py",
}
"""Module -> why it stays in the product though nothing reaches it."""


def modules() -> dict[str, Path]:
    """Dotted name -> file of every module of the product; a package has the name of its folder."""
    files = (file.relative_to(ROOT) for package in LAYERS for file in sources(package))
    return {".".join(file.with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def named_modules(tree: ast.Module, known: Mapping[str, object], package: str) -> set[str]:
    """Known modules that a source imports, or names in a text such as `package.module:function`."""
    found = {name for _, name in imported(tree, package)}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)):
                found |= {f"{module}.{alias.name}" for alias in node.names}
            case ast.Constant(value=str(text)):
                found.add(text.split(":")[0])
    return found & known.keys()


def unreached(imports: Mapping[str, set[str]], doors: tuple[str, ...]) -> set[str]:
    """Modules that no door leads to. Who imports a module imports the packages that it lies in."""
    reached: set[str] = set()
    waiting = [*doors]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += [*imports[module], *([module.rpartition(".")[0]] if "." in module else [])]
    return {*imports} - reached


@pytest.mark.commit
def test_every_module_of_the_product_is_reached() -> None:
    files = modules()
    imports = {
        name: named_modules(parsed((ROOT / file).read_text(encoding="utf-8")), files, name.split(".")[0])
        for name, file in files.items()
    }
    empty = {name for name, file in files.items() if file.name == "__init__.py"}
    assert unreached(imports, DOORS) - empty == ALLOWED.keys()


def test_a_module_that_nothing_imports_is_found() -> None:
    imports = {"a": {"a.b"}, "a.b": set(), "a.c": {"a.b"}, "d.e": set(), "d": {"d.e"}}
    assert unreached(imports, ("a",)) == {"a.c", "d", "d.e"}
    assert unreached(imports, ("d.e", "a")) == {"a.c"}


def test_imports_and_texts_name_modules() -> None:
    known = dict.fromkeys(("a", "a.b", "a.c", "a.d"))
    source = "def f():\n    from a import b\n\nTABLE = {'x': 'a.c:run'}\nNOTE = 'see a.d for more'\n"
    assert named_modules(parsed(source), known, "a") == {"a", "a.b", "a.c"}


def test_the_product_does_not_import_the_laboratory() -> None:
    for package in LAYERS:
        for file in sources(package):
            names = {name.split(".")[0] for _, name in imported(parsed(file.read_text(encoding="utf-8")), package)}
            assert "benchmarks" not in names, file
