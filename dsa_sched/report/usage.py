"""Tables of engine usage, in shares: a row per part of the run or stretch of time, and one for the whole."""

from __future__ import annotations

from dsa_sched.analysis.parts import Parts
from dsa_sched.report.listing import print_listing
from isched.timing.timeline import OVERLAPS, Timeline
from isched.timing.utilisation import ENGINE_KINDS, Usage, usage_of_run, usage_over_time

WHOLE_RUN = "whole run"

Rows = list[tuple[str, ...]]


def print_parts(timeline: Timeline, parts: Parts) -> None:
    """Print usage by part, with its letter."""
    headings = (parts.by, "", "from cycle", "to", "cycles", *_HEADINGS)
    print_listing(headings, part_rows(timeline, parts), right=range(2, len(headings)))


def print_stretches(timeline: Timeline, stretches: int) -> None:
    """Print usage by equal stretches of time."""
    headings = ("from cycle", "to", *_HEADINGS)
    print_listing(headings, stretch_rows(timeline, stretches), right=range(len(headings)))


_HEADINGS = (*ENGINE_KINDS, "dma", "|", *(name for name, _ in OVERLAPS))


def part_rows(timeline: Timeline, parts: Parts) -> Rows:
    """Part, letter, first and last cycle of its work, cycles that belong to it (mean of the cores), shares of them in
    which each kind of engine works, and the percentages of the vendor's profiler."""
    whole = usage_of_run(timeline)
    return [
        (
            name,
            code,
            f"{usage.first_cycle:,.0f}",
            f"{usage.last_cycle:,.0f}",
            f"{usage.cycles / len(timeline.cores):,.0f}",
            *_shares(usage),
        )
        for name, code, usage in (
            *((usage.part, parts.letters[usage.part], usage) for usage in parts.usages),
            (WHOLE_RUN, "", whole),
        )
    ]


def stretch_rows(timeline: Timeline, stretches: int) -> Rows:
    """First and last cycle of each stretch, and the shares; the whole run in the last row."""
    usages = (*usage_over_time(timeline, stretches), usage_of_run(timeline))
    return [(f"{u.first_cycle:,.0f}", f"{u.last_cycle:,.0f}", *_shares(u)) for u in usages]


def _shares(usage: Usage) -> tuple[str, ...]:
    work = (f"{usage.utilisation(kind):.1%}" for kind in (*ENGINE_KINDS, "dma"))
    return (*work, "|", *(f"{usage.overlaps[name].share:.1%}" for name, _ in OVERLAPS))
