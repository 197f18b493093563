"""Spilling policies, packings and what they do to plans: `python benchmarks/allocation.py [--json FILE]
[--markdown FILE] [--quick]`.

Three kinds of cases for policies and packings: random lifetimes; what one core holds of one instance of each group that
level O3 makes (the local memory is a share of what it would need); values of whole networks in the staging memory of
the stcp920. Each policy allocates each case from near to far; small cases are solved exactly too. Then plans of level
O3 with and without spills, under the cost model and the clock, and the main memory that programs need.

Keys of the JSON object: `host_cpu`, `python`, and four lists.

    rows                    one a kind of case, share of the demand that there is room for, and policy
      kind, share, policy, cases
      spilled, transfers    values; writes and reads of them, all cases together
      moved_share           bytes written and read, over the bytes of one use of every value
      far_share             the part of these that goes beyond the second memory
      height_over_peak      where the highest value ends in the first memory over the most bytes in use at once there
      over_optimum          bytes moved over the proven optimum, of the cases solved exactly
      wins                  cases in which no policy moves fewer bytes
    packing                 one a kind of case
      kind, cases, optimal  how many were solved, and how often the packing is a best one
      mean_ratio, worst_ratio           height over the optimum
    plans                   one a network, batch, size of the data buffer of L1, and choice of `--spill`
      network, batch_per_cluster, data_bytes, spill
      refusal               why there is no plan, empty where there is one; without one the row ends here
      instances             of each group
      spilled               values of groups that leave the cores
      model_cycles          of the cost model, which `auto` decides by
      clock_cycles          of the program under the clock (`isched.timing.cycle_model`), in program order
      scheduled_cycles      the same as `--schedule` orders it
    main_memory             one a network, batch and level
      network, batch_per_cluster, level, constant_bytes
      kept_bytes            where every value that reaches the main memory keeps a place (`--keep-values`)
      shared_bytes          where they take turns
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

from benchmarks.lab.offset_assignment_cpsat import exact_height, exact_spill
from benchmarks.lab.resizing import resized
from benchmarks.lab.spill_allocation import SpillAllocation, SpillMemory, allocate
from benchmarks.output import add_outputs, finish, table
from codegen.neuralscale.target import TARGET
from codegen.target import TileTarget
from dsa_sched.frontend import load_model
from dsa_sched.pipeline.driver import compile_plan
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.tile_stages import Planned
from hw_models.chip import Chip
from hw_models.errors import UserError
from hw_models.loading import load_chip
from hw_models.routes import main_memory
from isched.lowering.main_memory_allocation import place_tensors
from isched.timing.cycle_model import time_program
from partitioner.context.plan_context import Context
from partitioner.cost.cost_model import plan_cycles
from partitioner.ir.plan import Plan
from partitioner.ir.steps import RunStep
from partitioner.memory.memory_plan import lay_out, walked
from partitioner.memory.offset_assignment import Item, lowest, peak_bytes
from partitioner.memory.spill_policies import POLICIES, SpillValue
from partitioner.memory.spilling import held_values
from partitioner.planners.levels import O0, O3, planner_of
from partitioner.planners.registry import make_plan

Row = dict[str, Any]

NETWORKS = {"squeezenet": 16, "resnet50": 16, "densenet121": 8, "inception_v1": 16, "shufflenet": 16, "unet": 8}
"""Images a cluster."""

SHARES = (0.9, 0.75, 0.5)
"""Of what a case needs at its fullest moment."""

RANDOM_CASES = 200
MOST_EXACT = 12
"""Values of a case that is solved exactly too."""

KIB, MIB = 1 << 10, 1 << 20
SPILLED = (
    ("densenet121", 4, MIB),
    ("densenet121", 8, MIB),
    ("densenet121", 16, MIB),
    ("unet", 4, MIB),
    ("unet", 8, MIB),
    ("unet", 16, MIB),
    ("nasnet", 4, MIB),
    ("resnet50", 8, MIB),
    ("resnet50", 16, MIB),
    ("resnet50", 32, MIB),
    ("squeezenet", 16, MIB),
    ("shufflenet", 16, MIB),
    ("inception_v1", 16, MIB),
    ("resnet50", 16, 640 * KIB),
    ("squeezenet", 16, 256 * KIB),
)
"""Networks, images a cluster and bytes of a core's data buffer: 1 MiB is that of the stcp920."""

SPILLS = ("none", "longest", "cost", "auto")
"""Choices of `--spill` that are compared."""

STORED = (
    ("resnet50", 1, "O0"),
    ("resnet50", 16, "O0"),
    ("resnet50", 16, "O1"),
    ("resnet50", 16, "O3"),
    ("densenet121", 8, "O0"),
    ("densenet121", 8, "O3"),
)
"""Networks, images a cluster and levels whose main memory is counted."""

UNIT = 64
FAR = SpillMemory("far", 1 << 50, UNIT)


@dataclass(frozen=True, slots=True)
class Case:
    """Values, and the first memory and the one behind it."""

    values: tuple[SpillValue, ...]
    near: SpillMemory
    middle: SpillMemory


def random_values(seed: int) -> tuple[SpillValue, ...]:
    """Some long-lived, most read in the next slots; bytes over two orders of magnitude."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(5, 13) if seed % 2 else rng.integers(13, 40))
    made = []
    for number in range(count):
        first = int(rng.integers(0, count))
        reads = first + 1 + np.minimum(rng.geometric(0.4, int(rng.integers(1, 4))) - 1, count).cumsum()
        slots = tuple(sorted({first, *(int(read) for read in reads)}))
        made.append(SpillValue(f"v{number}", UNIT * int(2 ** rng.uniform(2, 9)), slots))
    return tuple(made)


def random_cases(count: int, share: float) -> Iterator[Case]:
    """The second memory has half of what the first has."""
    for seed in range(count):
        values = random_values(seed)
        near = int(share * peak(values))
        yield Case(values, SpillMemory("near", near, UNIT), SpillMemory("middle", near // 2, UNIT))


def peak(values: Sequence[SpillValue]) -> int:
    return peak_bytes(items_of(values))[0]


def items_of(values: Iterable[SpillValue]) -> list[Item]:
    return [Item(v.name, v.slots[0], v.slots[-1], -(-v.size_bytes // UNIT) * UNIT) for v in values]


def alone(plan: Plan, group: str, main: str) -> Plan:
    """One instance of a group, everything outside it in the main memory."""
    step = next(s for s in plan.steps if s.group == group and isinstance(s, RunStep))
    step = replace(step, scope=main, exports=tuple((name, main) for name, _ in step.exports))
    return replace(plan, groups=(plan.group_by_name[group],), steps=(step,), pinned=())


def zoo_values(
    chip: Chip, networks: Iterable[str]
) -> tuple[list[tuple[SpillValue, ...]], list[tuple[SpillValue, ...]]]:
    """Of each group of level O3 what a core holds, and of each network all values that leave layers."""
    groups, whole = [], []
    for network in networks:
        model = load_model(network, {}, NETWORKS[network])
        ctx = Context(model.graph, model.constants, chip, TARGET)
        plan = make_plan(ctx, O3())
        for group in plan.groups:
            if len(group.layers) < 3:
                continue
            try:
                one = alone(plan, group.name, main_memory(chip))
                walk = walked(one.groups, one.steps, ctx, group.inputs(model.graph))
            except UserError as error:
                print(f"{network}, group {group.name}: {error.line}", file=sys.stderr)
                continue
            groups.append(tuple(held_values(walk, walk.ctx.roles.local.memory).values()))
        whole.append(network_values(make_plan(ctx, O0()), model.graph))
        print(f"{network}: {len(plan.groups)} groups, {len(whole[-1])} values", flush=True)
    return groups, whole


def network_values(plan: Plan, graph: Any) -> tuple[SpillValue, ...]:
    """Values between layers, whole, one layer a slot; views count as what they rename."""
    root = {tensor.name: tensor.name for tensor in graph.tensors}
    slots: dict[str, set[int]] = {}
    for number, layer in enumerate(layer for group in plan.groups for layer in group.layers):
        if layer.is_view(graph):
            root[layer.output] = root[layer.anchor(graph).inputs[0]]
            continue
        for name in layer.inputs(graph):
            if not graph.by_name[name].constant and root[name] in slots:
                slots[root[name]].add(number)
        slots[layer.output] = {number}
    return tuple(
        SpillValue(name, graph.by_name[name].size_bytes, tuple(sorted(found))) for name, found in slots.items()
    )


def share_of(values: tuple[SpillValue, ...], share: float, chip: Chip) -> Case:
    near = int(share * peak(values)) // UNIT * UNIT
    cores = chip.cores_per_cluster
    return Case(
        values, SpillMemory("near", near, UNIT), SpillMemory("middle", chip.memory("LLB").size_bytes // cores, UNIT)
    )


def measure(kind: str, share: float, cases: Sequence[Case]) -> Iterator[Row]:
    """One row a policy."""
    found = {
        name: [allocate(case.values, (case.near, case.middle, FAR), policy) for case in cases]
        for name, policy in POLICIES.items()
    }
    moved = {name: [a.moved_bytes("near") + a.moved_bytes("middle") for a in all_of] for name, all_of in found.items()}
    least = [min(of_case) for of_case in zip(*moved.values(), strict=True)]
    small = [n for n, case in enumerate(cases) if len(case.values) <= MOST_EXACT]
    best = {n: exact_spill(cases[n].values, cases[n].near) for n in small}
    proven = [n for n, exact in best.items() if exact.proven and exact.best_bytes]
    once = sum(value.size_bytes for case in cases for value in case.values)
    for name, all_of in found.items():
        near = [a.moved_bytes("near") for a in all_of]
        yield {
            "kind": kind,
            "share": share,
            "policy": name,
            "cases": len(cases),
            "spilled": sum(spill.memory == "near" for a in all_of for spill in a.spills),
            "transfers": sum(len(spill.value.slots) for a in all_of for spill in a.spills),
            "moved_share": sum(near) / once,
            "far_share": sum(a.moved_bytes("middle") for a in all_of) / max(1, sum(near)),
            "height_over_peak": _mean(_height(case, a) for case, a in zip(cases, all_of, strict=True)),
            "over_optimum": _mean(near[n] / best[n].best_bytes for n in proven) if proven else None,
            "optima": len(proven),
            "wins": sum(a == b for a, b in zip(moved[name], least, strict=True)),
        }


def _height(case: Case, found: SpillAllocation) -> float:
    """Where the highest value in the first memory ends, over the most bytes that are in use at once there."""
    kept = [value for value in case.values if found.places[value.name][0] == "near"]
    top = max((found.places[v.name][1] + v.size_bytes for v in kept), default=0)
    return top / peak(kept) if kept and peak(kept) else 1.0


def _mean(numbers: Iterable[float]) -> float:
    found = list(numbers)
    return sum(found) / len(found) if found else 0.0


def measure_packing(kind: str, cases: Iterable[Sequence[SpillValue]]) -> Row:
    """The heuristic's height over the proven optimum, of small cases."""
    ratios = []
    for values in cases:
        items = items_of(values)
        if len(items) > MOST_EXACT or not peak(values):
            continue
        best = exact_height(items, UNIT)
        if best.proven:
            ratios.append(lowest(items, UNIT)[1] / best.best_bytes)
    optimal = sum(ratio == 1 for ratio in ratios)
    return {"kind": kind, "cases": len(ratios), "optimal": optimal, "mean_ratio": _mean(ratios),
            "worst_ratio": max(ratios, default=0.0)}  # fmt: skip


def measure_plans(cases: Iterable[tuple[str, int, int]]) -> Iterator[Row]:
    """Plans of level O3 by what is spilled; equal plans are timed once."""
    for network, batch, data_bytes in cases:
        model = load_model(network, {}, batch)
        chip = resized(load_chip("stcp920"), "small", {}, {("L1", "data"): data_bytes})
        ctx = Context(model.graph, model.constants, chip, TARGET)
        timed: dict[Plan, Row] = {}
        for spill in SPILLS:
            row: Row = {"network": network, "batch_per_cluster": batch, "data_bytes": data_bytes, "spill": spill}
            try:
                plan = make_plan(ctx, O3(spill))
            except UserError as error:
                yield {**row, "refusal": error.line}
                continue
            bare = replace(plan, decisions=())
            if bare not in timed:
                timed[bare] = plan_figures(Planned(model, ctx, plan))
            print(f"{network}, {batch} images, {spill}: {timed[bare]['scheduled_cycles']:,.0f} cycles", flush=True)
            yield {**row, "refusal": "", **timed[bare]}


def plan_figures(planned: Planned[TileTarget]) -> Row:
    plan = planned.plan
    return {
        "instances": [group.split.instances for group in plan.groups],
        "spilled": sum(len(group.spills) for group in plan.groups),
        "model_cycles": plan_cycles(plan, planned.context).cycles,
        "clock_cycles": clock_cycles(planned, CompileOptions(O3())),
        "scheduled_cycles": clock_cycles(planned, CompileOptions(O3(), schedule=True)),
    }


def clock_cycles(planned: Planned[TileTarget], options: CompileOptions) -> float:
    return time_program(compile_plan(planned, options).program, planned.context.chip, TARGET).cycles


def measure_main_memory(cases: Iterable[tuple[str, int, str]], chip: Chip) -> Iterator[Row]:
    """What placements in the main memory take."""
    for network, batch, level in cases:
        model = load_model(network, {}, batch)
        graph = model.graph
        ctx = Context(graph, model.constants, chip, TARGET)
        plan = make_plan(ctx, planner_of(level))
        layout = lay_out(plan, ctx)
        kept, shared = (place_tensors(ctx, 0, layout, keep) for keep in (True, False))
        yield {
            "network": network,
            "batch_per_cluster": batch,
            "level": level,
            "constant_bytes": sum(p.size_bytes for p in kept if p.kind == "constant"),
            "kept_bytes": max(p.offset_bytes + p.size_bytes for p in kept),
            "shared_bytes": max(p.offset_bytes + p.size_bytes for p in shared),
        }


HEADINGS = ("cases", "room", "policy", "spilled", "transfers", "bytes moved", "beyond", "height", "optimum", "wins")

LEGEND = """Room: the first memory has this share of what the case needs at its fullest moment; the second, half of that
(random), an even share of the LLB (groups), or nothing (networks, whose first memory is the LLB). Bytes moved: written
and read because values were spilled, over the bytes of all values. Beyond: the part of them that goes on to the last
memory. Height: where the highest value ends over the most bytes in use at once; 1 is no fragmentation. Optimum: bytes
moved over the proven fewest, mean of the small cases (in brackets, how many). Wins: cases in which no other policy
moves less."""

PLAN_HEADINGS = (
    "network",
    "images",
    "data buffer",
    "spill",
    "instances",
    "spilled",
    "cost model",
    "clock",
    "scheduled",
)

PLAN_LEGEND = """Images of one cluster, cycles for all of them. Instances: of each group. Spilled: values of groups that
leave the cores. Clock: the program in program order; scheduled: as `--schedule` orders it. `auto` takes `none` or
`cost`, whichever the cost model finds faster."""

MAIN_HEADINGS = ("network", "images", "level", "every value kept", "values take turns", "constants alone")


def markdown(figures: Row) -> str:
    """The four tables for a reader."""
    rows = (
        (
            f"{row['kind']} ({row['cases']})",
            f"{row['share']:.0%}" if row["share"] else "8 MiB",
            row["policy"],
            f"{row['spilled']:,}",
            f"{row['transfers']:,}",
            f"{row['moved_share']:.1%}",
            f"{row['far_share']:.1%}",
            f"{row['height_over_peak']:.3f}",
            f"{row['over_optimum']:.2f} ({row['optima']})" if row["over_optimum"] else "",
            str(row["wins"]),
        )
        for row in figures["rows"]
    )
    packing = (
        (row["kind"], str(row["cases"]), str(row["optimal"]), f"{row['mean_ratio']:.4f}", f"{row['worst_ratio']:.3f}")
        for row in figures["packing"]
    )
    parts = [
        "# Allocation",
        "Made by `python benchmarks/allocation.py`.",
        "## Policies of spilling",
        table(HEADINGS, rows),
        LEGEND,
        "## Packing beside the proven optimum",
        table(("cases", "solved", "packed as well", "mean height over optimum", "worst"), packing),
        f"Cases of at most {MOST_EXACT} values.",
        "## Spilling in plans of level O3",
        table(PLAN_HEADINGS, _plan_cells(figures["plans"])),
        PLAN_LEGEND,
        "## Main memory",
        table(MAIN_HEADINGS, (_main_cells(row) for row in figures["main_memory"])),
        "MiB on one cluster, of values that reach the main memory.",
    ]
    return "\n\n".join(parts) + "\n"


def _plan_cells(rows: Iterable[Row]) -> Iterator[list[str]]:
    """Choices of a case that end alike share a row."""
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for row in rows:
        case = (row["network"], str(row["batch_per_cluster"]), f"{row['data_bytes'] // KIB:,} KiB")
        alike.setdefault((case, _plan_end(row)), []).append(row["spill"])
    for (start, end), spills in alike.items():
        yield [*start, ", ".join(spills), *end]


def _plan_end(row: Row) -> tuple[str, ...]:
    if row["refusal"]:
        return (row["refusal"], "", "", "", "")
    cycles = (row["model_cycles"], row["clock_cycles"], row["scheduled_cycles"])
    return (", ".join(map(str, row["instances"])), str(row["spilled"]), *(f"{number:,.0f}" for number in cycles))


def _main_cells(row: Row) -> list[str]:
    start = [row["network"], str(row["batch_per_cluster"]), row["level"]]
    return [*start, *(f"{row[f'{which}_bytes'] / MIB:,.2f}" for which in ("kept", "shared", "constant"))]


def main() -> None:
    parser = argparse.ArgumentParser(description="Spilling policies and packings.")
    add_outputs(parser)
    parser.add_argument("--quick", action="store_true", help="one network, few random cases, two plans")
    options = parser.parse_args()
    chip = load_chip("stcp920")
    count = RANDOM_CASES // 10 if options.quick else RANDOM_CASES
    groups, whole = zoo_values(chip, ("squeezenet",) if options.quick else NETWORKS)
    rows: list[Row] = []
    for share in SHARES:
        rows += measure("random", share, list(random_cases(count, share)))
    for share in SHARES:
        rows += measure("groups", share, [share_of(values, share, chip) for values in groups if len(values) > 1])
    shared = SpillMemory("near", chip.memory("LLB").size_bytes, UNIT)
    rows += measure("networks", 0.0, [Case(values, shared, SpillMemory("middle", 0, UNIT)) for values in whole])
    packing = [
        measure_packing("random", (random_values(seed) for seed in range(2 * count))),
        measure_packing("groups", groups),
    ]
    figures: Row = {"host_cpu": llvmlite.binding.get_host_cpu_name(), "python": platform.python_version()}
    figures |= {"rows": rows, "packing": packing}
    plans = [case for case in SPILLED if case[0] == "squeezenet"] if options.quick else SPILLED
    figures["plans"] = list(measure_plans(plans))
    figures["main_memory"] = list(measure_main_memory(STORED[:1] if options.quick else STORED, chip))
    finish(options, figures, markdown(figures))


if __name__ == "__main__":
    main()
