"""Parts on one cluster of a chip of hw_models: our own compiler, its timing model, its simulator.

    Part --compile_graph--> Compilation --time_artifact--> seconds; its artifact + feeds --simulator--> values

The compiler is imported inside functions: that takes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import numpy as np
import onnx

from codegen.target_registry import ENTRY_POINT_GROUP as TARGET_GROUP
from dsa_sched.devices.device import Array, CompiledPart, Refused
from dsa_sched.io.entry_point_groups import OPERATORS
from dsa_sched.io.source_hash import source_hash
from dsa_sched.placement.model.from_onnx import TaskPart
from dsa_sched.placement.model.pricing import chip_launch_us
from hw_models.chip import Chip
from hw_models.errors import ModelError, TargetError, UserError
from hw_models.loading import load_chip
from partitioner.planners.levels import DEFAULT_LEVEL, Auto, planner_or_auto

if TYPE_CHECKING:
    from codegen.generic import GenericTarget
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.frontend import Model
    from dsa_sched.stages.compilation import Compilation, CompileOptions

COMPILER = (
    "hw_models",
    "partitioner",
    "isched",
    "codegen",
    *(f"dsa_sched.{folder}" for folder in ("frontend", "stages", "search", "pipeline", "analysis", "devices")),
)
"""Packages that decide how long a part takes on a chip."""


@dataclass(frozen=True)
class ChipPart:
    """A part with its time, the chip's own launch included, and the files that run it, which are made only when they
    are asked for if the chip is a GPU. A chip without a code generator has none."""

    part: TaskPart
    seconds: float
    artifact: Callable[[], Artifact] | None


@dataclass(frozen=True)
class ChipCluster:
    """A simulated device: values are what the chip computes, in fp16; time is that of its clock.

    `chip_path` is a name or a file; `launch_us` is the host's time to start a program, by default the chip file's.
    """

    name: str
    chip_path: str
    level: str = DEFAULT_LEVEL
    launch_us: float | None = None
    simulated: bool = True
    own_thread: bool = False

    @cached_property
    def chip(self) -> Chip:
        return load_chip(self.chip_path)

    @cached_property
    def identity(self) -> str:
        """Identity from the compiler's own sources: a checkout changes many times under one version, and each change
        may change times. Compilers of other packages are identified by their versions alone.
        """
        return f"compiler {source_hash(COMPILER)}{_plugins()} for chip {self.chip.hash}, {self.level}"

    @property
    def launch_ns(self) -> int:
        return round(1e3 * (chip_launch_us(self.chip) if self.launch_us is None else self.launch_us))

    @property
    def time_source(self) -> str:
        """Source of its times, in words."""
        from codegen.target import GroupTarget
        from dsa_sched.stages.targets import planning_target
        from isched.program.target import Timeable

        target, level = planning_target(self.chip), f"level {self.level}"
        if isinstance(target, GroupTarget):
            return f"kernels planned for {self.chip.name} ({level}), by their least times"
        if isinstance(target, Timeable):
            return f"programs compiled for {self.chip.name} ({level}), by the cycle model"
        return f"plans for {self.chip.name} ({level}), by the cost model"

    def accepts(self, part: TaskPart) -> str | None:
        return refusal(part, self.chip)

    def compile(self, part: TaskPart) -> CompiledPart:
        """What `dsa-sched compile` makes of the part at this level. Raises Refused where the chip cannot compute it."""
        from codegen.generic import GenericTarget
        from codegen.target import GroupTarget
        from dsa_sched.frontend import load_model
        from dsa_sched.pipeline.driver import compile_graph
        from dsa_sched.stages.compilation import CompileOptions
        from dsa_sched.stages.targets import planning_target, reader_of, target_of

        options = CompileOptions(planner_or_auto(self.level))
        copy = onnx.ModelProto()
        copy.CopyFrom(part.model)
        try:
            planner = planning_target(self.chip)
            model = load_model(copy, judge=reader_of(self.chip, planner))
            if isinstance(planner, GenericTarget):
                return ChipPart(part, _planned_seconds(model, self.chip, planner, options), None)
            compilation = compile_graph(model, self.chip, target_of(self.chip), options)
            seconds = _seconds(compilation, part.task)
            if isinstance(compilation.target, GroupTarget):
                return ChipPart(part, seconds, lambda: compilation.artifact)
            artifact = compilation.artifact  # without the rest, which is large
            return ChipPart(part, seconds, lambda: artifact)
        except UserError as error:
            raise Refused(str(error)) from error

    def profile(self, compiled: CompiledPart) -> int:
        assert isinstance(compiled, ChipPart)
        return round(compiled.seconds * 1e9 - chip_launch_us(self.chip) * 1e3)

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Values by the chip's simulator. Raises TargetError for a chip without a code generator."""
        assert isinstance(compiled, ChipPart)
        if compiled.artifact is None:
            raise TargetError(f"chip {self.chip.name}", needs="a code generator to run a part", has="none")
        found = compiled.artifact().run({name: feeds[name] for name in compiled.part.inputs})
        return {name: np.asarray(found[name]) for name in compiled.part.outputs}


def _seconds(compilation: Compilation, name: str) -> float:
    """Time of what was compiled: by the cycle model; of kernels that are whole groups, the sum of their least times; of
    a program that cannot be timed, by the cost model.
    """
    from codegen.target import GroupTarget
    from dsa_sched.analysis.artifact_timing import time_artifact
    from isched.program.target import Timeable
    from partitioner.context.plan_context import Context, GraphContext
    from partitioner.cost.cost_model import plan_cycles
    from partitioner.planners.kernel_level import kernels_in_place

    model, chip, target, plan = compilation.model, compilation.chip, compilation.target, compilation.plan
    if isinstance(target, GroupTarget):
        kernels = kernels_in_place(plan, GraphContext(model.graph, model.constants, chip, target))
        return sum(kernel.seconds for kernel in kernels.values())
    if isinstance(target, Timeable):
        return time_artifact(compilation.artifact, chip, target, name).seconds
    return plan_cycles(plan, Context(model.graph, model.constants, chip, target)).cycles / chip.clock_hz


def _planned_seconds(model: Model, chip: Chip, target: GenericTarget, options: CompileOptions) -> float:
    """Time of the best plan by the cost model."""
    from dsa_sched.search.candidates import SearchRequest
    from dsa_sched.search.loop import cheapest_plan
    from dsa_sched.stages.tile_stages import plan_tiles
    from partitioner.cost.cost_model import plan_cycles

    if isinstance(options.planner, Auto):
        planned = cheapest_plan(SearchRequest(chip, target, options, lambda _step: None), model)[0]
    else:
        planned = plan_tiles(model, chip, target, options.planner)
    return plan_cycles(planned.plan, planned.context).cycles / chip.clock_hz


def refusal(part: TaskPart, chip: Chip) -> str | None:
    """Reason why a chip does not accept a part: operators that the frontend cannot read or the chip's target cannot
    compute. None where nothing speaks against it.

    A chip without a code generator is not asked about operators: it may be one that is being designed.
    """
    from dsa_sched.frontend import load_model
    from dsa_sched.frontend.network.refusals import Unsupported
    from dsa_sched.stages.targets import judge_of, planning_target

    copy = onnx.ModelProto()
    copy.CopyFrom(part.model)
    try:
        load_model(copy, judge=judge_of(chip, planning_target(chip)))
    except Unsupported as error:
        return "; ".join(map(str, error.refused))
    except ModelError as error:
        return str(error)
    return None


def _plugins() -> str:
    """Operators and targets of other packages, with the versions of these."""
    points = [point for group in (OPERATORS, TARGET_GROUP) for point in entry_points(group=group)]
    named = {f", {point.group} {point.name} = {point.value} {point.dist and point.dist.version}" for point in points}
    return "".join(sorted(named))
