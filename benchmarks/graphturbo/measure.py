"""The published variants of a network, compiled and run under the clock.

    Configuration, variant, batch --compile--> Compiled --clock of a setting--> Run

What a variant is here:

    tvm       O0, each layer a kernel, every output in the DDR, the smaller batch
    astitch   memory-bound operators stitched, outputs in the DDR
    llb       O1, outputs in the LLB as far as they fit
    l1        O2, outputs in L1 where readers find them there
    ordering  O3, large groups in instances, depth first
    full      the same instructions at the same addresses, in the scheduler's order
    beyond    as full, at the addresses that this compiler gives out by itself. Not published
    auto      what this compiler makes where no level is said. Not published

The ablation is cumulative and its last step is instruction scheduling, so all before `full` run with each step awaited:
a core issues nothing before all that it issued is over. Kernels of a layer each are launched one by one, as a runtime
without larger kernels does; a program of O3 is launched once, one of auto once a pass.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx

from benchmarks.graphturbo.fetching import fetched
from benchmarks.graphturbo.figures import Configuration, Counts
from benchmarks.graphturbo.settings import LIMITS, PIN_DDR_BYTES, Setting, at_setting, chip_of, favourable
from benchmarks.graphturbo.sums import Sums, sums_of
from benchmarks.lab.programs import lower_plan, schedule_program
from codegen.neuralscale.target import TARGET
from codegen.target import TileTarget
from dsa_sched.analysis.explanation import tensors_by_memory
from dsa_sched.analysis.network_stages import pixel_stages
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.targets import judge_of
from dsa_sched.zoo.drawn_networks import drawn_model
from hw_models.chip import Chip
from isched.bounds.lower_bounds import stream_bounds
from isched.hazards.verify_program import verify_program
from isched.program.program import Program
from isched.program.timed_ops import CoreIssue, timed_streams
from isched.timing.cycle_model import time_streams
from isched.timing.timeline import Timeline
from isched.timing.utilisation import usage_by
from partitioner.context.plan_context import Context
from partitioner.cost.roofline import network_floors
from partitioner.ir.plan import Plan
from partitioner.ir.steps import RunStep
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.levels import AUTO, Auto, planner_of
from partitioner.planners.registry import make_plan

__all__ = ["ALONE", "AWAITED", "BEYOND", "VARIANTS", "Compiled", "Run", "compiled", "run", "source_of"]

BEYOND = "beyond"

VARIANTS: Mapping[str, str] = {
    "tvm": "O0",
    "astitch": "astitch",
    "llb": "O1",
    "l1": "O2",
    "ordering": "O3",
    "full": "O3",
    BEYOND: "O3",
    AUTO: AUTO,
}
"""Variant -> level."""

ALONE = ("tvm", "astitch", "llb", "l1")
"""Variants whose kernels are launched one by one."""

AWAITED = (*ALONE, "ordering")
"""Variants without instruction scheduling."""


@dataclass(frozen=True)
class Compiled:
    """One variant for one cluster, made for a chip as its file has it.

    `launches` of all `passes` are those that the runtime starts; `tensors` are outputs of layers in DDR, LLB and L1;
    `seconds` of the processor are from the ONNX file to the verified program, and to machine code where the paper says
    how long that takes. `floors` are cycles that no plan of the network can go below, by bytes a cycle of the DDR.
    """

    variant: str
    batch: int
    program: Program
    chip: Chip
    level: str
    passes: int
    launches: int
    stages: Mapping[str, str]
    tensors: Counts
    seconds: float
    floors: Mapping[float, float]

    @property
    def awaited(self) -> bool:
        return self.variant in AWAITED

    @property
    def instructions(self) -> int:
        return sum(len(stream.instrs) for stream in self.program.streams)

    @cached_property
    def issues(self) -> tuple[CoreIssue, ...]:
        """Scalar instructions of the program as it was made; other costs of its other instructions change none."""
        return TARGET.issue_costs(self.program, self.chip)

    @cached_property
    def sums(self) -> Sums:
        """Of the run with every step awaited, whatever the variant."""
        streams = timed_streams(self.program, self.chip, self.issues)
        return self.sums_along(time_streams(streams, self.chip, awaited=True))

    def sums_along(self, timeline: Timeline) -> Sums:
        """Of such a run that was made already."""
        home = favourable(self.chip)
        misses = [cycles for cycles in LIMITS["miss_cycles"].values if cycles != home.miss_cycles]
        settings = {cycles: home.changed({"miss_cycles": cycles}) for cycles in misses}
        further = {n: run(self, there, awaited=True).timeline.cycles for n, there in settings.items()}
        fetching = {n: cycles - timeline.cycles for n, cycles in further.items()} | {home.miss_cycles: 0.0}
        return sums_of(timeline, self.program, self.chip, self.batch, self.launches, self.passes, fetching)


def source_of(configuration: Configuration, layers: int | None, folder: Path) -> str:
    """The network, whole or with fewer layers: a name of the zoo or a file made in the folder."""
    if layers is None or configuration.layers is None:
        return configuration.network
    file = folder / f"{configuration.network}-{layers}.onnx"
    if not file.exists():
        onnx.save(drawn_model(configuration.network, configuration.layers.topology(layers)), file)
    return str(file)


def compiled(configuration: Configuration, variant: str, batch: int, source: str, chip: Chip) -> Compiled:
    """Compile a variant. Raises UserError where there is no such program."""
    start = time.process_time()
    shapes = configuration.shapes(batch)
    if variant == AUTO:
        return _auto(source, shapes, batch, chip, start)
    model = load_model(source, shapes, batch, judge_of(chip, TARGET))
    ctx = Context(model.graph, model.constants, chip, TARGET)
    plan = make_plan(ctx, planner_of(VARIANTS[variant]))
    program = lower_plan(plan, ctx, TARGET.data_base_bytes, False, variant not in ALONE, apart=variant == BEYOND)
    if variant not in AWAITED:
        program = schedule_program(program, chip, TARGET)
    verify_program(program, chip)
    if variant in configuration.compile_seconds:
        TARGET.emit_rolled(program, model.graph, model.constants)
    seconds = time.process_time() - start
    kernels = sum(isinstance(step, RunStep) for step in plan.steps)
    return Compiled(
        variant,
        batch,
        program,
        chip,
        plan.level,
        1,
        kernels if variant in ALONE else 1,
        pixel_stages(model.graph),
        _tensors(plan, ctx),
        seconds,
        _floors(model, chip),
    )


def _auto(source: str, shapes: Mapping[str, tuple[int, ...]], batch: int, chip: Chip, start: float) -> Compiled:
    options = CompileOptions(Auto(), batch, tuple(shapes.items()), schedule=True)
    (made,) = compile_clusters(source, chip, options)
    seconds = time.process_time() - start
    model = made.model
    found = tensors_by_memory(made.plan, made.layout)
    stages = pixel_stages(model.graph)
    if made.plan.batch_per_cluster != batch:
        model = load_model(source, shapes, batch, judge_of(chip, TARGET))
    return Compiled(
        AUTO,
        batch,
        made.program,
        chip,
        made.plan.level,
        made.passes,
        made.passes,
        stages,
        (found.get("DDR", 0), found.get("LLB", 0), found.get("L1", 0)),
        seconds,
        _floors(model, chip),
    )


def _tensors(plan: Plan, ctx: Context[TileTarget]) -> Counts:
    found = tensors_by_memory(plan, lay_out(plan, ctx))
    return found.get("DDR", 0), found.get("LLB", 0), found.get("L1", 0)


def _floors(model: Model, chip: Chip) -> Mapping[float, float]:
    home = favourable(chip)
    rates = (home.ddr_bytes, *PIN_DDR_BYTES)
    chips = {rate: chip_of(home.changed({"ddr_bytes": rate}), chip) for rate in rates}
    return {rate: max(floor.cycles for floor in network_floors(model.graph, there)) for rate, there in chips.items()}


@dataclass(frozen=True)
class Run:
    """A program under the clock, with the scalar costs `issues`: `cycles` of all passes, launches included, and what
    its engines did in one."""

    made: Compiled
    timeline: Timeline
    program: Program
    chip: Chip
    issues: tuple[CoreIssue, ...]

    @property
    def cycles(self) -> float:
        return self.made.passes * self.timeline.cycles + self._further

    @property
    def _further(self) -> float:
        return (self.made.launches - self.made.passes) * self.chip.assumed.launch_cycles

    @property
    def busy_core_cycles(self) -> dict[str, float]:
        """By kind of engine, and `all` that there are after launches, in all passes."""
        kinds = self.timeline.engine_kinds
        found = {"matrix": 0.0, "vector": 0.0}
        for unit, cycles in self.timeline.busy_cycles.items():
            if kinds.get(unit) in found:
                found[kinds[unit]] += cycles * self.made.passes
        spent = self.timeline.cycles - self.timeline.launch_cycles
        return {**found, "all": self.made.passes * spent * len(self.timeline.cores)}

    @property
    def matrix_percent(self) -> dict[str, float]:
        """Stage -> percent of its time in which the cores' matrix engines work."""
        usages = usage_by(self.timeline, self.made.stages)
        return {usage.part: 100 * usage.utilisation("matrix") for usage in usages}

    def bounds(self) -> tuple[float, float]:
        """Cycles that no order of the instructions can go below, and those of the busiest engine, link or memory alone,
        launches included."""
        found = stream_bounds(timed_streams(self.program, self.chip, self.issues), self.chip)
        alone = max(found.engine_cycles, found.bandwidth_cycles)
        return self.made.passes * found.cycles + self._further, self.made.passes * alone + self._further


def run(made: Compiled, setting: Setting, reorder: bool = False, awaited: bool | None = None) -> Run:
    """Under the clock at a setting; with `reorder` what is scheduled is scheduled anew for it. `awaited` is the
    variant's own if not said."""
    chip, program, issues = made.chip, made.program, made.issues
    if setting != favourable(made.chip):
        chip = chip_of(setting, made.chip)
        program = at_setting(program, setting, made.chip)
        if reorder and not made.awaited:
            program = schedule_program(program, chip, TARGET)
            issues = TARGET.issue_costs(program, chip)
    if setting.miss_cycles and chip.instruction_cache is not None:
        issues = fetched(program, issues, chip.instruction_cache)
    streams = timed_streams(program, chip, issues)
    timeline = time_streams(streams, chip, awaited=made.awaited if awaited is None else awaited)
    return Run(made, timeline, program, chip, issues)
