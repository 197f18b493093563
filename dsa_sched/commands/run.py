"""`dsa-sched run`: computes the outputs of an artifact from inputs in ONNX layout and dtype."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import runner_option

if TYPE_CHECKING:
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.artifact.session import Session
    from dsa_sched.host.staged_artifact import StagedArtifact
    from dsa_sched.sizes.sized_artifact import SizedArtifact

LARGEST_ITEM_BYTES = 8
"""Bytes of the largest element of an input, which may come in a wider type than the model's."""


@click.command(short_help="Run a compiled model on inputs of your own.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--input", "source", type=click.Path(path_type=Path), required=True, help="An .npz file with one array per input."
)
@click.option("--output", "target", type=click.Path(path_type=Path), required=True, help="The .npz file to write.")
@runner_option
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order in which simulated cores run.")
@click.option(
    "--steps",
    type=click.IntRange(1, 1 << 16),
    help="Run this many times, and keep state between runs. An input with one more axis in front has one value per "
    "step; outputs get such an axis.",
)
@click.option(
    "--state",
    "pairs",
    multiple=True,
    metavar="OUTPUT=INPUT",
    help="With --steps: an output that is an input's next value. Zeros at first, unless --input has the input. May be "
    "repeated. Pairs like present.0.key and past.0.key are found.",
)
def run(
    folder: Path,
    source: Path,
    target: Path,
    runner: str | None,
    seed: int,
    steps: int | None,
    pairs: tuple[str, ...],
) -> None:
    """Run the artifact in DIR on the arrays of one .npz file and write its outputs to another.

    \b
    python -c "import numpy as np; np.savez('x.npz', x=np.zeros((1, 3, 64, 64), np.float32))"
    dsa-sched run mine.out --input x.npz --output y.npz
    dsa-sched run decoder.out --input ids.npz --output tokens.npz --steps 32 --state token=ids

    Of an artifact of several sizes, the smallest program that holds the inputs runs, and a line says how they are
    padded and outputs cut.

    Arrays are named and shaped as in the ONNX file, and converted to its types. Warnings name inputs that are converted
    from a wider type, values that the device's type cannot hold, and outputs with elements that are NaN or infinite.
    """
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.host.staged_artifact import StagedArtifact, is_staged
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.io.npz import read_arrays, write_arrays
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.sizes.sized_artifact import SizedArtifact, is_sized
    from dsa_sched.verification.feed_range import not_finite, range_warnings, type_warnings

    require_file(target, folders_made=True)
    artifact: Artifact | StagedArtifact | SizedArtifact
    if is_sized(folder):
        artifact = SizedArtifact.load(folder)
    else:
        artifact = StagedArtifact.load(folder) if is_staged(folder) else Artifact.load(folder)
    arrays = read_arrays(source, artifact.input_elements * LARGEST_ITEM_BYTES * (steps or 1))
    made = artifact.artifacts[0] if isinstance(artifact, SizedArtifact) else artifact
    warnings = type_warnings({entry.name: entry.dtype for entry in made.manifest.inputs}, arrays)
    if isinstance(made, Artifact):
        warnings = (*warnings, *range_warnings(made.manifest.inputs, (arrays,)))
    for warning in warnings:
        click.echo(f"dsa-sched: warning: {warning}", err=True)
    session = _session(artifact, steps, pairs)
    with ProgressSteps() as progress:
        if isinstance(artifact, SizedArtifact) and session is None:
            click.echo(artifact.choice(arrays).line, err=True)
        progress.say("running")
        if session is None:
            outputs = artifact.run(arrays, runner, seed, progress.say)
        else:
            outputs = session.steps(arrays, steps or 1, runner, seed, progress.say)
    write_arrays(target, outputs)
    for line in not_finite(outputs):
        click.echo(f"dsa-sched: warning: {line}", err=True)
    for name, array in outputs.items():
        click.echo(f"{name}: {array.dtype} {list(array.shape)} in {target}")


def _session(
    artifact: Artifact | StagedArtifact | SizedArtifact, steps: int | None, pairs: tuple[str, ...]
) -> Session | None:
    """The session of several steps; None for a single run. Raises click.UsageError."""
    if steps is None:
        if pairs:
            raise click.UsageError("--state needs --steps: the number of runs between which it is kept")
        return None
    if any("=" not in pair for pair in pairs):
        raise click.UsageError("--state needs OUTPUT=INPUT")
    if not hasattr(artifact, "session"):
        raise click.UsageError("--steps needs an artifact without stages on the host")
    session = artifact.session({output: name for output, _, name in (pair.partition("=") for pair in pairs)})
    if session.pairs:
        click.echo(f"kept: {', '.join(f'{name} <- {output}' for output, name in session.pairs.items())}", err=True)
    return session
