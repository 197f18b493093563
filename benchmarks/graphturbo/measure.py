"""The published variants of a network, compiled and run under the clock.

    Configuration --compile each level--> Compiled --clock of a chip--> Run --SerialSum--> the fit

What a variant is here:

    tvm       O0, each layer a kernel, every output in the DDR, the smaller batch
    astitch   memory-bound operators stitched, outputs in the DDR
    llb       O1, outputs in the LLB as far as they fit
    l1        O2, outputs in L1 where readers find them there
    ordering  O3, large groups in instances, depth first
    full      the same instructions at the same addresses, in the scheduler's order

The ablation is cumulative and its last step is instruction scheduling, so all but `full` run with every step awaited:
a core issues nothing before all that it issued is over. Kernels of a layer each are launched one by one, as a runtime
without larger kernels does; a program of O3 is launched once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.graphturbo.figures import Configuration
from codegen.neuralscale.kernels.recost import recosted
from codegen.neuralscale.target import TARGET
from dsa_sched.analysis.explanation import tensors_by_memory
from dsa_sched.frontend import Model, load_model
from dsa_sched.pipeline.stages import pixel_stages
from hw_models.chip import Chip
from isched.bounds.lower_bounds import stream_bounds
from isched.hazards.verify_program import verify_program
from isched.lowering.lower import lower_plan
from isched.lowering.tile_code import LowerContext
from isched.program.program import Program
from isched.program.timed_ops import timed_streams
from isched.scheduling.schedule import schedule_program
from isched.timing.cycle_model import time_streams
from isched.timing.timeline import Timeline
from isched.timing.utilisation import usage_by
from partitioner.context.plan_context import Context
from partitioner.ir.plan import Plan
from partitioner.ir.steps import RunStep
from partitioner.memory.memory_plan import lay_out
from partitioner.planners.registry import make_plan

__all__ = ["ALONE", "VARIANTS", "Compiled", "Run", "compiled", "matrix_by_stage", "on_chip", "run"]

VARIANTS: Mapping[str, str] = {
    "tvm": "O0",
    "astitch": "astitch",
    "llb": "O1",
    "l1": "O2",
    "ordering": "O3",
    "full": "O3",
}
"""Variant -> level."""

BEYOND = "beyond"
"""`full` at the addresses that this compiler gives out by itself: what lives in neighbouring layers has places
of its own, so that they can run side by side. Not published."""

ALONE = ("tvm", "astitch", "llb", "l1")
"""Variants whose kernels are launched one by one."""


@dataclass(frozen=True)
class Compiled:
    """One variant for one cluster. `kernels` are the run steps of the plan, `launches` those that the runtime starts
    one by one. `seconds` of the processor are from the ONNX file to the verified program, and to machine code where the
    paper says how long that takes."""

    configuration: Configuration
    variant: str
    batch: int
    program: Program
    chip: Chip
    kernels: int
    launches: int
    stages: Mapping[str, str]
    tensors: tuple[int, int, int]
    seconds: float

    @property
    def awaited(self) -> bool:
        return self.variant not in ("full", BEYOND)


def compiled(configuration: Configuration, chip: Chip, batches: Mapping[str, int]) -> Iterator[Compiled]:
    """The variants in `batches`, at these batches a cluster, for a chip; `full` only after `ordering`."""
    for variant, batch in batches.items():
        if variant == "full":
            continue
        start = time.process_time()
        model = load_model(configuration.network, {}, batch)
        ctx = Context(model.graph, model.constants, chip, TARGET)
        plan = make_plan(ctx, VARIANTS[variant])
        program = _lowered(plan, ctx, overlap=variant == "ordering")
        lowered = time.process_time() - start
        seconds = lowered + _rest(program, model, chip, variant in configuration.compile_seconds)
        kernels = sum(isinstance(step, RunStep) for step in plan.steps)
        launches = kernels if variant in ALONE else 1
        stages = pixel_stages(model.graph)
        tensors = _tensors(plan, ctx)
        first = Compiled(configuration, variant, batch, program, chip, kernels, launches, stages, tensors, seconds)
        yield first
        if variant == "ordering" and "full" in batches:
            start = time.process_time()
            program = schedule_program(program, chip, TARGET)
            seconds = lowered + time.process_time() - start
            seconds += _rest(program, model, chip, "full" in configuration.compile_seconds)
            yield Compiled(configuration, "full", batch, program, chip, kernels, 1, stages, tensors, seconds)
            program = schedule_program(_lowered(plan, ctx, overlap=True, apart=True), chip, TARGET)
            yield Compiled(configuration, BEYOND, batch, program, chip, kernels, 1, stages, tensors, 0.0)


def _lowered(plan: Plan, ctx: LowerContext, overlap: bool, apart: bool = False) -> Program:
    """Addresses by liveness alone, as published; with `apart` as this compiler gives them out by itself."""
    base = TARGET.data_base_bytes
    return lower_plan(plan, ctx, base, False, overlap, apart=apart)


def _rest(program: Program, model: Model, chip: Chip, emit: bool) -> float:
    """Processor seconds that checking a program takes and, with `emit`, writing its machine code."""
    start = time.process_time()
    verify_program(program, chip)
    if emit:
        TARGET.emit(program, model.graph, model.constants)
    return time.process_time() - start


def _tensors(plan: Plan, ctx: LowerContext) -> tuple[int, int, int]:
    """Outputs of layers in DDR, LLB and L1, each instance's counted."""
    layout = lay_out(plan, ctx)
    found = tensors_by_memory(plan, layout)
    return found.get("DDR", 0), found.get("LLB", 0), found.get("L1", 0)


def on_chip(made: Compiled, chip: Chip, reorder: bool) -> Program:
    """The same plan and addresses at the costs of another chip; with `reorder`, what is scheduled is scheduled anew."""
    program = made.program if chip == made.chip else recosted(made.program, chip)
    return schedule_program(program, chip, TARGET) if reorder and chip != made.chip and not made.awaited else program


@dataclass(frozen=True)
class Run:
    """A program under the clock, all with launches: `cycles`, those that no order can go below, and those of the
    busiest engine, link or memory alone."""

    program: Program
    timeline: Timeline
    items: int
    cycles: float
    bound_cycles: float
    engine_cycles: float

    def per_second(self, chip: Chip) -> float:
        """Items a second on all clusters."""
        return self.items * chip.clusters * chip.clock_hz / self.cycles


def run(made: Compiled, program: Program, chip: Chip, awaited: bool | None = None) -> Run:
    """A compiled variant's program, made for `chip`, under its clock; `awaited` is the variant's own if not said."""
    streams = timed_streams(program, chip, TARGET.issue_costs(program))
    timeline = time_streams(streams, chip, awaited=made.awaited if awaited is None else awaited)
    further = (made.launches - 1) * chip.assumed.launch_cycles
    bounds = stream_bounds(streams, chip)
    naive = max(bounds.engine_cycles, bounds.bandwidth_cycles)
    return Run(program, timeline, made.batch, timeline.cycles + further, bounds.cycles + further, naive + further)


def matrix_by_stage(made: Compiled, timeline: Timeline) -> dict[str, float]:
    """Stage -> percent of its time in which the cores' matrix engines work."""
    return {usage.part: 100 * usage.utilisation("matrix") for usage in usage_by(timeline, made.stages)}
