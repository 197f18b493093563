"""An artifact explained: by what was kept of it, or as it is laid out and timed now.

artifact, build cache --told--> Told --detail_of--> everything about one group
two artifacts         --both told, difference_of--> Difference
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsa_sched.analysis.explanation_data import Explanation
from dsa_sched.builds.kept_figures import Figures
from hw_models.cache import Cache
from hw_models.chip import Chip

if TYPE_CHECKING:
    from dsa_sched.analysis.difference import Difference
    from dsa_sched.analysis.explanation import Explained
    from dsa_sched.analysis.group_detail import GroupDetail
    from dsa_sched.analysis.kernel_explanation import KernelExplanation
    from dsa_sched.artifact.format import Artifact

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Told:
    """An explanation for a reader, of the plan of a `chip`; `detail` is about one group, if one was asked for."""

    explanation: Explanation | KernelExplanation
    chip: Chip
    detail: GroupDetail | None = None


def told_of_artifact(
    artifact: Artifact, builds: Cache | None, group: str | None, progress: Progress = lambda _step: None
) -> Told:
    """The explanation of an artifact, or everything about one of its groups. Raises as `explain_artifact` does, and
    ModelError for a group that is not there."""
    figures = Figures(artifact, builds)
    kept = figures.explanation()
    if kept is not None and group is None:
        return Told(kept, artifact.chip)
    from dsa_sched.analysis.explanation import Explained, explain_artifact

    found = explain_artifact(artifact, progress, kept.measured if kept is not None else None)
    if kept is None and isinstance(found, Explained):
        figures.keep_explanation(found.explanation)
    return told(found, artifact.chip, group)


def difference_of(
    before: Artifact,
    after: Artifact,
    names: tuple[str, str],
    builds: Cache | None,
    progress: Progress = lambda _step: None,
) -> Difference:
    """The difference of two artifacts, which the reader knows by these names. Raises as `explain_artifact` does."""
    from dsa_sched.analysis.difference import Difference, side

    told_of = (told_of_artifact(artifact, builds, None, progress).explanation for artifact in (before, after))
    return Difference(*map(side, (before, after), told_of, names))


def told(found: Explained | KernelExplanation, chip: Chip, group: str | None) -> Told:
    """An explanation that was just made, or the part of it about one group. Raises ModelError."""
    from dsa_sched.analysis.explanation import Explained
    from dsa_sched.analysis.group_detail import detail_of

    if isinstance(found, Explained):
        return Told(found.explanation, chip, detail_of(found, group) if group is not None else None)
    return Told(found.of(group) if group is not None else found, chip)
