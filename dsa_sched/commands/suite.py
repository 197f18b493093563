"""`dsa-sched suite`: a set of networks compiled, verified and timed, against the run before."""

from __future__ import annotations

from pathlib import Path

import click

from dsa_sched.commands.options import cache_option
from dsa_sched.commands.places import place_options


@click.command(short_help="Compile, verify and time a set of networks, against the run before.")
@click.argument("file", metavar="SUITE.yaml", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder of the results. Default: the name of the file, with .out. A suite that was ended goes on there.",
)
@click.option(
    "--against",
    type=click.Path(exists=True, path_type=Path),
    metavar="DIR|FILE",
    help="An earlier run, by its folder or its suite.json: nothing may be worse than it was there.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, max=1_000_000),
    default=0.0,
    show_default=True,
    metavar="PERCENT",
    help="With --against: by how much more time an item may take than before.",
)
@place_options
@click.option("--example", is_flag=True, help="Print a suite file that shows every part, and end.")
@cache_option
@click.pass_context
def suite(
    context: click.Context,
    file: Path | None,
    output: Path | None,
    against: Path | None,
    tolerance: float,
    jobs: int | None,
    cluster: str | None,
    example: bool,
    use_cache: bool,
) -> None:
    """Compile every network of SUITE.yaml for every chip and with every option of the file, verify and time it. The
    results are a table, JUnit XML for a team's CI, and a page.

    \b
    dsa-sched suite --example > suite.yaml
    dsa-sched suite suite.yaml -o monday
    dsa-sched suite suite.yaml -o tuesday --against monday --tolerance 2

    \b
    In the folder
      suite.json    every case with its checks and times, which a later run is set against
      junit.xml     a test case per case and check
      suite.html    the same as a page, with the change of every time
      points/       a file per case, which a suite that was ended goes on from

    Without --against, every check must pass. With it, none may be worse than before: what failed then and fails still
    is listed as known. A case whose model, chip, options and compiler are those of a result in the folder is not made
    again.

    \b
    Exit codes, the first that fits
      1  something does not compile, or a fault ended a case
      3  results of a run are not those of the reference
      4  rounding alone may make results wrong
      5  an item takes longer than before by more than --tolerance
      0  none of this
    """
    from dsa_sched.report.page.suite_page import write_suite_page
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.report.suite_report import gone, print_suite, write_suite
    from dsa_sched.suites.suite import exit_code, judged, read_earlier, run_suite
    from dsa_sched.suites.suite_file import EXAMPLE
    from dsa_sched.sweeping.carried_out import WorkPlace

    if example:
        click.echo(EXAMPLE, nl=False)
        return
    if file is None:
        raise click.UsageError("Missing argument 'SUITE.yaml'. To begin with one: dsa-sched suite --example")
    earlier = read_earlier(against) if against is not None else None
    folder = output if output is not None else file.with_suffix(".out")
    with ProgressSteps() as steps:
        found = run_suite(file, folder, WorkPlace(jobs, cluster, use_cache), steps.say)
    cases = judged(found, earlier, tolerance / 100)
    print_suite(found.suite.name, cases)
    for title in gone(cases, earlier or {}):
        click.echo(f"no longer in the suite: {title}")
    files = write_suite(found.suite.name, cases, folder)
    page = folder / "suite.html"
    write_suite_page(found.suite.name, cases, page)
    click.echo(", ".join(str(each) for each in (*files, page)))
    context.exit(exit_code(cases))
