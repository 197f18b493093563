"""The table of outcomes that is kept beside the tests, and what it means to become worse than it.

status.csv: case,status,reason       sorted by case
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from tests.onnx_backend.outcome import RANKS, Outcome, Status

__all__ = ["PATH", "read_table", "worse", "write_table"]

PATH = Path(__file__).with_name("status.csv")
HEADER = ("case", "status", "reason")


def read_table(path: Path = PATH) -> dict[str, Outcome]:
    """All rows. Raises ValueError for a status that there is not."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return {row["case"]: Outcome(_status(row["status"]), row["reason"]) for row in rows}


def _status(text: str) -> Status:
    match text:
        case "pass" | "refused" | "not applicable" | "mismatch" | "crash":
            return text
    raise ValueError(text)


def write_table(outcomes: Mapping[str, Outcome], path: Path = PATH) -> None:
    """Equal outcomes give equal bytes."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows((name, outcome.status, outcome.reason) for name, outcome in sorted(outcomes.items()))


def worse(before: Mapping[str, Outcome], now: Mapping[str, Outcome]) -> list[str]:
    """A line for each case whose status fell below the table's, and for each that is no longer run."""
    lines = []
    for name, old in before.items():
        new = now.get(name)
        if new is None:
            lines.append(f"{name}: was {old.status}, is no longer run")
        elif RANKS[new.status] < RANKS[old.status]:
            lines.append(f"{name}: was {old.status}, is {new.status} ({new.reason})")
    crashes = [name for name, new in now.items() if new.status == "crash" and name not in before]
    return lines + [f"{name}: new, crashes ({now[name].reason})" for name in crashes]
