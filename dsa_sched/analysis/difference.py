"""Two artifacts next to each other, as data: which is faster, by how much, why, and what else differs.

    two explanations --side--> two sides --Difference--> changes, parts, a reason --report.difference--> text or JSON

Plans divide the same layers into groups in different ways. What is compared are parts: the smallest sets of layers that
both plans make of whole groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf

from dsa_sched.analysis.explanation_data import Explanation
from dsa_sched.analysis.kernel_explanation import KernelExplanation
from dsa_sched.analysis.run_summary import GroupTime, run_summary
from dsa_sched.artifact.format import Artifact
from hw_models.changes import differing_fields
from hw_models.chip import Chip
from partitioner.ir.decisions import Decision

EQUALLY_FAST = 0.0005
"""Largest relative difference of two times that are called equal."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two artifacts. `seconds_per_item` are those of the whole run; they are `estimated` where no machine
    code was timed. `causes` are the seconds of one pass by what binds; `counts`, `moved_bytes` by way and `peak_bytes`
    by memory are those of one pass, too. `options` are those that the artifact was compiled with."""

    name: str
    model: str
    model_sha256: str
    chip: Chip
    level: str
    batch_per_cluster: int
    seconds_per_item: float
    estimated: bool
    counts: Mapping[str, int]
    causes: Mapping[str, float]
    moved_bytes: Mapping[str, int]
    peak_bytes: Mapping[str, int]
    groups: tuple[GroupTime, ...]
    order: tuple[str, ...]
    options: Mapping[str, str]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One number before and after; None on a side that does not have it."""

    name: str
    before: float | None
    after: float | None

    @property
    def more(self) -> float:
        """By how much it grew; what a side does not have counts as zero."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True, slots=True)
class PartChange:
    """A part of the network: the groups that have its layers before and after. One side has none where the networks
    differ."""

    layers: tuple[str, ...]
    before: tuple[GroupTime, ...]
    after: tuple[GroupTime, ...]

    @property
    def seconds(self) -> tuple[float, float]:
        return sum(share.seconds for share in self.before), sum(share.seconds for share in self.after)

    @property
    def more(self) -> float:
        """By how many seconds it grew."""
        return self.seconds[1] - self.seconds[0]

    def more_of(self, cause: str) -> float:
        """By how many seconds a cause grew in it."""
        return sum(s.causes.get(cause, 0.0) for s in self.after) - sum(s.causes.get(cause, 0.0) for s in self.before)

    @property
    def same_plan(self) -> bool:
        """Whether both sides make the same of it: groups, instances and where outputs lie."""
        made = [[(s.layers, s.instances, s.place) for s in side] for side in (self.before, self.after)]
        return made[0] == made[1]


@dataclass(frozen=True)
class Difference:
    """The difference of two artifacts. Times are seconds; those of causes and parts are of one pass on one cluster."""

    before: Side
    after: Side

    @property
    def times(self) -> float:
        """Time of an item after, over that before; 1 where both are zero, inf where only the first is."""
        return times_of(self.after.seconds_per_item, self.before.seconds_per_item)

    @property
    def equally_fast(self) -> bool:
        return abs(self.times - 1) < EQUALLY_FAST

    def slower_than(self, tolerance: float) -> bool:
        """Whether an item takes longer after than before by more than this share."""
        return is_slower(self.after.seconds_per_item, self.before.seconds_per_item, tolerance)

    @cached_property
    def causes(self) -> tuple[Change, ...]:
        """Seconds by what binds, the largest change first."""
        return _by_size(_changes(self.before.causes, self.after.causes))

    @cached_property
    def counts(self) -> tuple[Change, ...]:
        return tuple(_changes(self.before.counts, self.after.counts))

    @cached_property
    def moved_bytes(self) -> tuple[Change, ...]:
        return tuple(_changes(self.before.moved_bytes, self.after.moved_bytes))

    @cached_property
    def peak_bytes(self) -> tuple[Change, ...]:
        return tuple(_changes(self.before.peak_bytes, self.after.peak_bytes))

    @cached_property
    def parts(self) -> tuple[PartChange, ...]:
        """All parts, the largest change of time first."""
        return tuple(sorted(_parts(self.before.groups, self.after.groups), key=lambda part: -abs(part.more)))

    @cached_property
    def reason(self) -> tuple[Change, PartChange | None] | None:
        """The cause that explains most of the change, and the part in which it changed most; None for equal times."""
        grew = self.times > 1
        found = next((cause for cause in self.causes if cause.more and (cause.more > 0) == grew), None)
        if self.equally_fast or found is None:
            return None
        sign = 1 if grew else -1
        where = max(self.parts, key=lambda part: sign * part.more_of(found.name), default=None)
        return found, where if where is not None and sign * where.more_of(found.name) > 0 else None

    @property
    def options(self) -> tuple[tuple[str, str, str], ...]:
        """Options that differ: name, before, after."""
        return _texts(self.before.options, self.after.options)

    @property
    def chip(self) -> tuple[tuple[str, str, str], ...]:
        """Fields of the chips that differ: path, before, after."""
        return differing_fields(self.before.chip, self.after.chip)

    @property
    def same_model(self) -> bool:
        return self.before.model_sha256 == self.after.model_sha256

    @property
    def same_order(self) -> bool:
        """Whether the same instances run in the same order."""
        return self.before.order == self.after.order

    @cached_property
    def decisions(self) -> tuple[tuple[Decision, ...], tuple[Decision, ...]]:
        """Decisions of one side that the other does not have: those before, those after."""
        known = set(self.before.decisions), set(self.after.decisions)
        lost = tuple(each for each in self.before.decisions if each not in known[1])
        return lost, tuple(each for each in self.after.decisions if each not in known[0])

    @cached_property
    def decided_differently(self) -> tuple[tuple[Decision, ...], tuple[Decision, ...]]:
        """Those of `decisions` that differ in more than the numbers of their reasons."""
        lost, new = self.decisions
        known = tuple({_without_numbers(each) for each in side} for side in (lost, new))
        return (
            tuple(each for each in lost if _without_numbers(each) not in known[1]),
            tuple(each for each in new if _without_numbers(each) not in known[0]),
        )


def _without_numbers(decision: Decision) -> tuple[str, str, str]:
    return decision.subject, decision.verdict, re.sub(r"\d[\d,.]*", "#", decision.reason)


def times_of(after_seconds: float, before_seconds: float) -> float:
    """A time over another one: 1 where both are zero, inf where only the second is."""
    if not before_seconds:
        return inf if after_seconds else 1.0
    return after_seconds / before_seconds


def is_slower(after_seconds: float, before_seconds: float, tolerance: float) -> bool:
    """Whether a time is longer than another one by more than this share, and by more than nothing."""
    return times_of(after_seconds, before_seconds) > 1 + max(tolerance, EQUALLY_FAST)


def side(artifact: Artifact, found: Explanation | KernelExplanation, name: str) -> Side:
    """An artifact and its explanation, as they are compared."""
    manifest, options = artifact.manifest, artifact.origin.options
    timed = run_summary(found, artifact.chip)
    figures = manifest.figures
    instructions = {"instructions": figures.instructions} if figures is not None and figures.instructions else {}
    return Side(
        name=name,
        model=found.model,
        model_sha256=manifest.model_sha256,
        chip=artifact.chip,
        level=found.level,
        batch_per_cluster=found.batch_per_cluster,
        seconds_per_item=timed.seconds_per_item,
        estimated=timed.estimated,
        counts={**instructions, **timed.counts},
        causes=timed.causes,
        moved_bytes=found.moved_bytes if isinstance(found, Explanation) else {},
        peak_bytes=found.peak_bytes if isinstance(found, Explanation) else {},
        groups=timed.groups,
        order=timed.order,
        options={name: str(value) for name, value in options.model_dump(mode="json").items()},
        decisions=found.decisions,
    )


def _changes(before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[Change]:
    """A change per name, in the order of the first side; those of the second side alone come last."""
    return (Change(name, before.get(name), after.get(name)) for name in dict.fromkeys((*before, *after)))


def _by_size(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: -abs(change.more)))


def _texts(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    names = dict.fromkeys((*before, *after))
    pairs = ((name, before.get(name, ""), after.get(name, "")) for name in names)
    return tuple(pair for pair in pairs if pair[1] != pair[2])


def _parts(before: tuple[GroupTime, ...], after: tuple[GroupTime, ...]) -> Iterator[PartChange]:
    """The parts, in the order of the first side: groups that share a layer are in one part."""
    shares = {(number, share.name): share for number, side in enumerate((before, after)) for share in side}
    of_layer: dict[str, list[tuple[int, str]]] = {}
    for key, share in shares.items():
        for layer in share.layers:
            of_layer.setdefault(layer, []).append(key)
    seen: set[tuple[int, str]] = set()
    for first in shares:
        found, waiting = set[tuple[int, str]](), [first]
        while waiting:
            key = waiting.pop()
            if key not in seen:
                seen.add(key)
                found.add(key)
                waiting += [other for layer in shares[key].layers for other in of_layer[layer]]
        if found:
            sides = [tuple(share for key, share in shares.items() if key in found and key[0] == n) for n in (0, 1)]
            layers = dict.fromkeys(layer for share in (*sides[0], *sides[1]) for layer in share.layers)
            yield PartChange(tuple(layers), *sides)
