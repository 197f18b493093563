"""What the benchmark is held to: `--goals` prints every row beside its goal and bound, and says what is missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.graphturbo.figures import Configuration
from benchmarks.graphturbo.readings import Readings, error_of
from benchmarks.graphturbo.rows import Json
from hw_models.chip import Chip

__all__ = ["MOST_TVM_ERROR", "WITHIN", "complaints", "goal_lines", "tvm_within"]

MOST_TVM_ERROR = 0.35
WITHIN = 6
"""Of all configurations, how many are to have their TVM plan within that error, at one launch cost."""


def goal_lines(rows: Sequence[Json], configurations: Sequence[Configuration], chip: Chip) -> Iterator[str]:
    """A line for each row of the configurations."""
    readings = Readings(rows, chip, configurations)
    for configuration in configurations:
        for variant in configuration.variants:
            row = readings.row(configuration, variant)
            if row is None:
                continue
            predicted, published, bound = readings.predicted(row), readings.published(row), readings.bound(row)
            error = error_of(predicted, published)
            words = [
                f"{configuration.label}, {row['batch']} a cluster, {variant}: {predicted:,.0f} items/s",
                f"published {published:,.0f} ({error:+.0%})" if published and error is not None else "",
                f"bound {bound:,.0f}, {predicted / bound:.0%} of it",
                readings.above_bound(row),
                f"from {row['compiled_layers']} layers" if row["compiled_layers"] else "",
            ]
            yield ", ".join(filter(None, words))


def complaints(rows: Sequence[Json], configurations: Sequence[Configuration], chip: Chip) -> Iterator[str]:
    """What is not reached, a line each; the TVM plans are judged where enough configurations are asked for."""
    readings = Readings(rows, chip, configurations)
    refused = {(row["configuration"], row["variant"], row["batch"]): row["refusal"] for row in rows if row["refusal"]}
    for configuration in configurations:
        goal = configuration.goal_per_second
        if goal is None:
            continue
        who = f"{configuration.label}, {configuration.batch} a cluster, auto"
        row = readings.row(configuration, "auto")
        if row is None:
            why = refused.get((configuration.label, "auto", configuration.batch))
            yield f"{who}: {f'refused: {why}' if why else 'no row; run without --kept'}, of {goal:,.0f} items/s"
        elif (reached := readings.predicted(row)) < goal:
            yield f"{who}: {reached:,.0f} items/s of {goal:,.0f}, {reached / goal - 1:+.0%}"
    if len(configurations) >= WITHIN and len(within := tvm_within(readings)) < WITHIN:
        yield (
            f"tvm: {len(within)} configurations within {MOST_TVM_ERROR:.0%} of what was published "
            f"({', '.join(within) or 'none'}), at least {WITHIN}"
        )


def tvm_within(readings: Readings) -> list[str]:
    """Configurations whose TVM plan is predicted within the error."""
    found = []
    for configuration in readings.configurations:
        row = readings.row(configuration, "tvm") if "tvm" in configuration.variants else None
        if row is not None:
            error = error_of(readings.predicted(row), configuration.tvm_per_second)
            if error is not None and abs(error) <= MOST_TVM_ERROR:
                found.append(configuration.label)
    return found
