"""The compiler takes a dtype from the graph or asks the target for it: no type is named elsewhere, and no item size."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from partitioner.ir.wants import FLOATS
from tests.repo.parsed import parsed

ROOT = Path(__file__).resolve().parents[2]
MIDDLE = ("partitioner", "isched", "hw_models/cost.py")
KERNELS = tuple(
    f"codegen/neuralscale/{part}"
    for part in ("templates", "instructions", "kernels", "emit", "rolling", "trace", "emulation", "target.py")
)
FRONTEND = ("dsa_sched/frontend",)
OWN = {
    "codegen/neuralscale/instructions/arithmetic.py": "says what kernels compute in",
    "codegen/neuralscale/emulation/arithmetic.py": "is that arithmetic, written again",
    "codegen/neuralscale/kernels/tables.py": "makes a table of all patterns of one type",
    "dsa_sched/frontend/network/folded.py": "lists the types of ONNX",
}
"""Modules that name types, each with what it does."""
TABLES = frozenset({"DTYPE_BYTES", "FLOATS", "RANGES"})
"""Constants that list what types there are."""


def named_types(source: str) -> Iterator[str]:
    """Floating-point and 16-bit types that a module names outside those tables, with their lines."""
    tree = parsed(source)
    tables = [
        node
        for node in tree.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(target, ast.Name) and target.id in TABLES
    ]
    listed = {id(inner) for table in tables for inner in ast.walk(table)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(name)) if name in (*FLOATS, "uint16") and id(node) not in listed:
                yield f"{node.lineno}: {name}"
            case ast.Attribute(attr="float16" | "half" | "uint16" as name):
                yield f"{node.lineno}: {name}"


def bare_sizes(source: str) -> Iterator[str]:
    """Where a module multiplies or divides by two for the size of an item, with their lines: in the size of a buffer or
    a matrix, or next to something that is counted in bytes; and where it has a size for when none is said."""
    for node in ast.walk(parsed(source)):
        match node:
            case ast.Call(func=ast.Name(id="Buffer" | "Matrix" | "Region")):
                parts: list[ast.AST] = [*node.args, *(keyword.value for keyword in node.keywords)]
                yield from (each for part in parts for each in _doubled(part))
            case ast.Assign(targets=[ast.Name(id=name)]) if name.endswith("_bytes"):
                yield from _doubled(node.value)
            case ast.BinOp() if "_bytes" in ast.unparse(node):
                yield from _doubled(node, "_bytes")
            case ast.AnnAssign(target=ast.Name(id="item_bytes"), value=ast.Constant(value=int())):
                yield f"{node.lineno}: {ast.unparse(node)}"


def _doubled(tree: ast.AST, beside: str = "") -> Iterator[str]:
    """Products with two, and halves, of something that is written with `beside`."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.BinOp(left=ast.Constant(value=2), op=ast.Mult(), right=other)
                | ast.BinOp(left=other, op=ast.Mult() | ast.FloorDiv(), right=ast.Constant(value=2))
            ) if beside in ast.unparse(other):
                yield f"{node.lineno}: {ast.unparse(node)}"


def files_in(place: str) -> list[Path]:
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files
    return [file for file in files if str(file.relative_to(ROOT)) not in OWN]


@pytest.mark.parametrize("place", [*MIDDLE, *KERNELS, *FRONTEND])
@pytest.mark.commit
def test_no_type_is_taken_for_granted(place: str) -> None:
    narrow = (": float16", ": uint16")
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in files_in(place)
        for line in named_types(file.read_text())
        if place in MIDDLE or line.endswith(narrow)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("place", KERNELS)
def test_no_item_size_is_taken_for_granted(place: str) -> None:
    found = [f"{file.relative_to(ROOT)}:{line}" for file in files_in(place) for line in bare_sizes(file.read_text())]
    assert not found, "\n".join(found)


def test_modules_that_name_types_are_there() -> None:
    assert not [path for path in OWN if not [*named_types((ROOT / path).read_text())]]


def test_types_are_found_where_they_hide() -> None:
    lines = (
        'FLOATS = ("float16",)',
        'def f(dtype: str = "float16") -> None: ...',
        "g(np.uint16)",
        'X = size("float32")',
    )
    assert sorted(named_types("\n".join(lines))) == ["2: float16", "3: uint16", "4: float32"]


def test_sizes_are_found_where_they_hide() -> None:
    lines = (
        'Buffer("line", "L1", DATA, 2 * lines.count)',
        "words = region.row_bytes // 2",
        "size_bytes = 2 * max(rows) + taps * 2",
        "item_bytes: int = 2",
        'Buffer("line", "L1", DATA, item_bytes * lines.count)',
        "pairs = 2 * count",
    )
    assert {line.split(":")[0] for line in bare_sizes("\n".join(lines))} == {"1", "2", "3", "4"}
