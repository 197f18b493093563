"""What is said of artifacts (times, explanations), kept as JSON next to the build cache.

    artifact --Figures--> what was found for the same bytes by the same compiler, or nothing

An entry is named by the hash of the artifact's manifest, which has the hashes of all its files, and by that of the
compiler. So nobody lays out or times the same bytes again, and what is said stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from dsa_sched.builds.build_cache import compiler_hash
from hw_models.cache import Cache, key_of

if TYPE_CHECKING:
    from dsa_sched.analysis.explanation_data import Explanation
    from dsa_sched.analysis.run_times import RunTimes
    from dsa_sched.analysis.work import TimedWork
    from dsa_sched.artifact.format import Artifact

FOLDER = "figures"
"""Name of the folder of figures in that of a build cache."""

MOST_BYTES = 64 << 20
"""Largest size of all figures together, and so of those of one artifact, in bytes."""

EXPLANATION, WORK = "explanation", "work"

Found = TypeVar("Found")


def figures_cache(builds: Cache) -> Cache:
    """The cache of figures that belongs to a build cache."""
    return Cache(builds.folder and builds.folder / FOLDER, MOST_BYTES)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one artifact. Without the cache of builds, nothing is found and nothing kept."""

    artifact: Artifact
    builds: Cache | None

    def times(self, by: str | None, find: Callable[[], RunTimes]) -> RunTimes:
        """The times of the artifact's programs by these parts: those that were kept, or what `find` gives, which is
        kept."""
        from dsa_sched.analysis.run_times import RunTimes

        name = f"times by {by}"
        found = self._found(name, RunTimes)
        if found is None:
            found = find()
            self._keep(name, RunTimes, found)
        return found

    def explanation(self) -> Explanation | None:
        """The explanation of the artifact, if it was kept."""
        from dsa_sched.analysis.explanation_data import Explanation

        return self._found(EXPLANATION, Explanation)

    def keep_explanation(self, found: Explanation) -> None:
        """Keep the explanation of the artifact."""
        self._keep(EXPLANATION, type(found), found)

    def work(self) -> TimedWork | None:
        """The work of the first program for each layer, if it was kept."""
        from dsa_sched.analysis.work import TimedWork

        return self._found(WORK, TimedWork)

    def keep_work(self, found: TimedWork) -> None:
        """Keep the work of the first program."""
        self._keep(WORK, type(found), found)

    def _found(self, name: str, kind: type[Found]) -> Found | None:
        data = figures_cache(self.builds).find(self._key(name)) if self.builds is not None else None
        if data is None:
            return None
        try:
            return TypeAdapter(kind).validate_json(data, strict=True)
        except ValidationError:  # no such figures, though whole: a stranger's
            return None

    def _keep(self, name: str, kind: type[Found], found: Found) -> None:
        if self.builds is not None:
            figures_cache(self.builds).keep(self._key(name), TypeAdapter(kind).dump_json(found))

    def _key(self, name: str) -> str:
        return key_of(name, self.artifact.hash, compiler_hash())
