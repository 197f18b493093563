"""Benchmarks of what works together: pairs of engines, the queues of a core, barriers."""

from __future__ import annotations

from collections.abc import Iterator

from codegen.neuralscale.calibration.drafts import BARRIER, BenchmarkDraft
from codegen.neuralscale.calibration.engines import products
from codegen.neuralscale.calibration.places import OperandPlaces
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.kernels.transfers import copy_instructions
from isched.program.program import Instr
from isched.program.target import MemoryCopy

PAIRS = 8
BARRIERS = 32
QUEUED, ROUNDS = 16, 4


def together_drafts(places: OperandPlaces) -> Iterator[BenchmarkDraft]:
    """Pairs of engines, queues and barriers."""
    yield from _pairs(places)
    yield _queue(places)
    cores = places.chip.cores_per_cluster
    barrier = Instr("sync", BARRIER, source="barrier")
    said = f"{BARRIERS} barriers of {cores} cores"
    yield BenchmarkDraft("barrier", said, ((barrier,) * BARRIERS,) * cores, ("assumed.sync_cycles",))


def _pairs(places: OperandPlaces) -> Iterator[BenchmarkDraft]:
    engine = places.chip.matrix
    block = places.block_bytes // 4
    matrix = products(places, engine.array_pixels, engine.array_channels, 64, 1)
    vector = tuple(places.build("vector").unary("mov.m", places.data(1, block // 2, 6), places.data(1, block // 2, 4)))
    inward = MemoryCopy(places.staged(block), places.local(block, 7))
    transfer = copy_instructions((inward,), "transfer", places.chip)
    moved = min(block, places.chip.dma.max_linear_bytes)
    dma = copy_instructions((MemoryCopy(places.main(moved), places.staged(moved, 1 << 17)),), "dma", places.chip)
    start, wait = tuple(i for i in dma if i.starts), tuple(i for i in dma if not i.starts)
    for name, pair in (
        ("matrix_vector", (*matrix, *vector)),
        ("matrix_transfer", (*transfer, *matrix)),
        ("vector_transfer", (*transfer, *vector)),
        ("all_engines", (*transfer, *matrix, *vector)),
        ("matrix_dma", (*start, *matrix, *wait)),
        ("transfer_dma", (*start, *transfer, *wait)),
    ):
        yield BenchmarkDraft(f"overlap_{name}", f"{PAIRS} rounds of one instruction each", (pair * PAIRS,))


def _queue(places: OperandPlaces) -> BenchmarkDraft:
    """Moves that fill the vector engine's queue, then a product behind them: it starts when the last move has found a
    place in the queue. The first move of the next round reads the product's result."""
    chip = places.chip
    engine, vector = chip.matrix, chip.vector
    elements = min(32 * vector.lanes, places.block_bytes // 4)
    build = places.build("vector")
    at = places.data_bytes // 2
    moves = [
        next(build.unary("mov.m", MatrixPlace("L1", at + number * 2 * elements, 1, elements, 2), source))
        for number in range(QUEUED)
        for source in [places.data(1, elements) if number else places.sums(1, elements)]
    ]
    longer = min(16 * elements // vector.lanes, places.weights_bytes // (2 * engine.array_channels))
    (product,) = products(places, 1, engine.array_channels, longer, 1)
    said = f"{ROUNDS} rounds of {QUEUED} moves and a product"
    return BenchmarkDraft("queue", said, ((*moves, product) * ROUNDS,), ("assumed.queue_depth",))
