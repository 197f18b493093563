"""The exact scheduler against the cycle model: every order tried by hand, and what must never make it worse."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from benchmarks.lab.exact_schedule.cpsat import MOST_INSTRUCTIONS, exact_schedule, reordered
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import PlanError
from isched.hazards.verify_program import verify_program
from isched.program.program import Program, Stream
from isched.timing.cycle_model import time_program
from tests.random_programs import FIXED_COSTS, PROMPT_COSTS, changed, duo, orders_of, random_program

DUO = duo()


def valid(program: Program, chip: Chip) -> bool:
    try:
        verify_program(program, chip)
    except PlanError:
        return False
    return True


def best_by_hand(program: Program, chip: Chip) -> float:
    """The least cycles of all valid orders, by the cycle model."""
    choices = [list(orders_of(program, core)) for core in range(len(program.streams))]
    tried = (reordered(program, orders) for orders in product(*choices))
    return min(time_program(made, chip, FIXED_COSTS).cycles for made in tried if valid(made, chip))


@pytest.mark.spread(8)
@pytest.mark.parametrize("seed", range(16))
@pytest.mark.commit
def test_one_core_with_transfers_and_barriers_as_if_all_orders_were_tried(seed: int) -> None:
    chip = changed(DUO, queue_depth=1 + seed % 3, sync_cycles=25, launch_cycles=100)
    program = random_program(seed, chip, most=7, cores=1)
    found = exact_schedule(program, chip, FIXED_COSTS)
    assert found.proven
    assert found.cycles == best_by_hand(program, chip)


@pytest.mark.parametrize("seed", range(8))
def test_two_cores_as_if_all_orders_were_tried(seed: int) -> None:
    program = random_program(seed, DUO, most=9, moving=False, rendezvous=False)
    found = exact_schedule(program, DUO, FIXED_COSTS)
    assert found.proven
    assert found.cycles == best_by_hand(program, DUO)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_found_is_valid_and_takes_what_is_said(seed: int) -> None:
    chip = changed(DUO, queue_depth=1 + seed % 4, sync_cycles=60 * (seed % 2), scalar_instruction_cycles=1 + seed % 2)
    program = random_program(seed, chip)
    found = exact_schedule(program, chip, FIXED_COSTS)
    best = reordered(program, found.orders)
    verify_program(best, chip)
    assert time_program(best, chip, FIXED_COSTS).cycles == found.cycles == found.bound
    assert found.cycles <= time_program(program, chip, FIXED_COSTS).cycles


@pytest.mark.parametrize("seed", range(20))
def test_costs_of_issue_that_depend_on_the_order_are_not_overrated(seed: int) -> None:
    program = random_program(seed, DUO, most=10)
    found = exact_schedule(program, DUO, TARGET)
    assert found.proven
    assert found.cycles <= time_program(reordered(program, found.orders), DUO, TARGET).cycles
    assert found.cycles <= time_program(program, DUO, TARGET).cycles


def faster(chip: Chip, factor: float) -> Chip:
    """All links and memories with so many times the bandwidth."""

    def more(bandwidth: float | None) -> float | None:
        return None if bandwidth is None else factor * bandwidth

    links = tuple(
        link.model_copy(
            update={
                "bandwidth_bytes_per_cycle": more(link.bandwidth_bytes_per_cycle),
                "core_bandwidth_bytes_per_cycle": more(link.core_bandwidth_bytes_per_cycle),
            }
        )
        for link in chip.links
    )
    memories = tuple(
        memory.model_copy(update={"bandwidth_bytes_per_cycle": more(memory.bandwidth_bytes_per_cycle)})
        for memory in chip.memories
    )
    return chip.model_copy(update={"links": links, "memories": memories})


def on_two_engines(program: Program) -> Program:
    """Every second transfer of a core by the other DMA engine."""
    streams = []
    for stream in program.streams:
        count, instrs = 0, []
        for instr in stream.instrs:
            count += bool(instr.starts)
            token = f"dma{count % 2}.0"
            starts, awaits = (token if old else "" for old in (instr.starts, instr.awaits))
            instrs.append(replace(instr, starts=starts, awaits=awaits))
        streams.append(Stream(stream.core, tuple(instrs)))
    return replace(program, streams=tuple(streams))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.commit
def test_more_bandwidth_engines_or_places_in_queues_never_make_it_worse(seed: int) -> None:
    chip = changed(DUO, queue_depth=1)
    program = random_program(seed, chip, most=11)
    cycles = exact_schedule(program, chip, PROMPT_COSTS).cycles
    for more, better in (
        (program, faster(chip, 2.0)),
        (program, changed(chip, queue_depth=2)),
        (on_two_engines(program), chip),
    ):
        assert exact_schedule(more, better, PROMPT_COSTS).cycles <= cycles


def test_where_bandwidth_is_short_the_result_is_below_what_the_clock_says() -> None:
    chip = faster(DUO, 1.0)
    slim = chip.model_copy(
        update={
            "memories": tuple(
                m.model_copy(update={"bandwidth_bytes_per_cycle": 64}) if m.name == "LLB" else m for m in chip.memories
            )
        }
    )
    gaps = []
    for seed in range(10):
        program = random_program(seed, slim, most=10)
        found = exact_schedule(program, slim, FIXED_COSTS)
        gaps.append(time_program(reordered(program, found.orders), slim, FIXED_COSTS).cycles - found.cycles)
    assert min(gaps) >= 0 < max(gaps)


def test_large_programs_are_refused() -> None:
    program = random_program(0, DUO)
    stream = program.streams[0]
    large = replace(program, streams=(replace(stream, instrs=stream.instrs * MOST_INSTRUCTIONS), *program.streams[1:]))
    with pytest.raises(PlanError, match=rf"program random: needs at most {MOST_INSTRUCTIONS} instructions"):
        exact_schedule(large, DUO, FIXED_COSTS)


def test_an_empty_core_takes_its_start_and_end() -> None:
    empty = Program("empty", "small", 0, "sync", (), (Stream(0, ()),))
    assert exact_schedule(empty, DUO, FIXED_COSTS).cycles == 10 == time_program(empty, DUO, FIXED_COSTS).cycles
