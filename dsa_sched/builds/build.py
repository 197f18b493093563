"""The artifact of a model for a chip, with its figures: compiled, or found where it was compiled before.

    model, chip, options --build--> Artifact with figures and warnings

All commands that speak of a compiled network come through here, so they speak of the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto

from dsa_sched.analysis.run_figures import with_figures
from dsa_sched.artifact.format import Artifact
from dsa_sched.builds.build_cache import build_key, find_build, keep_build
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import Compilation, CompileOptions, gather_artifact
from dsa_sched.stages.gc_pause import uncollected
from dsa_sched.verification.floors import stored_type
from dsa_sched.verification.given_ranges import ranges_of_any
from hw_models.cache import Cache
from hw_models.chip import Chip
from hw_models.loading import load_chip

DEFAULTS = CompileOptions()


@dataclass(frozen=True)
class Build:
    """An artifact with its figures. `parts` are the compilations of its programs, None where it was found in a
    cache."""

    artifact: Artifact
    parts: tuple[Compilation, ...] | None


@uncollected()
def build(
    source: str | Path | ModelProto,
    chip: str | Path | Chip,
    options: CompileOptions = DEFAULTS,
    progress: Callable[[str], None] = lambda _step: None,
    cache: Cache | None = None,
) -> Build:
    """Compile a model for a chip, or find it in the cache. Raises as `compile_clusters` does.

    What Ctrl-C ended before its end is not kept.
    """
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    key = build_key(source, described, options) if cache is not None else None
    if cache is not None and key is not None and (found := find_build(cache, key)) is not None:
        progress("found in the build cache")
        return Build(replace(found, model_path=str(source)), None)
    parts = compile_clusters(source, described, options, progress)
    artifact = with_figures(_with_ranges(gather_artifact(parts, source, options), parts[0]), progress)
    artifact = replace(artifact, model_path="" if isinstance(source, ModelProto) else str(source))
    if cache is not None and key is not None and not any(part.interrupted for part in parts):
        progress("keeping the build")
        keep_build(cache, key, artifact)
    return Build(artifact, parts)


def _with_ranges(artifact: Artifact, made: Compilation) -> Artifact:
    """A copy that also warns of values which leave the range of the stored type whatever the inputs are."""
    found = ranges_of_any(made.model.source, stored_type(made.model.graph))
    origin = artifact.origin.model_copy(update={"warnings": (*artifact.origin.warnings, *found)})
    return replace(artifact, manifest=artifact.manifest.model_copy(update={"origin": origin}))
