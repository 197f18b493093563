"""The subject of a command: a model, which is compiled through the build cache, or an artifact that exists already.

MODEL, --chip, options --build--> Artifact        DIR --load--> Artifact, whose options and chip are its own
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from partitioner.planners.levels import PLANNERS

if TYPE_CHECKING:
    from dsa_sched.analysis.artifact_timing import RunTime
    from dsa_sched.analysis.run_times import RunTimes
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.sizes.sized_artifact import SizedArtifact
    from dsa_sched.stages.compile_options import CompileOptions
    from hw_models.cache import Cache
    from hw_models.chip import Chip


def is_artifact(source: str | Path) -> bool:
    """Whether the subject of a command is a folder, not a model."""
    return Path(source).is_dir()


def is_sized_folder(source: str | Path) -> bool:
    """Whether the subject of a command is a folder of several sizes."""
    from dsa_sched.artifact.whole_folder import MANIFEST
    from dsa_sched.sizes.sized_artifact import is_sized

    return (Path(source) / MANIFEST).is_file() and is_sized(Path(source))


def loaded_sizes(folder: str | Path, chip: str | None) -> SizedArtifact:
    """The artifact of several sizes in a folder. Raises TargetError as `loaded_artifact` does."""
    from dsa_sched.sizes.sized_artifact import SizedArtifact

    refuse_compiling_options(folder)
    made = SizedArtifact.load(folder)
    _require_chip_of(made.artifacts[0], folder, chip)
    return made


def require_chip(source: str | Path, chip: str | None) -> str:
    """The chip of a model or a program, which must be named. Raises MissingParameter, and UsageError if there is no
    such model or program."""
    if chip is None:
        if not Path(source).exists() and not _is_network(Path(source)):
            needed = "a folder that compile wrote, a file, or a network of the zoo (see: dsa-sched models)"
            raise click.UsageError(f"{source} is not {needed}.")
        context = click.get_current_context()
        param = next(param for param in context.command.params if param.name == "chip")
        raise click.MissingParameter(ctx=context, param=param)
    return chip


def refuse_compiling_options(folder: str | Path) -> None:
    """Refuse options that say how a model is compiled. Raises UsageError."""
    from dsa_sched.stages.compile_options import CompileOptions

    context = click.get_current_context()
    of_classes = (field.name for kind in (CompileOptions, *PLANNERS.values()) for field in fields(kind))
    compiling = {"level", "host", "sizes", "exact", *of_classes}
    given = [
        param.opts[0]
        for param in context.command.params
        if param.name in compiling and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        verb = "says" if len(given) == 1 else "say"
        raise click.UsageError(f"{' and '.join(given)} {verb} how a model is compiled; {folder} is compiled already.")


def loaded_artifact(folder: str | Path, chip: str | None) -> Artifact:
    """The artifact of a folder. Raises TargetError if `chip` is given and the artifact was compiled for another."""
    from dsa_sched.artifact.format import Artifact

    refuse_compiling_options(folder)
    artifact = Artifact.load(folder)
    _require_chip_of(artifact, folder, chip)
    return artifact


def _require_chip_of(artifact: Artifact, folder: str | Path, chip: str | None) -> None:
    """Raises TargetError for another chip than that for which an artifact was compiled."""
    from hw_models.errors import TargetError
    from hw_models.loading import load_chip

    if chip is not None and (described := load_chip(chip)).hash != artifact.manifest.chip.hash:
        made_for = artifact.manifest.chip
        raise TargetError(
            f"--chip {chip}",
            needs=f"the chip that {folder} was compiled for: {made_for.name}, hash {made_for.hash[:12]}",
            has=f"{described.name}, hash {described.hash[:12]}",
            change="leave --chip out, or compile again",
        )


def artifact_of(
    source: str,
    chip: str | None,
    options: CompileOptions,
    use_cache: bool,
    say: Callable[[str], None],
) -> Artifact:
    """The artifact that a command is about. Raises UserError as compiling and loading do."""
    if is_artifact(source):
        return loaded_artifact(source, chip)
    from dsa_sched.builds.build import build

    return build(source, require_chip(source, chip), options, say, build_cache(use_cache)).artifact


def timed_source(
    path: Path,
    chip: str | None,
    options: CompileOptions,
    use_cache: bool,
    say: Callable[[str], None],
    cores: int | None = None,
    cluster: int | None = None,
    warm: bool = False,
) -> tuple[Chip, RunTime]:
    """The run of a program, an artifact or a model by the cycle model, and its chip. Raises UserError."""
    from dsa_sched.analysis.artifact_timing import time_path, time_whole
    from hw_models.loading import load_chip

    if not is_compiled_for(path, chip):
        # Programs and artifacts run on other chips too, as far as they use what these have.
        refuse_compiling_options(path)
        described = load_chip(require_chip(path, chip))
        say("timing")
        return described, time_path(path, described, cores, cluster, warm)
    artifact = artifact_of(str(path), chip, options, use_cache, say)
    say("timing")
    return artifact.chip, time_whole(artifact, str(path), warm)


def times_of_source(
    path: Path, chip: str | None, options: CompileOptions, use_cache: bool, say: Callable[[str], None], by: str | None
) -> RunTimes:
    """The times of an artifact or a model on the chip that it is compiled for, by these parts: those that were kept, or
    as they are found now. Raises UserError."""
    from dsa_sched.builds.kept_figures import Figures

    artifact = artifact_of(str(path), chip, options, use_cache, say)

    def find() -> RunTimes:
        from dsa_sched.analysis.artifact_timing import time_whole
        from dsa_sched.analysis.run_sums import run_times

        say("timing")
        return run_times(time_whole(artifact, artifact.manifest.model), by)

    return replace(Figures(artifact, build_cache(use_cache)).times(by, find), name=str(path))


def is_compiled_for(path: Path, chip: str | None) -> bool:
    """Whether the subject of a command is a model, which is compiled for the chip, or an artifact on its own chip."""
    return path.suffix == ".onnx" or _is_network(path) or (is_artifact(path) and chip is None)


def _is_network(path: Path) -> bool:
    """Whether the zoo has a network of this name, and no file has it."""
    from dsa_sched.zoo import zoo_names

    return not path.exists() and str(path) in zoo_names()


def build_cache(use_cache: bool) -> Cache | None:
    """The user's build cache; None where it is not to be used."""
    from dsa_sched.builds.build_cache import user_cache

    return user_cache() if use_cache else None
