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
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages that are not installed

from benchmarks.output import add_outputs, finish, keep, output_file, table
from hw_models.errors import UserError
from tests.trained.judging import Errors, judge, operators
from tests.trained.network import Network
from tests.trained.packages import FOLDER, installed, missing
from tests.trained.table import NETWORKS

Row = dict[str, Any]

MARKS = ("<!-- table: benchmarks/trained.py --page docs/trained.md -->\n", "<!-- end of table -->\n")
NAMED_OPERATORS = 6
HEADINGS = (
    "network", "kind", "package", "licence", "operators", "inputs", "decisions", "error", "fp16 storage",
    "storage and sums", "times storage", "remark",
)  # fmt: skip


def measure(network: Network) -> Row:
    """Compile, run, compare."""
    package = installed()[network.package]
    counted = operators(onnx.load(FOLDER / network.file))
    row: Row = {
        "network": network.name,
        "kind": network.kind,
        "package": network.package,
        "version": package.version,
        "licence": package.licence,
        "fed": network.fed,
        "remark": network.wrong or network.remark,
        "operators": dict(counted.most_common()),
        "refused": None,
    }
    try:
        judged = judge(network, FOLDER, sums=network.sums)
    except UserError as error:
        return row | {"refused": _reason(str(error))}
    return row | {
        "equal": judged.equal,
        "errors": _numbers(judged.errors),
        "stored": _numbers(judged.stored),
        "summed": _numbers(judged.summed),
        "range_left": judged.range_left,
        "compile_seconds": round(judged.compile_seconds, 1),
        "run_seconds": round(judged.run_seconds, 1),
    }


def _numbers(errors: Errors) -> dict[str, float | None]:
    return {name: float(f"{error:.3g}") if math.isfinite(error) else None for name, error in errors.items()}


def _reason(message: str) -> str:
    """Of a refusal the first operator's reason."""
    lines = message.splitlines()
    return lines[min(1, len(lines) - 1)].strip()


def measured(networks: Sequence[Network]) -> Iterator[Row]:
    for network in networks:
        print(network.name, file=sys.stderr)
        yield measure(network)


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


def _merged(options: argparse.Namespace, rows: Sequence[Row]) -> list[Row]:
    """New rows, and those of the JSON file that were not measured again."""
    kept = {}
    if options.networks and options.json is not None and options.json.exists():
        kept = {row["network"]: row for row in json.loads(options.json.read_text(encoding="utf-8"))["rows"]}
    kept |= {row["network"]: row for row in rows}
    return [kept[network.name] for network in NETWORKS if network.name in kept]


def main() -> int:
    parser = argparse.ArgumentParser(description="How exact trained networks are that packages ship.")
    parser.add_argument("networks", metavar="NETWORK", nargs="*", help="in place of all")
    parser.add_argument("--page", type=output_file, metavar="FILE", help="replace the table of this page")
    add_outputs(parser)
    options = parser.parse_args()
    if unknown := set(options.networks) - {network.name for network in NETWORKS}:
        parser.error(f"there is no network {min(unknown)}; there are {', '.join(each.name for each in NETWORKS)}")
    chosen = [network for network in NETWORKS if not options.networks or network.name in options.networks]
    if reason := next((reason for network in chosen if (reason := missing(network.package))), ""):
        print(f"error: {reason}", file=sys.stderr)
        return 1
    rows: list[Row] = []
    for row in measured(chosen):
        rows.append(row)
        keep(options, {"rows": _merged(options, rows)})
    merged = _merged(options, rows)
    finish(options, {"rows": merged}, "# Trained networks\n\n" + markdown(merged))
    if options.page is not None:
        options.page.write_text(
            with_table(options.page.read_text(encoding="utf-8"), markdown(merged)), encoding="utf-8"
        )
    return 0 if all(row.get("equal", True) for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
