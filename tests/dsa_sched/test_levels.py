"""Every level computes what O0 computes, bit for bit: networks of the zoo, random networks on random chips.

    model, chip --O0--> bits          model, chip --level--> the same bits

Each program runs on the hostile simulator with a seed of its own: memories hold NaN patterns at first, data of a DMA
land only when their completion is observed, cores interleave differently. Values are compared in order of execution,
all that the level leaves in the main memory, so that the first that differs is where to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from dsa_sched.artifact.runner import execute
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.driver import compile_graph
from dsa_sched.stages.compilation import Compilation, CompileOptions, Lowered
from dsa_sched.verification.evidence import stored_values, values_in_main
from dsa_sched.zoo import seeded_inputs
from hw_models.chip import Chip
from hw_models.errors import ModelError, UserError
from hw_models.routes import main_memory
from isched.hazards.verify_program import verify_program
from isched.timing.cycle_model import time_program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import parse_plan
from partitioner.ir.steps import MOVES
from partitioner.planners.levels import LEVELS, O3, planner_of, planner_or_auto
from partitioner.planners.registry import make_plan
from tests.chip_runs import Compiled, small_chip, stcp920
from tests.movement_graphs import MovementBuilder
from tests.partition_graphs import Seeded, chips, graphs, random_chip, random_graph, tight_chip
from tests.small_networks import save_small_network

KIB = 1024
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
TIGHT_SEEDS = (4, 6, 9, 16, 21, 50)
BEYOND_O0 = tuple(level for level in LEVELS if level != "O0")


@dataclass(frozen=True)
class Case:
    """A network for images of `extent`, perhaps only up to a value, on the stcp920 or one with little memory."""

    network: str
    extent: int
    batch: int
    until: str = ""
    scarce: bool = True

    def __str__(self) -> str:
        return f"{self.network}-{self.extent}-{self.batch}-{'scarce' if self.scarce else 'stcp920'}"

    @property
    def chip(self) -> Chip:
        if not self.scarce:
            return stcp920()
        return small_chip(4, data_bytes=96 * KIB, llb_bytes=1024 * KIB)


SQUEEZENET, UNET = Case("squeezenet", 64, 2), Case("unet", 32, 2)
RESNET, DENSENET = Case("resnet50", 64, 2, until="r47"), Case("densenet121", 64, 2, until="r105")
QUICK = (
    SQUEEZENET,
    Case("squeezenet", 32, 2, scarce=False),
    UNET,
    Case("shufflenet", 32, 2),
    RESNET,
    Case("mobilenet_v2-mini", 40, 2),
)
PARTS = (Case("inception_v1", 64, 2, until="r37"), DENSENET)
"""Of networks that are in `WHOLE` too."""
WHOLE = tuple(
    Case(network, extent, 2)
    for network, extent in (
        ("resnet50", 64),
        ("inception_v1", 64),
        ("shufflenet", 64),
        ("densenet121", 64),
        ("unet", 64),
    )
)
FULL_SIZE = (
    Case("nasnet", 32, 2, scarce=False),
    Case("squeezenet", 224, 4, scarce=False),
    Case("unet", 128, 4, scarce=False),
    Case("shufflenet", 224, 4, scarce=False),
    Case("inception_v1", 224, 4, scarce=False),
    Case("resnet50", 224, 16, scarce=False),
    Case("densenet121", 224, 4, scarce=False),
    Case("mobilenet_v2", 224, 4, scarce=False),
    Case("resnet18_tailor", 56, 4, scarce=False),
)


@cache
def loaded(case: Case) -> Model:
    with TemporaryDirectory() as folder:
        return load_model(save_small_network(case.network, case.extent, Path(folder), case.until), {}, case.batch)


@cache
def compiled(case: Case, level: str, spill: str = "none", schedule: bool = False) -> Compilation:
    options = CompileOptions(planner_or_auto(level, spill), batch=case.batch, schedule=schedule, keep_values=True)
    return compile_graph(loaded(case), case.chip, TARGET, options)


def run(compilation: Compilation, seed: int) -> dict[str, bytes]:
    """All that the level leaves in the main memory, for the one input of every test."""
    artifact = compilation.artifact
    place = {name: (entry.address, entry.bytes) for name, entry in compilation.tensors.items()}
    (feed,) = seeded_inputs(compilation.model.source, 1, 0)
    names = stored_values(compilation)
    dumps = tuple(dict.fromkeys(place[name] for name in names))
    memory = execute(artifact, artifact.encode(feed), dumps, None, seed).memory
    return {name: memory[place[name]] for name in names}


@cache
def bits_at_o0(case: Case) -> dict[str, bytes]:
    return run(compiled(case, "O0"), 0)


def check_equal(outputs: tuple[str, ...], ours: Mapping[str, bytes], plain: Mapping[str, bytes]) -> None:
    assert set(outputs) <= ours.keys() <= plain.keys()
    for name, data in ours.items():
        different = np.flatnonzero(np.frombuffer(data, np.uint16) != np.frombuffer(plain[name], np.uint16))
        assert not len(different), f"{name}: {len(different)} of {len(data) // 2} differ, first at {different[0]}"


def check_network(case: Case, level: str) -> None:
    found = compiled(case, level)
    assert found.plan.level == level
    assert parse_plan(str(found.plan)) == found.plan
    for seed in (1, 2):
        check_equal(found.model.graph.outputs, run(found, seed), bits_at_o0(case))


def test_there_are_levels_to_compare() -> None:
    assert LEVELS[0] == "O0"
    assert BEYOND_O0


@pytest.mark.spread(4)
@pytest.mark.parametrize("case", [*QUICK, *(pytest.param(part, marks=pytest.mark.nightly) for part in PARTS)], ids=str)
@pytest.mark.parametrize("level", BEYOND_O0)
@pytest.mark.commit
def test_a_small_network_has_the_bits_of_o0(level: str, case: Case) -> None:
    check_network(case, level)


@pytest.mark.parametrize("case", [SQUEEZENET, pytest.param(DENSENET, marks=pytest.mark.nightly)], ids=str)
def test_a_small_network_that_spills_has_the_bits_of_o0(case: Case) -> None:
    found = compiled(case, "O3", "cost")
    assert any(group.spills for group in found.plan.groups)
    check_equal(found.model.graph.outputs, run(found, 1), bits_at_o0(case))


@pytest.mark.parametrize(
    "case", [SQUEEZENET, *(pytest.param(case, marks=pytest.mark.slow(at_commit=2)) for case in (UNET, RESNET))], ids=str
)
@pytest.mark.spread(2)
@pytest.mark.parametrize("level", LEVELS)
def test_with_schedule_a_small_network_takes_no_longer(level: str, case: Case) -> None:
    """Room for running ahead makes tiles smaller: where memories are scarce that can cost more than it gains."""
    plain, scheduled = (compiled(case, level, schedule=schedule) for schedule in (False, True))
    before, after = (time_program(each.program, case.chip, TARGET).cycles for each in (plain, scheduled))
    assert after <= before
    check_equal(scheduled.model.graph.outputs, run(scheduled, 3), bits_at_o0(case))


@pytest.mark.nightly
@pytest.mark.parametrize("network", ["inception_v1", "resnet50", "shufflenet", "squeezenet", "unet"])
@pytest.mark.parametrize("level", LEVELS)
def test_with_schedule_one_image_takes_no_longer(level: str, network: str) -> None:
    """Pairs of goldens say so at every commit. Here are 26,000 instructions with room for running ahead too (resnet50
    at O0), which list scheduling makes 18 % slower."""
    case = Case(network, 128 if network == "unet" else 224, 1, scarce=False)
    plain, scheduled = (compiled(case, level, schedule=schedule) for schedule in (False, True))
    before, after = (time_program(each.program, case.chip, TARGET).cycles for each in (plain, scheduled))
    assert after <= before
    assert isinstance(scheduled.made, Lowered)
    assert scheduled.made.cycles == after


@pytest.mark.nightly
@pytest.mark.parametrize("case", WHOLE, ids=str)
@pytest.mark.parametrize("level", BEYOND_O0)
def test_a_whole_network_has_the_bits_of_o0(level: str, case: Case) -> None:
    check_network(case, level)


@pytest.mark.nightly
@pytest.mark.parametrize("case", FULL_SIZE, ids=str)
@pytest.mark.parametrize("level", BEYOND_O0)
def test_a_network_of_full_size_has_the_bits_of_o0(level: str, case: Case) -> None:
    """Up to four minutes each: an hour for all."""
    check_network(case, level)


def plan_and_lower(graph: Graph, constants: Constants, chip: Chip, level: str) -> Compiled:
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
    assert plan.level == level
    assert parse_plan(str(plan)) == plan
    covered = [name for group in plan.groups for layer in group.layers for name in layer.ops]
    assert sorted(covered) == sorted(op.name for op in graph.ops)
    program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes, keep_values=True)
    verify_program(program, chip)
    return Compiled(graph, constants, chip, plan, program)


def run_random(compiled: Compiled, seed: int) -> dict[str, bytes]:
    placed = {p.tensor: (TARGET.address(p.memory, p.offset_bytes), p.size_bytes) for p in compiled.program.placements}
    names = values_in_main(compiled.plan, compiled.graph, main_memory(compiled.chip))
    loads = {placed[name][0]: bits.tobytes() for name, bits in compiled.inputs().items()}
    dumps = tuple(dict.fromkeys(placed[name] for name in names))
    memory = TARGET.run(compiled.files, loads, dumps, seed).memory
    return {name: memory[placed[name]] for name in names}


def check_random(graph: Graph, constants: Constants, chip: Chip, level: str, seed: int) -> str:
    """The bits of O0, or a refusal that says why; returns which."""
    try:
        plain = plan_and_lower(graph, constants, chip, "O0")
    except UserError as error:
        return f"refused at O0: {type(error).__name__}"
    return check_against(plain, run_random(plain, seed + 1), level, seed)


def check_against(plain: Compiled, bits: Mapping[str, bytes], level: str, seed: int) -> str:
    try:
        found = plan_and_lower(plain.graph, plain.constants, plain.chip, level)
    except UserError as error:
        return f"refused: {type(error).__name__}"
    check_equal(plain.graph.outputs, run_random(found, seed), bits)
    return "runs"


@cache
def random_at_o0(seed: int, tight: bool) -> tuple[Compiled, Mapping[str, bytes]] | None:
    """None for what does not fit at O0 either."""
    try:
        chip = (tight_chip if tight else random_chip)(Seeded(seed + 1000))
        plain = plan_and_lower(*random_graph(Seeded(seed)), chip, "O0")
    except UserError:
        return None
    return plain, run_random(plain, seed + 1)


@pytest.mark.spread(2)
@pytest.mark.parametrize("tight", [False, True], ids=["any", "tight"])
@pytest.mark.parametrize("level", BEYOND_O0)
@pytest.mark.commit
def test_random_networks_have_the_bits_of_o0(level: str, tight: bool) -> None:
    """The first few seeds of a long search, and some whose plans have many instances, moves and shared values."""
    seeds = TIGHT_SEEDS if tight else range(8)
    fitting = [(seed, plain) for seed in seeds if (plain := random_at_o0(seed, tight))]
    said = [check_against(*plain, level, seed) for seed, plain in fitting]
    assert len(said) >= 4
    assert said.count("runs") >= len(said) - 1, said


def test_tight_chips_lead_to_plans_with_many_instances() -> None:
    """Or the test above would not see what it is there for."""
    plans = [
        make_plan(PlanContext(*random_graph(Seeded(s)), tight_chip(Seeded(s + 1000)), TARGET), O3())
        for s in TIGHT_SEEDS
    ]
    assert any(group.split.instances > 1 for plan in plans for group in plan.groups)
    assert {step.kind for plan in plans for step in plan.steps} & set(MOVES)


@pytest.mark.parametrize("level", BEYOND_O0)
def test_an_exchange_of_more_pieces_than_the_output_has(level: str) -> None:
    """Three cores compute an image each of a value in the middle, two of them the channels of the output."""
    builder = MovementBuilder("exchanged")
    x = builder.input("x", 3, 1, 1, 16)
    inner = builder.conv(builder.elementwise("relu", builder.scale_shift(x)), 2)
    joined = builder.conv(builder.concat(3, x, inner), 18, (1, 1), pads=(0, 0, 0, 0), groups=18, bias=False)
    y = builder.scale_shift(builder.conv(builder.scale_shift(joined), 12, (1, 1), pads=(0, 0, 0, 0), bias=False))
    right = builder.elementwise("relu", builder.conv(y, 1))
    pair = builder.concat(3, builder.conv(y, 1, (1, 1), pads=(0, 0, 0, 0)), right)
    graph, constants = builder.build(builder.concat(0, pair, pair))
    assert check_random(graph, constants, small_chip(3, 24 * KIB, llb_bytes=1024 * KIB), level, 0) == "runs"


def first_layer(kind: str) -> tuple[Graph, Constants]:
    builder = MovementBuilder("first")
    x = builder.input("x", 1, 16, 16, 72)
    others = (builder.input("z", 1, 16, 16, 24),) if kind in ("add", "mul") else ()
    return builder.build(builder.elementwise(kind, builder.conv(x, 24, (1, 1), pads=(0, 0, 0, 0)), *others))


@pytest.mark.parametrize("kind", ["hard_swish", "sigmoid", "add", "mul"])
@pytest.mark.parametrize("level", BEYOND_O0)
def test_a_first_layer_whose_epilogue_needs_room(level: str, kind: str) -> None:
    """Planning looks at its convolution alone too, under the same name; O0 knows nothing of that."""
    plain, found = (plan_and_lower(*first_layer(kind), stcp920(), each) for each in ("O0", level))
    check_equal(found.graph.outputs, run_random(found, 1), run_random(plain, 2))


@pytest.mark.parametrize("level", BEYOND_O0)
def test_a_layer_that_nothing_needs(level: str) -> None:
    """A slice of a concatenation leaves one of its pieces out."""
    builder = MovementBuilder("unneeded")
    x = builder.input("x", 1, 8, 7, 16)
    unread = builder.elementwise("sub", x, x)
    joined = builder.elementwise("relu", builder.concat(1, x, unread))
    graph, constants = builder.build(builder.slice(joined, (0, 2, 0, 0), (1, -1, 1, 1), (1, 3, 7, 16)))
    assert check_random(graph, constants, small_chip(2, 96 * KIB, llb_bytes=1024 * KIB), level, 0) == "runs"


@pytest.mark.parametrize("level", BEYOND_O0)
def test_a_value_without_axes(level: str) -> None:
    builder = MovementBuilder("scalar")
    x = builder.input("x", 2, 4, 4, 16)
    mean = builder.view(builder.reduce("reduce_mean", x, 0, 1, 2, 3))
    graph, constants = builder.build(builder.elementwise("relu", builder.elementwise("sub", x, mean)))
    assert check_random(graph, constants, small_chip(2, 96 * KIB, llb_bytes=1024 * KIB), level, 0) == "runs"


@pytest.mark.parametrize("level", LEVELS)
def test_a_result_without_axes_is_refused(level: str) -> None:
    builder = MovementBuilder("scalar")
    graph, constants = builder.build(builder.elementwise("relu", builder.input("x")))
    with pytest.raises(ModelError, match="a result without axes"):
        make_plan(PlanContext(graph, constants, small_chip(), TARGET), planner_of(level))


@pytest.mark.parametrize("level", BEYOND_O0)
def test_a_network_of_views_alone(level: str) -> None:
    builder = MovementBuilder("views")
    graph, constants = builder.build(builder.view(builder.input("x", 2, 8, 16), 16, 16))
    assert check_random(graph, constants, small_chip(2, 96 * KIB, llb_bytes=1024 * KIB), level, 0) == "runs"


@pytest.mark.nightly
@pytest.mark.parametrize("level", BEYOND_O0)
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(built=graphs(), chip=chips(), seed=st.integers(0, 1 << 30))
def test_many_random_networks_have_the_bits_of_o0(
    level: str, built: tuple[Graph, Constants], chip: Chip, seed: int
) -> None:
    event(check_random(*built, chip, level, seed))
