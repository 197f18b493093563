"""Compiles with `--host`: operators that the chip refuses run on the host, the rest is compiled stage by stage.

model --divide--> stages --compile_graph each of the chip's--> Hosted --artifact--> StagedArtifact
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import onnx

from dsa_sched.analysis.run_figures import timed_run, with_figures
from dsa_sched.artifact.format import Artifact
from dsa_sched.frontend.load import read_source
from dsa_sched.frontend.model_file import ModelFile
from dsa_sched.frontend.network.folded import FoldedModel, folded_model
from dsa_sched.host.division import HostDivision, divide
from dsa_sched.host.staged_artifact import EndEntry, StagedArtifact, staged_artifact
from dsa_sched.pipeline.driver import compile_graph
from dsa_sched.stages.compilation import Compilation, CompileOptions
from dsa_sched.stages.targets import judge_of, require_able, target_of
from hw_models.chip import Chip
from hw_models.errors import ModelError
from hw_models.loading import load_chip

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Hosted:
    """A network compiled in stages: the compilation of each stage of the chip, the model of each stage of the host.
    `file` is the checked model with static shapes.
    """

    file: ModelFile
    folded: FoldedModel
    division: HostDivision
    stages: tuple[Compilation | onnx.ModelProto, ...]

    @cached_property
    def artifact(self) -> StagedArtifact:
        """The stages, those of the chip with their figures. Raises as `Compilation.artifact` does."""
        network = self.folded.network
        made: tuple[Artifact | onnx.ModelProto, ...] = tuple(
            with_figures(stage.artifact, timed_run(stage.artifact)) if isinstance(stage, Compilation) else stage
            for stage in self.stages
        )
        ends = (self._ends(network.inputs), self._ends(network.outputs))
        return staged_artifact(network.name, self.file.sha256, self.division.on_host, ends, made)

    def _ends(self, names: tuple[str, ...]) -> tuple[EndEntry, ...]:
        def entry(name: str) -> EndEntry:
            value = self.folded.value(name)
            dtype = str(onnx.helper.tensor_dtype_to_np_dtype(value.dtype))
            return EndEntry(name=name, shape=value.shape, dtype=dtype)  # type: ignore[arg-type]  # pydantic checks it

        return tuple(map(entry, names))


def compile_with_host(
    source: str | Path,
    chip: str | Path | Chip,
    options: CompileOptions,
    progress: Progress = lambda _step: None,
) -> Hosted:
    """Compile a model of which the host takes what the chip cannot compute.

    Raises as `compile_model` does, except for operators that onnxruntime knows and the chip does not; and ModelError
    for a value between chip and host without a static shape, and for an output that depends on no input.
    """
    described = chip if isinstance(chip, Chip) else load_chip(str(chip))
    target = target_of(described)
    require_able(options, target)
    progress("reading the model")
    file = read_source(source, dict(options.shapes), options.batch, dict(options.bindings), known="runtime")
    folded = folded_model(file.model)
    for name in folded.network.outputs:
        if name not in folded.network.producer:
            raise ModelError(
                f"output {name}", needs="a value that an operator makes of inputs", has="an input or a constant"
            )
    division = divide(folded, judge_of(described, target), progress)
    rest = replace(options, batch=None, shapes=(), bindings=())

    def compiled(number: int) -> Compilation | onnx.ModelProto:
        stage = division.stages[number]
        if stage.loaded is None:
            return stage.cut.model
        progress(f"stage {number + 1} of {len(division.stages)}")
        return compile_graph(stage.loaded, described, target, rest, progress)

    return Hosted(file, folded, division, tuple(map(compiled, range(len(division.stages)))))
