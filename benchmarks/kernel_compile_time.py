"""Where the time of compiling for a GPU goes: with an empty cache of nvcc's results, and once more with a full one.

Both are processes of their own, from their start to the artifact on the disk; the cache is a folder that goes
afterwards, in which the model of the zoo lies already. Seconds by stage are those of the clock on the wall, for nvcc
runs in processes of its own, some at a time; `processor_seconds` are those of all of these together.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.output import table
from dsa_sched.frontend.load import load_source
from dsa_sched.pipeline.driver import compile_model
from dsa_sched.stages.compilation import CompileOptions, gather_artifact
from dsa_sched.zoo import zoo_names
from hw_models.cache import Cache
from partitioner.planners.levels import planner_or_auto

__all__ = ["LIMITS", "STAGES", "above_limits", "kernel_markdown", "measure_kernels"]

Row = dict[str, Any]

LEVEL = "O0"
STAGES = ("start", "read", "partition", "place", "emit", "write")
SAID = {"reading the model": "read", "partitioning": "partition", "placing tensors": "place"}
"""What the compiler says when a stage begins."""

LIMITS = {"cold": 180.0, "warm": 10.0}
"""Seconds on the wall that ResNet-50, batch 1, may take."""
LIMITED = ("resnet50", 1)
MIB = 1024
"""KiB, in which the system counts memory."""


class _Stages:
    """Seconds on the wall; `start` began with the process."""

    def __init__(self, began: float) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.now, self.since = "start", began

    def begin(self, stage: str) -> None:
        moment = time.time()
        self.seconds[self.now] += moment - self.since
        self.now, self.since = stage, moment

    def said(self, words: str) -> None:
        self.begin(SAID.get(words, self.now))


def _compiled(model: str, batch: int, chip: str, began: float) -> Row:
    """The first thing that a process does."""
    stages = _Stages(began)
    done = compile_model(model, chip, CompileOptions(planner_or_auto(LEVEL), batch), stages.said)
    stages.begin("emit")
    files = done.files
    stages.begin("write")
    with tempfile.TemporaryDirectory() as scratch:
        gather_artifact((done,)).save(Path(scratch) / "artifact")
        stages.begin("write")
    listed = json.loads(files.files[files.executable])
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "model": Path(model).stem,
        "chip": chip,
        "level": LEVEL,
        "batch": batch,
        "kernels": len(listed["modules"]),
        "launches": len(listed["launches"]),
        "seconds": stages.seconds,
        "wall_seconds": sum(stages.seconds.values()),
        "processor_seconds": own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime,
        "peak_mib": own.ru_maxrss / MIB,
        "peak_mib_of_a_child": children.ru_maxrss / MIB,
    }


def measure_kernels(wanted: Sequence[tuple[str, Sequence[int]]], chip: str) -> Iterator[Row]:
    """Each model and batch cold and warm."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for model, batches in wanted:
            for batch in batches:
                if model in zoo_names():
                    load_source(model)
                Cache.of_user("nvcc").clear()
                for state in LIMITS:
                    with ProcessPoolExecutor(1, mp_context=context) as pool:
                        row = pool.submit(_compiled, model, batch, chip, time.time()).result()
                    limit = LIMITS[state] if (row["model"], batch) == LIMITED else None
                    yield {"cache": state, **row, "limit_seconds": limit}


def above_limits(rows: Sequence[Row]) -> list[str]:
    """What took longer than it may, in words."""
    return [
        f"{row['model']} {row['cache']}: {row['wall_seconds']:.1f} s, at most {row['limit_seconds']:.0f} s are wanted"
        for row in rows
        if row["limit_seconds"] is not None and row["wall_seconds"] > row["limit_seconds"]
    ]


def kernel_markdown(figures: Row) -> str:
    headings = (
        "model",
        "batch",
        "cache",
        "kernels",
        "launches",
        *STAGES,
        "wall",
        "limit",
        "processor",
        "MiB",
        "MiB of a child",
    )
    rows = [
        (row["model"], str(row["batch"]), row["cache"], str(row["kernels"]), str(row["launches"]),
         *(f"{row['seconds'][stage]:.1f}" for stage in STAGES), f"{row['wall_seconds']:.1f}",
         "" if row["limit_seconds"] is None else f"{row['limit_seconds']:.0f}", f"{row['processor_seconds']:.1f}",
         f"{row['peak_mib']:.0f}", f"{row['peak_mib_of_a_child']:.0f}")
        for row in figures["rows"]
    ]  # fmt: skip
    said = (
        f"`python benchmarks/compile_time.py --chip {figures['chip']}`, {figures['host_cpu']}, {figures['cpus']} CPUs, "
        f"Python {figures['python']}, load {figures['load_average']:.1f} at the start. Seconds on the wall by stage; "
        "`processor` is the time of all processes, nvcc's among them, of which some run at a time; a child is "
        "nvcc's, or one that begins as a copy of the parent."
    )
    return "\n\n".join(("# Compile time for a GPU", said, table(headings, rows), *above_limits(figures["rows"]), ""))
