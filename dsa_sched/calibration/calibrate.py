"""From a chip file and measured cycles to a chip file with fitted numbers.

chip file, counters.csv --fitted--> ChipFit --fitted_text--> the chip file's text with other numbers, comments kept
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dsa_sched.calibration.counters import read_counters
from dsa_sched.calibration.emitted import calibration_of
from dsa_sched.calibration.fit import ChipFit, FittedNumber, fit_numbers
from hw_models.changes import chip_json
from hw_models.chip_numbers import source_of, with_comments, with_numbers
from hw_models.errors import ChipError, CountersError
from hw_models.loading import chip_text, parse_chip


def fitted(
    counters: Path, chip: str | Path, documented: bool = True, say: Callable[[str], None] = lambda _: None
) -> ChipFit:
    """Fit the numbers of a chip file to a file of measured cycles; without `documented`, only those for which the file
    names no document. Raises CountersError, ChipError or TargetError."""
    text, file = chip_text(chip)
    calibration = calibration_of(parse_chip(text, file))
    counts = read_counters(counters, calibration.counters)
    if counts.programs not in ("", calibration.programs):
        raise CountersError(
            str(counters),
            needs=f"cycles of the programs {calibration.programs}, which `calibrate emit` writes for {file}",
            has=f"those of the programs {counts.programs}",
            change="emit them again and measure those, or give the chip file for which they were emitted",
        )
    sources = {path: source_of(text, path, calibration.chip) for path in calibration.numbers}
    chosen = {path: source for path, source in sources.items() if documented or not source.documented}
    if not chosen:
        raise CountersError(file, needs="a number without a document", has="none", change="fit documented ones, too")
    return fit_numbers(calibration.chip, calibration.target, calibration.benchmarks, counts, chosen, say)


def fitted_text(fit: ChipFit, chip: str | Path) -> tuple[str, bool]:
    """The text of the chip file with the fitted numbers, and whether its comments were kept: a file in JSON has none,
    nor can a number be written that the file leaves to its default."""
    text, _ = chip_text(chip)
    changed = {n.path: (n.value, _comment(n)) for n in fit.numbers if n.changed}
    try:
        made, kept = with_comments(text, changed, fit.chip), True
    except ChipError:
        made, kept = chip_json(with_numbers(fit.chip, fit.values)), False
    parse_chip(made, fit.chip.name)
    return made, kept


def _comment(number: FittedNumber) -> str:
    error = f" +- {number.error:.2g}" if number.error else ""
    said = f"; {number.source.comment}" if number.source.comment else ""
    return f"[measured] {number.measured:.6g}{error}; before: {number.before:g}{said}"
