"""Where the time of compiling goes, and how it grows.

    python benchmarks/compile_time.py [--json FILE] [--markdown FILE] [--model MODEL --batch N...] [--chip CHIP]

Each row compiles one model for one batch at level O3 with `--schedule`, in a process of its own, from its start to the
artifact on the disk. Seconds are those of the processor, to which other work on the machine adds only what it takes of
the caches; conflicts inside cores are searched in two threads, whose seconds add up. Models are networks of the zoo or
ONNX files.

For a GPU (`--chip a100`) compiling is nvcc, and there are no instructions: see `benchmarks/kernel_compile_time.py`. The
exit code is then 1 where ResNet-50 takes longer than it may.

Keys of the JSON object: `host_cpu`, `python`, `cpus`, `load_average` (at the start), and two lists.

    rows                    one a model and batch
      model, chip, level, batch
      instructions                      of the program, all cores
      seconds                           by stage: see STAGES; `all` is their sum
      wall_seconds                      of the same, by the clock on the wall
      seconds_per_1000_instructions     of the stages after partitioning
    growth                  one a model with several batches
      model
      power                             the stages after partitioning take instructions ** power, by least squares
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import linear_regression
from typing import Any

import llvmlite.binding

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

from benchmarks.kernel_compile_time import above_limits, kernel_markdown, measure_kernels
from benchmarks.output import add_outputs, finish, keep
from codegen.target import GroupTarget
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions, gather_artifact
from dsa_sched.stages.targets import target_of
from hw_models.errors import UserError
from hw_models.loading import load_chip
from partitioner.planners.levels import planner_or_auto

Row = dict[str, Any]

CHIP, LEVEL = "stcp920", "O3"
DEFAULT = (("squeezenet", (1, 4, 16)), ("densenet121", (8,)), ("resnet50", (1, 4, 16)))
"""Models and batches."""
KERNELS_DEFAULT = (("resnet50", (1,)),)
"""The same for a GPU."""

STAGES = ("start", "read", "partition", "lower", "schedule", "verify", "emit", "write")
"""Of a compilation, in order: `start` is Python and imports, `write` is manifest, hashes and files."""

SAID = {
    "reading the model": "read",
    "partitioning": "partition",
    "lowering": "lower",
    "scheduling": "schedule",
    "verifying the program": "verify",
}
"""What the compiler says when a stage begins."""

GROWING = STAGES[STAGES.index("lower") :]
"""Stages whose work is the instructions."""


class _Stages:
    """Seconds of the processor by stage; `start` counts from the start of the process."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.now, self.since = "start", 0.0

    def begin(self, stage: str) -> None:
        moment = time.process_time()
        self.seconds[self.now] += moment - self.since
        self.now, self.since = stage, moment

    def said(self, words: str) -> None:
        self.begin(SAID.get(words, self.now))


def measure(model: str, batch: int, chip: str) -> Row:
    """Compile once; the first thing that a process does."""
    began = time.perf_counter()
    stages = _Stages()
    done = compile_model(model, chip, CompileOptions(planner_or_auto(LEVEL), batch, schedule=True), stages.said)
    stages.begin("emit")
    files = done.files
    stages.begin("write")
    with tempfile.TemporaryDirectory() as scratch:
        gather_artifact((done,)).save(Path(scratch) / "artifact")
        stages.begin("write")
    assert files.files
    instructions = sum(len(stream.instrs) for stream in done.program.streams)
    growing = sum(stages.seconds[stage] for stage in GROWING)
    return {
        "model": Path(model).stem,
        "chip": chip,
        "level": LEVEL,
        "batch": batch,
        "instructions": instructions,
        "seconds": {**stages.seconds, "all": sum(stages.seconds.values())},
        "wall_seconds": time.perf_counter() - began + stages.seconds["start"],
        "seconds_per_1000_instructions": 1000 * growing / instructions,
    }


def measure_all(wanted: Iterable[tuple[str, Sequence[int]]], chip: str) -> Iterator[Row]:
    """Each in a process of its own, one after the other, so that none finds what another left in memory."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for model, batches in wanted:
            for batch in batches:
                yield pool.submit(measure, model, batch, chip).result()


def growth(rows: Sequence[Row]) -> list[Row]:
    """The power of the instructions that time grows with, for each model with several batches."""
    powers = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        counts = [math.log(row["instructions"]) for row in own]
        if len(set(counts)) > 1:
            seconds = [math.log(row["seconds_per_1000_instructions"] * row["instructions"]) for row in own]
            powers.append({"model": model, "power": linear_regression(counts, seconds).slope})
    return powers


def markdown(figures: Row) -> str:
    headings = ("model", "batch", "instructions", *STAGES, "all", "wall", "ms per 1,000 instructions")
    lines = [" | ".join(("", *headings, "")).strip(), "| --- " * len(headings) + "|"]
    for row in figures["rows"]:
        seconds = (f"{row['seconds'][stage]:.2f}" for stage in (*STAGES, "all"))
        cells = (row["model"], str(row["batch"]), f"{row['instructions']:,}", *seconds, f"{row['wall_seconds']:.1f}")
        lines.append(f"| {' | '.join(cells)} | {1000 * row['seconds_per_1000_instructions']:.1f} |")
    powers = ", ".join(f"{row['model']} {row['power']:.2f}" for row in figures["growth"])
    return "\n".join(
        (
            "# Compile time",
            "",
            f"`python benchmarks/compile_time.py`, {figures['host_cpu']}, {figures['cpus']} CPUs, Python "
            f"{figures['python']}, load {figures['load_average']:.1f} at the start. Level {LEVEL} with `--schedule`, "
            "one cluster. Seconds of the processor by stage; `wall` is what passed, also for other work on "
            "the machine. The last column counts the stages from `lower` on.",
            "",
            *lines,
            *(("", f"These stages grow with the instructions to the power: {powers}.") if powers else ()),
            "",
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Where the time of compiling goes.")
    add_outputs(parser)
    parser.add_argument("--model", metavar="MODEL", help="only this network of the zoo or ONNX file")
    parser.add_argument("--batch", type=int, action="append", metavar="N", help="of this model; may be repeated")
    parser.add_argument("--chip", default=CHIP, metavar="CHIP", help=f"a name or a chip file (default {CHIP})")
    options = parser.parse_args()
    try:
        kernels = isinstance(target_of(load_chip(options.chip)), GroupTarget)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    wanted = [(options.model, options.batch or [1])] if options.model else KERNELS_DEFAULT if kernels else DEFAULT
    figures: Row = {"host_cpu": llvmlite.binding.get_host_cpu_name(), "python": platform.python_version()}
    figures |= {"cpus": os.cpu_count() or 0, "load_average": os.getloadavg()[0], "rows": []}
    if kernels:
        figures |= {"chip": options.chip}
        for row in measure_kernels(wanted, options.chip):
            figures["rows"].append(row)
            keep(options, figures)
        finish(options, figures, kernel_markdown(figures))
        return 1 if above_limits(figures["rows"]) else 0
    figures |= {"growth": []}
    for row in measure_all(wanted, options.chip):
        figures["rows"].append(row)
        figures["growth"] = growth(figures["rows"])
        keep(options, figures)
    finish(options, figures, markdown(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
