"""Plans of every level: `python benchmarks/partition.py [--json FILE] [--markdown FILE] [--network NAME]... [--quick]`.

For each network, at a small and a large batch a cluster, each level is planned, laid out and counted; nothing is run.
Bytes are exact (`partitioner.cost.traffic`), cycles those of the cost model. Four tables: levels, the
published hand schedule of ResNet-50 beside level O3, the cost model beside the clock, and planning time up to 10,000
operators.

Keys of the JSON object: `host_cpu`, `python`, `cpus`, `load_average` (at the start; above 1, times are too long), and
four lists.

    rows                    one a network, batch and level
      network, chip, level, batch_per_cluster
      groups, instances, kernels        kernels are run steps
      tensors_main, tensors_staging, tensors_local      outputs of layers, each instance's counted, by memory
      ddr_bytes_per_item                in and out of the main memory
      llb_bytes_per_item                between the staging memory and the cores' memories
      recompute_share                   multiply-accumulates done again
      floor_cycles_per_item             of the network: no plan is faster
      plan_floor_cycles_per_item        of the plan, all engines overlapped
      serial_cycles_per_item            of the plan, nothing overlapped
      bound_by                          the engine or memory with the largest floor of the plan
      gain                              serial cycles an item of O0 at the small batch over those here
      batch_gain                        serial cycles an item of this level at the small batch over those here
      batch_share                       log(batch_gain) / log(gain): what the larger batch alone brings of the gain
      seconds                           planning
      refusal                           why there is no plan, empty where there is one
    hand                    readings of the published hand schedule of ResNet-50, and O3
      name, refusal, main_bytes_if_it_fits, main_bytes, plan_floor_cycles, serial_cycles
      clock_cycles                      of the lowered program under the clock (`isched.timing.cycle_model`), launch
      included
    clock                   the sums of `partitioner.cost.cost_model` and the clock, an item, launch included
      network, level, batch_per_cluster, serial_cycles_per_item, overlapped_cycles_per_item, clock_cycles_per_item
    scaling                 graph, operators, level, groups, seconds
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

from benchmarks.chain_networks import CHAINS
from benchmarks.hand_schedule import hand_plans
from benchmarks.lab.programs import lower_plan
from benchmarks.output import add_outputs, finish, keep, table
from codegen.neuralscale.target import TARGET
from dsa_sched.analysis.explanation import explain_plan
from dsa_sched.analysis.explanation_data import Explanation
from dsa_sched.frontend import Model, load_model
from hw_models.chip import Chip
from hw_models.errors import UserError
from hw_models.loading import load_chip
from hw_models.routes import main_memory, staging_memory
from isched.timing.cycle_model import time_program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.cost_model import plan_cycles
from partitioner.cost.roofline import binding_floor
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Plan
from partitioner.planners.levels import LEVELS, planner_of
from partitioner.planners.registry import make_plan

Row = dict[str, Any]

NETWORKS = {
    "resnet50": (2, 16),
    "densenet121": (4, 8),
    "squeezenet": (2, 16),
    "inception_v1": (2, 16),
    "shufflenet": (2, 16),
    "unet": (1, 8),
    "nasnet": (1, 4),
}
"""Images a cluster, small and large: those of the published comparison where it has the network."""

PAPER_TENSORS = {
    "resnet50": {"TVM": (58, 0, 0), "vendor": (1, 11, 291), "published method": (1, 11, 284)},
    "densenet121": {"TVM": (247, 0, 0), "published method": (0, 3, 389)},
}
"""Tensors in DDR, LLB and L1 of the published comparison (table 3)."""

HAND_NETWORK, HAND_BATCH = "resnet50", 16
CLOCKED = {"squeezenet": (1, 2, 4, 8, 16), "unet": (1, 4)}
CLOCKED_LEVELS = ("O0", "O1", "O3")
SCALING = (10, 100, 1_000, 10_000)
QUICK_SCALING = SCALING[:3]
MIB = 1 << 20


def planned(model: Model, chip: Chip, level: str) -> tuple[Plan, float]:
    start = time.perf_counter()
    plan = make_plan(PlanContext(model.graph, model.constants, chip, TARGET), planner_of(level))
    return plan, time.perf_counter() - start


def level_row(name: str, model: Model, chip: Chip, level: str, batch: int) -> Row:
    """One level at one batch; a plan that cannot be made is a row too."""
    row: Row = {"network": name, "chip": chip.name, "level": level, "batch_per_cluster": batch, "refusal": ""}
    try:
        plan, seconds = planned(model, chip, level)
        found = explain_plan(plan, PlanContext(model.graph, {}, chip, TARGET)).explanation
    except UserError as error:
        return {**row, "refusal": str(error)}
    return {**row, **figures(found, chip), "seconds": seconds}


def figures(found: Explanation, chip: Chip) -> Row:
    main, batch = main_memory(chip), found.batch_per_cluster
    local = next(iter(found.peak_bytes))
    staging = staging_memory(chip, local)
    between = (f"{staging}->{local}", f"{local}->{staging}")
    return {
        "groups": len(found.groups),
        "instances": found.instances,
        "kernels": found.kernels,
        "tensors_main": found.tensors.get(main, 0),
        "tensors_staging": found.tensors.get(staging, 0),
        "tensors_local": found.tensors.get(local, 0),
        "ddr_bytes_per_item": found.main_bytes / batch,
        "llb_bytes_per_item": sum(found.moved_bytes.get(way, 0) for way in between) / batch,
        "recompute_share": found.recompute_share,
        "floor_cycles_per_item": binding_floor(found.network_floors).cycles / batch,
        "plan_floor_cycles_per_item": binding_floor(found.plan_floors).cycles / batch,
        "serial_cycles_per_item": found.serial_cycles / batch,
        "bound_by": binding_floor(found.plan_floors).name,
    }


def with_gains(rows: Sequence[Row]) -> list[Row]:
    """Rows with what they gain over O0 at the small batch, and what the batch alone brings of that."""
    cycles = {
        (row["network"], row["level"], row["batch_per_cluster"]): row["serial_cycles_per_item"]
        for row in rows
        if not row["refusal"]
    }
    done = []
    for row in rows:
        small = min(batch for network, _, batch in cycles if network == row["network"])
        here = cycles.get((row["network"], row["level"], row["batch_per_cluster"]))
        base, alone = (cycles.get((row["network"], level, small)) for level in ("O0", row["level"]))
        if here is None or base is None or alone is None:
            done.append(row)
            continue
        gain, batch_gain = base / here, alone / here
        share = math.log(batch_gain) / math.log(gain) if gain != 1 else 0.0
        done.append({**row, "gain": gain, "batch_gain": batch_gain, "batch_share": share})
    return done


def measure_levels(networks: Iterable[str], chip: Chip) -> Iterator[Row]:
    for name in networks:
        for batch in NETWORKS[name]:
            model = load_model(name, {}, batch)
            for level in LEVELS:
                row = level_row(name, model, chip, level, batch)
                print(f"{name} {level} batch {batch}: {row['refusal'] or round(row['seconds'], 2)}", flush=True)
                yield row


def bytes_if_it_fits(plan: Plan, graph: Graph) -> int:
    """Constants once an instance, inputs and outputs of the network once, everything else on the chip."""
    total = sum(graph.by_name[name].size_bytes for name in (*graph.inputs, *graph.outputs))
    for group in plan.groups:
        names = {name for layer in group.layers for name in layer.inputs(graph) if graph.by_name[name].constant}
        total += group.split.instances * sum(graph.by_name[name].size_bytes for name in names)
    return total


def clock_cycles(plan: Plan, model: Model, chip: Chip) -> float:
    """Cycles of the program that the plan becomes."""
    program = lower_plan(plan, Context(model.graph, model.constants, chip, TARGET), TARGET.data_base_bytes)
    return time_program(program, chip, TARGET).cycles


def measure_hand(chip: Chip) -> Iterator[Row]:
    """Readings of the published schedule, and our own plan."""
    model = load_model(HAND_NETWORK, {}, HAND_BATCH)
    variants = [(v.name, v.plan, v.refusal) for v in hand_plans(model.graph, chip, TARGET)]
    variants.append(("O3", planned(model, chip, "O3")[0], ""))
    for name, plan, refusal in variants:
        row: Row = {"name": name, "refusal": refusal}
        row["main_bytes_if_it_fits"] = bytes_if_it_fits(plan, model.graph)
        if not refusal:
            found = explain_plan(plan, PlanContext(model.graph, {}, chip, TARGET)).explanation
            row["main_bytes"] = found.main_bytes
            row["plan_floor_cycles"] = binding_floor(found.plan_floors).cycles
            row["serial_cycles"] = found.serial_cycles
            row["clock_cycles"] = clock_cycles(plan, model, chip)
        print(f"hand schedule {name}: {refusal or row['main_bytes']}", flush=True)
        yield row


def measure_clock(chip: Chip) -> Iterator[Row]:
    """What plans cost before they are lowered, and what their programs take."""
    for name, batches in CLOCKED.items():
        for batch in batches:
            model = load_model(name, {}, batch)
            for level in CLOCKED_LEVELS:
                plan = planned(model, chip, level)[0]
                cost = plan_cycles(plan, PlanContext(model.graph, {}, chip, TARGET))
                row: Row = {"network": name, "level": level, "batch_per_cluster": batch}
                row["serial_cycles_per_item"] = cost.serial_cycles / batch
                row["overlapped_cycles_per_item"] = cost.overlapped_cycles / batch
                row["clock_cycles_per_item"] = clock_cycles(plan, model, chip) / batch
                print(f"clock {name} {level} batch {batch}: {row['clock_cycles_per_item']:.0f}", flush=True)
                yield row


def measure_scaling(sizes: Iterable[int], chip: Chip) -> Iterator[Row]:
    """Planning time of chains and residual chains: four images of 32x32 pixels and 64 channels, so that groups end."""
    for size in sizes:
        for name, build in CHAINS.items():
            model = load_model(build(size, (4, 64, 32, 32)))
            graph, constants = model.graph, model.constants
            for level in ("O0", "O3"):
                start = time.perf_counter()
                plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
                seconds = time.perf_counter() - start
                print(f"{name} of {len(graph.ops)} operators, {level}: {seconds:.2f} s", flush=True)
                row = {"graph": name, "operators": len(graph.ops), "level": level}
                yield {**row, "groups": len(plan.groups), "seconds": seconds}


LEGEND = """Cycles are for one item on one cluster. Floor: no plan is faster. Overlapped: the plan's largest floor.
Serial: no engine overlaps another. Gain: over O0 at the small batch, in serial cycles. Batch alone: the same level at
the small batch over the large one, below 1 where fewer values fit on the chip, and its share of the gain (logarithms).
Planning times were taken while other work ran on the machine (load average {load:.1f} on {cpus} cores)."""

PAPER_LEGEND = "Published counts of tensors in DDR, LLB and L1: "


def markdown(figures: Row) -> str:
    """The four tables for a reader."""
    counts = (
        f"{network}, {who}: {' / '.join(map(str, by_memory))}"
        for network, found in PAPER_TENSORS.items()
        for who, by_memory in found.items()
    )
    parts = [
        "# Plans",
        "Made by `python benchmarks/partition.py`; bytes are exact, cycles those of the cost model.",
        "## Levels",
        table(LEVEL_HEADINGS, (_level_cells(row) for row in figures["rows"])),
        LEGEND.format(load=figures["load_average"], cpus=figures["cpus"]),
        f"{PAPER_LEGEND}{'; '.join(counts)}.",
        "## The published hand schedule of ResNet-50, 16 images a cluster",
        table(HAND_HEADINGS, (_hand_cells(row) for row in figures["hand"])),
        _hand_verdict(figures["hand"]),
        "## The cost model beside the clock",
        table(CLOCK_HEADINGS, (_clock_cells(row) for row in figures["clock"])),
        _clock_verdict(figures["clock"]),
        "## Planning time",
        table(SCALING_HEADINGS, (_scaling_cells(row) for row in figures["scaling"])),
    ]
    return "\n\n".join(parts) + "\n"


LEVEL_HEADINGS = (
    "network",
    "batch",
    "level",
    "groups",
    "instances",
    "tensors DDR / LLB / L1",
    "DDR MiB",
    "LLB MiB",
    "again",
    "floor cycles",
    "overlapped",
    "serial",
    "bound by",
    "gain",
    "batch alone",
    "planning s",
)
HAND_HEADINGS = ("schedule", "DDR MiB if it fits", "DDR MiB", "overlapped", "serial", "clock", "refusal")
CLOCK_HEADINGS = (
    "network",
    "batch",
    "level",
    "serial",
    "overlapped",
    "clock",
    "serial over clock",
    "overlapped over clock",
)
SCALING_HEADINGS = ("graph", "operators", "level", "groups", "planning s")


def _level_cells(row: Row) -> list[str]:
    start = [row["network"], str(row["batch_per_cluster"]), row["level"]]
    if row["refusal"]:
        return [*start, row["refusal"].replace("|", "/")[:160], *[""] * (len(LEVEL_HEADINGS) - len(start) - 1)]
    return [
        *start,
        str(row["groups"]),
        str(row["instances"]),
        f"{row['tensors_main']} / {row['tensors_staging']} / {row['tensors_local']}",
        f"{row['ddr_bytes_per_item'] / MIB:.2f}",
        f"{row['llb_bytes_per_item'] / MIB:.2f}",
        f"{row['recompute_share']:.1%}",
        f"{row['floor_cycles_per_item']:,.0f}",
        f"{row['plan_floor_cycles_per_item']:,.0f}",
        f"{row['serial_cycles_per_item']:,.0f}",
        row["bound_by"],
        *_gain_cells(row),
        f"{row['seconds']:.2f}",
    ]


def _gain_cells(row: Row) -> list[str]:
    """The share is said where both are gains."""
    if "gain" not in row:
        return ["", ""]
    share = f" ({row['batch_share']:.0%})" if min(row["gain"], row["batch_gain"]) > 1 else ""
    return [f"{row['gain']:.2f}", f"{row['batch_gain']:.2f}{share}"]


def _hand_cells(row: Row) -> list[str]:
    start = [row["name"], f"{row['main_bytes_if_it_fits'] / MIB:.1f}"]
    if row["refusal"]:
        return [*start, "", "", "", "", row["refusal"].split("; change")[0]]
    cycles = (row["plan_floor_cycles"], row["serial_cycles"], row["clock_cycles"])
    return [*start, f"{row['main_bytes'] / MIB:.1f}", *(f"{number:,.0f}" for number in cycles), ""]


def _hand_verdict(rows: Sequence[Row]) -> str:
    """O3 beside the reading that runs and takes the fewest cycles under the clock."""
    (own,) = (row for row in rows if row["name"] == "O3")
    best = min((row for row in rows if not row["refusal"] and row is not own), key=lambda row: row["clock_cycles"])
    ratios = ", ".join(
        f"{own[key] / best[key]:.3f} of its {what}"
        for key, what in (("main_bytes", "bytes of DDR"), ("clock_cycles", "cycles"), ("plan_floor_cycles", "floor"))
    )
    return (
        f"Cycles are for all {HAND_BATCH} images; clock: the program under `isched.timing.cycle_model`, launch "
        f'included. The fastest reading that runs is "{best["name"]}"; O3 takes {ratios}.'
    )


def _clock_cells(row: Row) -> list[str]:
    cycles = [row[f"{which}_cycles_per_item"] for which in ("serial", "overlapped", "clock")]
    ratios = (f"{part / cycles[-1] - 1:+.1%}" for part in cycles[:-1])
    return [row["network"], str(row["batch_per_cluster"]), row["level"], *(f"{n:,.0f}" for n in cycles), *ratios]


def _clock_verdict(rows: Sequence[Row]) -> str:
    """How far the sums are from the clock, and whether they put the batches of a network in the clock's order."""
    said = []
    for which in ("serial", "overlapped"):
        ratios = [row[f"{which}_cycles_per_item"] / row["clock_cycles_per_item"] - 1 for row in rows]
        pairs = {(row["network"], row["level"]) for row in rows}
        alike = sum(_order(rows, *pair, which) == _order(rows, *pair, "clock") for pair in pairs)
        said.append(f"{which} {min(ratios):+.1%} to {max(ratios):+.1%}, same order for {alike} of {len(pairs)}")
    return (
        "Cycles are for one item on one cluster, launch included; clock: the program under "
        "`isched.timing.cycle_model`, in program order. Away from the clock, and whether the batches of a network and "
        f"level come in the clock's order: {'; '.join(said)}."
    )


def _order(rows: Sequence[Row], network: str, level: str, which: str) -> list[int]:
    """Batches, the fastest first."""
    found = [row for row in rows if (row["network"], row["level"]) == (network, level)]
    return [row["batch_per_cluster"] for row in sorted(found, key=lambda row: row[f"{which}_cycles_per_item"])]


def _scaling_cells(row: Row) -> list[str]:
    return [row["graph"], f"{row['operators']:,}", row["level"], f"{row['groups']:,}", f"{row['seconds']:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Plans of every level.")
    add_outputs(parser)
    parser.add_argument("--network", action="append", choices=NETWORKS, help="only this one; may be repeated")
    parser.add_argument("--quick", action="store_true", help="at most 1,000 operators in the scaling table")
    options = parser.parse_args()
    chip = load_chip("stcp920")
    figures: Row = {"host_cpu": llvmlite.binding.get_host_cpu_name(), "python": platform.python_version()}
    figures |= {"cpus": os.cpu_count() or 0, "load_average": os.getloadavg()[0]}
    sizes = QUICK_SCALING if options.quick else SCALING
    sections: dict[str, Callable[[], Iterator[Row]]] = {
        "rows": lambda: measure_levels(options.network or NETWORKS, chip),
        "hand": lambda: measure_hand(chip),
        "clock": lambda: measure_clock(chip),
        "scaling": lambda: measure_scaling(sizes, chip),
    }
    for name, measure in sections.items():
        figures[name] = []
        for row in measure():
            figures[name].append(row)
            keep(options, figures)
    figures["rows"] = with_gains(figures["rows"])
    finish(options, figures, markdown(figures))


if __name__ == "__main__":
    main()
