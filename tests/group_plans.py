"""Plans of whole groups made by hand, and what they must compute: the bits of O0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from isched.hazards.verify_program import verify_program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Exchange, Group, Plan, Spill, Split, parse_plan
from partitioner.ir.steps import Binding, RunStep
from partitioner.planners.registry import make_plan
from partitioner.tiling.core_regions import instance_box
from partitioner.verification.verify_plan import verify_plan
from tests.chip_runs import Compiled

__all__ = ["check_against_o0", "one_group", "outputs_of"]


def one_group(
    graph: Graph,
    constants: Constants,
    chip: Chip,
    cuts: Mapping[int, int],
    pieces: tuple[int, ...],
    exchanged: tuple[str, ...] = (),
    spilled: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """All layers as one group, its output cut as `cuts` (axis: count) says, `pieces` for the cores of an instance;
    `spilled` names values and the memories that they go to."""
    base = make_plan(PlanContext(graph, constants, chip, TARGET))
    layers = tuple(layer for group in base.groups for layer in group.layers)
    shape = graph.by_name[layers[-1].output].shape
    split = Split(tuple((a, tuple(shape[a] * i // n for i in range(n + 1))) for a, n in cuts.items()))
    exchanges: list[Exchange | Spill] = [Exchange(name, pieces) for name in exchanged]
    exchanges += [Spill(name, pieces, scope) for name, scope in spilled.items()]
    group = Group("all", layers, split, tuple(exchanges))
    cores = tuple(range(prod(pieces)))
    steps = tuple(
        RunStep("all", number, instance_box(graph, group, group.output, number), "DDR", Binding(pieces, cores),
             exports=tuple((name, "DDR") for name in group.outputs(graph) if name != group.output))
        for number in range(split.instances)
    )  # fmt: skip
    plan = replace(base, level="by hand", groups=(group,), steps=steps)
    verify_plan(plan, PlanContext(graph, {}, chip, TARGET))
    assert parse_plan(str(plan)) == plan
    return plan


def outputs_of(
    graph: Graph, constants: Constants, chip: Chip, plan: Plan, seed: int = 0, overlap: bool = False
) -> dict[str, bytes]:
    """Bits of the network's outputs after a run on the hostile simulator, whose cores interleave by `seed`."""
    program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes, overlap=overlap)
    verify_program(program, chip)
    compiled = Compiled(graph, constants, chip, plan, program)
    place = {p.tensor: (TARGET.address(p.memory, p.offset_bytes), p.size_bytes) for p in program.placements}
    loads = {place[name][0]: bits.tobytes() for name, bits in compiled.inputs().items()}
    run = TARGET.run(compiled.files, loads, tuple(place[name] for name in graph.outputs), seed)
    return {name: run.memory[place[name]] for name in graph.outputs}


def check_against_o0(graph: Graph, constants: Constants, chip: Chip, *plans: Plan, overlap: bool = False) -> None:
    """Every plan leaves the bits that O0 leaves; with `overlap`, engines work at the same time."""
    wanted = outputs_of(graph, constants, chip, make_plan(PlanContext(graph, constants, chip, TARGET)))
    for seed, plan in enumerate(plans, 1):
        assert outputs_of(graph, constants, chip, plan, seed, overlap) == wanted, f"plan {seed}:\n{plan}"
