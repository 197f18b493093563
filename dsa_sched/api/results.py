"""Results of the public functions: attributes, `to_dict` with the keys of the command line's JSON, and text.

ExplanationReport, TimingReport, FitReport, TimelineReport, DifferenceReport, VerificationReport, SweepReport,
SuiteReport, PlacementReport, QuantizeResult: str() is what the command prints
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import ModelProto
    from rich.console import Console

    from dsa_sched.analysis.artifact_timing import RunTime
    from dsa_sched.analysis.difference import Difference
    from dsa_sched.analysis.explanation_data import Explanation
    from dsa_sched.analysis.group_detail import GroupDetail
    from dsa_sched.analysis.kernel_explanation import KernelExplanation
    from dsa_sched.analysis.run_times import RunTimes
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.calibration.fit import ChipFit
    from dsa_sched.calibration.layers import LayerComparison
    from dsa_sched.placing.place import PlacementResult
    from dsa_sched.quantisation.quantise import QuantizedNetwork
    from dsa_sched.quantisation.search import FloatSearch
    from dsa_sched.sizes.verify import SizedReport
    from dsa_sched.suites.suite import Judgement
    from dsa_sched.sweeping.table import SweepTable
    from dsa_sched.verification.verdict import VerifyReport
    from hw_models.chip import Chip
    from isched.bounds.lower_bounds import Bounds
    from partitioner.ir.decisions import Decision


def _printed(write: Callable[[Console], None]) -> str:
    from dsa_sched.report.listing import plain_console

    stream = io.StringIO()
    write(plain_console(stream))
    return stream.getvalue()


@dataclass(frozen=True)
class ExplanationReport:
    """What a plan does and why; see `dsa-sched explain`. `shown` has all that is told of the whole plan as data, and
    `detail` what is told of one group."""

    shown: Explanation | KernelExplanation
    chip: Chip
    detail: GroupDetail | None = None

    @property
    def cycles(self) -> float | None:
        """Cycles of one pass by the cycle model, launch included; None for estimates and for kernels of GPUs."""
        measured = getattr(self.shown, "measured", None)  # kernels that are whole groups have no such times
        return measured.cycles if measured is not None else None

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups, in the order in which they first run."""
        return tuple(group.name for group in self.shown.groups)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return self.shown.decisions

    def to_dict(self) -> dict[str, Any]:
        """The keys of `explain --json`."""
        from dsa_sched.analysis.explanation_data import Explanation
        from dsa_sched.report.explain import explanation_json
        from dsa_sched.report.kernel_explain import kernels_json

        if isinstance(self.shown, Explanation):
            return _parsed(explanation_json(self.shown, self.chip, self.detail))
        return _parsed(kernels_json(self.shown))

    def __str__(self) -> str:
        from dsa_sched.analysis.explanation_data import Explanation
        from dsa_sched.report.explain import print_detail, print_explanation
        from dsa_sched.report.kernel_explain import print_kernels

        shown, detail = self.shown, self.detail
        if not isinstance(shown, Explanation):
            return _printed(lambda console: print_kernels(shown, console=console))
        if detail is not None:
            return _printed(lambda console: print_detail(shown, detail, console))
        return _printed(lambda console: print_explanation(shown, self.chip, console))

    def __repr__(self) -> str:
        shown = self.shown
        return f"<Explanation of {shown.model} on {shown.chip}, level {shown.level}, {len(shown.groups)} groups>"


@dataclass(frozen=True)
class TimedArtifact:
    """An artifact that is timed when its run is asked for: with its code in the caches if it is `warm`, with the bounds
    of its programs if there are to be any."""

    artifact: Artifact
    warm: bool = False
    has_bounds: bool = False

    @cached_property
    def run(self) -> RunTime:
        from dsa_sched.analysis.artifact_timing import time_whole, with_bounds

        run = time_whole(self.artifact, self.artifact.manifest.model, self.warm)
        return with_bounds(run, self.artifact.chip) if self.has_bounds else run

    @property
    def bounds(self) -> tuple[Bounds, ...]:
        """The bounds of each program, none where they are not to be found."""
        return tuple(each.bounds for each in self.run.programs if each.bounds is not None) if self.has_bounds else ()


@dataclass(frozen=True)
class TimingReport:
    """A run by the cycle model; see `dsa-sched time`. `times` has all that is told of it as data, and `run` the run
    with every instruction."""

    times: RunTimes
    timed: TimedArtifact

    @property
    def run(self) -> RunTime:
        return self.timed.run

    @property
    def cycles(self) -> float:
        """Cycles until the last cluster is done with all its passes, launches included."""
        return self.times.cycles

    @property
    def seconds(self) -> float:
        return self.times.seconds

    @property
    def items_per_second(self) -> float | None:
        return self.times.items_per_second

    @property
    def critical_cycles(self) -> Mapping[str, float]:
        """Cycles of the critical path of one pass of the first program after its launch, by cause."""
        return self.times.programs[0].critical_cycles

    def against(self, counters: str | Path) -> LayerComparison:
        """Measured cycles of the layers, from a file as `time --against` reads it, beside those of the model. Raises
        CountersError."""
        from dsa_sched.calibration.layers import compared

        return compared(self.times, Path(counters))

    def to_dict(self) -> dict[str, Any]:
        """The keys of `time --json`."""
        from dsa_sched.report.timed_run import times_json

        return _parsed(times_json(self.times, self.timed.bounds))

    def __str__(self) -> str:
        from dsa_sched.report.timed_run import print_times

        return _printed(lambda console: print_times(self.times, self.timed.bounds, console))

    def __repr__(self) -> str:
        return f"<Timing of {self.times.name} on {self.times.chip}: {self.cycles:,.0f} cycles>"


@dataclass(frozen=True)
class FitReport:
    """A chip's numbers fitted to measured cycles; see `dsa-sched calibrate fit`. `fit` has all that is told of it as
    data, and `text` is the chip file with the fitted numbers."""

    fit: ChipFit
    text: str

    @property
    def chip(self) -> Chip:
        """The chip with the fitted numbers."""
        from hw_models.loading import parse_chip

        return parse_chip(self.text, "fitted chip file")

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Paths of the numbers that the measurements do not determine."""
        return self.fit.undetermined

    def to_dict(self) -> dict[str, Any]:
        """The keys of `calibrate fit --json`."""
        from dsa_sched.report.calibration import fit_json

        return _parsed(fit_json(self.fit))

    def __str__(self) -> str:
        from dsa_sched.report.calibration import print_fit

        return _printed(lambda console: print_fit(self.fit, console=console))


@dataclass(frozen=True)
class TimelineReport:
    """What every engine does when, and what the memories hold; see `dsa-sched timeline`."""

    run: RunTime

    @property
    def cycles(self) -> float:
        return self.run.cycles

    def to_dict(self, stretches: int = 200) -> dict[str, Any]:
        """The keys of `timeline --json`."""
        from dsa_sched.report.timeline import timeline_json

        parts, held = self._shown()
        return _parsed(timeline_json(self.run, tuple(zip(parts, held, strict=True)), stretches))

    def save_trace(self, path: str | Path) -> int:
        """Write trace events for ui.perfetto.dev or chrome://tracing; the number of events. Raises UserError."""
        from dsa_sched.report.trace_events import write_trace

        parts, held = self._shown()
        return write_trace(self.run, Path(path), tuple(shown[0] for shown in parts), held)

    def _shown(self) -> Any:
        from dsa_sched.analysis.artifact_timing import for_each_timeline
        from dsa_sched.analysis.parts import parts_of, usual_parts
        from isched.timing.occupancy import occupancies

        assert self.run.artifact is not None  # `timeline` times nothing else
        chip = self.run.artifact.chip
        kind = usual_parts(self.run)
        parts = for_each_timeline(self.run.programs, lambda each: (parts_of(self.run, each.timeline, kind),))
        held = for_each_timeline(self.run.programs, lambda each: occupancies(each.timeline, each.streams, chip))
        return parts, held

    def __str__(self) -> str:
        from dsa_sched.report.gantt import gantt_lines

        parts, _ = self._shown()
        charts = (gantt_lines(p.timeline, 80, False, one[0]) for p, one in zip(self.run.programs, parts, strict=True))
        return "\n\n".join("\n".join(lines) for lines in charts) + "\n"

    def __repr__(self) -> str:
        return f"<Timeline of {self.run.name} on {self.run.chip}: {self.cycles:,.0f} cycles>"


@dataclass(frozen=True)
class DifferenceReport:
    """Two artifacts next to each other; see `dsa-sched diff`. `found` has all of it as data."""

    found: Difference

    @property
    def times(self) -> float:
        """Time of an item after, over that before."""
        return self.found.times

    @property
    def headline(self) -> str:
        """Faster or slower, by how much, and why, in one line."""
        from dsa_sched.report.difference import headline

        return headline(self.found)

    def to_dict(self) -> dict[str, Any]:
        """The keys of `diff --json`."""
        from dsa_sched.report.difference import difference_json

        return _parsed(difference_json(self.found))

    def __str__(self) -> str:
        from dsa_sched.report.difference import print_difference

        return _printed(lambda console: print_difference(self.found, console=console))

    def __repr__(self) -> str:
        return f"<Difference: {self.headline}>"


@dataclass(frozen=True)
class VerificationReport:
    """The judgement of a run; see `dsa-sched verify`. `report` has all of it as data."""

    report: VerifyReport

    @property
    def verdict(self) -> str:
        """ "passed", "failed", or "inconclusive" where rounding alone may make an output wrong."""
        return self.report.verdict

    @property
    def passed(self) -> bool:
        return self.report.passed

    @property
    def reason(self) -> str:
        return self.report.reason

    @property
    def failures(self) -> tuple[str, ...]:
        return self.report.failures

    @property
    def cycles(self) -> float | None:
        """Cycles of one pass by the cycle model, launch included."""
        return self.report.programs[-1].cycles

    def to_dict(self) -> dict[str, Any]:
        """The keys of `verify --json`."""
        from dsa_sched.report.json_form import report_json

        return _parsed(report_json(self.report))

    def __str__(self) -> str:
        from dsa_sched.report.tables import print_report

        return _printed(lambda console: print_report(self.report, console))

    def __repr__(self) -> str:
        return f"<Verification of {self.report.model} on {self.report.chip}: {self.verdict}>"


@dataclass(frozen=True)
class SizedVerificationReport:
    """The judgement of an artifact of several sizes; see `dsa-sched verify --sizes`. `report` has all of it as data."""

    report: SizedReport

    @property
    def verdict(self) -> str:
        """ "passed", "failed", or "inconclusive" where a combination or a size in between is."""
        return self.report.verdict

    @property
    def passed(self) -> bool:
        return self.report.passed

    def to_dict(self) -> dict[str, Any]:
        """The keys of `verify --json` of several sizes."""
        from dsa_sched.report.sized_tables import sized_report_json

        return _parsed(sized_report_json(self.report))

    def __str__(self) -> str:
        from dsa_sched.report.sized_tables import print_sized_report

        return _printed(lambda console: print_sized_report(self.report, console))

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.report.combinations)
        return f"<Verification of {names}: {self.verdict}>"


@dataclass(frozen=True)
class PlacementReport:
    """Where the parts of a network run; see `dsa-sched place`. `found` has all of it as data."""

    found: PlacementResult

    @property
    def method(self) -> str:
        """The method with the shortest schedule."""
        return self.found.best.method

    @property
    def makespan_seconds(self) -> float:
        """Time of the best schedule by the prices of its tasks."""
        return self.found.best.makespan_ns / 1e9

    @property
    def is_optimal(self) -> bool:
        """Whether no schedule of the same tasks takes less, at these prices."""
        return self.found.best.makespan_ns <= self.found.best.bound_ns

    @property
    def devices(self) -> Mapping[str, str]:
        """Task -> the device that it runs on in the best schedule."""
        return {run.task: run.machine for run in self.found.best.schedule.runs}

    def to_dict(self) -> dict[str, Any]:
        """The keys of `place --json`."""
        from dsa_sched.report.placement import placed_json

        return _parsed(placed_json(self.found))

    def __str__(self) -> str:
        from dsa_sched.report.placement import print_placed

        stream = io.StringIO()
        with redirect_stdout(stream):
            print_placed(self.found)
        return stream.getvalue()

    def __repr__(self) -> str:
        found = self.found
        return f"<Placement of {found.problem.graph.name} by {self.method}: {self.makespan_seconds * 1e6:,.1f} us>"


@dataclass(frozen=True)
class QuantizeResult:
    """A quantised network and its errors; see `dsa-sched quantize`. `found` has all of it as data."""

    found: QuantizedNetwork

    @property
    def model(self) -> ModelProto:
        """The quantised network, which `dsa_sched.compile` takes, too."""
        return self.found.model

    @property
    def relative_l2(self) -> float:
        """Relative L2 error of the output that is worst, over the calibration inputs."""
        return self.found.relative_l2

    @property
    def float_layers(self) -> tuple[str, ...]:
        """Layers that could be quantised and stay in floating point."""
        return self.found.float_layers

    @property
    def search(self) -> FloatSearch | None:
        """What a search found: the layers that it keeps, the curve, the ranking."""
        return self.found.search

    def save(self, path: str | Path) -> None:
        """Write the ONNX file, whole or not at all. Raises UserError."""
        self.found.save(Path(path))

    def to_dict(self) -> dict[str, Any]:
        """The keys of `quantize --json`."""
        from dsa_sched.report.quantised import quantised_json

        return _parsed(quantised_json(self.found))

    def __str__(self) -> str:
        from dsa_sched.report.quantised import print_quantised

        return _printed(lambda console: print_quantised(self.found, console))

    def __repr__(self) -> str:
        found = self.found
        integers = len(found.layers) - len(found.float_layers)
        return f"<Quantized {found.source}: {integers} of {len(found.layers)} layers, error {found.relative_l2:.2e}>"


@dataclass(frozen=True)
class SweepReport:
    """Many compilations as one table; see `dsa-sched sweep`. `table` has all of it as data."""

    table: SweepTable

    @property
    def rows(self) -> tuple[Mapping[str, Any], ...]:
        """A mapping per point, in the order of the file: what was varied, status, reason, figures. Figures that a point
        does not have are absent."""
        return tuple(self.to_dict()["rows"])

    def front(self, cost: str, gain: str = "items_per_second") -> tuple[int, ...]:
        """Numbers of the rows on the Pareto front of each network: no other one costs at most as much and gains at
        least as much. Times of machine code and estimates are not compared with each other, and have a front each.
        Raises KeyError for a column that there is not."""
        return tuple(row for rows in self.table.comparable.values() for row in self.table.front(rows, cost, gain))

    def to_dict(self) -> dict[str, Any]:
        """The keys of `table.json`."""
        from dsa_sched.report.sweep_table import sweep_json

        return _parsed(sweep_json(self.table))

    def save(self, folder: str | Path, parquet: bool = False) -> None:
        """Write table.csv, table.json, sweep.html and, if it is asked for, table.parquet into a folder that exists.
        Raises UserError."""
        from dsa_sched.report.page.sweep_page import write_sweep_page
        from dsa_sched.report.sweep_table import write_tables

        write_tables(self.table, Path(folder), parquet)
        write_sweep_page(self.table, Path(folder) / "sweep.html")

    def __str__(self) -> str:
        from dsa_sched.report.sweep_table import print_sweep

        return _printed(lambda console: print_sweep(self.table, console))

    def __repr__(self) -> str:
        return f"<Sweep {self.table.name}: {len(self.table.rows)} points>"


@dataclass(frozen=True)
class SuiteReport:
    """A suite, set against an earlier run if there was one; see `dsa-sched suite`. `cases` has all of it as data."""

    name: str
    cases: tuple[Judgement, ...]

    @property
    def exit_code(self) -> int:
        """That of the command: 0 where nothing is worse than it may be."""
        from dsa_sched.suites.suite import exit_code

        return exit_code(self.cases)

    @property
    def regressions(self) -> Mapping[str, Mapping[str, str]]:
        """What makes the suite fail: title of a case -> check -> what it says."""
        return {case.title: case.regressions for case in self.cases if case.regressions}

    def to_dict(self) -> dict[str, Any]:
        """The keys of `suite.json`."""
        from dsa_sched.report.suite_report import suite_json

        return _parsed(suite_json(self.name, self.cases))

    def save(self, folder: str | Path) -> None:
        """Write suite.json, junit.xml and suite.html into a folder that exists. Raises UserError."""
        from dsa_sched.report.page.suite_page import write_suite_page
        from dsa_sched.report.suite_report import write_suite

        write_suite(self.name, self.cases, Path(folder))
        write_suite_page(self.name, self.cases, Path(folder) / "suite.html")

    def __str__(self) -> str:
        from dsa_sched.report.suite_report import print_suite

        return _printed(lambda console: print_suite(self.name, self.cases, console))

    def __repr__(self) -> str:
        return f"<Suite {self.name}: {len(self.cases)} cases, {len(self.regressions)} of them worse than they may be>"


def _parsed(text: str) -> dict[str, Any]:
    found = json.loads(text)
    assert isinstance(found, dict)  # every JSON form is an object
    return found
