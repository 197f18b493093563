"""`dsa-sched report`: one page about an artifact, for a browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import (
    CHIP_OR_OWN,
    cache_option,
    division_options,
    gathered_options,
    planning_options,
    roll_option,
    schedule_option,
)
from dsa_sched.stages.gc_pause import uncollected

if TYPE_CHECKING:
    from dsa_sched.stages.compile_options import CompileOptions


@click.command(short_help="Write one page about an artifact, for a browser.")
@click.argument("source", metavar="DIR|MODEL")
@CHIP_OR_OWN
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="The page to write.",
)
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Show the difference from the artifact in DIR, too, as `diff` does.",
)
@click.option(
    "--verified",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Show the report that `verify --json` wrote, too.",
)
@planning_options
@division_options
@schedule_option
@roll_option
@cache_option
@gathered_options
@uncollected()
def report(
    source: str,
    chip: str | None,
    output: Path,
    against: Path | None,
    verified: Path | None,
    options: CompileOptions,
    use_cache: bool,
) -> None:
    """Write one HTML file about the artifact in DIR, or about a model, which is compiled as `compile` does. It opens in
    any browser, without a network.

    \b
    dsa-sched report mine.out
    dsa-sched report resnet50 --chip stcp920 --batch 16 -o resnet50.html
    dsa-sched report today.out --against released.out --verified report.json

    \b
    On the page
      a summary: time, what binds, bytes, room in the memories, options
      the graph of layers, coloured by group: a click shows a layer's and its group's numbers, its instances with what
        each core computes, the decisions about them and the first lines of its machine code; the search marks layers
      what every kind of engine does when, and how full the memories are
      the groups under the roofline of a cluster
      what binds in each group, the bytes that it moves, and all decisions
      with --verified, the errors of all layers next to what is allowed
      with --against, which of the two artifacts is faster, why, and what was decided differently
    """
    from dsa_sched.analysis.overview import overview
    from dsa_sched.artifact.format import Artifact
    from dsa_sched.builds.explained_build import difference_of, told_of_artifact
    from dsa_sched.commands.sources import artifact_of, build_cache
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.report.page.page import PageContent, write_page
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.verification.kept_report import read_accuracy, require_about
    from hw_models.errors import size_text

    require_file(output)
    accuracy = read_accuracy(verified) if verified is not None else None
    before = Artifact.load(against) if against is not None else None
    builds, difference = build_cache(use_cache), None
    with ProgressSteps() as steps:
        artifact = artifact_of(source, chip, options, use_cache, steps.say)
        if accuracy is not None and verified is not None:
            require_about(accuracy, artifact, verified)
        told = told_of_artifact(artifact, builds, None, steps.say)
        if before is not None:
            difference = difference_of(before, artifact, (str(against), source), builds, steps.say)
        found = overview(artifact, told.explanation, steps.say)
        steps.say("drawing")
        size_bytes = write_page(PageContent(found, accuracy, difference), output)
    click.echo(f"{output}: {size_text(size_bytes)}")
