"""Verification of several sizes: each combination as an artifact of its own, and a size in between for each axis.

    combinations                  --verify--> a report each
    inputs of a size in between   --padded, run, cut--> against the reference at that very size

Inputs of a size in between are those of the program that runs them, without its last rows. There, padding is judged
twice: in onnxruntime, whose float32 results it must not change, and on the chip, by the bounds that end-to-end results
of a compiled size have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend import open_model
from dsa_sched.frontend.load import Opened, sized_source
from dsa_sched.pipeline.rebuild import source_of
from dsa_sched.sizes.combinations import BATCH, combination_name
from dsa_sched.sizes.padded_run import cut, padded, shortened
from dsa_sched.sizes.sized_artifact import Choice, SizedArtifact
from dsa_sched.verification.evidence import Feed
from dsa_sched.verification.floors import stored_type
from dsa_sched.verification.inputs import seeded_or_given
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.rounding import RoundedReference
from dsa_sched.verification.tolerances import LogitsResult, judge_logits
from dsa_sched.verification.verdict import Verdict, VerifyReport, failures
from dsa_sched.verification.verify import DEFAULTS, VerifyOptions, verify_artifact
from hw_models.errors import ModelError

Array = npt.NDArray[np.generic]
Progress = Callable[[str], None]

PADDING_ERROR = 1e-4
"""Largest relative L2 error that rows of padding may make of float32 results in onnxruntime, which adds in another
order."""


@dataclass(frozen=True, slots=True)
class BetweenResult:
    """A size in between, padded as `line` says. `padding_error` is the largest relative L2 error that padding makes in
    onnxruntime, `padding_unequal` the number of other elements that it changes there. `ends` judges the chip's outputs
    in floating point; of others, `unequal` has (name, input, elements that differ, elements). `problem` says why
    nothing was judged."""

    name: str
    line: str
    padding_error: float
    padding_unequal: int
    ends: tuple[LogitsResult, ...]
    unequal: tuple[tuple[str, int, int, int], ...]
    problem: str = ""

    @property
    def verdict(self) -> Verdict:
        if not self.padding_error <= PADDING_ERROR or not all(end.passed for end in self.ends):
            return "failed"
        doubtful = self.problem or self.padding_unequal or any(end.doubtful for end in self.ends)
        return "inconclusive" if doubtful else "passed"

    @property
    def findings(self) -> Iterator[str]:
        """Sentences about what does not hold, or is in doubt."""
        if self.problem:
            yield f"inconclusive: {self.problem}"
        if not self.padding_error <= PADDING_ERROR:
            yield f"failed: in onnxruntime, padding changes an output by {self.padding_error:.2e} of its norm"
        if self.padding_unequal:
            yield f"inconclusive: in onnxruntime, padding changes {self.padding_unequal} elements of integer outputs"
        yield from (f"failed: {line}" for line in failures((), self.ends, ends=False))
        for end in self.ends:
            if end.doubtful:
                yield f"inconclusive: {end.tensor} for input {end.input}: off by {end.error:.3g}"
        for name, number, wrong, count in self.unequal:
            if wrong:
                yield f"{name} for input {number}: {wrong} of {count} elements differ from the reference's"


@dataclass(frozen=True, slots=True)
class SizedReport:
    """The reports of all combinations by their names, and those of sizes in between."""

    combinations: tuple[tuple[str, VerifyReport], ...]
    between: tuple[BetweenResult, ...]

    @property
    def verdict(self) -> Verdict:
        verdicts = [*(report.verdict for _, report in self.combinations), *(each.verdict for each in self.between)]
        return next((each for each in ("failed", "inconclusive") if each in verdicts), "passed")

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"


def verify_sizes(
    made: SizedArtifact,
    source: str | Path | None = None,
    options: VerifyOptions = DEFAULTS,
    runner: str | None = None,
    progress: Progress = lambda _step: None,
) -> SizedReport:
    """Run an artifact of several sizes and judge the runs. The model is read again from where it was when the artifact
    was compiled, or from `source`. Raises as `verify_artifact` does; wrong results are in the report."""
    named = source_of(made.artifacts[0], source)
    reports = []
    for entry, artifact in zip(made.manifest.sizes, made.artifacts, strict=True):
        name = combination_name(entry.sizes)

        def say(step: str, name: str = name) -> None:
            progress(f"{name}: {step}")

        reports.append((name, verify_artifact(artifact, named, options, runner, say)))
    between = [] if made.manifest.exact else [*_between(made, named, options, runner, progress)]
    return SizedReport(tuple(reports), tuple(between))


def sizes_between(axis_sizes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, int]]:
    """For each axis a size in the largest gap below its largest one, with all others at their largest."""
    largest = {axis: listed[-1] for axis, listed in axis_sizes.items()}
    for axis, listed in axis_sizes.items():
        gaps = [(high - low, low, high) for low, high in zip((0, *listed), listed, strict=False)]
        wide, low, high = max(gaps)
        if wide > 1:
            yield {**largest, axis: (low + high) // 2 if low else max(high - 1, 1)}


def _between(
    made: SizedArtifact, source: str, options: VerifyOptions, runner: str | None, progress: Progress
) -> Iterator[BetweenResult]:
    opened = open_model(source, made.artifacts[0].origin.options.bind)
    for sizes in sizes_between(made.axis_sizes):
        name = combination_name(sizes)
        progress(f"{name}: running padded inputs")
        try:
            yield _judged(made, opened, sizes, options, runner)
        except ModelError as error:
            yield BetweenResult(name, "not judged", 0.0, 0, (), (), str(error))


def _judged(
    made: SizedArtifact, opened: Opened, sizes: Mapping[str, int], options: VerifyOptions, runner: str | None
) -> BetweenResult:
    wanted = made.holding(sizes)
    at_size, at_program = (_source(opened, made, each) for each in (sizes, wanted))
    drawn = seeded_or_given(at_program, options).feeds
    feeds = tuple(shortened(made.manifest.ends, feed, sizes, wanted) for feed in drawn)
    reference = OnnxReference(at_size)
    exact = tuple(reference.values(feed) for feed in feeds)
    choices = [made.choice(feed) for feed in feeds]
    changed = _changed_by_padding(made, at_program, choices, feeds, exact)
    outputs = [made.run(feed, runner, options.seed) for feed in feeds]
    floating = [name for name in outputs[0] if exact[0][name].dtype.kind == "f"]
    rounded = RoundedReference(at_size, exact[0], frozenset(floating), stored_type(choices[0].artifact.graph))
    moved = [(rounded.values(values), rounded.values(values, True)) for values in exact]
    ends = tuple(
        result
        for name in floating
        for result in judge_logits(
            name,
            tuple(made_here[name] for made_here in outputs),
            tuple(values[name] for values in exact),
            tuple((apart[name], together[name]) for apart, together in moved if name in apart),
        )
    )
    pairs = [(name, number) for name in outputs[0] if name not in floating for number in range(len(feeds))]
    counts = {pair: np.count_nonzero(outputs[pair[1]][pair[0]] != exact[pair[1]][pair[0]]) for pair in pairs}
    unequal = tuple((name, number, int(counts[name, number]), exact[number][name].size) for name, number in pairs)
    return BetweenResult(combination_name(sizes), choices[0].line, *changed, ends, unequal)


def _source(opened: Opened, made: SizedArtifact, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """The file with the static shapes of these sizes."""
    asked = made.at(**made.holding(sizes)).origin.options
    shapes = {name: list(shape) for name, shape in asked.shapes.items()}
    for entry in made.manifest.ends.inputs:
        for rows in entry.rows if entry.name in shapes else ():
            shapes[entry.name][rows.dim] = sizes[rows.axis]
    batch = asked.batch if asked.batch is None else sizes.get(BATCH, asked.batch)
    return sized_source(opened, {name: tuple(shape) for name, shape in shapes.items()}, batch)


def _changed_by_padding(
    made: SizedArtifact,
    at_program: onnx.ModelProto,
    choices: list[Choice],
    feeds: tuple[Feed, ...],
    exact: tuple[Feed, ...],
) -> tuple[float, int]:
    """Effect of rows of padding in onnxruntime: the largest relative L2 error, and the number of other elements that
    change."""
    reference = OnnxReference(at_program)
    ends = made.manifest.ends
    worst, unequal = 0.0, 0
    for choice, feed, theirs in zip(choices, feeds, exact, strict=True):
        whole = reference.values(padded(ends, feed, choice.found, choice.wanted))
        for name, array in cut(ends, whole, feed, choice.found, choice.wanted).items():
            if array.dtype.kind != "f":
                unequal += int(np.count_nonzero(array != theirs[name]))
                continue
            wanted = theirs[name].astype(np.float64)
            error = float(np.linalg.norm(np.nan_to_num(array.astype(np.float64) - wanted)))
            worst = max(worst, error / (float(np.linalg.norm(np.nan_to_num(wanted))) or 1.0))
    return worst, unequal
