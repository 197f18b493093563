"""A sweep carried out: every point that is not done yet, each kept as soon as it is done.

    sweep.yaml, DIR --run_sweep--> SweepResult: points with results, in the order of the file

DIR/points has one file per point, named by all that its result follows from, written whole or not at all. So a sweep
that was ended goes on where it was, and one whose file has grown computes what is new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dsa_sched.io.atomic_write import require_folder, write_whole
from dsa_sched.sweeping.point_result import FAILED, REFUSED, PointResult, result_of
from dsa_sched.sweeping.points import Point, points
from dsa_sched.sweeping.spread import spread
from dsa_sched.sweeping.sweep_file import SweepFile, read_sweep
from hw_models.errors import JobFileError

POINTS = "points"
"""Folder of the results of points, in that of the sweep."""

MOST_RESULT_BYTES = 1 << 20
ENDED = PointResult(FAILED, "the process ended before the point was done; it may have had too little memory", None)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SweepPlace:
    """Where points are compiled: in up to `jobs` processes of this machine (None: one per core), or by the workers of
    the Dask `cluster` whose scheduler has this address."""

    jobs: int | None = None
    cluster: str | None = None
    use_cache: bool = True


HERE = SweepPlace()


@dataclass(frozen=True, slots=True)
class SweepResult:
    """A sweep with all its results, in the order of its file."""

    sweep: SweepFile
    points: tuple[Point, ...]
    results: tuple[PointResult, ...]

    def count(self, *status: str) -> int:
        """Number of points of these statuses."""
        return sum(result.status in status for result in self.results)


def run_sweep(file: Path, folder: Path, place: SweepPlace = HERE, say: Say = lambda _step: None) -> SweepResult:
    """Compile all points of a sweep file that have no result in the folder yet. Raises JobFileError for a file that is
    wrong, and UserError for a folder that cannot be used."""
    sweep = read_sweep(file)
    require_place(folder)
    listed = points(sweep, file.parent)
    keys = {point: point.key for point in listed}
    found = {key: result for key in dict.fromkeys(keys.values()) if (result := _kept(folder, key)) is not None}
    missing = {key: point for point, key in keys.items() if key not in found}
    if place.cluster is None and len(missing) > 1:
        import dsa_sched.builds.fresh_build  # noqa: F401  # once, before processes are forked
    told = _Told(len(keys), len(found), say)
    told.tell(found)
    work = partial(result_of, use_cache=place.use_cache)
    for point, result in spread(tuple(missing.values()), work, place.jobs, place.cluster):
        found[keys[point]] = result if result is not None else ENDED
        if result is not None and result.status != FAILED:
            keep(folder, keys[point], result)
        told.tell(found)
    return SweepResult(sweep, listed, tuple(found[keys[point]] for point in listed))


def require_place(folder: Path) -> None:
    """Make the folder of a sweep. Raises UserError where it cannot be made, JobFileError for one that has other
    things."""
    require_folder(folder)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / POINTS).is_dir():
        needs = f"a folder that is empty, or that of a sweep, with a folder {POINTS!r}"
        raise JobFileError(str(folder), needs=needs, has="a folder with other files", change="name another one with -o")
    (folder / POINTS).mkdir(parents=True, exist_ok=True)


def keep(folder: Path, key: str, result: PointResult) -> None:
    """Write the result of a point, whole or not at all. Raises UserError."""
    data = TypeAdapter(PointResult).dump_json(result, indent=1) + b"\n"
    write_whole(folder / POINTS / f"{key}.json", lambda stream: stream.write(data))


def _kept(folder: Path, key: str) -> PointResult | None:
    """The result of a point, if there is one that can be read."""
    path = folder / POINTS / f"{key}.json"
    try:
        if path.stat().st_size > MOST_RESULT_BYTES:
            return None
        return TypeAdapter(PointResult).validate_json(path.read_bytes(), strict=True)
    except (OSError, ValidationError):  # none, or not one of ours
        return None


class _Told:
    """Progress in one line: points done, what was refused, and about how long the others take."""

    def __init__(self, total: int, kept: int, say: Say) -> None:
        self._total, self._kept, self._say, self._begin = total, kept, say, time.monotonic()

    def tell(self, found: Mapping[str, PointResult]) -> None:
        refused = sum(result.status == REFUSED for result in found.values())
        failed = sum(result.status == FAILED for result in found.values())
        words = [f"sweep: {len(found)} of {self._total} points"]
        words += [f"{count} {status}" for count, status in ((refused, REFUSED), (failed, FAILED)) if count]
        made = len(found) - self._kept
        if made and len(found) < self._total:
            seconds = (time.monotonic() - self._begin) / made * (self._total - len(found))
            words.append(f"about {seconds_text(seconds)} left")
        elif not made and self._kept:
            words.append(f"{self._kept} of them from before")
        self._say(", ".join(words))


def seconds_text(seconds: float) -> str:
    """A time that remains: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
