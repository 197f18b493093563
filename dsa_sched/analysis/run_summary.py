"""The times of a plan or a run, in the same words for both kinds of explanation.

Explanation | KernelExplanation, chip --run_summary--> RunSummary
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dsa_sched.analysis.explanation_data import Explanation
from dsa_sched.analysis.kernel_explanation import KernelExplanation
from hw_models.chip import Chip
from partitioner.ir.steps import RunStep

LAUNCH = "launch"
"""Cause of the time before the first instruction."""


@dataclass(frozen=True, slots=True)
class GroupTime:
    """One group of a plan in one pass: its layers, its seconds, by cause where these are known, what binds it, the
    number of its instances, and where its outputs lie or which kernel makes them."""

    name: str
    layers: tuple[str, ...]
    seconds: float
    causes: Mapping[str, float]
    bound_by: str
    instances: int
    place: str


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What both kinds of explanation say of times. `seconds_per_item` are those of the whole run; they are `estimated`
    where no machine code was timed. `causes` are the seconds of one pass by what binds; `counts` are those of one pass,
    too."""

    seconds_per_item: float
    estimated: bool
    counts: Mapping[str, int]
    causes: Mapping[str, float]
    groups: tuple[GroupTime, ...]
    order: tuple[str, ...]


def run_summary(found: Explanation | KernelExplanation, chip: Chip) -> RunSummary:
    """The times of an explanation, of whatever kind."""
    return _of_tiles(found, chip) if isinstance(found, Explanation) else _of_kernels(found)


def _of_tiles(found: Explanation, chip: Chip) -> RunSummary:
    run, clock = found.measured, chip.clock_hz

    def share(name: str) -> tuple[float, Mapping[str, float], str]:
        if run is not None:
            part = run.group(name)
            return part.cycles / clock, {c: n / clock for c, n in part.causes.items()}, part.bound_by
        binding = next(group for group in found.groups if group.name == name).binding
        return binding.cycles / clock, {binding.name: binding.cycles / clock}, binding.name

    groups = tuple(
        GroupTime(group.name, group.layers, *share(group.name), group.instances, ", ".join(group.scopes))
        for group in found.groups
    )
    counts = {"groups": len(found.groups), "instances": found.instances}
    order = tuple(f"{step.group} {step.instance}" for step in found.order if isinstance(step, RunStep))
    if run is None:
        seconds = found.serial_cycles / clock / max(1, found.batch_per_cluster)
        return RunSummary(seconds, True, counts, _sums(share.causes for share in groups), groups, order)
    causes = {LAUNCH: run.launch_cycles / clock} | {name: cycles / clock for name, cycles in run.causes.items()}
    seconds = 1 / run.items_per_second if run.items_per_second else run.seconds
    return RunSummary(seconds, False, counts, causes, groups, order)


def _of_kernels(found: KernelExplanation) -> RunSummary:
    groups = tuple(
        GroupTime(
            group.name, group.layers, group.seconds, {group.bound_by: group.seconds}, group.bound_by, 1, group.kernel
        )
        for group in found.groups
    )
    counts = {"kernels": len(found.groups), "launches": found.launches}
    seconds = found.seconds / max(1, found.batch_per_cluster)
    order = tuple(group.name for group in found.groups)
    return RunSummary(seconds, True, counts, _sums(share.causes for share in groups), groups, order)


def _sums(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for causes in each:
        for name, seconds in causes.items():
            total[name] = total.get(name, 0.0) + seconds
    return total
