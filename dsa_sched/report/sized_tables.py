"""An artifact of several sizes for a reader: its programs, their times, their verification, a row for each size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from dsa_sched.analysis.language_model import tokens_of
from dsa_sched.artifact.format import Artifact
from dsa_sched.report.artifact_summary import summary_lines
from dsa_sched.report.json_form import json_text, logits_dict, report_dict, unequal_dict
from dsa_sched.report.listing import output_console, print_listing
from dsa_sched.report.tables import verdict_text
from dsa_sched.report.timed_run import cause_text, time_text
from dsa_sched.sizes.combinations import combination_name
from dsa_sched.sizes.sized_artifact import SizedArtifact
from dsa_sched.sizes.verify import BetweenResult, SizedReport
from dsa_sched.verification.tolerances import LogitsResult
from dsa_sched.verification.verdict import VerifyReport
from hw_models.errors import TargetError, size_text

TIMES_FORMAT, VERIFY_FORMAT = "dsa-sched-time-sizes/1", "dsa-sched-verify-sizes/1"
"""Names of the JSON formats."""


def sized_summary(made: SizedArtifact, folder: Path) -> Iterator[str]:
    """The lines of each program, the largest first, then the bytes that all share and that each has alone."""
    for entry, artifact in zip(made.manifest.sizes, made.artifacts, strict=True):
        yield from summary_lines(artifact, folder / entry.folder)
    shared = size_text(len(made.artifacts[0].weights))
    own = ", ".join(size_text(artifact.own_constant_bytes) for artifact in made.artifacts)
    yield f"weights: {shared} once for all {len(made.artifacts)} programs; constants that one has alone: {own}"


# Times


def print_sized_times(made: SizedArtifact, name: str, console: Console | None = None) -> None:
    """A row for each program, the largest first. Raises TargetError for programs that nothing has timed."""
    headings = ("sizes", "time", "cycles", "per second", "main memory read", "written", "floor", "binds")
    rows = [_times(combination_name(e.sizes), a) for e, a in zip(made.manifest.sizes, made.artifacts, strict=True)]
    console = console or output_console()
    chip = made.artifacts[0].chip
    console.print(f"{name} on {chip.name} at {chip.clock_hz / 1e6:,.0f} MHz", markup=False, highlight=False)
    print_listing(headings, rows, right=(1, 2, 3, 4, 5), console=console)


def _times(name: str, artifact: Artifact) -> tuple[str, ...]:
    figures = artifact.manifest.figures
    if figures is None:
        raise TargetError(name, needs="a program that the cycle model has timed", has="none", change="compile again")
    seconds, tokens = figures.cycles / artifact.chip.clock_hz, tokens_of(artifact.manifest)
    count, what = (tokens, "tokens") if tokens else (artifact.manifest.batch, "items")
    return (
        name,
        time_text(seconds),
        f"{figures.cycles:,.0f}",
        f"{count / seconds:,.1f} {what}",
        size_text(figures.main_read_bytes),
        size_text(figures.main_written_bytes),
        f"{figures.floor_cycles / figures.cycles:.1%} for {figures.floor}",
        f"{cause_text(figures.binds)} {figures.binds_share:.1%}" if figures.binds else "nothing",
    )


def sized_times_json(made: SizedArtifact) -> str:
    """The times as JSON text."""
    sizes = [
        {"sizes": dict(entry.sizes), **(artifact.manifest.figures.model_dump() if artifact.manifest.figures else {})}
        for entry, artifact in zip(made.manifest.sizes, made.artifacts, strict=True)
    ]
    clock_hz = made.artifacts[0].chip.clock_hz
    return json_text({"format": TIMES_FORMAT, "model": made.manifest.model, "clock_hz": clock_hz, "sizes": sizes})


# Verification


def print_sized_report(report: SizedReport, console: Console | None = None) -> None:
    """A row for each combination and each size in between, then what does not hold."""
    console = console or output_console()
    headings = ("sizes", "verdict", "layers", "worst error alone", "outputs: error of distance", "cycles", "")
    rows = [_verified(name, each) for name, each in report.combinations]
    print_listing(headings, (*rows, *map(_between, report.between)), right=(2, 3, 4, 5), console=console)
    for name, each in report.combinations:
        for label, said in (("warning", each.warnings), ("failed", each.failures), ("inconclusive", each.all_doubts)):
            for line in said:
                console.print(f"{name}: {label}: {line}", markup=False, highlight=False, soft_wrap=True)
    for between in report.between:
        for line in between.findings:
            console.print(f"{between.name}: {line}", markup=False, highlight=False, soft_wrap=True)
    console.print(verdict_text(report.verdict))


def _verified(name: str, report: VerifyReport) -> tuple[str, ...]:
    errors = [layer.isolated_error for layer in report.layers if layer.isolated_error is not None]
    cycles = report.programs[-1].cycles
    return (
        name,
        report.verdict,
        str(len(report.layers)),
        f"{max(errors):.2e}" if errors else "-",
        _share(report.logits),
        f"{cycles:,.0f}" if cycles is not None else "-",
        "",
    )


def _between(result: BetweenResult) -> tuple[str, ...]:
    return (result.name, result.verdict, "", "", _share(result.ends), "", result.line)


def _share(results: tuple[LogitsResult, ...]) -> str:
    return f"{max(result.share for result in results):.2e}" if results else "-"


def sized_report_json(report: SizedReport) -> str:
    """The report as JSON text."""
    return json_text(
        {
            "format": VERIFY_FORMAT,
            "verdict": report.verdict,
            "passed": report.passed,
            "combinations": [{"sizes": name, **report_dict(each)} for name, each in report.combinations],
            "between": [
                {
                    "sizes": each.name,
                    "verdict": each.verdict,
                    "line": each.line,
                    "padding_error": each.padding_error,
                    "padding_unequal": each.padding_unequal,
                    "ends": [logits_dict(end) for end in each.ends],
                    "unequal": [unequal_dict(*found) for found in each.unequal],
                    "problem": each.problem,
                }
                for each in report.between
            ],
        }
    )
