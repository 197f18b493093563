"""The benchmark of levels on a tiny model: goes on where it was, keeps rows of older sources, and checks itself."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.levels import complaints, main, to_measure
from partitioner.planners.levels import LEVEL_CHOICES
from tests.small_models import classifier, save


@dataclass(frozen=True, slots=True)
class Run:
    returncode: int
    stdout: str
    stderr: str


def run(folder: Path, *words: str) -> Run:
    """The benchmark in this process, which has imported the compiler."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["--network", str(folder / "tiny.onnx"), *words, "--results", str(folder / "levels.json")])
    return Run(status, out.getvalue(), err.getvalue())


@pytest.mark.commit
def test_rows_are_kept_checked_and_told(tmp_path: Path) -> None:
    save(classifier(batch="n"), tmp_path / "tiny.onnx")
    first = run(tmp_path, "--batch", "1", "--markdown", str(tmp_path / "levels.md"))
    assert first.returncode == 0, first.stderr
    figures = json.loads((tmp_path / "levels.json").read_text())
    assert [(row["network"], row["batch"], row["level"]) for row in figures["rows"]] == [
        ("tiny", 1, level) for level in LEVEL_CHOICES
    ]
    auto = figures["rows"][-1]
    assert auto["network_cycles"] <= auto["bound_cycles"] <= auto["cycles"]
    assert auto["cycles"] <= min(row["cycles"] or row["least_cycles"] for row in figures["rows"])
    assert f"| 1 | {figures['rows'][0]['cycles'] / 1000:,.1f} |" in (tmp_path / "levels.md").read_text()

    again = run(tmp_path, "--batch", "1", "--batch", "2")
    assert [line.split()[1] for line in again.stdout.splitlines()] == ["2"] * len(LEVEL_CHOICES)
    checked = run(tmp_path, "--check")
    assert (checked.returncode, checked.stderr) == (0, "")

    results = tmp_path / "levels.json"
    good = json.loads(results.read_text())
    changed(results, good, cycles=-1)
    wrong = run(tmp_path, "--check")
    assert wrong.returncode == 1
    assert " cycles, now " in wrong.stdout
    assert "now only" not in wrong.stdout

    changed(results, good, cycles=1)
    slower = results.read_text()
    better = run(tmp_path, "--check")
    assert (better.returncode, results.read_text()) == (0, slower)
    assert " cycles, now only " in better.stdout
    renewed = run(tmp_path, "--check", "--renew")
    assert renewed.returncode == 0
    assert sum(a["cycles"] == b["cycles"] for a, b in zip(_rows(results), good["rows"], strict=True)) == 1


def test_rows_of_older_sources_stay_until_they_are_renewed(tmp_path: Path) -> None:
    save(classifier(batch="n"), tmp_path / "tiny.onnx")
    results, table = tmp_path / "levels.json", tmp_path / "levels.md"
    once = ("--batch", "1", "--level", "O0", "--level", "O1")
    assert run(tmp_path, *once).returncode == 0
    figures = json.loads(results.read_text())
    kept = figures["rows"][1] | {"sources": "others"}
    results.write_text(json.dumps({"sources": "older", "rows": [_without(figures["rows"][0], "sources"), kept]}))
    assert run(tmp_path, *once, "--markdown", str(table)).stdout == ""
    assert "2 rows, 2 of them of older sources of the compiler than" in table.read_text()
    again = run(tmp_path, *once, "--renew", "--markdown", str(table))
    assert len(again.stdout.splitlines()) == 2
    assert "2 rows, 0 of them of older sources" in table.read_text()
    assert [_without(row, "seconds") for row in json.loads(results.read_text())["rows"]] == [
        _without(row, "seconds") for row in figures["rows"]
    ]


def test_what_is_measured_and_in_which_order() -> None:
    rows = [
        {"network": "a", "batch": 1, "level": "O0", "sources": "old", "seconds": 3.0},
        {"network": "a", "batch": 2, "level": "O0", "sources": "old", "seconds": 2.0},
        {"network": "a", "batch": 4, "level": "O0", "sources": "new", "seconds": 1.0},
    ]
    asked = ["a.onnx"], [1, 2, 4, 8], ["O0"]
    assert to_measure(rows, *asked, None) == [("a.onnx", 8, "O0")]
    assert to_measure(rows, *asked, "new") == [("a.onnx", 2, "O0"), ("a.onnx", 1, "O0"), ("a.onnx", 8, "O0")]


def _rows(results: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(results.read_text())["rows"]
    return found


def changed(results: Path, figures: dict[str, Any], cycles: int) -> None:
    """The file as if every row had taken so many cycles more."""
    rows = [row if row["cycles"] is None else row | {"cycles": row["cycles"] + cycles} for row in figures["rows"]]
    results.write_text(json.dumps(figures | {"rows": rows}))


def _without(row: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != key}


def test_what_is_complained_about() -> None:
    def row(batch: int, level: str, cycles: float | None) -> dict[str, object]:
        return {"network": "n", "batch": batch, "level": level, "cycles": cycles}

    good = [row(1, "O0", 9), row(1, "O1", None), row(1, "auto", 9), row(2, "auto", 10)]
    assert list(complaints(good)) == []
    assert list(complaints([*good, row(1, "O2", 8)])) == ["n, 1: auto takes 9 cycles, O2 8"]
    assert list(complaints([*good, row(4, "auto", 8)])) == [
        "n: auto takes longer for 1 than for a larger batch",
        "n: auto takes longer for 2 than for a larger batch",
    ]
