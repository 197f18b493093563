"""The artifact folder: everything that runs a compiled network, and the manifest that says how.

    Artifact --save--> DIR/{manifest.json, plan.txt, cluster0/program.elf, ...} --load--> Artifact --run--> outputs

The manifest names the kind of execution that each program needs. Of an `elf`, whoever places the inputs at their
addresses, runs it to its `tohost` store and reads the outputs needs nothing but the manifest; other kinds are named by
the target that made them and run by it. Folders come from strangers too: file names, sizes and hashes are checked
before anything is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from codegen.target import ELF, EXECUTION_KIND, ClusterFiles
from dsa_sched.artifact.origin import CHIP_FILE, FiguresEntry, OriginEntry
from dsa_sched.artifact.session import Session
from dsa_sched.artifact.tensors import TensorEntry, from_device, to_device
from dsa_sched.artifact.whole_folder import (
    MANIFEST,
    SIZES_FORMAT,
    STAGES_FORMAT,
    WEIGHTS_FILE,
    Entry,
    FileEntry,
    broken_manifest,
    checked_file,
    file_entry,
    folders_of_sizes,
    format_of,
    manifest_bytes,
    packed,
    read_file,
    unpacked,
    write_folder,
)
from hw_models.chip import Chip
from hw_models.errors import ModelError, TargetError
from hw_models.loading import parse_chip
from partitioner.cost.micro_batching import pass_count
from partitioner.ir.graph import Graph
from partitioner.ir.graph_text import parse_graph
from partitioner.ir.plan import Plan, parse_plan
from partitioner.ir.text import TextError

FORMAT: Literal["dsa-sched-artifact/4"] = "dsa-sched-artifact/4"
OLDER_FORMATS = ("dsa-sched-artifact/1", "dsa-sched-artifact/2", "dsa-sched-artifact/3")
"""Older formats, which are read as if they were this one. None says what it was made of; in the first two all programs
are executables, in a field `elf`."""
PLAN_FILE = "plan.txt"
GRAPH_FILE = "graph.txt"
"""Texts for readers. Artifacts of older versions have no graph."""

NEWER = ("indices", "state_of", "state_pairs", "packed")
"""Fields that older manifests do not have."""

Array = npt.NDArray[np.generic]
Parsed = TypeVar("Parsed")


def cluster_folder(cluster: int) -> str:
    """Folder of a cluster's files in an artifact."""
    return f"cluster{cluster}/"


class ExecutionEntry(Entry):
    """The way in which a program is executed: `elf` for the machine code in `file`, otherwise a kind that the target
    names, whose execution starts from `file`."""

    kind: Annotated[str, Field(pattern=EXECUTION_KIND)]
    file: str


class ProgramEntry(Entry):
    """The program of one cluster, and the number of its cores that start (0 where the hardware places the work).

    It computes `batch` rows of the leading axis of every input, from row `batch_start`, in a memory of its own, in
    which `inputs` and `outputs` lie. It runs `passes` times, each time on as many rows as `inputs` have; the last pass
    is filled up with rows of zeros, whose results are dropped.
    """

    cluster: int = Field(ge=0)
    execution: ExecutionEntry
    cores: int = Field(ge=0)
    batch_start: int = Field(ge=0)
    batch: int = Field(ge=0)
    passes: int = Field(default=1, ge=1, lt=1 << 40)
    """Format 1 has no such field: one pass."""
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    files: tuple[FileEntry, ...]

    @model_validator(mode="after")
    def _starts_cores(self) -> ProgramEntry:
        if self.execution.kind == ELF and self.cores < 1:
            raise ValueError("machine code needs at least one core")
        return self

    @property
    def folder(self) -> str:
        """Where its files lie in the artifact."""
        return cluster_folder(self.cluster)

    @property
    def batch_per_pass(self) -> int:
        """Rows that one run computes."""
        return self.inputs[0].shape[0] if self.inputs and self.inputs[0].shape else self.batch


class WeightsEntry(Entry):
    """Constants that lie in no executable, because programs for other sizes read them too: the bytes to be placed at
    `address` before any of these programs starts."""

    address: int = Field(ge=0, lt=1 << 40)
    bytes: int = Field(ge=0, lt=1 << 40)
    sha256: str


def weights_entry(address: int, weights: bytes) -> WeightsEntry:
    """The entry of shared constants that are placed at an address."""
    return WeightsEntry(address=address, bytes=len(weights), sha256=hashlib.sha256(weights).hexdigest())


class ChipId(Entry):
    name: str
    isa: str
    hash: str


class Manifest(Entry):
    """The manifest of an artifact. `tensors` lists everything placed in memory, including inputs and outputs; all three
    are those of the first program. `origin` is absent in artifacts of older versions, and `figures` also where the
    cycle model cannot time programs. `weights` is absent but in artifacts of one of several sizes."""

    format: Literal["dsa-sched-artifact/4"]
    model: str
    model_sha256: str
    graph_hash: str
    level: str
    batch: int
    chip: ChipId
    versions: dict[str, str]
    origin: OriginEntry | None = None
    figures: FiguresEntry | None = None
    weights: WeightsEntry | None = None
    programs: Annotated[tuple[ProgramEntry, ...], Field(min_length=1)]
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    tensors: tuple[TensorEntry, ...]
    files: tuple[FileEntry, ...]

    @property
    def divided(self) -> bool:
        """Whether the batch is divided among programs or passes, or does not fill the only pass."""
        return len(self.programs) > 1 or any(
            program.passes > 1 or program.batch < program.batch_per_pass for program in self.programs
        )

    def text(self) -> str:
        shown = self.model_dump(mode="json", exclude=None if self.weights else {"weights"})
        return json.dumps(_without_empty(shown), indent=1, sort_keys=False) + "\n"


def _without_empty(value: object) -> object:
    """The manifest as JSON without empty fields that older manifests did not have."""
    if isinstance(value, dict):
        return {name: _without_empty(part) for name, part in value.items() if name not in NEWER or part}
    return [_without_empty(part) for part in value] if isinstance(value, list) else value


@dataclass(frozen=True, repr=False)
class Artifact:
    """Manifest, files of each cluster (by the names of `ClusterFiles`), files for readers (plan, graph, chip), and the
    bytes of the manifest's `weights`. `model_path` is where the model was when it was compiled, and `folder` where the
    artifact was read; neither is saved."""

    manifest: Manifest
    clusters: tuple[ClusterFiles, ...]
    texts: Mapping[str, bytes]
    weights: bytes = b""
    model_path: str = field(default="", compare=False)
    folder: str = field(default="", compare=False)

    def save(self, folder: str | Path) -> None:
        """Write the folder as a whole or not at all. An artifact that is there, also through a link, is replaced;
        anything else is refused. Raises TargetError."""
        write_folder(Path(folder), self.files())

    def files(self) -> Iterator[tuple[str, bytes]]:
        """All files of the folder by their paths in it, the manifest last."""
        if self.manifest.weights is not None:
            yield WEIGHTS_FILE, self.weights
        yield from self.own_files()

    def own_files(self) -> Iterator[tuple[str, bytes]]:
        """The files but the weights that other sizes share."""
        for program, files in zip(self.manifest.programs, self.clusters, strict=True):
            yield from ((entry.path, data) for entry, data in zip(program.files, files.files.values(), strict=True))
        yield from self.texts.items()
        yield MANIFEST, self.manifest.text().encode()

    @staticmethod
    def load(folder: str | Path, weights: bytes | None = None) -> Artifact:
        """Read a folder that `save` wrote; `weights` are those that sizes share, where they were read already. Raises
        TargetError for anything missing, changed or outside the folder."""
        root = Path(folder)
        manifest = read_manifest(root / MANIFEST)
        made = _assembled(manifest, lambda entry: read_file(root, entry), str(root))
        return replace(made, folder=str(root), weights=_weights(root, manifest, weights))

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the manifest, which has those of all files: equal for artifacts of equal bytes."""
        return hashlib.sha256(self.manifest.text().encode()).hexdigest()

    def packed(self) -> bytes:
        """The folder as one string of bytes."""
        return packed(self.files())

    @staticmethod
    def unpacked(data: bytes, is_whole: bool = False) -> Artifact:
        """The converse of `packed`. The hashes of the files are not looked at where the caller has found that all bytes
        are as they were written, `is_whole`. Raises TargetError for bytes that are no folder of an artifact."""
        return Artifact.of_files(unpacked(data), is_whole)

    @staticmethod
    def of_files(files: Mapping[str, bytes], is_whole: bool = False) -> Artifact:
        """The artifact of the files of a folder by their paths. Raises TargetError as `unpacked` does."""
        manifest = checked_manifest(files.get(MANIFEST, b""), Path(MANIFEST))

        def read(entry: FileEntry) -> bytes:
            found = files.get(entry.path)
            if found is None or len(found) != entry.bytes or not is_whole:
                return checked_file(found or b"", entry)
            return found

        weights = read(_shared_file(manifest.weights)) if manifest.weights is not None else b""
        return replace(_assembled(manifest, read, MANIFEST), weights=weights)

    def with_weights(self, entry: WeightsEntry, weights: bytes) -> Artifact:
        """A copy whose programs find these constants in the main memory."""
        return replace(self, manifest=self.manifest.model_copy(update={"weights": entry}), weights=weights)

    def __repr__(self) -> str:
        made, count = self.manifest, len(self.manifest.programs)
        programs = f", {count} programs" if count > 1 else ""
        return f"<Artifact {made.model} for {made.chip.name}, level {made.level}, batch {made.batch}{programs}>"

    @cached_property
    def chip(self) -> Chip:
        """The chip that it was compiled for, as its own description. Raises TargetError where there is none, or
        another than the manifest says."""
        chip = parse_chip(self._text(CHIP_FILE), CHIP_FILE)
        self._require_same(CHIP_FILE, chip.hash, self.manifest.chip.hash)
        return chip

    @cached_property
    def graph(self) -> Graph:
        """The graph of one pass. Raises TargetError where the text is not that of the manifest's graph."""
        graph = self._parsed(GRAPH_FILE, parse_graph)
        self._require_same(GRAPH_FILE, graph.hash, self.manifest.graph_hash)
        return graph

    @cached_property
    def plan(self) -> Plan:
        """The plan of one pass, with its decisions. Raises TargetError where the text is no plan of this graph and
        chip."""
        plan = self._parsed(PLAN_FILE, parse_plan)
        self._require_same(PLAN_FILE, (plan.graph_hash, plan.chip_hash), (self.manifest.graph_hash, self.chip.hash))
        return plan

    @property
    def origin(self) -> OriginEntry:
        """What it was made of and how. Raises TargetError for an artifact of an older version."""
        if self.manifest.origin is None:
            raise _older(self, "its options")
        return self.manifest.origin

    def _text(self, name: str) -> str:
        if name not in self.texts:
            raise _older(self, name)
        try:
            return self.texts[name].decode()
        except UnicodeDecodeError as error:
            raise TargetError(f"{self.manifest.model}, {name}", needs="UTF-8 text", has=str(error)) from error

    def _parsed(self, name: str, parse: Callable[[str], Parsed]) -> Parsed:
        text = self._text(name)
        try:
            return parse(text)
        except (TextError, ValueError) as error:
            raise TargetError(
                f"{self.manifest.model}, {name}", needs="the text of a compilation", has=str(error)
            ) from error

    def _require_same(self, name: str, has: object, needs: object) -> None:
        if has != needs:
            raise TargetError(
                f"{self.manifest.model}, {name}", needs=f"what the manifest says: {needs}", has=str(has),
                change="compile again",
            )  # fmt: skip

    @property
    def input_elements(self) -> int:
        """Elements of all inputs of a whole run."""
        programs = self.manifest.programs
        return sum(prod(entry.shape) * program.passes for program in programs for entry in program.inputs)

    @property
    def own_constant_bytes(self) -> int:
        """Bytes of constants in its executables, next to the weights that other sizes share."""
        constants = [entry for entry in self.manifest.tensors if entry.kind == "constant"]
        shared = self.manifest.weights
        start, end = (shared.address, shared.address + shared.bytes) if shared is not None else (0, 0)
        return sum(entry.bytes for entry in constants if not start <= entry.address < end)

    @cached_property
    def _by_name(self) -> dict[str, TensorEntry]:
        return {entry.name: entry for entry in self.manifest.tensors}

    def tensor(self, name: str) -> TensorEntry:
        """Where a tensor lies. Raises KeyError."""
        return self._by_name[name]

    def encode(self, inputs: Mapping[str, Array], program: int = 0) -> dict[int, bytes]:
        """One program's ONNX arrays to device bytes by address. Raises ModelError naming what is wrong."""
        wanted = {entry.name: entry for entry in self.manifest.programs[program].inputs}
        if set(inputs) != set(wanted):
            raise ModelError("inputs", needs=", ".join(sorted(wanted)), has=", ".join(sorted(inputs)) or "none")
        return {wanted[name].address: to_device(wanted[name], array) for name, array in inputs.items()}

    def decode(self, memory: Mapping[tuple[int, int], bytes], program: int = 0) -> dict[str, Array]:
        """Device bytes of one program's outputs to arrays in ONNX layout and dtype."""
        entries = self.manifest.programs[program].outputs
        return {entry.name: from_device(entry, memory[entry.address, entry.bytes]) for entry in entries}

    def run(
        self,
        inputs: Mapping[str, Array],
        runner: str | None = None,
        seed: int = 0,
        progress: Callable[[str], None] = lambda _step: None,
    ) -> dict[str, Array]:
        """Run the network on `inputs` (ONNX layout and dtype) and return its outputs, likewise.

        `runner` is the command of another simulator or a board, see `dsa_sched.artifact.runner`. Raises ModelError for
        wrong inputs, TargetError when the run fails.
        """
        if not self.manifest.divided:
            return self._pass(inputs, 0, runner, seed)
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        for name, array in arrays.items():
            if array.ndim == 0 or len(array) != self.manifest.batch:
                raise ModelError(f"input {name}", needs=f"{self.manifest.batch} rows", has=f"shape {list(array.shape)}")
        feeds = [
            (program, last - first, {name: _filled(array[first:last], rows) for name, array in arrays.items()})
            for program, first, last, rows in self._passes()
        ]
        if any(entry.device_dtype == "int32" for entry in self.manifest.inputs):
            for program, _, feed in feeds:  # integers are refused before anything runs
                self.encode(feed, program)
        parts: list[dict[str, Array]] = []
        for number, (program, count, feed) in enumerate(feeds, 1):
            progress(f"running pass {number} of {len(feeds)} on cluster {self.manifest.programs[program].cluster}")
            done = self._pass(feed, program, runner, seed)
            parts.append({name: array[:count] for name, array in done.items()})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def session(self, state: Mapping[str, str] = MappingProxyType({})) -> Session:
        """Runs that follow each other, between which outputs that are an input's next value are kept. `state` names
        them as {output: input}; those of the usual spellings (present.0.key, past.0.key) are found. Raises ModelError
        for names or shapes that do not go together, and for a batch that is divided."""
        if self.manifest.divided:
            raise ModelError("a session", needs="one program that runs once", has=f"{self!r} in several passes")
        return Session(self, self.manifest, state)

    def _passes(self) -> Iterator[tuple[int, int, int, int]]:
        """Number of the program, first row, row after the last, and rows that a pass has, of every pass of a run."""
        for number, program in enumerate(self.manifest.programs):
            rows, end = program.batch_per_pass, program.batch_start + program.batch
            for first in range(program.batch_start, end, rows):
                yield number, first, min(first + rows, end), rows

    def _pass(self, inputs: Mapping[str, Array], number: int, runner: str | None, seed: int) -> dict[str, Array]:
        """Outputs of one run of one program."""
        from dsa_sched.artifact.runner import execute

        dumps = tuple((entry.address, entry.bytes) for entry in self.manifest.programs[number].outputs)
        done = execute(self, self.encode(inputs, number), dumps, runner, seed, number)
        return self.decode(done.memory, number)


def _assembled(manifest: Manifest, read: Callable[[FileEntry], bytes], who: str) -> Artifact:
    """The artifact of a manifest whose files `read` gives. Raises TargetError."""
    clusters = []
    for program in manifest.programs:
        files = {_name(program, entry.path): read(entry) for entry in program.files}
        start = program.execution.file
        if _name(program, start) not in files:
            raise TargetError(who, needs=f"the file {start}", has="no such file in the manifest")
        clusters.append(ClusterFiles(program.cores, _name(program, start), files, program.cluster))
    return Artifact(manifest, tuple(clusters), {entry.path: read(entry) for entry in manifest.files})


def _weights(root: Path, manifest: Manifest, given: bytes | None) -> bytes:
    """The shared constants of a folder, which lie in it or, for one size of several, around it. Raises TargetError."""
    if manifest.weights is None:
        return b""
    entry = _shared_file(manifest.weights)
    if given is not None and file_entry(WEIGHTS_FILE, given) == entry:
        return given
    return read_file(root if (root / WEIGHTS_FILE).exists() else root.absolute().parent, entry)


def _shared_file(weights: WeightsEntry) -> FileEntry:
    return FileEntry(path=WEIGHTS_FILE, bytes=weights.bytes, sha256=weights.sha256)


def same_programs(one: Artifact, other: Artifact) -> bool:
    """Whether the first programs of two artifacts are the same bytes."""
    return one.clusters[0] == other.clusters[0]


def _older(artifact: Artifact, name: str) -> TargetError:
    """Error to raise where something is asked for that older versions did not write."""
    return TargetError(
        f"artifact of {artifact.manifest.model}", needs=name, has="an artifact of an older version, without it",
        change="compile again",
    )  # fmt: skip


def _name(program: ProgramEntry, path: str) -> str:
    """A file's name among those of its cluster: its path inside the cluster's folder."""
    return path.removeprefix(program.folder) if path.startswith(program.folder) else Path(path).name


def _filled(array: Array, rows: int) -> Array:
    """The array followed by rows of zeros, `rows` in all."""
    missing = rows - len(array)
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)]) if missing else array


def read_manifest(path: Path) -> Manifest:
    """A manifest of this format or an older one, checked. Raises TargetError naming the file and what is wrong."""
    return checked_manifest(manifest_bytes(path), path)


def checked_manifest(data: bytes, path: Path) -> Manifest:
    """A manifest from the bytes of its file, which errors call `path`. Raises TargetError."""
    found = format_of(data)
    if found == SIZES_FORMAT:
        folders = ", ".join(map(str, folders_of_sizes(data)))
        raise TargetError(
            str(path),
            needs="the artifact of one size",
            has="programs for several sizes",
            change=f"name the folder of one in it: {folders or 'its manifest names none'}",
        )
    if found == STAGES_FORMAT:
        raise TargetError(
            str(path),
            needs="the artifact of one program",
            has="stages that chip and host run by turns",
            change="name the folder of a stage, such as stage0, in it",
        )
    try:
        manifest = _validated(data)
    except ValidationError as error:
        raise broken_manifest(path, f"a manifest of format {FORMAT}", error) from error
    ends = tuple(entry for program in manifest.programs for entry in program.inputs + program.outputs)
    for entry in manifest.tensors + manifest.inputs + manifest.outputs + ends:
        if sorted(entry.layout) != list(range(len(entry.shape))):
            raise TargetError(
                str(path), needs=f"a layout of {entry.name} that permutes its axes", has=str(entry.layout)
            )
        size = prod(entry.shape) * np.dtype(entry.device_dtype).itemsize
        if size != entry.bytes:
            raise TargetError(str(path), needs=f"{size} bytes of {entry.name}", has=str(entry.bytes))
    if manifest.divided:
        _require_division(path, manifest)
    return manifest


def _validated(data: bytes) -> Manifest:
    """A manifest from its JSON; one of an older format is converted to this one. Raises ValidationError."""
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        of_format = (problem["input"] for problem in error.errors() if problem["loc"] == ("format",))
        if next(of_format, None) not in OLDER_FORMATS:
            raise
        try:
            read = json.loads(data)
        except (ValueError, RecursionError):  # numbers of thousands of digits: no manifest either
            raise error from None
    programs = read.get("programs")
    renewed = [_with_execution(program) for program in programs] if isinstance(programs, list) else programs
    return Manifest.model_validate_json(json.dumps({**read, "format": FORMAT, "programs": renewed}))


def _with_execution(program: object) -> object:
    """Convert a program of an older format, whose executable is in `elf`; any other shape stays, to be refused."""
    if not isinstance(program, dict) or "elf" not in program:
        return program
    rest = {name: value for name, value in program.items() if name != "elf"}
    return {**rest, "execution": {"kind": ELF, "file": program["elf"]}}


def _require_division(path: Path, manifest: Manifest) -> None:
    """Require programs that together take all rows of the batch, in order, in as many passes as their tensors need."""
    start = 0
    for number, program in enumerate(manifest.programs):
        rows = program.batch_per_pass
        for entry in program.inputs + program.outputs:
            if not entry.shape or entry.shape[0] != rows:
                raise TargetError(str(path), needs=f"{rows} rows of {entry.name} per pass", has=str(list(entry.shape)))
        if program.batch_start != start or program.batch < 1:
            raise TargetError(
                str(path),
                needs=f"rows of program {number} from {start} on",
                has=f"{program.batch} from {program.batch_start} on",
            )
        start += program.batch
        if program.passes != pass_count(program.batch, rows):
            raise TargetError(
                str(path),
                needs=f"{pass_count(program.batch, rows)} passes of {rows} for {program.batch} rows",
                has=str(program.passes),
            )
    if start != manifest.batch:
        raise TargetError(str(path), needs=f"programs for {manifest.batch} rows", has=str(start))
