"""`dsa-sched ops`: the ONNX operators that a chip computes, and under which rules."""

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

    Each way of writing an operator is tried: `yes` stands before those that `compile` takes, `no` before those that it
    refuses, with the reason that it gives. All that a model needs and the chip lacks is refused as one list before any
    work; with --host, or by `dsa-sched place`, other devices compute it.
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
