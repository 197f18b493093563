"""`dsa-sched verify`: compile, run, and judge the run against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import click

from dsa_sched.commands.options import Shape, compile_options, runner_option

__all__ = ["verify"]

MISMATCH = 3


@click.command(short_help="Compile a model, run it, compare with onnxruntime.")
@click.argument("model", metavar="MODEL")
@compile_options
@click.option("--inputs", type=click.IntRange(2, 64), default=2, show_default=True, help="How many inputs are drawn.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the inputs and of the cores' order.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the report as JSON too."
)
@runner_option
@click.pass_context
def verify(
    context: click.Context,
    model: str,
    chip: str,
    level: str,
    batch: int | None,
    shapes: tuple[Shape, ...],
    inputs: int,
    seed: int,
    json_file: Path | None,
    runner: str | None,
) -> None:
    """Compile MODEL, execute the machine code and compare every layer with the ONNX file in onnxruntime.

    \b
    dsa-sched verify resnet50 --chip stcp920
    dsa-sched verify mine.onnx --chip stcp920 --batch 2 --json report.json

    \b
    What must hold
      each layer, fed with the reference's inputs: relative L2 error at most 0.015
      the logits (before a final softmax): error at most a tenth of the distance between the reference's
        outputs for two inputs, and the same winner wherever the margin is larger than the error
      about two thousand outputs of each layer: bit for bit as a slow emulation of the chip's arithmetic
      every constant: unchanged in memory after the run

    Exits with 3 when something does not hold. The keys of the JSON report are documented in docs/verify.md.
    """
    from dsa_sched.driver import CompileOptions
    from dsa_sched.report.json_form import require_folder, write_report
    from dsa_sched.report.progress import Steps
    from dsa_sched.report.tables import print_report
    from dsa_sched.verify import VerifyOptions, verify_model

    if json_file is not None:
        require_folder(json_file)
    with Steps() as steps:
        options = VerifyOptions(inputs, seed)
        report = verify_model(model, chip, CompileOptions(level, batch, shapes), options, runner, steps.say)
    if json_file is not None:
        write_report(report, json_file)
    print_report(report)
    context.exit(0 if report.passed else MISMATCH)
