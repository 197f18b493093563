"""dsa-sched: compiles ONNX networks for accelerators described by a chip file, runs and checks the result.

artifact = dsa_sched.compile("resnet50.onnx", chip="stcp920")
outputs = artifact.run({"x": array})
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from partitioner.planners.levels import DEFAULT_LEVEL, planner_or_auto

if TYPE_CHECKING:
    from dsa_sched.artifact.format import Artifact
    from hw_models.chip import Chip

__all__ = ["compile", "load"]


def compile(
    model: str | Path,
    chip: str | Path | Chip,
    level: str = DEFAULT_LEVEL,
    batch: int | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    clusters: int = 1,
    per_pass: int | Literal["auto"] | None = None,
    schedule: bool | None = None,
    effort: str = "normal",
) -> Artifact:
    """Compile an ONNX file (or a network of the zoo, by name) for a chip (its name, its file, or one loaded).

    `batch` replaces the leading dimension of every input, and is divided among `clusters` of the chip. Each runs
    its share as micro-batches of `per_pass` items: a number, what the cost model chooses ("auto"), or all at once. With
    `schedule`, instructions are ordered so that engines work at the same time; level "auto" does so unless it is
    False, and tries as many plans as `effort` says.
    Raises hw_models.errors.UserError: one clear message that names the operator, field or file and what to change.
    """
    from dsa_sched.pipeline.driver import compile_clusters  # a plain import of the package stays fast
    from dsa_sched.stages.compilation import CompileOptions, gather_artifact

    options = CompileOptions(
        planner_or_auto(level),
        batch,
        tuple((shapes or {}).items()),
        clusters,
        per_pass,
        schedule=schedule,
        effort=effort,
    )
    return gather_artifact(compile_clusters(model, chip, options))


def load(folder: str | Path) -> Artifact:
    """An artifact that `Artifact.save` or `dsa-sched compile` wrote. Raises hw_models.errors.TargetError."""
    from dsa_sched.artifact.format import Artifact

    return Artifact.load(folder)
