"""`dsa-sched ops`: which operators a chip's code generator computes, and under which rules."""

from __future__ import annotations

import click

from dsa_sched.commands.options import CHIP

__all__ = ["ops"]


@click.command(short_help="List the operators that can be compiled for a chip.")
@CHIP
def ops(chip: str) -> None:
    """List the operator kinds that can be compiled for CHIP, with the rules of each, then the ONNX operators read.

    \b
    dsa-sched ops --chip stcp920

    An operator that breaks a rule is refused before any work, with its name, all of them at once.
    """
    from dsa_sched.driver import target_of
    from dsa_sched.frontend.network import OURS
    from dsa_sched.frontend.operators import SHAPE_ONLY, SIMPLIFIED_AWAY, operator_names
    from dsa_sched.report.listing import print_listing
    from hw_models.loading import load_chip

    target = target_of(load_chip(chip))
    print_listing(("kind", f"rules on {target.name}"), target.operators())
    names = {*operator_names(), *SIMPLIFIED_AWAY, *SHAPE_ONLY, "Constant", "ConstantOfShape"} - {*OURS}
    click.echo(f"\nONNX operators that the frontend reads: {', '.join(sorted(names))}")
