"""The difference of two artifacts for a reader, and as JSON: a sentence, then figures, what binds, parts, decisions.

Times are in cycles where both chips have the same clock and their machine code was timed, else in microseconds. The
keys of the JSON form are documented in docs/reference/json.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from math import isfinite
from pathlib import Path

from rich.console import Console

from dsa_sched.analysis.difference import Change, Difference, PartChange, Side
from dsa_sched.analysis.run_summary import GroupTime
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.report.decisions import decision_lines
from dsa_sched.report.listing import Listing, output_console, print_listing
from dsa_sched.report.timed_run import cause_text, time_text
from hw_models.errors import size_text

FORMAT = "dsa-sched-diff/1"

DECISIONS = ("decisions only before", "decisions only after")

FEW = 12
"""Number of parts and of fields of chips that are shown without `full`."""


def print_difference(found: Difference, full: bool = False, console: Console | None = None) -> None:
    """Print the difference; with `full`, all parts and all decisions."""
    console = console or output_console()
    _say(console, [headline(found), *compared_lines(found)])
    for listing in listings(found, full):
        if listing.rows:
            _say(console, ["", listing.title] if listing.title else [""])
            print_listing(listing.headings, listing.rows, listing.right, console)
        _say(console, listing.notes)
    for title, decisions in zip(DECISIONS, found.decisions if full else found.decided_differently, strict=True):
        if decisions:
            _say(console, ["", title, *decision_lines(decisions, full)])
    if not full:
        _say(console, [f"{line} (--full shows them)" for line in alike_lines(found)])


def alike_lines(found: Difference) -> list[str]:
    """How many decisions are the same but for the numbers of their reasons."""
    count = len(found.decisions[1]) - len(found.decided_differently[1])
    one = count == 1
    text = f"{count} {'decision has' if one else 'decisions have'} the same {'reason' if one else 'reasons'}"
    return [f"{text} with other numbers"] if count else []


def listings(found: Difference, full: bool = False) -> Iterator[Listing]:
    """The tables of a difference: figures, what binds, parts of the network."""
    yield Listing("", ("", "before", "after", "change"), tuple(_figures(found)), (1, 2, 3))
    if found.causes:
        rows = tuple(_cause_row(found, change) for change in found.causes if change.before or change.after)
        title = f"what binds in one pass, {_unit(found)}"
        yield Listing(title, ("binds", "before", "after", "change"), rows, (1, 2, 3))
    yield _parts(found, full)


def headline(found: Difference) -> str:
    """Faster or slower, by how much, and why, in about ten words."""
    estimated = " (estimates)" if found.before.estimated or found.after.estimated else ""
    if found.equally_fast:
        return f"equally fast: {time_text(found.after.seconds_per_item)} per item{estimated}"
    if found.times > 1:
        said = f"slower: {found.times - 1:.1%} more time per item{estimated}"
    else:
        said = f"faster: {1 - found.times:.1%} less time per item{estimated}"
    if found.reason is None:
        return said
    cause, part = found.reason
    much = f"{cause_text(cause.name)} {_time(found, abs(cause.more))} {'more' if cause.more > 0 else 'less'}"
    return f"{said}; {much}" + (f", most in {layers_text(part)}" if part is not None else "")


def compared_lines(found: Difference) -> Iterator[str]:
    """What is compared, and what was asked for differently."""
    before, after = found.before, found.after
    yield f"before: {_title(before)}"
    yield f"after:  {_title(after)}"
    if not found.same_model:
        yield "the models are not the same file"
    for name, one, other in found.options:
        yield f"option {name}: {one} -> {other}"
    if before.chip.isa != after.chip.isa:
        yield f"chips of different kinds: {before.chip.isa} -> {after.chip.isa}"
        return
    fields = found.chip
    for path, one, other in fields[:FEW]:
        yield f"chip {path}: {one or 'none'} -> {other or 'none'}"
    if len(fields) > FEW:
        yield f"chip: {len(fields) - FEW} more fields differ"


def _title(side: Side) -> str:
    return f"{side.name}: {side.model} on {side.chip.name}, {side.level}, batch {side.batch_per_cluster} per cluster"


def _figures(found: Difference) -> Iterator[tuple[str, ...]]:
    before, after = found.before, found.after
    times = (before.seconds_per_item, after.seconds_per_item)
    yield "time per item", *map(time_text, times), f"{found.times - 1:+.1%}"
    yield "items/s", *(f"{1 / each:,.1f}" if each else "-" for each in times), ""
    for change in found.counts:
        yield _row(change.name, change, lambda number: f"{number:,.0f}")
    for change in found.moved_bytes:
        yield _row(change.name, change, lambda number: size_text(int(number)))
    for change in found.peak_bytes:
        yield _row(f"values in {change.name} at most", change, lambda number: size_text(int(number)))
    yield "order of instances", "", "", "same" if found.same_order else "differs"


def _row(name: str, change: Change, text: Callable[[float], str]) -> tuple[str, ...]:
    shown = ("-" if value is None else text(value) for value in (change.before, change.after))
    return name, *shown, f"{change.more / change.before:+.1%}" if change.before else ("" if not change.more else "new")


def _cause_row(found: Difference, change: Change) -> tuple[str, ...]:
    numbers = (_number(found, value or 0.0) for value in (change.before, change.after))
    return cause_text(change.name), *numbers, _signed(found, change.more)


def _parts(found: Difference, full: bool) -> Listing:
    differing = [
        part for part in found.parts if not part.same_plan or _signed(found, part.more)[1:] not in ("0", "0.0")
    ]
    shown = differing if full else differing[:FEW]
    equal, more = len(found.parts) - len(differing), len(differing) - len(shown)
    notes = ((f"and {more} more (--full shows all)",) if more else ()) + (
        (f"{equal} parts are planned alike and take equally long",) if equal else ()
    )
    return Listing(
        f"parts of the network in one pass, {_unit(found)}, the largest change first" if shown else "",
        ("layers", "before", "after", "change", "plan before", "plan after", "bound by"),
        tuple(_part_row(found, part) for part in shown),
        (1, 2, 3),
        notes,
        tuple(part.layers[0] for part in shown),
    )


def _part_row(found: Difference, part: PartChange) -> tuple[str, ...]:
    bound = tuple(dict.fromkeys(_bound(side) for side in (part.before, part.after)))
    times = (_number(found, seconds) for seconds in part.seconds)
    made = _made(part.before), _made(part.after)
    return layers_text(part), *times, _signed(found, part.more), *made, " -> ".join(bound)


def _made(shares: tuple[GroupTime, ...]) -> str:
    """How a side makes a part: `2 groups, 8 instances in L1, DDR`."""
    if not shares:
        return "-"
    instances, places = sum(share.instances for share in shares), dict.fromkeys(share.place for share in shares)
    groups = f"{len(shares)} groups" if len(shares) > 1 else "1 group"
    cut = f", {instances} instances" if instances > len(shares) else ""
    return f"{groups}{cut}: {', '.join(places)}"


def _bound(shares: tuple[GroupTime, ...]) -> str:
    """What the longest of the groups is bound by."""
    longest = max(shares, key=lambda share: share.seconds, default=None)
    return cause_text(longest.bound_by) or "-" if longest is not None else "-"


def layers_text(part: PartChange) -> str:
    """The layers of a part: its only one, or the first and the last with their number."""
    first, last = part.layers[0], part.layers[-1]
    return first if len(part.layers) == 1 else f"{first}..{last} ({len(part.layers)})"


def _in_cycles(found: Difference) -> bool:
    clocks = found.before.chip.clock_hz, found.after.chip.clock_hz
    return clocks[0] == clocks[1] and not (found.before.estimated or found.after.estimated)


def time_change(found: Difference, seconds: float) -> tuple[float, str]:
    """A time in the unit of the difference, and that unit."""
    return seconds * (found.before.chip.clock_hz if _in_cycles(found) else 1e6), _unit(found)


def _unit(found: Difference) -> str:
    return "cycles" if _in_cycles(found) else "us"


def _number(found: Difference, seconds: float) -> str:
    return f"{seconds * found.before.chip.clock_hz:,.0f}" if _in_cycles(found) else f"{seconds * 1e6:,.1f}"


def _signed(found: Difference, seconds: float) -> str:
    return f"{seconds * found.before.chip.clock_hz:+,.0f}" if _in_cycles(found) else f"{seconds * 1e6:+,.1f}"


def _time(found: Difference, seconds: float) -> str:
    return f"{_number(found, seconds)} {_unit(found)}"


def _say(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def difference_json(found: Difference) -> str:
    """The difference as JSON text."""
    whole = {
        "format": FORMAT,
        "headline": headline(found),
        "times": found.times if isfinite(found.times) else "inf",
        "equally_fast": found.equally_fast,
        "before": _side(found.before),
        "after": _side(found.after),
        "same_model": found.same_model,
        "same_order": found.same_order,
        "options": [list(each) for each in found.options],
        "chip": [list(each) for each in found.chip],
        **{
            name: [asdict(change) | {"more": change.more} for change in getattr(found, name)]
            for name in ("counts", "causes", "moved_bytes", "peak_bytes")
        },
        "parts": [asdict(part) | {"seconds": part.seconds, "same_plan": part.same_plan} for part in found.parts],
        "decisions": [[asdict(each) for each in side] for side in found.decisions],
    }
    return json.dumps(whole, indent=1) + "\n"


def _side(side: Side) -> dict[str, object]:
    fields = ("name", "model", "model_sha256", "level", "batch_per_cluster", "seconds_per_item", "estimated")
    return {name: getattr(side, name) for name in fields} | {"chip": side.chip.name}


def write_difference(found: Difference, path: Path) -> None:
    """Write the JSON form, whole or not at all. Raises UserError."""
    text = difference_json(found).encode()
    write_whole(path, lambda stream: stream.write(text))
