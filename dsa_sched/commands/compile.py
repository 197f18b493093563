"""`dsa-sched compile`: a model becomes an artifact folder, or the text of a stage on its way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import (
    Sizes,
    axis_sizes,
    cache_option,
    compile_options,
    division_options,
    feed_option,
    gathered_options,
    host_option,
    roll_option,
    schedule_option,
    sizes_options,
)
from dsa_sched.stages.gc_pause import uncollected
from partitioner.planners.levels import Auto

if TYPE_CHECKING:
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.builds.build import Build
    from dsa_sched.stages.compile_options import CompileOptions
    from hw_models.chip import Chip

EARLY_STAGES = ("graph", "plan", "layout")
"""Stages that a chip without a code generator has too. The layout is one only where nothing is scheduled; otherwise the
cycle model may choose between two layouts by their programs."""

LATE_STAGES = ("layout", "program")
"""Stages that no artifact holds."""


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
@sizes_options
@click.option(
    "--keep-values",
    is_flag=True,
    help="Give every value that reaches the main memory a place of its own, so that it can be read after the run.",
)
@feed_option(
    "An .npz file with one array per input: say which values leave the range of the chip's type. May be repeated."
)
@cache_option
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), metavar="DIR", help="The artifact folder.")
@gathered_options
@uncollected()
def compile_command(
    model: str,
    chip: str,
    options: CompileOptions,
    stage: str | None,
    host: bool,
    sizes: tuple[Sizes, ...],
    exact: bool,
    feeds: tuple[Path, ...],
    use_cache: bool,
    folder: Path | None,
) -> None:
    """Compile MODEL, an ONNX file or a network of the zoo (see: dsa-sched models), for a chip.

    \b
    dsa-sched compile resnet50 --chip stcp920 -o resnet50.out
    dsa-sched compile resnet50 --chip stcp920 --batch 64 --clusters 4 -o resnet50.out
    dsa-sched compile resnet50 --chip stcp920 --batch 16 --effort fast -o resnet50.out
    dsa-sched compile mine.onnx --chip stcp920 --level O0 -o plain.out
    dsa-sched compile mine.onnx --chip ./mine.yaml --shape x=1,3,64,64 --print plan
    dsa-sched compile decoder.onnx --chip stcp920 --sizes sequence=1,64,256 -o decoder.out

    By default, every level makes a plan. The plans become scheduled programs, which the cycle model times, and the
    fastest is kept. The decisions of its plan say what it was compared with (dsa-sched explain shows them). With
    --batch, the items of one pass are chosen in the same way. --effort fast tries the plans of O0 to O3 alone, in less
    time; Ctrl-C keeps the best so far. With the name of a level (--level O3), the plan of that level is compiled and no
    other, in the plan's own order unless --schedule is given.

    An operator that the chip cannot compute is refused, with its shapes and the rule. With --host such operators stay
    on the host, and the folder holds the stages that chip and host run by turns.

    With --sizes, the folder holds a program for each combination of sizes, and the weights once. `dsa-sched run` takes
    the smallest that holds the inputs, and pads them. An operator that padding would change is refused by name
    (docs/language-models.md).

    The folder holds the program (machine code and weights), its assembly, a source map, the plan, and manifest.json,
    which says where inputs and outputs lie. It is written as a whole or not at all.

    With --feed, onnxruntime computes the network for those inputs, and warnings name the operators whose values leave
    the range of the type in which the chip stores them, or fall below its smallest normal number. Without --feed,
    warnings name the operators for which this follows from constants and declared ranges of inputs.

    --print graph, plan or (without --schedule) layout, without -o, needs no code generator for the chip: the plan is
    then the one that costs least by the costs in the chip file.
    """
    if stage is None and folder is None:
        raise click.UsageError("Nothing to do: give -o DIR, --print STAGE or both.")
    from dsa_sched.builds.build import build
    from dsa_sched.commands.sources import build_cache
    from dsa_sched.report.artifact_summary import summary_lines
    from dsa_sched.report.progress import ProgressSteps
    from hw_models.loading import load_chip

    if folder is not None:
        from dsa_sched.artifact.whole_folder import require_place
        from dsa_sched.io.atomic_write import require_folder

        require_place(folder)
        require_folder(folder, replaced=True)
    if host:
        if stage is not None or options.clusters > 1 or options.per_pass is not None:
            raise click.UsageError("--host makes an artifact for one cluster and the whole batch: give -o DIR alone.")
        assert folder is not None
        _compile_with_host(model, chip, options, folder)
        return
    if chosen := axis_sizes(sizes, exact):
        if stage is not None or host or feeds:
            raise click.UsageError(
                "--sizes makes an artifact of several programs: give -o DIR, without --print, --host and --feed."
            )
        assert folder is not None
        _compile_sizes(model, chip, options, (chosen, exact), use_cache, folder)
        return
    described = load_chip(chip)
    if folder is None and stage in EARLY_STAGES and not (stage == "layout" and _asks_programs(described, options)):
        _print_early(model, described, options, stage)
        return
    with ProgressSteps() as steps:
        made = build(model, described, options, steps.say, build_cache(use_cache and stage not in LATE_STAGES))
    for warning in (*made.artifact.origin.warnings, *_of_feeds(made.artifact, feeds)):
        click.echo(f"dsa-sched: warning: {warning}", err=True)
    if stage is not None:
        click.echo(_text(made, stage), nl=False)
    if folder is not None:
        with ProgressSteps() as steps:
            steps.say("writing the artifact")
            made.artifact.save(folder)
        click.echo("\n".join(summary_lines(made.artifact, folder)), err=stage is not None)


def _of_feeds(artifact: Artifact, feeds: tuple[Path, ...]) -> tuple[str, ...]:
    """Warnings about values that the stored type cannot hold, for these inputs."""
    if not feeds:
        return ()
    from dsa_sched.pipeline.rebuild import reloaded
    from dsa_sched.verification.evidence import computed_values
    from dsa_sched.verification.floors import stored_type
    from dsa_sched.verification.given_ranges import ranges_of_feeds

    model = reloaded(artifact)
    return ranges_of_feeds(model.source, feeds, stored_type(model.graph), computed_values(model))


def _compile_with_host(model: str, chip: str, options: CompileOptions, folder: Path) -> None:
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.host.compile import compile_with_host
    from dsa_sched.report.artifact_summary import summary_lines
    from dsa_sched.report.progress import ProgressSteps

    with ProgressSteps() as steps:
        hosted = compile_with_host(model, chip, options, steps.say)
        steps.say("writing the artifact")
        hosted.artifact.save(folder)
    click.echo(hosted.division.line)
    for number, stage in enumerate(hosted.artifact.stages):
        if isinstance(stage, Artifact):
            for warning in stage.origin.warnings:
                click.echo(f"dsa-sched: warning: {warning}", err=True)
            click.echo("\n".join(summary_lines(stage, folder / f"stage{number}")))


def _compile_sizes(
    model: str,
    chip: str,
    options: CompileOptions,
    sizes: tuple[dict[str, tuple[int, ...]], bool],
    use_cache: bool,
    folder: Path,
) -> None:
    from dsa_sched.commands.sources import build_cache
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.report.sized_tables import sized_summary
    from dsa_sched.sizes.compile import compile_sizes

    with ProgressSteps() as steps:
        made = compile_sizes(model, chip, options, *sizes, steps.say, build_cache(use_cache))
        steps.say("writing the artifact")
        made.save(folder)
    for warning in dict.fromkeys(warning for artifact in made.artifacts for warning in artifact.origin.warnings):
        click.echo(f"dsa-sched: warning: {warning}", err=True)
    click.echo("\n".join(sized_summary(made, folder)))


def _asks_programs(chip: Chip, options: CompileOptions) -> bool:
    """Whether the layout depends on how fast programs are: with a schedule, and at level auto if the chip has a code
    generator."""
    from dsa_sched.stages.targets import has_code

    return bool(options.schedule) or (isinstance(options.planner, Auto) and has_code(chip))


def _print_early(model: str, described: Chip, options: CompileOptions, stage: str) -> None:
    """Print one stage and make no later one, which a chip without a code generator does not have."""
    from codegen.generic import GenericTarget
    from dsa_sched.frontend import load_model
    from dsa_sched.pipeline.driver import plan_model
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.stages.compilation import no_layout
    from dsa_sched.stages.kernel_stages import PlannedKernels
    from dsa_sched.stages.targets import generator_of, reader_of
    from dsa_sched.stages.tile_stages import laid_out
    from partitioner.memory.memory_plan_types import PLAIN

    with ProgressSteps() as steps:
        if stage == "graph" and options.clusters == 1 and options.per_pass is None:
            steps.say("reading the model")
            target = generator_of(described) or GenericTarget(described.isa)
            given = dict(options.shapes), options.batch, reader_of(described, target), dict(options.bindings)
            read = load_model(model, *given, dict(options.state))
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


def _text(made: Build, stage: str) -> str:
    from codegen.target import GroupTarget
    from dsa_sched.stages.compilation import no_program
    from dsa_sched.stages.targets import target_of

    artifact = made.artifact
    match stage:
        case "graph":
            return str(artifact.graph)
        case "plan":
            return str(artifact.plan)
    if stage in LATE_STAGES:
        assert made.parts is not None  # these stages are not kept, so the cache is not asked
        return str(made.parts[0].layout if stage == "layout" else made.parts[0].program)
    target = target_of(artifact.chip)
    if isinstance(target, GroupTarget):
        raise no_program(target)
    # Assembly is the file for readers that the target emitted next to the executable of its program.
    return next((data.decode() for name, data in artifact.clusters[0].files.items() if name.endswith(".s")), "")
