"""What a step is, and what it is given: the pack, a machine, and items of work that are kept as they are done.

    Step.items(bench) --one after the other, until time is up--> rows by key, in one JSON file a step

A row that is there with the same pack is not made again. A row with the key `error` says what went wrong instead.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.gpu.store import Pack, Program
from codegen.cutlass.runner.runner import CudaDriver, Driver, GpuNetwork

__all__ = ["ROTATED_BYTES", "Bench", "Item", "Results", "Row", "Step", "left", "repeated", "spread"]

TIMED_MS = 1.0
"""That lies between two events at least: what starting a graph takes is lost in it."""
MOST_LAUNCHES = 4000
"""In one graph."""
ROTATED_BYTES = 128 << 20
"""Of copies of inputs among which runs take turns: more than an L2 holds."""

Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Bench:
    """Where steps run. `rehearse`: on the executor of PTX, with few repeats; its times are those of this machine's
    clock, say nothing of a GPU and are not kept. `results` is where the files of all steps lie."""

    pack: Pack
    rehearse: bool
    say: Say = print
    torch: bool = True
    results: Path | None = None
    chip: str | None = None
    """That of the GPU that is here; None: rows of all chips of the pack."""
    rows_like: str = ""
    """A regular expression: only rows in whose key it is found are made."""

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        """A machine with nothing on it. Raises RunnerError where there is no GPU."""
        if self.rehearse:
            from codegen.cutlass.runner.executor_driver import ExecutorDriver

            yield ExecutorDriver()
            return
        driver = CudaDriver()
        try:
            yield driver
        finally:
            driver.close()

    @property
    def repeats(self) -> int:
        """Times that something is timed."""
        return 1 if self.rehearse else 50

    @property
    def warm_up(self) -> int:
        """Runs before it is timed."""
        return 0 if self.rehearse else 5

    def times(self, network: GpuNetwork) -> tuple[float, ...]:
        """Milliseconds of one run, `repeats` times."""
        if self.rehearse:
            return network.time(1, warm_up=0, inner=2, rotated_bytes=1)
        inner = repeated(min(network.time(3, warm_up=self.warm_up)), len(network.launches))
        return network.time(self.repeats, warm_up=2, inner=inner, rotated_bytes=ROTATED_BYTES)

    def rows(self, step: str) -> list[Row]:
        """What another step has found of the same pack; none where it was not run."""
        path = self.results / f"gpu_{step}.json" if self.results else None
        if path is None or not path.is_file():
            return []
        found = json.loads(path.read_text())
        return list(found["rows"]) if found.get("pack") == self.pack.hash else []

    def here(self, programs: Iterable[Program]) -> list[Program]:
        """Those of the GPU that is here."""
        return [program for program in programs if self.chip in (None, program.chip)]

    def programs(self, *, reuses: bool = True) -> tuple[Program, ...]:
        """Small batches first."""
        found = [program for program in self.here(self.pack.programs) if program.reuses == reuses]
        return tuple(sorted(found, key=lambda program: program.batch))


@dataclass(frozen=True)
class Item:
    """One row of a step. What `work` raises is put down as the row."""

    key: str
    work: Callable[[], Row]


@dataclass(frozen=True)
class Step:
    """`seconds` is what it may take; `lines` makes a table of its rows; `wrong` says what in a row is not as it must
    be, empty where all is well. One that only reads what other steps have found does not keep its rows: they are made
    anew by every run."""

    name: str
    seconds: float
    items: Callable[[Bench], Iterable[Item]]
    lines: Callable[[Sequence[Row]], list[str]]
    wrong: Callable[[Row], str] = lambda row: str(row.get("error", ""))
    keeps: bool = True


@dataclass
class Results:
    """The JSON file of a step: rows in order, written after each."""

    path: Path
    head: Row
    rows: list[Row] = field(default_factory=list)
    done: bool = False

    @classmethod
    def opened(cls, path: Path, head: Row) -> Results:
        """What is there, if it is of the same pack, machine and step; else nothing."""
        if path.is_file():
            try:
                found = json.loads(path.read_text())
            except ValueError:
                found = {}
            if isinstance(found, dict) and {name: found.get(name) for name in head} == head:
                return cls(path, head, list(found["rows"]), bool(found["done"]))
        return cls(path, head)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(str(row["key"]) for row in self.rows)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        self.write()

    def write(self) -> None:
        """Whole or not at all."""
        text = json.dumps({**self.head, "done": self.done, "rows": self.rows}, indent=1) + "\n"
        scratch = self.path.with_name(f".{self.path.name}.new")
        scratch.write_text(text)
        os.replace(scratch, self.path)


def left(deadline: float) -> float:
    """Seconds."""
    return deadline - time.monotonic()


def repeated(milliseconds: float, launches: int) -> int:
    """Runs between two events, by what one takes and starts."""
    return max(1, min(math.ceil(TIMED_MS / milliseconds), MOST_LAUNCHES // max(launches, 1)))


def spread(milliseconds: Sequence[float]) -> Row:
    """Median and quartiles."""
    low, _, high = quantiles(milliseconds, n=4)
    return {"median_ms": median(milliseconds), "quartiles_ms": [low, high], "least_ms": min(milliseconds)}
