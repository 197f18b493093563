"""`dsa-sched chips`, `chip new`, `chip show`, `chip check` and `chip schema`: which chips there are, a file for a chip
of your own, and whether it can be used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
NUMBER = re.compile(r"(\d[\d_]*(?:\.\d+)?) ?(KiB|MiB|GiB)?")
CLOCK = re.compile(r"(\d[\d_]*(?:\.\d+)?) ?(MHz|GHz)?", re.IGNORECASE)
ARRAY = re.compile(r"(\d+)x(\d+)")


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
    """Show a chip, or write and check a chip file of your own."""


def _number(text: str) -> int | float:
    """`768 KiB` or `0.5`. Raises BadParameter."""
    found = NUMBER.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a number, or one with KiB, MiB or GiB, such as 768KiB")
    value = float(found[1].replace("_", "")) * UNITS[found[2] or ""]
    return int(value) if value.is_integer() else value


def _pairs(_context: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, int | float]:
    """NAME=NUMBER, several times."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not of the form NAME=NUMBER")
        found[name] = _number(value)
    return found


def _name(_context: click.Context, _param: click.Parameter, given: str) -> str:
    """A name of a chip. Raises BadParameter."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", given) is None:
        raise click.BadParameter("a name is a letter, then letters, digits, _ and -")
    return given


def _array(_context: click.Context, _param: click.Parameter, given: str | None) -> tuple[int, int] | None:
    """PIXELSxCHANNELS. Raises BadParameter."""
    if given is None:
        return None
    found = ARRAY.fullmatch(given)
    if found is None:
        raise click.BadParameter(f"{given!r} is not of the form PIXELSxCHANNELS")
    return int(found[1]), int(found[2])


def _clock(_context: click.Context, _param: click.Parameter, given: str | None) -> int | None:
    """A number of MHz, or one with its unit, in Hz. Raises BadParameter."""
    if given is None:
        return None
    found = CLOCK.fullmatch(given.strip())
    unit_hz = 10**9 if found is not None and (found[2] or "").lower() == "ghz" else 10**6
    hertz = round(float(found[1].replace("_", "")) * unit_hz) if found is not None else 0
    if hertz < 1:
        raise click.BadParameter(f"{given!r} is not a number of MHz, or one with a unit, such as 1.2GHz")
    return hertz


def _require_new(file: Path) -> None:
    """Refuse a file that is there. Raises UsageError."""
    if file.exists():
        raise click.UsageError(f"{file} exists; name another file with -o, or remove it.")


@chip.command()
@click.argument("name", metavar="NAME", callback=_name)
@click.option(
    "--like", metavar="CHIP", default="stcp920", show_default=True,
    help="The chip to start from: a built-in name or a chip file.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The file to write. Default: NAME.yaml."
)
@click.option("--clusters", type=click.IntRange(min=1), help="Clusters of cores.")
@click.option("--cores", type=click.IntRange(min=1), help="Cores of a cluster.")
@click.option("--clock", callback=_clock, metavar="MHZ", help="Clock of the cores: 600, or with a unit, 1.2GHz.")
@click.option(
    "--array", callback=_array, metavar="PxC", help="Matrix engine: pixels x channels at once, such as 32x32."
)
@click.option("--lanes", type=click.IntRange(min=1), help="Elements of the vector engine per cycle.")
@click.option("--memory", multiple=True, callback=_pairs, metavar="NAME=SIZE", help="Size of a memory: L1=768KiB.")
@click.option(
    "--set", "fields", multiple=True, callback=_pairs, metavar="PATH=NUMBER",
    help="Any other field: links.ddr_to_llb.latency_cycles=120.",
)  # fmt: skip
def new(
    name: str,
    like: str,
    output: Path | None,
    clusters: int | None,
    cores: int | None,
    clock: int | None,
    array: tuple[int, int] | None,
    lanes: int | None,
    memory: dict[str, int | float],
    fields: dict[str, int | float],
) -> None:
    """Write a chip file NAME.yaml like a built-in chip, or like a chip file of yours, with the values that are given.
    Comments stay: they say what each field is, which values were given, and which are still the other chip's.

    \b
    dsa-sched chip new mine --cores 4 --clusters 1 --array 32x32 --memory L1=768KiB
    dsa-sched chip new half --like mine.yaml --memory L1=384KiB
    dsa-sched chip new slow --clock 600 --set links.ddr_to_llb.bandwidth_bytes_per_cycle=13.5 -o slow.yaml

    Parts of a memory (the data and weights of an L1) keep their shares of it; --set gives them other sizes. A memory,
    an engine or a link is removed in the file, with all that names it: `chip check` lists what still does.
    """
    from dsa_sched.io.atomic_write import require_file, write_whole
    from hw_models.derived_chip import derived_text
    from hw_models.errors import size_text
    from hw_models.loading import load_chip

    named = {engine.kind: engine.name for engine in load_chip(like).engines}
    vector, matrix = (f"engines.{named.get(kind, kind)}" for kind in ("vector", "matrix"))
    given = {
        "clusters": clusters,
        "cores_per_cluster": cores,
        "clock_hz": clock,
        f"{vector}.lanes": lanes,
        f"{matrix}.array_pixels": array[0] if array else None,
        f"{matrix}.array_channels": array[1] if array else None,
        **{f"memories.{each}.size_bytes": size for each, size in memory.items()},
        **fields,
    }
    values = {path: value for path, value in given.items() if value is not None}
    file = output or Path(f"{name}.yaml")
    require_file(file)
    _require_new(file)
    text = derived_text(like, name, values).encode()
    write_whole(file, lambda stream: stream.write(text))
    made = load_chip(file)
    count = f"{len(values)} {'value' if len(values) == 1 else 'values'}"
    click.echo(f"{file}: like {like}, {count} given; see: dsa-sched chip check {file}")
    for each in made.memories:
        if f"memories.{each.name}.size_bytes" in values and each.buffers:
            parts = ", ".join(f"{part.name} {size_text(part.size_bytes)}" for part in each.buffers)
            path = f"memories.{each.name}.buffers.PART.size_bytes"
            click.echo(f"{each.name} is divided into {parts}; --set {path}=SIZE changes it")


@chip.command()
@click.argument("chip", metavar="CHIP")
@click.option("--json", "as_json", is_flag=True, help="Print every field as JSON instead.")
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write the drawing as SVG, too.")
def show(chip: str, as_json: bool, svg: Path | None) -> None:
    """Print memories, engines, links, costs and limits of CHIP, a built-in name or a chip file, then draw it.

    \b
    dsa-sched chip show stcp920
    dsa-sched chip show mine.yaml --svg mine.svg

    The drawing has a line per memory and engine, from the chip to its clusters and their cores; a column per link, from
    the memory that it reads to the one that it fills, with the engine that drives it; and a column per engine, with the
    memories that it reads and writes.
    """
    from dsa_sched.analysis.chip_map import chip_map
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.report.chip_map_plot import FORMATS, write_chip_map
    from dsa_sched.report.chip_map_text import chip_map_lines
    from dsa_sched.report.figure_file import require_format
    from dsa_sched.report.listing import output_console
    from hw_models.loading import load_chip

    if svg is not None:
        require_format(svg, FORMATS)
        require_file(svg)
    loaded = load_chip(chip)
    drawn = chip_map(loaded)
    if as_json:
        click.echo(loaded.model_dump_json(indent=2))
    else:
        click.echo(f"{loaded}\n" + "\n".join(chip_map_lines(drawn, output_console().options.ascii_only)))
    if svg is not None:
        write_chip_map(drawn, svg)


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
