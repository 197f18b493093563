"""Decisions about every set of layers that a target has one kernel for: merged against apart.

    the run that was chosen, sets with a kernel --the same with the set merged, and with its layers apart--> Decision

Both are counted where they would run, with the cache as the groups before have left it, and with the hits of the groups
after. Groups of the run that contain some of the set's layers are taken apart for both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partitioner.fusion.cache_hits import MARGIN, GroupWork, KernelRun
from partitioner.fusion.kernel_sets import bits
from partitioner.ir.decisions import Decision
from partitioner.ir.kernels import Kernel
from partitioner.planners.forced_groups import Forced
from partitioner.planners.kernel_offers import KernelOffers

MERGED, APART = "one kernel with ", "not one kernel with "
"""Beginnings of verdicts."""

READERS = 8
"""Number of groups after a set that are checked for hits on what it leaves in the cache."""


def microseconds(seconds: float) -> str:
    """Seconds as text in microseconds."""
    return f"{seconds * 1e6:.3f} us"


def is_merge(decision: Decision) -> bool:
    """Whether a decision is about a set of layers as one kernel or several."""
    return decision.verdict.startswith((MERGED, APART))


def merge_decisions(run: KernelRun, offers: KernelOffers, asked: Sequence[Forced]) -> tuple[Decision, ...]:
    """Decisions about every set of layers with a kernel, by the first layer: both ways to compute it, with the seconds
    of their floors and what binds them."""
    works = [work for work, _ in run.groups()]
    chosen = {work.members for work in works}
    texts = {forced.work.members: forced for forced in asked}
    runs = [KernelRun(offers.values)]
    for work in works:
        runs.append(runs[-1].then(work))
    found = []
    for candidate in (*(forced.work for forced in asked), *offers.merged_sets()):
        if candidate.members in texts and candidate is not texts[candidate.members].work:
            continue
        if any(candidate.members & members and candidate.members != members for members in texts):
            continue
        merged, apart = _both_ways(candidate, works, runs, offers)
        found.append(_decision(candidate, merged, apart, candidate.members in chosen, candidate.members in texts))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Way:
    """Kernels that compute a set of layers, with the floors that they have in their place of the run."""

    kernels: tuple[tuple[GroupWork, Kernel], ...]

    @property
    def seconds(self) -> float:
        return sum(kernel.seconds for _, kernel in self.kernels)

    def text(self) -> str:
        parts = (
            f"{work.layers[0].name} {microseconds(kernel.seconds)}{_bound(kernel)}" for work, kernel in self.kernels
        )
        return ", ".join(parts)


def _bound(kernel: Kernel) -> str:
    return f" {kernel.binding.name}" if kernel.binding else ""


def _both_ways(
    candidate: GroupWork, works: Sequence[GroupWork], runs: Sequence[KernelRun], offers: KernelOffers
) -> tuple[_Way, _Way]:
    touched = [number for number, work in enumerate(works) if work.members & candidate.members]
    first, last = touched[0], touched[-1]
    apart = list(_apart(works[first : last + 1], candidate, offers))
    inside = [number for number, work in enumerate(apart) if work.members & candidate.members]
    merged = [work for work in apart[: inside[-1]] if not work.members & candidate.members]
    merged += [candidate, *apart[inside[-1] + 1 :]]
    behind = works[last + 1 : last + 1 + READERS]
    return _way(candidate, merged, behind, runs[first]), _way(candidate, apart, behind, runs[first])


def _apart(works: Sequence[GroupWork], candidate: GroupWork, offers: KernelOffers) -> Iterator[GroupWork]:
    for work in works:
        if not work.members & candidate.members:
            yield work
            continue
        yield from (offers.of(1 << number) for number in bits(work.members))


def _way(candidate: GroupWork, works: Sequence[GroupWork], behind: Sequence[GroupWork], run: KernelRun) -> _Way:
    for work in (*works, *behind):
        run = run.then(work)
    there = run.groups(len(works) + len(behind))
    return _Way(tuple((work, work.best(hits)) for work, hits in there if work.members & candidate.members))


def _decision(
    candidate: GroupWork,
    merged: _Way,
    apart: _Way,
    is_chosen: bool,
    is_asked: bool,
) -> Decision:
    subject, *others = (layer.name for layer in candidate.layers)
    kernel = merged.kernels[0][1]
    names = ", ".join(others)
    binds = f" ({kernel.binding.name} binds)" if kernel.binding else ""
    ways = f"{kernel.text} takes {microseconds(merged.seconds)} at least{binds}"
    against = f"apart they take {microseconds(apart.seconds)} ({apart.text()})"
    if is_asked:
        return Decision(subject, f"{MERGED}{names}, as asked for", f"{ways}, {against}")
    if is_chosen:
        return Decision(subject, f"{MERGED}{names}", f"{ways}, {against}")
    if merged.seconds > apart.seconds:
        said = f"the merged kernel is slower: {microseconds(merged.seconds)} against {microseconds(apart.seconds)}"
    elif merged.seconds * (1 + MARGIN) > apart.seconds:
        said = f"the merged kernel saves less than {MARGIN:.0%}"
    else:
        said = "other groups save more"
    return Decision(subject, f"{APART}{names}", f"{said}; {ways}, {against}")
