"""Scheduling changes when things happen, never what is computed: random networks, chips, levels and simulator seeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest

from benchmarks.lab.programs import lower_plan, schedule_program
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import PlanError, UserError
from isched.hazards.dependences import dependences
from isched.hazards.verify_program import verify_program
from isched.program.program import Instr, Program, Region, Stream, TensorPlacement
from isched.program.target import MemoryCopy
from isched.scheduling.schedule import Scheduled, list_scheduled, scheduled_lowering
from isched.timing.cycle_model import run_below, time_program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Plan
from partitioner.planners.levels import LEVELS, O0, O3, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import Compiled, small_chip
from tests.partition_graphs import Seeded, random_chip, random_graph
from tests.small_graphs import GraphBuilder

KIB = 1024


def lowered(graph: Graph, constants: Constants, chip: Chip, plan: Plan, scheduled: bool) -> Program:
    """The plain program, or that with other addresses in the order that the scheduler finds."""
    program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes, overlap=scheduled)
    verify_program(program, chip)
    if scheduled:
        program = schedule_program(program, chip, TARGET)
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


@pytest.mark.spread(3)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("chip", [small_chip(), small_chip(cores=3, data_bytes=48 * KIB, weights_bytes=32 * KIB)])
def test_the_bits_are_those_of_the_plain_program(level: str, chip: Chip) -> None:
    graph, constants = deep()
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
    plain, scheduled = (lowered(graph, constants, chip, plan, scheduled) for scheduled in (False, True))
    wanted = outputs(graph, constants, chip, plan, plain, 0)
    for seed in (1, 2, 3):
        assert outputs(graph, constants, chip, plan, scheduled, seed) == wanted


def lowerings(level: str) -> dict[bool, Program]:
    graph, constants = deep()
    ctx = Context(graph, constants, small_chip(), TARGET)
    plan = make_plan(ctx, planner_of(level))
    return {ahead: lower_plan(plan, ctx, TARGET.data_base_bytes, overlap=ahead) for ahead in (False, True)}


@pytest.mark.parametrize("level", LEVELS)
def test_the_fastest_of_all_lowerings_is_kept(level: str) -> None:
    chip, made = small_chip(), lowerings(level)
    found = scheduled_lowering(lambda ahead: made[ahead], chip, TARGET)
    assert isinstance(found, Scheduled)
    tried = [made[False], *(schedule_program(program, chip, TARGET) for program in made.values())]
    assert found.cycles == time_program(found.program, chip, TARGET).cycles
    assert found.cycles == min(time_program(program, chip, TARGET).cycles for program in tried)
    assert found.program in tried


def test_what_comes_to_the_limit_is_not_kept() -> None:
    chip, made = small_chip(), lowerings("O2")
    found = scheduled_lowering(lambda ahead: made[ahead], chip, TARGET)
    assert found is not None
    assert scheduled_lowering(lambda ahead: made[ahead], chip, TARGET, found.cycles + 1) == found
    assert scheduled_lowering(lambda ahead: made[ahead], chip, TARGET, found.cycles) is None


def test_cycles_are_those_of_a_whole_run_or_none() -> None:
    chip, program = small_chip(), lowerings("O0")[False]
    cycles = time_program(program, chip, TARGET).cycles
    for limit in (inf, cycles + 1):
        run = run_below(program, chip, TARGET, limit)
        assert run is not None
        assert run.cycles == cycles
    for limit in (cycles, cycles / 2, 0):
        assert run_below(program, chip, TARGET, limit) is None


def test_a_run_below_a_limit_has_the_timeline_of_the_whole_run() -> None:
    chip, program = small_chip(), lowerings("O0")[False]
    whole = time_program(program, chip, TARGET)
    run = run_below(program, chip, TARGET, whole.cycles + 1)
    assert run is not None
    assert run.timeline(chip) == whole
    assert run_below(program, chip, TARGET, whole.cycles) is None


@pytest.mark.slow(at_commit=2)
@pytest.mark.parametrize("seed", range(8))
def test_random_networks_on_random_chips(seed: int) -> None:
    choose = Seeded(seed)
    graph, constants = random_graph(choose)
    chip = random_chip(choose)
    level = LEVELS[seed % len(LEVELS)]
    try:
        plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
        plain, scheduled = (lowered(graph, constants, chip, plan, scheduled) for scheduled in (False, True))
    except UserError:
        pytest.skip("this network does not fit this chip")
    wanted = outputs(graph, constants, chip, plan, plain, 0)
    assert outputs(graph, constants, chip, plan, scheduled, seed) == wanted


def test_the_same_instructions_in_another_order() -> None:
    """Nothing is lost, barriers apart; the cycle model sees the gain; two runs give equal streams."""
    graph, constants = deep(8)
    chip = small_chip(data_bytes=96 * KIB, weights_bytes=32 * KIB)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O3())
    program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes, overlap=True)
    scheduled = schedule_program(program, chip, TARGET)
    assert scheduled == schedule_program(program, chip, TARGET)
    for before, after in zip(program.streams, scheduled.streams, strict=True):
        here, there = (Counter(i for i in s.instrs if i.opcode != program.barrier) for s in (before, after))
        assert here == there
        assert before.instrs != after.instrs
        assert sum(i.opcode == program.barrier for i in after.instrs) < len(before.instrs) - here.total()
    assert any(i.meets for s in program.streams for i in s.instrs), "weights come by broadcast"
    serial, plain, found = (
        time_program(p, chip, TARGET, awaited=awaited).cycles
        for p, awaited in ((program, True), (program, False), (scheduled, False))
    )
    assert found < 0.95 * plain
    assert plain < serial


@pytest.mark.spread(1)
@pytest.mark.parametrize("seed", range(6))
def test_any_order_that_keeps_the_dependences_is_right(seed: int) -> None:
    """Random orders of a program, each accepted by the checks, leave the same bits on every simulator seed."""
    choose = Seeded(seed)
    graph, constants = deep(4)
    chip = small_chip(cores=3, data_bytes=48 * KIB, weights_bytes=32 * KIB)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O3())
    program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes, overlap=True)
    wanted = outputs(graph, constants, chip, plan, program, 0)
    shuffled = in_random_order(program, chip, choose)
    verify_program(shuffled, chip)
    assert outputs(graph, constants, chip, plan, shuffled, seed) == wanted


@pytest.mark.parametrize("barriers", [0, 1, 3])
@pytest.mark.parametrize("works", [0, 2])
def test_programs_of_next_to_nothing(barriers: int, works: int) -> None:
    """Cores that do nothing, only meet, or never touch a shared memory: accepted, and no barrier stays."""
    chip = small_chip()
    sync, place = TARGET.synchronise(""), Region("L1", 0, 64)
    instrs = [sync] * barriers + [Instr("vector", "mov.f", writes=(place,), cycles=1.0)] * works
    streams = (Stream(0, tuple(instrs)), *(Stream(core, (sync,) * barriers) for core in range(1, 3)))
    program = Program("little", chip.name, 0, sync.opcode, (), streams)
    verify_program(program, chip)
    scheduled = schedule_program(program, chip, TARGET)
    verify_program(scheduled, chip)
    assert [len(stream.instrs) for stream in scheduled.streams] == [works, 0, 0]


def test_instructions_that_wait_for_each_other_are_an_error() -> None:
    """A transfer that starts again before anything awaits it: no order of these instructions is right, and looking for
    one ends."""
    chip, sync = small_chip(), TARGET.synchronise("")
    place, main = Region("LLB", 0, 64), Region("DDR", 1 << 20, 64)
    channel = ("engine", 0), ("channel", 0)
    words = tuple((f"w{number}", 0) for number in range(5))
    bring = Instr("dma", "dma.start", (*channel, *words), (main,), (place,), starts="dma0.0")
    wait = Instr("scalar", "dma.wait", channel, awaits="dma0.0")
    streams = (Stream(0, (sync, bring, bring, wait)), *(Stream(core, (sync,)) for core in range(1, 3)))
    program = Program("wrong", chip.name, 0, sync.opcode, (), streams)
    with pytest.raises(PlanError):
        verify_program(program, chip)
    with pytest.raises(PlanError, match="some in a circle"):
        list_scheduled(program, chip, TARGET)


@pytest.mark.parametrize(("giver", "taker"), [(0, 1), (1, 0)])
def test_what_only_some_cores_do_together_orders_no_others(giver: int, taker: int) -> None:
    """One core stores what another loads. A broadcast between the two orders them; the scheduler needs all cores in it,
    and says so."""
    chip = small_chip(3)
    sources, local, handed = Region("LLB", 0, 64), Region("L1", 0, 64), Region("LLB", 4096, 64)

    def copy(source: Region, destination: Region) -> Instr:
        (instr,) = TARGET.copy((MemoryCopy(source, destination),), "handed", chip)
        return instr

    def handing_on(members: tuple[int, ...]) -> Program:
        together = TARGET.broadcast(copy(sources, Region("L1", 64, 64)), members)
        before, behind = [copy(sources, local), copy(local, handed)], [copy(handed, Region("L1", 128, 64))]
        streams = tuple(
            Stream(core, (*before * (core == giver), *[together] * (core in members), *behind * (core == taker)))
            for core in range(3)
        )
        staged = TensorPlacement("staged", "input", "LLB", 0, 64)
        return Program("handing on", chip.name, 0, TARGET.barrier, (staged,), streams)

    by_all, by_two = handing_on((0, 1, 2)), handing_on((0, 1))
    verify_program(by_all, chip)
    verify_program(schedule_program(by_all, chip, TARGET), chip)
    verify_program(by_two, chip)
    with pytest.raises(PlanError, match=r"needs .* ordered by a barrier, or by what all cores do together"):
        schedule_program(by_two, chip, TARGET)


def test_transfers_side_by_side_are_awaited_when_both_are_over() -> None:
    """Both engines of the DMA bring halves of a box at the same time: neither is done when it would be alone, and the
    core that awaits them has other work until then."""
    chip = small_chip(1)
    size = 1 << 17
    there, staged, local = Region("DDR", 0, size), Region("LLB", 0, size), Region("L1", 0, 256)
    fetch = TARGET.copy((MemoryCopy(there, staged),), "fetch", chip)
    assert [instr.opcode for instr in fetch] == ["dma.start"] * 2 + ["dma.wait"] * 2
    moved = sum(instr.cycles for instr in fetch)
    used = TARGET.copy((MemoryCopy(Region("LLB", 0, 256), local),), "use", chip)
    work = [Instr("vector", "mov.f", writes=(Region("L1", 1024, 64),), cycles=moved / 64) for _ in range(96)]
    weights = TensorPlacement("weights", "constant", "DDR", 0, size)
    program = Program("fetch", chip.name, 0, TARGET.barrier, (weights,), (Stream(0, (*fetch, *used, *work)),))
    verify_program(program, chip)
    scheduled = schedule_program(program, chip, TARGET)
    waits = [span for span in time_program(scheduled, chip, TARGET).spans if span.opcode == "dma.wait"]
    assert len(waits) == 2
    assert all(span.end - span.ready < moved / 16 for span in waits)


def in_random_order(program: Program, chip: Chip, choose: Seeded) -> Program:
    streams = []
    for stream, order in zip(program.streams, dependences(program, chip), strict=True):
        missing: dict[int, set[int]] = {n: set() for n in range(len(stream.instrs)) if n not in order.dropped}
        inside, shared, ordered = order.inside.earlier, order.shared, order.ordered
        pairs = [(inside.later, inside.numbers), *((some.later, some.earlier) for some in (shared, ordered))]
        for positions, others in pairs:
            for position, before in zip(positions.tolist(), others.tolist(), strict=True):
                missing[position].add(before)
        listed: list[int] = []
        while missing:
            ready = sorted(position for position, earlier in missing.items() if not earlier)
            taken = choose.one_of(ready[:6])
            listed.append(taken)
            del missing[taken]
            for earlier in missing.values():
                earlier.discard(taken)
        streams.append(replace(stream, instrs=tuple(stream.instrs[position] for position in listed)))
    return replace(program, streams=tuple(streams))


def test_weights_of_the_next_run_arrive_while_the_array_multiplies() -> None:
    """A reduction of 2,304 products falls into two runs; weights and sums have two places each."""
    builder = GraphBuilder("runs")
    graph, constants = builder.build(builder.conv(builder.input("x", 1, 4, 4, 256), 96))
    chip = small_chip(cores=1)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O0())
    plain, scheduled = (lowered(graph, constants, chip, plan, scheduled) for scheduled in (False, True))
    products = [instr for instr in scheduled.streams[0].instrs if instr.opcode == "meconv.mm"]
    places = [dict(instr.operands)["rs2"] for instr in products]
    assert len(products) == 6
    assert len(set(places)) == 2
    assert all(before != after for before, after in pairwise(places))
    timeline = time_program(scheduled, chip, TARGET)
    assert timeline.cycles < time_program(plain, chip, TARGET).cycles
    wanted = outputs(graph, constants, chip, plan, plain, 0)
    assert outputs(graph, constants, chip, plan, scheduled, 1) == wanted
