"""A folder of several sizes of one network: an artifact for each combination of sizes, and the weights of all.

    SizedArtifact --save--> DIR/{manifest.json, weights.bin, sequence=64/..., sequence=1/...} --load--> SizedArtifact

Each folder of a size is an artifact by itself, which every command accepts; it finds its weights in the folder around
it. Folders come from strangers: what the manifest lists is checked by size and hash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.session import Session
from dsa_sched.artifact.whole_folder import (
    MANIFEST,
    SIZES_FORMAT,
    WEIGHTS_FILE,
    Entry,
    FileEntry,
    broken_manifest,
    file_entry,
    format_of,
    manifest_bytes,
    packed,
    read_file,
    unpacked,
    write_folder,
)
from dsa_sched.sizes import padded_run
from dsa_sched.sizes.combinations import combination_name
from dsa_sched.sizes.ends_check import ends_problem
from dsa_sched.sizes.entries import PaddingEntry
from hw_models.errors import ModelError, TargetError

Array = npt.NDArray[np.generic]
Size = Annotated[int, Field(ge=1, lt=1 << 40)]


class SizeEntry(Entry):
    """The artifact of a combination: a size for each axis, and the folder that holds it."""

    sizes: dict[str, Size]
    folder: str


class SizedManifest(Entry):
    """`axes` are the names of all axes, `sizes` the programs of all combinations, the largest first. `ends` says how
    runs at sizes in between are padded and cut, unless the artifact runs at `exact` sizes alone."""

    format: Literal["dsa-sched-sizes/1"]
    model: str
    model_sha256: str
    axes: Annotated[tuple[str, ...], Field(min_length=1)]
    ends: PaddingEntry
    exact: bool
    sizes: Annotated[tuple[SizeEntry, ...], Field(min_length=1)]
    files: tuple[FileEntry, ...]

    def text(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=False) + "\n"


@dataclass(frozen=True, repr=False)
class SizedArtifact:
    """The artifacts of all combinations, in the order of the manifest."""

    manifest: SizedManifest
    artifacts: tuple[Artifact, ...]
    folder: str = field(default="", compare=False)

    def save(self, folder: str | Path) -> None:
        """Write the folder as a whole or not at all. Raises TargetError as `Artifact.save` does."""
        write_folder(Path(folder), self.files())

    def files(self) -> Iterator[tuple[str, bytes]]:
        """All files by their paths in the folder, the manifest last."""
        yield from sized_files(self.manifest.sizes, self.artifacts)
        yield MANIFEST, self.manifest.text().encode()

    @staticmethod
    def load(folder: str | Path) -> SizedArtifact:
        """Read a folder that `save` wrote. Raises TargetError for anything missing, changed or outside the folder."""
        root = Path(folder)
        manifest = _checked(manifest_bytes(root / MANIFEST), root / MANIFEST)
        entries = {entry.path: entry for entry in manifest.files}
        for size in manifest.sizes:  # whose own files its manifest lists
            read_file(root, entries[f"{size.folder}/{MANIFEST}"])
        weights = read_file(root, entries[WEIGHTS_FILE]) if WEIGHTS_FILE in entries else None
        artifacts = tuple(Artifact.load(root / size.folder, weights) for size in manifest.sizes)
        return _fitting(SizedArtifact(manifest, artifacts, str(root)), root / MANIFEST)

    def packed(self) -> bytes:
        """The folder as one string of bytes."""
        return packed(self.files())

    @staticmethod
    def unpacked(data: bytes) -> SizedArtifact:
        """The converse of `packed`, for bytes that are as they were written. Raises TargetError for other bytes."""
        files = unpacked(data)
        manifest = _checked(files.get(MANIFEST, b""), Path(MANIFEST))
        weights = {WEIGHTS_FILE: files.get(WEIGHTS_FILE, b"")}
        by_folder = (
            {path.removeprefix(start): own for path, own in files.items() if path.startswith(start)}
            for start in (f"{size.folder}/" for size in manifest.sizes)
        )
        artifacts = tuple(Artifact.of_files({**own, **weights}, True) for own in by_folder)
        return _fitting(SizedArtifact(manifest, artifacts), Path(MANIFEST))

    def __repr__(self) -> str:
        names = "; ".join(combination_name(entry.sizes) for entry in self.manifest.sizes)
        return f"<SizedArtifact {self.manifest.model}, {len(self.artifacts)} programs: {names}>"

    @cached_property
    def by_sizes(self) -> dict[tuple[int, ...], Artifact]:
        """The artifacts by their sizes, in the order of the axes."""
        return {
            tuple(entry.sizes[axis] for axis in self.manifest.axes): artifact
            for entry, artifact in zip(self.manifest.sizes, self.artifacts, strict=True)
        }

    @property
    def axis_sizes(self) -> dict[str, tuple[int, ...]]:
        """The sizes of each axis, in order."""
        return {
            axis: tuple(sorted({entry.sizes[axis] for entry in self.manifest.sizes})) for axis in self.manifest.axes
        }

    def at(self, **sizes: int) -> Artifact:
        """The artifact of one combination. Raises ModelError where there is none."""
        wanted = tuple(sizes.get(axis, 0) for axis in self.manifest.axes)
        if wanted not in self.by_sizes or set(sizes) != set(self.manifest.axes):
            names = "; ".join(combination_name(entry.sizes) for entry in self.manifest.sizes)
            raise ModelError("sizes", needs=f"one of {names}", has=combination_name(sizes) or "none")
        return self.by_sizes[wanted]

    @property
    def input_elements(self) -> int:
        """Elements of all inputs of a run at the largest sizes."""
        return max(artifact.input_elements for artifact in self.artifacts)

    def choice(self, inputs: Mapping[str, Array]) -> Choice:
        """The smallest combination that holds these inputs. Raises ModelError where none does."""
        made = self.manifest
        names = {entry.name for entry in made.ends.inputs}
        if names != set(inputs):
            raise ModelError("inputs", needs=", ".join(sorted(names)), has=", ".join(sorted(inputs)) or "none")
        found = {axis: listed[0] for axis, listed in self.axis_sizes.items()} | padded_run.rows_of(
            made.ends.inputs, inputs
        )
        wanted = self.holding(found)
        return Choice(found, wanted, self.at(**wanted))

    def holding(self, rows: Mapping[str, int]) -> dict[str, int]:
        """The smallest size of each axis for as many rows. Raises ModelError where there is none."""
        wanted = dict[str, int]()
        for axis, listed in self.axis_sizes.items():
            larger = [size for size in listed if size >= rows[axis]]
            exact = self.manifest.exact
            if not larger or (exact and larger[0] != rows[axis]):
                raise ModelError(
                    f"{axis}={rows[axis]}",
                    needs=f"one of the sizes {', '.join(map(str, listed))}" if exact else f"at most {listed[-1]}",
                    has=str(rows[axis]),
                    change=f"compile with --sizes {axis}={','.join(map(str, sorted({*listed, rows[axis]})))}",
                )
            wanted[axis] = larger[0]
        return wanted

    def run(
        self,
        inputs: Mapping[str, Array],
        runner: str | None = None,
        seed: int = 0,
        progress: Callable[[str], None] = lambda _step: None,
    ) -> dict[str, Array]:
        """Run the network on `inputs` (ONNX layout and dtype) by the program of the smallest sizes that hold them, and
        return its outputs, both padded and cut where sizes lie in between. Raises ModelError for inputs that no program
        holds or takes, and TargetError when the run fails."""
        choice = self.choice(inputs)
        if choice.found == choice.wanted:
            return choice.artifact.run(inputs, runner, seed, progress)
        ends = self.manifest.ends
        fed = padded_run.padded(ends, inputs, choice.found, choice.wanted)
        try:
            made = choice.artifact.run(fed, runner, seed, progress)
        except ModelError as error:
            said = f"{error.needs}, by {choice.line.partition(',')[0]}"
            change = "run fewer rows at once, or compile their number as a size of its own"
            raise ModelError(error.who, needs=said, has=error.has, change=change) from error
        types = {entry.name: entry.device_dtype for entry in choice.artifact.manifest.inputs}
        with np.errstate(over="ignore"):
            stored = {name: np.asarray(array).astype(types[name]) for name, array in inputs.items()}
        return padded_run.cut(ends, made, stored, choice.found, choice.wanted)

    def only(self, **sizes: int) -> SizedArtifact:
        """The combinations that have these sizes alone, for example those of one batch. Raises ModelError for none."""
        kept = [number for number, entry in enumerate(self.manifest.sizes) if sizes.items() <= entry.sizes.items()]
        if not kept:
            listed = "; ".join(f"{axis}={','.join(map(str, each))}" for axis, each in self.axis_sizes.items())
            raise ModelError("sizes", needs=f"some of {listed}", has=combination_name(sizes) or "none")
        entries = tuple(self.manifest.sizes[number] for number in kept)
        made = self.manifest.model_copy(update={"sizes": entries})
        return replace(self, manifest=made, artifacts=tuple(self.artifacts[number] for number in kept))

    def session(self, state: Mapping[str, str] = MappingProxyType({})) -> Session:
        """Runs that follow each other, each at sizes of its own, between which outputs that are an input's next value
        are kept. `state` names them as {output: input}; those of the usual spellings are found. Raises ModelError for
        names or shapes that do not go together, for values of other shapes at other sizes, and for a batch that is
        divided."""
        first = self.artifacts[0]
        pairs = first.session(state).pairs
        for artifact in self.artifacts[1:]:
            shapes = {entry.name: entry.shape for entry in artifact.manifest.inputs}
            own = {entry.name: entry.shape for entry in first.manifest.inputs}
            artifact.session(pairs)
            for name in pairs.values():
                if shapes[name] != own[name]:
                    raise ModelError(
                        f"state {name}",
                        needs=f"one shape at all sizes: {list(own[name])}",
                        has=f"also {list(shapes[name])}",
                        change="choose the programs of one size with `only`",
                    )
        varies = {entry.name: frozenset(rows.dim for rows in entry.rows) for entry in self.manifest.ends.inputs}
        return Session(self, first.manifest, pairs, varies)


def _checked(data: bytes, path: Path) -> SizedManifest:
    """A manifest from the bytes of its file. Raises TargetError."""
    try:
        manifest = SizedManifest.model_validate_json(data)
    except ValidationError as error:
        raise broken_manifest(path, f"a manifest of format {SIZES_FORMAT}", error) from error
    listed = {entry.path for entry in manifest.files}
    for size in manifest.sizes:
        if f"{size.folder}/{MANIFEST}" not in listed:
            raise TargetError(str(path), needs=f"the folder {size.folder} of a size", has="none in the manifest")
        if set(size.sizes) != set(manifest.axes):
            raise TargetError(str(path), needs=f"sizes of {', '.join(manifest.axes)}", has=str(size.sizes))
    return manifest


def _fitting(made: SizedArtifact, path: Path) -> SizedArtifact:
    """The artifact, whose manifest must say of padding what its programs have. Raises TargetError."""
    for entry, artifact in zip(made.manifest.sizes, made.artifacts, strict=True):
        problem = ends_problem(made.manifest.ends, entry.sizes, artifact.manifest, made.manifest.exact)
        if problem:
            raise TargetError(str(path), needs=f"ends of {combination_name(entry.sizes)} as they are", has=problem)
    return made


@dataclass(frozen=True)
class Choice:
    """The rows along each axis that inputs have, those of the program that runs them, and its artifact."""

    found: Mapping[str, int]
    wanted: Mapping[str, int]
    artifact: Artifact

    @property
    def line(self) -> str:
        """`program sequence=16: sequence is padded from 13 to 16, and outputs are cut`."""
        grown = [f"{a} is padded from {self.found[a]} to {n}" for a, n in self.wanted.items() if n > self.found[a]]
        said = f": {', '.join(grown)}, and outputs are cut" if grown else ""
        return f"program {combination_name(self.wanted)}{said}"


def is_sized(folder: Path) -> bool:
    """Whether a folder holds several sizes. Raises TargetError for one without a manifest."""
    return format_of(manifest_bytes(folder / MANIFEST)) == SIZES_FORMAT


def sized_files(sizes: tuple[SizeEntry, ...], artifacts: tuple[Artifact, ...]) -> Iterator[tuple[str, bytes]]:
    """Files of all sizes by their paths, the weights once."""
    if artifacts[0].manifest.weights is not None:
        yield WEIGHTS_FILE, artifacts[0].weights
    for entry, artifact in zip(sizes, artifacts, strict=True):
        yield from ((f"{entry.folder}/{path}", data) for path, data in artifact.own_files())


def sized_artifact(
    combinations: tuple[Mapping[str, int], ...],
    artifacts: tuple[Artifact, ...],
    ends: PaddingEntry,
    exact: bool,
) -> SizedArtifact:
    """Gather the artifacts of all combinations."""
    sizes = tuple(SizeEntry(sizes=dict(each), folder=combination_name(each)) for each in combinations)
    first = artifacts[0].manifest
    manifest = SizedManifest(
        format="dsa-sched-sizes/1",
        model=first.model,
        model_sha256=first.model_sha256,
        axes=tuple(combinations[0]),
        ends=ends,
        exact=exact,
        sizes=sizes,
        files=tuple(file_entry(path, data) for path, data in sized_files(sizes, artifacts)),
    )
    return SizedArtifact(manifest, artifacts)
