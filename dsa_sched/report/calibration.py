"""A fit of a chip's numbers as text and as JSON: what was measured, what is not known, what does not fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from dsa_sched.calibration.fit import ChipFit, FittedNumber, Residual
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.report.listing import output_console, print_listing

FORMAT = "dsa-sched-calibration-fit/1"

NUMBERS = ("number", "file", "measured", "error", "written", "")
"""Columns of the table of numbers: the last one says what became of it."""

FEW = 12
"""Number of residuals that are shown without `full`, the largest first."""


def print_fit(fit: ChipFit, full: bool = False, console: Console | None = None) -> None:
    """Print the numbers, what the measurements do not determine, documented numbers that changed, and residuals."""
    console = console or output_console()

    def say(*lines: str) -> None:
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)

    say(headline(fit), "")
    print_listing(NUMBERS, map(number_row, fit.numbers), (1, 2, 3, 4), console)
    for line in (*_unknown(fit), *_documented(fit)):
        say("", line)
    shown = sorted(fit.residuals, key=lambda each: -abs(each.error))
    shown = list(fit.residuals) if full else shown[:FEW]
    say("", "residuals" if full else f"the {len(shown)} largest residuals of {len(fit.residuals)}")
    columns = ("benchmark", "counter", "runs", "10 %", "median", "90 %", "before", "model", "by")
    print_listing(columns, map(_residual_row, shown), range(2, 9), console)


def headline(fit: ChipFit) -> str:
    """How many numbers were measured by how many counters, and how large the errors are."""
    measured = sum(number.measured is not None for number in fit.numbers)
    errors = sorted(abs(each.error) for each in fit.residuals)
    before = sorted(abs(each.error_before) for each in fit.residuals)
    half = len(errors) // 2
    return (
        f"{fit.chip.name}: {measured} of {len(fit.numbers)} numbers are determined by {len(errors)} counters of "
        f"{len({each.benchmark for each in fit.residuals})} benchmarks; half of the counters are within "
        f"{errors[half]:.1%} of the model (before: {before[half]:.1%}); repetitions scatter by {fit.scatter:.1%}"
    )


def note_of(number: FittedNumber) -> str:
    """What became of a number, in a few words."""
    if number.partners:
        return f"only together with {', '.join(number.partners)}: stays"
    if number.measured is None:
        return "not determined: stays"
    if not number.changed:
        return "agrees: stays"
    return "DOCUMENTED, but measured otherwise" if number.source.documented else "measured"


def number_row(number: FittedNumber) -> tuple[str, ...]:
    """The columns `NUMBERS` of a number."""
    measured = "" if number.measured is None else f"{number.measured:.6g}"
    error = f"{number.error:.2g}" if number.error else ""
    return number.path, f"{number.before:g}", measured, error, f"{number.value:g}", note_of(number)


def _unknown(fit: ChipFit) -> Iterator[str]:
    if fit.undetermined:
        yield f"The measurements do not determine: {', '.join(fit.undetermined)}."
    for number in fit.numbers:
        if number.partners:
            others = ", ".join(number.partners)
            yield f"They tell {number.path} only together with {others}; it stays {number.before:g}."
    yield (
        f"The largest singular value of the determined numbers' Jacobian, in columns of equal length, is "
        f"{fit.condition:.3g} times the smallest."
    )


def _documented(fit: ChipFit) -> Iterator[str]:
    for number in fit.numbers:
        if number.changed and number.source.documented:
            yield (
                f"warning: {number.path} is documented as {number.before:g} ({number.source.comment}); "
                f"the measurements say {number.measured:.6g} +- {number.error:.2g}, and so does the new file"
            )


def _residual_row(each: Residual) -> tuple[str, ...]:
    cycles = (f"{value:,.0f}" for value in (each.low, each.median, each.high, each.before, each.fitted))
    return each.benchmark, each.counter, str(each.repetitions), *cycles, f"{each.error:+.1%}"


def fit_json(fit: ChipFit) -> str:
    """The fit as JSON; its keys are in docs/reference/json.md."""
    whole = {
        "format": FORMAT,
        "chip": fit.chip.name,
        "scatter": fit.scatter,
        "condition": fit.condition,
        "undetermined": fit.undetermined,
        "numbers": [asdict(number) | {"note": note_of(number)} for number in fit.numbers],
        "residuals": [asdict(each) | {"error": each.error} for each in fit.residuals],
    }
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def write_fit(fit: ChipFit, path: Path) -> None:
    """Write the JSON form. Raises UserError."""
    write_whole(path, lambda stream: stream.write(fit_json(fit).encode()))
