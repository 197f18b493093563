"""What the cycle model says of micro-benchmarks on a chip with other numbers.

    Benchmark --trace for the chip--> timed streams --cycle model--> Timeline --COUNTERS--> cycles by counter

There is no other formula: a number is fitted by running the cycle model again. A run depends only on some numbers of
the chip, which follow from its streams, so that most runs of a fit are known already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from codegen.target import Benchmark
from hw_models.chip import Chip
from hw_models.chip_numbers import with_numbers
from hw_models.parts import Assumed
from isched.program.target import Timeable
from isched.program.timed_ops import TimedStream
from isched.timing.cycle_model import time_streams
from isched.timing.timeline import Timeline


def _of_kind(kind: str) -> Callable[[Timeline], float]:
    def busy(timeline: Timeline) -> float:
        return sum(c for unit, c in timeline.busy_cycles.items() if timeline.engine_kinds.get(unit) == kind)

    return busy


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter: what it counts on the chip, and the same of a timed run."""

    meaning: str
    value: Callable[[Timeline], float]


COUNTERS: Mapping[str, Counter] = MappingProxyType({
    "cycles": Counter(
        "cycles from the first instruction of the program until its last core has ended, which the core reads",
        lambda timeline: timeline.cycles - timeline.launch_cycles,
    ),
    "elapsed": Counter(
        "cycles from the request of the host until it is told the end, so with the launch",
        lambda timeline: timeline.cycles,
    ),
    "matrix": Counter("cycles in which the matrix engine works", _of_kind("matrix")),
    "vector": Counter("cycles in which the vector engine works", _of_kind("vector")),
    "transfer": Counter("cycles in which the transfer engine works", _of_kind("transfer")),
})  # fmt: skip
"""Counters by their names in CSV files."""


@dataclass(slots=True)
class Predictor:
    """Predictions for one chip with other values of the numbers at `paths`, each run timed once."""

    chip: Chip
    target: Timeable
    paths: tuple[str, ...]
    _relevant: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _known: dict[tuple[str, tuple[float, ...]], dict[str, float]] = field(default_factory=dict)
    _chips: dict[tuple[float, ...], Chip] = field(default_factory=dict)

    def cycles(self, benchmark: Benchmark, values: tuple[float, ...]) -> Mapping[str, float]:
        """Cycles by counter, with these values of the numbers. Raises UserError as `Timeable.trace` does."""
        relevant = self._relevant.get(benchmark.name)
        if relevant is None:
            used = frozenset(numbers_used(self._streams(benchmark, self.chip), self.chip))
            relevant = tuple(n for n, path in enumerate(self.paths) if part_of(path) in used)
            self._relevant[benchmark.name] = relevant
        key = benchmark.name, tuple(values[n] for n in relevant)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._timed(benchmark, self._chip(values))
        return found

    def _chip(self, values: tuple[float, ...]) -> Chip:
        if values not in self._chips:
            self._chips.clear()
            self._chips[values] = with_numbers(self.chip, dict(zip(self.paths, values, strict=True)))
        return self._chips[values]

    def _streams(self, benchmark: Benchmark, chip: Chip) -> tuple[TimedStream, ...]:
        files = benchmark.files[0]
        return self.target.trace(files.files[files.executable], files.cores, chip, files.cluster)

    def _timed(self, benchmark: Benchmark, chip: Chip) -> dict[str, float]:
        timeline = time_streams(self._streams(benchmark, chip), chip, len(benchmark.files))
        return {name: COUNTERS[name].value(timeline) for name in benchmark.counters}


NEEDED_BY: Mapping[str, str] = MappingProxyType({
    "matrix_tile_cycles": "matrix",
    "matrix_row_cycles": "matrix",
    "vector_pass_cycles": "vector",
    "lookup_cycles": "vector",
    "dma_descriptor_cycles": "dma",
    "sync_cycles": "sync",
})  # fmt: skip
"""Fields of `assumed` that count only where an engine of a kind works. The others count for every program."""


def numbers_used(streams: tuple[TimedStream, ...], chip: Chip) -> Iterator[str]:
    """The parts of the chip (`links.NAME`, `engines.NAME`, `memories.NAME`, `assumed.FIELD`) on whose numbers the time
    of these streams can depend. Scalar cores and the memory that they fetch code from always count."""
    kinds = {engine.name: engine.kind for engine in chip.engines}
    links = {link.name: link for link in chip.links}
    ops = {id(op): op for stream in streams for op in stream.ops}.values()
    engines = {op.engine for op in ops}
    working = {kinds.get(engine) for engine in engines}
    yield from (f"engines.{name}" for name, kind in kinds.items() if kind == "scalar" or name in engines)
    yield from (f"assumed.{name}" for name in Assumed.model_fields if NEEDED_BY.get(name) in (None, *working))
    if chip.instruction_cache is not None:
        yield f"memories.{chip.instruction_cache.memory}"
    for name in {flow.link for op in ops for flow in op.flows}:
        yield f"links.{name}"
        yield f"memories.{links[name].source}"
        yield f"memories.{links[name].destination}"


def part_of(path: str) -> str:
    """The part of the chip to which a number belongs, as `numbers_used` names it."""
    return ".".join(path.split(".")[:2])
