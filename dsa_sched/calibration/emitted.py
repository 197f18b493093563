"""Micro-benchmarks as files: programs, what to count, and a table to fill in.

Chip --benchmarks_of--> Benchmark, ... --emitted--> manifest.json, template.csv, programs/NAME.elf
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass

from codegen.target import Benchmark, ClusterFiles
from dsa_sched.artifact.whole_folder import MANIFEST, file_entry
from dsa_sched.calibration.counters import COLUMNS
from dsa_sched.calibration.prediction import COUNTERS
from dsa_sched.stages.targets import require_benchmarks, require_timeable, target_of
from hw_models.chip import Chip
from isched.program.target import Timeable

FORMAT = "dsa-sched-calibration/1"
TEMPLATE = "template.csv"

REPETITIONS = 10
"""Number of times that each program is to be measured."""

HASH_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Calibration:
    """The micro-benchmarks of a chip, and the target that predicts their times."""

    chip: Chip
    target: Timeable
    benchmarks: tuple[Benchmark, ...]

    @property
    def counters(self) -> dict[str, tuple[str, ...]]:
        """Names of the counters of each benchmark."""
        return {each.name: each.counters for each in self.benchmarks}

    @property
    def numbers(self) -> tuple[str, ...]:
        """Paths in the chip file of the numbers that a benchmark isolates."""
        return tuple(dict.fromkeys(path for each in self.benchmarks for path in each.isolates))

    @property
    def programs(self) -> str:
        """Hash of all programs."""
        hashed = hashlib.sha256()
        for benchmark in self.benchmarks:
            for files in benchmark.files:
                hashed.update(benchmark.name.encode() + files.files[files.executable])
        return hashed.hexdigest()[:HASH_DIGITS]


def calibration_of(chip: Chip) -> Calibration:
    """The micro-benchmarks of a chip. Raises TargetError for a chip whose target has none."""
    target = target_of(chip)
    made = require_benchmarks(target, "calibrate").benchmarks(chip)
    return Calibration(chip, require_timeable(target, "calibrate"), made)


def emitted(calibration: Calibration) -> Iterator[tuple[str, bytes]]:
    """Path and contents of each file of the folder."""
    programs = [(each, [(_path(each, files), files) for files in each.files]) for each in calibration.benchmarks]
    for _, of in programs:
        yield from ((path, files.files[files.executable]) for path, files in of)
    template = _template(calibration)
    yield TEMPLATE, template
    listed = [file_entry(path, files.files[files.executable]) for _, of in programs for path, files in of]
    manifest = {
        "format": FORMAT,
        "chip": {"name": calibration.chip.name, "hash": calibration.chip.hash},
        "programs_hash": calibration.programs,
        "repetitions": REPETITIONS,
        "counters": {name: counter.meaning for name, counter in COUNTERS.items()},
        "benchmarks": [_entry(each, of) for each, of in programs],
        "files": [entry.model_dump() for entry in (*listed, file_entry(TEMPLATE, template))],
    }
    yield MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode()


def _path(benchmark: Benchmark, files: ClusterFiles) -> str:
    cluster = f".cluster{files.cluster}" if len(benchmark.files) > 1 else ""
    return f"programs/{benchmark.name}{cluster}.elf"


def _entry(benchmark: Benchmark, programs: list[tuple[str, ClusterFiles]]) -> dict[str, object]:
    started = [{"path": path, "cluster": files.cluster, "cores": files.cores} for path, files in programs]
    return {
        "name": benchmark.name,
        "measures": benchmark.measures,
        "isolates": list(benchmark.isolates),
        "counters": list(benchmark.counters),
        "started_together": started,
    }


def _template(calibration: Calibration) -> bytes:
    """A table with a line for everything that is to be measured, without cycles."""
    stream = io.StringIO()
    stream.write(f"# chip {calibration.chip.name} {calibration.chip.hash[:HASH_DIGITS]}\n")
    stream.write(f"# programs {calibration.programs}\n")
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    for name, counters in calibration.counters.items():
        table.writerows((name, repetition, counter, "") for repetition in range(REPETITIONS) for counter in counters)
    return stream.getvalue().encode()
