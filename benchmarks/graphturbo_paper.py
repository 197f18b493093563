"""The published evaluation, predicted: `python benchmarks/graphturbo_paper.py [--json FILE] [--markdown FILE]
[--network NAME]...`.

    published configurations --compile, clock--> rows with documented numbers --fit--> rows with fitted ones --> tables

Every published variant of a network (`benchmarks.graphturbo.measure`) is compiled at its published batch and timed by
the clock, once with the documented numbers of the chip and once with the unpublished ones fitted
(`benchmarks.graphturbo.settings`, `.fit`) to the vendor's profiler example and three rows of ResNet-50. All else is
predicted. docs/fidelity.md says how to read it. Without ResNet-50 among the networks nothing is fitted.

Keys of the JSON object: `chip`, `fit` (the chosen setting, its error, the range of every number), `example`, and lists.

    rows                    one a configuration, variant and set of parameters
      configuration, column, variant, parameters (documented or fitted), batch_per_cluster
      predicted_per_second, published_per_second (null where there is none), predicted_seconds (of one batch)
      range_per_second      fewest and most over the range of the fit; of `full`, under the settings at which `ordering`
                            is slowest and fastest
      lower_bound_seconds   that no order of the instructions can go below, launches included
      (`isched.bounds.lower_bounds`) engine_bound_seconds  of the busiest engine, link or memory alone compile_seconds
      to machine code, where the paper has the figure, else null; published_compile_seconds launches, instructions,
      fitted_to (whether the fit saw it), not_explained
    gains                   serial over full, and program order with the hardware's asynchrony over full
    stages                  percent of the time at which matrix engines work, beside figure 17
    tensors                 in DDR, LLB and L1, beside table 3
    batches                 the TVM plan at the small and at the large batch
    sensitivity             TVM rows for other launch costs; rows with the DDR at the rate of its pins
    checks                  of the sums that the fit uses against the clock
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the two packages that are not installed

from benchmarks.graphturbo.figures import CONFIGURATIONS, Configuration
from benchmarks.graphturbo.fit import Fit, Row, SerialSum, fit, serial_sum
from benchmarks.graphturbo.measure import VARIANTS, Compiled, Run, compiled, matrix_by_stage, on_chip, run
from benchmarks.graphturbo.settings import (
    EXAMPLE,
    LAUNCHES,
    LIMITS,
    PIN_DDR_BYTES,
    Setting,
    chip_of,
    documented,
    example_of,
)
from benchmarks.graphturbo.tables import markdown
from benchmarks.output import add_outputs, finish
from hw_models.chip import Chip
from hw_models.loading import load_chip

Json = dict[str, Any]

FITTED_TO = ("tvm", "l1", "ordering")
"""Variants of the first configuration that the fit sees."""


@dataclass
class Measured:
    """What is known of one variant: its program, and its chain where every step is awaited."""

    made: Compiled
    sum: SerialSum | None = None


@dataclass
class Benchmark:
    """Collects rows; `progress` prints a line for each."""

    base: Chip
    configurations: Sequence[Configuration]
    figures: Json = field(default_factory=dict)
    measured: list[Measured] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.documented = documented(self.base)
        lists = ("rows", "gains", "stages", "tensors", "batches", "sensitivity", "checks")
        self.figures = {"chip": self.base.name, "fit": None, "example": []} | {name: [] for name in lists}
        self.example("documented", self.documented)

    def example(self, parameters: str, setting: Setting) -> None:
        found = example_of(chip_of(setting, self.base))
        for name, published in EXAMPLE.items():
            row = {"parameters": parameters, "what": name, "cycles": found[name], "published_cycles": published}
            self.figures["example"].append(row)

    def compile_all(self) -> None:
        """Every variant with the documented numbers."""
        chip = chip_of(self.documented, self.base)
        for configuration in self.configurations:
            batches = {variant: configuration.batch_of(variant) for variant in VARIANTS}
            for made in compiled(configuration, chip, batches):
                self.take(made, chip)
            if configuration.batch != configuration.tvm_batch:
                for made in compiled(configuration, chip, {"tvm": configuration.batch}):
                    self.batch_effect(made, run(made, made.program, chip), chip)

    def take(self, made: Compiled, chip: Chip) -> None:
        """The rows of a variant with documented numbers."""
        first = run(made, made.program, chip)
        measured = Measured(made)
        if made.awaited:
            timeline, setting = first.timeline, self.documented
            measured.sum = serial_sum(timeline, made.program, setting, chip, made.batch, made.launches)
        self.measured.append(measured)
        self.row(measured, first, chip, "documented")
        published = made.configuration.tensors
        if made.variant in ("tvm", "full") and published:
            self.figures["tensors"].append(
                {
                    "configuration": made.configuration.network,
                    "variant": made.variant,
                    "tensors": made.tensors,
                    "published": published["TVM" if made.variant == "tvm" else "GraphTurbo"],
                }
            )
        self.beside(measured, first, chip, "documented")
        self.sensitivity(measured)

    def row(
        self, measured: Measured, found: Run, chip: Chip, parameters: str, within: tuple[float, float] | None = None
    ) -> None:
        made, configuration = measured.made, measured.made.configuration
        emitted = configuration.compile_seconds.get(made.variant)
        row = {
            "configuration": configuration.network,
            "column": configuration.name,
            "variant": made.variant,
            "parameters": parameters,
            "batch_per_cluster": made.batch,
            "predicted_per_second": found.per_second(chip),
            "published_per_second": configuration.per_second(made.variant),
            "predicted_seconds": found.cycles / chip.clock_hz,
            "range_per_second": within,
            "lower_bound_seconds": found.bound_cycles / chip.clock_hz,
            "engine_bound_seconds": found.engine_cycles / chip.clock_hz,
            "compile_seconds": made.seconds if emitted is not None else None,
            "published_compile_seconds": emitted,
            "launches": made.launches,
            "instructions": sum(len(stream.instrs) for stream in found.program.streams),
            "fitted_to": parameters == "fitted"
            and configuration is self.configurations[0]
            and made.variant in FITTED_TO,
            "not_explained": configuration.not_explained.get(made.variant, ""),
        }
        self.figures["rows"].append(row)
        say = (configuration.network, made.variant, parameters, f"{row['predicted_per_second']:,.0f} a second")
        print(*say, f"(published {row['published_per_second'] or 0:,.0f})", file=sys.stderr, flush=True)

    def beside(self, measured: Measured, found: Run, chip: Chip, parameters: str) -> None:
        """What is printed beside the rows of the method itself: gains and stages."""
        made = measured.made
        name = made.configuration.network
        if made.variant == "ordering":
            own = run(made, found.program, chip, awaited=False)
            gain = {"configuration": name, "parameters": parameters, "serial_seconds": found.timeline.seconds}
            self.figures["gains"].append({**gain, "asynchronous_seconds": own.timeline.seconds})
        if made.variant == "full":
            (gain,) = (
                gain
                for gain in self.figures["gains"]
                if (gain["configuration"], gain["parameters"]) == (name, parameters)
            )
            seconds = found.timeline.seconds
            gain |= {"full_seconds": seconds, "gain": gain["serial_seconds"] / seconds}
            gain["gain_over_asynchronous"] = gain["asynchronous_seconds"] / seconds
            speedups = made.configuration.speedups
            gain["published_gain"] = speedups["full"] / speedups["ordering"] if "ordering" in speedups else None
            for stage, percent in matrix_by_stage(made, found.timeline).items():
                published = made.configuration.matrix_percent.get(stage)
                if published is not None:
                    stage_row = {"configuration": name, "parameters": parameters, "stage": stage, "percent": percent}
                    self.figures["stages"].append({**stage_row, "published_percent": published})

    def batch_effect(self, made: Compiled, found: Run, chip: Chip) -> None:
        small = next(
            row
            for row in self.figures["rows"]
            if (row["configuration"], row["variant"]) == (made.configuration.network, "tvm")
        )
        rate = found.per_second(chip)
        self.figures["batches"].append(
            {
                "configuration": made.configuration.network,
                "batches": (small["batch_per_cluster"], made.batch),
                "per_second": (small["predicted_per_second"], rate),
                "gain": rate / small["predicted_per_second"],
            }
        )

    def sensitivity(self, measured: Measured) -> None:
        """Rows under other launch costs and with the chip's fastest DDR, by the sums."""
        if measured.sum is None:
            return
        changes = {f"DDR {rate} bytes a cycle": replace(self.documented, ddr_bytes=rate) for rate in PIN_DDR_BYTES}
        if measured.made.variant == "tvm":
            for launch in LAUNCHES:
                changes[f"launch {launch / 1000:g} us"] = replace(self.documented, launch_cycles=launch)
        for change, setting in changes.items():
            seconds = measured.sum.cycles(setting, self.base) / self.base.clock_hz
            self.figures["sensitivity"].append(
                {
                    "configuration": measured.made.configuration.network,
                    "variant": measured.made.variant,
                    "change": change,
                    "per_second": measured.sum.items * self.base.clusters / seconds,
                    "published_per_second": measured.made.configuration.per_second(measured.made.variant),
                }
            )

    def fit(self) -> None:
        """Choose the setting by three rows of the first configuration; then every row again."""
        first = self.configurations[0]
        seen = []
        for measured in self.measured:
            published = first.per_second(measured.made.variant)
            if measured.made.configuration is first and measured.made.variant in FITTED_TO and published is not None:
                assert measured.sum is not None  # the fit sees awaited variants only
                seen.append(Row(measured.sum, published))
        found = fit(seen, self.base, self.documented)
        self.figures["fit"] = self.fit_figures(found)
        self.example("fitted", found.chosen)
        chip = chip_of(found.chosen, self.base)
        for measured in self.measured:
            self.refit(measured, found, chip)

    def fit_figures(self, found: Fit) -> Json:
        """The chosen setting, and how far the numbers may be from it."""
        return {
            "error": found.chosen_error,
            "best_error": found.best_error,
            "settings": int(found.errors.size),
            "within": int(found.within.sum()),
            "numbers": [
                {
                    "name": name,
                    "what": limit.what,
                    "documented": getattr(self.documented, name),
                    "fitted": getattr(found.chosen, name),
                    "range": found.values_within(name),
                    "limits": (min(limit.values), max(limit.values)),
                    "reason": limit.reason,
                }
                for name, limit in LIMITS.items()
            ],
        }

    def refit(self, measured: Measured, found: Fit, chip: Chip) -> None:
        """A variant with the fitted numbers, and its range."""
        made = measured.made
        program = on_chip(made, chip, reorder=True)
        now = run(made, program, chip)
        if measured.sum is not None:
            within = found.interval(measured.sum)
            self.check(made, "fitted", measured.sum.cycles(found.chosen, self.base), now.cycles)
        else:
            ordering = next(
                other.sum
                for other in self.measured
                if other.made.configuration is made.configuration and other.made.variant == "ordering" and other.sum
            )
            rates = []
            for setting in found.ends(ordering):
                there = chip_of(setting, self.base)
                rates.append(run(made, on_chip(made, there, reorder=False), there).per_second(there))
            within = (min(*rates, now.per_second(chip)), max(*rates, now.per_second(chip)))
        self.row(measured, now, chip, "fitted", within)
        self.beside(measured, now, chip, "fitted")

    def check(self, made: Compiled, parameters: str, by_sum: float, by_clock: float) -> None:
        row = {"configuration": made.configuration.network, "variant": made.variant, "parameters": parameters}
        self.figures["checks"].append({**row, "sum_cycles": by_sum, "clock_cycles": by_clock})


def measure(configurations: Sequence[Configuration], chip: Chip, fitted: bool = True) -> Json:
    """All figures of the configurations, of which the first is the one that the fit sees."""
    benchmark = Benchmark(chip, configurations)
    benchmark.compile_all()
    if fitted:
        benchmark.fit()
    return benchmark.figures


def main() -> None:
    parser = argparse.ArgumentParser(description="The published evaluation, predicted.")
    add_outputs(parser)
    names = [configuration.network for configuration in CONFIGURATIONS]
    parser.add_argument("--network", action="append", choices=names, help="only this one; may be repeated")
    options = parser.parse_args()
    chosen = [c for c in CONFIGURATIONS if not options.network or c.network in options.network]
    figures = measure(chosen, load_chip("stcp920"), fitted=CONFIGURATIONS[0] in chosen)
    finish(options, figures, markdown(figures))


if __name__ == "__main__":
    main()
