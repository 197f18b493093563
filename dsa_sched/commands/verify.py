"""`dsa-sched verify`: compiles, runs, and judges the run against onnxruntime."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import (
    CHIP_OR_OWN,
    Sizes,
    axis_sizes,
    cache_option,
    division_options,
    feed_option,
    gathered_options,
    host_option,
    planning_options,
    roll_option,
    runner_option,
    schedule_option,
    sizes_options,
)
from partitioner.planners.levels import NO_SPILLS, O3

if TYPE_CHECKING:
    from dsa_sched.stages.compile_options import CompileOptions
    from dsa_sched.verification.verdict import VerifyReport
    from dsa_sched.verification.verify import VerifyOptions

EXITS = {"passed": 0, "failed": 3, "inconclusive": 4}
"""Exit code by verdict."""


@click.command(short_help="Compile a model, run it, compare with onnxruntime.")
@click.argument("source", metavar="MODEL|DIR")
@planning_options
@CHIP_OR_OWN
@division_options
@click.option(
    "--model",
    metavar="MODEL",
    help="For DIR: the model that it was compiled from. Default: the file that was compiled, or a .onnx file of the "
    "same content here or next to DIR.",
)
@cache_option
@click.option(
    "--inputs", type=click.IntRange(2, 64), default=2, show_default=True, help="Number of inputs that are drawn."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the inputs and of the order of the cores."
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the report as JSON, too."
)
@feed_option("An .npz file with one array per input, instead of drawn inputs. May be repeated.")
@click.option("--bisect", is_flag=True, help="After a failure, look for the smallest part of the model that fails.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    default=Path("failing"),
    show_default=True,
    metavar="DIR",
    help="Folder in which --bisect writes that part: an ONNX file, its inputs, the check that failed.",
)
@host_option
@sizes_options
@schedule_option
@roll_option
@runner_option
@click.pass_context
@gathered_options
def verify(
    context: click.Context,
    source: str,
    chip: str | None,
    options: CompileOptions,
    model: str | None,
    use_cache: bool,
    inputs: int,
    seed: int,
    host: bool,
    sizes: tuple[Sizes, ...],
    exact: bool,
    json_file: Path | None,
    feeds: tuple[Path, ...],
    bisect: bool,
    folder: Path,
    runner: str | None,
) -> None:
    """Execute the artifact in DIR, or what `compile` makes of MODEL, and compare it with the ONNX file in onnxruntime.

    \b
    dsa-sched verify resnet50.out
    dsa-sched verify resnet50 --chip stcp920
    dsa-sched verify mine.onnx --chip stcp920 --batch 2 --json report.json
    dsa-sched verify mine.onnx --chip stcp920 --level O0 --bisect -o failing
    dsa-sched verify decoder.onnx --chip stcp920 --sizes sequence=1,16,64

    \b
    What must hold
      the outputs of the artifact are bit for bit those of its twin: the same plan, built such that all values stay in
        the main memory; the following is checked on the twin
      each layer, fed with the reference's inputs: the relative L2 error is at most 0.015, of the whole and of each
        channel
      the logits (before a final softmax): the error is at most a tenth of the distance between the reference's outputs
        for two inputs, and the winner is the reference's, or one that rounding explains
      neither bound is below the effect of rounding alone on the reference; where that is larger than the effect of the
        inputs, the report makes no statement about the logits
      about two thousand outputs of each layer are bit for bit those of a slow emulation of the chip's arithmetic, or
        within the bound that its target gives
      every constant in memory after the run is what the file's initializers give
      at levels beyond O0, with --schedule or --roll: all stored values are bit for bit those of O0 without these
        options, where layers and samples are judged

    Of an artifact for several clusters or passes, one pass of the first program is judged.

    With --host, each stage on the chip is judged in this way, fed with the reference's values, and then the outputs of
    all stages, run one after another.

    With --sizes, and of an artifact of several sizes, each combination is judged in this way, and for each axis a size
    in between: padding must not change the reference's results, and the chip's are judged end to end.

    The exit code is 0 if all of this holds (passed), 3 if something does not (failed), and 4 if rounding alone may make
    an output wrong, so that no statement about it is possible (inconclusive). docs/reference/json.md has the keys of
    the JSON report.
    """
    from dsa_sched.builds.kept_figures import Figures
    from dsa_sched.commands.sources import artifact_of, build_cache, is_artifact, is_sized_folder, require_chip
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.report.json_form import write_report
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.report.tables import print_report
    from dsa_sched.verification.bisect import require_place
    from dsa_sched.verification.verify import VerifyOptions, verify_artifact
    from hw_models.errors import TargetError

    if bisect and host:
        raise click.UsageError("--bisect is for networks that the chip computes alone, without --host.")
    if is_artifact(source) and (bisect or host):
        raise click.UsageError("--bisect and --host compile parts of a model: name the model, not the folder.")
    if model is not None and not is_artifact(source):
        raise click.UsageError("--model says where the model of an artifact folder is.")
    if bisect and options.force_groups:
        raise click.UsageError("--bisect verifies parts of the model, which do not have all layers of a --force-group.")
    if bisect and options.slices:
        raise click.UsageError("--bisect verifies parts of the model, which may not have --slices.")
    if json_file is not None:
        require_file(json_file)
    if bisect:
        require_place(folder)
    how = VerifyOptions(inputs, seed, feeds=feeds)
    chosen = axis_sizes(sizes, exact)
    if chosen or is_sized_folder(source):
        if bisect or host or feeds:
            raise click.UsageError(
                "--bisect, --host and --feed are for one size: name its folder, or leave --sizes out."
            )
        context.exit(_verify_sizes(source, chip, options, (chosen, exact), how, model, runner, json_file, use_cache))
    if host:
        context.exit(_verify_with_host(source, require_chip(source, chip), options, how, runner, json_file))
    narrow = partial(_bisect, source, chip or "", options, how, runner, folder)
    try:
        with ProgressSteps() as steps:
            artifact = artifact_of(source, chip, options, use_cache, steps.say)
            timed = Figures(artifact, build_cache(use_cache)).work()
            report = verify_artifact(artifact, model, how, runner, steps.say, timed)
    except TargetError:
        # A run that ends in a fault; any other error of the target comes again from the smallest part, and is not.
        if bisect:
            narrow(None)
        raise
    print_report(report)
    if json_file is not None:
        write_report(report, json_file)
    if bisect and report.failures:
        narrow(report)
    context.exit(EXITS[report.verdict])


def _verify_sizes(
    source: str,
    chip: str | None,
    compile_options: CompileOptions,
    sizes: tuple[dict[str, tuple[int, ...]], bool],
    options: VerifyOptions,
    model: str | None,
    runner: str | None,
    json_file: Path | None,
    use_cache: bool,
) -> int:
    """Verify each size of a model or a folder, print the report, and return the exit code."""
    from dsa_sched.commands.sources import build_cache, is_artifact, loaded_sizes, require_chip
    from dsa_sched.io.atomic_write import write_whole
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.report.sized_tables import print_sized_report, sized_report_json
    from dsa_sched.sizes.compile import compile_sizes
    from dsa_sched.sizes.verify import verify_sizes

    with ProgressSteps() as steps:
        if is_artifact(source):
            made = loaded_sizes(source, chip)
        else:
            made = compile_sizes(
                source, require_chip(source, chip), compile_options, *sizes, steps.say, build_cache(use_cache)
            )
        report = verify_sizes(made, model, options, runner, steps.say)
    print_sized_report(report)
    if json_file is not None:
        text = sized_report_json(report).encode()
        write_whole(json_file, lambda stream: stream.write(text))
    return EXITS[report.verdict]


def _verify_with_host(
    model: str,
    chip: str,
    compile_options: CompileOptions,
    options: VerifyOptions,
    runner: str | None,
    json_file: Path | None,
) -> int:
    """Verify stages on chip and host, print the report, and return the exit code."""
    from dsa_sched.host.verify import verify_with_host
    from dsa_sched.report.json_form import write_hosted_report
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.report.tables import print_hosted_report

    with ProgressSteps() as steps:
        report = verify_with_host(model, chip, compile_options, options, runner, steps.say)
    print_hosted_report(report)
    if json_file is not None:
        write_hosted_report(report, json_file)
    return EXITS[report.verdict]


def _bisect(
    model: str,
    chip: str,
    compile_options: CompileOptions,
    options: VerifyOptions,
    runner: str | None,
    folder: Path,
    report: VerifyReport | None,
) -> None:
    """Find the smallest failing part, write it, and say how to run it again."""
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.verification.bisect import as_judged, bisect, save
    from hw_models.loading import load_chip

    if report is not None:
        compile_options = as_judged(compile_options, report, load_chip(chip))
    with ProgressSteps() as steps:
        found = bisect(model, chip, compile_options, options, runner, report, steps.say)
    if found is None:
        click.echo("bisect: no part of the model, cut out by itself, fails again", err=report is None)
        return
    file, *feeds, _ = save(found, folder)
    words = ["dsa-sched", "verify", str(file), "--chip", chip, "--level", compile_options.planner.name]
    if isinstance(compile_options.planner, O3) and compile_options.planner.spill != NO_SPILLS:
        words += ["--spill", compile_options.planner.spill]
    if compile_options.schedule is not None:
        words.append("--schedule" if compile_options.schedule else "--no-schedule")
    if compile_options.roll is not None:
        words.append("--roll" if compile_options.roll else "--unroll")
    words += [word for path in feeds for word in ("--feed", str(path))]
    words += ["--runner", runner] if runner else []
    click.echo(f"bisect: {found.line}", err=report is None)
    click.echo(f"bisect: to run it again: {shlex.join(words)}", err=report is None)
