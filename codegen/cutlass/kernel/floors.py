"""Least time of kernels, from the chip file: the times of memories, caches and units at full rate.

    bytes / bandwidth of the main memory, of the L2;  multiply-accumulates of whole waves / rate;  launches

Floors are not predictions: nothing here counts latencies, conflicts or instructions that are not arithmetic. The floor
of the main memory assumes cold caches; `value_bytes` says to which values its bytes belong, so that the planner, who
knows which kernels ran before, can take off those that are still in the L2 (`partitioner.fusion.cache_hits`).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import isfinite, prod

from codegen.cutlass.kernel.family import KernelWork
from hw_models.chip import Chip
from hw_models.routes import main_memory
from partitioner.ir.kernels import KernelFloor

MOST_BLOCKS = 65_535
"""Largest extent of the second and third axis of a grid, in blocks."""


def launch_seconds(chip: Chip) -> float:
    """Seconds from one kernel to the next, without work in either."""
    return chip.simt.launch_us * 1e-6


def stored_bytes(work: KernelWork) -> int:
    """Bytes of all that the layers read from outside and leave there, each once."""
    return sum(work.graph.by_name[name].size_bytes for name in _outside(work))


def value_bytes(work: KernelWork, floors: Iterable[KernelFloor]) -> tuple[tuple[str, int], ...]:
    """The bytes that the floor of the main memory counts, by value: all bytes of each value, but for the anchor's first
    input no more than the layers reach (`reached_bytes`). Bytes that the floor counts beyond these, of scratch memory,
    belong to no value."""
    memory = main_memory(work.chip)
    bandwidth = _bandwidth(work.chip, memory)
    seconds = max((floor.seconds for floor in floors if floor.name == memory), default=0.0)
    sizes = {name: work.graph.by_name[name].size_bytes for name in _outside(work)}
    first = work.anchor.inputs[0]
    if first in sizes and isfinite(bandwidth):
        unread = sum(sizes.values()) - round(seconds * bandwidth)
        sizes[first] = max(0, sizes[first] - max(0, unread))
    return tuple(sizes.items())


def _outside(work: KernelWork) -> tuple[str, ...]:
    """Values that the layers read from outside, then those that they leave there."""
    made = _made(work)
    read = (name for layer in work.layers for name in layer.inputs(work.graph) if name not in made)
    return tuple(dict.fromkeys((*read, *_left(work))))


def _made(work: KernelWork) -> list[str]:
    return [name for layer in work.layers for op in layer.ops for name in work.graph.op_by_name[op].outputs]


def _left(work: KernelWork) -> list[str]:
    """Values that the layers make and leave outside."""
    graph, inside = work.graph, {op for layer in work.layers for op in layer.ops}
    return [
        name
        for name in _made(work)
        if name in graph.outputs or any(reader.name not in inside for reader in graph.consumers[name])
    ]


def with_cache_traffic(floors: tuple[KernelFloor, ...], work: KernelWork, moved_bytes: int) -> tuple[KernelFloor, ...]:
    """The floors with all bytes that go through the shared cache: those that blocks read, as a family counts them, and
    those that are written. A family that counts none reads each of its `moved_bytes` once."""
    name = work.chip.simt.cache
    bandwidth = _bandwidth(work.chip, name)
    read = [floor.seconds * bandwidth for floor in floors if floor.name == name]
    written = sum(work.graph.by_name[value].size_bytes for value in _left(work))
    whole = max(moved_bytes, round(read[0]) + written) if read and isfinite(bandwidth) else moved_bytes
    through = KernelFloor(name, whole / bandwidth, f"{whole} bytes through the cache")
    return (*(floor for floor in floors if floor.name != name), through)


def reached_bytes(work: KernelWork, elements: int) -> int:
    """`stored_bytes` of layers that read at most `elements` elements of the anchor's first input."""
    read = work.graph.by_name[work.anchor.inputs[0]]
    return stored_bytes(work) - max(0, read.size_bytes - elements * read.item_bytes)


def taps(work: KernelWork) -> int:
    """Number of elements under a window."""
    return prod(work.anchor.ints("kernel"))


def window_bytes(work: KernelWork) -> int:
    """Bytes that the main memory gives and takes: for the image, no more than what lies under a window."""
    pixels = prod(work.shape(work.anchor.outputs[0])[:-1])
    return reached_bytes(work, pixels * taps(work) * work.shape(work.anchor.inputs[0])[-1])


def main_floor(chip: Chip, moved_bytes: int) -> KernelFloor:
    """Floor of the bytes that go to or come from the main memory."""
    memory = chip.memory(main_memory(chip))
    return KernelFloor(memory.name, moved_bytes / _bandwidth(chip, memory.name), f"{moved_bytes} bytes")


def cache_floor(chip: Chip, read_bytes: int) -> KernelFloor:
    """Floor of the bytes that blocks read through the shared cache."""
    name = chip.simt.cache
    return KernelFloor(name, read_bytes / _bandwidth(chip, name), f"{read_bytes} bytes read by blocks")


def arithmetic_floor(
    chip: Chip, name: str, macs_per_block: float, grid: Iterable[int], macs_per_cycle: int
) -> KernelFloor:
    """Floor of arithmetic in whole waves: the core with the most blocks determines the time."""
    blocks = prod(grid)
    most = -(-blocks // chip.cores_per_cluster)
    seconds = most * macs_per_block / macs_per_cycle / chip.clock_hz
    return KernelFloor(name, seconds, f"{macs_per_block:.0f} MACs in each of {blocks} blocks")


def lanes_floor(chip: Chip, warp_operations: int, thread_operations: int, blocks: int) -> KernelFloor:
    """Floor of float operations outside the tensor cores. `warp_operations` are those of all warps of a block together,
    each for all threads of its warp, idle ones too; `thread_operations` are those of the busiest thread, which does at
    most one per cycle. Whole waves, as in `arithmetic_floor`. Raises ChipError for a chip without CUDA cores."""
    engine = chip.lanes
    in_block = warp_operations * chip.simt.warp_threads
    most = -(-blocks // chip.cores_per_cluster)
    cycles = max(most * in_block / engine.elements_per_cycle("float32"), thread_operations)
    return KernelFloor(engine.name, cycles / chip.clock_hz, f"{in_block} operations in each of {blocks} blocks")


def shared_floor(chip: Chip, moved_bytes: int, blocks: int) -> KernelFloor:
    """Floor of the bytes that each of `blocks` blocks moves from and to shared memory; whole waves, as in
    `arithmetic_floor`."""
    most = -(-blocks // chip.cores_per_cluster)
    name = chip.simt.shared_memory
    seconds = most * moved_bytes / _bandwidth(chip, name)
    return KernelFloor(name, seconds, f"{moved_bytes} bytes in each of {blocks} blocks")


def in_a_row(*launches: Iterable[KernelFloor]) -> tuple[KernelFloor, ...]:
    """Floors of launches one after the other: those of one memory or unit added up, in the order of the first ones."""
    found: dict[str, KernelFloor] = {}
    for floor in chain.from_iterable(launches):
        if before := found.get(floor.name):
            floor = KernelFloor(floor.name, before.seconds + floor.seconds, f"{before.work} and {floor.work}")
        found[floor.name] = floor
    return tuple(found.values())


def _bandwidth(chip: Chip, memory: str) -> float:
    """Bytes per second."""
    return (chip.memory(memory).bandwidth_bytes_per_cycle or float("inf")) * chip.clock_hz
