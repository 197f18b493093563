"""The case study on GPUs: fused kernels against one CUTLASS kernel a layer, CUTLASS's pairs and PyTorch.

    python benchmarks/gpu_case_study.py [--subject NAME [--force-group A,B:FAMILY]] [--measured FILE] [--markdown FILE]

Floors are those of benchmarks/results/gpu_predicted.json, which are written down before anything is measured; with
`--subject` they are computed anew. Times are of a file that step `case-study` of `make gpu` has left; where there is
none, every time says `not measured`. Three tables: ways beside each other; groups that the model has declined, forced,
and whether it was right; floors beside those worked out by hand, with the difference.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the package that is not installed

from benchmarks.gpu.expected_floors import Compared, compared
from benchmarks.gpu.store import read_list
from benchmarks.gpu.study import SLICES, SUBJECTS
from benchmarks.gpu.study_floors import study_rows
from benchmarks.output import add_outputs, at_least_one, finish, table
from hw_models.errors import UserError

__all__ = ["COLUMNS", "Times", "main", "markdown", "times_of"]

Row = Mapping[str, Any]
RESULTS = Path(__file__).resolve().parent / "results"
PREDICTED, MEASURED = RESULTS / "gpu_predicted.json", RESULTS / "gpu_case-study.json"
CHIPS = ("h200", "a100")
COLUMNS = {
    "default": "a kernel a layer, one tile",
    "layers": "a kernel a layer",
    "pairs": "CUTLASS pairs",
    "resident": "pairs in registers",
    "chains": "our chains",
    "mma": "our chains by mma",
    "ours": "ours",
    **{f"slices {count}": f"in {count} slices" for count in SLICES},
    "torch": "cuDNN, PyTorch",
    "torch.compile": "torch.compile",
    "max-autotune": "torch.compile, max-autotune",
}
PYTORCH = ("torch", "torch.compile", "max-autotune")
NOT_MEASURED = "not measured"

Key = tuple[str, int, str, str]
"""Subject, batch, chip, way."""
Times = Mapping[Key, Row]


def times_of(path: Path) -> dict[Key, Row]:
    """Rows of step `case-study` with times; none where the file is missing or is of a rehearsal. Raises FileError for a
    file of something else."""
    if not path.is_file():
        return {}
    rows = [row for row in read_list(path, "rows") if "what" in row]
    found = {(row["network"], row["batch"], row["chip"], row["what"]): row for row in rows}
    for key, row in found.items():
        if "same" in row:
            found[key] = found.get((*key[:3], row["same"]), row)
    return {key: row for key, row in found.items() if "median_ms" in row}


def markdown(rows: Sequence[Row], times: Times) -> str:
    head = (
        "`python benchmarks/gpu_case_study.py`. Every cell is a floor by the chip file, in microseconds, then the time "
        "that was measured. "
        + (f"{len(times)} times were measured." if times else "Nothing was measured: there are floors only.")
    )
    parts = ["# Case study on GPUs", head, _ways(rows, times), *_forced(rows, times), *_expectations(rows)]
    return "\n\n".join((*parts, ""))


def _ways(rows: Sequence[Row], times: Times) -> str:
    known = {(row["subject"], row["batch"], row["chip"], row["way"]): row for row in rows}
    lines = []
    for subject, batch, chip in dict.fromkeys(key[:3] for key in known):
        where = subject, batch, chip
        cells = [_cell(way, known.get((*where, way)), times.get((*where, way))) for way in COLUMNS]
        lines.append((f"{subject} ({chip})", str(batch), *cells, *_gains(where, known, times)))
    headings = ("subject", "batch", *COLUMNS.values(), "layers over ours", "pairs over ours")
    return table(headings, lines)


def _cell(way: str, row: Row | None, time: Row | None) -> str:
    """Empty for a way that there is not; nobody predicts PyTorch."""
    floor = f"{1e3 * row['floor_ms']:.1f} / " if row else ""
    if time is None:
        return f"{floor}{NOT_MEASURED}" if row or way in PYTORCH else ""
    low, high = time["quartiles_ms"]
    return f"{floor}{1e3 * time['median_ms']:.1f} ({1e3 * low:.1f} to {1e3 * high:.1f})"


def _gains(where: tuple[str, int, str], known: Mapping[Key, Row], times: Times) -> tuple[str, str]:
    """By floors, then by times."""

    def over(way: str) -> str:
        one, ours = (*where, way), (*where, "ours")
        if one not in known or ours not in known:
            return ""
        floors = f"{known[one]['floor_ms'] / known[ours]['floor_ms']:.2f}"
        if one not in times or ours not in times:
            return f"{floors} / {NOT_MEASURED}"
        return f"{floors} / {times[one]['median_ms'] / times[ours]['median_ms']:.2f}"

    return over("layers"), over("pairs")


def _forced(rows: Sequence[Row], times: Times) -> list[str]:
    """Groups beside one kernel a layer: a ratio above 1 says that fusing pays."""
    lines = []
    for row in rows:
        kind, _, group = row["way"].partition(" ")
        if kind not in ("forced", "asked"):
            continue
        key = (row["subject"], row["batch"], row["chip"])
        one, layers = times.get((*key, row["way"])), times.get((*key, "layers"))
        measured = f"{layers['median_ms'] / one['median_ms']:.2f}" if one and layers else NOT_MEASURED
        lines.append((f"{row['subject']} ({row['chip']})", str(row["batch"]), f"{kind} {group}",
                      f"{1e3 * row['floor_ms']:.1f}", f"{row['layers_over_it']:.2f}", measured))  # fmt: skip
    if not lines:
        return []
    said = (
        "Groups that level O3 did not choose, each forced, the rest one kernel a layer. One that would pay by the "
        "floors (above 1) was declined for another group that saves more."
    )
    headings = ("subject", "batch", "group", "floor us", "layers over it, by floors", "measured")
    return ["## Declined groups, forced", said, table(headings, lines)]


def _expectations(rows: Sequence[Row]) -> list[str]:
    found = compared(rows)
    if not found:
        return []
    said = (
        "One kernel a layer over the fused group on an H200: worked out by hand at 4.3 TB/s, an L2 of 7 TB/s, 700 "
        "TFLOP/s (`wgmma`; second numbers: 480, `mma.sync`) and 1.5 us a launch, beside the floors of the chip file. "
        "Both are floors."
    )
    headings = ("subject", "group", "batch", "by hand", "by the chip file", "difference")
    return ["## Floors worked out by hand", said, table(headings, map(_compared_line, found))]


def _compared_line(one: Compared) -> tuple[str, ...]:
    expected = one.expected
    ranges = " / ".join(
        f"{low:.2f}" if low == high else f"at most {high:.2f}" if not low else f"{low:.2f} to {high:.2f}"
        for low, high in expected.ratios[one.batch]
    )
    apart = " / ".join(f"{difference:+.2f}" for difference in one.differences)
    return expected.subject, expected.group or "level O3", str(one.batch), ranges, f"{one.found:.2f}", apart


def main() -> int:
    parser = argparse.ArgumentParser(description="Fused kernels against a kernel a layer, pairs and PyTorch.")
    add_outputs(parser)
    parser.add_argument("--subject", choices=[subject.name for subject in SUBJECTS], help="floors of it, computed anew")
    parser.add_argument("--batch", action="append", type=at_least_one, metavar="N", help="of the subject")
    parser.add_argument("--force-group", action="append", default=[], metavar="A,B:FAMILY", help="one way more")
    parser.add_argument("--chip", action="append", metavar="CHIP", help=f"may be repeated (default {', '.join(CHIPS)})")
    parser.add_argument("--measured", type=Path, default=MEASURED, metavar="FILE", help="of step case-study")
    options = parser.parse_args()
    try:
        rows = _rows(options)
        times = times_of(options.measured)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    measured = [{"key": list(key), **row} for key, row in times.items()]
    finish(options, {"floors": rows, "measured": measured}, markdown(rows, times))
    return 0


def _rows(options: argparse.Namespace) -> list[Row]:
    chips = options.chip or CHIPS
    if options.subject is None:
        if options.force_group or options.batch:
            raise UserError("--force-group, --batch", needs="the --subject that they are of", has="none")
        return [row for row in read_list(PREDICTED, "study") if row["chip"] in chips]
    (subject,) = (subject for subject in SUBJECTS if subject.name == options.subject)
    asked = replace(subject, batches=tuple(options.batch or subject.batches))
    said = [asked], chips, lambda words: print(words, file=sys.stderr, flush=True)
    return list(study_rows(*said, options.force_group))


if __name__ == "__main__":
    sys.exit(main())
