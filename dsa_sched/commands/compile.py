"""`dsa-sched compile`: a model becomes an artifact folder, or the text of a stage on its way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import Shape, compile_options

if TYPE_CHECKING:
    from dsa_sched.driver import Compilation

__all__ = ["compile_command"]


@click.command("compile", short_help="Compile a model into machine code for a chip.")
@click.argument("model", metavar="MODEL")
@compile_options
@click.option(
    "--print",
    "stage",
    type=click.Choice(["graph", "plan", "program", "asm"]),
    help="Print what one stage made: the graph, the plan, the program or the assembly.",
)
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), metavar="DIR", help="The artifact folder.")
def compile_command(
    model: str,
    chip: str,
    level: str,
    batch: int | None,
    shapes: tuple[Shape, ...],
    stage: str | None,
    folder: Path | None,
) -> None:
    """Compile MODEL, an ONNX file or a network of the zoo (see: dsa-sched models), for a chip.

    \b
    dsa-sched compile resnet50 --chip stcp920 -o resnet50.out
    dsa-sched compile mine.onnx --chip ./mine.yaml --shape x=1,3,64,64 --print plan

    The folder holds the program (machine code and weights), its assembly, a source map, the plan, and manifest.json,
    which says where inputs and outputs lie. It is written as a whole or not at all.
    """
    if stage is None and folder is None:
        raise click.UsageError("Nothing to do: give -o DIR, --print STAGE or both.")
    from dsa_sched.driver import CompileOptions, compile_model
    from dsa_sched.report.progress import Steps

    with Steps() as steps:
        done = compile_model(model, chip, CompileOptions(level, batch, shapes), steps.say)
        if folder is not None:
            steps.say("writing the artifact")
            done.artifact.save(folder)
    for warning in done.model.warnings:
        click.echo(f"dsa-sched: warning: {warning}", err=True)
    if stage is not None:
        click.echo(_text(done, stage), nl=False)
    if folder is not None:
        click.echo(_summary(done, folder), err=stage is not None)


def _text(done: Compilation, stage: str) -> str:
    match stage:
        case "graph":
            return str(done.model.graph)
        case "plan":
            return str(done.plan)
        case "program":
            return str(done.program)
    # Assembly is whatever file for readers the target emitted beside its executable.
    files = done.artifact.clusters[0].files
    return next((data.decode() for name, data in files.items() if name.endswith(".s")), "")


def _summary(done: Compilation, folder: Path) -> str:
    from hw_models.errors import size_text

    elf = done.artifact.manifest.programs[0]
    size = len(done.artifact.clusters[0].files[done.artifact.clusters[0].executable])
    instructions = sum(len(stream.instrs) for stream in done.program.streams)
    return (
        f"{done.model.graph.name} for {done.chip.name}, {done.options.level}, batch {done.plan.batch_per_cluster}: "
        f"{len(done.plan.steps)} steps, {instructions} instructions on {elf.cores} cores, {size_text(size)} in "
        f"{folder / elf.elf}"
    )
