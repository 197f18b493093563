"""Folders of files that a manifest lists: written as a whole or not at all, read file by file with size and hash.

    {path: bytes} --write_folder--> DIR/{manifest.json, ...}        DIR + FileEntry --read_file--> bytes

Every kind of artifact is such a folder. Folders come from strangers too: paths that lead outside are refused, and only
what a manifest lists is ever replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dsa_sched.io.atomic_write import real_path
from hw_models.errors import TargetError
from hw_models.scratch import NEW, OLD, scratch_folder

MANIFEST = "manifest.json"
STAGES_FORMAT = "dsa-sched-stages/1"
"""Format of a folder of several artifacts, which chip and host run by turns (`dsa_sched.host`)."""
SIZES_FORMAT = "dsa-sched-sizes/1"
"""Format of a folder of several artifacts of one network, a size each (`dsa_sched.sizes`)."""
WEIGHTS_FILE = "weights.bin"
"""Constants that the programs of several sizes share, in the folder of one size or in that around it."""
MAX_MANIFEST_BYTES = 64 << 20
MAX_FILE_BYTES = 4 << 30


class Entry(BaseModel):
    """Base of every part of a manifest: no conversion between types, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class FileEntry(Entry):
    """A file of the artifact by its path relative to the manifest."""

    path: str
    bytes: int
    sha256: str


class _Listing(BaseModel):
    """Part that manifests of every kind and version share: the files that they list, including those of programs."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    files: tuple[FileEntry, ...] = ()
    programs: tuple[_Listing, ...] = ()
    weights: object = None

    def paths(self) -> set[str]:
        listed = {entry.path for listing in (self, *self.programs) for entry in listing.files}
        return listed if self.weights is None else {*listed, WEIGHTS_FILE}


class _Format(BaseModel):
    model_config = ConfigDict(extra="ignore")

    format: str = ""


class _Size(BaseModel):
    model_config = ConfigDict(extra="ignore")

    folder: str


class _Sizes(BaseModel):
    model_config = ConfigDict(extra="ignore")

    sizes: tuple[_Size, ...] = ()


def file_entry(path: str, data: bytes) -> FileEntry:
    return FileEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def write_folder(folder: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files by their paths in a folder, all of them or none. A folder that `require_place` allows is replaced,
    also through a link. Raises TargetError.
    """
    target = real_path(folder)
    require_place(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(target.parent) as scratch:
            new = scratch.path / NEW
            new.mkdir()
            for path, data in files:
                _require_inside(new, path)
                (new / path).parent.mkdir(parents=True, exist_ok=True)
                (new / path).write_bytes(data)
            _take_place(new, target, scratch.path / OLD)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TargetError(
            str(target), needs="a folder that can be written", has=reason, change="choose another folder with -o"
        ) from error


def require_place(folder: Path) -> None:
    """Raises TargetError unless the folder is new, empty, or an artifact that holds nothing else."""
    if not folder.exists():
        return
    files = (
        {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()} if folder.is_dir() else {""}
    )
    known = {MANIFEST, *_listing(folder / MANIFEST).paths()} if MANIFEST in files else set[str]()
    if other := sorted(files - known):
        raise TargetError(
            str(folder),
            needs="a folder that is new, empty or an artifact",
            has="other files" + (f" ({', '.join(other[:3])})" if folder.is_dir() else ""),
            change="choose another folder with -o",
        )


def _listing(path: Path) -> _Listing:
    """Raises TargetError."""
    try:
        return _Listing.model_validate_json(manifest_bytes(path))
    except ValidationError as error:
        raise broken_manifest(path, "a manifest that lists files", error) from error


def manifest_bytes(path: Path) -> bytes:
    """The text of a manifest, of any kind. Raises TargetError where there is none, or one that is too large."""
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise TargetError(str(path), needs=f"at most {MAX_MANIFEST_BYTES} bytes", has=str(path.stat().st_size))
        return path.read_bytes()
    except OSError as error:
        raise TargetError(
            str(path),
            needs="the manifest of an artifact",
            has=error.strerror or str(error),
            change="name a folder that `dsa-sched compile` wrote",
        ) from error


def format_of(manifest: bytes) -> str:
    """Format that a manifest names; empty if it names none."""
    try:
        return _Format.model_validate_json(manifest).format
    except ValidationError:
        return ""


def folders_of_sizes(manifest: bytes) -> tuple[str, ...]:
    """Folders of the sizes that a manifest of several sizes names; none where it cannot be read."""
    try:
        return tuple(size.folder for size in _Sizes.model_validate_json(manifest).sizes)
    except ValidationError:
        return ()


def broken_manifest(path: Path, needs: str, error: ValidationError) -> TargetError:
    """The error for an invalid manifest, about the first thing that is wrong."""
    first = error.errors()[0]
    said = ": ".join(part for part in (".".join(map(str, first["loc"])), first["msg"]) if part)
    return TargetError(str(path), needs=needs, has=said)


def read_file(root: Path, entry: FileEntry) -> bytes:
    """A file inside the folder, with the size and hash that the manifest lists. Raises TargetError."""
    path = root / entry.path
    _require_inside(root, entry.path)
    if not path.resolve().is_relative_to(root.resolve()):
        raise TargetError(str(root), needs="files inside the folder", has=entry.path)
    try:
        if path.stat().st_size != entry.bytes or entry.bytes > MAX_FILE_BYTES:
            raise TargetError(str(path), needs=f"{entry.bytes} bytes", has=f"{path.stat().st_size}")
        data = path.read_bytes()
    except OSError as error:
        raise TargetError(str(path), needs="a readable file", has=error.strerror or str(error)) from error
    return checked_file(data, entry, str(path))


def checked_file(data: bytes, entry: FileEntry, who: str = "") -> bytes:
    """The bytes of a file, which must be those that the manifest lists. Raises TargetError."""
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise TargetError(
            who or entry.path, needs="the content that the manifest says", has="another SHA-256", change="compile again"
        )
    return data


def packed(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Files by their paths as one string of bytes: a line of JSON with paths and sizes, then the files one after the
    other."""
    listed = tuple(files)
    head = json.dumps([(path, len(data)) for path, data in listed]).encode() + b"\n"
    return b"".join((head, *(data for _, data in listed)))


def unpacked(data: bytes) -> dict[str, bytes]:
    """The converse of `packed`. Raises TargetError for other bytes."""
    head, _, rest = data.partition(b"\n")
    try:
        sizes = [(str(path), int(size)) for path, size in json.loads(head)]
    except (ValueError, TypeError, RecursionError) as error:
        raise TargetError("packed artifact", needs="a line of paths and sizes", has=str(error)) from error
    files, start = {}, 0
    for path, size in sizes:
        files[path] = rest[start : start + size]
        start += size
    return files


def _require_inside(root: Path, path: str) -> None:
    """Raises TargetError for a path that leads out of the folder."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise TargetError(str(root), needs="files inside the folder", has=path)


def _take_place(new: Path, target: Path, old: Path) -> None:
    """Give `new` the name `target`; an existing folder moves to `old`, and back when that fails or is interrupted."""
    try:
        if target.exists():
            os.replace(target, old)
        os.replace(new, target)
    except BaseException:
        if old.exists() and not target.exists():
            os.replace(old, target)
        raise
