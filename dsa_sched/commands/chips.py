"""`dsa-sched chips`, `chip show`, `chip check` and `chip schema`: which chips there are, and whether a chip file can be
used."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
def chips() -> None:
    """List the built-in chips."""
    from hw_models.loading import builtin_chips, load_chip

    found = tuple(load_chip(name) for name in builtin_chips())
    width = max(len(chip.name) for chip in found)
    for chip in found:
        click.echo(f"{chip.name:<{width}}  {chip.description}")


@click.group()
def chip() -> None:
    """Show a chip, or check a chip file of your own."""


@chip.command()
@click.argument("chip", metavar="CHIP")
@click.option("--json", "as_json", is_flag=True, help="Print every field as JSON instead.")
def show(chip: str, as_json: bool) -> None:
    """Print memories, engines, links, costs and limits of CHIP, a built-in name or a chip file."""
    from hw_models.loading import load_chip

    loaded = load_chip(chip)
    click.echo(loaded.model_dump_json(indent=2) if as_json else str(loaded), nl=as_json)


@chip.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check the chip file FILE: every problem with its line, or one line that says that the file is good.

    Further lines warn of values that are possible but unusual, with the usual ones. If no machine code can be made for
    a good chip, a line says why, and whether networks can be planned for it.
    """
    from dsa_sched.stages.targets import able_to
    from hw_models.loading import inspect_chip

    loaded, warnings = inspect_chip(file)
    click.echo(f"{file}: good; chip {loaded.name}, isa {loaded.isa}, {loaded.cores} cores, hash {loaded.hash[:12]}")
    for warning in warnings:
        click.echo(warning.text(str(file), "warning"))
    able, reason = able_to(loaded)
    if reason:
        click.echo(f"{file}: note: {able}: {reason}")


@chip.command()
def schema() -> None:
    """Print the JSON schema of chip files, for editors and for tools that write them."""
    from hw_models.schema import chip_schema

    click.echo(json.dumps(chip_schema(), indent=2))
