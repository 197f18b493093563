"""Parts on one cluster of a chip of hw_models: our own compiler, its timing model, its simulator.

    Part --compile_graph--> Artifact --time_artifact--> cycles; Artifact + feeds --simulator--> values

The compiler is imported inside functions: that takes a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx

from codegen.target_registry import ENTRY_POINT_GROUP as TARGET_GROUP
from dsa_sched.devices.device import Array, CompiledPart, Refused
from dsa_sched.frontend.network.network import FLOATING
from dsa_sched.frontend.rules.operators import ENTRY_POINT_GROUP as OPERATOR_GROUP
from dsa_sched.placement.model.from_onnx import TaskPart
from hw_models.chip import Chip
from hw_models.errors import ModelError, UserError
from hw_models.loading import load_chip
from partitioner.planners.levels import DEFAULT_LEVEL, planner_or_auto

if TYPE_CHECKING:
    from dsa_sched.artifact.format import Artifact

COMPILER = ("hw_models", "partitioner", "isched", "codegen", "dsa_sched")
"""Packages that decide how long a part takes on a chip."""


@dataclass(frozen=True)
class ChipPart:
    part: TaskPart
    artifact: Artifact


@dataclass(frozen=True)
class ChipCluster:
    """A simulated device: values are what the chip computes, in fp16; time is that of its clock.

    `chip_path` is a name or a file; `launch_us` is the host's time to start a program.
    """

    name: str
    chip_path: str
    level: str = DEFAULT_LEVEL
    launch_us: float = 0.0
    simulated: bool = True
    own_thread: bool = False

    @cached_property
    def chip(self) -> Chip:
        return load_chip(self.chip_path)

    @cached_property
    def identity(self) -> str:
        """Identity from the compiler's own sources: a checkout changes many times under one version, and each change
        may change times. Compilers of other packages are identified by their versions alone. Reads some two megabytes:
        20 ms.
        """
        settings = f"{self.level}, scheduled, launch {self.launch_us} us"
        return f"compiler {source_hash(COMPILER)}{_plugins()} for chip {self.chip.hash}, {settings}"

    def accepts(self, part: TaskPart) -> str | None:
        return refusal(part, self.chip)

    def compile(self, part: TaskPart) -> CompiledPart:
        """Raises Refused for a part that the chip cannot compute."""
        from dsa_sched.frontend import load_model
        from dsa_sched.pipeline.driver import compile_graph
        from dsa_sched.stages.compilation import CompileOptions
        from dsa_sched.stages.targets import reader_of, target_of

        options = CompileOptions(planner_or_auto(self.level), schedule=True)
        copy = onnx.ModelProto()
        copy.CopyFrom(part.model)
        try:
            target = target_of(self.chip)
            model = load_model(copy, judge=reader_of(self.chip, target))
            return ChipPart(part, compile_graph(model, self.chip, target, options).artifact)
        except UserError as error:
            raise Refused(str(error)) from error

    def profile(self, compiled: CompiledPart) -> int:
        from dsa_sched.analysis.artifact_timing import time_artifact
        from dsa_sched.stages.targets import target_of

        assert isinstance(compiled, ChipPart)
        run = time_artifact(compiled.artifact, self.chip, target_of(self.chip), compiled.part.task)
        return round(run.seconds * 1e9 + self.launch_us * 1e3)

    def run(self, compiled: CompiledPart, feeds: Mapping[str, Array]) -> dict[str, Array]:
        assert isinstance(compiled, ChipPart)
        found = compiled.artifact.run({name: feeds[name] for name in compiled.part.inputs})
        return {name: np.asarray(found[name]) for name in compiled.part.outputs}


def refusal(part: TaskPart, chip: Chip) -> str | None:
    """Reason why a chip does not accept a part: operators that the frontend cannot read or the chip's target cannot
    compute, or values that are no floating-point numbers. None where nothing speaks against it.

    A chip without a code generator is not asked about operators: it may be one that is being designed.
    """
    from dsa_sched.frontend import load_model
    from dsa_sched.frontend.network.refusals import Unsupported
    from dsa_sched.stages.targets import judge_of, planning_target

    values = (*part.model.graph.input, *part.model.graph.output)
    if others := [item.name for item in values if item.type.tensor_type.elem_type not in FLOATING]:
        return f"{', '.join(others)}: no floating-point numbers"
    copy = onnx.ModelProto()
    copy.CopyFrom(part.model)
    try:
        load_model(copy, judge=judge_of(chip, planning_target(chip)))
    except Unsupported as error:
        return "; ".join(map(str, error.refused))
    except ModelError as error:
        return str(error)
    return None


def source_hash(packages: Sequence[str]) -> str:
    """SHA-256 of the Python files of packages, whose names in the packages count and whose places do not."""
    found = hashlib.sha256()
    for package in packages:
        spec = find_spec(package)
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            for file in sorted(folder.rglob("*.py")):
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                found.update(f"{package} {file.relative_to(folder).as_posix()} {content}\n".encode())
    return found.hexdigest()


def _plugins() -> str:
    """Operators and targets of other packages, with the versions of these."""
    points = [point for group in (OPERATOR_GROUP, TARGET_GROUP) for point in entry_points(group=group)]
    named = {f", {point.group} {point.name} = {point.value} {point.dist and point.dist.version}" for point in points}
    return "".join(sorted(named))
