"""Tables of text on standard output: wrapped to the terminal's width, or one plain line per row elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from textwrap import shorten
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 300
"""Default width of the output in columns: enough for a row on one line."""


PRINTED = 160
"""Largest length of a text in a table that is printed, where a file has all of it."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table for a reader: title, headings, rows, the numbers of the columns that hold figures, and sentences below.
    `subjects` are the layers that the rows are about, empty where they are about none."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()


def shortened(text: str) -> str:
    """A text for a table that is printed: cut at a word where it is long."""
    return shorten(text, PRINTED, placeholder=" ...")


def output_console() -> Console:
    """Standard output: colour and width of the terminal, or plain text that no width cuts."""
    console = Console(highlight=False)
    return console if console.is_terminal else plain_console()


def plain_console(stream: TextIO | None = None) -> Console:
    """Plain text that no width cuts, to standard output or a stream."""
    return Console(file=stream, width=PLAIN_WIDTH, color_system=None, highlight=False)


def print_listing(
    headings: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
    right: Collection[int] = (),
    console: Console | None = None,
) -> None:
    """Print rows under their headings; columns whose number is in `right` hold figures."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number in right else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    print_table(console or output_console(), table)


def print_table(console: Console, table: Table) -> None:
    """Print a table; plain text has no blanks at line ends."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)
