"""Step `sanitizer`: networks under compute-sanitizer, where it is there: reads of memory that nobody wrote, accesses
beyond allocations, races in shared memory. Runs of batch 1, since a run takes tens of times as long under it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.gpu.bench import Bench, Item, Row
from benchmarks.gpu.store import Program
from benchmarks.gpu.unfolded import unfolded

__all__ = ["items", "lines"]

TOOLS = ("memcheck", "racecheck", "synccheck")
RUNNER = Path(__file__).resolve().parents[2] / "codegen" / "cutlass" / "runner" / "runner.py"
MOST_SECONDS = 80
SHOWN_CHARACTERS = 2000


def items(bench: Bench) -> Iterator[Item]:
    least = min((program.batch for program in bench.programs()), default=0)
    small = [program for program in bench.programs() if program.batch == least]
    for tool in TOOLS:
        for program in sorted(small, key=lambda program: len(program.kernels)):
            yield Item(f"{program.key} {tool}", lambda program=program, tool=tool: _row(bench, program, tool))  # type: ignore[misc]


def _row(bench: Bench, program: Program, tool: str) -> Row:
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if found is None or bench.rehearse:
        return {"skipped": "the rehearsal has no GPU" if bench.rehearse else "compute-sanitizer is not there"}
    with unfolded(bench.pack, program) as made:
        command = [found, "--tool", tool, "--error-exitcode", "9", sys.executable, str(RUNNER), str(made.folder)]
        command += ["--no-graph", "--output", str(made.folder / "outputs.npz")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return {"skipped": f"not ended in {MOST_SECONDS} s"}
    row: Row = {"exit_code": done.returncode, "said": (done.stdout + done.stderr)[-SHOWN_CHARACTERS:]}
    return row if done.returncode == 0 else {**row, "error": f"{tool}: exit code {done.returncode}"}


def lines(rows: Sequence[Row]) -> list[str]:
    found = ["| run | |", "| --- | --- |"]
    return found + [f"| {row['key']} | {row.get('error') or row.get('skipped') or 'clean'} |" for row in rows]
