"""What every benchmark does with its figures: JSON and Markdown files, or the tables on the screen."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dsa_sched.io.atomic_write import write_whole

__all__ = ["add_outputs", "at_least_one", "finish", "keep", "output_file", "table"]


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """The options `--json` and `--markdown`."""
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--markdown", type=output_file, metavar="FILE", help="write the tables to FILE, not the screen")


def output_file(text: str) -> Path:
    """A file in a folder that exists: found out before the work, not after it."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def at_least_one(text: str) -> int:
    """The type of an option that counts."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def keep(options: argparse.Namespace, figures: Any) -> None:
    """Write the JSON file, if one is asked for. After every row, a run that is stopped leaves what it had."""
    if options.json is not None:
        _write(options.json, json.dumps(figures, indent=1) + "\n")


def finish(options: argparse.Namespace, figures: Any, tables: str) -> None:
    """The JSON file, and the tables where they are asked for."""
    keep(options, figures)
    if options.markdown is not None:
        _write(options.markdown, tables)
    else:
        print(tables)


def _write(path: Path, text: str) -> None:
    write_whole(path, lambda stream: stream.write(text.encode()))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = (headings, ["---"] * len(headings), *rows)
    return "\n".join(" | ".join(("", *cells, "")).strip() for cells in lines)
