"""A row of the results: one network at one batch and variant, under every column of numbers.

    Wanted --compile, clock--> Row --json--> kept in the results, with the hash of the sources that it was made with

A row of a network of equal layers may follow from one of one and one of two layers: each more layer takes what the
second took. Such a row says `compiled_layers`. Rows are made without knowing of others, but for the fit, which three of
them decide: these have none of its columns, and no other row that was made before there was one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.graphturbo.figures import CONFIGURATIONS, Configuration, Layers
from benchmarks.graphturbo.fit import Fit, fit
from benchmarks.graphturbo.measure import Compiled, Run, compiled, run, source_of
from benchmarks.graphturbo.published import FIGURE_16, TABLE_1
from benchmarks.graphturbo.settings import PIN_DDR_BYTES, Setting, favourable, mid_range
from benchmarks.graphturbo.sums import Sums, read_sums
from dsa_sched.stages.gc_pause import uncollected
from hw_models.chip import Chip
from hw_models.errors import UserError

__all__ = [
    "FAVOURABLE",
    "FEW",
    "FIT_ENDS",
    "FITTED",
    "FITTED_TO",
    "MID_RANGE",
    "Json",
    "Key",
    "Wanted",
    "ddr_column",
    "fit_of",
    "key_of",
    "measure",
    "wanted",
]

Json = dict[str, Any]
Key = tuple[str, str, int]

FAVOURABLE, MID_RANGE, FITTED = "favourable", "mid-range", "fitted"
FIT_ENDS = ("slowest of the fit", "fastest of the fit")
FITTED_TO = ("tvm", "l1", "ordering")
"""Variants of the first configuration that the fit sees. Sums say what they are over its range."""

FEW = (1, 2)
"""Layers of networks from which a whole one follows."""


@dataclass(frozen=True)
class Wanted:
    """A row that the tables have. With `few` it follows from fewer layers, where the network has equal ones."""

    configuration: Configuration
    variant: str
    batch: int
    few: bool = False

    @property
    def layers(self) -> Layers | None:
        """Those that the row follows from one and two of; None where the whole network is compiled."""
        return self.configuration.layers if self.few else None

    @property
    def key(self) -> Key:
        return self.configuration.label, self.variant, self.batch


def key_of(row: Json) -> Key:
    return row["configuration"], row["variant"], row["batch"]


def wanted(configurations: Sequence[Configuration] = CONFIGURATIONS) -> tuple[Wanted, ...]:
    """All rows: variants at their batches, the TVM plan at the larger one, the batches of figure 16 and table 1."""
    found: dict[Key, Wanted] = {}

    def want(configuration: Configuration, variant: str, batch: int) -> None:
        one = Wanted(configuration, variant, batch)
        found.setdefault(one.key, one)

    for configuration in configurations:
        for variant in configuration.variants:
            want(configuration, variant, configuration.batch_of(variant))
        if "tvm" in configuration.variants and configuration.layers is None:
            want(configuration, "tvm", configuration.batch)
    for configuration in configurations:
        for batch in FIGURE_16.get(configuration.label, ()):
            want(configuration, "full", batch)
        if configuration.label == "bert_base 128":
            for batch, methods in TABLE_1.items():
                for variant in ("full", "auto", *(["tvm"] if "tvm" in methods else [])):
                    want(configuration, variant, batch)
    return tuple(found.values())


def ddr_column(bytes_a_cycle: float) -> str:
    return f"DDR {bytes_a_cycle}"


@uncollected()
def measure(one: Wanted, chip: Chip, known: Fit | None, sources: str, folder: Path) -> Json:
    """A row, or its refusal."""
    began = time.process_time()
    configuration, layers = one.configuration, one.layers
    row: Json = {
        "configuration": configuration.label,
        "column": configuration.name,
        "variant": one.variant,
        "batch": one.batch,
        "compiled_layers": FEW[-1] if layers else None,
        "sources": sources,
        "refusal": "",
    }
    sizes = FEW if layers else (None,)
    try:
        made = [
            compiled(configuration, one.variant, one.batch, source_of(configuration, size, folder), chip)
            for size in sizes
        ]
    except UserError as error:
        return row | {"refusal": " ".join(str(error).split())}
    steps = layers.count - FEW[-1] if layers and len(made) > 1 else 0
    last = made[-1]
    row |= {
        "level": last.level,
        "passes": last.passes,
        "launches": _further([float(part.launches) for part in made], steps),
        "instructions": _further([float(part.instructions) for part in made], steps),
        "seconds": round(max(last.seconds, _further([part.seconds for part in made], steps)), 1),
        "tensors": [_further(list(map(float, counts)), steps) for counts in _columns(made)],
        "floor_cycles": {
            str(rate): _further([part.floors[rate] for part in made], steps) for rate in last.floors
        },
    }  # fmt: skip
    first = [run(part, favourable(chip)) for part in made]
    each = [part.sums_along(one.timeline) if part.awaited else part.sums for one, part in zip(first, made, strict=True)]
    sums = each[-1].extended(each[0], steps) if steps else each[-1]
    row["sums"] = sums.as_json()
    row["runs"] = dict(_runs(first, steps, sums, known, bool(configuration.matrix_percent)))
    row["fit"] = known.digest if known else None
    row["row_seconds"] = round(time.process_time() - began, 1)
    return row


def _columns(made: Sequence[Compiled]) -> Iterator[tuple[int, ...]]:
    """Counts of tensors, a memory at a time."""
    return zip(*(part.tensors for part in made), strict=True)


def _further(values: Sequence[float], steps: int) -> float:
    """The last value, and as many steps more as from the first to it."""
    return values[-1] + steps * (values[-1] - values[0])


def _runs(
    first: Sequence[Run], steps: int, sums: Sums, known: Fit | None, by_stage: bool
) -> Iterator[tuple[str, Json]]:
    """Column -> what the clock says there; of other rates of the DDR, for awaited runs, what their sums say."""
    made = [one.made for one in first]
    last, chip = made[-1], made[-1].chip
    home = favourable(chip)

    def at(setting: Setting, reorder: bool = False) -> list[Run]:
        return [run(part, setting, reorder) for part in made]

    def told(found: Sequence[Run]) -> Json:
        busy = [one.busy_core_cycles for one in found]
        return {
            "cycles": _further([one.cycles for one in found], steps),
            "busy_core_cycles": {kind: _further([one[kind] for one in busy], steps) for kind in busy[0]},
            "matrix_percent": found[-1].matrix_percent if by_stage and not last.awaited else {},
        }

    bounds = [one.bounds() for one in first]
    lower, alone = (_further(values, steps) for values in zip(*bounds, strict=True))
    more = {"bound_cycles": lower, "engine_cycles": alone}
    for column, setting, found in ((FAVOURABLE, home, first), (MID_RANGE, mid_range(chip), None)):
        runs = found or at(setting, reorder=True)
        serial: Json = {}
        if last.variant == "ordering":
            alike = [run(part, setting, awaited=False) for part in made]
            serial["asynchronous_cycles"] = _further([one.cycles for one in alike], steps)
        yield column, told(runs) | serial | (more if column == FAVOURABLE else {})
    for rate in PIN_DDR_BYTES:
        there = home.changed({"ddr_bytes": rate})
        cycles = sums.cycles(home, rate / home.ddr_bytes) if last.awaited else told(at(there))["cycles"]
        yield ddr_column(rate), {"cycles": cycles}
    if known is None:
        return
    if last.variant not in ("beyond", "auto"):
        yield FITTED, told(at(known.chosen, reorder=True))
    if not last.awaited:
        for column, setting in zip(FIT_ENDS, known.ends(sums), strict=True):
            yield column, {"cycles": told(at(setting))["cycles"]}


def fit_of(rows: Sequence[Json], chip: Chip, first: Configuration = CONFIGURATIONS[0]) -> Fit | None:
    """By the rows that it sees; None while one of them is missing, or was made under other limits."""
    known: Mapping[Key, Json] = {key_of(row): row for row in rows if not row["refusal"]}
    seen: list[tuple[Sums, float]] = []
    for variant in FITTED_TO:
        row = known.get((first.label, variant, first.batch_of(variant)))
        sums = read_sums(row["sums"]) if row else None
        published = first.per_second(variant)
        if sums is None or published is None:
            return None
        seen.append((sums, published))
    return fit(seen, chip, favourable(chip))
