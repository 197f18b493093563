"""The cycle model against figures that anybody can work out: small streams on the stcp920 and on chips like it.

The launch (20,000 cycles) is taken off; a scalar instruction takes one cycle unless a test says otherwise.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen.neuralscale.instructions.arithmetic import FP16
from codegen.neuralscale.instructions.builder import InstructionBuilder as Maker
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.kernels.transfers import copy_instructions
from hw_models.chip import Chip
from hw_models.cost import dma_cycles, transfer_cycles
from hw_models.errors import PlanError
from isched.program.program import Instr, Program, Region, Stream
from isched.program.target import MemoryCopy
from isched.program.timed_ops import CoreIssue, IssueCost, LinkFlow, TimedOp, TimedStream, timed_op, timed_streams
from isched.timing.critical_path import critical_path
from isched.timing.cycle_model import time_streams
from isched.timing.timeline import Timeline, TimelineSpan
from tests.chip_runs import stcp920

CHIP = stcp920()


def assumed(**values: float) -> Chip:
    """The stcp920 with other assumptions."""
    return CHIP.model_copy(update={"assumed": CHIP.assumed.model_copy(update=values)})


def work(
    engine: str, cycles: float, *, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), before: int = 1
) -> TimedOp:
    """An op of so many cycles; a number names 64 bytes of L1."""

    def places(numbers: tuple[int, ...]) -> tuple[Region, ...]:
        return tuple(Region("L1", 64 * number, 64) for number in numbers)

    return TimedOp(engine, engine, IssueCost(before), engine, cycles, (), places(reads), places(writes))


def matrix(cycles: float, before: int = 1) -> TimedOp:
    return work("matrix", cycles, before=before)


def vector(cycles: float, before: int = 1) -> TimedOp:
    return work("vector", cycles, before=before)


def load(size_bytes: int, before: int = 1) -> TimedOp:
    """Bytes from LLB to L1: 65 cycles, then they move."""
    return TimedOp("transfer", "mov.l1.llb", IssueCost(before), "transfer", 65, (LinkFlow("llb_to_l1", size_bytes),))


def barrier(number: int = 0) -> TimedOp:
    return TimedOp("sync", "sync", IssueCost(1), rendezvous=f"sync{number}")


def start(size_bytes: int, channel: str = "dma0.0", number: int = 0, link: str = "ddr_to_llb") -> TimedOp:
    token = f"{channel}#{number}"
    return TimedOp("dma", "dma.start", IssueCost(10), channel, 66, (LinkFlow(link, size_bytes),), starts=token)


def wait(channel: str = "dma0.0", number: int = 0) -> TimedOp:
    return TimedOp("scalar", "dma.wait", IssueCost(1, 4, 3), awaits=(f"{channel}#{number}",))


def run(*cores: tuple[TimedOp, ...], chip: Chip = CHIP) -> Timeline:
    return time_streams(tuple(TimedStream(core, ops) for core, ops in enumerate(cores)), chip)


def cycles(timeline: Timeline) -> float:
    return timeline.cycles - timeline.launch_cycles


def spans(timeline: Timeline, core: int = 0) -> list[tuple[float, float, float]]:
    """(issued, start, end) of each op of a core, from the launch on."""
    return [
        (span.issued - timeline.launch_cycles, span.start - timeline.launch_cycles, span.end - timeline.launch_cycles)
        for span in timeline.spans
        if span.core == core
    ]


# One instruction


def profiled(timeline: Timeline) -> list[float]:
    return [span.end - span.start for span in timeline.spans]


def test_the_vendors_profiler_example_takes_its_published_cycles() -> None:
    """memul.mm 1x8x1: 28, mov.m of one element: 11, mov.llb.l1 of 2 bytes: 66 on average."""
    make = Maker(CHIP, "example", FP16)
    a, b, product = MatrixPlace("L1", 0, 1, 8, 2), MatrixPlace("L1", 1 << 20, 8, 1, 2), MatrixPlace("IM", 0, 1, 1, 2)
    result = MatrixPlace("L1", 64, 1, 1, 2)
    instrs = (
        make.memul(product, a, b),
        *make.unary("mov.m", result, product),
        *copy_instructions((MemoryCopy(result.region, Region("LLB", 0, 2)),), "example", CHIP),
    )
    ops = tuple(timed_op(instr, CHIP, IssueCost(1)) for instr in instrs)
    timeline = run(ops)
    assert [op.opcode for op in ops] == ["memul.mm", "mov.m", "mov.llb.l1"]
    assert profiled(timeline) == [28, 11, 66]
    # Each needs the one before it, so they follow each other after the first one's issue.
    assert cycles(timeline) == 1 + 28 + 11 + 66
    assert [span.stall for span in timeline.spans] == ["", "conflict", "conflict"]
    assert [span.blocked_by for span in timeline.spans] == [-1, 0, 1]


def test_a_transfer_alone_takes_what_the_cost_model_says() -> None:
    region = Region("LLB", 0, 70, 5, 128)
    instr = Instr("transfer", "mov.l1.llb", (), (region,), (Region("L1", 0, 350),))
    (took,) = profiled(run((timed_op(instr, CHIP, IssueCost(1)),)))
    assert took == transfer_cycles(CHIP, "LLB", "L1", 350, 5) == 65 + 5 * 2


def test_dense_rows_are_one_run() -> None:
    instr = Instr("transfer", "mov.l1.llb", (), (Region("LLB", 0, 70, 5, 70),), (Region("L1", 0, 350),))
    (took,) = profiled(run((timed_op(instr, CHIP, IssueCost(1)),)))
    assert took == 65 + 6


def test_a_dma_chain_alone_takes_what_the_cost_model_says() -> None:
    chip = assumed(dma_descriptor_cycles=7)
    reads = (Region("DDR", 0, 1000), Region("DDR", 4096, 100, 8, 512))
    writes = (Region("LLB", 0, 1000), Region("LLB", 1024, 800))
    instr = Instr("dma", "dma.start", (), reads, writes, starts="dma0.0")
    (took,) = profiled(run((timed_op(instr, chip, IssueCost(1), starts="dma0.0#0"),), chip=chip))
    assert took == dma_cycles(chip, "DDR", "LLB", 1800, 1, descriptors=2)


def test_the_launch_is_paid_once_and_the_end_counts() -> None:
    stream = TimedStream(0, (matrix(5, before=3),), end=40)
    assert time_streams((stream,), CHIP).cycles == 20_000 + 43
    assert time_streams((TimedStream(0, ()),), CHIP).cycles == 20_000


# The scalar core


def test_every_scalar_instruction_is_paid_before_issue() -> None:
    ops = (matrix(1, before=4), vector(1, before=6))
    assert [issued for issued, _, _ in spans(run(ops))] == [4, 10]
    assert [issued for issued, _, _ in spans(run(ops, chip=assumed(scalar_instruction_cycles=2.5)))] == [10, 25]


def test_a_core_that_only_issues_is_bound_by_issue() -> None:
    timeline = run(tuple(vector(1, before=10) for _ in range(20)))
    assert cycles(timeline) == 200 + 1
    assert timeline.scalar_cycles == (200,)


# Engines and queues


def test_engines_work_side_by_side() -> None:
    timeline = run((matrix(100), vector(50), load(6400)))
    assert spans(timeline) == [(1, 1, 101), (2, 2, 52), (3, 3, 168)]
    assert timeline.busy_cycles == {"matrix": 100, "transfer": 165, "vector": 50}
    # After the launch: 168 cycles; the engines are busy from 1 on.
    assert timeline.utilisation["matrix"] == pytest.approx(100 / 168)
    overlaps = {name: overlap.cycles for name, overlap in timeline.overlaps.items()}
    assert overlaps == {"all": 49, "transfer/matrix": 98, "transfer/vector": 49, "vector/matrix": 50}
    assert timeline.overlaps["all"].share == pytest.approx(49 / 167)


def test_an_engine_does_one_thing_at_a_time_in_order() -> None:
    assert spans(run((matrix(100), matrix(10), matrix(1)))) == [(1, 1, 101), (2, 101, 111), (3, 111, 112)]


def test_a_full_queue_stops_the_scalar_core() -> None:
    ops = (matrix(100), matrix(100), matrix(100), vector(5))
    timeline = run(ops, chip=assumed(queue_depth=2))
    # Two are in flight until cycle 101; the vector instruction comes behind the third matrix instruction.
    assert spans(timeline) == [(1, 1, 101), (2, 101, 201), (101, 201, 301), (102, 102, 107)]
    assert timeline.stall_cycles == {"queue": 98}
    assert [span.stall for span in timeline.spans] == ["", "", "queue", ""]


def test_a_loop_longer_than_the_queue_holds_the_scalar_core() -> None:
    loop = replace(matrix(100), issue=IssueCost(1, after=3, entries=9))
    timeline = run((loop, vector(5)), chip=assumed(queue_depth=8))
    assert spans(timeline) == [(1, 1, 101), (105, 105, 110)]
    assert [stretch.cause for stretch in critical_path(timeline)] == ["scalar", "matrix", "scalar", "vector"]
    short = replace(loop, issue=IssueCost(1, after=3, entries=8))
    assert spans(run((short, vector(5)), chip=assumed(queue_depth=8))) == [(1, 1, 101), (5, 5, 10)]


def test_an_engine_may_have_a_queue_of_its_own_depth() -> None:
    engines = tuple(
        each.model_copy(update={"queue_depth": 1}) if each.name == "matrix" else each for each in CHIP.engines
    )
    timeline = run((matrix(100), matrix(10), vector(5), vector(5)), chip=CHIP.model_copy(update={"engines": engines}))
    assert spans(timeline) == [(1, 1, 101), (101, 101, 111), (102, 102, 107), (103, 107, 112)]


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        (work("matrix", 50, writes=(1,)), work("vector", 5, reads=(1,)), True),
        (work("matrix", 50, reads=(1,)), work("vector", 5, writes=(1,)), True),
        (work("matrix", 50, writes=(1,)), work("vector", 5, writes=(1,)), True),
        (work("matrix", 50, reads=(1,)), work("vector", 5, reads=(1,)), False),
        (work("matrix", 50, writes=(1,)), work("vector", 5, reads=(2,)), False),
    ],
)
def test_what_conflicts_with_an_access_in_flight_waits(first: TimedOp, second: TimedOp, waits: bool) -> None:
    timeline = run((first, second, matrix(1)))
    issued = 51 if waits else 2
    assert spans(timeline)[1] == (issued, issued, issued + 5)
    assert spans(timeline)[2][0] == issued + 1, "issue is in order"
    assert timeline.stall_cycles == ({"conflict": 49} if waits else {})


def test_what_waits_in_a_reservation_station_does_not_stop_the_scalar_core() -> None:
    """The second instruction waits for the first one in its queue, and what follows is issued; queues stay in order."""
    waiting = replace(work("vector", 5, reads=(1,)), issue=IssueCost(1, stationed=True))
    timeline = run((work("matrix", 50, writes=(1,)), waiting, load(64), vector(3)))
    assert spans(timeline)[1] == (2, 51, 56)
    assert spans(timeline)[2][:2] == (3, 3)
    assert spans(timeline)[3] == (4, 56, 59)
    assert timeline.stall_cycles == {}
    early = run((work("matrix", 50, writes=(1,)), waiting))
    assert [stretch.cause for stretch in critical_path(early)] == ["scalar", "matrix", "vector"]


def test_a_full_reservation_station_stops_the_scalar_core() -> None:
    waiting = replace(work("vector", 5, reads=(1,)), issue=IssueCost(1, stationed=True))
    timeline = run((work("matrix", 50, writes=(1,)), waiting, waiting, waiting), chip=assumed(queue_depth=2))
    assert spans(timeline)[1:] == [(2, 51, 56), (3, 56, 61), (56, 61, 66)]
    assert timeline.stall_cycles == {"queue": 52}


def test_rows_that_lie_between_each_other_do_not_conflict() -> None:
    even = Region("L1", 0, 32, 8, 64)
    odd, shifted = Region("L1", 32, 32, 8, 64), Region("L1", 31, 32, 8, 64)
    first = replace(matrix(50), writes=(even,))
    assert spans(run((first, replace(vector(1), reads=(odd,)))))[1][0] == 2
    assert spans(run((first, replace(vector(1), reads=(shifted,)))))[1][0] == 51
    assert spans(run((first, replace(vector(1), reads=(replace(even, memory="IM"),)))))[1][0] == 2


def test_cores_have_memories_of_their_own() -> None:
    timeline = run((work("matrix", 50, writes=(1,)),), (work("vector", 5, reads=(1,)),))
    assert spans(timeline, 1) == [(1, 1, 6)]


# Barriers


def test_a_barrier_waits_for_the_cores_and_for_their_engines() -> None:
    timeline = run((matrix(100), barrier(), vector(1)), (vector(300), barrier(), vector(1)), (barrier(), vector(1)))
    assert [spans(timeline, core)[-1][0] for core in range(3)] == [302, 302, 302]
    assert timeline.stall_cycles == {"barrier": 200 + 300, "drain": 99 + 299}


def test_a_barrier_costs_what_the_chip_file_says() -> None:
    timeline = run((barrier(), vector(1)), (barrier(), vector(1)), chip=assumed(sync_cycles=100))
    assert [spans(timeline, core)[-1][0] for core in range(2)] == [102, 102]


def test_a_barrier_does_not_wait_for_the_dma() -> None:
    timeline = run((start(27000), barrier(), wait()), (barrier(),))
    assert spans(timeline)[1][2] == 11
    assert cycles(timeline) > 1000


def test_groups_of_cores_have_barriers_of_their_own() -> None:
    timeline = run((matrix(50), barrier(1)), (barrier(1),), (barrier(2), vector(1)), (vector(5), barrier(2)))
    assert spans(timeline, 1)[0][2] == 51
    assert spans(timeline, 2)[1][0] == 7


def test_cores_that_wait_for_ever_are_an_error() -> None:
    lonely = replace(barrier(), source="conv1")
    with pytest.raises(PlanError, match=r"core 0, instruction 0 \(sync of conv1\): .* a deadlock of \d+ instructions"):
        run((lonely, barrier(1)), (barrier(1), barrier()))


# DMA


def test_the_end_of_a_transfer_is_seen_by_the_next_question() -> None:
    """Started at 10, over at 10 + 66 + 1000 = 1076; asked at 11, 14, ..., 1076 exactly, or one later."""
    assert spans(run((start(27000), wait(), vector(1))))[1] == (1076, 1076, 1076)
    late = run((start(27000), replace(wait(), issue=IssueCost(2, 4, 3)), vector(1)))
    assert spans(late)[1] == (1077, 1077, 1077)
    # The rest of the iteration and clearing the flag, then the next instruction.
    assert spans(late)[2][0] == 1077 + 4 + 1
    assert late.stall_cycles == {"transfer": 1065}


def test_a_transfer_that_is_over_is_seen_at_once() -> None:
    timeline = run((start(270), matrix(500), vector(1, before=200), wait(), vector(1)))
    assert spans(timeline)[3] == (212, 212, 212)
    assert "transfer" not in timeline.stall_cycles


def test_a_loop_without_cycles_sees_the_end_itself() -> None:
    timeline = run((start(27000), wait()), chip=assumed(scalar_instruction_cycles=0))
    assert spans(timeline)[1][0] == 1066


def test_channels_share_the_memory_and_do_not_wait_for_each_other() -> None:
    """Both start moving at 76 and 86; 27.0 bytes a cycle are halved from 86 on."""
    timeline = run((start(2700), start(2700, "dma1.0"), wait(), wait("dma1.0")))
    assert spans(timeline)[:2] == [(10, 10, 10 + 66 + 10 + 180), (20, 20, 20 + 66 + 180 + 10)]


def test_one_channel_does_one_chain_after_the_other() -> None:
    timeline = run((start(2700), start(2700, number=1)))
    assert spans(timeline) == [(10, 10, 176), (20, 176, 342)]


def test_another_core_may_wait_for_a_transfer() -> None:
    """Over at 110 + 76; asked at 1, 4, ..., 184, 187."""
    timeline = run((matrix(1, before=100), start(270)), (wait(), vector(1)))
    assert spans(timeline, 1)[0][0] == 187


# Shared bandwidth


@pytest.mark.parametrize(("cores", "moving"), [(1, 100), (4, 100), (5, 125), (8, 200)])
def test_n_cores_share_the_llb(cores: int, moving: int) -> None:
    """6,400 bytes at 64 a cycle; more than four cores divide 256."""
    timeline = run(*((load(6400),) for _ in range(cores)))
    assert profiled(timeline) == [65 + moving] * cores


def test_rates_change_when_another_transfer_starts_and_ends() -> None:
    """Seven cores load 6,400 bytes from 66 on; an eighth, 50 cycles later, 320 bytes."""
    first = tuple((load(6400),) for _ in range(7))
    timeline = run(*first, (load(320, before=51),))
    # 256/7 a cycle for 50 cycles, then 32 for 10 cycles, then 256/7 again.
    left = 6400 - 50 * 256 / 7 - 10 * 32
    assert spans(timeline, 7)[0] == (51, 51, 51 + 65 + 10)
    assert spans(timeline, 0)[0][2] == 1 + 65 + -(-(60 + left / (256 / 7)) // 1)


def test_loads_and_stores_share_the_llb() -> None:
    store = TimedOp("transfer", "mov.llb.l1", IssueCost(1), "transfer", 65, (LinkFlow("l1_to_llb", 6400),))
    timeline = run(*((load(6400),) for _ in range(4)), *((store,) for _ in range(4)))
    assert profiled(timeline) == [65 + 200] * 8


def together(reads: int, before: int = 1) -> TimedOp:
    """A pld of 6,400 bytes from an address of the LLB."""
    return replace(load(6400, before), opcode="pld", rendezvous="pld0", reads=(Region("LLB", reads, 6400),))


def test_one_read_serves_all_cores_of_a_broadcast() -> None:
    timeline = run(*((together(0, before=1 + 10 * core),) for core in range(8)))
    assert [spans(timeline, core)[0] for core in range(8)] == [(1 + 10 * core, 71, 71 + 165) for core in range(8)]


def test_reads_of_different_bytes_are_not_one() -> None:
    timeline = run(*((together(6400 * core),) for core in range(8)))
    assert profiled(timeline) == [65 + 200] * 8


# Programs


def program(*streams: tuple[Instr, ...]) -> Program:
    return Program("p", CHIP.name, 0, "sync", (), tuple(Stream(core, s) for core, s in enumerate(streams)))


def test_a_program_is_timed_by_its_instructions_and_their_scalar_cost() -> None:
    sync = Instr("sync", "sync")
    dma = Instr("dma", "dma.start", (), (Region("DDR", 0, 270),), (Region("LLB", 0, 270),), starts="dma0.0")
    waits = Instr("scalar", "dma.wait", awaits="dma0.0")
    instr = Instr("matrix", "memul.mm", (), (Region("L1", 0, 64),), (Region("IM", 0, 64),), 28.0, "conv1")
    costs = (
        CoreIssue(5, (IssueCost(10), IssueCost(2, 4, 3), IssueCost(1)), 8),
        CoreIssue(9, (IssueCost(7), IssueCost(1)), 2),
    )
    streams = timed_streams(program((dma, waits, sync), (instr, sync)), CHIP, costs)
    timeline = time_streams(streams, CHIP)
    assert spans(timeline) == [(15, 15, 91), (92, 92, 92), (97, 97, 97)]
    assert spans(timeline, 1) == [(16, 16, 44), (44, 44, 97)]
    assert [end - 20_000 for end in timeline.core_end_cycles] == [105, 99]
    assert cycles(timeline) == 105
    assert timeline.spans[3].source == "conv1"


def test_a_wait_for_nothing_is_an_error() -> None:
    waits = Instr("scalar", "dma.wait", awaits="dma0.0", source="conv1")
    with pytest.raises(
        PlanError, match=r"core 0, instruction \d+ \(dma\.wait of conv1\): needs a transfer dma0.0 that was started"
    ):
        timed_streams(program((waits,)), CHIP, (CoreIssue(0, (IssueCost(1, 4, 3),), 0),))


def test_spans_hold_all_that_a_chart_needs() -> None:
    timeline = run((replace(load(6400), source="conv1", moved_bytes=6300),))
    expected = TimelineSpan(
        core=0, index=0, engine="transfer", unit="transfer", opcode="mov.l1.llb", source="conv1", ready=20_001.0,
        issued=20_001.0, start=20_001.0, end=20_166.0, moved_bytes=6300,
    )  # fmt: skip
    assert timeline.spans == (expected,)
    assert timeline.moved_bytes == {"transfer": 6300}
    assert timeline.seconds == pytest.approx(20.166e-6)
