"""Scenarios: the devices on which a network may run, and the links between them.

    scenario.yaml --bounded YAML--> fields --> Scenario(devices, links)

The first device is the host, where inputs come from and outputs go. Scenario files may come from anywhere and are read
like chip files: nothing in them is executed, and messages name file, line and field.
"""

from __future__ import annotations

import json
from itertools import combinations, permutations
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsa_sched.placement.model.problem import MOST_MACHINES, MOST_STREAMS, Machine, Route
from hw_models.chip import Chip
from hw_models.errors import ChipError, FileProblem, PlacementError
from hw_models.field_problems import field_problems
from hw_models.loading import load_chip, read_text
from hw_models.parts import Line, Name
from hw_models.yaml_nodes import Path as FieldPath
from hw_models.yaml_nodes import read_document

Rate = Annotated[float, Field(ge=1e3, le=1e18, allow_inf_nan=False)]
Microseconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Streams = Annotated[int, Field(ge=1, le=MOST_STREAMS)]


class ScenarioPart(BaseModel):
    """Rules of every part of a scenario: immutable, no conversion between types, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Roofline(ScenarioPart):
    """Best rates of a device: the analytic price of a task is its launch plus the longer of work and traffic.

    A multiply-accumulate is two operations. Below `full_bytes` of output a task cannot fill the device and its work
    goes on at that part of the rate, so that others may run next to it.
    """

    flops_per_second: Rate
    bytes_per_second: Rate
    launch_us: Microseconds = 0
    full_bytes: Annotated[int, Field(ge=0, le=1 << 50)] = 0


class RooflineDevice(ScenarioPart):
    """A device that exists only as numbers: `streams` tasks at a time; a barrier over them takes `stage_us`."""

    kind: Literal["roofline"]
    name: Name
    roofline: Roofline
    streams: Streams = 1
    stage_us: Microseconds = 0


class HostDevice(ScenarioPart):
    """A host that computes nothing: only inputs and outputs are there."""

    kind: Literal["host"]
    name: Name


class OnnxruntimeDevice(ScenarioPart):
    """The processor through onnxruntime, with `threads` threads; 0 means one per core."""

    kind: Literal["onnxruntime"]
    name: Name
    threads: Annotated[int, Field(ge=0, le=1024)] = 1
    optimise: bool = True
    roofline: Roofline | None = None


class TvmDevice(ScenarioPart):
    """The processor through TVM, on one thread. `mcpu` is an LLVM name such as skylake; the host's where not given."""

    kind: Literal["tvm"]
    name: Name
    mcpu: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=64)] | None = None
    roofline: Roofline | None = None


class CudaDevice(ScenarioPart):
    """An NVIDIA GPU through onnxruntime; with `graphs`, each part is captured as a CUDA graph and replayed."""

    kind: Literal["cuda"]
    name: Name
    index: Annotated[int, Field(ge=0, le=255)] = 0
    streams: Streams = 1
    stage_us: Microseconds = 0
    graphs: bool = False
    roofline: Roofline | None = None


class ChipDevice(ScenarioPart):
    """One cluster of a chip of hw_models: `chip` is a name or a path, `level` that of the compiler.

    `launch_us` is the host's time to start a program, in place of the launch in the chip file; on a GPU, whose file
    gives the time from one kernel to the next, it comes on top. The device is simulated: results are computed, and
    times are those of the chip's clock, not real time.
    """

    kind: Literal["chip"]
    name: Name
    chip: Annotated[str, Field(min_length=1, max_length=400)]
    cluster: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    level: Literal["O0", "O1", "O2", "O3", "auto"] = "auto"
    launch_us: Microseconds | None = None


Device = Annotated[
    HostDevice | RooflineDevice | OnnxruntimeDevice | TvmDevice | CudaDevice | ChipDevice, Field(discriminator="kind")
]


class ScenarioLink(ScenarioPart):
    """Joins any two of `between`. Each direction of each pair is a separate wire, which carries one value at a time,
    unless `wire` names one that all pairs and directions of all links with that name share.

    With `measured`, copies are timed before anything is placed, where both ends are real; the numbers hold until then.
    """

    between: Annotated[tuple[Name, ...], Field(min_length=2, max_length=MOST_MACHINES)]
    latency_us: Microseconds
    gigabytes_per_second: Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
    wire: Name | None = None
    measured: bool = False


class Scenario(ScenarioPart):
    """Devices and links. The first device is the host."""

    schema_version: Literal[1]
    name: Name
    description: Line
    devices: Annotated[tuple[Device, ...], Field(min_length=1, max_length=MOST_MACHINES)]
    links: Annotated[tuple[ScenarioLink, ...], Field(max_length=MOST_MACHINES**2)] = ()

    def machines(self) -> tuple[Machine, ...]:
        """The devices as methods see them."""
        return tuple(
            Machine(device.name, device.streams, _ns(device.stage_us))
            if isinstance(device, (RooflineDevice, CudaDevice))
            else Machine(device.name)
            for device in self.devices
        )

    def routes(self) -> tuple[Route, ...]:
        """One route per direction of every pair of devices."""
        found = []
        for link in self.links:
            for pair in combinations(link.between, 2):
                for source, target in (pair, pair[::-1]):
                    wire = link.wire or f"{source} to {target}"
                    speed = round(link.gigabytes_per_second * 1e9)
                    found.append(Route(source, target, _ns(link.latency_us), speed, wire))
        return tuple(found)

    def measured_pairs(self) -> frozenset[tuple[str, str]]:
        """Both directions of the pairs whose links are to be timed."""
        links = [link for link in self.links if link.measured]
        return frozenset(pair for link in links for pair in permutations(link.between, 2))


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def read_scenario(path: Path) -> Scenario:
    """Read, check and build the scenario of a file. Raises PlacementError with every problem of the file.

    Paths of chip files in it are relative to its folder.
    """
    return parse_scenario(read_text(path, "scenario file", PlacementError), str(path), path.parent)


def parse_scenario(text: str, file: str, folder: Path = Path()) -> Scenario:
    """Build the scenario of a YAML text, which messages call `file`. Raises PlacementError."""
    document = read_document(text, "scenario file")
    if document.problems:
        raise _error(file, document.problems)
    try:
        scenario = Scenario.model_validate_json(json.dumps(document.value))
    except ValidationError as error:
        raise _error(file, field_problems(error, document, Scenario)) from None
    chips, found = _resolved(scenario, folder)
    if problems := (*found, *_contradictions(scenario, chips)):
        raise _error(file, tuple(document.problem(*problem) for problem in problems))
    return scenario.model_copy(update={"devices": tuple(_named(device, folder) for device in scenario.devices)})


def _error(file: str, problems: tuple[FileProblem, ...]) -> PlacementError:
    return PlacementError(file, problems=tuple(sorted(problems, key=lambda problem: problem.line)))


Finding = tuple[FieldPath, str, str]
"""The place, what is wrong, and what is allowed."""


def _named(device: Device, folder: Path) -> Device:
    """The device with a path that holds from anywhere."""
    return device.model_copy(update={"chip": str(_chip(device, folder))}) if isinstance(device, ChipDevice) else device


def _chip(device: ChipDevice, folder: Path) -> str | Path:
    is_path = "/" in device.chip or device.chip.endswith((".yaml", ".yml"))
    return folder / device.chip if is_path else device.chip


def _resolved(scenario: Scenario, folder: Path) -> tuple[dict[int, Chip], list[Finding]]:
    """The chips of devices, by place, and those that cannot be loaded."""
    chips, found = {}, list[Finding]()
    for place, device in enumerate(scenario.devices):
        if isinstance(device, ChipDevice):
            try:
                chips[place] = load_chip(_chip(device, folder))
            except ChipError as error:
                found.append((("devices", place, "chip"), str(error), ""))
    return chips, found


def _contradictions(scenario: Scenario, chips: dict[int, Chip]) -> list[Finding]:
    """Contradictions that no field alone shows."""
    found: list[Finding] = []
    places: dict[str, int] = {}
    for place, device in enumerate(scenario.devices):
        if device.name in places:
            first = places[device.name]
            found.append(
                (("devices", place, "name"), f"{device.name!r} is device {first} too", "give each its own name")
            )
        places.setdefault(device.name, place)
        if isinstance(device, ChipDevice) and place in chips and device.cluster >= chips[place].clusters:
            last = chips[place].clusters - 1
            has = f"{chips[place].name} has no cluster {device.cluster}"
            found.append((("devices", place, "cluster"), has, f"0 to {last}"))
        if isinstance(device, HostDevice) and place:
            found.append((("devices", place, "kind"), "a host after other devices", "make it the first device"))
    return found + _links_wrong(scenario, places)


def _links_wrong(scenario: Scenario, places: dict[str, int]) -> list[Finding]:
    """Findings about unknown ends, ends given twice, pairs joined twice or not at all."""
    found: list[Finding] = []
    joined: dict[frozenset[str], int] = {}
    for number, link in enumerate(scenario.links):
        path: FieldPath = ("links", number, "between")
        if unknown := [name for name in link.between if name not in places]:
            found.append((path, f"no device {', '.join(unknown)}", f"devices: {', '.join(places)}"))
        elif len(set(link.between)) < len(link.between):
            found.append((path, "a device twice", "name different devices"))
        else:
            for pair in combinations(link.between, 2):
                if frozenset(pair) in joined:
                    wrong = f"{' and '.join(pair)} are joined by link {joined[frozenset(pair)]} too"
                    found.append((path, wrong, "one link a pair"))
                joined.setdefault(frozenset(pair), number)
    missing = [pair for pair in combinations(places, 2) if frozenset(pair) not in joined]
    if missing and not found:
        pairs = ", ".join(" and ".join(pair) for pair in missing[:4]) + (", ..." if len(missing) > 4 else "")
        found.append((("links",), f"no link between {pairs}", "one link for any two devices"))
    return found
