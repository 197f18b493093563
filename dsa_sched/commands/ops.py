"""`dsa-sched ops`: what a chip computes, ONNX operator by ONNX operator, and under which rules."""

from __future__ import annotations

import click

from dsa_sched.commands.options import CHIP


@click.command(short_help="List the operators that can be compiled for a chip.")
@CHIP
def ops(chip: str) -> None:
    """List the ONNX operators that can be compiled for CHIP and how they may be written, then the chip's own rules.

    \b
    dsa-sched ops --chip stcp920
    dsa-sched ops --chip stcp920 | grep Resize

    Each way of writing an operator is tried: `yes` is what `compile` takes, `no` what it refuses, with its words. What
    a model needs beyond that is refused before any work, all at once; `dsa-sched place` gives it to other devices.
    """
    from dsa_sched.analysis.operator_support import GENERAL, operator_support
    from dsa_sched.report.listing import print_listing
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.stages.targets import target_of
    from hw_models.loading import load_chip

    described = load_chip(chip)
    target = target_of(described)
    with ProgressSteps() as steps:
        steps.say("trying each operator")
        rows = [row for support in operator_support(described, target) for row in support.rows]
    print_listing(("ONNX operator", described.name, "as, or why not"), rows)
    click.echo(f"\n{GENERAL}\n")
    print_listing(("kind", f"rules on {target.name}"), target.operators())
