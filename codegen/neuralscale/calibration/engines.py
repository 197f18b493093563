"""Benchmarks of the engines of one core, each by itself: start-up, rate by size and shape, edges of the array."""

from __future__ import annotations

from collections.abc import Iterator

from codegen.neuralscale.calibration.drafts import SCALAR_BLOCK, BenchmarkDraft, spin, straight_line
from codegen.neuralscale.calibration.places import OperandPlaces
from codegen.neuralscale.instructions.arithmetic import FP16, INT8, Arithmetic
from codegen.neuralscale.instructions.builder import MatrixPlace
from isched.program.program import Instr

SHORT, LONG = 64, 16
"""Repetitions inside a program of work that hardly lasts longer than its start, and of other work."""

LOOKUP_ENTRIES = 1 << 16


def scalar_drafts(places: OperandPlaces) -> Iterator[BenchmarkDraft]:
    """The launch, the scalar core and its instruction cache."""
    yield BenchmarkDraft("launch", "a program that does nothing", ((),), ("assumed.launch_cycles",), ("elapsed",))
    said = f"a loop of {SCALAR_BLOCK} scalar instructions, 64 times"
    yield BenchmarkDraft("scalar_loop", said, ((),), ("assumed.scalar_instruction_cycles",), (), spin(64))
    if places.chip.instruction_cache is not None:
        owner = next(engine.name for engine in places.chip.engines if engine.kind == "scalar")
        path = f"engines.{owner}.instruction_cache.miss_cycles"
        yield BenchmarkDraft(
            "scalar_cold", "2,048 scalar instructions, each once", ((),), (path,), (), straight_line(2048)
        )


def matrix_drafts(places: OperandPlaces) -> Iterator[BenchmarkDraft]:
    """The matrix engine."""
    engine = places.chip.matrix
    pixels, channels, field = engine.array_pixels, engine.array_channels, f"engines.{engine.name}"
    yield from _product(places, "matrix_start", 1, 1, 1, (f"{field}.start_latency_cycles",), SHORT)
    for reduction in (64, 512):
        yield from _product(places, f"matrix_reduction_{reduction}", pixels, channels, reduction, ())
    for count in dict.fromkeys((pixels // 2, pixels // 2 + 1, pixels, pixels + 1, 2 * pixels, 2 * pixels + 1)):
        yield from _product(places, f"matrix_pixels_{count}", count, channels, 128, (f"{field}.array_pixels",))
    for count in dict.fromkeys((channels // 2, channels // 2 + 1, channels + 1, 2 * channels, 2 * channels + 1)):
        yield from _product(places, f"matrix_channels_{count}", pixels, count, 128, (f"{field}.array_channels",))
    tiles = 32
    yield from _product(places, "matrix_tiles", 1, tiles * channels, 1, ("assumed.matrix_tile_cycles",))
    yield from _product(places, "matrix_rows", pixels, channels, 1, ("assumed.matrix_row_cycles",), SHORT)
    if any(rate.dtype == INT8.operands for rate in engine.rates):
        for reduction in (64, 512):
            name = f"matrix_int8_{reduction}"
            yield from _product(places, name, pixels, channels, reduction, (), arithmetic=INT8)


def _product(
    places: OperandPlaces,
    name: str,
    pixels: int,
    channels: int,
    reduction: int,
    isolates: tuple[str, ...],
    count: int = LONG,
    arithmetic: Arithmetic = FP16,
) -> Iterator[BenchmarkDraft]:
    """Products of one shape with results in two places in turn; none where they find no room."""
    operand, result = arithmetic.operand_bytes, arithmetic.sum_bytes
    if min(pixels, channels) and places.product_fits(pixels, channels, reduction, operand, result):
        said = f"{count} products of {pixels} x {reduction} by {reduction} x {channels} in {arithmetic.operands}"
        yield BenchmarkDraft(
            name, said, (products(places, pixels, channels, reduction, count, arithmetic),), isolates, ("matrix",)
        )


def products(
    places: OperandPlaces, pixels: int, channels: int, reduction: int, count: int, arithmetic: Arithmetic = FP16
) -> tuple[Instr, ...]:
    """`count` products with results in both halves of the IM in turn."""
    build, item = places.build("matrix", arithmetic), arithmetic.operand_bytes
    a, b = places.data(pixels, reduction, item_bytes=item), places.weights(reduction, channels, item)
    pair = [build.memul(places.sums(pixels, channels, slot, arithmetic.sum_bytes), a, b) for slot in (0, 1)]
    return tuple(pair[number % 2] for number in range(count))


def vector_drafts(places: OperandPlaces) -> Iterator[BenchmarkDraft]:
    """The vector engine. Only the sum of its start and of `vector_pass_cycles` can be measured: the start is fitted."""
    engine = places.chip.vector
    lanes, field = engine.lanes, f"engines.{engine.name}"
    most = places.block_bytes // 2
    yield _moves(places, "vector_start", 1, (f"{field}.start_latency_cycles",), SHORT)
    for count in dict.fromkeys((lanes // 2, lanes, lanes + 1, 2 * lanes)):
        yield _moves(places, f"vector_elements_{count}", count, (f"{field}.lanes",), SHORT)
    for count in dict.fromkeys((min(64 * lanes, most // 2), min(256 * lanes, most))):
        yield _moves(places, f"vector_elements_{count}", count, (f"{field}.lanes",))
    count = min(32 * lanes, most // 2)
    strided = places.data(count // lanes, lanes, 0, stride_bytes=4 * lanes), places.data(count // lanes, lanes, 2)
    yield _vector(places, "vector_strided", f"{count} elements, rows apart", strided[1], strided[0])
    yield _vector(
        places, "vector_from_im", f"{count} elements from IM to L1", places.data(1, count), places.sums(1, count)
    )
    yield _vector(
        places, "vector_to_im", f"{count} elements from L1 to IM", places.sums(1, count), places.data(1, count)
    )
    build = places.build("vector")
    added = tuple(build.binary("veadd", places.data(1, count, 4), places.data(1, count), places.data(1, count, 2)))
    yield BenchmarkDraft("vector_add", f"{LONG} sums of {count} elements", (added * LONG,), (), ("vector",))
    table = MatrixPlace("L1", 8 * places.block_bytes, 1, LOOKUP_ENTRIES, 2)
    if table.offset_bytes + table.row_bytes <= places.data_bytes:
        looked = tuple(build.lookup(places.data(1, count, 2), places.data(1, count), table))
        said = f"{LONG} lookups of {count} elements"
        yield BenchmarkDraft("vector_lookup", said, (looked * LONG,), ("assumed.lookup_cycles",), ("vector",))
    if any(rate.dtype == "int8" for rate in engine.rates):
        widened = tuple(build.widen(places.data(1, count, 2), places.data(1, count, item_bytes=1)))
        yield BenchmarkDraft("vector_int8", f"{LONG} conversions of {count} int8", (widened * LONG,), (), ("vector",))


def _moves(
    places: OperandPlaces, name: str, elements: int, isolates: tuple[str, ...], count: int = LONG
) -> BenchmarkDraft:
    d, a = (places.data(1, elements, slot) for slot in (2, 0))
    return _vector(places, name, f"{elements} elements", d, a, isolates, count)


def _vector(
    places: OperandPlaces,
    name: str,
    said: str,
    d: MatrixPlace,
    a: MatrixPlace,
    isolates: tuple[str, ...] = (),
    count: int = LONG,
) -> BenchmarkDraft:
    """Moves by the vector engine to two places in turn."""
    other = MatrixPlace(d.memory, d.offset_bytes + _half(places, d), d.rows, d.columns, d.item_bytes, d.stride_bytes)
    pair = [tuple(places.build("vector").unary("mov.m", target, a)) for target in (d, other)]
    instrs = tuple(instr for number in range(count) for instr in pair[number % 2])
    return BenchmarkDraft(name, f"{count} moves of {said}", (instrs,), isolates, ("vector",))


def _half(places: OperandPlaces, d: MatrixPlace) -> int:
    """Bytes from one place of results to the other one."""
    return places.chip.memory("IM").size_bytes // 2 if d.memory == "IM" else 2 * places.block_bytes
