"""The published evaluation, predicted: `python benchmarks/graphturbo_paper.py [--network NAME]... [--goals]`.

    published configurations --compile, clock--> rows, kept by key --fit--> range of the fit --> tables

    --network NAME        only these networks; likewise --variant and --batch (a cluster)
    --few, --whole        which rows of networks of equal layers follow from one and two of them and say so: all, or
                          none; of neither is said those of all variants but auto
    --results FILE        rows are kept in it and added to it; a run that was stopped goes on where it was
    --markdown FILE       write the tables to FILE, not the screen
    --renew               takes rows of older sources, or of another fit, again
    --kept                measures nothing
    --goals               exits with 1 where level auto misses a goal, or too few rows of the TVM plan are within 35 %
                          of what was published, and prints what each row is beside its goal and bound

Every published variant of a network (`benchmarks.graphturbo.measure`) is compiled at its published batch and timed by
the clock: with the most favourable numbers that documents allow, with each unpublished number in the middle of its
limits, and over the range of a fit to three rows of ResNet-50 (`benchmarks.graphturbo.settings`, `.fit`). All else is
predicted. docs/fidelity.md says how to read it. A row from fewer layers gives way to one of
the whole network where that is asked for.

Keys of the JSON object: `chip`, and `rows`, each of them (`benchmarks.graphturbo.rows`)

    configuration, column, variant, batch    the network, its column in the published tables; items a cluster
    compiled_layers       from how many layers the row follows; null where the whole network was compiled
    sources               the hash of the compiler's sources that it was made with: rows of older ones stay
    refusal               why there is no program, else empty; then nothing follows
    level, passes         of the program, and how often it runs
    launches, instructions, seconds (of the processor, from the model file to the program)
    row_seconds           of the processor for all of the row: every compilation, every column
    tensors               in DDR, LLB and L1
    floor_cycles          below which no plan is, by bytes a cycle of the DDR, launches not counted
    sums                  what the run takes under every setting of the grid, each step awaited
    runs                  column of numbers -> `cycles` of all passes, launches included; `busy_core_cycles`;
                          `matrix_percent` by stage; `bound_cycles`, `engine_cycles`: of any order of the instructions,
                          of the busiest engine, link or memory; `asynchronous_cycles`: in program order, not awaited
    fit                   which fit gave the columns of the fit, null of rows that it sees and where there was none yet
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

from benchmarks.graphturbo.figures import CONFIGURATIONS, Configuration
from benchmarks.graphturbo.fit import Fit
from benchmarks.graphturbo.goals import complaints, goal_lines
from benchmarks.graphturbo.measure import VARIANTS
from benchmarks.graphturbo.rows import FITTED_TO, Json, Wanted, fit_of, key_of, measure, wanted
from benchmarks.graphturbo.tables import markdown
from benchmarks.output import at_least_one, output_file
from dsa_sched.devices.chip_device import COMPILER
from dsa_sched.io.atomic_write import write_whole
from dsa_sched.io.source_hash import source_hash
from hw_models.chip import Chip
from hw_models.loading import load_chip
from partitioner.planners.levels import AUTO

RESULTS = Path(__file__).parent / "results" / "graphturbo_paper.json"


def to_measure(
    rows: Sequence[Json],
    asked: Sequence[Wanted],
    known: Fit | None,
    sources: str | None,
    first: Configuration = CONFIGURATIONS[0],
) -> list[Wanted]:
    """What has no row yet, or one that lacks something: what the fit sees first, so that others have its columns. Where
    `sources` are given, rows of others too, and rows that had another fit."""
    there = {key_of(row): row for row in rows}

    def lacking(one: Wanted) -> bool:
        row = there.get(one.key)
        if row is None or sources not in (None, row["sources"]):
            return True
        lacks_the_fit = False
        if known is not None and late(one, first):
            lacks_the_fit = row["fit"] is None if sources is None else row["fit"] != known.digest
        lacks_layers = one.layers is None and row["compiled_layers"] is not None
        return not row["refusal"] and (lacks_the_fit or lacks_layers)

    return sorted(filter(lacking, asked), key=lambda one: late(one, first))


def late(one: Wanted, first: Configuration) -> bool:
    """Whether the fit does not see it."""
    return (
        one.configuration is not first
        or one.variant not in FITTED_TO
        or one.batch != one.configuration.batch_of(one.variant)
    )


def measure_all(
    asked: Sequence[Wanted],
    rows: list[Json],
    chip: Chip,
    results: Path,
    renew: bool = False,
    first: Configuration = CONFIGURATIONS[0],
) -> None:
    """Make what lacks, a row at a time; each is in the results before the next is begun."""
    sources = source_hash(COMPILER)
    with TemporaryDirectory() as folder:
        for _ in range(2):  # what the fit sees may be new after the first time: then other rows lack their columns
            known = fit_of(rows, chip, first)
            for one in to_measure(rows, asked, known, sources if renew else None, first):
                row = measure(one, chip, known if late(one, first) else None, sources, Path(folder))
                rows[:] = [other for other in rows if key_of(other) != one.key] + [row]
                known = known if known and late(one, first) else fit_of(rows, chip, first)
                say = row["refusal"] or f"{row['runs']['favourable']['cycles']:,.0f} cycles, {row['seconds']} s"
                print(*one.key, say, file=sys.stderr, flush=True)
                write(results, json.dumps({"chip": chip.name, "rows": ordered(rows)}, indent=1) + "\n")


def ordered(rows: Sequence[Json]) -> list[Json]:
    """As the tables have them, whatever the order in which they were made."""
    place = {one.key: number for number, one in enumerate(wanted())}
    return sorted(rows, key=lambda row: (place.get(key_of(row), len(place)), key_of(row)))


def read(path: Path) -> list[Json]:
    """Rows of earlier runs."""
    if not path.is_file():
        return []
    found: list[Json] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [row for row in found if "sources" in row]


def write(path: Path, text: str) -> None:
    write_whole(path, lambda stream: stream.write(text.encode()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(dict.fromkeys(configuration.network for configuration in CONFIGURATIONS))
    parser.add_argument("--network", action="append", choices=names)
    parser.add_argument("--variant", action="append", choices=list(VARIANTS))
    parser.add_argument("--batch", action="append", type=at_least_one, metavar="N")
    parser.add_argument("--results", type=output_file, default=RESULTS, metavar="FILE")
    parser.add_argument("--markdown", type=output_file, metavar="FILE")
    extent = parser.add_mutually_exclusive_group()
    for flag in ("--few", "--whole"):
        extent.add_argument(flag, action="store_true")
    for flag in ("--renew", "--kept", "--goals"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    asked = [
        replace(one, few=options.few or (not options.whole and one.variant != AUTO))
        for one in wanted()
        if one.configuration.network in (options.network or (one.configuration.network,))
        and one.variant in (options.variant or (one.variant,))
        and one.batch in (options.batch or (one.batch,))
    ]
    chip, rows = load_chip("stcp920"), read(options.results)
    if not options.kept:
        measure_all(asked, rows, chip, options.results, options.renew)
    text = markdown(ordered(rows), chip, source_hash(COMPILER))
    if options.markdown:
        write(options.markdown, text)
    if options.goals:
        networks = {one.configuration.network for one in asked}
        configurations = [one for one in CONFIGURATIONS if one.network in networks]
        print("\n".join(goal_lines(rows, configurations, chip)))
        wrong = list(complaints(rows, configurations, chip))
        print("\n".join(wrong) or "every goal is reached", file=sys.stderr)
        return 1 if wrong else 0
    if not options.markdown:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
