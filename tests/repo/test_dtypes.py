"""The middle of the compiler takes a dtype from the graph, never from itself: no type is named there, no item size."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from partitioner.ir.wants import FLOATS

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("partitioner", "isched", "hw_models/cost.py")
TABLES = frozenset({"DTYPE_BYTES", "FLOATS", "RANGES"})
"""Constants that list what types there are."""


def named_types(source: str) -> Iterator[str]:
    """Floating-point and 16-bit types that a module names outside those tables, with their lines."""
    tree = ast.parse(source)
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


@pytest.mark.parametrize("place", PLACES)
def test_no_type_is_taken_for_granted(place: str) -> None:
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files
    found = [f"{file.relative_to(ROOT)}:{line}" for file in files for line in named_types(file.read_text())]
    assert not found, "\n".join(found)


def test_types_are_found_where_they_hide() -> None:
    lines = (
        'FLOATS = ("float16",)',
        'def f(dtype: str = "float16") -> None: ...',
        "g(np.uint16)",
        'X = size("float32")',
    )
    assert sorted(named_types("\n".join(lines))) == ["2: float16", "3: uint16", "4: float32"]
