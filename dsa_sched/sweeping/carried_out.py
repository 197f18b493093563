"""Points carried out: each that has no result yet, and each result kept as soon as it is there.

    points, PointWork, DIR --carried_out--> a result per point, in their order

DIR/points has one file per point, named by all that its result follows from, written whole or not at all. So work that
was ended goes on where it was, and where points are added, only these are made.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from dsa_sched.io.atomic_write import require_folder, write_whole
from dsa_sched.sweeping.fault import FAULT
from dsa_sched.sweeping.points import Point
from dsa_sched.sweeping.spread import spread
from hw_models.errors import JobFileError

POINTS = "points"
"""Name of the folder of results."""

ENDED = "the process ended before the point was done; it may have had too little memory"

MOST_RESULT_BYTES = 1 << 20

Result = TypeVar("Result")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WorkPlace:
    """Where points are worked on: in up to `jobs` processes of this machine (None: one per core), or by the workers of
    the Dask `cluster` whose scheduler has this address; with the user's build cache there, or without."""

    jobs: int | None = None
    cluster: str | None = None
    use_cache: bool = True


HERE = WorkPlace()


@dataclass(frozen=True, slots=True)
class PointWork(Generic[Result]):
    """What is done with points. `name` stands before progress; `make` is pickled, and makes a result of the class
    `kind`; `key` names the result by all that it follows from; `ended` makes one of the reason why there is none;
    `status` says what a result is: progress counts those that are `told`."""

    name: str
    kind: type[Result]
    make: Callable[[Point], Result]
    key: Callable[[Point], str]
    ended: Callable[[str], Result]
    status: Callable[[Result], str]
    told: tuple[str, ...]


def carried_out(
    listed: Sequence[Point], work: PointWork[Result], folder: Path, place: WorkPlace, say: Say
) -> tuple[Result, ...]:
    """The results of points, those that are kept in the folder and those that are made now. Raises JobFileError for a
    cluster that cannot be used, and UserError where a result cannot be kept."""
    keys = {point: work.key(point) for point in listed}
    kept = ((key, _kept(folder, key, work)) for key in dict.fromkeys(keys.values()))
    found = {key: result for key, result in kept if result is not None}
    missing = {key: point for point, key in keys.items() if key not in found}
    if place.cluster is None and len(missing) > 1:
        import dsa_sched.builds.fresh_build  # noqa: F401  # once, before processes are forked
    progress = _Progress(work.name, len({*keys.values()}), len(found), say)
    progress.tell(_counted(found, work))
    for point, result in spread(tuple(missing.values()), work.make, place.jobs, place.cluster):
        made = result if result is not None else work.ended(ENDED)
        found[keys[point]] = made
        if work.status(made) != FAULT:
            _keep(folder, keys[point], made, work)
        progress.tell(_counted(found, work))
    return tuple(found[keys[point]] for point in listed)


def require_place(folder: Path) -> None:
    """Make the folder of results. Raises UserError where it cannot be made, JobFileError for one that has other
    things."""
    require_folder(folder)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / POINTS).is_dir():
        needs = f"a folder that is empty, or that of a run before, with a folder {POINTS!r}"
        raise JobFileError(str(folder), needs=needs, has="a folder with other files", change="name another one with -o")
    (folder / POINTS).mkdir(parents=True, exist_ok=True)


def _keep(folder: Path, key: str, result: Result, work: PointWork[Result]) -> None:
    data = TypeAdapter(work.kind).dump_json(result, indent=1) + b"\n"
    write_whole(folder / POINTS / f"{key}.json", lambda stream: stream.write(data))


def _kept(folder: Path, key: str, work: PointWork[Result]) -> Result | None:
    """The result of a point, if there is one that can be read."""
    path = folder / POINTS / f"{key}.json"
    try:
        if path.stat().st_size > MOST_RESULT_BYTES:
            return None
        return TypeAdapter(work.kind).validate_json(path.read_bytes(), strict=True)
    except (OSError, ValidationError):  # none, or not one of ours
        return None


def _counted(found: Mapping[str, Result], work: PointWork[Result]) -> Counter[str]:
    """How many results there are of each status that is told, and of all (under an empty name)."""
    count = Counter(work.status(result) for result in found.values())
    return Counter({"": len(found)} | {status: count[status] for status in work.told})


class _Progress:
    """One line: points done, of what status, and about how long the others take."""

    def __init__(self, name: str, total: int, kept: int, say: Say) -> None:
        self._name, self._total, self._kept, self._say, self._begin = name, total, kept, say, time.monotonic()

    def tell(self, count: Counter[str]) -> None:
        done = count[""]
        words = [f"{self._name}: {done} of {self._total} points"]
        words += [f"{number} {status}" for status, number in count.items() if status and number]
        if done > self._kept and done < self._total:
            seconds = (time.monotonic() - self._begin) / (done - self._kept) * (self._total - done)
            words.append(f"about {seconds_text(seconds)} left")
        elif done == self._kept and self._kept:
            words.append(f"{self._kept} of them from before")
        self._say(", ".join(words))


def seconds_text(seconds: float) -> str:
    """A time that remains: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
