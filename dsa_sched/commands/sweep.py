"""`dsa-sched sweep`: networks x chips x options as one table, with what each choice costs and gains."""

from __future__ import annotations

from pathlib import Path

import click

from dsa_sched.commands.options import cache_option
from dsa_sched.commands.places import place_options


@click.command(short_help="Compile networks for many chips and options; a table, and what pays.")
@click.argument("file", metavar="SWEEP.yaml", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder of the results. Default: the name of the file, with .out. A sweep that was ended goes on there.",
)
@place_options
@click.option(
    "--parquet/--no-parquet",
    default=None,
    help="Write table.parquet, too, which needs the package pyarrow. Default: where that is installed.",
)
@click.option("--example", is_flag=True, help="Print a sweep file that shows every part, and end.")
@cache_option
def sweep(
    file: Path | None,
    output: Path | None,
    jobs: int | None,
    cluster: str | None,
    parquet: bool | None,
    example: bool,
    use_cache: bool,
) -> None:
    """Compile every network of SWEEP.yaml for every chip, with every combination of the values that the file gives to
    fields of chips and to options; what a chip would be like with more memory, cores or bandwidth is one line of it.

    \b
    dsa-sched sweep --example > sweep.yaml
    dsa-sched sweep sweep.yaml -o sweep.out
    dsa-sched sweep sweep.yaml -o sweep.out --cluster tcp://host:8786

    \b
    In the folder
      table.csv, table.json, table.parquet   a row per point: what was varied, status, reason, figures
      sweep.html                             throughput against memory, bandwidth, area and energy, with Pareto fronts
      points/                                a file per point, which a sweep that was ended goes on from

    A point that does not compile is a row with the reason. Times are those of the machine code by the cycle model; for
    chips without a code generator, and for GPUs, they are estimates, and the column `estimated` says so. Area and
    energy are there where the chip file gives coefficients (`proxies`). Equal files give equal tables.

    The exit code is 0 when every point has a row, and 1 for a file that is wrong and for points that a fault ended;
    these are tried again by the same command.
    """
    from dsa_sched.report.page.sweep_page import write_sweep_page
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.report.sweep_table import has_parquet, print_sweep, require_parquet, write_tables
    from dsa_sched.sweeping.carried_out import WorkPlace
    from dsa_sched.sweeping.sweep import run_sweep
    from dsa_sched.sweeping.sweep_file import EXAMPLE
    from dsa_sched.sweeping.table import sweep_table

    if example:
        click.echo(EXAMPLE, nl=False)
        return
    if file is None:
        raise click.UsageError("Missing argument 'SWEEP.yaml'. To begin with one: dsa-sched sweep --example")
    if parquet:
        require_parquet()
    folder = output if output is not None else file.with_suffix(".out")
    with ProgressSteps() as steps:
        found = run_sweep(file, folder, WorkPlace(jobs, cluster, use_cache), steps.say)
    table = sweep_table(found)
    print_sweep(table)
    files = write_tables(table, folder, has_parquet() if parquet is None else parquet)
    page = folder / "sweep.html"
    write_sweep_page(table, page)
    click.echo(f"\n{', '.join(str(each) for each in (*files, page))}")
    if parquet is None and not has_parquet():
        click.echo("no table.parquet: it needs the package pyarrow (pip install pyarrow)", err=True)
    if found.faults:
        click.get_current_context().exit(1)
