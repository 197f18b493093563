"""The points of a sweep: one network, one chip and one value of every option each.

SweepFile --points--> Point x n, in the order of the file: networks, then chips, then options; the last varies first
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from dsa_sched.builds.build_cache import compiler_hash
from dsa_sched.stages.compile_options import CompileOptions, PerPass
from dsa_sched.sweeping.job_file import JobNetwork, chip_source, model_source
from dsa_sched.sweeping.sweep_file import Scalar, SweepFile, SweptOptions
from hw_models.cache import key_of
from hw_models.changes import changed_chip, with_parts
from hw_models.chip import Chip
from hw_models.loading import load_chip
from partitioner.planners.levels import planner_or_auto

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
Bindings = tuple[tuple[str, tuple[int | float, ...]], ...]


@dataclass(frozen=True, slots=True)
class PointNetwork:
    """A network as it is compiled: a name of the zoo or the path of a file, whose SHA-256 is `digest`."""

    label: str
    source: str
    digest: str
    shapes: Shapes
    bindings: Bindings

    def named(self, text: str) -> str:
        """A text that speaks of the network by its name in the table, wherever its file is."""
        return text.replace(self.source, self.label)


@dataclass(frozen=True, slots=True)
class PointOptions:
    """Options of one compilation, named as on the command line; not all combinations are possible."""

    level: str
    spill: str
    effort: str
    batch: int | None
    clusters: int
    per_pass: PerPass
    schedule: bool | None
    roll: bool | None
    keep_values: bool


@dataclass(frozen=True, slots=True)
class Point:
    """One point: the chip is `chip` with these `changes`, by the paths of fields. The file calls it `chip_label`."""

    network: PointNetwork
    chip_label: str
    chip: Chip
    changes: tuple[tuple[str, Scalar], ...]
    options: PointOptions

    @property
    def key(self) -> str:
        """Hash of all that the result follows from, the compiler too; reasons have the label of the network."""
        said = json.dumps((self.network.label, self.network.shapes, self.network.bindings, self.changes))
        return key_of(self.network.digest, said, self.chip.hash, repr(self.options), compiler_hash())

    @property
    def title(self) -> str:
        """What was asked for, in one line, which no other point of a file has: `mine on stcp920, level O3, batch 4`."""
        defaults = {name: values[0] for name, values in SweptOptions().lists.items()}
        asked = {name: getattr(self.options, name) for name in defaults}
        options = (
            f"{name} {_text(value)}" for name, value in asked.items() if name == "level" or value != defaults[name]
        )
        changes = (f"{path} {_text(value)}" for path, value in self.changes)
        return f"{self.network.label} on {', '.join((self.chip_label, *changes, *options))}"

    def changed_chip(self) -> Chip:
        """The chip with the changes. Raises ChipError where there cannot be such a chip."""
        return changed_chip(self.chip, with_parts(self.chip, dict(self.changes))) if self.changes else self.chip

    def compile_options(self) -> CompileOptions:
        """The options as the compiler takes them, for one process. Raises ModelError for options that do not go
        together."""
        said = self.options
        return CompileOptions(
            planner_or_auto(said.level, said.spill),
            batch=said.batch,
            shapes=self.network.shapes,
            clusters=said.clusters,
            per_pass=said.per_pass,
            schedule=said.schedule,
            keep_values=said.keep_values,
            effort=said.effort,
            roll=said.roll,
            bindings=self.network.bindings,
            jobs=1,
        )


def points(sweep: SweepFile, folder: Path) -> tuple[Point, ...]:
    """All points; files are named relative to `folder`. Raises ModelError for a model file that cannot be read."""
    networks = [point_network(each, folder) for each in sweep.networks]
    lists = sweep.options.lists
    options = [PointOptions(**dict(zip(lists, each, strict=True))) for each in product(*lists.values())]  # type: ignore[arg-type]
    return tuple(
        Point(network, *chip, each) for network in networks for chip in _chips(sweep, folder) for each in options
    )


def point_network(network: JobNetwork, folder: Path) -> PointNetwork:
    """A network of a file with what it is known by. Raises ModelError for a model file that cannot be read."""
    source = model_source(network.model, folder)
    shapes = tuple((name, extents) for name, extents in network.shape.items())
    bindings = tuple((name, values) for name, values in network.bind.items())
    return PointNetwork(network.label, source, digest_of(source), shapes, bindings)


def digest_of(source: str) -> str:
    """What a network follows from: the SHA-256 of its file, or its name in the zoo. Raises ModelError for a file that
    cannot be read."""
    from dsa_sched.frontend.model_file import file_digest  # all of the frontend, which is slow to import
    from dsa_sched.zoo import zoo_names

    return f"zoo {source}" if source in zoo_names() and not Path(source).exists() else file_digest(Path(source))


def _chips(sweep: SweepFile, folder: Path) -> Iterator[tuple[str, Chip, tuple[tuple[str, Scalar], ...]]]:
    for each in sweep.chips:
        chip = load_chip(chip_source(each.chip, folder))
        for values in product(*each.vary.values()):
            varied: Mapping[str, Scalar] = dict(zip(each.vary, values, strict=True))
            yield each.chip, chip, (*each.set.items(), *varied.items())


def _text(value: Scalar | None) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
