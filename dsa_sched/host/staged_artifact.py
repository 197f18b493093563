"""A folder of stages that chip and host run by turns: artifacts for the chip, ONNX files for onnxruntime on the host.

    StagedArtifact --save--> DIR/{manifest.json, stage0/..., stage1.onnx, ...} --load--> StagedArtifact --run--> outputs

Each folder of a stage is an artifact by itself, which every command accepts. Folders come from strangers: what the
manifest lists is checked by size and hash, and a model of the host as any model file is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import onnx
from pydantic import Field, ValidationError

from dsa_sched.artifact.format import Artifact
from dsa_sched.artifact.tensors import Dtype, Extent
from dsa_sched.artifact.whole_folder import (
    MANIFEST,
    STAGES_FORMAT,
    Entry,
    FileEntry,
    broken_manifest,
    file_entry,
    format_of,
    manifest_bytes,
    read_file,
    write_folder,
)
from dsa_sched.frontend.model_file import read_model
from dsa_sched.frontend.network.shapes import first_line
from hw_models.errors import ModelError, TargetError

Array = npt.NDArray[np.generic]


class EndEntry(Entry):
    """An input or output of the network, as in the ONNX file."""

    name: str
    shape: tuple[Extent, ...]
    dtype: Dtype


class StageEntry(Entry):
    """A stage and its place: `file` is the manifest of an artifact on the chip, an ONNX file on the host."""

    place: Literal["chip", "host"]
    file: str


class StagedManifest(Entry):
    """`stages` run in order; each reads inputs of the network and values of stages before it, by the file's names."""

    format: Literal["dsa-sched-stages/1"]
    model: str
    model_sha256: str
    on_host: tuple[str, ...]
    inputs: tuple[EndEntry, ...]
    outputs: tuple[EndEntry, ...]
    stages: Annotated[tuple[StageEntry, ...], Field(min_length=1)]
    files: tuple[FileEntry, ...]

    def text(self) -> str:
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=False) + "\n"


@dataclass(frozen=True)
class StagedArtifact:
    """The stages in order: an artifact of the chip, or a model of the host."""

    manifest: StagedManifest
    stages: tuple[Artifact | onnx.ModelProto, ...]

    def save(self, folder: str | Path) -> None:
        """Write the folder as a whole or not at all. Raises TargetError as `Artifact.save` does."""
        write_folder(Path(folder), (*self._files(), (MANIFEST, self.manifest.text().encode())))

    def _files(self) -> Iterator[tuple[str, bytes]]:
        for entry, stage in zip(self.manifest.stages, self.stages, strict=True):
            yield from _stage_files(entry, stage)

    @staticmethod
    def load(folder: str | Path) -> StagedArtifact:
        """Read a folder that `save` wrote. Raises TargetError for anything missing, changed or outside the folder, and
        ModelError for a model of the host that cannot be read."""
        root = Path(folder)
        path = root / MANIFEST
        try:
            manifest = StagedManifest.model_validate_json(manifest_bytes(path))
        except ValidationError as error:
            raise broken_manifest(path, f"a manifest of format {STAGES_FORMAT}", error) from error
        for entry in manifest.files:
            read_file(root, entry)
        listed = {entry.path for entry in manifest.files}
        if missing := sorted({stage.file for stage in manifest.stages} - listed):
            raise TargetError(str(path), needs=f"the file {missing[0]} of a stage", has="no such file in the manifest")
        return StagedArtifact(manifest, tuple(_loaded(root, stage) for stage in manifest.stages))

    @property
    def input_elements(self) -> int:
        """Elements of all inputs of a run."""
        return sum(prod(entry.shape) for entry in self.manifest.inputs)

    def run(
        self,
        inputs: Mapping[str, Array],
        runner: str | None = None,
        seed: int = 0,
        progress: Callable[[str], None] = lambda _step: None,
    ) -> dict[str, Array]:
        """Run the network on `inputs` (ONNX layout and dtype) and return its outputs, likewise.

        Raises ModelError for wrong inputs, TargetError when the run fails or a stage lacks a value."""
        wanted = {entry.name: entry for entry in self.manifest.inputs}
        if set(inputs) != set(wanted):
            raise ModelError("inputs", needs=", ".join(sorted(wanted)), has=", ".join(sorted(inputs)) or "none")
        values: dict[str, Array] = {}
        for name, entry in wanted.items():
            array = np.asarray(inputs[name])
            if tuple(array.shape) != entry.shape:
                raise ModelError(f"input {name}", needs=f"shape {list(entry.shape)}", has=str(list(array.shape)))
            values[name] = array.astype(entry.dtype)
        for number, stage in enumerate(self.stages, 1):
            place = self.manifest.stages[number - 1].place
            progress(f"stage {number} of {len(self.stages)}, on the {place}")
            names = stage_inputs(stage)
            if unknown := sorted(set(names) - set(values)):
                raise TargetError(
                    f"stage {number}", needs=f"the value {unknown[0]}", has="no earlier stage that makes it"
                )
            feed = {name: values[name] for name in names}
            if isinstance(stage, Artifact):
                values |= stage.run(feed, runner, seed, progress)
            else:
                values |= run_on_host(stage, feed)
        if lost := [entry.name for entry in self.manifest.outputs if entry.name not in values]:
            raise TargetError(f"output {lost[0]}", needs="a stage that makes it", has="none")
        return {entry.name: values[entry.name] for entry in self.manifest.outputs}


def is_staged(folder: Path) -> bool:
    """Whether a folder holds stages of chip and host. Raises TargetError for one without a manifest."""
    return format_of(manifest_bytes(folder / MANIFEST)) == STAGES_FORMAT


def staged_artifact(
    model: str,
    sha256: str,
    on_host: tuple[str, ...],
    ends: tuple[tuple[EndEntry, ...], tuple[EndEntry, ...]],
    stages: tuple[Artifact | onnx.ModelProto, ...],
) -> StagedArtifact:
    """Gather the stages of a network, whose inputs and outputs are `ends`."""
    entries = tuple(
        StageEntry(place="chip", file=f"stage{number}/{MANIFEST}")
        if isinstance(stage, Artifact)
        else StageEntry(place="host", file=f"stage{number}.onnx")
        for number, stage in enumerate(stages)
    )
    files = tuple(
        file_entry(path, data)
        for entry, stage in zip(entries, stages, strict=True)
        for path, data in _stage_files(entry, stage)
    )
    manifest = StagedManifest(
        format="dsa-sched-stages/1",
        model=model,
        model_sha256=sha256,
        on_host=on_host,
        inputs=ends[0],
        outputs=ends[1],
        stages=entries,
        files=files,
    )
    return StagedArtifact(manifest, stages)


def run_on_host(model: onnx.ModelProto, feed: Mapping[str, Array]) -> dict[str, Array]:
    """All outputs of a stage on the host's processor, by their names. onnxruntime computes every operator of ONNX as
    the reference does. Raises ModelError with onnxruntime's own message."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    names = [item.name for item in model.graph.output]
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return dict(zip(names, session.run(names, dict(feed)), strict=True))
    except Exception as error:  # onnxruntime has a separate class for each reason
        raise ModelError(
            "stage on the host", needs="operators that onnxruntime can run", has=first_line(error)
        ) from error


def stage_inputs(stage: Artifact | onnx.ModelProto) -> tuple[str, ...]:
    if isinstance(stage, Artifact):
        return tuple(entry.name for entry in stage.manifest.inputs)
    return tuple(item.name for item in stage.graph.input)


def _stage_files(entry: StageEntry, stage: Artifact | onnx.ModelProto) -> Iterator[tuple[str, bytes]]:
    if isinstance(stage, Artifact):
        folder = Path(entry.file).parent
        yield from ((str(folder / path), data) for path, data in stage.files())
    else:
        yield entry.file, stage.SerializeToString(deterministic=True)


def _loaded(root: Path, entry: StageEntry) -> Artifact | onnx.ModelProto:
    path = root / entry.file
    if entry.place == "host":
        return read_model(path, known="runtime").model
    if path.name != MANIFEST:
        raise TargetError(str(root / MANIFEST), needs=f"a stage of the chip to be a {MANIFEST}", has=entry.file)
    return Artifact.load(path.parent)
