"""All that a page about an artifact shows, as data: its layers as a drawn graph, its groups, its run over time.

    Artifact --explanation, timeline, memories, listing--> Overview --report.page--> one HTML file

Times are those of one pass of the first program.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen.source_map import SOURCE_MAP, SourceMapError, source_ranges
from codegen.target import Disassembles, symbol_of
from dsa_sched.analysis.artifact_timing import RunTime, time_whole
from dsa_sched.analysis.explanation_data import Explanation
from dsa_sched.analysis.kernel_explanation import KernelExplanation
from dsa_sched.analysis.layer_instances import LayerInstance, layer_instances
from dsa_sched.analysis.parts import OTHER, parts_of, usual_parts
from dsa_sched.artifact.format import Artifact
from dsa_sched.stages.targets import target_of
from hw_models.chip import Chip
from hw_models.errors import TargetError
from hw_models.parts import MatrixEngine
from hw_models.routes import main_memory
from isched.program.target import Timeable
from isched.timing.occupancy import occupancies
from isched.timing.utilisation import dominant_parts, usage_over_time
from partitioner.cost.roofline import network_floors
from partitioner.ir.graph import Graph, multiplied_dtype
from partitioner.ir.layers import Layer

STRETCHES = 300
"""Number of equal stretches into which a run is divided."""

CODE_LINES = 60
"""Largest number of lines of machine code of a layer."""

SWEEPS = 8
"""Number of times that the layers of each rank are ordered, by turns by those above and by those below."""


@dataclass(frozen=True, slots=True)
class DrawnLayer:
    """A layer of the graph, with its place in the drawing: `rank` from the inputs on, and `column`, 0 in the middle.
    `reads` are the layers before it; `seconds` are None where no time is known of it alone. `instances` has the first
    ones; kernels of whole groups have none."""

    name: str
    operators: tuple[str, ...]
    group: str
    shape: tuple[int, ...]
    dtype: str
    macs: int
    constant_bytes: int
    seconds: float | None
    bound_by: str
    reads: tuple[str, ...]
    rank: int
    column: float
    code: tuple[str, ...]
    instances: tuple[LayerInstance, ...]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The most live bytes of a memory in each stretch; of a core's memory, those of the core that is fullest."""

    memory: str
    size_bytes: int
    most_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunOverTime:
    """One pass after its launch, in equal stretches: share of the time in which engines of a kind work, the part that
    most of the work is for, and what the memories hold."""

    stretch_seconds: float
    utilisation: Mapping[str, tuple[float, ...]]
    parts: tuple[str, ...]
    memories: tuple[MemoryUse, ...]


@dataclass(frozen=True, slots=True)
class Roof:
    """The roof of a chip: multiply-accumulates per second of one cluster, and bytes per second of its main memory."""

    macs_per_second: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class GroupPoint:
    """A group under the roof: its multiply-accumulates, the bytes that it moves from and to the main memory, and its
    seconds on the critical path."""

    name: str
    macs: int
    main_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Overview:
    """An artifact for a reader. `run`, `roof` and `points` are absent where no machine code can be timed."""

    artifact: Artifact
    explanation: Explanation | KernelExplanation
    layers: tuple[DrawnLayer, ...]
    run: RunOverTime | None
    roof: Roof | None
    points: tuple[GroupPoint, ...]


def overview(
    artifact: Artifact, explanation: Explanation | KernelExplanation, progress: Callable[[str], None]
) -> Overview:
    """Everything about an artifact and its explanation. Raises TargetError for an artifact without graph and plan."""
    progress("listing machine code")
    graph, layers = artifact.graph, _drawn(explanation, artifact)
    if not isinstance(explanation, Explanation):
        return Overview(artifact, explanation, layers, None, None, ())
    run = None
    if isinstance(target_of(artifact.chip), Timeable):
        progress("timing")
        run = _over_time(time_whole(artifact, artifact.manifest.model), artifact.chip)
    return Overview(artifact, explanation, layers, run, *_roofline(explanation, graph, artifact.chip))


def _drawn(found: Explanation | KernelExplanation, artifact: Artifact) -> tuple[DrawnLayer, ...]:
    graph = artifact.graph
    layers = [
        (group.name, layer) for group in artifact.plan.groups for layer in group.layers if not layer.is_view(graph)
    ]
    reads = {layer.name: _reads(graph, layer, layers) for _, layer in layers}
    places = drawing(reads)
    code = _code(artifact)
    times = _times(found, artifact.chip)
    instances = layer_instances(artifact) if isinstance(found, Explanation) else {}

    def drawn(group: str, layer: Layer) -> DrawnLayer:
        ops = [graph.op_by_name[name] for name in layer.ops]
        constants = {name for op in ops for name in op.inputs if graph.by_name[name].constant}
        seconds, bound_by = times.get(layer.name, (None, ""))
        return DrawnLayer(
            name=layer.name,
            operators=tuple(op.kind for op in ops),
            group=group,
            shape=graph.by_name[layer.output].shape,
            dtype=graph.by_name[layer.output].dtype,
            macs=sum(op.macs for op in ops),
            constant_bytes=sum(graph.by_name[name].size_bytes for name in constants),
            seconds=seconds,
            bound_by=bound_by,
            reads=reads[layer.name],
            rank=places[layer.name][0],
            column=places[layer.name][1],
            code=tuple(line for op in layer.ops for line in code.get(symbol_of(op), ()))[:CODE_LINES],
            instances=instances.get(layer.name, ()),
        )

    return tuple(drawn(group, layer) for group, layer in layers)


def _reads(graph: Graph, layer: Layer, layers: list[tuple[str, Layer]]) -> tuple[str, ...]:
    """The layers whose results a layer reads, through views."""
    maker = {op: each.name for _, each in layers for op in each.ops}
    found: dict[str, None] = {}
    waiting = list(reversed(layer.inputs(graph)))
    while waiting:
        op = graph.producer.get(waiting.pop())
        if op is None:
            continue
        if op.name in maker:
            found[maker[op.name]] = None
        else:
            waiting += op.inputs
    return tuple(found)


def drawing(reads: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[int, float]]:
    """Rank and column of each node of an acyclic graph, which is given as node -> nodes before it, in an order in which
    every node follows those. Its rank is the longest way to it; nodes of a rank are ordered by their neighbours in
    other ranks."""
    ranks: dict[str, int] = {}
    for name, before in reads.items():
        ranks[name] = max((ranks[other] + 1 for other in before), default=0)
    rows: dict[int, list[str]] = {}
    for name, rank in ranks.items():
        rows.setdefault(rank, []).append(name)
    readers: dict[str, list[str]] = {name: [] for name in reads}
    for name, before in reads.items():
        for other in before:
            readers[other].append(name)
    column = _columns(rows)
    for sweep in range(SWEEPS):
        upward = sweep % 2 == 1
        for rank in sorted(rows, reverse=upward):
            wanted = {name: _middle(readers[name] if upward else reads[name], column) for name in rows[rank]}
            rows[rank].sort(key=wanted.__getitem__)
            column |= _columns({rank: rows[rank]})
    return {name: (ranks[name], column[name]) for name in reads}


def _middle(neighbours: Sequence[str], column: Mapping[str, float]) -> float:
    return sum(column[name] for name in neighbours) / len(neighbours) if neighbours else 0.0


def _columns(rows: Mapping[int, list[str]]) -> dict[str, float]:
    return {name: place - (len(row) - 1) / 2 for row in rows.values() for place, name in enumerate(row)}


def _times(found: Explanation | KernelExplanation, chip: Chip) -> dict[str, tuple[float | None, str]]:
    """Layer -> its seconds on the critical path and what binds there; of kernels, those of the whole group."""
    if isinstance(found, Explanation):
        measured = found.measured
        if measured is None:
            return {}
        return {name: (part.cycles / chip.clock_hz, part.bound_by) for name, part in measured.layers.items()}
    return {
        layer: (group.seconds if len(group.layers) == 1 else None, group.bound_by)
        for group in found.groups
        for layer in group.layers
    }


def _code(artifact: Artifact) -> dict[str, list[str]]:
    """Symbol of an operator -> the first lines of its machine code in the first program. Raises TargetError."""
    target, program = target_of(artifact.chip), artifact.clusters[0]
    if not isinstance(target, Disassembles) or SOURCE_MAP not in program.files:
        return {}
    try:
        ranges = source_ranges(program.files[SOURCE_MAP])
    except SourceMapError as error:
        raise TargetError(artifact.manifest.model, needs="a source map", has=str(error)) from error
    starts = [each.start for each in ranges]
    found: dict[str, list[str]] = {}
    listing = target.disassemble(program.files[program.executable])
    for line in (line for lines in listing for line in lines.splitlines()):
        address, _, text = line.partition(": ")
        if not text:  # a label
            continue
        place = bisect_right(starts, int(address, 16)) - 1
        if place >= 0 and ranges[place].source:
            lines = found.setdefault(symbol_of(ranges[place].source), [])
            if len(lines) < CODE_LINES:
                lines.append(line)
    return found


def _over_time(run: RunTime, chip: Chip) -> RunOverTime:
    program = run.programs[0]
    timeline = program.timeline
    usages = usage_over_time(timeline, STRETCHES)
    kinds = tuple(usages[0].busy_cycles)
    of = parts_of(run, timeline, usual_parts(run)).of
    return RunOverTime(
        (timeline.cycles - timeline.launch_cycles) / chip.clock_hz / STRETCHES,
        {kind: tuple(usage.utilisation(kind) for usage in usages) for kind in kinds},
        dominant_parts(timeline, of, STRETCHES, OTHER),
        tuple(_memories(run, chip)),
    )


def _memories(run: RunTime, chip: Chip) -> Iterator[MemoryUse]:
    program = run.programs[0]
    end = program.timeline.cycles - program.timeline.launch_cycles
    found = occupancies(program.timeline, program.streams, chip)
    for memory in dict.fromkeys(each.memory for each in found):
        own = [each for each in found if each.memory == memory]
        most = np.max([each.least_and_most(end, STRETCHES)[1] for each in own], axis=0)
        yield MemoryUse(memory, own[0].size_bytes, tuple(map(int, most)))


def _roofline(found: Explanation, graph: Graph, chip: Chip) -> tuple[Roof | None, tuple[GroupPoint, ...]]:
    matrix = next((engine for engine in chip.engines if isinstance(engine, MatrixEngine)), None)
    main = main_memory(chip)
    floor = next(floor for floor in network_floors(graph, chip) if floor.name == main)
    types = [multiplied_dtype(graph, op) for op in graph.ops if op.macs]
    if matrix is None or not floor.cycles or not types or found.measured is None:
        return None, ()
    rate = max(matrix.macs_per_cycle(dtype) for dtype in types) * chip.cores_per_cluster
    roof = Roof(rate * chip.clock_hz, found.compulsory_bytes / floor.cycles * chip.clock_hz)
    points = (
        GroupPoint(
            group.name,
            group.macs,
            sum(size for way, size in group.moved_bytes.items() if main in way.split("->")),
            found.measured.group(group.name).cycles / chip.clock_hz,
        )
        for group in found.groups
    )
    return roof, tuple(point for point in points if point.macs and point.seconds)
