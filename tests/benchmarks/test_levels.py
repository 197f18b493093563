"""The benchmark of levels on a tiny model: goes on where it was, begins anew with other sources, and checks itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.levels import complaints
from partitioner.planners.levels import LEVEL_CHOICES
from tests.small_models import classifier, save

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/levels.py"), "--network", str(folder / "tiny.onnx"), *words]
    return subprocess.run([*command, "--results", str(folder / "levels.json")], text=True, capture_output=True)


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
    assert auto["cycles"] <= min(row["cycles"] for row in figures["rows"])
    assert f"| 1 | {figures['rows'][0]['cycles'] / 1000:,.1f} |" in (tmp_path / "levels.md").read_text()

    again = run(tmp_path, "--batch", "1", "--batch", "2")
    assert [line.split()[1] for line in again.stdout.splitlines()] == ["2"] * len(LEVEL_CHOICES)
    checked = run(tmp_path, "--check")
    assert (checked.returncode, checked.stderr) == (0, "")

    rows = json.loads((tmp_path / "levels.json").read_text())
    for row in rows["rows"]:
        row["cycles"] += 1
    (tmp_path / "levels.json").write_text(json.dumps(rows))
    wrong = run(tmp_path, "--check")
    assert wrong.returncode == 1
    assert " cycles, now " in wrong.stdout

    (tmp_path / "levels.json").write_text(json.dumps(rows | {"sources": "others"}))
    stale = run(tmp_path, "--check")
    assert stale.returncode == 1
    assert "begun anew" in stale.stderr


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
