"""Places in the main memory: what lives at the same time never shares bytes, reuse changes no output, demand falls."""

from __future__ import annotations

import pytest

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import DoesNotFit, UserError
from hw_models.routes import main_memory
from isched.hazards.verify_program import verify_program
from isched.lowering.main_memory_allocation import main_lifetimes
from isched.program.program import Program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Plan
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.levels import LEVELS, O3, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import Compiled, small_chip
from tests.movement_graphs import MovementBuilder
from tests.partition_graphs import Seeded, chain_graph, random_chip, random_graph
from tests.small_graphs import GraphBuilder

BASE = TARGET.data_base_bytes
SEEDS = (3, 4, 5, 7, 8)


def lowered(graph: Graph, constants: Constants, chip: Chip, plan: Plan, keep_values: bool) -> Program:
    program = lower_plan(plan, Context(graph, constants, chip, TARGET), BASE, keep_values=keep_values)
    verify_program(program, chip)
    return program


def outputs(graph: Graph, constants: Constants, chip: Chip, plan: Plan, program: Program) -> dict[str, bytes]:
    compiled = Compiled(graph, constants, chip, plan, program)
    place = {p.tensor: (TARGET.address(p.memory, p.offset_bytes), p.size_bytes) for p in program.placements}
    loads = {place[name][0]: bits.tobytes() for name, bits in compiled.inputs().items()}
    memory = TARGET.run(compiled.files, loads, tuple(place[name] for name in graph.outputs), 3).memory
    return {name: memory[place[name]] for name in graph.outputs}


def demand_bytes(program: Program) -> int:
    return max(p.offset_bytes + p.size_bytes for p in program.placements) - BASE


@pytest.mark.spread(10)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.commit
def test_reuse_changes_no_output_and_never_needs_more(level: str, seed: int) -> None:
    graph, constants = random_graph(Seeded(seed))
    chip = random_chip(Seeded(seed + 1000))
    try:
        plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
        kept, shared = (lowered(graph, constants, chip, plan, keep) for keep in (True, False))
    except UserError as error:
        pytest.skip(error.line)
    assert demand_bytes(shared) <= demand_bytes(kept)
    assert {p.tensor for p in shared.placements} == {p.tensor for p in kept.placements}
    assert outputs(graph, constants, chip, plan, shared) == outputs(graph, constants, chip, plan, kept)


@pytest.mark.spread(10)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("level", LEVELS)
def test_what_lives_at_the_same_time_lies_apart(level: str, seed: int) -> None:
    graph, constants = random_graph(Seeded(seed))
    chip = random_chip(Seeded(seed + 1000))
    try:
        plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
        program = lowered(graph, constants, chip, plan, keep_values=False)
    except UserError as error:
        pytest.skip(error.line)
    layout = lay_out(plan, PlanContext(graph, {}, chip, TARGET))
    lives = main_lifetimes(graph, layout, main_memory(chip))
    always = (-1, 1 << 30)
    outputs_of = {program.placement[name].of or name for name in graph.outputs}
    own = [p for p in program.placements if p.kind != "alias"]
    assert {p.tensor for p in own if p.kind in ("value", "output")} == set(lives)
    for n, a in enumerate(own):
        for b in own[:n]:
            (a_first, a_last), (b_first, b_last) = (
                lives[p.tensor] if p.kind == "value" and p.tensor not in outputs_of else always for p in (a, b)
            )
            if a_first <= b_last and b_first <= a_last:
                low, high = sorted((a, b), key=lambda p: p.offset_bytes)
                assert low.offset_bytes + low.size_bytes <= high.offset_bytes


def test_a_chain_takes_turns_in_two_places() -> None:
    """Of eight layers only the last output stays; each value before it lives while the next one is made."""
    graph, constants = chain_graph(16, extent=16, channels=16)
    chip = small_chip()
    plan = make_plan(PlanContext(graph, constants, chip, TARGET))
    kept, shared = (lowered(graph, constants, chip, plan, keep) for keep in (True, False))
    value = 16 * 16 * 16 * 2
    assert demand_bytes(kept) - demand_bytes(shared) == (7 - 2) * value
    values = [p for p in shared.placements if p.kind == "value"]
    assert len({p.offset_bytes for p in values}) == 2


def test_what_never_reaches_the_main_memory_has_no_place_there() -> None:
    graph, constants = chain_graph(8)
    chip = small_chip()
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O3())
    program = lowered(graph, constants, chip, plan, keep_values=True)
    assert {p.tensor for p in program.placements if p.kind != "constant"} == {*graph.inputs, *graph.outputs}


def test_a_view_that_is_an_output_keeps_its_source() -> None:
    """The value behind it is read no more, and yet nothing may overwrite it."""
    builder = MovementBuilder("kept")
    first = builder.conv(builder.input("x", 1, 8, 8, 8), 8)
    flat = builder.view(first, 1, 8 * 8 * 8)
    y = first
    for _ in range(4):
        y = builder.conv(y, 8)
    graph, constants = builder.build(y, flat)
    chip = small_chip()
    plan = make_plan(PlanContext(graph, constants, chip, TARGET))
    kept, shared = (lowered(graph, constants, chip, plan, keep) for keep in (True, False))
    assert shared.placement[flat].of == first
    assert outputs(graph, constants, chip, plan, shared) == outputs(graph, constants, chip, plan, kept)


def test_a_main_memory_that_is_too_small_says_who_holds_it() -> None:
    builder = GraphBuilder("huge")
    x = builder.input("images", 12, 4096, 4096, 3)
    for _ in range(3):
        x = builder.elementwise("sigmoid", builder.pool("max_pool", x, (3, 3), pads=(1, 1, 1, 1)))
    graph, constants = builder.build(x)
    chip = small_chip()
    plan = make_plan(PlanContext(graph, constants, chip, TARGET))
    with pytest.raises(DoesNotFit) as refusal:
        lowered(graph, constants, chip, plan, keep_values=False)
    lines = str(refusal.value).splitlines()
    assert lines[0].startswith(
        "graph huge (largest tensor images): needs 4.56 GiB of DDR; has 3 GiB (1.56 GiB too few)"
    )
    assert lines[1] == "  held in DDR at that moment: 4.50 GiB"
    assert lines[2].split() == ["images", "1.12", "GiB", "from", "the", "start", "to", "the", "end"]
    assert len(lines) == 6
