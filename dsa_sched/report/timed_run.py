"""A timed run for a reader and as JSON: time, work and waiting of each engine, what worked at the same time.

The keys of the JSON form are documented in docs/reference/json.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from dsa_sched.io.atomic_write import write_whole
from dsa_sched.report.listing import output_console, print_listing
from hw_models.errors import size_text

if TYPE_CHECKING:
    from dsa_sched.analysis.language_model import LanguageFigures
    from dsa_sched.analysis.run_times import ProgramTimes, RunTimes
    from dsa_sched.calibration.layers import LayerComparison, LayerCycles
    from isched.bounds.lower_bounds import Bounds
    from isched.timing.waiting_by_part import PartWaiting

FORMAT = "dsa-sched-time/1"

STALLS = {
    "barrier": "other cores at a barrier",
    "conflict": "an access in flight to the same bytes",
    "drain": "the core's own engines before a barrier",
    "queue": "a place in an engine's queue",
    "transfer": "the end of a DMA transfer",
}
"""Reason of a stall -> what the scalar core waits for."""

CAUSES = {"asking": "polling"}
"""Causes whose names for a reader differ from those of the JSON form."""


SHORT_STALLS = {"barrier": "other cores", "conflict": "bytes in use", "drain": "own engines", "queue": "full queue",
                "transfer": "DMA"}  # fmt: skip
"""Short names of the reasons in `STALLS`, for rows that have several."""


def cause_text(cause: str) -> str:
    """Name of a cause on the critical path, for a reader."""
    return CAUSES.get(cause, cause)


def print_times(run: RunTimes, bounds: Sequence[Bounds] = (), console: Console | None = None) -> None:
    """Print the whole run, then each program; with the bounds of each program where they are given."""
    console = console or output_console()

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    launch = run.programs[0].launch_cycles
    passes = max(program.passes for program in run.programs)
    if passes > 1:
        launched = f"{launch:,.0f} for the launch of each of {passes} passes"
    else:
        launched = f"{launch:,.0f} for the launch"
    say(f"{run.name} on {run.chip}" + (f", batch {run.batch}" if run.batch else ""))
    say(f"{time_text(run.seconds)}: {run.cycles:,.0f} cycles at {run.clock_hz / 1e6:,.0f} MHz, {launched}")
    if run.items_per_second is not None:
        say(f"{run.items_per_second:,.1f} items/s")
    if run.language is not None:
        for line in language_lines(run, run.language):
            say(line)
    for warning in run.warnings:
        say(f"warning: {warning}")
    for program, bound in zip_longest(run.programs, bounds):
        say("")
        where = f"{program.elf}: " if len(run.programs) > 1 else ""
        say(
            f"{where}cluster {program.cluster}, {program.cores} cores, {program.instructions:,} instructions, "
            f"{program.cycles:,.0f} cycles"
        )
        print_listing(
            ("engine", "cycles at work", "utilisation", "moved"), _engines(program), right=(1, 2, 3), console=console
        )
        stalls = program.stall_cycles.items()
        print_listing(
            ("scalar cores waited for", "cycles", "share"),
            [(STALLS.get(why, why), f"{n:,.0f}", f"{n / _core_cycles(program):.1%}") for why, n in stalls],
            right=(1, 2),
            console=console,
        )
        if lines := sum(program.fetched_lines):
            took = sum(program.fetch_cycles)
            say(
                f"code: {lines:,} lines were not in the instruction caches; fetching them took {took:,.0f} cycles, "
                f"{took / _core_cycles(program):.1%} of the scalar cores' time"
            )
        both = ", ".join(f"{name} {overlap.share:.1%}" for name, overlap in program.overlaps.items())
        say(f"at work together, of the time that any engine of a core works: {both}")
        whole = max(1.0, program.cycles - program.launch_cycles)
        chain = ", ".join(
            f"{cause_text(cause)} {cycles / whole:.1%}" for cause, cycles in program.critical_cycles.items()
        )
        say(f"the critical path from the launch to the end: {chain or 'nothing'}")
        headings = (run.by, "cycles on it", "share", "binds", "then", "cores wait for (of all their time)")
        print_listing(headings, [_part(part, program) for part in program.parts], (1, 2), console)
        if bound is not None:
            print_listing(
                ("no order takes less than", "cycles", "this run takes more"),
                _bounds(program.cycles, bound),
                (1, 2),
                console,
            )


def language_lines(run: RunTimes, figures: LanguageFigures) -> tuple[str, ...]:
    """Tokens per second or the time to the first token, and bytes of the main memory by what they are for."""
    rate = f"{run.tokens_per_second or 0:,.1f} tokens/s"
    if figures.rows > 1:
        rate = f"the first token comes after {time_text(run.seconds)}: {figures.rows} per item are read, {rate}"
    moved = ", ".join(f"{what} {size_text(count)}" for what, count in figures.main_bytes.items())
    return rate, f"main memory: {moved}"


def _engines(program: ProgramTimes) -> list[tuple[str, ...]]:
    scalar = sum(program.scalar_cycles)
    rows: list[tuple[str, ...]] = [("scalar", f"{scalar:,.0f}", f"{scalar / _core_cycles(program):.1%}", "")]
    for engine in program.engines:
        moved = size_text(engine.moved_bytes) if engine.moved_bytes else ""
        rows.append((engine.name, f"{engine.busy_cycles:,.0f}", f"{engine.utilisation:.1%}", moved))
    return rows


def _part(part: PartWaiting, program: ProgramTimes) -> tuple[str, ...]:
    """Work of the critical path in a part, as shares of the part's cycles on it."""
    whole = max(1.0, program.cycles - program.launch_cycles)
    named = {cause_text(cause): cycles for cause, cycles in part.critical_cycles.items()}
    first, _, then = _shares(named, part.cycles).partition(", ")
    stalls = {SHORT_STALLS.get(why, why): cycles for why, cycles in part.stall_cycles.items()}
    return (
        part.part,
        f"{part.cycles:,.0f}",
        f"{part.cycles / whole:.1%}",
        first,
        then,
        _shares(stalls, _core_cycles(program)),
    )


def _shares(cycles: Mapping[str, float], whole: float) -> str:
    """Text such as `dma 61.0%, matrix 20.3%`; shares that would be 0.0% are left out."""
    shares = {name: f"{spent / whole:.1%}" for name, spent in cycles.items() if whole}
    return ", ".join(f"{name} {share}" for name, share in shares.items() if share != "0.0%")


def _bounds(cycles: float, bounds: Bounds) -> list[tuple[str, ...]]:
    rows = (
        (f"the busiest engine ({bounds.engine or 'none'})", bounds.engine_cycles),
        (f"the busiest way ({bounds.way or 'none'})", bounds.bandwidth_cycles),
        ("the longest chain of instructions that need each other", bounds.path_cycles),
        ("all of these, phase by phase", bounds.cycles),
    )
    return [(what, f"{least:,.0f}", f"{cycles / least - 1:.1%}" if least else "") for what, least in rows]


def _core_cycles(program: ProgramTimes) -> float:
    """Cycles after the launch, of all cores together."""
    return max(1.0, (program.cycles - program.launch_cycles) * program.cores)


def time_text(seconds: float) -> str:
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:,.3f} {name}"
    return f"{seconds * 1e6:,.3f} us"


def print_comparison(found: LayerComparison, console: Console | None = None) -> None:
    """Print measured layers beside the cycle model, and all of them together."""
    console = console or output_console()
    console.print()
    together = found.together
    rows = [*found.layers, *((together,) if together is not None else ())]
    headings = ("measured", "runs", "10 %", "median", "90 %", "model", "model is")
    print_listing(headings, map(_measured, rows), range(1, 7), console)
    if found.unmeasured:
        console.print(f"{found.unmeasured} more were not measured", highlight=False)


def _measured(each: LayerCycles) -> tuple[str, ...]:
    cycles = (f"{value:,.0f}" for value in (each.low, each.median, each.high, each.model))
    return each.layer, str(each.repetitions), *cycles, f"{each.error:+.1%}"


def times_json(run: RunTimes, bounds: Sequence[Bounds] = (), compared: LayerComparison | None = None) -> str:
    """The run as JSON text, with the bounds of each program and measured layers where they are given."""
    whole = {
        "format": FORMAT,
        "name": run.name,
        "chip": run.chip,
        "clock_hz": run.clock_hz,
        "batch": run.batch,
        "cycles": run.cycles,
        "seconds": run.seconds,
        "items_per_second": run.items_per_second,
        "warnings": list(run.warnings),
        "programs": [_program(program, run.by, bound) for program, bound in zip_longest(run.programs, bounds)],
    }
    if run.language is not None:
        whole["language"] = asdict(run.language) | {"tokens_per_second": run.tokens_per_second}
    if compared is not None:
        whole["against"] = [asdict(each) | {"error": each.error} for each in compared.layers]
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def _program(program: ProgramTimes, by: str, bounds: Bounds | None) -> dict[str, object]:
    return {
        "elf": program.elf,
        "cluster": program.cluster,
        "cores": program.cores,
        "instructions": program.instructions,
        "passes": program.passes,
        "cycles": program.cycles,
        "launch_cycles": program.launch_cycles,
        "engines": [asdict(engine) for engine in program.engines],
        "scalar_cycles": list(program.scalar_cycles),
        "fetched_lines": list(program.fetched_lines),
        "fetch_cycles": list(program.fetch_cycles),
        "core_end_cycles": list(program.core_end_cycles),
        "stall_cycles": program.stall_cycles,
        "critical_cycles": program.critical_cycles,
        "overlaps": {name: asdict(overlap) for name, overlap in program.overlaps.items()},
        "bounds": asdict(bounds) if bounds is not None else None,
        "by": by,
        "parts": [asdict(part) for part in program.parts],
    }


def write_times(
    run: RunTimes, path: Path, bounds: Sequence[Bounds] = (), compared: LayerComparison | None = None
) -> None:
    """Write the JSON form, whole or not at all. Raises UserError."""
    text = times_json(run, bounds, compared).encode()
    write_whole(path, lambda stream: stream.write(text))
