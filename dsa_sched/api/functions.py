"""The public functions. Each does what the command of its name does, and imports what it needs when it is called.

    artifact = dsa_sched.compile("resnet50", "stcp920", batch=16)
    dsa_sched.explain(artifact), dsa_sched.time(artifact), dsa_sched.verify(artifact)

What is compiled comes from the build cache where it was compiled before, as on the command line. All raise
hw_models.errors.UserError for what a user can cause: one clear message that names the argument, operator, field or file
and what to change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from dsa_sched.api.options import Options, Progress, compile_options, progress_of, python_names

if TYPE_CHECKING:
    from onnx import ModelProto

    from dsa_sched.analysis.operator_support import Support
    from dsa_sched.analysis.run_times import RunTimes
    from dsa_sched.api.results import (
        DifferenceReport,
        ExplanationReport,
        FitReport,
        PlacementReport,
        QuantizeResult,
        SizedVerificationReport,
        SuiteReport,
        SweepReport,
        TimelineReport,
        TimingReport,
        VerificationReport,
    )
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.sizes.sized_artifact import SizedArtifact
    from dsa_sched.zoo.sizes import NetworkSize
    from hw_models.cache import Cache
    from hw_models.chip import Chip
    from partitioner.ir.plan import Plan


def load_chip(chip: str | Path, changes: Mapping[str, object] | None = None) -> Chip:
    """A built-in chip by name, or a chip file by path. `changes` has other values of fields by their paths in the file,
    such as {"memories.L1.size_bytes": 2_621_440}. Raises ChipError with every problem of the file."""
    from hw_models.changes import changed_chip
    from hw_models.loading import load_chip as load

    return changed_chip(load(chip), changes) if changes else load(chip)


def chips() -> tuple[Chip, ...]:
    """The built-in chips."""
    from hw_models.loading import builtin_chips

    return tuple(load_chip(name) for name in builtin_chips())


def models() -> tuple[NetworkSize, ...]:
    """The networks that can be named instead of a file, and how large they are."""
    from dsa_sched.zoo import zoo_names
    from dsa_sched.zoo.sizes import network_size

    return tuple(map(network_size, zoo_names()))


def ops(chip: str | Path | Chip) -> tuple[Support, ...]:
    """The ONNX operators that can be compiled for a chip, and how they may be written."""
    from dsa_sched.analysis.operator_support import operator_support
    from dsa_sched.stages.targets import target_of

    described = _chip(chip)
    return tuple(operator_support(described, target_of(described)))


@overload
def compile(model: str | Path | ModelProto, chip: str | Path | Chip, **options: Unpack[Options]) -> Artifact: ...
@overload
def compile(
    model: str | Path | ModelProto,
    chip: str | Path | Chip,
    *,
    sizes: Mapping[str, Sequence[int]],
    exact: bool = False,
    **options: Unpack[Options],
) -> SizedArtifact: ...
def compile(
    model: str | Path | ModelProto,
    chip: str | Path | Chip,
    *,
    sizes: Mapping[str, Sequence[int]] | None = None,
    exact: bool = False,
    **options: Unpack[Options],
) -> Artifact | SizedArtifact:
    """Compile an ONNX file (or a network of the zoo, by name, or a model in memory, which is not changed) for a chip
    (its name, its file, or one loaded).

    `Options` says what the options are. With `sizes` of symbolic dimensions, such as {"sequence": (1, 64)}, the result
    has a program for each combination; runs at sizes in between are padded, unless sizes are `exact`.
    """
    from dsa_sched.builds.build import build

    if exact and sizes is None:
        raise _wrong("exact", "sizes", "none")
    with python_names():
        own = model if isinstance(model, str | Path) else _copied(model)
        if sizes is not None:
            from dsa_sched.sizes.compile import compile_sizes

            return compile_sizes(
                own, _chip(chip), compile_options(options), sizes, exact, progress_of(options), _cache(options)
            )
        return build(own, _chip(chip), compile_options(options), progress_of(options), _cache(options)).artifact


def _copied(model: ModelProto) -> ModelProto:
    """A model that may be changed: compiling gives names and shapes to it."""
    copy = type(model)()
    copy.CopyFrom(model)
    return copy


def load(folder: str | Path) -> Artifact:
    """An artifact that `Artifact.save` or `dsa-sched compile` wrote. Raises TargetError."""
    from dsa_sched.artifact.format import Artifact

    return Artifact.load(folder)


def load_sizes(folder: str | Path) -> SizedArtifact:
    """The artifact of several sizes that `SizedArtifact.save` or `dsa-sched compile --sizes` wrote. Raises
    TargetError."""
    from dsa_sched.sizes.sized_artifact import SizedArtifact

    return SizedArtifact.load(folder)


def plan(model: str | Path, chip: str | Path | Chip, **options: Unpack[Options]) -> Plan:
    """The plan of one pass alone; chips without a code generator have one too. Nothing is kept in the build cache."""
    from dsa_sched.pipeline.driver import plan_model

    with python_names():
        return plan_model(model, _chip(chip), compile_options(options), progress_of(options)).plan


def explain(
    source: str | Path | Artifact,
    chip: str | Path | Chip | None = None,
    *,
    group: str | None = None,
    estimate: bool = False,
    **options: Unpack[Options],
) -> ExplanationReport:
    """What was compiled and why: of an artifact (or its folder), or of a model, which is compiled. With `group`, all
    about one group; with `estimate`, and for a chip without machine code, a plan alone, by the cost model."""
    from dsa_sched.api.results import ExplanationReport
    from dsa_sched.builds.explained_build import told, told_of_artifact
    from dsa_sched.stages.targets import has_code

    with python_names():
        say = progress_of(options)
        model = source if isinstance(source, str | Path) and not Path(source).is_dir() else None
        if estimate and model is None:
            raise _wrong("estimate", "a model, which is planned for a chip", "an artifact")
        if model is not None and (estimate or not has_code(_chip(chip))):
            from dsa_sched.analysis.explanation import explain_model

            described = _chip(chip)
            found = told(explain_model(model, described, compile_options(options), say), described, group)
        else:
            found = told_of_artifact(_artifact(source, chip, options), _cache(options), group, say)
        return ExplanationReport(found.explanation, found.chip, found.detail)


def time(
    source: str | Path | Artifact,
    chip: str | Path | Chip | None = None,
    *,
    warm: bool = False,
    bounds: bool = False,
    by: str | None = None,
    **options: Unpack[Options],
) -> TimingReport:
    """How long an artifact (or its folder, or a model, which is compiled) takes by the cycle model. With `warm`, its
    code is in the caches; with `bounds`, also what no order of the same instructions could beat; `by` is "stage",
    "group" or "operator"."""
    from dsa_sched.api.results import TimedArtifact, TimingReport
    from dsa_sched.builds.kept_figures import Figures

    with python_names():
        artifact = _artifact(source, chip, options)
        timed = TimedArtifact(artifact, warm, bounds)

        def find() -> RunTimes:
            from dsa_sched.analysis.run_sums import run_times

            return run_times(timed.run, by)

        times = find() if warm else Figures(artifact, _cache(options)).times(by, find)
        return TimingReport(times, timed)


def timeline(
    source: str | Path | Artifact, chip: str | Path | Chip | None = None, **options: Unpack[Options]
) -> TimelineReport:
    """What every engine does when, and what the memories hold, by the cycle model."""
    from dsa_sched.analysis.artifact_timing import time_whole
    from dsa_sched.api.results import TimelineReport

    with python_names():
        artifact = _artifact(source, chip, options)
        return TimelineReport(time_whole(artifact, artifact.manifest.model))


def write_report(
    source: str | Path | Artifact,
    page: str | Path,
    chip: str | Path | Chip | None = None,
    *,
    against: str | Path | Artifact | None = None,
    verified: str | Path | None = None,
    **options: Unpack[Options],
) -> int:
    """Write one HTML page about an artifact (or its folder, or a model, which is compiled) to the file `page`, which a
    browser opens without a network; its size in bytes. The page also shows the difference from the artifact `against`,
    and the accuracy in the report `verified` that `verify` wrote as JSON. Raises UserError."""
    from dsa_sched.analysis.overview import overview
    from dsa_sched.builds.explained_build import difference_of, told_of_artifact
    from dsa_sched.report.page.page import PageContent, write_page
    from dsa_sched.verification.kept_report import read_accuracy, require_about

    with python_names():
        accuracy = read_accuracy(Path(verified)) if verified is not None else None
        artifact, say = _artifact(source, chip, options), progress_of(options)
        if accuracy is not None and verified is not None:
            require_about(accuracy, artifact, Path(verified))
        explanation = told_of_artifact(artifact, _cache(options), None, say).explanation
        difference = None
        if against is not None:
            before, name = _named(against)
            own = str(source) if isinstance(source, str | Path) else artifact.manifest.model
            difference = difference_of(before, artifact, (name, own), _cache(options), say)
        return write_page(PageContent(overview(artifact, explanation, say), accuracy, difference), Path(page))


def diff(before: str | Path | Artifact, after: str | Path | Artifact, *, cache: bool = True) -> DifferenceReport:
    """Which of two artifacts (or their folders) is faster, by how much, and why. Without `cache`, nothing that was kept
    with builds is used. Raises TargetError."""
    from dsa_sched.api.results import DifferenceReport
    from dsa_sched.builds.explained_build import difference_of

    (one, name), (other, other_name) = _named(before), _named(after)
    return DifferenceReport(difference_of(one, other, (name, other_name), _cache({"cache": cache})))


def _named(given: str | Path | Artifact) -> tuple[Artifact, str]:
    """An artifact, and what the reader calls it: its folder, or its model. Raises TargetError."""
    return (load(given), str(given)) if isinstance(given, str | Path) else (given, given.manifest.model)


def write_benchmarks(chip: str | Path | Chip, folder: str | Path) -> int:
    """Write the micro-benchmarks of a chip into a folder, as `calibrate emit` does; their number. Raises TargetError
    for a chip whose target has none."""
    from dsa_sched.artifact.whole_folder import write_folder
    from dsa_sched.calibration.emitted import calibration_of, emitted

    calibration = calibration_of(_chip(chip))
    write_folder(Path(folder), emitted(calibration))
    return len(calibration.benchmarks)


def fit_chip(
    counters: str | Path,
    chip: str | Path,
    *,
    keep_documented: bool = False,
    progress: Progress = lambda _step: None,
) -> FitReport:
    """Fit the numbers of a built-in chip or a chip file to measured cycles of its benchmarks, in a CSV file as
    `calibrate fit` reads it; with `keep_documented`, only those for which the file names no document. Raises
    CountersError."""
    from dsa_sched.api.results import FitReport
    from dsa_sched.calibration.calibrate import fitted, fitted_text

    with python_names():
        fit = fitted(Path(counters), chip, not keep_documented, progress)
        return FitReport(fit, fitted_text(fit, chip)[0])


def verify_sizes(
    artifact: SizedArtifact,
    *,
    model: str | Path | None = None,
    inputs: int = 2,
    seed: int = 0,
    runner: str | None = None,
    progress: Progress = lambda _step: None,
) -> SizedVerificationReport:
    """Run an artifact of several sizes and judge it by onnxruntime: each combination as `verify` does, and for each
    axis a size in between, which is padded. The model is where it was compiled, or in `model`."""
    from dsa_sched.api.results import SizedVerificationReport
    from dsa_sched.sizes.verify import verify_sizes as judged
    from dsa_sched.verification.verify import VerifyOptions

    with python_names():
        return SizedVerificationReport(judged(artifact, model, VerifyOptions(inputs, seed), runner, progress))


def verify(
    source: str | Path | Artifact,
    chip: str | Path | Chip | None = None,
    *,
    model: str | Path | None = None,
    inputs: int = 2,
    seed: int = 0,
    feed: Sequence[str | Path] = (),
    runner: str | None = None,
    **options: Unpack[Options],
) -> VerificationReport:
    """Run an artifact (or its folder, or what a model is compiled to) and judge it by onnxruntime. Of an artifact, the
    model is where it was, or in `model`. `inputs` are drawn with `seed`, or given as .npz files in `feed`; `runner` is
    the command of another simulator or a board."""
    from dsa_sched.api.results import VerificationReport
    from dsa_sched.builds.kept_figures import Figures
    from dsa_sched.verification.verify import VerifyOptions, verify_artifact

    with python_names():
        artifact = _artifact(source, chip, options)
        how = VerifyOptions(inputs, seed, feeds=tuple(map(Path, feed)))
        timed = Figures(artifact, _cache(options)).work()
        return VerificationReport(verify_artifact(artifact, model, how, runner, progress_of(options), timed))


def sweep(
    file: str | Path,
    folder: str | Path,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    cache: bool = True,
    progress: Progress = lambda _step: None,
) -> SweepReport:
    """Compile every network of a sweep file for every chip and with every combination of options, each point in
    `folder` as soon as it is done; those that are there already are not compiled again. Up to `jobs` processes work at
    once (None: one per core), or the workers of the Dask `cluster` whose scheduler has this address."""
    from dsa_sched.api.results import SweepReport
    from dsa_sched.sweeping.carried_out import WorkPlace
    from dsa_sched.sweeping.sweep import run_sweep
    from dsa_sched.sweeping.table import sweep_table

    with python_names():
        return SweepReport(sweep_table(run_sweep(Path(file), Path(folder), WorkPlace(jobs, cluster, cache), progress)))


def suite(
    file: str | Path,
    folder: str | Path,
    *,
    against: str | Path | None = None,
    tolerance: float = 0.0,
    jobs: int | None = None,
    cluster: str | None = None,
    cache: bool = True,
    progress: Progress = lambda _step: None,
) -> SuiteReport:
    """Compile, verify and time the networks of a suite file, each case in `folder` as soon as it is done, and set them
    `against` an earlier run (its folder or its suite.json), than which an item may take `tolerance` percent more time.
    `jobs` and `cluster` are those of `sweep`."""
    from dsa_sched.api.results import SuiteReport
    from dsa_sched.suites.suite import judged, read_earlier, run_suite
    from dsa_sched.sweeping.carried_out import WorkPlace

    with python_names():
        earlier = read_earlier(Path(against)) if against is not None else None
        found = run_suite(Path(file), Path(folder), WorkPlace(jobs, cluster, cache), progress)
        return SuiteReport(found.suite.name, judged(found, earlier, tolerance / 100))


def place(
    model: str | Path,
    scenario: str | Path,
    *,
    method: str | Sequence[str] = "sphinx",
    estimate: bool = False,
    measure: bool = False,
    run: bool = False,
    batch: int | None = None,
    shape: Mapping[str, tuple[int, ...]] | None = None,
    bind: Mapping[str, tuple[int | float, ...]] | None = None,
    seed: int = 0,
    evaluations: int | None = None,
    seconds: float | None = None,
    option: Mapping[str, float] | None = None,
    progress: Progress = lambda _step: None,
) -> PlacementReport:
    """Decide which device of a scenario file runs which part of a model, and when, by one method or several. Tasks on
    chips are priced by compiling them, with `estimate` by rooflines, with `measure` by running them; with `run`, the
    best schedule is run. `option` has settings of the method by name."""
    from dsa_sched.api.results import PlacementReport
    from dsa_sched.placement.methods.registry import Search
    from dsa_sched.placing.place import PlacementJob, place_model

    with python_names():
        if estimate and measure:
            raise _wrong("estimate", "True for one of estimate and measure", "True for both")
        names = (method,) if isinstance(method, str) else tuple(method)
        job = PlacementJob(
            str(model),
            Path(scenario),
            names,
            Search(seed, evaluations, seconds, dict(option or {})),
            batch,
            tuple((name, tuple(extents)) for name, extents in (shape or {}).items()),
            "measured" if measure else "estimated" if estimate else "compiled",
            run,
            tuple((name, tuple(values)) for name, values in (bind or {}).items()),
        )
        return PlacementReport(place_model(job, progress))


def quantize(
    model: str | Path | ModelProto,
    *,
    calibrate: str | Path | None = None,
    method: str = "minmax",
    keep_float: Sequence[str] = (),
    weights_only: bool = False,
    per_layer: bool = False,
    bound: float | None = None,
    inputs: int = 8,
    seed: int = 0,
    batch: int | None = None,
    shape: Mapping[str, tuple[int, ...]] | None = None,
    bind: Mapping[str, tuple[int | float, ...]] | None = None,
    progress: Progress = lambda _step: None,
) -> QuantizeResult:
    """Quantise a model in floating point to int8 after training. `calibrate` is a folder of .npz files, an .npz file,
    or "seeded" for `inputs` drawn ones; only with `weights_only` it may be left out. `method` is "minmax", "entropy"
    or "percentile"; `keep_float` names operator types and nodes that stay in floating point. With a `bound`, as few
    layers as a search finds stay so, such that the relative L2 error of the outputs is at most that. With `per_layer`
    all weights of a layer have one scale. The model is not changed."""
    from dsa_sched.api.results import QuantizeResult
    from dsa_sched.quantisation.quantise import QuantizeOptions, quantised_network

    with python_names():
        options = QuantizeOptions(
            calibrate,
            method,
            tuple(keep_float),
            weights_only,
            bound,
            inputs,
            seed,
            tuple((name, tuple(extents)) for name, extents in (shape or {}).items()),
            batch,
            tuple((name, tuple(values)) for name, values in (bind or {}).items()),
            per_layer,
        )
        return QuantizeResult(quantised_network(model, options, progress))


def _cache(options: Options) -> Cache | None:
    """The build cache of the user, unless it is not to be used."""
    from dsa_sched.builds.build_cache import user_cache

    return user_cache() if options.get("cache", True) else None


def _chip(chip: str | Path | Chip | None) -> Chip:
    from hw_models.chip import Chip

    if chip is None:
        names = ", ".join(each.name for each in chips())
        raise _wrong("chip", f"a built-in chip ({names}), a chip file or a loaded chip", "none")
    return chip if isinstance(chip, Chip) else load_chip(chip)


def _artifact(source: str | Path | Artifact, chip: str | Path | Chip | None, options: Options) -> Artifact:
    """The artifact itself, that of a folder, or what a model is compiled to. Raises UserError."""
    from dsa_sched.artifact.format import Artifact

    if isinstance(source, str | Path) and not Path(source).is_dir():
        return compile(source, _chip(chip), **options)
    if given := sorted(set(options) - {"cache", "progress"}):
        raise _wrong(given[0], "a model to compile", "an artifact, which is compiled already")
    artifact = load(source) if isinstance(source, str | Path) else source
    assert isinstance(artifact, Artifact)  # as typed
    if chip is not None and _chip(chip).hash != artifact.manifest.chip.hash:
        raise _wrong("chip", f"the one that the artifact was compiled for, {artifact.manifest.chip.name}", str(chip))
    return artifact


def _wrong(argument: str, needs: str, has: str) -> Exception:
    from hw_models.errors import ModelError

    return ModelError(argument, needs=needs, has=has)
