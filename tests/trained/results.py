"""The last table of `benchmarks/trained.py`: rows by network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["SUMMED", "Row", "rows"]

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "trained.json"
Row = dict[str, Any]
SUMMED = "summed"
"""The errors of fp16 storage and the matrix engine's sums, by output: minutes of work, so that tests read them."""


def rows() -> dict[str, Row]:
    if not RESULTS.exists():
        return {}
    return {row["network"]: row for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]}
