"""Benchmarks of links: start-up, rate by size, rows and descriptors, and several users of one link or memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, zip_longest

from codegen.neuralscale.calibration.drafts import BARRIER, BenchmarkDraft
from codegen.neuralscale.calibration.engines import SHORT
from codegen.neuralscale.calibration.places import OperandPlaces
from codegen.neuralscale.emit.memory_map import address_of
from codegen.neuralscale.kernels.transfers import copy_instructions
from hw_models.chip import Chip
from isched.program.program import Instr, Region
from isched.program.target import MemoryCopy

BLOCKS = 8
"""Blocks that each core moves where a rate is measured."""

ROWS, ROW_BYTES, ROW_PITCH_BYTES = 64, 2, 256
CHAINS, DESCRIPTORS = 3, 48
DMA_BYTES = 1 << 17
STARTS, SPREAD_BYTES = 24, 30
"""Copies by which the latency is measured. Each is somewhat longer than the one before, so that they do not all end at
the same moment of the loop that asks for their end."""

Streams = tuple[tuple[Instr, ...], ...]


def _link_paths(chip: Chip, source: str, destination: str, engine: str, *fields: str) -> tuple[str, ...]:
    """Paths of fields of a link that the chip file gives."""
    link = chip.link(source, destination, engine)
    return tuple(f"links.{link.name}.{field}" for field in fields if getattr(link, field) is not None)


def _memory_path(chip: Chip, name: str) -> tuple[str, ...]:
    given = chip.memory(name).bandwidth_bytes_per_cycle is not None
    return (f"memories.{name}.bandwidth_bytes_per_cycle",) if given else ()


def transfer_drafts(places: OperandPlaces) -> Iterator[BenchmarkDraft]:
    """The transfer engines between LLB and L1, of one core and of all."""
    chip, block = places.chip, places.block_bytes
    cores = chip.cores_per_cluster
    for word, inward in (("in", True), ("out", False)):
        way = ("LLB", "L1", "transfer") if inward else ("L1", "LLB", "transfer")

        def fields(*names: str, way: tuple[str, str, str] = way) -> tuple[str, ...]:
            return _link_paths(chip, *way, *names)

        short = _transfers(places, inward, 2, SHORT)
        yield BenchmarkDraft(
            f"transfer_{word}_start", f"{SHORT} x 2 bytes", (short,), fields("latency_cycles"), ("transfer",)
        )
        of_core = fields("core_bandwidth_bytes_per_cycle") or fields("bandwidth_bytes_per_cycle")
        for size in (block // 8, block):
            blocks, said = _transfers(places, inward, size, BLOCKS), f"{BLOCKS} x {size} bytes"
            yield BenchmarkDraft(f"transfer_{word}_{size}", said, (blocks,), of_core, ("transfer",))
        rows = _transfers(places, inward, ROW_BYTES, BLOCKS, rows=ROWS)
        said = f"{BLOCKS} x {ROWS} rows of {ROW_BYTES} bytes that lie apart in the LLB"
        yield BenchmarkDraft(f"transfer_{word}_rows", said, (rows,), fields("burst_bytes"), ("transfer",))
        every = tuple(_transfers(places, inward, block, BLOCKS, core) for core in range(cores))
        if cores > 1:
            said = f"{BLOCKS} x {block} bytes by each of {cores} cores"
            yield BenchmarkDraft(f"transfer_{word}_cores", said, every, fields("bandwidth_bytes_per_cycle"))
    if cores > 1:
        both = tuple(_transfers(places, core % 2 == 0, block, BLOCKS, core) for core in range(cores))
        said = f"{BLOCKS} x {block} bytes by each of {cores} cores, every other one outward"
        yield BenchmarkDraft("transfer_both_cores", said, both, _memory_path(chip, "LLB"))
        if chip.link("LLB", "L1", "transfer").broadcast:
            yield BenchmarkDraft(
                "transfer_broadcast", f"{BLOCKS} x {block} bytes read for {cores} cores", _broadcast(places)
            )
        if any((link.source, link.destination, link.engine) == ("L1", "L1", "transfer") for link in chip.links):
            yield from _core_to_core(places)


def _transfers(
    places: OperandPlaces, inward: bool, size_bytes: int, count: int, core: int = 0, rows: int = 1
) -> tuple[Instr, ...]:
    """`count` transfers of one core by two blocks of the L1 in turn; each core has its own place in the LLB."""
    start = core * 2 * places.block_bytes % (places.chip.memory("LLB").size_bytes // 2)
    pair: list[tuple[Instr, ...]] = []
    for slot in (0, 1):
        far = places.staged(size_bytes, start + slot * places.block_bytes, rows, ROW_PITCH_BYTES if rows > 1 else 0)
        near = places.local(size_bytes * rows, slot)
        near = replace(near, row_bytes=size_bytes, rows=rows, stride_bytes=size_bytes if rows > 1 else 0)
        copy = MemoryCopy(far, near) if inward else MemoryCopy(near, far)
        pair.append(copy_instructions((copy,), "transfer", places.chip))
    return tuple(instr for number in range(count) for instr in pair[number % 2])


def _broadcast(places: OperandPlaces) -> Streams:
    cores = range(places.chip.cores_per_cluster)
    core_map = sum(1 << core for core in cores)
    alone = _transfers(places, True, places.block_bytes, BLOCKS)
    met = tuple(
        replace(i, opcode="pld", operands=(*i.operands, ("mte_coremap", core_map)), meets=core_map) for i in alone
    )
    return tuple(met for _ in cores)


def _core_to_core(places: OperandPlaces) -> Iterator[BenchmarkDraft]:
    chip, block = places.chip, places.block_bytes
    for name, size, count, field in (
        ("transfer_cores_start", 2, SHORT, "latency_cycles"),
        ("transfer_cores_block", block, BLOCKS, "bandwidth_bytes_per_cycle"),
    ):
        operands = [
            (
                ("rd", address_of("L1", (slot + 2) * block)),
                ("rs1", address_of("L1", 0)),
                ("rs2", size),
                ("mte_icdest", 1),
            )
            for slot in (0, 1)
        ]
        moves = [Instr("transfer", "icmov", each, (Region("L1", 0, size),), (), 0.0, "transfer") for each in operands]
        barrier = Instr("sync", BARRIER, source="transfer")
        sending = (*(moves[number % 2] for number in range(count)), barrier)
        said = f"{count} x {size} bytes from core 0 to core 1"
        yield BenchmarkDraft(name, said, (sending, (barrier,)), _link_paths(chip, "L1", "L1", "transfer", field))


def dma_drafts(places: OperandPlaces) -> Iterator[BenchmarkDraft]:
    """The DMA between DDR and LLB."""
    chip = places.chip
    for word, inward in (("in", True), ("out", False)):
        way = ("DDR", "LLB", "dma") if inward else ("LLB", "DDR", "dma")
        short = tuple(i for n in range(STARTS) for i in _copies(places, inward, 2 + n * SPREAD_BYTES))
        said = f"{STARTS} copies of 2 bytes and more"
        yield BenchmarkDraft(f"dma_{word}_start", said, (short,), _link_paths(chip, *way, "latency_cycles"))
        rate = _link_paths(chip, *way, "bandwidth_bytes_per_cycle")
        for size in (DMA_BYTES // 4, DMA_BYTES):
            yield BenchmarkDraft(f"dma_{word}_{size}", f"4 x {size} bytes", (_copies(places, inward, size) * 4,), rate)
        chain = _chain(places, inward) * CHAINS
        said = f"{CHAINS} x {DESCRIPTORS} descriptors of 2 bytes"
        yield BenchmarkDraft(f"dma_{word}_chain", said, (chain,), ("assumed.dma_descriptor_cycles",))
        rows = _copies(places, inward, ROW_PITCH_BYTES, rows=ROWS) * 4
        said = f"4 x {ROWS} rows of {ROW_PITCH_BYTES} bytes that lie apart where they come from"
        yield BenchmarkDraft(f"dma_{word}_rows", said, (rows,))
    both = _at_once(_copies(places, True, DMA_BYTES), _copies(places, False, DMA_BYTES, DMA_BYTES)) * 4
    yield BenchmarkDraft("dma_both", f"4 x {DMA_BYTES} bytes in and out at once", (both,), _memory_path(chip, "DDR"))
    if chip.clusters > 1:
        moved = (_copies(places, True, DMA_BYTES) * 4,)
        said = f"4 x {DMA_BYTES} bytes in every cluster at once"
        yield BenchmarkDraft("dma_in_clusters", said, moved, every_cluster=True)


def _copies(
    places: OperandPlaces, inward: bool, size_bytes: int, offset_bytes: int = 0, rows: int = 1
) -> tuple[Instr, ...]:
    """One copy and the wait for its end; rows lie apart in the memory that is read."""
    apart = 2 * size_bytes if rows > 1 else 0
    near, far = (size_bytes if rows > 1 else 0 for _ in range(2))
    if inward:
        far = apart
    else:
        near = apart
    main = places.main(size_bytes, offset_bytes, rows, far)
    staged = places.staged(size_bytes, offset_bytes, rows, near)
    copy = MemoryCopy(main, staged) if inward else MemoryCopy(staged, main)
    return copy_instructions((copy,), "dma", places.chip)


def _chain(places: OperandPlaces, inward: bool) -> tuple[Instr, ...]:
    pairs = [(places.main(2, 64 * number), places.staged(2, 64 * number)) for number in range(DESCRIPTORS)]
    copies = tuple(MemoryCopy(*pair) if inward else MemoryCopy(*pair[::-1]) for pair in pairs)
    return copy_instructions(copies, "dma", places.chip)


def _at_once(*copies: tuple[Instr, ...]) -> tuple[Instr, ...]:
    """Copies at the same time: of each its transfers that start together, before any of these is waited for."""
    merged: list[Instr] = []
    for rounds in zip_longest(*map(_rounds, copies), fillvalue=()):
        instrs = [instr for each in rounds for instr in each]
        merged += sorted(instrs, key=lambda instr: not instr.starts)
    return tuple(merged)


def _rounds(copy: tuple[Instr, ...]) -> list[tuple[Instr, ...]]:
    """Transfers that start together, with the waits for them."""
    begins = [n for n, instr in enumerate(copy) if instr.starts and (n == 0 or not copy[n - 1].starts)]
    return [copy[start:end] for start, end in pairwise((*begins, len(copy)))]
