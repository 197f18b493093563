"""Pictures of the page in the documentation: light, shown, and made by their script."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.pages import browser

__all__ = ["browser"]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "pictures" / "photograph.py"
FOLDER = ROOT / "docs" / "pictures" / "page"
MOST_BYTES = 200 << 10
PNG = b"\x89PNG\r\n\x1a\n"


def test_the_photographs_are_those_of_the_script_and_light() -> None:
    names = {f"{picture.name}.png" for picture in runpy.run_path(str(SCRIPT))["PICTURES"]}
    files = sorted(FOLDER.iterdir())
    assert {file.name for file in files} == names
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    text = (ROOT / "docs" / "page.md").read_text(encoding="utf-8")
    assert all(f"](pictures/page/{name})" in text for name in names)


@pytest.mark.nightly
def test_the_script_takes_each_of_them(browser: Any, tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["page"](tmp_path)
    for picture in script["PICTURES"]:
        made = script["photograph"](browser, page, picture)
        assert made.startswith(PNG)
        width, height = (int.from_bytes(made[place : place + 4], "big") for place in (16, 20))
        assert (width, height) == (picture.width, picture.height)
