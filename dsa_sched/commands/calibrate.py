"""`dsa-sched calibrate emit` and `calibrate fit`: a chip file whose numbers are those of the silicon."""

from __future__ import annotations

from pathlib import Path

import click

from dsa_sched.stages.gc_pause import uncollected

CHIP = click.option("--chip", required=True, metavar="CHIP", help="Built-in chip or chip file.")


@click.group()
def calibrate() -> None:
    """Measure the numbers of a chip file.

    Write micro-benchmarks, measure their cycles, and fit the file to these.

    \b
    dsa-sched calibrate emit --chip mine.yaml -o bench
    ... run bench/programs/*.elf on the board, fill bench/template.csv in as counters.csv ...
    dsa-sched calibrate fit counters.csv --chip mine.yaml -o fitted.yaml
    """


@calibrate.command()
@CHIP
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to write.")
def emit(chip: str, output: Path) -> None:
    """Write micro-benchmarks for CHIP into a folder, as programs that run on the chip or on a simulator of its
    instruction set.

    \b
    dsa-sched calibrate emit --chip stcp920 -o bench
    dsa-sched iss bench/programs/matrix_start.elf

    \b
    What is written
      programs/NAME.elf  an executable per benchmark; where a benchmark runs on several clusters at once, one for each,
                         NAME.cluster0.elf and so on, to be started together
      manifest.json      what each benchmark does, which numbers of the chip file it isolates, on how many cores it
                         starts, and which counters to read
      template.csv       a line for each counter of each repetition: fill in the column cycles, and leave it empty
                         where a counter could not be read

    \b
    What is measured
      every engine and link by itself: its start, its rate by size and shape, the edges of the array, rows that lie
        apart, chains of descriptors
      pairs of engines, the queue of an engine, barriers, and several cores and clusters that share a link
      the launch, the scalar core, and its instruction cache

    Operands are what the memories hold: no result depends on them. Run each program as often as the template says, and
    once before that where the first run of a program is slower for reasons outside of the chip.
    """
    from dsa_sched.artifact.whole_folder import require_place, write_folder
    from dsa_sched.calibration.emitted import TEMPLATE, calibration_of, emitted
    from hw_models.loading import load_chip

    require_place(output)
    calibration = calibration_of(load_chip(chip))
    write_folder(output, emitted(calibration))
    click.echo(
        f"{output}: {len(calibration.benchmarks)} benchmarks that isolate {len(calibration.numbers)} numbers; "
        f"what to count is in {output / TEMPLATE}"
    )


@calibrate.command()
@click.argument("counters", metavar="COUNTERS.csv", type=click.Path(path_type=Path))
@CHIP
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FITTED.yaml", help="Chip file to write."
)
@click.option("--page", type=click.Path(path_type=Path), metavar="FILE.html", help="Draw the residuals for a browser.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the same data as JSON, too."
)
@click.option("--full", is_flag=True, help="Print the residuals of all benchmarks.")
@click.option("--keep-documented", is_flag=True, help="Fit only numbers for which the chip file names no document.")
@uncollected()
def fit(
    counters: Path,
    chip: str,
    output: Path,
    page: Path | None,
    json_file: Path | None,
    full: bool,
    keep_documented: bool,
) -> None:
    """Fit the numbers of CHIP to measured cycles of the benchmarks that `calibrate emit` wrote for it, and write a chip
    file with the fitted ones.

    \b
    dsa-sched calibrate fit counters.csv --chip stcp920 -o fitted.yaml
    dsa-sched calibrate fit counters.csv --chip mine.yaml -o fitted.yaml --page residuals.html --full

    \b
    COUNTERS.csv has a line for each measurement, with the columns
      benchmark   its name
      repetition  a number, from 0
      counter     which counter: `manifest.json` says which ones a benchmark has
      cycles      the cycles; empty if they were not measured

    The cycle model is run again and again with other numbers until it gives the measured cycles: robust least squares,
    on which a few wrong measurements have little weight. A number that agrees with its measurement stays as it is. One
    that no measurement determines stays, too, and is named. Where only a sum can be measured, documented numbers stay
    and the others get the rest. A documented number (one with a source in brackets next to it in the file) changes only
    if the measurements contradict it, and a warning says so. In the file, fitted numbers are marked [measured], with
    their standard error and what stood there before; all other lines stay.
    """
    from dsa_sched.calibration.calibrate import fitted, fitted_text
    from dsa_sched.commands.options import require_different
    from dsa_sched.io.atomic_write import require_file, write_whole
    from dsa_sched.report.calibration import print_fit, write_fit
    from dsa_sched.report.page.residuals import write_residuals
    from dsa_sched.report.progress import ProgressSteps

    targets = (output, *(file for file in (page, json_file) if file is not None))
    require_different(targets)
    for target in targets:
        require_file(target)
    with ProgressSteps() as steps:
        found = fitted(counters, chip, not keep_documented, steps.say)
        text, kept = fitted_text(found, chip)
    print_fit(found, full)
    write_whole(output, lambda stream: stream.write(text.encode()))
    click.echo(f"{output}: {len(found.values)} numbers differ from {chip}" + ("" if kept else "; comments were lost"))
    if json_file is not None:
        write_fit(found, json_file)
    if page is not None:
        write_residuals(found, page)
        click.echo(f"residuals in {page}")
