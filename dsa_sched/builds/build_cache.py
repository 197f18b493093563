"""Artifacts that were compiled before, in the user's cache folder: a folder for each, named by all that it depends on.

    model bytes, chip, options, sources of the compiler --SHA-256--> FOLDER/KEY/{manifest.json, ...}

Entries are read like any artifact: hashes of all files are checked, nothing is executed or unpickled, and an entry that
is damaged is as good as absent. Each is written as a whole under its name, so several processes may write at once. When
the folder grows beyond its bound, entries go that were not used for longest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import dsa_sched
from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.whole_folder import MANIFEST
from dsa_sched.frontend.model_file import file_digest
from dsa_sched.stages.compilation import CompileOptions, options_entry
from dsa_sched.zoo import zoo_names
from hw_models.chip import Chip
from hw_models.errors import UserError
from hw_models.user_cache import cache_directory

MOST_BYTES = 4 << 30
"""Largest size of all entries together."""

ENVIRONMENT, OFF = "DSA_SCHED_BUILD_CACHE", "off"
"""Variable of the environment that names another folder, and its value for none at all."""

PACKAGES = ("hw_models", "partitioner", "isched", "codegen", "dsa_sched")
LIBRARIES = ("numpy", "onnx", "apache-tvm", "nvidia-cutlass")
"""Packages whose versions may change what is compiled."""

UNUSED = ("__pycache__",)


@dataclass(frozen=True, slots=True)
class CacheSize:
    """What a cache holds."""

    folder: Path
    entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BuildCache:
    """A folder of artifacts. A folder that cannot be written costs the time of compiling and nothing else."""

    folder: Path
    most_bytes: int = MOST_BYTES

    @staticmethod
    def of_user() -> BuildCache | None:
        """The one in the user's cache folder, or in the folder that the environment names; None where the environment
        says `off`, and without a home directory."""
        named = os.environ.get(ENVIRONMENT, "")
        if named == OFF:
            return None
        if named:
            return BuildCache(Path(named))
        directory = cache_directory()
        return BuildCache(directory / "builds") if directory else None

    def find(self, key: str) -> Artifact | None:
        """The artifact with this key, or None."""
        folder = self.folder / key
        try:
            found = Artifact.load(folder)
            os.utime(folder / MANIFEST)
        except (UserError, OSError, ValueError):
            return None
        return found

    def keep(self, key: str, artifact: Artifact) -> None:
        """Keep an artifact, whole or not at all, and let the oldest go where there are too many bytes."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            artifact.save(self.folder / key)
            self._shrink()
        except (OSError, UserError):
            return

    def size(self) -> CacheSize:
        entries = tuple(self._entries())
        return CacheSize(self.folder, len(entries), sum(size for _, size, _ in entries))

    def clear(self) -> CacheSize:
        """Remove all entries; what was there."""
        before = self.size()
        for _, _, folder in tuple(self._entries()):
            shutil.rmtree(folder, ignore_errors=True)
        return before

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """(time of the last use, bytes, folder) of each entry."""
        with suppress(OSError), os.scandir(self.folder) as found:
            for entry in found:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                        folder = Path(entry.path)
                        files = [path.lstat() for path in folder.rglob("*") if not path.is_dir()]
                        used = (folder / MANIFEST).lstat().st_mtime
                        yield used, sum(file.st_size for file in files), folder

    def _shrink(self) -> None:
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, folder in entries:
            if total <= self.most_bytes:
                return
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


def build_key(source: str | Path, chip: Chip, options: CompileOptions) -> str | None:
    """Key of what `build` makes of these: hexadecimal. None for what is not kept: kernels chosen by times taken on a
    device. Raises ModelError for a file that cannot be read."""
    if options.tune:
        return None
    content = {
        "model": _model_key(source),
        "name": Path(source).name,
        "chip": chip.hash,
        "options": options_entry(options).model_dump(mode="json"),
        "compiler": _compiler(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _model_key(source: str | Path) -> str:
    """A path wins over a network of the zoo, whose weights follow from its name and the sources."""
    path = Path(source)
    if not path.is_file() and str(source) in zoo_names():
        return f"zoo {source}"
    return file_digest(path)


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
