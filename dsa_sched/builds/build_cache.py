"""Artifacts that were compiled before, in a cache: each is named by all that it depends on.

model bytes, chip, options, sources of the compiler --build_key--> key --find_build--> Artifact
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from onnx import ModelProto

from codegen.target_registry import is_builtin
from dsa_sched.artifact.format import Artifact
from dsa_sched.io.entry_point_groups import OPERATORS
from dsa_sched.io.source_hash import source_hash
from dsa_sched.stages.compile_options import CompileOptions
from dsa_sched.zoo import zoo_names
from hw_models.cache import Cache, key_of
from hw_models.chip import Chip
from hw_models.errors import TargetError

ENVIRONMENT, OFF = "DSA_SCHED_BUILD_CACHE", "off"
"""Variable of the environment that names another folder, and its value for none at all."""

PACKAGES = ("hw_models", "partitioner", "isched", "codegen", "dsa_sched")
LIBRARIES = ("numpy", "onnx", "apache-tvm", "nvidia-cutlass")
"""Packages whose versions may change what is compiled."""


def user_cache() -> Cache:
    """The build cache of the user, or the one that the environment names; one without a folder where the environment
    says `off`, and without a home directory."""
    named = os.environ.get(ENVIRONMENT, "")
    if named:
        return Cache(None if named == OFF else Path(named))
    return Cache.of_user("builds")


def find_build(cache: Cache, key: str) -> Artifact | None:
    """The artifact that was kept under a key, or None."""
    data = cache.find(key)
    if data is None:
        return None
    try:
        return Artifact.unpacked(data, is_whole=True)
    except TargetError:  # no artifact, though whole: a stranger's
        return None


def keep_build(cache: Cache, key: str, artifact: Artifact) -> None:
    """Keep an artifact under a key."""
    cache.keep(key, artifact.packed())


def build_key(source: str | Path | ModelProto, chip: Chip, options: CompileOptions, sizes: str = "") -> str | None:
    """Key of what `build`, or for these `sizes` `compile_sizes`, makes of these: hexadecimal. None for what is not
    kept: a model in memory or one that is not there, kernels chosen by times taken on a device, and whatever code of
    other packages takes part in, which may change under one version. Raises ModelError for a file that cannot be
    read."""
    model = _model_key(source)
    if model is None or options.tune or not is_builtin(chip.isa) or entry_points(group=OPERATORS):
        return None
    # The text of the options has all of them, those of planners too; `jobs` changes nothing.
    asked = (repr(replace(options, jobs=None)), *filter(None, (sizes,)))
    return key_of(model, chip.hash, *asked, compiler_hash())


def _model_key(source: str | Path | ModelProto) -> str | None:
    """A path wins over a network of the zoo, whose weights follow from its name and the sources. None for neither, and
    for a model in memory."""
    if isinstance(source, ModelProto):
        return None
    path = Path(source)
    if path.is_file():
        from dsa_sched.frontend.model_file import file_digest  # all of the frontend, which is slow to import

        return file_digest(path)
    return f"zoo {source}" if str(source) in zoo_names() else None


@cache
def compiler_hash() -> str:
    """The compiler: all files of its packages, and the versions of libraries that take part."""
    versions = []
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return f"{source_hash(PACKAGES)} {versions}"
