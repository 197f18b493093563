"""The bounds: by hand on small streams, below the exact optimum and the cycle model on random ones and a network."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from benchmarks.lab.exact_schedule.cpsat import exact_schedule
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from isched.bounds.lower_bounds import Bounds, program_bounds, stream_bounds
from isched.program.program import Region
from isched.program.timed_ops import IssueCost, LinkFlow, TimedOp, TimedStream
from isched.timing.cycle_model import time_program, time_streams
from tests.chip_runs import compile_graph, small_chip, stcp920
from tests.random_programs import FIXED_COSTS, changed, duo, neighbours, random_program
from tests.small_graphs import GraphBuilder

CHIP = changed(stcp920(), launch_cycles=0)
DUO = duo()
ROUNDING = 1e-3


def work(engine: str, cycles: float, reads: tuple[int, ...] = (), writes: tuple[int, ...] = ()) -> TimedOp:
    """An op of so many cycles; a number names 64 bytes of L1."""

    def places(numbers: tuple[int, ...]) -> tuple[Region, ...]:
        return tuple(Region("L1", 64 * number, 64) for number in numbers)

    return TimedOp(engine, engine, IssueCost(1), engine, cycles, (), places(reads), places(writes))


def load(size_bytes: int, reads: int = 0, writes: int = 0, together: str = "") -> TimedOp:
    """Bytes from LLB to L1: 65 cycles, then they move."""
    regions = (Region("LLB", reads, size_bytes),), (Region("L1", writes, size_bytes),)
    flows = (LinkFlow("llb_to_l1", size_bytes),)
    return TimedOp("transfer", "pld", IssueCost(1), "transfer", 65, flows, *regions, rendezvous=together)


def bounds(*cores: tuple[TimedOp, ...], chip: Chip = CHIP) -> Bounds:
    return stream_bounds(tuple(TimedStream(core, ops) for core, ops in enumerate(cores)), chip)


# By hand; one scalar instruction comes before the first work


def test_engines_that_need_nothing_from_each_other_bind_alone() -> None:
    found = bounds((work("matrix", 100), work("vector", 70), work("matrix", 50), work("vector", 60)))
    assert (found.engine_cycles, found.engine) == (150, "matrix of core 0")
    assert found.path_cycles == 1 + 100
    assert found.cycles == 1 + 150


def test_a_chain_takes_the_sum_of_its_works() -> None:
    found = bounds((work("matrix", 100, (), (1,)), work("vector", 70, (1,), (2,)), work("matrix", 50, (2,), (3,))))
    assert found.engine_cycles == 150
    assert found.path_cycles == found.cycles == 1 + 220


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (work("matrix", 50, (), (1,)), work("vector", 5, (1,), ())),
        (work("matrix", 50, (1,), ()), work("vector", 5, (), (1,))),
        (work("matrix", 50, (), (1,)), work("vector", 5, (), (1,))),
    ],
)
def test_accesses_of_common_bytes_keep_their_order_unless_both_read(first: TimedOp, second: TimedOp) -> None:
    assert bounds((first, second)).cycles == 56
    assert bounds((replace(first, writes=()), replace(second, writes=()))).cycles == 51
    assert bounds((first,), (second,)).cycles == 51, "each core has an L1 of its own"


def test_phases_add_up_although_each_engine_works_in_one_of_them_only() -> None:
    """Ten matrix works in any order, then one that needs them all, then ten vector works that need that one."""
    multiply = [work("matrix", 30, (), (n,)) for n in range(10)]
    join = work("vector", 5, tuple(range(10)), (20,))
    finish = [work("vector", 40, (20,), (30 + n,)) for n in range(10)]
    found = bounds((*multiply, join, *finish))
    assert found.engine_cycles == 405
    assert found.path_cycles == 1 + 30 + 5 + 40
    assert found.cycles == 1 + 300 + 5 + 400


def test_what_shares_a_memory_takes_the_sum_of_its_bytes() -> None:
    """Eight cores at 64 bytes a cycle ask for twice what the LLB gives."""
    loads = tuple((load(6400, 6400 * core),) for core in range(8))
    found = bounds(*loads)
    assert found.bandwidth_cycles == 8 * 6400 / 256
    assert found.path_cycles == 1 + 65 + 100
    assert found.cycles == 1 + 65 + 200


def test_a_broadcast_is_read_once() -> None:
    found = bounds(*((load(6400, together="a"),) for _ in range(8)))
    assert found.bandwidth_cycles == 100
    assert found.cycles == 1 + 65 + 100


def test_cores_that_meet_wait_for_the_last() -> None:
    late = (work("matrix", 500, (), (0,)), load(640, together="a"))
    assert bounds(late, (load(640, together="a"),)).cycles == 1 + 500 + 65 + 10


def test_another_cores_access_counts_where_a_barrier_orders_it() -> None:
    barrier = TimedOp("sync", "sync", IssueCost(1), rendezvous="sync1")
    store = TimedOp("transfer", "store", IssueCost(1), "transfer", 80, (), (), (Region("LLB", 0, 640),))
    assert bounds((store, barrier), (barrier, load(640))).cycles == 1 + 80 + 75
    assert bounds((store, barrier), (barrier, load(640, 640))).cycles == 1 + 80, "other bytes"
    one, two = replace(barrier, rendezvous="one"), replace(barrier, rendezvous="two")
    apart = bounds((store, one), (one, load(640)), (two,), (two,))
    assert apart.cycles == 1 + 80, "barriers of some cores show no order to the others"


def test_nothing_takes_the_launch() -> None:
    chip = changed(CHIP, launch_cycles=500)
    assert stream_bounds((TimedStream(0, ()),), chip).cycles == 500
    found = stream_bounds((TimedStream(0, (work("matrix", 100),)),), chip)
    assert (found.path_cycles, found.cycles) == (601, 601)
    assert found.distance(1202) == 1.0


# Random programs


@pytest.mark.spread(8)
@pytest.mark.parametrize("seed", range(24))
def test_no_bound_is_above_the_exact_optimum(seed: int) -> None:
    chip = changed(DUO, queue_depth=1 + seed % 4, launch_cycles=100)
    program = random_program(seed, chip)
    found = program_bounds(program, chip, FIXED_COSTS)
    best = exact_schedule(program, chip, FIXED_COSTS)
    assert best.proven
    assert max(found.engine_cycles, found.bandwidth_cycles, found.path_cycles) <= found.cycles + ROUNDING
    assert found.cycles <= best.cycles + ROUNDING


def slim(chip: Chip) -> Chip:
    """An LLB that two cores and the DMA have to share."""
    memories = tuple(
        m.model_copy(update={"bandwidth_bytes_per_cycle": 40}) if m.name == "LLB" else m for m in chip.memories
    )
    return chip.model_copy(update={"memories": memories})


@pytest.mark.spread(6)
@pytest.mark.parametrize("seed", range(16))
@pytest.mark.commit
def test_no_valid_order_takes_less(seed: int) -> None:
    """Bounds of one order hold for all others: of long programs, where bandwidth is short too."""
    chip = slim(DUO) if seed % 2 else DUO
    program = random_program(seed, chip, most=30)
    found = program_bounds(program, chip, FIXED_COSTS)
    for other in islice(neighbours(program, chip, Random(seed)), 0, 40, 8):
        assert found.cycles <= time_program(other, chip, FIXED_COSTS).cycles + ROUNDING
        assert program_bounds(other, chip, FIXED_COSTS).path_cycles == pytest.approx(found.path_cycles)


# Networks


def test_the_clock_of_a_network_is_above_its_bounds() -> None:
    builder = GraphBuilder("network")
    x = builder.input("x", 1, 20, 20, 16)
    first = builder.conv(x, 32)
    second = builder.elementwise("add", builder.conv(first, 32), first)
    chip = small_chip(4, 32 << 10, 16 << 10, 16 << 10, 128 << 10)
    compiled = compile_graph(*builder.build(second), chip)
    found = program_bounds(compiled.program, chip, TARGET)
    assert max(found.engine_cycles, found.bandwidth_cycles, found.path_cycles) <= found.cycles + ROUNDING
    assert found.cycles <= time_program(compiled.program, chip, TARGET).cycles
    traced = TARGET.trace(compiled.files.files[compiled.files.executable], 4, chip)
    assert stream_bounds(traced, chip) == found
    assert time_streams(traced, chip).cycles >= found.cycles
