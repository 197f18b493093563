"""Rows of `benchmarks/trained.py`, each a line of JSON: `python -m tests.trained.measuring [NETWORK...]`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

import onnx

from hw_models.errors import UserError
from tests.trained.judging import Errors, judge, operators
from tests.trained.network import Network
from tests.trained.packages import FOLDER, installed, missing
from tests.trained.table import NETWORKS

Row = dict[str, Any]


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


def main(names: Sequence[str]) -> int:
    known = {network.name: network for network in NETWORKS}
    if unknown := set(names) - known.keys():
        print(f"error: there is no network {min(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 1
    chosen = [network for network in NETWORKS if not names or network.name in names]
    if reason := next((reason for network in chosen if (reason := missing(network.package))), ""):
        print(f"error: {reason}", file=sys.stderr)
        return 1
    for network in chosen:
        print(json.dumps(measure(network)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
