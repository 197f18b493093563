"""The pack: a manifest and objects by the hash of their content. Equal content lies there once.

    manifest.json       programs, and the names of their objects
    objects/<hash>      compressed bytes; the name is the start of the SHA-256 of what they unfold to

Written here, read there with the standard library. Equal packs have equal bytes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from hw_models.errors import FileError
from hw_models.scratch import replace_file

__all__ = ["FORMAT", "NEEDED", "Pack", "PackWriter", "Program", "checkout_hash", "expected_ms", "read_pack"]

FORMAT = "dsa-sched-gpu-pack/1"
MANIFEST, OBJECTS = "manifest.json", "objects"
MOST_MANIFEST_BYTES, MOST_OBJECT_BYTES, MOST_RESULT_BYTES = 64 << 20, 1 << 30, 256 << 20
NAME_DIGITS = 32
NAME = re.compile(rf"[0-9a-f]{{{NAME_DIGITS}}}")
NEEDED = ("benchmarks/gpu", "codegen", "hw_models", "partitioner")
"""Packages of the checkout that steps read."""


def expected_ms(kernels: Mapping[str, Mapping[str, Any]]) -> tuple[float, float]:
    """What kernels one after the other are expected to take, and by how much that is wrong if all of them are as far
    off as half of those that were measured, in one direction. Their floors, and 0, where nothing was measured."""
    times = [float(kernel["expected_ms"]) for kernel in kernels.values()]
    errors = [float(kernel["error"]) for kernel in kernels.values()]
    return sum(times), sum(time * error for time, error in zip(times, errors, strict=True))


@dataclass(frozen=True)
class Program:
    """One compiled network of the manifest: `key` is network, batch, level and chip in a word."""

    entry: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.network} x{self.batch} {self.level} {self.chip}" + ("" if self.reuses else " kept")

    @property
    def network(self) -> str:
        return str(self.entry["network"])

    @property
    def batch(self) -> int:
        return int(self.entry["batch"])

    @property
    def level(self) -> str:
        return str(self.entry["level"])

    @property
    def chip(self) -> str:
        return str(self.entry["chip"])

    @property
    def reuses(self) -> bool:
        """Do values share memory by their lifetimes?"""
        return bool(self.entry["reuses"])

    @property
    def group(self) -> str:
        """The group that is forced into one kernel, for programs of the study; "" where none is."""
        return str(self.entry.get("group", ""))

    @property
    def same(self) -> str:
        """The way of the study that has the same kernels and is packed; "" for one that is packed itself."""
        return str(self.entry.get("same", ""))

    @property
    def kernels(self) -> dict[str, Any]:
        """Floors by group: see `benchmarks.gpu.floors`."""
        return dict(self.entry["kernels"])


@dataclass(frozen=True)
class Pack:
    """A pack that is read. `hash` is that of its manifest, and so of all. Programs are unfolded once into folders in
    `kept`, or each time anew where that is None."""

    folder: Path
    hash: str
    manifest: dict[str, Any]
    kept: Path | None = None

    def __hash__(self) -> int:
        return hash(self.hash)

    @property
    def programs(self) -> tuple[Program, ...]:
        return tuple(Program(entry) for entry in self.manifest["programs"])

    @property
    def studied(self) -> tuple[Program, ...]:
        """Ways to compute the subjects of the case study; `level` is the way."""
        return tuple(Program(entry) for entry in self.manifest["study"])

    @property
    def candidates(self) -> tuple[Program, ...]:
        """Candidates of single groups, each forced; `level` is the group with its kernel."""
        return tuple(Program(entry) for entry in self.manifest["candidates"])

    def object(self, name: str) -> bytes:
        """Raises FileError for an object that is missing, too large or of another content."""
        path = self.folder / OBJECTS / str(name)
        if not NAME.fullmatch(str(name)) or not path.is_file():
            raise FileError(f"{self.folder}", needs="its objects", has=f"none of the name {str(name)[:80]}")
        unfolding = zlib.decompressobj()
        try:
            data = unfolding.decompress(path.read_bytes(), MOST_OBJECT_BYTES)
        except zlib.error as error:
            raise FileError(f"{path}", needs="compressed bytes", has=str(error)) from error
        if unfolding.unconsumed_tail or _name(data) != name:
            raise FileError(f"{path}", needs="the content that its name is the hash of", has="another")
        return data

    def text(self, name: str) -> str:
        return self.object(name).decode()


@dataclass
class PackWriter:
    """Objects as they are added; `finish` writes the manifest. Several may write to a folder that one has begun."""

    folder: Path
    written: dict[str, int] = field(default_factory=dict)
    """Bytes of each object that this one has added."""

    @classmethod
    def begun(cls, folder: Path) -> PackWriter:
        """In an empty folder, or one of an older pack, whole or not. Raises FileError for a folder that has something
        else in it."""
        others = {path.name for path in folder.iterdir()} - {OBJECTS} if folder.exists() else set()
        if others and MANIFEST not in others:
            raise FileError(f"{folder}", needs="an empty folder or an older pack", has="other files")
        (folder / OBJECTS).mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        return cls(folder)

    def add(self, data: bytes) -> str:
        """The object's name."""
        name = _name(data)
        if name not in self.written:
            packed = zlib.compress(data)
            replace_file(self.folder / OBJECTS / name, lambda file: file.write(packed))
            self.written[name] = len(packed)
        return name

    def finish(self, manifest: dict[str, Any]) -> int:
        """The bytes of all files. Objects of an older pack go."""
        for path in (self.folder / OBJECTS).iterdir():
            if NAME.fullmatch(path.name) and path.name not in self.written:
                path.unlink()
        text = json.dumps({"format": FORMAT, **manifest}, indent=1, sort_keys=True).encode() + b"\n"
        (self.folder / MANIFEST).write_bytes(text)
        return len(text) + sum(self.written.values())


def read_pack(folder: Path) -> Pack:
    """Raises FileError for a folder that is no pack of this format."""
    path = folder / MANIFEST
    if not path.is_file() or path.stat().st_size > MOST_MANIFEST_BYTES:
        raise FileError(f"{folder}", needs=f"a pack with a {MANIFEST}", has="none", change="make gpu-pack builds one")
    data = path.read_bytes()
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}", needs="JSON", has=str(error)) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        has = str(manifest.get("format")) if isinstance(manifest, dict) else type(manifest).__name__
        raise FileError(f"{path}", needs=f"format {FORMAT}", has=has)
    return Pack(folder, sha256(data).hexdigest(), manifest)


def read_list(path: Path, key: str) -> list[Any]:
    """The list of this name in a JSON file of results. Raises FileError for a file of something else."""
    if not path.is_file() or path.stat().st_size > MOST_RESULT_BYTES:
        raise FileError(f"{path}", needs=f"a file of at most {MOST_RESULT_BYTES} bytes", has="none such")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}", needs="JSON", has=str(error)) from error
    if not isinstance(found, dict) or not isinstance(found.get(key), list):
        raise FileError(f"{path}", needs=f"an object with a list {key}", has="another")
    return list(found[key])


def checkout_hash(root: Path) -> str:
    """Of the Python files that steps read: a pack is judged by the code that it was made with."""
    digest = sha256()
    for path in sorted(path for package in NEEDED for path in (root / package).rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _name(data: bytes) -> str:
    return sha256(data).hexdigest()[:NAME_DIGITS]
