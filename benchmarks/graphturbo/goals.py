"""What the benchmark is held to: `--goals` prints every row beside its goal and bound, and says what is missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.graphturbo.figures import Configuration
from benchmarks.graphturbo.launches import MOST_ERROR, TvmPlans
from benchmarks.graphturbo.readings import Readings, error_of
from benchmarks.graphturbo.rows import Json
from hw_models.chip import Chip

__all__ = ["WITHIN", "complaints", "goal_lines"]

WITHIN = 6
"""Of all configurations, how many are to have their TVM plan within that error, at one launch cost."""


def goal_lines(rows: Sequence[Json], configurations: Sequence[Configuration], chip: Chip) -> Iterator[str]:
    """A line for each row of the configurations."""
    readings = Readings(rows, chip, configurations)
    plans = TvmPlans(readings)
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
                _at_fitted_launch(plans, configuration, row) if variant == "tvm" else "",
            ]
            yield ", ".join(filter(None, words))


def _at_fitted_launch(plans: TvmPlans, configuration: Configuration, row: Json) -> str:
    """The TVM plan with as many kernels as were published, at the launch cost that fits all such plans best."""
    launch, kernels = plans.launch_cycles, configuration.tvm_kernels
    if launch is None or kernels is None:
        return ""
    predicted = plans.per_second(row, launch, kernels)
    error = error_of(predicted, configuration.tvm_per_second)
    return f"with the published {kernels} kernels at {launch / 1000:g} us a launch {predicted:,.0f} ({error:+.0%})"


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
    if len(configurations) >= WITHIN and len(within := TvmPlans(readings).within()) < WITHIN:
        yield (
            f"tvm: {len(within)} configurations within {MOST_ERROR:.0%} of what was published "
            f"({', '.join(within) or 'none'}), at least {WITHIN}"
        )
