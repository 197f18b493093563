"""Contents of the memories in a timed run, as a table: how much at most, when, and what was worked on then."""

from __future__ import annotations

from collections.abc import Iterable

from dsa_sched.analysis.parts import OTHER, Parts
from dsa_sched.report.listing import print_listing
from hw_models.errors import size_text
from isched.timing.occupancy import Occupancy
from isched.timing.timeline import Timeline
from isched.timing.utilisation import dominant_parts

MOMENTS = 1000
"""Number of stretches of a run for which live bytes are compared."""


def print_memories(timeline: Timeline, occupancies: tuple[Occupancy, ...], parts: Parts) -> None:
    headings = ("memory", "holds", "live at most", "share", "at cycle", parts.by, "core", "least of any core")
    print_listing(headings, memory_rows(timeline, occupancies, parts), right=(1, 2, 3, 4, 7))


def memory_rows(timeline: Timeline, occupancies: tuple[Occupancy, ...], parts: Parts) -> list[tuple[str, ...]]:
    """A row a memory; of those that each core has, the core that needs most, and the peak of that which needs least."""
    working = dominant_parts(timeline, parts.of, MOMENTS, OTHER)
    whole = timeline.cycles - timeline.launch_cycles
    rows: list[tuple[str, ...]] = []
    for most, others in fullest(occupancies):
        stretch = min(MOMENTS - 1, int(most.peak_cycle / whole * MOMENTS)) if whole else 0
        core = (str(most.core), size_text(min(other.peak_bytes for other in others))) if most.core >= 0 else ("", "")
        rows.append(
            (
                most.memory,
                size_text(most.size_bytes),
                size_text(most.peak_bytes),
                f"{most.peak_bytes / most.size_bytes:.1%}",
                f"{most.peak_cycle:,.0f}",
                working[stretch],
                *core,
            )
        )
    return rows


def fullest(occupancies: Iterable[Occupancy]) -> list[tuple[Occupancy, list[Occupancy]]]:
    """For each memory, the fullest one of the cores (the first of equals) and all of them."""
    by_name: dict[str, list[Occupancy]] = {}
    for occupancy in occupancies:
        by_name.setdefault(occupancy.memory, []).append(occupancy)
    return [(max(cores, key=lambda one: one.peak_bytes), cores) for cores in by_name.values()]
