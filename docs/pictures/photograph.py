"""Photograph the page of `dsa-sched report` for the documentation. It needs Chromium and playwright.

    python docs/pictures/photograph.py [FOLDER]     writes docs/pictures/page/*.png, or into FOLDER

samples/tutorial --compile, verify, report--> page.html --Chromium--> pictures of its tabs, in few colours
"""

from __future__ import annotations

import runpy
import shutil
import sys
from contextlib import chdir
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

FOLDER = Path(__file__).resolve().parent / "page"
CHIP = ROOT / "samples" / "tutorial" / "two_cores.yaml"
NETWORK = ROOT / "samples" / "tutorial" / "network.py"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
COLOURS = 48


@dataclass(frozen=True)
class Picture:
    """A tab of the page as somebody sees it: `scheme` is light or dark, sizes are pixels, `searched` is what stands in
    the search field, whose first layer is then shown."""

    name: str
    tab: str
    scheme: str = "light"
    width: int = 1000
    height: int = 640
    searched: str = ""


PICTURES = (
    Picture("graph", "graph", height=1000, searched="conv1"),
    Picture("timeline", "timeline", height=520),
    Picture("accuracy", "accuracy"),
    Picture("difference", "difference", "dark", height=760),
    Picture("phone", "roofline", "dark", 390, 700),
)


def _called(*words: object) -> None:
    from dsa_sched.cli import cli

    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(f"dsa-sched {' '.join(map(str, words))}: {done.output}")


def page(folder: Path) -> Path:
    """The page of the tutorial's network, verified, next to level O0."""
    with chdir(folder):  # the page says what its folders are called
        Path("blocks.onnx").write_bytes(runpy.run_path(str(NETWORK))["network"]())
        _called("compile", "blocks.onnx", "--chip", CHIP, "--level", "O0", "-o", "plain.out")
        _called("compile", "blocks.onnx", "--chip", CHIP, "--level", "O3", "--schedule", "-o", "best.out")
        _called("verify", "best.out", "--json", "report.json")
        _called("report", "best.out", "--against", "plain.out", "--verified", "report.json", "-o", "page.html")
    return folder / "page.html"


def photograph(browser: Any, file: Path, picture: Picture) -> bytes:
    """A tab as a PNG of few colours, which is a fifth of the bytes."""
    shown = browser.new_page(color_scheme=picture.scheme, viewport={"width": picture.width, "height": picture.height})
    shown.goto(file.as_uri())
    shown.click(f"button[data-tab={picture.tab}]")
    shown.wait_for_selector(f"#{picture.tab} .main-svg", state="visible", timeout=20_000)
    if picture.searched:
        shown.fill("#search", picture.searched)
        shown.press("#search", "Enter")
    shown.wait_for_timeout(500)
    image = Image.open(BytesIO(shown.screenshot())).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    shown.close()
    made = BytesIO()
    image.save(made, "PNG", optimize=True)
    return made.getvalue()


def main(folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    folder.mkdir(exist_ok=True)
    with TemporaryDirectory() as name, sync_playwright() as playwright:
        file = page(Path(name))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for picture in PICTURES:
            (folder / f"{picture.name}.png").write_bytes(photograph(browser, file, picture))
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
