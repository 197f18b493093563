"""Pages in a browser: the machine's Chromium, headless, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.skip("needs chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def opened(browser: Any, file: Path, scheme: str, width: int) -> tuple[Any, list[str]]:
    shown = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    errors: list[str] = []
    shown.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    shown.on("pageerror", lambda error: errors.append(str(error)))
    shown.goto(file.as_uri())
    return shown, errors
