"""A sweep carried out.

sweep.yaml, DIR --run_sweep--> SweepResult: points with results, in the order of the file
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dsa_sched.sweeping.carried_out import HERE, PointWork, Say, WorkPlace, carried_out, require_place
from dsa_sched.sweeping.fault import FAULT
from dsa_sched.sweeping.point_result import REFUSED, PointResult, result_of
from dsa_sched.sweeping.points import Point, points
from dsa_sched.sweeping.sweep_file import SweepFile, read_sweep


@dataclass(frozen=True, slots=True)
class SweepResult:
    """A sweep with all its results, in the order of its file."""

    sweep: SweepFile
    points: tuple[Point, ...]
    results: tuple[PointResult, ...]

    @property
    def faults(self) -> int:
        """Number of points that were not done because of a fault."""
        return sum(result.status == FAULT for result in self.results)


def run_sweep(file: Path, folder: Path, place: WorkPlace = HERE, say: Say = lambda _step: None) -> SweepResult:
    """Compile all points of a sweep file that have no result in the folder yet. Raises JobFileError for a file that is
    wrong, and UserError for a folder that cannot be used."""
    sweep = read_sweep(file)
    require_place(folder)
    listed = points(sweep, file.parent)
    work = PointWork(
        "sweep",
        PointResult,
        partial(result_of, use_cache=place.use_cache),
        lambda point: point.key,
        lambda reason: PointResult(FAULT, reason, None),
        lambda result: result.status,
        (REFUSED, FAULT),
    )
    return SweepResult(sweep, listed, carried_out(listed, work, folder, place, say))
