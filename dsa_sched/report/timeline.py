"""A timeline as JSON: usage by part and over time, and the contents of the memories.

The keys are documented in docs/reference/json.md.
"""

from __future__ import annotations

import json
from pathlib import Path

from dsa_sched.analysis.artifact_timing import RunTime
from dsa_sched.analysis.parts import Parts
from dsa_sched.io.atomic_write import write_whole
from isched.timing.occupancy import Occupancy
from isched.timing.timeline import Timeline
from isched.timing.utilisation import Usage, usage_of_run, usage_over_time

FORMAT = "dsa-sched-timeline/1"

Shown = tuple[tuple[Parts, ...], tuple[Occupancy, ...]]
"""The parts and occupancies that are shown of one program."""


def timeline_json(run: RunTime, shown: tuple[Shown, ...], stretches: int) -> str:
    """The run as JSON text; `shown` has an entry for each of its programs."""
    whole = {
        "format": FORMAT,
        "name": run.name,
        "chip": run.chip,
        "clock_hz": run.clock_hz,
        "programs": [
            {
                "elf": program.elf,
                "cluster": program.cluster,
                "cores": len(program.timeline.cores),
                "cycles": program.timeline.cycles,
                "launch_cycles": program.timeline.launch_cycles,
                "whole": _usage(usage_of_run(program.timeline)),
                "parts": {part.by: [{"part": u.part, **_usage(u)} for u in part.usages] for part in parts},
                "stretches": [_usage(usage) for usage in usage_over_time(program.timeline, stretches)],
                "memories": [_occupancy(one, program.timeline, stretches) for one in occupancies],
            }
            for program, (parts, occupancies) in zip(run.programs, shown, strict=True)
        ],
    }
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "first_cycle": usage.first_cycle,
        "last_cycle": usage.last_cycle,
        "core_cycles": usage.cycles,
        "active_core_cycles": usage.active_cycles,
        "busy_core_cycles": dict(usage.busy_cycles),
        "utilisation": {kind: usage.utilisation(kind) for kind in usage.busy_cycles},
        "overlaps": {name: {"cycles": both.cycles, "share": both.share} for name, both in usage.overlaps.items()},
    }


def _occupancy(occupancy: Occupancy, timeline: Timeline, stretches: int) -> dict[str, object]:
    least, most = occupancy.least_and_most(timeline.cycles - timeline.launch_cycles, stretches)
    return {
        "memory": occupancy.memory,
        "core": occupancy.core if occupancy.core >= 0 else None,
        "size_bytes": occupancy.size_bytes,
        "peak_bytes": occupancy.peak_bytes,
        "peak_cycle": occupancy.peak_cycle,
        "least_bytes": least.tolist(),
        "most_bytes": most.tolist(),
    }


def write_timeline(run: RunTime, shown: tuple[Shown, ...], stretches: int, path: Path) -> None:
    """Write the JSON form, whole or not at all. Raises UserError."""
    text = timeline_json(run, shown, stretches).encode()
    write_whole(path, lambda stream: stream.write(text))
