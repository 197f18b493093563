"""Dividing a batch: among the clusters of a chip, and each cluster's share into passes of one program.

    batch --clusters--> shares --passes--> one program a cluster, run again and again

Without passes each share is one run. `auto` asks the cost model which batch a pass is best; a number says it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Literal, TypeVar

from codegen.target import GroupTarget, TileTarget
from dsa_sched.frontend import Model, load_model
from dsa_sched.frontend.network.refusals import Judge
from dsa_sched.pipeline.auto_batch import compile_fastest_batch
from dsa_sched.pipeline.driver import Planned, PlannedKernels, compile_model, compile_plan, plan_model
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.targets import judge_of, planning_target, require_able, require_tiles, settled, target_of
from hw_models.chip import Chip
from hw_models.errors import ModelError, PlanError
from hw_models.loading import load_chip
from isched.program.target import Timeable
from partitioner.context.plan_context import Context
from partitioner.cost.cost_model import PlanCost, plan_cycles
from partitioner.cost.micro_batching import Batching, candidate_batches, choose_batch, pass_count, shares_of
from partitioner.ir.batch_independence import batch_problem
from partitioner.ir.target import PlanTarget
from partitioner.planners.levels import AUTO, O0, Auto, Planner
from partitioner.planners.registry import make_plan

__all__ = ["PerPass", "compile_clusters", "plan_clusters"]

PerPass = int | Literal["auto"] | None
"""Items of one pass: a number, the cost model's choice, or the whole share of a cluster."""

Progress = Callable[[str], None]

TargetT = TypeVar("TargetT", bound=PlanTarget)


def compile_clusters(
    source: str | Path,
    chip: str | Path | Chip,
    clusters: int = 1,
    options: CompileOptions | None = None,
    progress: Progress = lambda _step: None,
    per_pass: PerPass = None,
) -> tuple[Compilation, ...]:
    """Compile for several clusters, which divide `options.batch` among them; `gather_artifact` makes one of the parts.

    The first clusters take one row more where the batch does not divide evenly. Raises as `compile_model` does, and
    ModelError for a batch that cannot be divided so.
    """
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    options = options or CompileOptions()
    shares = _shares(described, clusters, options, per_pass)
    target = target_of(described)
    require_able(options, target)
    if _searched(options, per_pass) and isinstance(target, Timeable) and not isinstance(target, GroupTarget):
        return _compile_fastest(source, described, target, settled(options, target), shares, progress)
    if options.batch is None or (clusters == 1 and per_pass is None):
        return (compile_model(source, described, options, progress),)
    if per_pass == "auto":
        tiled = require_tiles(target, "--per-pass auto")
        planner = _require_planner(options)
        return _compile_chosen(_Search(source, described, tiled, options, planner, shares, progress))
    batch = per_pass or shares[0]
    _require_apart(source, options, batch, shares, judge_of(described, target), progress)
    sizes = shares if per_pass is None or pass_count(shares[0], batch) == 1 else (batch,) * clusters
    by_size = {n: compile_model(source, described, replace(options, batch=n), progress) for n in sorted(set(sizes))}
    return tuple(
        by_size[size].on_cluster(cluster, share)
        for cluster, (size, share) in enumerate(zip(sizes, shares, strict=True))
    )


def _require_planner(options: CompileOptions) -> Planner:
    if isinstance(options.planner, Auto):
        needs = "a target whose programs the cycle model can time, or a level by its name"
        raise ModelError("--per-pass auto", needs=needs, has=f"--level {AUTO}")
    return options.planner


def _searched(options: CompileOptions, per_pass: PerPass) -> bool:
    """Whether level auto also says what a pass is."""
    return isinstance(options.planner, Auto) and options.batch is not None and not isinstance(per_pass, int)


def _compile_fastest(
    source: str | Path,
    chip: Chip,
    target: TileTarget,
    options: CompileOptions,
    shares: tuple[int, ...],
    progress: Progress,
) -> tuple[Compilation, ...]:
    """Level auto: also what a pass is, by the cycle model."""
    if len(shares) > 1:
        _require_apart(source, options, shares[0], shares, judge_of(chip, target), progress)
    first = compile_fastest_batch(source, chip, target, options, shares[0], progress)
    batch = first.plan.batch_per_cluster
    by_size = {batch: first}
    sizes = shares if batch == shares[0] else (batch,) * len(shares)
    for size in set(sizes) - {batch}:
        by_size[size] = compile_model(source, chip, replace(options, batch=size), progress)
    rest = [by_size[size].on_cluster(n, share) for n, (size, share) in enumerate(zip(sizes, shares, strict=True)) if n]
    return (first, *rest)


def plan_clusters(
    source: str | Path,
    chip: Chip,
    clusters: int,
    options: CompileOptions,
    progress: Progress = lambda _step: None,
    per_pass: PerPass = None,
) -> Planned[PlanTarget] | PlannedKernels:
    """The plan of one pass on the cluster with the largest share. A chip without a code generator will do."""
    shares = _shares(chip, clusters, options, per_pass)
    target = planning_target(chip)
    if _searched(options, per_pass) and isinstance(target, TileTarget) and isinstance(target, Timeable):
        require_able(options, target)
        made = _compile_fastest(source, chip, target, settled(options, target), shares, progress)[0]
        model, context = made.model, Context(made.model.graph, made.model.constants, chip, target)
        return Planned(model, context, made.plan, made.layout.options)
    if per_pass == "auto":
        tiled: PlanTarget = require_tiles(target, "--per-pass auto")
        search = _Search(source, chip, tiled, options, _require_planner(options), shares, progress)
        return search.planned(search.choose())
    batch = options.batch and (per_pass or shares[0])
    if batch is not None:
        _require_apart(source, options, batch, shares, judge_of(chip, target), progress)
    return plan_model(source, chip, replace(options, batch=batch), progress)


def _shares(chip: Chip, clusters: int, options: CompileOptions, per_pass: PerPass) -> tuple[int, ...]:
    """Items of each cluster. Raises ModelError naming the option that cannot be."""
    batch = options.batch
    if not 1 <= clusters <= chip.clusters:
        raise ModelError("--clusters", needs=f"1 to {chip.clusters}, as {chip.name} has", has=str(clusters))
    if clusters > 1 and (batch is None or batch < clusters):
        raise ModelError("--clusters", needs=f"a --batch of at least {clusters} to divide", has=str(batch or "none"))
    if per_pass is not None and batch is None:
        raise ModelError("--per-pass", needs="a --batch to divide into micro-batches", has="none")
    shares = shares_of(batch or 1, clusters)
    if isinstance(per_pass, int) and not 1 <= per_pass <= shares[0]:
        needs = f"1 to {shares[0]}, what a cluster has of the batch, or auto"
        raise ModelError("--per-pass", needs=needs, has=str(per_pass))
    return shares


def _require_apart(
    source: str | Path,
    options: CompileOptions,
    batch: int,
    shares: tuple[int, ...],
    judge: Judge,
    progress: Progress,
) -> None:
    """Refuse to divide a batch whose items meet; that can be seen in a graph of two items or more."""
    if len(shares) > 1 or pass_count(shares[0], batch) > 1:
        progress("checking that items of the batch stay apart")
        loaded = load_model(source, dict(options.shapes), max(2, batch), judge, dict(options.bindings))
        _refuse_dependent_items(loaded, options)


def _refuse_dependent_items(model: Model, options: CompileOptions) -> None:
    if problem := batch_problem(model.graph, model.constants):
        raise ModelError(
            f"model {model.graph.name}",
            needs="inputs and outputs whose outermost axis counts items that are computed by themselves",
            has=problem,
            change=f"compile the batch of {options.batch} as one, without --clusters and --per-pass",
        )


@dataclass
class _Search(Generic[TargetT]):
    """Plans for all candidates and what they cost; of models, plans and their contexts only the best is kept."""

    source: str | Path
    chip: Chip
    target: TargetT
    options: CompileOptions
    planner: Planner
    shares: tuple[int, ...]
    progress: Progress
    costs: dict[int, PlanCost | str] = field(default_factory=dict)
    errors: dict[int, PlanError] = field(default_factory=dict)
    base_cycles_per_item: float | None = None
    kept: tuple[int, Planned[TargetT]] | None = None

    def choose(self) -> Batching:
        """The best of what was not refused yet; raises the refusal of the smallest batch where nothing is left."""
        if not self.costs:
            self._try_all()
        if len(self.errors) == len(self.costs):
            raise self.errors[min(self.errors)]
        return choose_batch(self.costs, sum(self.shares), len(self.shares), self.base_cycles_per_item)

    def refuse(self, batch: int, error: PlanError) -> None:
        """A candidate that has a plan but no program."""
        self.errors[batch] = error
        self.costs[batch] = _one_line(error)

    def planned(self, batching: Batching) -> Planned[TargetT]:
        """Model and plan of one pass, with the decisions about the batch in front."""
        if self.kept is None or self.kept[0] != batching.batch_per_pass:
            self.progress(f"batch {batching.batch_per_pass} a pass")
            model = self._load(batching.batch_per_pass)
            ctx = self._context(model)
            self.kept = (batching.batch_per_pass, Planned(model, ctx, make_plan(ctx, self.planner)))
        found = self.kept[1]
        return replace(found, plan=replace(found.plan, decisions=(*batching.decisions, *found.plan.decisions)))

    def _try_all(self) -> None:
        candidates = candidate_batches(self.shares[0])
        if candidates[-1] == 1 and len(self.shares) > 1:
            _refuse_dependent_items(self._load(2), self.options)
        best: tuple[float, int] | None = None
        checked = False
        for number, batch in enumerate(candidates, 1):
            self.progress(f"trying batch {batch} a pass ({number} of {len(candidates)})")
            model = self._load(batch)
            if batch > 1 and not checked:
                _refuse_dependent_items(model, self.options)
                checked = True
            ctx = self._context(model)
            try:
                plan = make_plan(ctx, self.planner)
                cost = self.costs[batch] = plan_cycles(plan, ctx)
            except PlanError as error:
                self.refuse(batch, error)
                continue
            if self.base_cycles_per_item is None:
                self.base_cycles_per_item = self._base(ctx, cost) / batch
            rank = (pass_count(self.shares[0], batch) * cost.cycles, -batch)
            if best is None or rank < best:
                best, self.kept = rank, (batch, Planned(model, ctx, plan))

    def _base(self, ctx: Context[TargetT], cost: PlanCost) -> float:
        """Cycles of level O0 for the same graph."""
        return cost.cycles if self.planner == O0() else plan_cycles(make_plan(ctx, O0()), ctx).cycles

    def _load(self, batch: int) -> Model:
        options, judge = self.options, judge_of(self.chip, self.target)
        return load_model(self.source, dict(options.shapes), batch, judge, dict(options.bindings))

    def _context(self, model: Model) -> Context[TargetT]:
        return Context(model.graph, model.constants, self.chip, self.target)


def _compile_chosen(search: _Search[TileTarget]) -> tuple[Compilation, ...]:
    """The best candidate that becomes machine code: what cannot be lowered or emitted gives way to the next one."""
    while True:
        batching = search.choose()
        planned = search.planned(batching)
        batch, shares = batching.batch_per_pass, search.shares
        sizes = shares if batching.passes == 1 else (batch,) * len(shares)
        try:
            options = replace(search.options, batch=batch)
            made = {batch: compile_plan(planned, options, search.progress)}
            for size in set(sizes) - set(made):
                made[size] = compile_model(search.source, search.chip, replace(options, batch=size), search.progress)
            first = replace(made[batch], items=shares[0])
            _ = first.files
        except PlanError as error:
            search.progress(f"batch {batch} a pass has no program: {_one_line(error)}")
            search.refuse(batch, error)
            continue
        rest = [
            made[size].on_cluster(cluster, share)
            for cluster, (size, share) in enumerate(zip(sizes, shares, strict=True))
        ]
        return (first, *rest[1:])


def _one_line(error: PlanError) -> str:
    return " ".join(error.line.split())
