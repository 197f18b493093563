"""A build that no cache has: compiled, timed, and kept with what is said of it.

model, chip, options --compile, time--> Artifact with figures and warnings --> build cache
                                  --explain, in another process--> figures --> next to it
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from onnx import ModelProto

from dsa_sched.analysis.artifact_timing import RunTime
from dsa_sched.analysis.explanation import explain_made, with_measured
from dsa_sched.analysis.explanation_data import Explanation
from dsa_sched.analysis.measured_run import measured_run
from dsa_sched.analysis.run_figures import timed_run, with_figures
from dsa_sched.analysis.run_sums import run_times
from dsa_sched.analysis.work import timed_work
from dsa_sched.artifact.format import Artifact
from dsa_sched.builds.build_cache import keep_build
from dsa_sched.builds.kept_figures import Figures
from dsa_sched.frontend.load import Opened
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.search.ahead import Workers, alongside, processes_of
from dsa_sched.stages.compilation import Compilation, CompileOptions, Lowered, gather_artifact
from dsa_sched.verification.floors import stored_type
from dsa_sched.verification.given_ranges import ranges_of_any
from hw_models.cache import Cache
from hw_models.chip import Chip
from hw_models.errors import PlanError
from partitioner.ir.plan import Plan


def fresh_build(
    source: str | Path | ModelProto,
    chip: Chip,
    options: CompileOptions,
    progress: Callable[[str], None],
    cache: Cache | None,
    key: str | None,
    opened: Opened | None = None,
) -> tuple[Artifact, tuple[Compilation, ...]]:
    """Compile a model for a chip, and keep the artifact in the cache under the key, if there are both. The model is not
    read again where it was `opened` with the options' bindings. Raises as `compile_clusters` does. What Ctrl-C ended
    before its end is not kept.
    """
    with Workers[Compilation]() as workers:
        parts = compile_clusters(opened or source, chip, options, progress)
        first = parts[0]
        kept_in = cache if cache is not None and cache.folder and not any(part.interrupted for part in parts) else None
        explained = None
        if kept_in is not None and key is not None and isinstance(first.made, Lowered):
            workers.fork_one(processes_of(options.jobs), first)
            explained = alongside(explain_made, workers, first)
        artifact = _with_ranges(gather_artifact(parts, source, options), first)
        run = timed_run(artifact, progress)
        artifact = with_figures(artifact, run)
        artifact = replace(artifact, model_path="" if isinstance(source, ModelProto) else str(source))
        if kept_in is not None and key is not None:
            progress("keeping the build")
            keep_build(kept_in, key, artifact)
            if explained is not None:
                _keep_figures(Figures(artifact, kept_in), run, first.plan, explained)
    return artifact, parts


def _keep_figures(figures: Figures, run: RunTime | None, plan: Plan, explained: Callable[[], Explanation]) -> None:
    """Keep what `time`, `verify` and `explain` say of a build."""
    measured = None
    if run is not None:
        figures.times(None, lambda: run_times(run))
        figures.keep_work(timed_work(run.programs[0], figures.artifact.chip, plan))
        measured = measured_run(run, plan)
    with suppress(PlanError):  # which whoever asks for an explanation will see
        figures.keep_explanation(with_measured(explained(), figures.artifact, measured))


def _with_ranges(artifact: Artifact, made: Compilation) -> Artifact:
    """A copy that also warns of values which leave the range of the stored type whatever the inputs are."""
    found = ranges_of_any(made.model.source, stored_type(made.model.graph))
    origin = artifact.origin.model_copy(update={"warnings": (*artifact.origin.warnings, *found)})
    return replace(artifact, manifest=artifact.manifest.model_copy(update={"origin": origin}))
