"""A plan with its reasons, as data: the summary, a row per group, the order of instances, the decisions.

    artifact           --its plan, laid out as it was, timed--> Explanation --report.explain--> text or JSON
    model, chip, level --plan, lay out, count-->                Explanation without times

Of an artifact, times are those of its machine code by the cycle model. A chip without a code generator is explained by
the costs in its file alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dsa_sched.analysis.artifact_timing import time_artifact
from dsa_sched.analysis.explanation_data import Explanation, GroupFacts, LocalUse, MeasuredRun
from dsa_sched.analysis.kernel_explanation import KernelExplanation, explain_kernels
from dsa_sched.analysis.letters import letter
from dsa_sched.analysis.measured_run import measured_run
from dsa_sched.artifact.format import Artifact
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.pipeline.rebuild import planned_again
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from dsa_sched.stages.targets import require_able, require_tiles, with_defaults
from dsa_sched.stages.tile_stages import laid_out
from hw_models.chip import Chip
from hw_models.memory_parts import aligned, part_bytes
from isched.program.target import Timeable
from partitioner.context.plan_context import Context, PlanContext
from partitioner.cost.cost_model import cost_of_events
from partitioner.cost.roofline import compulsory_bytes, network_floors, plan_floors
from partitioner.cost.traffic import Traffic, TrafficPart, traffic_of
from partitioner.expansion.expansion import expand
from partitioner.ir.decisions import Decision
from partitioner.ir.graph import Graph
from partitioner.ir.plan import Plan
from partitioner.ir.regions import box_size
from partitioner.ir.steps import MoveStep, RunStep, ViewStep
from partitioner.memory.memory_plan_types import FOR_SCHEDULING, PLAIN, LayerLayout, Layout, LayoutOptions
from partitioner.tiling.buffer_aliasing import Residents
from partitioner.tiling.tiling import buffer_sizes, demand_bytes, piece_tiles


@dataclass(frozen=True)
class Explained:
    """An explanation with all that it was made of; `dsa_sched.analysis.group_detail` asks it about one group."""

    explanation: Explanation
    ctx: PlanContext
    plan: Plan
    layout: Layout
    traffic: Traffic

    @property
    def graph(self) -> Graph:
        return self.ctx.graph

    @property
    def chip(self) -> Chip:
        return self.ctx.chip


def explain_artifact(
    artifact: Artifact,
    progress: Callable[[str], None] = lambda _step: None,
    measured: MeasuredRun | None = None,
) -> Explained | KernelExplanation:
    """Explain what was compiled: one pass of the first program, by its own plan and layout, with the times of its
    machine code, which is timed unless they are given as `measured`. Nothing is planned again.

    Raises TargetError for an artifact that does not tell what it was made of.
    """
    planned = planned_again(artifact)
    if isinstance(planned, PlannedKernels):
        kernels = explain_kernels(planned.plan, planned.context)
        return replace(kernels, decisions=(*_before(artifact), *kernels.decisions))
    progress("laying out")
    explained = explain_plan(planned.plan, planned.context, planned.layout_options or PLAIN)
    if measured is None and isinstance(planned.context.target, Timeable):
        progress("timing")
        run = time_artifact(artifact, artifact.chip, planned.context.target, artifact.manifest.model)
        measured = measured_run(run, planned.plan)
    found = explained.explanation
    told = (*_before(artifact), *found.decisions)
    return replace(explained, explanation=replace(found, decisions=told, measured=measured))


def explain_made(made: Compilation) -> Explanation:
    """Explain a program that was just compiled as `explain_artifact` would, without times and without the decisions of
    the frontend. The target must be one of in-order cores."""
    target = require_tiles(made.target, made.model.graph.name)
    ctx = Context(made.model.graph, made.model.constants, made.chip, target)
    return _explained(made.plan, ctx, made.layout).explanation


def with_measured(found: Explanation, artifact: Artifact, measured: MeasuredRun | None) -> Explanation:
    """What `explain_made` found, completed with the times of the artifact and the decisions of the frontend."""
    return replace(found, decisions=(*_before(artifact), *found.decisions), measured=measured)


def _before(artifact: Artifact) -> Iterator[Decision]:
    """Decisions of the frontend."""
    return (Decision(each.subject, each.verdict, each.reason) for each in artifact.origin.decisions)


def explain_model(
    source: str | Path,
    chip: str | Path | Chip,
    options: CompileOptions,
    progress: Callable[[str], None] = lambda _step: None,
) -> Explained | KernelExplanation:
    """Plan a model for a chip and explain the plan by estimates alone: one pass of the cluster with the largest share
    of the batch.

    Raises ModelError, ChipError, TargetError, PlanError or DoesNotFit.
    """
    planned = plan_model(source, chip, options, progress)
    if isinstance(planned, PlannedKernels):
        require_able(options, planned.context.target)
        kernels = explain_kernels(planned.plan, planned.context)
        return replace(kernels, decisions=(*planned.model.decisions, *kernels.decisions))
    progress("laying out")
    schedule = with_defaults(options, planned.context.target).schedule
    as_made = planned.layout_options or (FOR_SCHEDULING if schedule else PLAIN)
    explained = explain_plan(planned.plan, planned.context, as_made)
    found = (*planned.model.decisions, *explained.explanation.decisions)
    return replace(explained, explanation=replace(explained.explanation, decisions=found))


def explain_plan(plan: Plan, ctx: PlanContext, options: LayoutOptions = PLAIN) -> Explained:
    """Explain a plan as it is laid out with these options. Raises PlanError or DoesNotFit where it cannot
    be laid out."""
    return _explained(plan, ctx, laid_out(plan, ctx, options))


def _explained(plan: Plan, ctx: PlanContext, layout: Layout) -> Explained:
    graph, chip = ctx.graph, ctx.chip
    events = tuple(expand(layout, ctx))
    traffic, cost = traffic_of(plan, layout, ctx, events), cost_of_events(plan, layout, ctx, events)
    groups = tuple(_groups(plan, layout, traffic, ctx))
    explanation = Explanation(
        model=graph.name,
        chip=chip.name,
        level=plan.level,
        batch_per_cluster=plan.batch_per_cluster,
        operators=len(graph.ops),
        kernels=sum(isinstance(step, RunStep) for step in plan.steps),
        groups=groups,
        order=tuple(step for step in plan.steps if not isinstance(step, ViewStep)),
        tensors=tensors_by_memory(plan, layout),
        peak_bytes=dict(layout.peaks),
        capacity_bytes={name: _capacity(layout, chip, name) for name in (*layout.peaks, *ctx.roles.accumulators)},
        moved_bytes={way_text(way): size for way, size in traffic.by_way.items()},
        compulsory_bytes=sum(compulsory_bytes(graph)),
        main_bytes=traffic.main_bytes(),
        redundant_bytes=traffic.redundant_bytes,
        pinned=plan.pinned,
        recompute_share=traffic.recompute_share,
        network_floors=network_floors(graph, chip),
        plan_floors=plan_floors(traffic, chip),
        serial_cycles=cost.serial_cycles - cost.launch_cycles,
        decisions=plan.decisions,
    )
    return Explained(explanation, ctx, plan, layout, traffic)


def way_text(way: tuple[str, str]) -> str:
    """`DDR->LLB`."""
    return "->".join(way)


def _capacity(layout: Layout, chip: Chip, memory: str) -> int:
    return part_bytes(chip, memory, layout.local.part if memory == layout.local.memory else "")


def _groups(plan: Plan, layout: Layout, traffic: Traffic, ctx: PlanContext) -> Iterator[GroupFacts]:
    """Groups in the order in which they first run; views compute nothing and have no row."""
    graph = ctx.graph
    steps: dict[str, list[tuple[RunStep, tuple[LayerLayout, ...]]]] = {}
    for step, laid in zip(plan.steps, layout.steps, strict=True):
        if isinstance(step, RunStep) and isinstance(laid, tuple):
            steps.setdefault(step.group, []).append((step, laid))
    parts: dict[str, list[TrafficPart]] = {}
    for part in traffic.parts:
        parts.setdefault(part.group, []).append(part)
    for number, (name, runs) in enumerate(steps.items()):
        group, own = plan.group_by_name[name], parts[name]
        uses = [_use(entry, layout, ctx) for _, laid in runs for entry in laid]
        names = tuple(layer.name for layer in group.layers)
        yield GroupFacts(
            name=name,
            letter=letter(number),
            layers=names,
            operators=tuple(graph.op_by_name[op].kind for layer in group.layers for op in layer.ops),
            instances=group.split.instances,
            cuts=group.split.cuts,
            pieces=tuple(dict.fromkeys(step.binding.pieces for step, _ in runs)),
            cores=max(len(step.binding.cores) for step, _ in runs),
            scopes=dict(Counter(step.scope for step, _ in runs)),
            exchanges=tuple(exchange.tensor for exchange in group.exchanges),
            local=max((use for use, _ in uses), key=lambda use: use.total_bytes, default=LocalUse(0, 0, 0, "")),
            accumulator_bytes={
                memory: max((tiles.get((memory, ""), 0) for _, tiles in uses), default=0)
                for memory in ctx.roles.accumulators
            },
            moved_bytes={way_text(way): size for way, size in traffic.ways(own).items()},
            macs=sum(part.macs for part in own),
            recompute_share=traffic.recompute_of(own),
            floors=plan_floors(traffic, ctx.chip, own),
        )


def _use(entry: LayerLayout, layout: Layout, ctx: PlanContext) -> tuple[LocalUse, Mapping[tuple[str, str], int]]:
    """Space that a layer takes in the local memory, and its tile buffers by memory and part. The core with the largest
    box in the first round represents all.
    """
    graph, chip = ctx.graph, ctx.chip
    memory, part = layout.local.memory, layout.local.part
    this_round = entry.rounds[0][0]
    number = max(range(len(this_round.boxes)), key=lambda n: box_size(this_round.boxes[n]))
    here = entry.residents[number]
    sizes: dict[int, int] = {}
    for name, place in here.items():
        size = aligned(chip, memory, box_size(place.box) * graph.by_name[name].item_bytes)
        sizes[place.offset_bytes] = max(sizes.get(place.offset_bytes, 0), size)
    residents = Residents({name: place.box for name, place in here.items()}, part)
    tiles = piece_tiles(ctx, entry.layer, this_round.boxes[number], residents, entry.free_regions)
    demand = demand_bytes(chip, buffer_sizes(used.spare for used in tiles.fits))
    needed = demand.get((memory, part), 0)
    room = entry.free_regions.get((memory, part), (0, 0))[1]
    return LocalUse(sum(sizes.values()), min(needed, room) if room else needed, room, entry.layer.name), demand


def tensors_by_memory(plan: Plan, layout: Layout) -> dict[str, int]:
    """Outputs of layers, counted once per instance, by the memory in which they lie; results of gathers count too."""
    count: Counter[str] = Counter()
    for step, laid in zip(plan.steps, layout.steps, strict=True):
        if isinstance(step, MoveStep):
            count[step.scope] += 1
        if isinstance(step, RunStep) and isinstance(laid, tuple):
            scopes = {**dict(step.exports), plan.group_by_name[step.group].output: step.scope}
            for entry in laid:
                count[scopes.get(entry.layer.output, layout.local.memory)] += 1
    return dict(count)
