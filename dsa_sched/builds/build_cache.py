"""Artifacts that were compiled before, in a cache: each is named by all that it depends on.

model bytes, chip, options, sources of the compiler --build_key--> key --find_build--> Artifact
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from onnx import ModelProto

import dsa_sched
from dsa_sched.artifact.format import Artifact
from dsa_sched.frontend.model_file import file_digest
from dsa_sched.stages.compilation import CompileOptions, options_entry
from dsa_sched.zoo import zoo_names
from hw_models.cache import Cache
from hw_models.chip import Chip
from hw_models.errors import TargetError

ENVIRONMENT, OFF = "DSA_SCHED_BUILD_CACHE", "off"
"""Variable of the environment that names another folder, and its value for none at all."""

PACKAGES = ("hw_models", "partitioner", "isched", "codegen", "dsa_sched")
LIBRARIES = ("numpy", "onnx", "apache-tvm", "nvidia-cutlass")
"""Packages whose versions may change what is compiled."""

UNUSED = ("__pycache__",)


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
        return Artifact.unpacked(data)
    except TargetError:  # no artifact, though whole: a stranger's
        return None


def keep_build(cache: Cache, key: str, artifact: Artifact) -> None:
    """Keep an artifact under a key."""
    cache.keep(key, artifact.packed())


def build_key(source: str | Path | ModelProto, chip: Chip, options: CompileOptions) -> str | None:
    """Key of what `build` makes of these: hexadecimal. None for what is not kept: kernels chosen by times taken on a
    device, a model in memory, and one that is not there. Raises ModelError for a file that cannot be read."""
    model = _model_key(source)
    if options.tune or model is None:
        return None
    content = {
        "model": model,
        "chip": chip.hash,
        "options": options_entry(options).model_dump(mode="json"),
        "compiler": _compiler(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _model_key(source: str | Path | ModelProto) -> str | None:
    """A path wins over a network of the zoo, whose weights follow from its name and the sources. None for neither, and
    for a model in memory."""
    if isinstance(source, ModelProto):
        return None
    path = Path(source)
    if path.is_file():
        return file_digest(path)
    return f"zoo {source}" if str(source) in zoo_names() else None


@cache
def _compiler() -> str:
    """The compiler: all files of its packages, and the versions of libraries that take part."""
    digest = hashlib.sha256()
    root = Path(dsa_sched.__file__).parents[1]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and not set(UNUSED) & set(path.parts):
                digest.update(str(path.relative_to(root)).encode() + b"\\0" + path.read_bytes())
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            digest.update(f"{name} {version(name)}".encode())
    return digest.hexdigest()
