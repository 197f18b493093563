"""Machine code alone gives the same clock as the program that it was made of, also after its order was perturbed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.instructions.arithmetic import FP16
from codegen.neuralscale.instructions.builder import InstructionBuilder as Maker
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.target import TARGET
from codegen.neuralscale.trace.trace import trace_elf
from hw_models.chip import Chip
from hw_models.errors import ChipError, PlanError, TargetError
from isched.hazards.verify_program import verify_program
from isched.program.program import Instr, Program, Region, Stream
from isched.program.region_overlap import overlaps
from isched.program.timed_ops import TimedOp, TimedStream, timed_streams
from isched.timing.cycle_model import time_streams
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.planners.levels import LEVELS, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import Compiled, compile_graph, small_chip, stcp920
from tests.codegen.neuralscale.test_corpus import CASES, Case
from tests.movement_graphs import MovementBuilder
from tests.small_graphs import GraphBuilder

KIB = 1024
CHIP = stcp920()
SMALL = small_chip(3, 32 * KIB, 8 * KIB, 8 * KIB, 256 * KIB)


def residual() -> tuple[Graph, Constants]:
    """Convolution, addition, pooling, a product and a softmax."""
    b = GraphBuilder("residual")
    x = b.input("x", 2, 9, 9, 16)
    y = b.elementwise("add", b.elementwise("relu", b.conv(x, 16)), x)
    y = b.pool("max_pool", y, (3, 3), 2, (1, 1, 1, 1))
    y = b.matmul(b.view(y, 2, 5 * 5 * 16), b.normal(5 * 5 * 16, 10))
    return b.build(b.softmax(y))


def grouped() -> tuple[Graph, Constants]:
    """Depthwise and grouped convolutions, an average, a concatenation."""
    b = GraphBuilder("grouped")
    x = b.input("x", 1, 11, 11, 32)
    y = b.conv(x, 32, groups=32)
    z = b.pool("average_pool", b.conv(x, 32, groups=4), (3, 3), 1, (1, 1, 1, 1))
    return b.build(b.concat(3, y, b.scale_shift(z)))


def moved() -> tuple[Graph, Constants]:
    """Transposes, slices, padding, reductions, resizing."""
    b = MovementBuilder("moved")
    x = b.input("x", 2, 6, 10, 8)
    y = b.transpose(x, 0, 2, 1, 3)
    y = b.pad(y, (0, 1, 0, 0), (0, 2, 1, 0), 1.5)
    y = b.slice(y, (0, 1, 0, 0), (1, 2, 1, 1), (2, 6, 7, 8))
    return b.build(b.reduce("reduce_max", y, 2), b.resize(x, (2, 12, 20, 8)))


def integers() -> tuple[Graph, Constants]:
    """Convolutions and a product of int8, with scales and with one scale, conversions and a residual sum."""
    b = MovementBuilder("integers")
    x = b.input("x", 1, 9, 9, 32, dtype="int8")
    scales, scale = b.constant("scales", b.rng.uniform(1e-3, 2e-3, 32)), b.constant("scale", np.array([1e-3]))
    y = b.narrow(b.elementwise("relu", b.conv(x, 32, factor=scales)), "truncate")
    z = b.narrow(b.add_scaled(b.conv(y, 32, groups=32, factor=scales), x, 0.4))
    w = b.narrow(b.pool("max_pool", b.widen(b.narrow(b.conv(z, 32, factor=scale))), (3, 3), 3), "truncate")
    return b.build(b.matmul(b.view(w, 1, 288), b.integers(288, 10), factor=scale))


GRAPHS: dict[str, Callable[[], tuple[Graph, Constants]]] = {
    "residual": residual,
    "grouped": grouped,
    "moved": moved,
    "integers": integers,
}


def from_program(program: Program, chip: Chip) -> tuple[TimedStream, ...]:
    return timed_streams(program, chip, TARGET.issue_costs(program, chip))


def from_elf(compiled: Compiled, program: Program) -> tuple[TimedStream, ...]:
    files = TARGET.emit(program, compiled.graph, compiled.constants)
    return trace_elf(files.files[files.executable], files.cores, compiled.chip, program.cluster)


def same_time(compiled: Compiled, program: Program) -> None:
    """Cycles, and when every single op was issued, started and ended."""
    ours = time_streams(from_program(program, compiled.chip), compiled.chip)
    theirs = time_streams(from_elf(compiled, program), compiled.chip)
    assert ours.cycles == theirs.cycles
    assert [(s.opcode, s.issued, s.start, s.end) for s in ours.spans] == [
        (s.opcode, s.issued, s.start, s.end) for s in theirs.spans
    ]
    assert ours.scalar_cycles == theirs.scalar_cycles
    assert ours.moved_bytes == theirs.moved_bytes


@pytest.fixture(scope="module", params=sorted(GRAPHS))
def compiled(request: pytest.FixtureRequest) -> Compiled:
    return compile_graph(*GRAPHS[request.param](), CHIP)


@pytest.mark.parametrize("name", sorted(GRAPHS))
@pytest.mark.parametrize("chip", [CHIP, SMALL], ids=["stcp920", "small"])
def test_the_elf_takes_the_time_of_its_program(name: str, chip: Chip) -> None:
    compiled = compile_graph(*GRAPHS[name](), chip)
    same_time(compiled, compiled.program)


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "O0"])
def test_every_level_has_one_clock(level: str) -> None:
    graph, constants = residual()
    plan = make_plan(PlanContext(graph, constants, SMALL, TARGET), planner_of(level))
    program = lower_plan(plan, Context(graph, constants, SMALL, TARGET), TARGET.data_base_bytes)
    same_time(Compiled(graph, constants, SMALL, plan, program), program)


@pytest.mark.parametrize("cluster", [1, 3])
def test_other_clusters_have_other_addresses_and_still_the_same_time(compiled: Compiled, cluster: int) -> None:
    same_time(compiled, replace(compiled.program, cluster=cluster))


def test_the_elf_touches_what_its_program_says(compiled: Compiled) -> None:
    """Regions may be written down differently; the bytes are the same."""
    ours, theirs = from_program(compiled.program, CHIP), from_elf(compiled, compiled.program)
    for mine, its in zip(ours, theirs, strict=True):
        for a, b in zip(mine.ops, its.ops, strict=True):
            assert (a.unit, a.cycles, a.flows, a.moved_bytes) == (b.unit, b.cycles, b.flows, b.moved_bytes), a
            assert _bytes(a) == _bytes(b), a
            assert not b.source or b.source in a.source or not a.source.isidentifier()


def _bytes(op: TimedOp) -> tuple[set[tuple[str, int]], set[tuple[str, int]]]:
    def touched(write: bool) -> set[tuple[str, int]]:
        return {
            (region.memory, region.offset_bytes + row * region.stride_bytes + byte)
            for region in (op.writes if write else op.reads)
            for row in range(region.rows)
            for byte in range(region.row_bytes)
        }

    return touched(False), touched(True)


# Perturbed programs


def free(a: Instr, b: Instr) -> bool:
    """May two neighbours change places?"""
    if a.opcode == "sync" or b.opcode == "sync":
        return False
    if {a.starts, a.awaits} & {b.starts, b.awaits} - {""}:
        return False
    if a.awaits or b.awaits:
        return not (b.awaits and a.starts) and bool(a.awaits and b.awaits)
    return not any(
        overlaps(mine, its)
        for mine, its in (
            *((w, r) for w in a.writes for r in (*b.reads, *b.writes)),
            *((r, w) for r in a.reads for w in b.writes),
        )
    )


def later_wait(a: Instr, b: Instr) -> bool:
    """May a wait go behind the next instruction? Where it touches nothing that the DMA may touch."""
    return bool(a.awaits) and b.opcode != "sync" and not b.awaits and not b.starts and b.engine != "transfer"


def perturbed(program: Program, rng: random.Random, swaps: int) -> Program:
    """Neighbours that do not depend on each other change places, `swaps` times on each core."""
    streams = []
    for stream in program.streams:
        instrs = list(stream.instrs)
        for _ in range(swaps if len(instrs) > 1 else 0):
            at = rng.randrange(len(instrs) - 1)
            if free(instrs[at], instrs[at + 1]) or later_wait(instrs[at], instrs[at + 1]):
                instrs[at], instrs[at + 1] = instrs[at + 1], instrs[at]
        streams.append(Stream(stream.core, tuple(instrs)))
    return replace(program, streams=tuple(streams))


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
@pytest.mark.commit
def test_perturbed_programs_take_the_time_of_their_elf(compiled: Compiled, seed: int) -> None:
    program = perturbed(compiled.program, random.Random(seed), 200)
    verify_program(program, CHIP)
    same_time(compiled, program)


def test_order_matters_to_the_clock(compiled: Compiled) -> None:
    """Else the test above would show nothing."""
    times = {
        time_streams(from_program(perturbed(compiled.program, random.Random(seed), 200), CHIP), CHIP).cycles
        for seed in range(6)
    }
    assert len(times) > 1


@st.composite
def networks(draw: st.DrawFn) -> tuple[Graph, Constants]:
    """A chain of one to four layers of random kinds and extents, with a branch now and then."""
    b = GraphBuilder("random", draw(st.integers(0, 99)))
    channels = st.sampled_from([1, 3, 8, 17, 32])
    x = b.input("x", draw(st.integers(1, 3)), draw(st.integers(3, 12)), draw(st.integers(3, 12)), draw(channels))
    for _ in range(draw(st.integers(1, 4))):
        match draw(st.sampled_from(["conv", "pointwise", "depthwise", "pool", "relu", "add", "softmax"])):
            case "conv":
                x = b.conv(x, draw(channels), stride=draw(st.integers(1, 2)))
            case "pointwise":
                x = b.conv(x, draw(channels), (1, 1), pads=(0, 0, 0, 0))
            case "depthwise":
                x = b.conv(x, b.shape(x)[-1], groups=b.shape(x)[-1])
            case "pool":
                x = b.pool("max_pool", x, (2, 2), 1, (1, 1, 0, 0))
            case "relu":
                x = b.elementwise("relu", x)
            case "add":
                x = b.elementwise("add", x, b.elementwise("tanh", x))
            case "softmax":
                x = b.softmax(x)
    return b.build(x)


@st.composite
def chips(draw: st.DrawFn) -> Chip:
    """Other cores, memories and costs; whole numbers and fractions."""
    size = draw(st.sampled_from([16, 64, 256])) * KIB
    chip = small_chip(draw(st.integers(1, 8)), size, size // 4, size // 4, 8 * size)
    values = {
        "matrix_tile_cycles": draw(st.sampled_from([0.0, 64.0])),
        "vector_pass_cycles": draw(st.sampled_from([0.0, 3.0])),
        "dma_descriptor_cycles": draw(st.sampled_from([0.0, 5.5])),
        "sync_cycles": draw(st.sampled_from([0.0, 100.0])),
        "scalar_instruction_cycles": draw(st.sampled_from([0.0, 1.0, 1.3, 18.0])),
        "queue_depth": draw(st.integers(1, 4)),
    }
    return chip.model_copy(update={"assumed": chip.assumed.model_copy(update=values)})


@settings(max_examples=15)
@given(made=networks(), chip=chips(), level=st.sampled_from(["O0", "O2", "O3"]), cluster=st.integers(0, 3))
def test_random_networks_on_random_chips_have_one_clock(
    made: tuple[Graph, Constants], chip: Chip, level: str, cluster: int
) -> None:
    graph, constants = made
    try:
        plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
        program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes)
    except PlanError:
        reject()
    same_time(Compiled(graph, constants, chip, plan, program), replace(program, cluster=cluster))


def broadcast(late: int) -> tuple[Instr, ...]:
    """A load of 4 KiB for all eight cores, which this core comes to `late`, and one for two of them."""
    region, place = Region("LLB", 8192, 4096), Region("L1", 0, 4096)
    shape = (("mte_shape", 64 << 16 | 32), ("mte_stride_llb", 0))
    ends = (("rd", TARGET.address("L1", 0)), ("rs1", TARGET.address("LLB", 8192)))
    loads = tuple(
        Instr(
            "transfer",
            "pld",
            (*ends, *shape, ("mte_coremap", cores)),
            (region,),
            (place,),
            source="weights",
            meets=cores,
        )
        for cores in (0xFF, *((0x3,) if late < 2 else ()))
    )
    store = MatrixPlace("L1", 65536, 64, 64, FP16.item_bytes)
    return (*(fill for _ in range(late) for fill in Maker(CHIP, "late", FP16).fill(store, 1.0)), *loads)


def test_loads_for_several_cores_have_one_clock(compiled: Compiled) -> None:
    streams = tuple(
        Stream(stream.core, (*broadcast(stream.core), *stream.instrs)) for stream in compiled.program.streams
    )
    program = replace(compiled.program, streams=streams)
    same_time(compiled, program)
    spans = [s for s in time_streams(from_program(program, CHIP), CHIP).spans if s.opcode == "pld"]
    every, pair = spans[0], spans[1]
    assert {(span.start, span.end) for span in spans} == {(every.start, every.end), (pair.start, pair.end)}
    assert every.end - every.start == 65 + 4096 / 64, "one read serves all"


# Programs of others


def _timed(case: Case) -> tuple[TimedStream, ...]:
    return trace_elf(case.elf, case.cores, CHIP)


def by_name(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def test_the_corpus_is_timed() -> None:
    """All programs but those that trap, and those whose ways the chip file does not describe."""
    refused = []
    for case in CASES:
        try:
            streams = _timed(case)
        except (TargetError, ChipError):
            refused.append(case.name)
            continue
        assert time_streams(streams, CHIP).cycles > CHIP.assumed.launch_cycles, case.name
    assert len(refused) <= 25
    assert all(name.startswith(("trap_", "dma_", "rv32_trap")) for name in refused), refused


def test_a_loop_over_instructions_is_followed() -> None:
    streams = _timed(by_name("mc_counter_8"))
    assert [len(stream.ops) for stream in streams] == [49] * 8
    rendezvous = [[op.rendezvous for op in stream.ops if op.rendezvous] for stream in streams]
    assert rendezvous[0]
    assert all(mine == rendezvous[0] for mine in rendezvous)


def test_moves_between_cores_and_broadcasts_are_traced() -> None:
    ring = _timed(by_name("mc_icmov_ring_2"))
    assert [op.opcode for op in ring[0].ops if op.engine == "transfer"] == ["icmov"]
    (icmov,) = (op for op in ring[0].ops if op.opcode == "icmov")
    assert icmov.flows[0].link == "l1_to_l1"
    assert not icmov.writes, "another core's memory"
    pld = [[op for op in stream.ops if op.opcode == "pld"] for stream in _timed(by_name("mc_pld_1"))]
    assert {len(ops) for ops in pld} == {1}
    assert len({ops[0].rendezvous for ops in pld}) == 1


def test_a_wait_names_the_channels_whose_end_lets_the_loop_end() -> None:
    ops = _timed(by_name("dma_lin_e1c0"))[0].ops
    starts = [op.starts for op in ops if op.starts]
    assert [op.awaits for op in ops if op.awaits] == [(token,) for token in starts]
    assert all(op.issue.period > 0 for op in ops if op.awaits)


@pytest.mark.parametrize(
    ("elf", "said"),
    [
        (b"no program", "not an ELF file"),
        (by_name("trap_load_fault").elf, "trap 0x5"),
        (by_name("trap_illegal_zero").elf, "trap 0x2"),
    ],
)
def test_what_cannot_be_timed_says_why(elf: bytes, said: str) -> None:
    with pytest.raises(TargetError, match=said):
        trace_elf(elf, 1, CHIP)


def test_cores_that_are_missing_at_a_barrier_are_named() -> None:
    with pytest.raises(TargetError, match="waits in pld"):
        trace_elf(by_name("mc_pld_1").elf, 2, CHIP)
