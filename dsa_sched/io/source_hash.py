"""The identity of code: a hash of the files of packages, for caches of what the code makes.

A checkout changes many times under one version, and each change may change results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

MADE = "__pycache__"
"""Folders of files that Python makes by itself."""


def source_hash(packages: Sequence[str]) -> str:
    """SHA-256 of all files of packages, whose names in the packages count and whose places do not. Reads some four
    megabytes for all of dsa-sched: 20 ms."""
    found = hashlib.sha256()
    for package in packages:
        spec = find_spec(package)
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            for file in sorted(path for path in folder.rglob("*") if path.is_file() and MADE not in path.parts):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                found.update(f"{package} {file.relative_to(folder).as_posix()} {content}\n".encode())
    return found.hexdigest()
