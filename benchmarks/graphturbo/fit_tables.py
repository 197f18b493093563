"""What the fit says, what it does not, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.graphturbo.fit import CLOSE, TOLERANCE, Fit
from benchmarks.graphturbo.readings import Readings
from benchmarks.graphturbo.rows import FITTED
from benchmarks.graphturbo.settings import (
    EXAMPLE,
    INFERRED,
    LIMITS,
    Setting,
    chip_of,
    example_of,
    favourable,
    mid_range,
)
from benchmarks.graphturbo.sums import read_sums
from benchmarks.output import table
from hw_models.chip import Chip

__all__ = ["alone", "example", "fit_text", "inferred"]


def fit_text(fit: Fit, readings: Readings) -> str:
    """The numbers, and in words what the rows do not tell."""
    return "\n\n".join(
        (
            "Fitted to the vendor's profiler example, which holds exactly, and the rows marked above. Error: root of "
            f"the mean square of ln(predicted / published) over these rows, {fit.home_error:.3f} with favourable "
            f"numbers, {fit.chosen_error:.3f} for the chosen setting, "
            f"{fit.best_error:.3f} for the best of {fit.errors.size:,}. "
            f"Chosen: the nearest to the favourable one of those within {CLOSE:g} of the best. Range: the "
            f"{int(fit.within.sum()):,} within {TOLERANCE:g} of it, which these rows cannot tell apart.",
            _numbers(fit),
            *_not_identified(fit),
            *_verdicts(readings),
            *_checks(fit, readings),
        )
    )


def _numbers(fit: Fit) -> str:
    headings = (
        "number", "favourable", "mid-range", "fitted", "range", "limits", "best error by value", "identified",
        "why these limits",
    )  # fmt: skip
    middle = mid_range(fit.chip)
    unidentified = fit.unidentified()
    cells = (
        [
            limit.what,
            f"{getattr(fit.home, name):g}",
            f"{getattr(middle, name):g}",
            f"{getattr(fit.chosen, name):g}",
            "{:g} to {:g}".format(*fit.values_within(name)),
            f"{min(limit.values):g} to {max(limit.values):g}",
            ", ".join(
                f"{value:g}: {error:.3f}" for value, error in zip(limit.values, fit.best_by_value(name), strict=True)
            ),
            "no" if name in unidentified else "",
            limit.reason,
        ]
        for name, limit in LIMITS.items()
    )
    return table(headings, cells)


def _not_identified(fit: Fit) -> Iterator[str]:
    names = [LIMITS[name].what for name in fit.unidentified()]
    if names:
        yield (
            f"Not identified: {'; '.join(names)}. Whatever value these have within their limits, the others can be "
            f"set such that the rows fit within {CLOSE:g} of the best."
        )
    alone = {limit.what: fit.error_with_only([name]) for name, limit in LIMITS.items()}
    what = min(alone, key=alone.__getitem__)
    yield f"With one number alone moved from its favourable value the error is {alone[what]:.3f} at best ({what})."


def _verdicts(readings: Readings) -> Iterator[str]:
    for figure, _, verdict in readings.verdicts():
        yield f"Figure {figure}, held out, speaks {verdict} it."


def _checks(fit: Fit, readings: Readings) -> Iterator[str]:
    """How far sums are from the clock, at the chosen setting."""
    worst = []
    for row in readings.by_key.values():
        sums = read_sums(row["sums"])
        if sums and FITTED in row["runs"] and row["variant"] != "full" and row["fit"] == fit.digest:
            worst.append(abs(sums.cycles(fit.chosen) / row["runs"][FITTED]["cycles"] - 1))
    if worst:
        yield f"The sums behind the range differ from the clock by at most {max(worst):.2%} at the chosen setting."


def inferred() -> str:
    """What the chip file takes from the same evaluation that it is held beside."""
    text = "No document of the chip gives these; rows of the same paper are no independent test of them.\n\n"
    return text + table(("number", "from"), INFERRED.items())


def alone(readings: Readings) -> str:
    """What one number at its far limit does to throughput, the others favourable: which is worth a measurement."""
    home = favourable(readings.chip)
    far = {name: limit.values[-1] for name, limit in LIMITS.items()}
    headings = ("network", "variant", "batch", *(f"{LIMITS[name].what}: {value:g}" for name, value in far.items()))
    cells = []
    for row in readings.by_key.values():
        sums = read_sums(row["sums"])
        if sums and row["variant"] in ("tvm", "ordering", "auto"):
            now = sums.cycles(home)
            changes = (now / sums.cycles(home.changed({name: value})) - 1 for name, value in far.items())
            told = (f"{change:+.1%}" if round(change, 3) else "" for change in changes)
            cells.append([row["configuration"], row["variant"], str(row["batch"]), *told])
    text = (
        "Change of throughput where one number has the least favourable of its limits and the others stay favourable, "
        "by the sums: every step awaited, so that of `auto`, which overlaps, it is the most that could be felt.\n\n"
    )
    return text + table(headings, cells)


def example(chip: Chip, fit: Fit | None) -> str:
    """It holds in every setting, by construction."""
    settings: dict[str, Setting] = {"favourable": favourable(chip), "mid-range": mid_range(chip)}
    if fit is not None:
        settings["fitted"] = fit.chosen
    found = {name: example_of(chip_of(setting, chip)) for name, setting in settings.items()}
    cells = (
        [what, f"{published:g}", *(f"{found[name][what]:g}" for name in settings)]
        for what, published in EXAMPLE.items()
    )
    return table(("cycles of", "published", *settings), cells)
