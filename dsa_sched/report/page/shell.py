"""What every page is made of: one HTML file that opens without a network, with the scripts that draw it inside.

    title, tabs, sections, data, a script --whole_page--> HTML, in which tabs.js shows tabs and draws charts by Plotly

All text that a user gave is data in the page's JSON or escaped, so no name in a file can become part of the page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from dsa_sched.io.atomic_write import write_whole


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a page: its title, what its search finds, and the titles of its tabs by the ids of their
    sections."""

    title: str
    searched: str
    tabs: Mapping[str, str]


def whole_page(head: Head, sections: str, data: object, script: str) -> str:
    """The page as text; `sections` are HTML, `script` is the name of the file that fills them from the `data`. Equal
    arguments give equal pages."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    buttons = "".join(f'<button role="tab" data-tab="{name}">{title}</button>' for name, title in head.tabs.items())
    return "\n".join((
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(head.title)}</title>",
        f"<style>{_file('page.css')}</style></head><body>",
        f"<header><h1>{escape(head.title)}</h1>",
        f'<input id="search" type="search" placeholder="{escape(head.searched)}" aria-label="search">',
        f'<nav role="tablist">{buttons}</nav></header>',
        f"<main>{sections}</main>",
        '<aside id="detail" hidden></aside>',
        f'<script type="application/json" id="data">{_embedded(data)}</script>',
        f"<script>{get_plotlyjs()}</script>",
        f"<script>{_file('tabs.js')}{_file(script)}</script>",
        "</body></html>",
        "",
    ))  # fmt: skip


def write_text(text: str, path: Path) -> int:
    """Write a page, whole or not at all; its size in bytes. Raises UserError."""
    data = text.encode()
    write_whole(path, lambda stream: stream.write(data))
    return len(data)


def _file(name: str) -> str:
    return (files("dsa_sched.report.page") / name).read_text(encoding="utf-8")


def _embedded(data: object) -> str:
    """JSON inside a script element, which only `</` or `<!--` could end."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
