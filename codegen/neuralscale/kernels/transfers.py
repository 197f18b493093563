"""Copies: system DMA between DDR and LLB, the transfer engine between LLB and L1, the vector engine inside an L1.

The L1 side of the transfer engine is dense, the LLB side strided; `mov.m` may be strided on both. The DMA gathers
(source rows apart, destination packed); scattering takes one descriptor per row. Channel 0 of an engine carries DDR to
LLB, channel 1 LLB to DDR, as the vendor's profiler labels them; both engines of the cluster share the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.neuralscale.emit.descriptors import BLOCK, CHAIN_SHARE, VALID, linear_control
from codegen.neuralscale.emit.memory_map import LLB_SLICE_BYTES, address_of
from codegen.neuralscale.instructions.arithmetic import FP16, TRANSFER_UNIT_BYTES
from codegen.neuralscale.instructions.builder import MAX_EXTENT, MAX_STRIDE_BYTES, InstructionBuilder, MatrixPlace
from hw_models.chip import Chip
from hw_models.cost import dma_cycles, transfer_cycles
from hw_models.errors import TargetError
from isched.program.program import Instr, Region
from isched.program.target import MemoryCopy

WIDTH_LOW_BITS = 16

LEAST_SHARE_BYTES = 1 << 16
"""Least bytes of each DMA engine's part where a run is divided between engines."""


def copy_instructions(copies: tuple[MemoryCopy, ...], source: str, chip: Chip) -> tuple[Instr, ...]:
    """All copies of one core, which have landed after the last instruction. Raises TargetError for a way the chip does
    not have."""
    ways = {(copy.source.memory, copy.destination.memory) for copy in copies}
    instrs: list[Instr] = []
    for way in sorted(ways):
        group = tuple(copy for copy in copies if (copy.source.memory, copy.destination.memory) == way)
        if set(way) == {"DDR", "LLB"}:
            instrs += _dma(group, source, chip)
        elif set(way) == {"LLB", "L1"}:
            instrs += [instr for copy in group for instr in _transfer(copy, source, chip)]
        elif way == ("L1", "L1"):
            instrs += [instr for copy in group for instr in _within(copy, source, chip)]
        else:
            needs = "copies between DDR and LLB, LLB and L1 or inside L1"
            raise TargetError("neuralscale-v1", needs=needs, has=" to ".join(way))
    return tuple(instrs)


def _within(copy: MemoryCopy, source: str, chip: Chip) -> Iterator[Instr]:
    """mov.m between two places of a core's L1, each with a pitch of its own. Rows are whole 16-bit words."""
    yield from InstructionBuilder(chip, source, FP16).unary("mov.m", _matrix(copy.destination), _matrix(copy.source))


def _matrix(region: Region) -> MatrixPlace:
    words = _words(region)
    return MatrixPlace(region.memory, region.offset_bytes, region.rows, words, TRANSFER_UNIT_BYTES, region.stride_bytes)


def _words(region: Region) -> int:
    """16-bit words of a row."""
    words, rest = divmod(region.row_bytes, TRANSFER_UNIT_BYTES)
    assert not rest  # layers are cut at such words, whatever the type of their elements
    return words


def _transfer(copy: MemoryCopy, source: str, chip: Chip) -> Iterator[Instr]:
    """mov.l1.llb or mov.llb.l1: rows of 16-bit words, strided on the LLB side."""
    inward = copy.destination.memory == "L1"
    near, far = (copy.destination, copy.source) if inward else (copy.source, copy.destination)
    offset = near.offset_bytes
    for part in _far_parts(far):
        local = Region(near.memory, offset, part.size_bytes)
        offset += part.size_bytes
        ends = (local.offset_bytes, part.offset_bytes)
        here, there = address_of("L1", ends[0]), address_of("LLB", ends[1])
        operands = (
            ("rd", here if inward else there),
            ("rs1", there if inward else here),
            ("mte_shape", _words(part) << 16 | part.rows),
            ("mte_stride_llb", part.stride_bytes if part.stride_bytes != part.row_bytes else 0),
        )
        cycles = transfer_cycles(
            chip,
            "LLB" if inward else "L1",
            "L1" if inward else "LLB",
            part.size_bytes,
            part.rows if part.stride_bytes != part.row_bytes else 1,
            sharers=chip.cores_per_cluster,
        )
        opcode = "mov.l1.llb" if inward else "mov.llb.l1"
        reads, writes = ((part,), (local,)) if inward else ((local,), (part,))
        yield Instr("transfer", opcode, operands, reads, writes, cycles, source)


def _far_parts(far: Region) -> Iterator[Region]:
    """The LLB side in parts whose shape and stride fit the 16-bit fields."""
    if far.rows == 1 or far.stride_bytes == far.row_bytes:
        yield from _linear_parts(far.memory, far.offset_bytes, far.size_bytes)
        return
    if far.stride_bytes > MAX_STRIDE_BYTES or _words(far) > MAX_EXTENT:
        for row in range(far.rows):
            yield from _linear_parts(far.memory, far.offset_bytes + row * far.stride_bytes, far.row_bytes)
        return
    row = 0
    while row < far.rows:
        rows = min(MAX_EXTENT, far.rows - row)
        start = far.offset_bytes + row * far.stride_bytes
        # The range check counts the gap after the last row too: near the end of the slice the last row goes alone.
        if rows > 1 and start + rows * far.stride_bytes > LLB_SLICE_BYTES:
            rows -= 1
        yield Region(far.memory, start, far.row_bytes, rows, far.stride_bytes if rows > 1 else 0)
        row += rows


def _linear_parts(memory: str, offset: int, size_bytes: int) -> Iterator[Region]:
    """A run of bytes as one or two shapes: rows of 32,768 words, then the rest."""
    width = 1 << 16
    if size_bytes <= TRANSFER_UNIT_BYTES * MAX_EXTENT:
        yield Region(memory, offset, size_bytes)
        return
    rows = size_bytes // width
    yield Region(memory, offset, width, rows, width if rows > 1 else 0)
    if rest := size_bytes % width:
        yield Region(memory, offset + rows * width, rest)


@dataclass(frozen=True, slots=True)
class _Descriptor:
    """One DMA descriptor: words 0 to 4 (word 5, the link, is the emitter's)."""

    words: tuple[int, ...]
    source: Region
    destination: Region


def _dma(copies: tuple[MemoryCopy, ...], source: str, chip: Chip) -> Iterator[Instr]:
    """Descriptors divided over the cluster's engines, started together, then awaited, chain by chain."""
    inward = copies[0].destination.memory == "LLB"
    engines = chip.dma.engines_per_cluster
    channel = 0 if inward else 1
    queues: list[list[_Descriptor]] = [[] for _ in range(engines)]
    loads = [0] * engines
    for copy in copies:
        for descriptor in _descriptors(copy, chip, engines):
            engine = min(range(engines), key=lambda e: (loads[e], e))
            queues[engine].append(descriptor)
            loads[engine] += descriptor.source.size_bytes
    limit = max(1, chip.dma.max_descriptors // CHAIN_SHARE)
    while any(queues):
        started = []
        for engine, queue in enumerate(queues):
            chain, queues[engine] = queue[:limit], queue[limit:]
            if chain:
                started.append(engine)
                yield _start(chain, engine, channel, source, chip)
        for engine in started:
            operands = (("engine", engine), ("channel", channel))
            yield Instr("scalar", "dma.wait", operands, source=source, awaits=f"dma{engine}.{channel}")


def _start(chain: list[_Descriptor], engine: int, channel: int, source: str, chip: Chip) -> Instr:
    words = tuple((f"w{i}", word) for i, word in enumerate(word for d in chain for word in d.words))
    size = sum(d.source.size_bytes for d in chain)
    rows = sum(d.source.rows for d in chain)
    way = (chain[0].source.memory, chain[0].destination.memory)
    cycles = dma_cycles(chip, *way, size, rows, descriptors=len(chain), sharers=chip.dma.engines_per_cluster)
    operands = (("engine", engine), ("channel", channel), *words)
    return Instr(
        "dma",
        "dma.start",
        operands,
        tuple(d.source for d in chain),
        tuple(d.destination for d in chain),
        cycles,
        source,
        starts=f"dma{engine}.{channel}",
    )


def _descriptors(copy: MemoryCopy, chip: Chip, engines: int) -> Iterator[_Descriptor]:
    a, b = copy.source, copy.destination
    packed_source = a.rows == 1 or a.stride_bytes == a.row_bytes
    packed_destination = b.rows == 1 or b.stride_bytes == b.row_bytes
    if packed_source and packed_destination:
        share = max(LEAST_SHARE_BYTES, -(-a.size_bytes // (engines * TRANSFER_UNIT_BYTES)) * TRANSFER_UNIT_BYTES)
        yield from _linear(a, b, a.offset_bytes, b.offset_bytes, a.size_bytes, min(share, chip.dma.max_linear_bytes))
    elif packed_destination and a.stride_bytes <= chip.dma.max_stride_bytes and a.row_bytes <= chip.dma.max_row_bytes:
        share = min(chip.dma.max_rows, max(1, -(-a.rows // engines)))
        for row in range(0, a.rows, share):
            rows = min(share, a.rows - row)
            here = Region(
                a.memory, a.offset_bytes + row * a.stride_bytes, a.row_bytes, rows, a.stride_bytes if rows > 1 else 0
            )
            there = Region(b.memory, b.offset_bytes + row * a.row_bytes, rows * a.row_bytes)
            yield _block(here, there)
    else:
        for row in range(a.rows):
            start = (
                a.offset_bytes + row * (a.stride_bytes or a.row_bytes),
                b.offset_bytes + row * (b.stride_bytes or b.row_bytes),
            )
            yield from _linear(a, b, *start, a.row_bytes, chip.dma.max_linear_bytes)


def _linear(a: Region, b: Region, source: int, destination: int, size: int, most: int) -> Iterator[_Descriptor]:
    for start in range(0, size, most):
        count = min(most, size - start)
        here, there = Region(a.memory, source + start, count), Region(b.memory, destination + start, count)
        ends = address_of(a.memory, source + start), address_of(b.memory, destination + start)
        words = (linear_control(count), *ends, 0, 0)
        yield _Descriptor(words, here, there)


def _block(here: Region, there: Region) -> _Descriptor:
    width = here.row_bytes
    stride = here.stride_bytes or width
    words = (
        VALID | BLOCK,
        address_of(here.memory, here.offset_bytes),
        address_of(there.memory, there.offset_bytes),
        here.rows << 16 | width & 0xFFFF,
        (width >> WIDTH_LOW_BITS) << 24 | stride,
    )
    return _Descriptor(words, here, there)
