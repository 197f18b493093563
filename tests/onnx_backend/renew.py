"""Run all node tests and write the table: `python -m tests.onnx_backend.renew [--accept-worse]`.

A table that would become worse is not written without the flag; what became worse is printed.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from hw_models.loading import load_chip
from tests.onnx_backend.node_cases import node_cases
from tests.onnx_backend.outcome import judge
from tests.onnx_backend.table import PATH, read_table, worse, write_table

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """0 when the table was written, 1 when it would have become worse, 2 for arguments that there are not."""
    if set(arguments) - {"--accept-worse"}:
        print(__doc__)
        return 2
    chip = load_chip("stcp920")
    with tempfile.TemporaryDirectory() as folder:
        outcomes = {case.name: judge(case, chip, Path(folder)) for case in node_cases()}
    for status, count in sorted(Counter(outcome.status for outcome in outcomes.values()).items()):
        print(f"{count:5} {status}")
    lines = worse(read_table(), outcomes) if PATH.exists() else []
    print("\n".join(lines), end="\n" if lines else "")
    if lines and "--accept-worse" not in arguments:
        print("not written; --accept-worse writes it")
        return 1
    write_table(outcomes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
