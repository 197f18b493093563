"""Step `together`: a network on a processor and the GPU at the same time, as DUET has it, and really run.

    phases and their independent paths (packed) --each path timed on both--> which path runs where --run--> wall clock

    placed   for each phase the choice with the least time by what was timed here, copies included
    split    in each phase with several paths the shortest of them on the processor, whether that pays or not

While the GPU works on its paths of a phase the processor computes its own; what a phase leaves is where the next one
reads it when it starts. Afterwards every value of the network lies in the GPU's memory, and each group is judged within
its bound, the processor's among them. Beside these stand each of both alone.

The processor is PyTorch's, in single precision; without it there is nothing to compare, but for the rehearsal, in which
the reference computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu.bench import Bench, Item, Row
from benchmarks.gpu.forked import GroupDriver
from benchmarks.gpu.judged import judge_group, sources
from benchmarks.gpu.processors import Processor, opened_processor
from benchmarks.gpu.right import SAMPLES, SEED, stored_places
from benchmarks.gpu.store import Program
from benchmarks.gpu.synthetic import Array, drawn_input
from benchmarks.gpu.torch_operators import Unknown
from benchmarks.gpu.unfolded import Unfolded, unfolded
from codegen.cutlass.runner.runner import Driver, GpuNetwork

__all__ = ["items", "lines", "wrong"]

Path = tuple[str, ...]
"""Groups, in order."""
MOST_PATHS = 8
"""Of a phase whose choices are all tried; of more, each path goes where it is faster."""
METHODS = ("placed", "split")


def items(bench: Bench) -> Iterator[Item]:
    for program in bench.programs(reuses=False):
        if any(len(phase) > 1 for phase in program.entry["phases"]):
            yield Item(program.key, lambda program=program: _known_row(bench, program))  # type: ignore[misc]


def _known_row(bench: Bench, program: Program) -> Row:
    try:
        return _row(bench, program)
    except Unknown as error:
        return {"skipped": str(error)}


def _row(bench: Bench, program: Program) -> Row:
    phases = [[tuple(path) for path in phase] for phase in program.entry["phases"]]
    with unfolded(bench.pack, program) as made, bench.driver() as driver:
        processor = opened_processor(made, bench)
        if processor is None:
            return {"skipped": "PyTorch, which is the processor's side, is not there"}
        groups = [launch["layer"] for launch in made.listed["launches"]]
        gpu = GroupDriver(driver, groups)
        machine: Any = gpu
        with GpuNetwork(made.folder, machine) as network:
            both = _Both(made, gpu, driver, processor, driver.stream())
            network.poison()
            both.values |= _inputs(made)
            network.run(both.values)
            both.fetch()
            known = _timed(both, phases, bench)
            rows = {method: _run(both, _chosen(method, phases, known), bench) for method in METHODS}
            rows["gpu"] = _run(both, [[(path, False) for path in phase] for phase in phases], bench)
            rows["processor"] = _run(both, [[(path, True) for path in phase] for phase in phases], bench)
    row: Row = {"processor": processor.name, "phases": len(phases), "paths": sum(map(len, phases)), "ways": rows}
    if not bench.rehearse:
        return row
    for way in rows.values():
        del way["median_ms"]  # no times of a GPU
    del rows["placed"]["on_processor"]  # which goes by times
    return row


def _inputs(made: Unfolded) -> dict[str, Array]:
    tensors = [made.graph.by_name[name] for name in made.graph.inputs]
    return {one.name: drawn_input(SEED + k, one.shape, one.dtype) for k, one in enumerate(tensors)}


@dataclass
class _Both:
    """The network on both: `values` are those that the processor has."""

    made: Unfolded
    gpu: GroupDriver
    driver: Driver
    processor: Processor
    stream: int
    values: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = stored_places(self.made)
        plan, graph = self.made.plan, self.made.graph
        read = {group.name: [sources(graph, name) for name in group.inputs(graph)] for group in plan.groups}
        self.reads = {name: tuple(dict.fromkeys(values)) for name, values in read.items()}
        self.makes = {group.name: group.outputs(graph) for group in plan.groups}

    def fetch(self) -> None:
        """All values from the GPU."""
        for name in self.places:
            self.from_gpu(name)

    def from_gpu(self, name: str) -> None:
        tensor = self.made.graph.by_name[name]
        content = np.empty(tensor.size_bytes, np.uint8)
        self.driver.copy_out(content, self.gpu.arena + self.places[name], self.stream)
        self.driver.synchronize(self.stream)
        self.values[name] = content.view(tensor.dtype).reshape(tensor.shape)

    def to_gpu(self, name: str) -> None:
        flat = np.ascontiguousarray(self.values[name]).reshape(-1).view(np.uint8)
        self.driver.copy_in(self.gpu.arena + self.places[name], flat, self.stream)

    def outside(self, path: Path) -> tuple[str, ...]:
        """What a path reads that it does not make."""
        made = {name for group in path for name in self.makes[group]}
        return tuple(dict.fromkeys(name for group in path for name in self.reads[group] if name not in made))

    def start(self, path: Path) -> None:
        """A path on the GPU; nothing waits."""
        for group in path:
            self.gpu.start(group, self.stream)

    def leave(self, path: Path) -> None:
        """What the processor has made goes to the GPU."""
        for name in (name for group in path for name in self.makes[group]):
            self.to_gpu(name)

    def alone(self, path: Path) -> None:
        """A path on the processor, with what it reads and leaves copied."""
        for name in self.outside(path):
            self.from_gpu(name)
        self.values |= self.processor.compute(path, self.values)
        self.leave(path)
        self.driver.synchronize(self.stream)

    def phase(self, chosen: Sequence[tuple[Path, bool]]) -> None:
        """One phase: inputs of the processor's paths come over, the GPU starts, the processor computes, both meet."""
        for path, here in chosen:
            if here:
                for name in self.outside(path):
                    if name not in self.values:
                        self.from_gpu(name)
        for path, here in chosen:
            if not here:
                self.start(path)
        for path, here in chosen:
            if here:
                self.values |= self.processor.compute(path, self.values)
        self.driver.synchronize(self.stream)
        for path, here in chosen:
            if here:
                self.leave(path)
        self.driver.synchronize(self.stream)


Choice = list[tuple[Path, bool]]
"""Paths of a phase, and whether the processor has them."""
Known = Mapping[Path, tuple[float, float]]
"""Milliseconds on the processor, copies included, and on the GPU."""


def _timed(both: _Both, phases: Sequence[Sequence[Path]], bench: Bench) -> Known:
    found = {}
    for path in (path for phase in phases for path in phase):
        here = _milliseconds(partial(both.alone, path), bench)
        there = both.driver.times(bench.repeats, lambda: None, partial(both.start, path), both.stream)
        found[path] = here, median(there)
    return found


def _milliseconds(run: Callable[[], None], bench: Bench) -> float:
    times = []
    for _ in range(1 if bench.rehearse else 5):
        begin = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - begin))
    return median(times)


def _chosen(method: str, phases: Sequence[Sequence[Path]], known: Known) -> list[Choice]:
    if method == "split":
        return [_split(phase) for phase in phases]
    return [_placed(phase, known) for phase in phases]


def _split(phase: Sequence[Path]) -> Choice:
    least = min(phase, key=lambda path: (len(path), path))
    return [(path, len(phase) > 1 and path == least) for path in phase]


def _placed(phase: Sequence[Path], known: Known) -> Choice:
    if len(phase) > MOST_PATHS:
        return [(path, known[path][0] < known[path][1]) for path in phase]

    def takes(choice: tuple[bool, ...]) -> float:
        here = sum(known[path][0] for path, own in zip(phase, choice, strict=True) if own)
        return max(here, sum(known[path][1] for path, own in zip(phase, choice, strict=True) if not own))

    best = min(product((False, True), repeat=len(phase)), key=takes)
    return list(zip(phase, best, strict=True))


def _run(both: _Both, choices: Sequence[Choice], bench: Bench) -> Row:
    """The network by these choices, timed from inputs on the processor's side to outputs there; then judged."""
    graph, inputs = both.made.graph, {name: both.values[name] for name in both.made.graph.inputs}
    outputs = [sources(graph, name) for name in graph.outputs]

    def whole() -> None:
        both.values = dict(inputs)
        for name in inputs:
            both.to_gpu(name)
        for choice in choices:
            both.phase(choice)
        for name in outputs:
            if name not in both.values:
                both.from_gpu(name)

    milliseconds = _milliseconds(whole, bench)
    both.fetch()
    judged = {
        group.name: judge_group(graph, both.made.constants, group, both.values, SAMPLES, SEED)
        for group in both.made.plan.groups
        if group.kernel
    }
    wrong = {name: found.first for name, found in judged.items() if found.wrong}
    here = [group for choice in choices for path, own in choice if own for group in path]
    return {"median_ms": milliseconds, "on_processor": here, "wrong": wrong}


def wrong(row: Row) -> str:
    if "error" in row:
        return str(row["error"])
    for way, found in row.get("ways", {}).items():
        if found["wrong"]:
            name, said = next(iter(found["wrong"].items()))
            return f"{way}: group {name}: {said}"
    return ""


def lines(rows: Sequence[Row]) -> list[str]:
    found = ["| program | way | groups on the processor | ms | |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        said = wrong(row) or str(row.get("skipped", ""))
        if "ways" not in row:
            found.append(f"| {row['key']} | | | | {said} |")
            continue
        for way, each in row["ways"].items():
            taken = f"{each['median_ms']:.4f}" if "median_ms" in each else "not measured"
            count = len(each["on_processor"]) if "on_processor" in each else ""
            found.append(f"| {row['key']} | {way} | {count} | {taken} | {said} |")
    return found
