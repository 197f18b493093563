"""Machine code with loops, one text for all cores: what it asks of the engines is what the straight form asks."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.instructions.arithmetic import FP16
from codegen.neuralscale.instructions.builder import InstructionBuilder as Maker
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.rolling.alignment import align
from codegen.neuralscale.rolling.repeats import Leaf, Node, RepeatLoop, roll
from codegen.neuralscale.target import TARGET
from codegen.neuralscale.trace.trace import trace_elf
from codegen.riscv.elf import read_elf
from codegen.target import ClusterFiles
from hw_models.chip import Chip
from hw_models.errors import PlanError, TargetError
from isched.program.program import Instr, Program, Stream
from isched.program.timed_ops import IssueCost, TimedOp
from isched.scheduling.schedule import list_scheduled
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.planners.levels import LEVELS, O3, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import Compiled, small_chip, stcp920
from tests.codegen.neuralscale.test_trace import GRAPHS, SMALL, chips, networks, residual

CHIP = stcp920()
ON_TWO_CORES = small_chip(2)
NOTHING: Constants = {}


def text_bytes(files: ClusterFiles) -> int:
    segments = read_elf(files.files[files.executable]).segments
    return sum(len(segment.data) for segment in segments if segment.executable)


def asked(files: ClusterFiles, chip: Chip) -> list[list[TimedOp]]:
    """All ops of all cores, without how many scalar instructions lead to them."""
    streams = trace_elf(files.files[files.executable], files.cores, chip, files.cluster)
    return [[replace(op, issue=IssueCost(0, 0, op.issue.period)) for op in stream.ops] for stream in streams]


def same_work(program: Program, graph: Graph, constants: Constants, chip: Chip) -> tuple[int, int]:
    """Bytes of the straight text and of the rolled one, which ask the same, each op under the same operator."""
    straight = TARGET.emit(program, graph, constants, chip)
    rolled = TARGET.emit_rolled(program, graph, constants, chip)
    assert asked(rolled, chip) == asked(straight, chip)
    return text_bytes(straight), text_bytes(rolled)


def lowered(graph: Graph, constants: Constants, chip: Chip, level: str) -> Program:
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
    return lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes)


# Networks


@pytest.mark.spread(16)
@pytest.mark.parametrize("name", sorted(GRAPHS))
@pytest.mark.parametrize("chip", [CHIP, SMALL], ids=["stcp920", "small"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.commit
def test_loops_ask_what_the_straight_form_asks(name: str, chip: Chip, level: str) -> None:
    graph, constants = GRAPHS[name]()
    program = lowered(graph, constants, chip, level)
    straight, rolled = same_work(program, graph, constants, chip)
    assert rolled < straight


def test_so_does_a_program_in_another_order() -> None:
    graph, constants = residual()
    program = list_scheduled(lowered(graph, constants, CHIP, "O3"), CHIP, TARGET)
    straight, rolled = same_work(program, graph, constants, CHIP)
    assert 2 * rolled < straight


@pytest.mark.parametrize("cluster", [1, 3])
def test_so_do_other_clusters(cluster: int) -> None:
    graph, constants = residual()
    same_work(replace(lowered(graph, constants, SMALL, "O2"), cluster=cluster), graph, constants, SMALL)


@settings(max_examples=25)
@given(made=networks(), chip=chips(), level=st.sampled_from(["O0", "O1", "O2", "O3"]), ordered=st.booleans())
def test_random_networks_on_random_chips(made: tuple[Graph, Constants], chip: Chip, level: str, ordered: bool) -> None:
    graph, constants = made
    try:
        program = lowered(graph, constants, chip, level)
    except PlanError:
        reject()
    same_work(list_scheduled(program, chip, TARGET) if ordered else program, graph, constants, chip)


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_the_same_bits_are_stored(name: str) -> None:
    graph, constants = GRAPHS[name]()
    context = PlanContext(graph, constants, SMALL, TARGET)
    program = lowered(graph, constants, SMALL, "O3")
    run = Compiled(graph, constants, SMALL, make_plan(context, O3()), program)
    loads = {
        TARGET.address("DDR", program.placement[name].offset_bytes): np.ascontiguousarray(bits).tobytes()
        for name, bits in run.inputs(3).items()
    }
    dumps = tuple(
        (TARGET.address("DDR", placement.offset_bytes), placement.size_bytes)
        for placement in program.placements
        if placement.kind == "output"
    )
    straight = TARGET.run(run.files, loads, dumps, 3)
    rolled = TARGET.run(TARGET.emit_rolled(program, graph, constants, SMALL), loads, dumps, 5)
    assert dumps
    assert rolled.memory == straight.memory
    assert rolled.moved_bytes == straight.moved_bytes
    engines = set(straight.instructions) - {"scalar"}
    assert {unit: rolled.instructions[unit] for unit in engines} == {e: straight.instructions[e] for e in engines}


def test_equal_programs_give_equal_bytes() -> None:
    graph, constants = residual()
    first, second = (lowered(graph, constants, SMALL, "O2") for _ in range(2))
    emitted = [TARGET.emit_rolled(program, graph, constants, SMALL).files for program in (first, second)]
    assert emitted[0] == emitted[1]


# Programs made by hand


def empty_graph() -> Graph:
    return Graph("made", (), (), (), ())


def program_of(*streams: Sequence[Instr]) -> Program:
    made = tuple(Stream(core, tuple(instrs)) for core, instrs in enumerate(streams))
    return Program("made", CHIP.name, 0, "sync", (), made)


def add(first: int, second: int, result: int, rows: int = 2, source: str = "add") -> Instr:
    """The sum of two matrices at these offsets of L1."""
    maker = Maker(CHIP, source, FP16)
    places = [MatrixPlace("L1", offset, rows, 32, FP16.item_bytes) for offset in (first, second, result)]
    (instr,) = maker.binary("veadd", places[2], *places[:2])
    return instr


def depths(nodes: Sequence[Node]) -> Iterator[int]:
    for node in nodes:
        yield 0 if isinstance(node, Leaf) else 1 + max(depths(node.body))


def loops(program: Program) -> list[Node]:
    return list(roll(align(program)[0]))


def test_a_repeat_becomes_a_counted_loop() -> None:
    program = program_of([add(64 * n, 0x8000, 0x10000 + 128 * n) for n in range(50)])
    (loop,) = loops(program)
    assert isinstance(loop, RepeatLoop)
    assert (loop.count, loop.size) == (50, 3)
    assert sorted(loop.strides) == [0, 64, 128]
    straight, rolled = same_work(program, empty_graph(), NOTHING, ON_TWO_CORES)
    assert 2 * rolled < straight


def test_repeats_of_repeats_become_loops_in_loops() -> None:
    program = program_of(
        [add(4096 * i + 64 * j, 0x8000 + 4 * i, 0x20000 + 2048 * i, 2 + 2 * k) for i in range(6) for k in range(2)
         for j in range(16)]
    )  # fmt: skip
    assert max(depths(loops(program))) == 2
    straight, rolled = same_work(program, empty_graph(), NOTHING, ON_TWO_CORES)
    assert 4 * rolled < straight


def test_steps_larger_than_an_immediate_and_backwards() -> None:
    far = [add(0x40000 - 0x2000 * n, 0x50000 + 0x4000 * n, 0x80000 + 0x3000 * n) for n in range(20)]
    back = [add(0x40000 - 64 * n, 0x50000, 0x80000) for n in range(20)]
    same_work(program_of(far + back), empty_graph(), NOTHING, ON_TWO_CORES)


def test_more_pointers_than_registers() -> None:
    """Every operand of the body grows by another step: the iterations stand one after the other."""
    body = [
        [add(32 * n * (3 * k + 1), 32 * n * (3 * k + 2), 32 * n * (3 * k + 3)) for k in range(12)] for n in range(4)
    ]
    same_work(program_of([instr for turn in body for instr in turn]), empty_graph(), NOTHING, ON_TWO_CORES)


def test_cores_share_text_and_differ_by_addresses() -> None:
    """One core does more, another other addresses that grow by no constant."""
    shared = [[add(64 * n + shift, 0x8000, 0x10000 + 3 * shift + 128 * n) for n in range(30)] for shift in (0, 640)]
    own = [add(0x40000 + 64 * n * n, 0x9000, 0x60000) for n in range(8)]
    same_work(program_of(shared[0], [*shared[1][:15], *own, *shared[1][15:]]), empty_graph(), NOTHING, ON_TWO_CORES)
    _, one = same_work(program_of(shared[0]), empty_graph(), NOTHING, ON_TWO_CORES)
    straight, both = same_work(program_of(*shared), empty_graph(), NOTHING, ON_TWO_CORES)
    assert both < one + 100  # an entry, a row of the table, and what reads it
    assert 2 * both < straight


@pytest.mark.commit
def test_long_stretches_are_shared_though_one_core_has_more_to_do() -> None:
    """No barrier in thousands of steps, and nothing repeats evenly; one core does more, early and late."""
    rng = random.Random(4)
    common = [add(2 * rng.randrange(2000), 0x8000, 0x10000, rng.choice((1, 2, 3)), rng.choice("ab"))
              for _ in range(3000)]  # fmt: skip
    own = [add(0x40000 + 64 * n * n, 0x9000, 0x60000, source="own") for n in range(90)]
    _, one = same_work(program_of(common), empty_graph(), NOTHING, ON_TWO_CORES)
    more = [*own[:60], *common[:2500], *own[60:], *common[2500:]]
    _, both = same_work(program_of(common, more), empty_graph(), NOTHING, ON_TWO_CORES)
    assert both < 1.1 * one


@settings(max_examples=30)
@given(seed=st.integers(0, 1 << 30))
@pytest.mark.commit
def test_patterns_drawn_at_random(seed: int) -> None:
    """Nested repeats with random steps, torn here and there, on up to two cores that do partly the same."""
    rng = random.Random(seed)

    def pattern(depth: int, at: tuple[int, int, int]) -> list[Instr]:
        if depth == 0:
            first, second, third = (0x400 * 64 + place for place in at)
            return [add(first, second, third, rng.choice((1, 2)), rng.choice("ab"))]
        steps = [rng.choice((0, 0, 2, 64, -64, 3000, 4096)) for _ in range(3)]
        bodies = [tuple(rng.randrange(-2000, 2000) * 2 for _ in range(3)) for _ in range(rng.randint(1, 3))]
        fixed = rng.getstate()
        made: list[Instr] = []
        for turn in range(rng.randint(1, 5)):
            state = rng.getstate()
            rng.setstate(fixed)  # every iteration draws the same
            for body in bodies:
                first, second, third = (a + s * turn + b for a, s, b in zip(at, steps, body, strict=True))
                made += pattern(depth - 1, (first, second, third))
            rng.setstate(state)
        if rng.random() < 0.3:
            del made[rng.randrange(len(made))]
        return made

    whole = [instr for _ in range(3) for instr in pattern(rng.randint(1, 3), (0x20000, 0x60000, 0xA0000))]
    other = [instr for instr in whole if rng.random() < 0.9]
    same_work(program_of(whole, other), empty_graph(), NOTHING, ON_TWO_CORES)


def fault(files: ClusterFiles) -> str:
    """How a run ends that reads what nobody wrote, without the registers that its instruction names."""
    with pytest.raises(TargetError) as refused:
        TARGET.run(files, {}, (), 0)
    found = re.search(r"has (core \d+) at \S+ (\(operator \w+\)): (\S+) [^:]*: (.*)", str(refused.value))
    assert found, refused.value
    return " ".join(found.groups())


@pytest.mark.parametrize(("turn", "operator"), [(2, "first"), (30, "second")])
def test_a_fault_in_an_iteration_of_a_core_names_its_operator(turn: int, operator: str) -> None:
    """Core 1 has less to read than core 0, which does the same."""

    def reading(rows: int) -> list[Instr]:
        (fill,) = Maker(CHIP, "fill", FP16).fill(MatrixPlace("L1", 0, rows, 32, FP16.item_bytes), 1.0)
        sums = [add(128 * n, 128 * n, 0x20000, source="first" if n < 10 else "second") for n in range(40)]
        return [fill, *sums]

    program = program_of(reading(100), reading(2 * turn))
    said = [fault(emit(program, empty_graph(), NOTHING, ON_TWO_CORES)) for emit in (TARGET.emit, TARGET.emit_rolled)]
    assert said[0] == said[1]
    assert said[0].startswith(f"core 1 (operator {operator}) veadd.mm reads L1 {0xC000_0000 + 128 * turn:#x}")
