"""`dsa-sched compile`: a model becomes an artifact folder, or the text of a stage on its way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import (
    compile_options,
    division_options,
    feed_option,
    gathered_options,
    host_option,
    roll_option,
    schedule_option,
)
from dsa_sched.stages.gc_pause import uncollected
from partitioner.planners.levels import Auto

if TYPE_CHECKING:
    from dsa_sched.stages.compilation import Compilation, CompileOptions
    from hw_models.chip import Chip

EARLY_STAGES = ("graph", "plan", "layout")
"""Those that a chip without a code generator has too: the layout only of what is not scheduled, else the cycle model
may choose between two by their programs."""


@click.command("compile", short_help="Compile a model into machine code for a chip.")
@click.argument("model", metavar="MODEL")
@compile_options
@division_options
@click.option(
    "--print",
    "stage",
    type=click.Choice(["graph", "plan", "layout", "program", "asm"]),
    help="Print what one stage made: the graph, the plan, the layout (what lies where in the memories), the program or "
    "the assembly.",
)
@schedule_option
@roll_option
@host_option
@click.option(
    "--keep-values",
    is_flag=True,
    help="Let every value that reaches the main memory keep a place of its own, so that it can be read after the run.",
)
@feed_option("An .npz file with one array an input: say which values leave the range of the chip's type. Repeatable.")
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), metavar="DIR", help="The artifact folder.")
@gathered_options
@uncollected()
def compile_command(
    model: str,
    chip: str,
    options: CompileOptions,
    stage: str | None,
    host: bool,
    feeds: tuple[Path, ...],
    folder: Path | None,
) -> None:
    """Compile MODEL, an ONNX file or a network of the zoo (see: dsa-sched models), for a chip.

    \b
    dsa-sched compile resnet50 --chip stcp920 -o resnet50.out
    dsa-sched compile resnet50 --chip stcp920 --batch 64 --clusters 4 -o resnet50.out
    dsa-sched compile resnet50 --chip stcp920 --batch 16 --effort fast -o resnet50.out
    dsa-sched compile mine.onnx --chip stcp920 --level O0 -o plain.out
    dsa-sched compile mine.onnx --chip ./mine.yaml --shape x=1,3,64,64 --print plan

    Without --level, plans are made by every level, become scheduled programs and are timed by the cycle model; the
    fastest is kept, and among the decisions of its plan stands what it was chosen against (dsa-sched explain shows
    them). With --batch, that also says how many items are one pass. --effort fast tries one plan, in about half the
    time; Ctrl-C keeps the best so far. A level by its name (--level O3) makes that plan and no other, in the plan's
    own order unless --schedule is given.

    An operator that the chip cannot compute is refused, with its shapes and the rule. With --host such operators stay
    with the host, and the folder holds the stages that chip and host run by turns.

    The folder holds the program (machine code and weights), its assembly, a source map, the plan, and manifest.json,
    which says where inputs and outputs lie. It is written as a whole or not at all.

    With --feed, onnxruntime computes the network for those inputs, and the operators are named whose values leave the
    range of the type in which the chip stores them, or fall below its smallest normal number. Without, those are of
    which constants and declared input ranges tell it.

    --print graph, plan and (without --schedule) layout alone need no code generator for the chip: the plan then rests
    on the costs in the chip file, and is the one for which they are least.
    """
    if stage is None and folder is None:
        raise click.UsageError("Nothing to do: give -o DIR, --print STAGE or both.")
    from dsa_sched.pipeline.driver import compile_clusters
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.stages.compilation import gather_artifact
    from hw_models.loading import load_chip

    if folder is not None:
        from dsa_sched.artifact.whole_folder import require_place
        from dsa_sched.io.atomic_write import require_folder

        require_place(folder)
        require_folder(folder, replaced=True)
    if host:
        if stage is not None or options.clusters > 1 or options.per_pass is not None:
            raise click.UsageError("--host makes an artifact for one cluster, of the whole batch: give -o DIR alone.")
        assert folder is not None
        _compile_with_host(model, chip, options, folder)
        return
    described = load_chip(chip)
    if folder is None and stage in EARLY_STAGES and not (stage == "layout" and _asks_programs(described, options)):
        _print_early(model, described, options, stage)
        return
    with ProgressSteps() as steps:
        parts = compile_clusters(model, described, options, steps.say)
    done = parts[0]
    for warning in (*done.model.warnings, *_ranges(done, feeds)):
        click.echo(f"dsa-sched: warning: {warning}", err=True)
    if stage is not None:
        click.echo(_text(done, stage), nl=False)
    if folder is not None:
        with ProgressSteps() as steps:
            steps.say("writing the artifact")
            gather_artifact(parts).save(folder)
        click.echo(_summary(parts, folder), err=stage is not None)


def _ranges(done: Compilation, feeds: tuple[Path, ...]) -> tuple[str, ...]:
    """What the stored type cannot hold, of these inputs or of all."""
    from dsa_sched.verification.evidence import computed_values
    from dsa_sched.verification.floors import stored_type
    from dsa_sched.verification.given_ranges import ranges_of_any, ranges_of_feeds

    source, dtype = done.model.source, stored_type(done.model.graph)
    return ranges_of_feeds(source, feeds, dtype, computed_values(done.model)) if feeds else ranges_of_any(source, dtype)


def _compile_with_host(model: str, chip: str, options: CompileOptions, folder: Path) -> None:
    from dsa_sched.host.compile import compile_with_host
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.stages.compilation import Compilation

    with ProgressSteps() as steps:
        hosted = compile_with_host(model, chip, options, steps.say)
        steps.say("writing the artifact")
        hosted.artifact.save(folder)
    click.echo(hosted.division.line)
    for number, stage in enumerate(hosted.stages):
        if isinstance(stage, Compilation):
            for warning in stage.model.warnings:
                click.echo(f"dsa-sched: warning: {warning}", err=True)
            click.echo(_summary((stage,), folder / f"stage{number}"))


def _asks_programs(chip: Chip, options: CompileOptions) -> bool:
    """Whether the layout depends on how fast programs are: of a schedule, and at level auto where the chip has a code
    generator."""
    from codegen.target_registry import find_target

    return bool(options.schedule) or (isinstance(options.planner, Auto) and find_target(chip.isa) is not None)


def _print_early(model: str, described: Chip, options: CompileOptions, stage: str) -> None:
    """Stop at the stage that is asked for, so that it can be had for a chip without a code generator."""
    from codegen.generic import GenericTarget
    from codegen.target_registry import find_target
    from dsa_sched.frontend import load_model
    from dsa_sched.pipeline.driver import plan_model
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.stages.compilation import no_layout
    from dsa_sched.stages.kernel_stages import PlannedKernels
    from dsa_sched.stages.targets import reader_of
    from dsa_sched.stages.tile_stages import laid_out
    from partitioner.memory.memory_plan_types import PLAIN

    with ProgressSteps() as steps:
        if stage == "graph" and options.clusters == 1 and options.per_pass is None:
            steps.say("reading the model")
            target = find_target(described.isa) or GenericTarget(described.isa)
            read = load_model(
                model, dict(options.shapes), options.batch, reader_of(described, target), dict(options.bindings)
            )
            text = str(read.graph)
        else:
            planned = plan_model(model, described, options, steps.say)
            read, text = planned.model, str(planned.model.graph if stage == "graph" else planned.plan)
            if stage == "layout":
                if isinstance(planned, PlannedKernels):
                    raise no_layout(planned.context.target)
                steps.say("laying out")
                text = str(laid_out(planned.plan, planned.context, planned.layout_options or PLAIN))
    for warning in read.warnings:
        click.echo(f"dsa-sched: warning: {warning}", err=True)
    click.echo(text, nl=False)


def _text(done: Compilation, stage: str) -> str:
    match stage:
        case "graph":
            return str(done.model.graph)
        case "plan":
            return str(done.plan)
        case "layout":
            return str(done.layout)
        case "program":
            return str(done.program)
    # Assembly is whatever file for readers the target emitted beside the executable of its program.
    files = done.files.files if done.program.streams else {}
    return next((data.decode() for name, data in files.items() if name.endswith(".s")), "")


def _batch(part: Compilation) -> str:
    once = f"batch {part.plan.batch_per_cluster}"
    return once if part.passes == 1 else f"{part.rows} items in {part.passes} passes of {once}"


def _summary(parts: tuple[Compilation, ...], folder: Path) -> str:
    from hw_models.errors import size_text

    done = parts[0]
    lines = []
    for part in parts:
        size = len(part.files.files[part.files.executable])
        file = folder / part.entry(0).execution.file
        lines.append(
            f"{done.model.graph.name} for {done.chip.name}, {done.plan.level}, {_batch(part)}: "
            f"{len(part.plan.steps)} steps, {part.size_text}, {size_text(size)} in {file}"
        )
    return "\n".join(lines)
