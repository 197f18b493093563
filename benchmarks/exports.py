"""How long compiling what PyTorch's exporters write takes, into how many kernels, and how exact they are.

    python benchmarks/exports.py [FOLDER] [--level LEVEL...] [--json FILE] [--markdown FILE]

Every `FOLDER/NAME/NAME.onnx` is compiled for the stcp920 at O0 and O3, or at the levels that are said, in a process of
its own, and judged at O0 on the inputs `FOLDER/NAME/*.npz` that lie beside it. Without a folder, all exports of
tests/exports are written first, for which the extra `exports` has to be installed. Seconds are those of the processor,
without the start of Python; the first level also has what a process does once. The exit code is 1 where a model is
refused, wrong, or too slow.

Keys of the JSON object: `host_cpu`, `python`, `cpus`, `load_average` (at the start), and a list.

    rows                    one a model
      model
      nodes                             of the file
      refused                           the first line of what the compiler says, or null; then nothing else
      levels                            by level
        seconds                         of compiling, from the file to machine code
        limit_seconds                   what it may take, or null
        kernels, instances, cycles      of the program, as `verify --json` has them
      failures                          what `verify` says of level O0
      layer_error                       relative L2 error of the worst layer by itself, at O0
      network_error                     of what the last layer makes, in the whole network
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import llvmlite.binding
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

from benchmarks.output import add_outputs, finish, keep, table
from dsa_sched.analysis.figures import program_figures
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.errors import UserError
from partitioner.planners.levels import planner_or_auto

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]

CHIP, PLAIN = "stcp920", "O0"
LEVELS = (PLAIN, "O3")
LIMITS_SECONDS = {"O3": 60.0}
SAMPLES = 64


def measure(model: Path, levels: Sequence[str]) -> Row:
    """Compile one model at every level and judge it."""
    row: Row = {"model": model.stem, "nodes": len(onnx.load(model, load_external_data=False).graph.node)}
    try:
        found = {level: compiled(model, level) for level in levels}
        feeds = tuple(sorted(model.parent.glob("*.npz")))
        report = verify_model(
            model, CHIP, CompileOptions(planner_or_auto(PLAIN)), VerifyOptions(samples=SAMPLES, feeds=feeds)
        )
    except UserError as error:
        return row | {"refused": str(error).splitlines()[0].removeprefix(f"{model}: ")}
    errors = [layer.isolated_error for layer in report.layers if layer.isolated_error is not None]
    outputs = [layer.whole_error for layer in report.layers[-1:] if layer.whole_error is not None]
    return row | {
        "refused": None,
        "levels": found,
        "failures": list(report.failures),
        "layer_error": max(errors, default=None),
        "network_error": max(outputs, default=None),
    }


def compiled(model: Path, level: str) -> Row:
    began = time.process_time()
    compilation = compile_model(model, CHIP, CompileOptions(planner_or_auto(level)))
    assert compilation.artifact.clusters
    seconds = time.process_time() - began
    figures = program_figures(compilation)
    return {
        "seconds": seconds,
        "limit_seconds": LIMITS_SECONDS.get(level),
        "kernels": figures.kernels,
        "instances": figures.instances,
        "cycles": figures.cycles,
    }


def measure_all(models: Sequence[Path], levels: Sequence[str]) -> Iterator[Row]:
    """Each in a process of its own, so that none finds what another left in memory."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for model in models:
            yield pool.submit(measure, model, levels).result()


def too_slow(row: Row) -> bool:
    return any(cell["seconds"] > (cell["limit_seconds"] or float("inf")) for cell in row.get("levels", {}).values())


def markdown(figures: Row, levels: Sequence[str]) -> str:
    headings = ["model", "nodes", *(f"{what} {level}" for level in levels for what in ("kernels", "seconds"))]
    rows = []
    for row in figures["rows"]:
        cells = [row["model"], f"{row['nodes']:,}"]
        if row["refused"] is not None:
            cells += [row["refused"], *[""] * (2 * len(levels) + 1)]
        else:
            for level in levels:
                cells += [f"{row['levels'][level]['kernels']:,}", f"{row['levels'][level]['seconds']:.1f}"]
            cells += [shown(row["layer_error"]), shown(row["network_error"])]
        rows.append(cells)
    made = [row for row in figures["rows"] if row["refused"] is None]
    right = [row for row in made if not row["failures"]]
    return "\n".join(
        (
            "# What PyTorch's exporters write",
            "",
            f"`python benchmarks/exports.py`, {figures['host_cpu']}, {figures['cpus']} CPUs, Python "
            f"{figures['python']}, load {figures['load_average']:.1f} at the start. "
            f"{len(made)} of {len(rows)} compile, {len(right)} are right. "
            "Seconds of the processor; relative L2 errors at O0, of the worst layer alone and of the last in place.",
            "",
            table([*headings, "layer error", "network error"], rows),
            "",
        )
    )


def shown(error: float | None) -> str:
    return "-" if error is None else f"{error:.2e}"


def main() -> int:
    parser = argparse.ArgumentParser(description="How long compiling what PyTorch's exporters write takes.")
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", nargs="?", help="FOLDER/NAME/NAME.onnx and inputs beside each"
    )
    parser.add_argument(
        "--level", action="append", metavar="LEVEL", help=f"in place of {', '.join(LEVELS)}; may be repeated"
    )
    add_outputs(parser)
    options = parser.parse_args()
    if options.folder is not None:
        return report(options, options.folder)
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own: PyTorch is large, and what is measured should be alone.
        if subprocess.run([sys.executable, "-m", "tests.exports.exporting", folder], cwd=ROOT, check=False).returncode:
            print("error: exports are written by PyTorch: pip install '.[exports]', or name a FOLDER", file=sys.stderr)
            return 1
        return report(options, Path(folder))


def report(options: argparse.Namespace, folder: Path) -> int:
    """Measure all models of a folder; the exit code."""
    levels: Sequence[str] = options.level or LEVELS
    models = sorted(folder.glob("*/*.onnx"))
    if not models:
        print(f"error: {folder}: needs NAME/NAME.onnx; has none", file=sys.stderr)
        return 1
    figures: Row = {"host_cpu": llvmlite.binding.get_host_cpu_name(), "python": platform.python_version()}
    figures |= {"cpus": os.cpu_count() or 0, "load_average": os.getloadavg()[0], "rows": []}
    for row in measure_all(models, levels):
        figures["rows"].append(row)
        keep(options, figures)
    finish(options, figures, markdown(figures, levels))
    return 1 if any(row["refused"] is not None or row["failures"] or too_slow(row) for row in figures["rows"]) else 0


if __name__ == "__main__":
    raise SystemExit(main())
