"""docs/exports.md says of every export whether it compiles: what the tests of exports hold. Needs no PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.exports.table import EXPORTERS, EXPORTS, NAMES, REFUSED

PAGE = (Path(__file__).parents[2] / "docs" / "exports.md").read_text(encoding="utf-8")
COMPILES = "yes"
LEAST_COMPILED = 46
"""Of 48."""


def rows() -> dict[str, list[str]]:
    """Name -> what the page says of each exporter."""
    lines = re.findall(r"^\| ([a-z0-9_]+) \|(.*)\|$", PAGE, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")[1:]] for name, cells in lines if name != "network"}


def test_the_page_names_every_network_in_order() -> None:
    assert tuple(rows()) == NAMES
    assert len(NAMES) == 24
    assert len(EXPORTS) == 48


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_compiles(name: str) -> None:
    for exporter, cell in zip(EXPORTERS, rows()[name], strict=True):
        assert cell == (f"no: {REFUSED[name, exporter]}" if (name, exporter) in REFUSED else COMPILES)


def test_most_compile_and_only_exports_are_refused() -> None:
    assert set(REFUSED) <= set(EXPORTS)
    assert len(EXPORTS) - len(REFUSED) >= LEAST_COMPILED
