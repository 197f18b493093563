"""The artifact of a model for a chip, with its figures: compiled, or found where it was compiled before.

    model, chip, options --build--> Artifact with figures and warnings

All commands that speak of a compiled network come through here, so they speak of the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dsa_sched.builds.build_cache import build_key, find_build
from dsa_sched.stages.compile_options import CompileOptions
from dsa_sched.stages.gc_pause import uncollected
from hw_models.chip import Chip
from hw_models.loading import load_chip

if TYPE_CHECKING:
    from onnx import ModelProto

    from dsa_sched.artifact.format import Artifact
    from dsa_sched.stages.compilation import Compilation
    from hw_models.cache import Cache

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
    from dsa_sched.builds.fresh_build import fresh_build  # all of the compiler, which is slow to import

    return Build(*fresh_build(source, described, options, progress, cache, key))
