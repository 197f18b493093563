"""The documentation page is the one that the tables give, and names every instruction and register."""

from __future__ import annotations

import runpy
from pathlib import Path

from codegen.neuralscale.isa.csr import CSRS
from codegen.neuralscale.isa.table import ROWS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "neuralscale-isa.md"
isa_page = runpy.run_path(str(DOCS / "reference" / "isa_page.py"))["isa_page"]


def test_the_page_in_the_repository_is_current() -> None:
    renew = "python docs/reference/isa_page.py > docs/neuralscale-isa.md"
    assert PAGE.read_text(encoding="utf-8") == isa_page(), f"renew the page: {renew}"


def test_the_page_names_everything_once() -> None:
    first_cells = [line.split(" | ")[0] for line in isa_page().splitlines() if line.startswith("| `")]
    mnemonics = [cell.strip("|` ").split(" ")[0] for cell in first_cells]
    assert sorted(mnemonics) == sorted(row.mnemonic for row in ROWS)
    assert all(isa_page().count(f"| `{register.name}` |") == 1 for register in CSRS)
