"""`dsa-sched time`: how long machine code takes on a chip, by the cycle model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsa_sched.commands.options import (
    CHIP_OR_OWN,
    cache_option,
    division_options,
    elf_options,
    gathered_options,
    planning_options,
    require_elf,
    roll_option,
    schedule_option,
)
from dsa_sched.stages.gc_pause import uncollected

if TYPE_CHECKING:
    from dsa_sched.analysis.run_times import RunTimes
    from dsa_sched.stages.compile_options import CompileOptions
    from isched.bounds.lower_bounds import Bounds


@click.command(short_help="Say how long machine code takes on a chip.")
@click.argument("path", metavar="DIR|MODEL|PROGRAM.elf", type=click.Path(path_type=Path))
@CHIP_OR_OWN
@elf_options
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the same data as JSON, too."
)
@click.option(
    "--by",
    type=click.Choice(["stage", "group", "operator"]),
    help="Rows of the table of what binds where. Default: group, or stage if each layer is a group.",
)
@click.option("--warm", is_flag=True, help="Time a second run, whose code the first has brought into the caches.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="COUNTERS.csv",
    help="Also print measured cycles of the rows of that table beside the model's.",
)
@click.option("--bounds", is_flag=True, help="Also print a time below which no order of the same instructions can run.")
@planning_options
@division_options
@schedule_option
@roll_option
@cache_option
@gathered_options
@uncollected()
def time(
    path: Path,
    chip: str | None,
    cores: int | None,
    cluster: int | None,
    json_file: Path | None,
    by: str | None,
    warm: bool,
    against: Path | None,
    bounds: bool,
    options: CompileOptions,
    use_cache: bool,
) -> None:
    """Time the machine code of an artifact folder, of a model or of a program by the cycle model of its chip. A model
    is compiled as `compile` does with the same options, or taken from the build cache.

    \b
    dsa-sched time mine.out
    dsa-sched time resnet50 --chip stcp920 --batch 16
    dsa-sched time program.elf --chip ./mine.yaml --cores 4 --json time.json
    dsa-sched time mine.out --bounds
    dsa-sched time mine.out --by operator --against counters.csv

    \b
    What is printed
      time, cycles, and items per second if an artifact says how many items a run computes
      the cycles in which each engine works, and their share of the time after the launch
      what the scalar cores waited for, among it lines of code that their instruction caches did not have
      how long engines of one core worked at the same time
      what binds: the critical path, the chain of work and waiting that makes the run as long as it is, by cause and by
        part of the network, and what the scalar cores wait for in each part
      with --against, what was measured, model and measurement beside each other: the file has the columns layer (a row
        of the table of what binds where, `launch` or `whole run`), repetition, counter (`cycles`) and cycles
      of an artifact of several sizes, a row for each of them instead; the folder of a size has all of the above
      with --bounds, how far the run is from the shortest time that any order could take

    Only the executable is read, and no values are computed. docs/timing.md has the rules of the model and the origin of
    its numbers.
    """
    from dsa_sched.calibration.layers import compared
    from dsa_sched.commands.sources import is_compiled_for, is_sized_folder, times_of_source
    from dsa_sched.io.atomic_write import require_file
    from dsa_sched.report.progress import ProgressSteps
    from dsa_sched.report.timed_run import print_comparison, print_times, write_times

    require_elf(path, cores, cluster)
    if json_file is not None:
        require_file(json_file)
    if is_sized_folder(path):
        if warm or bounds or by is not None or against is not None:
            raise click.UsageError(
                f"{path} has several sizes; name the folder of one for --warm, --bounds, --by and --against."
            )
        _time_sizes(path, chip, json_file)
        return
    found: tuple[Bounds, ...] = ()
    with ProgressSteps() as steps:
        if is_compiled_for(path, chip) and not warm and not bounds:
            times = times_of_source(path, chip, options, use_cache, steps.say, by)
        else:
            times, found = _timed(path, chip, options, use_cache, steps.say, cores, cluster, by, warm, bounds)
    measured = compared(times, against) if against is not None else None
    print_times(times, found)
    if measured is not None:
        print_comparison(measured)
    if json_file is not None:
        write_times(times, json_file, found, measured)


def _time_sizes(folder: Path, chip: str | None, json_file: Path | None) -> None:
    from dsa_sched.commands.sources import loaded_sizes
    from dsa_sched.io.atomic_write import write_whole
    from dsa_sched.report.sized_tables import print_sized_times, sized_times_json

    made = loaded_sizes(folder, chip)
    print_sized_times(made, str(folder))
    if json_file is not None:
        text = sized_times_json(made).encode()
        write_whole(json_file, lambda stream: stream.write(text))


def _timed(
    path: Path,
    chip: str | None,
    options: CompileOptions,
    use_cache: bool,
    say: Callable[[str], None],
    cores: int | None,
    cluster: int | None,
    by: str | None,
    warm: bool,
    bounds: bool,
) -> tuple[RunTimes, tuple[Bounds, ...]]:
    """The times of a run that nothing is kept of, with the bounds of its programs where these are asked for."""
    from dsa_sched.analysis.artifact_timing import with_bounds
    from dsa_sched.analysis.run_sums import run_times
    from dsa_sched.commands.sources import timed_source

    described, run = timed_source(path, chip, options, use_cache, say, cores, cluster, warm)
    if bounds:
        say("bounding")
        run = with_bounds(run, described)
    return run_times(run, by), tuple(program.bounds for program in run.programs if program.bounds is not None)
