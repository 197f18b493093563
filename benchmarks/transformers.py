"""Transformers at the speed of their weights: `python benchmarks/transformers.py [--network NAME]... [--check]`.

    --few             compile networks of one and two layers and extend them linearly, instead of whole ones
    --level LEVEL     auto unless said; another one shows what it would take
    --check           exits with 1 where a goal is not reached, and says which; rows that are extended say so

Each row is one network at one batch a cluster on the stcp920 with the most favourable values that documents allow,
scheduled. Keys of the JSON
object: `rows`.

    network, length, batch, layers     what is told of; `compiled_layers`, from which it follows
    level, passes         what the level chose, and how often it runs
    cycles, per_second    of all passes; items of four clusters
    goal_per_second       of the same
    layer_cycles          what one layer more takes; null where only the whole network was compiled
    main_reads            bytes read from the main memory, as a multiple of inputs and constants once each
    weight_moves          the most that a weight goes from the staging memory to a core, in times its size: 1 is once
    seconds               of the processor, to compile
    plan_ratio            of the processor, to plan twelve layers at level streamed, in times that for two
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

import onnx

from benchmarks.output import add_outputs, finish, keep, table
from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import load_model
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import Compilation, CompileOptions, Lowered
from dsa_sched.stages.targets import judge_of
from dsa_sched.zoo.drawn_networks import drawn_model
from dsa_sched.zoo.topologies.bert import bert_base_topology, bert_large_topology
from dsa_sched.zoo.topologies.vit import vit_b16_topology
from hw_models.loading import load_chip
from partitioner.context.plan_context import Context
from partitioner.cost.traffic import Traffic, plan_traffic
from partitioner.planners.levels import AUTO, LEVEL_CHOICES, Streamed, planner_or_auto
from partitioner.planners.registry import make_plan

Row = dict[str, Any]

CHIP = load_chip("stcp920")
FEW = (1, 2)
PLANNED = (2, 12)
"""Layers that are planned for `plan_ratio`; of networks with fewer, all."""
PLAN_TRIALS = 3
MOST_MAIN_READS = 1.1
MOST_WEIGHT_MOVES = 1.0
MOST_PLAN_RATIO = 2.0
TEXTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True, slots=True)
class Case:
    """A network at so many items a cluster: `goal_per_second` items of all clusters, `most_seconds` to compile, where
    such numbers were published. `length` is that of texts, 0 for images."""

    network: str
    length: int
    batch: int
    layers: int
    goal_per_second: int
    topology: Callable[[int], onnx.ModelProto]
    most_seconds: float | None = None
    reads_once: bool = False

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of inputs that the file leaves open."""
        return dict.fromkeys(TEXTS, (self.batch, self.length)) if self.length else {}

    def __str__(self) -> str:
        return f"{self.network}{f' {self.length}' if self.length else ''}, {self.batch} a cluster"


CASES = (
    Case("bert_base", 128, 8, 12, 4_052, bert_base_topology, 199, reads_once=True),
    Case("bert_base", 128, 16, 12, 4_500, bert_base_topology),
    Case("bert_large", 384, 2, 24, 280, bert_large_topology, 699),
    Case("vit_b16", 0, 8, 12, 2_400, vit_b16_topology),
)


@dataclass(frozen=True, slots=True)
class Made:
    """A network of some layers, compiled: cycles of all passes, seconds of the processor, bytes, the way to cores."""

    layers: int
    compiled: Compilation
    cycles: float
    seconds: float
    traffic: Traffic
    to_cores: tuple[str, str]


def made(case: Case, layers: int, level: str, folder: Path) -> Made:
    """Compile so many layers of the case."""
    file = saved(case, layers, folder)
    began = time.process_time()
    options = CompileOptions(planner_or_auto(level), case.batch, tuple(case.shapes.items()), schedule=True)
    (compiled,) = compile_clusters(str(file), CHIP, options)
    seconds = time.process_time() - began
    assert isinstance(compiled.made, Lowered)
    assert compiled.made.cycles is not None
    ctx = Context(compiled.model.graph, compiled.model.constants, CHIP, TARGET)
    layout = compiled.made.layout
    traffic = plan_traffic(compiled.plan, layout, ctx)
    cycles = compiled.passes * compiled.made.cycles
    return Made(layers, compiled, cycles, seconds, traffic, (layout.staging, layout.local.memory))


def saved(case: Case, layers: int, folder: Path) -> Path:
    """The network of so many layers with seeded weights, as a file."""
    file = folder / f"{case.network}-{layers}.onnx"
    if not file.exists():
        onnx.save(drawn_model(case.network, case.topology(layers)), file)
    return file


def measure(case: Case, level: str, few: bool, folder: Path) -> Row:
    """The row of a case."""
    found = [made(case, layers, level, folder) for layers in (FEW if few else (case.layers,))]
    last = found[-1]
    missing = case.layers - last.layers
    each = (last.cycles - found[0].cycles) / (last.layers - found[0].layers) if few else None
    each_seconds = (last.seconds - found[0].seconds) / (last.layers - found[0].layers) if few else 0.0
    cycles = last.cycles + missing * (each or 0.0)
    return {
        "network": case.network,
        "length": case.length or None,
        "batch": case.batch,
        "layers": case.layers,
        "compiled_layers": last.layers,
        "level": last.compiled.plan.level,
        "passes": last.compiled.passes,
        "cycles": cycles,
        "per_second": case.batch * CHIP.clusters * CHIP.clock_hz / cycles,
        "goal_per_second": case.goal_per_second,
        "layer_cycles": each,
        "main_reads": main_reads(last),
        "weight_moves": weight_moves(last),
        "seconds": round(last.seconds + missing * each_seconds, 1),
        "plan_ratio": plan_ratio(case, folder),
    }


def main_reads(found: Made) -> float:
    """Bytes from the main memory over those of inputs and constants that are read at all."""
    graph, loaded = found.compiled.model.graph, found.traffic.loaded_bytes
    once = sum(found.traffic.values[name] for name in loaded if graph.by_name[name].constant or name in graph.inputs)
    return sum(loaded.values()) / once


def weight_moves(found: Made) -> float:
    """Of the constants that products read, the most often that one goes to a core, in times its size."""
    graph = found.compiled.model.graph
    read = {op.inputs[1] for op in graph.ops if op.kind == "matmul"}
    moved = {name: 0 for name in sorted(read) if graph.by_name[name].constant}
    for part in found.traffic.parts:
        for move in part.moves:
            if move.tensor in moved and move.way == found.to_cores:
                moved[move.tensor] += move.size_bytes
    return max(size / found.traffic.values[name] for name, size in moved.items()) / CHIP.cores_per_cluster


def plan_ratio(case: Case, folder: Path) -> float:
    """Processor time of planning many layers over that of planning few, of each the least of `PLAN_TRIALS`: what else
    runs on the machine only adds to it. What this process holds of compilations is kept out of collections of garbage,
    which would go through all of it and more often where more is planned."""
    spent = []
    gc.collect()
    gc.freeze()
    for layers in (min(each, case.layers) for each in PLANNED):
        model = load_model(str(saved(case, layers, folder)), case.shapes, case.batch, judge_of(CHIP, TARGET))
        trials = []
        for _ in range(PLAN_TRIALS):
            began = time.process_time()
            make_plan(Context(model.graph, model.constants, CHIP, TARGET), Streamed())
            trials.append(time.process_time() - began)
        spent.append(min(trials))
    gc.unfreeze()
    return spent[1] / spent[0]


def complaints(rows: Sequence[Row], cases: Sequence[Case]) -> Iterator[str]:
    """What is not reached, a line each; a row belongs to the case at its place."""
    for row, case in zip(rows, cases, strict=True):
        if row["per_second"] < case.goal_per_second:
            yield f"{case}: {row['per_second']:,.0f} items/s of {case.goal_per_second:,}"
        if case.reads_once and row["main_reads"] > MOST_MAIN_READS:
            yield f"{case}: reads {row['main_reads']:.2f} times its inputs and constants, at most {MOST_MAIN_READS}"
        if case.reads_once and row["weight_moves"] > MOST_WEIGHT_MOVES:
            yield f"{case}: a weight goes {row['weight_moves']:.2f} times to a core, at most {MOST_WEIGHT_MOVES:.0f}"
        if row["plan_ratio"] > MOST_PLAN_RATIO:
            yield f"{case}: planning takes {row['plan_ratio']:.1f} times that of 2 layers, at most {MOST_PLAN_RATIO}"
        if case.most_seconds is not None and row["seconds"] > case.most_seconds:
            yield f"{case}: {row['seconds']:.0f} s of the processor to compile, at most {case.most_seconds:.0f}"


def markdown(rows: Sequence[Row]) -> str:
    """The table."""
    headings = (
        "network", "batch", "level", "million cycles", "items/s", "goal", "a layer, thousand cycles", "DDR reads",
        "to a core", "planning", "compile, s",
    )  # fmt: skip
    lines = []
    for row in rows:
        name = row["network"] if row["length"] is None else f"{row['network']} {row['length']}"
        part = f" (from {row['compiled_layers']} of {row['layers']} layers)"
        lines.append((
            name + (part if row["compiled_layers"] < row["layers"] else ""),
            str(row["batch"]),
            row["level"],
            f"{row['cycles'] / 1e6:.2f}",
            f"{row['per_second']:,.0f}",
            f"{row['goal_per_second']:,}",
            "" if row["layer_cycles"] is None else f"{row['layer_cycles'] / 1e3:,.0f}",
            f"{row['main_reads']:.2f}",
            f"{row['weight_moves']:.2f}",
            f"{row['plan_ratio']:.1f}",
            f"{row['seconds']:.0f}",
        ))  # fmt: skip
    intro = "# Transformers at level auto\n\nBy `python benchmarks/transformers.py`, where the columns are explained."
    return f"{intro}\n\n{table(headings, lines)}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="append", choices=sorted({case.network for case in CASES}))
    parser.add_argument("--batch", action="append", type=int, choices=sorted({case.batch for case in CASES}))
    parser.add_argument("--level", default=AUTO, choices=LEVEL_CHOICES)
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--check", action="store_true")
    add_outputs(parser)
    options = parser.parse_args()
    cases = [
        case
        for case in CASES
        if case.network in (options.network or (case.network,)) and case.batch in (options.batch or (case.batch,))
    ]
    if not cases:
        parser.error("no network is measured at such a batch")
    rows: list[Row] = []
    with TemporaryDirectory() as folder:
        for case in cases:
            print(f"{case}", file=sys.stderr, flush=True)
            rows.append(measure(case, options.level, options.few, Path(folder)))
            keep(options, {"rows": rows})
    finish(options, {"rows": rows}, markdown(rows))
    found = list(complaints(rows, cases)) if options.check else []
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
