"""Imports go one way: hw_models <- partitioner <- isched <- codegen <- dsa_sched; and TVM stays behind its door.

Read from the source, not from a running program, so that imports inside functions count too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.repo.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("hw_models", "partitioner", "isched", "codegen", "dsa_sched")
TVM_DOORS = frozenset({
    "dsa_sched/frontend/graph/access_maps.py",
    "dsa_sched/devices/tvm_device.py",  # a device that compiles by TVM: there it is the product, not the analysis
})  # fmt: skip
TVM = frozenset({"tvm", "tvm_ffi"})


def imported(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Line and module of every import; relative ones are those of `package`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                yield node.lineno, package if node.level else str(node.module)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield node.lineno, name


def breaches(source: str, path: str) -> list[str]:
    """What a file at `path` (relative to the root) imports against the rules, one line each."""
    package = path.split("/")[0]
    above = LAYERS[LAYERS.index(package) + 1 :]
    found = []
    for line, module in imported(parsed(source), package):
        name = module.split(".")[0]
        if name in above:
            found.append(f"{path}:{line}: {package} may not import {name}, which lies above it")
        if name in TVM and path not in TVM_DOORS:
            found.append(f"{path}:{line}: {name} is imported only in {', '.join(sorted(TVM_DOORS))}")
        if path.startswith("dsa_sched/") and module.startswith("codegen.neuralscale"):
            found.append(f"{path}:{line}: what lies above codegen knows no target by name")
        if name == "tests":
            found.append(f"{path}:{line}: packages do not import tests")
    return found


@pytest.mark.commit
def test_benchmarks_import_nothing_from_tests() -> None:
    files = sources("benchmarks")
    assert files
    for file in files:
        assert "tests" not in {name.split(".")[0] for _, name in imported(parsed(file.read_text()), "benchmarks")}, file


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", LAYERS)
def test_no_import_goes_against_the_layers(package: str) -> None:
    files = sources(package)
    assert files
    found = [line for file in files for line in breaches(file.read_text(), file.relative_to(ROOT).as_posix())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "path", "said"),
    [
        ("import isched.program.program", "partitioner/ir/plan.py", "partitioner may not import isched"),
        (
            "def f():\n    from codegen import target",
            "isched/order.py",
            "isched/order.py:2: isched may not import codegen",
        ),
        ("from dsa_sched.cli import main", "codegen/target.py", "codegen may not import dsa_sched"),
        ("import importlib\nimportlib.import_module('codegen.x')", "isched/a.py", "isched may not import codegen"),
        ("from codegen.neuralscale.asm import assembler", "dsa_sched/commands/iss.py", "knows no target by name"),
        ("import tvm.relax", "dsa_sched/pipeline/driver.py", "tvm is imported only in"),
        ("from tests.strategies import graphs", "hw_models/a.py", "packages do not import tests"),
    ],
)
def test_a_breach_is_found(source: str, path: str, said: str) -> None:
    assert any(said in line for line in breaches(source, path))


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("import tvm", "dsa_sched/frontend/graph/access_maps.py"),
        ("from hw_models.chip import Chip", "dsa_sched/pipeline/driver.py"),
        ("from . import chip", "hw_models/loading.py"),
        ("# import dsa_sched\nx = 'import dsa_sched'", "hw_models/chip.py"),
    ],
)
def test_what_the_rules_allow_is_no_breach(source: str, path: str) -> None:
    assert breaches(source, path) == []


@pytest.mark.parametrize("folder", ["dsa_sched/search", "dsa_sched/stages"])
def test_the_driver_is_never_called_back(folder: str) -> None:
    """It calls the search, and both call the stages; not even a function imports it there."""
    files = sources(folder)
    assert len(files) > 5
    for file in files:
        names = {name for _, name in imported(parsed(file.read_text()), "dsa_sched.pipeline")}
        assert not any(name.startswith("dsa_sched.pipeline") for name in names), file


def test_every_folder_of_code_is_a_package_and_installed() -> None:
    """setup.py finds packages by their `__init__.py`; a folder without one works here and nowhere else."""
    for package in LAYERS:
        for folder in {file.parent for file in sources(package)}:
            assert (folder / "__init__.py").exists(), folder


@cache
def folder_imports() -> dict[str, frozenset[str]]:
    """By folder of code, as a dotted name, the folders of this project that it imports while it is loaded."""
    found: dict[str, set[str]] = {}
    modules = {
        file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for p in LAYERS for file in sources(p)
    }
    for name in modules:
        tree = parsed((ROOT / f"{name.replace('.', '/')}.py").read_text())
        own = name.removesuffix(".__init__") if name.endswith(".__init__") else name.rpartition(".")[0]
        for line in tree.body:  # at the top level: imports for types alone stand under TYPE_CHECKING
            for node in ast.walk(line) if not isinstance(line, ast.If) else ():
                if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in LAYERS:
                    target = node.module.rpartition(".")[0] if node.module in modules else node.module
                    found.setdefault(own, set()).add(target)
    return {folder: frozenset(targets - {folder}) for folder, targets in found.items()}


def test_folders_import_in_one_direction() -> None:
    """The packages themselves (`dsa_sched/cli.py` and the like) stand above their folders."""
    graph = {a: sorted(targets) for a, targets in folder_imports().items() if "." in a}
    assert len(graph) >= 40
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_a_public_class_name_stands_for_one_thing() -> None:
    """In all packages together, so that a name says without its module what is meant."""
    places: dict[str, list[str]] = {}
    for file in (file for package in LAYERS for file in sources(package)):
        for node in parsed(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
