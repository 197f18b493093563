"""Roofline floors: cycles below which no plan can run, whatever is fused, cut or ordered; and the floor that binds a
plan.

    graph, chip           --each value moved once, each product done once--> floors of the network
    Traffic (a plan's)    --its bytes, its cycles--> floors of the plan, by group

Floors count the whole batch of one cluster. A floor of the network holds for every plan; a floor of a plan is its need
of one engine or memory when all others wait for nothing. The largest floor binds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, prod

from hw_models.chip import Chip
from hw_models.parts import MatrixEngine, VectorEngine
from hw_models.routes import main_memory
from partitioner.cost.traffic import Traffic, TrafficPart
from partitioner.ir.graph import Graph, Op, channel_axis, multiplied_dtype
from partitioner.ir.layers import group_layers
from partitioner.ir.operators import Trait, kind_names

VECTOR_KINDS = kind_names(Trait.ELEMENTWISE, Trait.VECTOR)
"""Kinds of operators that only vector engines make: sums and means can be products with ones, and other engines can
move data."""


@dataclass(frozen=True, slots=True)
class Floor:
    """`cycles` that the engine or memory `name` needs at least; `reason` contains the numbers."""

    name: str
    cycles: float
    reason: str


def binding_floor(floors: Iterable[Floor]) -> Floor:
    """The largest floor."""
    return max(floors, key=lambda floor: floor.cycles)


def items_per_second(chip: Chip, cycles: float, items: int) -> float:
    """Items (images) per second on all clusters, where one cluster takes `cycles` for `items`."""
    return items * chip.clusters * chip.clock_hz / cycles if cycles else 0.0


def compulsory_bytes(graph: Graph) -> tuple[int, int]:
    """(read, written) bytes: inputs and constants that some operator reads come in once, outputs leave once."""
    read = {name for op in graph.ops for name in op.inputs} - set(graph.producer)
    loaded = sum(graph.by_name[name].size_bytes for name in read)
    outputs = {name for name in graph.outputs if name in graph.producer}
    return loaded, sum(graph.by_name[name].size_bytes for name in outputs)


def network_floors(graph: Graph, chip: Chip) -> tuple[Floor, ...]:
    """Floors of every plan: matrix engines, vector engines, main memory; those of engines only where these have
    work."""
    matrix = next((engine for engine in chip.engines if isinstance(engine, MatrixEngine)), None)
    vector = next((engine for engine in chip.engines if isinstance(engine, VectorEngine)), None)
    floors = []
    elements = _vector_elements(graph)
    macs = _macs(graph)
    if matrix is not None and macs:
        cycles = sum(_array_cycles(graph, op, matrix, chip) for op in graph.ops) / chip.cores_per_cluster
        peak = _peak_cycles(macs, matrix, chip)
        reason = f"{macs.total():,} multiply-accumulates, {peak:,.0f} cycles at the peak, in whole tiles of the array"
        floors.append(Floor(matrix.name, cycles, reason))
    elif macs:
        elements += macs
    if vector is not None and elements:
        cycles = _peak_cycles(elements, vector, chip)
        floors.append(Floor(vector.name, cycles, f"{elements.total():,} elements, each computed once"))
    main = main_memory(chip)
    read, written = compulsory_bytes(graph)
    reason = f"{read:,} bytes of inputs and constants in, {written:,} bytes of outputs out, each once"
    return (*floors, Floor(main, _memory_cycles(chip, main, read, written), reason))


def peak_cycles(graph: Graph, chip: Chip) -> float:
    """Fewest cycles of matrix or vector engines, all cores at their peak. Unlike the floors this is exactly
    proportional to the batch, as weights and ragged tiles are not counted."""
    matrix = next((engine for engine in chip.engines if isinstance(engine, MatrixEngine)), None)
    vector = next((engine for engine in chip.engines if isinstance(engine, VectorEngine)), None)
    products = 0.0 if matrix is None else _peak_cycles(_macs(graph), matrix, chip)
    elements = 0.0 if vector is None else _peak_cycles(_vector_elements(graph), vector, chip)
    return max(products, elements)


def _array_cycles(graph: Graph, op: Op, matrix: MatrixEngine, chip: Chip) -> float:
    """Cycles of one core for all products of an operator, ragged tiles of the array counted as full ones."""
    if not op.macs or _depthwise(graph, op):
        return 0.0
    result = graph.by_name[op.outputs[0]]
    shape, axis = result.shape, channel_axis(result, op.kind)
    channels = shape[axis] if shape else 1
    cell = _rate(matrix, multiplied_dtype(graph, op)) // (matrix.array_pixels * matrix.array_channels)
    steps = ceil(op.macs // prod(shape) / cell) + chip.assumed.matrix_tile_cycles
    return ceil(prod(shape) // channels / matrix.array_pixels) * ceil(channels / matrix.array_channels) * steps


def _depthwise(graph: Graph, op: Op) -> bool:
    """Whether each channel is a separate convolution, which may run on the vector engine instead."""
    if op.kind != "conv":
        return False
    x = graph.by_name[op.inputs[0]]
    return int(op.number("groups")) == x.shape[channel_axis(x, op.kind)] > 1


def _macs(graph: Graph) -> Counter[str]:
    """Products that only a matrix engine may make, by the dtype of what is multiplied."""
    found: Counter[str] = Counter()
    for op in graph.ops:
        if op.macs and not _depthwise(graph, op):
            found[multiplied_dtype(graph, op)] += op.macs
    return found


def _vector_elements(graph: Graph) -> Counter[str]:
    """Results that only a vector engine makes, by dtype, once per layer: engines may do several operators in one
    pass."""
    found: Counter[str] = Counter()
    for layer in group_layers(graph)[0]:
        if any(graph.op_by_name[name].kind in VECTOR_KINDS for name in layer.ops):
            tensor = graph.by_name[layer.output]
            found[tensor.dtype] += prod(tensor.shape)
    return found


def _peak_cycles(work: Mapping[str, int], engine: MatrixEngine | VectorEngine, chip: Chip) -> float:
    """Cycles for products or elements by dtype, all cores at their highest rates."""
    return sum(number / (chip.cores_per_cluster * _rate(engine, dtype)) for dtype, number in work.items())


def plan_floors(traffic: Traffic, chip: Chip, parts: Iterable[TrafficPart] | None = None) -> tuple[Floor, ...]:
    """Needs of a plan, or of some parts of it, for each engine and for each memory that the cores share."""
    chosen = traffic.parts if parts is None else tuple(parts)
    movers = {engine.name for engine in chip.engines if engine.kind in ("dma", "transfer")}
    floors = [
        Floor(engine, cycles, "cycles of the busiest core, round by round")
        for engine, cycles in traffic.busy(chosen).items()
        if engine not in movers
    ]
    ways = traffic.ways(chosen)
    for memory in chip.memories:
        if memory.scope == "core":
            continue
        read = sum(size for (source, _), size in ways.items() if source == memory.name)
        written = sum(size for (_, target), size in ways.items() if target == memory.name)
        if read or written:
            cycles = _memory_cycles(chip, memory.name, read, written)
            floors.append(Floor(memory.name, cycles, f"{read:,} bytes read, {written:,} bytes written"))
    return tuple(floors)


def _memory_cycles(chip: Chip, name: str, read_bytes: int, written_bytes: int) -> float:
    """Cycles of a memory. Both directions share its own bandwidth where the chip file gives one; each has its own
    links."""
    memory = chip.memory(name)
    own = memory.bandwidth_bytes_per_cycle
    shared = (read_bytes + written_bytes) / own if own else 0.0
    out = sum(link.bandwidth_bytes_per_cycle for link in chip.links if link.source == name)
    into = sum(link.bandwidth_bytes_per_cycle for link in chip.links if link.destination == name)
    ways = (read_bytes / out if out else 0.0, written_bytes / into if into else 0.0)
    return max(shared, *ways)


def _rate(engine: MatrixEngine | VectorEngine, dtype: str) -> int:
    """Products or elements per cycle in this type; in its fastest type where the engine does not have this one."""
    of = engine.macs_per_cycle if isinstance(engine, MatrixEngine) else engine.elements_per_cycle
    names = [rate.dtype for rate in engine.rates]
    return of(dtype) if dtype in names else max(of(name) for name in names)
