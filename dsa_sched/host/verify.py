"""Verification of a network in stages: each stage of the chip as a separate network, then all of them in sequence.

reference's values --feed--> each stage on the chip, judged    inputs --all stages--> outputs against the reference
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dsa_sched.host.compile import compile_with_host
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.verification.inputs import seeded_or_given
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.tolerances import LogitsResult, judge_logits
from dsa_sched.verification.verdict import Verdict, VerifyReport
from dsa_sched.verification.verify import (
    VerifyOptions,
    command_runner,
    reference_builds,
    verify_compiled,
)
from hw_models.chip import Chip

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class HostedReport:
    """Report on a network in stages. `line` says what runs where, `stages` are the reports of those on the chip. `ends`
    judges the whole by its floating-point outputs; for other outputs, `unequal` has (name, input, elements that differ,
    elements).
    """

    line: str
    stages: tuple[VerifyReport, ...]
    ends: tuple[LogitsResult, ...]
    unequal: tuple[tuple[str, int, int, int], ...]

    @property
    def verdict(self) -> Verdict:
        """Elements of other types decide nothing: they follow from numbers that rounding moves."""
        verdicts = [stage.verdict for stage in self.stages]
        if "failed" in verdicts or not all(end.passed for end in self.ends):
            return "failed"
        doubtful = "inconclusive" in verdicts or any(end.doubtful for end in self.ends)
        return "inconclusive" if doubtful else "passed"

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"


def verify_with_host(
    source: str | Path,
    chip: str | Path | Chip,
    compile_options: CompileOptions,
    options: VerifyOptions,
    runner: str | None = None,
    progress: Progress = lambda _step: None,
) -> HostedReport:
    """Compile a model of which the host takes what the chip cannot compute, run it and judge the run. Raises as
    `verify_model` does; wrong results are in the report."""
    hosted = compile_with_host(source, chip, replace(compile_options, keep_values=True), progress)
    feeds = seeded_or_given(hosted.file.model, options).feeds
    reference = OnnxReference(hosted.file.model)
    exact = tuple(reference.values(feed) for feed in feeds)
    reports = []
    for number, stage in enumerate(hosted.stages):
        if isinstance(stage, Compilation):
            inputs = hosted.division.stages[number].cut.inputs
            of_stage = tuple({name: values[name] for name in inputs} for values in exact)
            isolated, plain = reference_builds(stage, progress)
            run = command_runner(runner)
            reports.append(verify_compiled(stage, isolated, of_stage, options, run, progress, plain))
    outputs = [hosted.artifact.run(feed, runner, options.seed, progress) for feed in feeds]
    ends: list[LogitsResult] = []
    unequal: list[tuple[str, int, int, int]] = []
    for name in hosted.folded.network.outputs:
        ours, theirs = tuple(made[name] for made in outputs), tuple(values[name] for values in exact)
        if theirs[0].dtype.kind == "f":
            ends += judge_logits(name, ours, theirs)
        else:
            pairs = enumerate(zip(ours, theirs, strict=True))
            unequal += ((name, n, int(np.count_nonzero(a != b)), int(b.size)) for n, (a, b) in pairs)
    return HostedReport(hosted.division.line, tuple(reports), tuple(ends), tuple(unequal))
