"""Plans that spill: larger groups in fewer instances on a chip with little memory, with the bits of O0."""

from __future__ import annotations

from collections import Counter

import pytest

from codegen.neuralscale.target import TARGET
from hw_models.errors import ModelError
from partitioner.context.plan_context import PlanContext
from partitioner.cost.cost_model import plan_cycles
from partitioner.cost.traffic import plan_traffic
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Plan, parse_plan
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.levels import O3, SPILLS, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import small_chip
from tests.group_plans import check_against_o0
from tests.partition_graphs import Seeded, random_graph
from tests.small_graphs import GraphBuilder

KIB = 1024
POLICIES = SPILLS[1:-1]


def skip_network(batch: int = 4, extent: int = 8) -> tuple[Graph, Constants]:
    """Three layers, and then the value before them is read again."""
    builder = GraphBuilder("skip")
    first = builder.elementwise("relu", builder.conv(builder.input("x", batch, extent, extent, 16), 32))
    y = first
    for _ in range(3):
        y = builder.elementwise("relu", builder.conv(y, 32))
    return builder.build(builder.conv(builder.concat(3, first, y), 16))


def spilled(plan: Plan) -> dict[str, str]:
    return {spill.tensor: spill.scope for group in plan.groups for spill in group.spills}


@pytest.mark.spread(2)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kib", [8, 11])
def test_a_spill_replaces_a_finer_cut(policy: str, kib: int) -> None:
    graph, constants = skip_network()
    chip = small_chip(data_bytes=kib * KIB)
    cut = make_plan(PlanContext(graph, constants, chip, TARGET), O3())
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O3(policy))
    assert not spilled(cut)
    assert set(spilled(plan).values()) == {"LLB"}
    assert len(plan.steps) < len(cut.steps)
    assert {d.subject for d in plan.decisions if d.verdict == "spilled to LLB"} >= spilled(plan).keys()
    assert parse_plan(str(plan)) == plan
    check_against_o0(graph, constants, chip, plan, overlap=True)


def test_longest_liveness_spills_what_skips() -> None:
    graph, constants = skip_network()
    plan = make_plan(PlanContext(graph, constants, small_chip(data_bytes=8 * KIB), TARGET), O3("longest"))
    assert spilled(plan) == {"relu1.out": "LLB"}
    (reason,) = (d.reason for d in plan.decisions if d.subject == "relu1.out" and d.verdict == "spilled to LLB")
    assert reason.startswith("longest: 4 KiB on a core, held for 5 slots, used in 3; 3.50 KiB of L1 ")


def test_nothing_is_spilled_where_all_fits() -> None:
    graph, constants = skip_network()
    plain = make_plan(PlanContext(graph, constants, small_chip(), TARGET), O3())
    for policy in POLICIES:
        assert make_plan(PlanContext(graph, constants, small_chip(), TARGET), O3(policy)) == plain


@pytest.mark.nightly
def test_what_exceeds_the_staging_memory_goes_on_to_the_main_memory() -> None:
    graph, constants = skip_network()
    chip = small_chip(data_bytes=4 * KIB, llb_bytes=20 * KIB)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O3("longest"))
    assert spilled(plan) == {"relu1.out": "DDR", "relu3.out": "LLB", "concat8.out": "LLB"}
    check_against_o0(graph, constants, chip, plan, overlap=True)


def test_a_spilled_value_is_written_once_and_read_by_each_that_needs_it() -> None:
    graph, constants = skip_network()
    chip = small_chip(data_bytes=11 * KIB)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O3("longest"))
    assert spilled(plan) == {"relu1.out": "LLB"}
    parts = plan_traffic(
        plan, lay_out(plan, PlanContext(graph, {}, chip, TARGET)), PlanContext(graph, {}, chip, TARGET)
    ).parts
    moves = [move for part in parts for move in part.moves if move.tensor == "relu1.out"]
    by_way: Counter[tuple[str, str]] = Counter()
    for move in moves:
        by_way[move.way] += move.size_bytes
    size = graph.by_name["relu1.out"].size_bytes
    assert by_way["L1", "LLB"] == size
    assert by_way["LLB", "L1"] >= 2 * size
    assert by_way.keys() <= {("L1", "LLB"), ("LLB", "L1")}


@pytest.mark.spread(3)
@pytest.mark.parametrize("policy", ["longest", "cost"])
@pytest.mark.parametrize("seed", [5, 8, 11])
def test_random_networks_keep_their_bits(seed: int, policy: str) -> None:
    graph, constants = random_graph(Seeded(seed))
    chip = small_chip(cores=4, data_bytes=768)
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O3(policy))
    assert spilled(plan)
    check_against_o0(graph, constants, chip, plan)


@pytest.mark.parametrize("kib", [pytest.param(4, marks=pytest.mark.nightly), 8, 9])
@pytest.mark.commit
def test_auto_takes_the_cheaper_plan_and_says_both_numbers(kib: int) -> None:
    graph, constants = skip_network()
    chip = small_chip(data_bytes=kib * KIB)
    ctx = PlanContext(graph, constants, chip, TARGET)
    cycles = {spill: plan_cycles(make_plan(ctx, O3(spill)), ctx).cycles for spill in ("none", "cost")}
    plan = make_plan(PlanContext(graph, constants, chip, TARGET), O3("auto"))
    assert plan_cycles(plan, PlanContext(graph, {}, chip, TARGET)).cycles == min(cycles.values())
    assert bool(spilled(plan)) == (cycles["cost"] < cycles["none"])
    (reason,) = (d.reason for d in plan.decisions if d.subject == "spilling")
    assert reason == f"{cycles['cost']:,.0f} cycles with spills, {cycles['none']:,.0f} with finer cuts instead"


def test_auto_without_anything_to_spill_is_the_plain_plan() -> None:
    graph, constants = skip_network()
    plain = make_plan(PlanContext(graph, constants, small_chip(), TARGET), O3())
    assert make_plan(PlanContext(graph, constants, small_chip(), TARGET), O3("auto")) == plain


def test_a_spill_needs_a_policy_that_exists_and_a_level_with_groups() -> None:
    graph, constants = skip_network()
    with pytest.raises(
        ModelError, match="--spill: needs one of none, longest, largest, furthest, cost, auto; has smallest"
    ):
        make_plan(PlanContext(graph, constants, small_chip(), TARGET), O3("smallest"))
    with pytest.raises(ModelError, match="--spill: needs a level that makes groups of several layers: O3; has O1"):
        make_plan(PlanContext(graph, constants, small_chip(), TARGET), planner_of("O1", "longest"))
