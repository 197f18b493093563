"""`dsa-sched diff`: which of two artifacts is faster, by how much, and why."""

from __future__ import annotations

from pathlib import Path

import click

from dsa_sched.commands.options import cache_option
from dsa_sched.stages.gc_pause import uncollected

SLOWER = 5
"""Exit code where an item takes longer than before by more than --tolerance."""


@click.command(short_help="Compare two artifacts: which is faster, by how much, and why.")
@click.argument("before", metavar="BEFORE", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("after", metavar="AFTER", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, max=1_000_000),
    metavar="PERCENT",
    help=f"Exit with {SLOWER} if an item takes longer than before by more than this.",
)
@click.option("--full", is_flag=True, help="Print all parts and all decisions that differ.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the same data as JSON, too."
)
@cache_option
@click.pass_context
@uncollected()
def diff(
    context: click.Context,
    before: Path,
    after: Path,
    tolerance: float | None,
    full: bool,
    json_file: Path | None,
    use_cache: bool,
) -> None:
    """Compare two folders that `compile` wrote: of one network with other options, for another chip, by another
    version of the compiler, or of two networks.

    \b
    dsa-sched diff before.out after.out
    dsa-sched diff o1.out o3.out --full --json diff.json
    dsa-sched diff released.out today.out --tolerance 2

    \b
    What is printed
      one line: faster or slower, by how much, what binds more or less than before, and where
      options and fields of the chip that differ
      time per item, instructions, groups, instances, bytes by way, room in the memories
      the time of one pass by what binds
      the parts of the network, the largest change first: the smallest sets of layers that both plans make of whole
        groups
      the decisions that only one of the two has

    Times are those of the machine code by the cycle model; for GPUs they are estimates. With --tolerance, the exit code
    is 5 if AFTER is slower by more than that, which lets a team's CI compare with what it released.
    """
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.builds.explained_build import difference_of
    from dsa_sched.commands.sources import build_cache
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.report.difference import print_difference, write_difference
    from dsa_sched.report.progress import ProgressSteps

    if json_file is not None:
        require_file(json_file)
    with ProgressSteps() as steps:
        artifacts = Artifact.load(before), Artifact.load(after)
        found = difference_of(*artifacts, (str(before), str(after)), build_cache(use_cache), steps.say)
    print_difference(found, full)
    if json_file is not None:
        write_difference(found, json_file)
    if tolerance is not None and found.slower_than(tolerance / 100):
        context.exit(SLOWER)
