"""Overlapping engines changes when things happen, never what is computed; the order of the stream and its guards."""

from __future__ import annotations

from itertools import pairwise

import pytest

from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import UserError
from isched.lower import lower_plan
from isched.pipeline import TileCode, independent, pipelined, tile_code, together
from isched.program import Instr, Program, Region
from isched.timing import time_program
from isched.verify import verify_program
from partitioner.graph import Constants, Graph
from partitioner.levels import LEVELS, make_plan
from partitioner.plan import Plan
from tests.chip_runs import Compiled, small_chip
from tests.partition_graphs import Seeded, random_chip, random_graph
from tests.small_graphs import GraphBuilder

KIB = 1024


def lowered(graph: Graph, constants: Constants, chip: Chip, plan: Plan, overlap: bool) -> Program:
    program = lower_plan(plan, graph, constants, chip, TARGET, TARGET.data_base_bytes, overlap=overlap)
    verify_program(program, chip)
    return program


def outputs(graph: Graph, constants: Constants, chip: Chip, plan: Plan, program: Program, seed: int) -> list[bytes]:
    compiled = Compiled(graph, constants, chip, plan, program)
    place = {p.tensor: (TARGET.address(p.memory, p.offset_bytes), p.size_bytes) for p in program.placements}
    loads = {place[name][0]: bits.tobytes() for name, bits in compiled.inputs().items()}
    run = TARGET.run(compiled.files, loads, tuple(place[name] for name in graph.outputs), seed)
    return [run.memory[place[name]] for name in graph.outputs]


def deep(batch: int = 4) -> tuple[Graph, Constants]:
    builder = GraphBuilder("deep")
    x = builder.input("x", batch, 16, 16, 32)
    for channels in (64, 96, 64):
        x = builder.elementwise("relu", builder.conv(x, channels))
    return builder.build(x)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("chip", [small_chip(), small_chip(cores=3, data_bytes=48 * KIB, weights_bytes=32 * KIB)])
def test_the_bits_are_those_of_the_plain_program(level: str, chip: Chip) -> None:
    graph, constants = deep()
    plan = make_plan(graph, constants, chip, TARGET, level)
    plain, overlapped = (lowered(graph, constants, chip, plan, overlap) for overlap in (False, True))
    wanted = outputs(graph, constants, chip, plan, plain, 0)
    for seed in (1, 2, 3):
        assert outputs(graph, constants, chip, plan, overlapped, seed) == wanted


@pytest.mark.parametrize("seed", range(8))
def test_random_networks_on_random_chips(seed: int) -> None:
    choose = Seeded(seed)
    graph, constants = random_graph(choose)
    chip = random_chip(choose)
    level = LEVELS[seed % len(LEVELS)]
    try:
        plan = make_plan(graph, constants, chip, TARGET, level)
        plain, overlapped = (lowered(graph, constants, chip, plan, overlap) for overlap in (False, True))
    except UserError:
        pytest.skip("this network does not fit this chip")
    wanted = outputs(graph, constants, chip, plan, plain, 0)
    assert outputs(graph, constants, chip, plan, overlapped, seed) == wanted


def test_engines_overlap_and_the_clock_sees_it() -> None:
    graph, constants = deep(8)
    chip = small_chip(data_bytes=96 * KIB, weights_bytes=32 * KIB)
    plan = make_plan(graph, constants, chip, TARGET, "O3")
    plain, overlapped = (
        time_program(lowered(graph, constants, chip, plan, overlap), chip, TARGET) for overlap in (False, True)
    )
    assert overlapped.cycles < plain.cycles
    assert any(i.opcode == "pld" for s in lowered(graph, constants, chip, plan, True).streams for i in s.instrs)


def instr(engine: str, reads: int, writes: int, name: str = "") -> Instr:
    """Reads and writes 8 bytes each at these offsets of L1."""
    return Instr(engine, name or engine, (), (Region("L1", reads, 8),), (Region("L1", writes, 8),))


def test_a_tile_is_cut_after_its_last_matrix_instruction() -> None:
    work = [instr("matrix", 0, 8), instr("vector", 8, 16), instr("matrix", 0, 8), instr("vector", 8, 16)]
    code = tile_code((), (), work, "matrix")
    assert (len(code.multiply), len(code.finish)) == (3, 1)
    assert tile_code((), (), work, "").multiply == ()


def test_the_next_tile_goes_first_only_where_places_differ() -> None:
    def tile(place: int) -> TileCode:
        return TileCode((), (instr("transfer", 900, place),), (instr("matrix", place, place + 8),),
                        (instr("vector", place + 8, place + 16),))  # fmt: skip

    apart = [i.engine for i in pipelined((tile(0), tile(100), tile(0)))]
    assert apart == ["transfer", "matrix", "transfer", "matrix", "vector", "transfer", "matrix", "vector", "vector"]
    shared = [i.engine for i in pipelined((tile(0), tile(0)))]
    assert shared.index("vector") < len(shared) - 1
    assert independent((instr("vector", 0, 8),), (instr("matrix", 0, 16),))
    assert not independent((instr("vector", 0, 8),), (instr("matrix", 4, 8),))
    assert not independent((Instr("dma", "dma.start", starts="dma0.0"),), (instr("matrix", 0, 8),))


def test_constants_are_broadcast_where_all_cores_read_the_same() -> None:
    def codes(*sources: int) -> list[TileCode]:
        return [TileCode((instr("transfer", source, 0, "copy"),), (), (), ()) for source in sources]

    def mark(instr: Instr, cores: tuple[int, ...]) -> Instr:
        return Instr(instr.engine, f"broadcast to {len(cores)}", (), instr.reads, instr.writes)

    def opcodes(found: dict[int, list[TileCode]]) -> dict[int, list[str]]:
        return {core: [tile.constants[0].opcode for tile in tiles] for core, tiles in found.items()}

    found = opcodes(together({0: codes(0, 8, 16), 2: codes(0, 24)}, mark))
    assert found == {0: ["broadcast to 2", "copy", "copy"], 2: ["broadcast to 2", "copy"]}
    assert opcodes(together({0: codes(0)}, mark)) == {0: ["copy"]}


def test_weights_of_the_next_run_arrive_while_the_array_multiplies() -> None:
    """A reduction of 2,304 products falls into two runs; weights and sums have two places each."""
    builder = GraphBuilder("runs")
    graph, constants = builder.build(builder.conv(builder.input("x", 1, 4, 4, 256), 96))
    chip = small_chip(cores=1)
    plan = make_plan(graph, constants, chip, TARGET, "O0")
    plain, overlapped = (lowered(graph, constants, chip, plan, overlap) for overlap in (False, True))
    products = [instr for instr in overlapped.streams[0].instrs if instr.opcode == "meconv.mm"]
    places = [dict(instr.operands)["rs2"] for instr in products]
    assert len(products) == 6
    assert len(set(places)) == 2
    assert all(before != after for before, after in pairwise(places))
    timeline = time_program(overlapped, chip, TARGET)
    assert timeline.cycles < time_program(plain, chip, TARGET).cycles
    wanted = outputs(graph, constants, chip, plan, plain, 0)
    assert outputs(graph, constants, chip, plan, overlapped, 1) == wanted
