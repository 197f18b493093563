"""The drawing of a chip as text: a line per memory and engine, a column per link and per engine.

                    1  2
DDR  3 GiB          ●  ▲    r
LLB  256 KiB        ▼  ●    │
dma  dma            ■  ■    ■
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from dsa_sched.analysis.chip_map import SCOPES, ChipMap, MapColumn, Mark

SIGNS = {
    Mark.SOURCE: "●",
    Mark.WITHIN: "◉",
    Mark.ENGINE: "■",
    Mark.READS: "r",
    Mark.WRITES: "w",
    Mark.READS_AND_WRITES: "rw",
}
UP, DOWN, LINE = "▲", "▼", "│"
PLAIN = str.maketrans({"●": "o", "◉": "@", "■": "#", "▲": "^", "▼": "v", "│": "|"})
"""Signs for an output that has ASCII alone."""

LEGEND_WIDTH = 110


def chip_map_lines(drawn: ChipMap, ascii_only: bool = False) -> list[str]:
    """The drawing as lines, without blanks at their ends."""
    links = [column for column in drawn.columns if column.is_link]
    engines = [column for column in drawn.columns if not column.is_link]
    width = max(map(cell_len, (text for _, text in _left(drawn))))
    head = " " * width + _cells([str(number) for number, _ in enumerate(links, 1)], links)
    lines = [head] if links else []
    for number, text in _left(drawn):
        cells = "".join(_cells([_sign(column, number) for column in columns], columns) for columns in (links, engines))
        lines.append(text.ljust(width) + cells)
    lines += [*_legend(links), *_signs(links, engines)]
    return [(line.translate(PLAIN) if ascii_only else line).rstrip() for line in lines]


def _left(drawn: ChipMap) -> Iterator[tuple[float, str]]:
    """The left side: number of a row, or of a title, which is between two rows, and its text."""
    names = max(len(row.name) for row in drawn.rows)
    for depth, scope in enumerate(SCOPES):
        if scope == "chip" or any(row.scope == scope for row in drawn.rows):
            first = next((number for number, row in enumerate(drawn.rows) if row.scope == scope), 0)
            yield first - 0.5, f"{'  ' * depth}{drawn.titles[scope]}"
        for number, row in enumerate(drawn.rows):
            if row.scope == scope:
                yield number, f"{'  ' * (depth + 1)}{row.name:<{names}}  {row.detail}"


def _cells(texts: list[str], columns: list[MapColumn]) -> str:
    width = max((len(str(len(columns))), 2)) + 1
    return "  " + "".join(f"{text:>{width}}" for text in texts) if columns else ""


def _sign(column: MapColumn, row: float) -> str:
    first, last = column.rows
    mark = next((mark for number, mark in column.marks if number == row), None)
    if mark is None:
        return LINE if first < row < last else ""
    if mark is Mark.DESTINATION:
        source = next(number for number, each in column.marks if each is Mark.SOURCE)
        return DOWN if source < row else UP
    return SIGNS[mark]


def _legend(links: list[MapColumn]) -> Iterator[str]:
    """Numbers and names of the links, as many per line as there is room for."""
    line = ""
    for number, column in enumerate(links, 1):
        word = f"{number} {column.name}"
        if line and len(line) + len(word) + 2 > LEGEND_WIDTH:
            yield line
            line = ""
        line = f"{line}, {word}" if line else f"  links: {word}"
    if line:
        yield line


def _signs(links: list[MapColumn], engines: list[MapColumn]) -> Iterator[str]:
    link = f"link: {SIGNS[Mark.SOURCE]} from, {DOWN} {UP} to, {SIGNS[Mark.WITHIN]} both, {SIGNS[Mark.ENGINE]} driven by"
    engine = f"engine {SIGNS[Mark.ENGINE]}: r reads, w writes"
    yield "  " + "; ".join([link] * bool(links) + [engine] * bool(engines))
