"""How exact trained networks are that packages ship, beside what storing values in fp16 costs them.

    python benchmarks/trained.py [NETWORK...] [--json FILE] [--markdown FILE] [--page FILE]

Every network of tests/trained/table.py, or those that are named, is compiled for the stcp920 at O0 and run on inputs
that are made for it; needs the packages of the extra `trained`, which one line of .ci/run installs. With `--page` the
table of that page is replaced, between its two marks. With names, the JSON file keeps its other rows. Seconds are those
of the processor. The exit code is 1 where decisions differ.

Keys of the JSON object: a list.

    rows                rows by network, in the order of the table
      network, kind, package, fed, remark        as in tests/trained/table.py
      version, licence                           of the package
      operators                                  how many nodes of each, the most frequent first
      refused           the first reason that the compiler gives, or null; then nothing else
      equal             whether all decisions are those of onnxruntime
      errors            relative L2 error of each output, over all inputs; null where it is no number
      stored            what is left of the reference with each value stored in fp16 and exact functions
      summed            the same with the sums of the matrix engine: products and sums rounded, halfway away from zero;
                        empty where imitating them takes too long
      range_left        values in fp16 become infinite on the way: `stored` and `summed` keep the range of float32
      compile_seconds, run_seconds
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages that are not installed

from benchmarks.output import add_outputs, finish, keep, output_file, table

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]

MARKS = ("<!-- table: benchmarks/trained.py --page benchmarks/results/trained.md -->\n", "<!-- end of table -->\n")
NAMED_OPERATORS = 6
HEADINGS = (
    "network", "kind", "package", "licence", "operators", "inputs", "decisions", "error", "fp16 storage",
    "storage and sums", "times storage", "remark",
)  # fmt: skip


def measured(names: Sequence[str]) -> Iterator[Row]:
    """Rows as they come. Raises SystemExit where networks are unknown or packages missing, which has been said."""
    command = [sys.executable, "-m", "tests.trained.measuring", *names]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield from map(json.loads, running.stdout)
    if running.returncode:
        raise SystemExit(running.returncode)


def markdown(rows: Sequence[Row]) -> str:
    """The table."""
    return table(HEADINGS, [_cells(row) for row in rows]) + "\n"


def _cells(row: Row) -> list[str]:
    names = list(row["operators"])
    more = [f"{len(names) - NAMED_OPERATORS} more"] if len(names) > NAMED_OPERATORS else []
    cells = [row["network"], row["kind"], f"{row['package']} {row['version']}", row["licence"]]
    cells += [", ".join([*names[:NAMED_OPERATORS], *more]), row["fed"]]
    if row["refused"] is not None:
        return [*cells, "-", "-", "-", "-", "-", f"refused: {row['refused'].replace('|', ' ')}"]
    name = worst(row)
    error, stored, summed = (row[key].get(name) for key in ("errors", "stored", "summed"))
    bits = " (range of float32)" if row["range_left"] else ""
    return [
        *cells,
        "equal" if row["equal"] else "**different**",
        _shown(error),
        _shown(stored) + bits,
        _shown(summed) if row["summed"] else "-",
        "-" if error is None or not stored else f"{error / stored:,.1f}",
        row["remark"],
    ]


def worst(row: Row) -> str:
    """The output whose error is largest beside that of storage, one that is no number before all."""
    errors: dict[str, float | None] = row["errors"]

    def ratio(name: str) -> float:
        error = errors[name]
        return math.inf if error is None else error / (row["stored"][name] or 1e-9)

    return max(errors, key=ratio)


def _shown(error: float | None) -> str:
    return "not a number" if error is None else f"{error:.1e}"


def with_table(page: str, made: str) -> str:
    """The page with this table between its marks."""
    before, rest = page.split(MARKS[0])
    return before + MARKS[0] + made + MARKS[1] + rest.split(MARKS[1])[1]


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """New rows in the place of old ones, others behind."""
    rows = {row["network"]: row for row in old} | {row["network"]: row for row in new}
    return list(rows.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="How exact trained networks are that packages ship.")
    parser.add_argument("networks", metavar="NETWORK", nargs="*", help="in place of all")
    parser.add_argument("--page", type=output_file, metavar="FILE", help="replace the table of this page")
    add_outputs(parser)
    options = parser.parse_args()
    kept: list[Row] = []
    if options.networks and options.json is not None and options.json.exists():
        kept = json.loads(options.json.read_text(encoding="utf-8"))["rows"]
    rows: list[Row] = []
    for row in measured(options.networks):
        print(row["network"], file=sys.stderr)
        rows.append(row)
        keep(options, {"rows": merged(kept, rows)})
    made = merged(kept, rows)
    finish(options, {"rows": made}, "# Trained networks\n\n" + markdown(made))
    if options.page is not None:
        options.page.write_text(with_table(options.page.read_text(encoding="utf-8"), markdown(made)), encoding="utf-8")
    return 0 if all(row.get("equal", True) for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
