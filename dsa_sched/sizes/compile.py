"""Compiles with `--sizes`: a program for each combination of sizes, the largest first, whose weights the others read.

model, sizes --> combinations --largest--> Artifact, places of its constants --> Artifact of each other combination
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import ModelProto

from dsa_sched.artifact.format import Array, Artifact, WeightsEntry, weights_entry
from dsa_sched.builds.build_cache import build_key
from dsa_sched.builds.fresh_build import fresh_build
from dsa_sched.frontend import open_model
from dsa_sched.frontend.load import Opened, packed_weights
from dsa_sched.frontend.network.refusals import Judge
from dsa_sched.sizes.combinations import AxisSizes, Combination, checked_sizes, combinations_of
from dsa_sched.sizes.padding import exact_ends, padding_of
from dsa_sched.sizes.sized_artifact import SizedArtifact, sized_artifact
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.targets import judge_of, require_able, target_of
from hw_models.cache import Cache
from hw_models.chip import Chip
from hw_models.errors import ModelError, TargetError
from hw_models.loading import load_chip
from hw_models.routes import main_memory
from isched.program.shared_constants import FIRST, SharedConstants, shared_by, stored

Progress = Callable[[str], None]


def compile_sizes(
    source: str | Path | ModelProto,
    chip: str | Path | Chip,
    options: CompileOptions,
    sizes: AxisSizes,
    exact: bool = False,
    progress: Progress = lambda _step: None,
    cache: Cache | None = None,
) -> SizedArtifact:
    """Compile a model for every combination of sizes, or find it in the cache. Runs at sizes in between are padded
    unless sizes are `exact`. Raises as `compile_clusters` does for each, ModelError for sizes of axes that the model
    does not have and for more than one cluster, and ChangedByPadding for operators that padding would change."""
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    target = target_of(described)
    require_able(replace(options, shared=FIRST), target)
    if options.clusters > 1:
        raise ModelError(
            "--clusters", needs="1 with --sizes, whose programs run on one cluster", has=str(options.clusters)
        )
    listed = checked_sizes(sizes)
    key = build_key(source, described, options, f"{listed}, exact {exact}") if cache is not None else None
    if cache is not None and key is not None and (found := _found(cache, key)) is not None:
        progress("found in the build cache")
        model_path = str(source)
        return replace(found, artifacts=tuple(replace(each, model_path=model_path) for each in found.artifacts))
    made, is_whole = _compiled(source, described, options, listed, exact, progress)
    if cache is not None and key is not None and is_whole:
        progress("keeping the build")
        cache.keep(key, made.packed())
    return made


def _found(cache: Cache, key: str) -> SizedArtifact | None:
    data = cache.find(key)
    try:
        return None if data is None else SizedArtifact.unpacked(data)
    except TargetError:  # no artifact, though whole: a stranger's
        return None


def _compiled(
    source: str | Path | ModelProto,
    chip: Chip,
    options: CompileOptions,
    sizes: dict[str, tuple[int, ...]],
    exact: bool,
    progress: Progress,
) -> tuple[SizedArtifact, bool]:
    """The artifact, and whether no search for a program was interrupted."""
    progress("reading the model")
    opened = open_model(source, dict(options.bindings))
    combinations = combinations_of(opened.file.model, sizes, options)
    progress("looking for operators that padding would change")
    ends = exact_ends(opened, tuple(sizes)) if exact else padding_of(opened, sizes, options)
    options = replace(options, packed=_packed(opened, combinations, judge_of(chip, target_of(chip))))
    artifacts, is_whole = list[Artifact](), True
    shared, entry, weights = FIRST, weights_entry(0, b""), b""
    for each in combinations:
        own = replace(each.options(options), shared=shared)

        def say(step: str, name: str = each.name) -> None:
            progress(f"{name}: {step}")

        artifact, parts = fresh_build(source, chip, own, say, None, None, opened)
        is_whole &= not parts[0].interrupted
        if not artifacts:
            shared, entry, weights = _shared(parts[0])
        artifacts.append(artifact.with_weights(entry, weights))
    sizes_of = tuple(dict(each.sizes) for each in combinations)
    return sized_artifact(sizes_of, tuple(artifacts), ends, exact), is_whole


def _packed(opened: Opened, combinations: Sequence[Combination], judge: Judge) -> tuple[tuple[int, int], ...]:
    """Depth and columns of all weights that stay int8 at one of the sizes."""
    found = (packed_weights(opened, dict(each.shapes), each.batch, judge) for each in combinations)
    return tuple(sorted({weights for each in found for weights in each}))


def _shared(first: Compilation) -> tuple[SharedConstants, WeightsEntry, bytes]:
    """The places of the first program's constants, and the constants as bytes with their address."""
    graph, constants, base = first.model.graph, first.model.constants, first.target.data_base_bytes
    shared = shared_by(first.program, graph, base)
    data = stored(first.program, graph, base, shared.size_bytes, lambda name: _bytes_of(constants[name]))
    return shared, weights_entry(first.target.address(main_memory(first.chip), base), data), data


def _bytes_of(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
