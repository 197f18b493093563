"""What a run takes under every setting of the grid, without running it again.

    awaited run under the clock --sums_of--> Sums (kept in the results) --grid_cycles--> cycles, an axis a number

With every step awaited a run is one chain of causes (`isched.timing.critical_path`), and the chain stays nearly the
same when the numbers change: a sum over what is on it says what the run takes under any other setting, in no time. Sums
are lists of numbers, so rows can be made on different days and fitted together. Those of a network of one and of two
layers say what more layers take (`extended`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.graphturbo.settings import LIMITS, Setting, costs_at, favourable
from hw_models.chip import Chip
from isched.program.program import Instr, Program
from isched.program.timed_ops import IssueCost, timed_op
from isched.timing.critical_path import critical_path
from isched.timing.timeline import Timeline

__all__ = ["GRID", "Part", "Sums", "read_sums", "sums_of"]

Grid = npt.NDArray[np.float64]
Work = tuple[str, tuple[tuple[str, int], ...]]

GRID = tuple(len(limit.values) for limit in LIMITS.values())
"""Values of each number, in the order of `LIMITS`."""


@dataclass(frozen=True)
class Part:
    """Cycles for every combination of the values of some numbers, the last number's changing fastest."""

    names: tuple[str, ...]
    cycles: tuple[float, ...]

    def grid(self) -> Grid:
        """With an axis for every number of the grid, of length 1 for those that do not matter."""
        shape = [size if name in self.names else 1 for name, size in zip(LIMITS, GRID, strict=True)]
        return np.array(self.cycles).reshape(shape)


@dataclass(frozen=True)
class Sums:
    """Of a whole batch of `items` on one cluster. What does not depend on the grid is apart: `launches` at
    `launch_cycles` each, `main_cycles` in which bytes move from or to the main memory."""

    items: int
    launches: float
    launch_cycles: float
    main_cycles: float
    other_cycles: float
    parts: tuple[Part, ...]

    def grid_cycles(self) -> Grid:
        """For every setting of the grid, launches included."""
        total = np.full(GRID, self.launches * self.launch_cycles + self.main_cycles + self.other_cycles)
        for part in self.parts:
            total += part.grid()
        return total

    def cycles(self, setting: Setting, main_faster: float = 1.0) -> float:
        """At a setting of the grid, with the main memory so many times as fast."""
        point = tuple(limit.values.index(getattr(setting, name)) for name, limit in LIMITS.items())
        found = self.launches * self.launch_cycles + self.main_cycles / main_faster + self.other_cycles
        for part in self.parts:
            grid = part.grid()
            found += float(grid[tuple(0 if size == 1 else n for n, size in zip(point, grid.shape, strict=True))])
        return found

    def extended(self, smaller: Sums, steps: float) -> Sums:
        """So many steps further, of which one is from `smaller` to this."""

        def on(own: float, other: float) -> float:
            return own + steps * (own - other)

        pairs = zip(self.parts, smaller.parts, strict=True)
        return Sums(
            self.items,
            on(self.launches, smaller.launches),
            self.launch_cycles,
            on(self.main_cycles, smaller.main_cycles),
            on(self.other_cycles, smaller.other_cycles),
            tuple(
                Part(one.names, tuple(on(*both) for both in zip(one.cycles, other.cycles, strict=True)))
                for one, other in pairs
            ),
        )

    def as_json(self) -> dict[str, Any]:
        parts = [{"names": list(part.names), "cycles": list(part.cycles)} for part in self.parts]
        numbers = ("items", "launches", "launch_cycles", "main_cycles", "other_cycles")
        return {name: getattr(self, name) for name in numbers} | {"parts": parts}


def read_sums(found: Mapping[str, Any]) -> Sums | None:
    """What `as_json` gave; None where the limits were others then."""
    parts = tuple(Part(tuple(part["names"]), tuple(part["cycles"])) for part in found["parts"])
    sizes = dict(zip(LIMITS, GRID, strict=True))
    if any(len(part.cycles) != prod(sizes.get(name, 0) for name in part.names) for part in parts):
        return None
    return Sums(
        found["items"], found["launches"], found["launch_cycles"], found["main_cycles"], found["other_cycles"], parts
    )


def sums_of(
    timeline: Timeline,
    program: Program,
    chip: Chip,
    items: int,
    launches: int,
    passes: int,
    fetching: Mapping[float, float],
) -> Sums:
    """The chain of an awaited run of `program`, made for `chip` as its file has it; it runs `passes` times.

    Misses of the instruction cache change the chain: they come to all cores, also to those that the others wait for
    anyway. So `fetching` has what they add, by `miss_cycles`, from runs of their own.
    """
    chain = _chain(timeline, program, chip)
    home = favourable(chip)
    matrix = {work: count for work, count in chain.works.items() if work[0] in ("memul.mm", "meconv.mm")}
    vector = {work: count for work, count in chain.works.items() if work not in matrix}
    instructions = chain.scalar_cycles / chip.assumed.scalar_instruction_cycles
    parts: tuple[tuple[tuple[str, ...], Callable[[Setting], float]], ...] = (
        (("fill_cycles", "row_cycles", "array_pixels"), lambda at: _work_cycles(matrix, at, chip)),
        (
            ("vector_elements", "accumulate_elements", "special_elements"),
            lambda at: _work_cycles(vector, at, chip),
        ),
        (("sync_cycles",), lambda at: chain.barriers * at.sync_cycles),
        (("descriptor_cycles",), lambda at: chain.further_descriptors * at.descriptor_cycles),
        (("scalar_cycles",), lambda at: instructions * at.scalar_cycles),
        (("miss_cycles",), lambda at: fetching[at.miss_cycles]),
        (("llb_way_bytes",), _transfers(chain.transfer_cycles, home, chip)),
    )
    return Sums(
        items,
        launches,
        home.launch_cycles,
        passes * chain.main_cycles,
        passes * chain.other_cycles,
        tuple(_part(names, term, home, passes) for names, term in parts),
    )


def _part(names: tuple[str, ...], term: Callable[[Setting], float], home: Setting, passes: int) -> Part:
    own = [name for name in LIMITS if name in names]
    points = product(*(LIMITS[name].values for name in own))
    values = (term(home.changed(dict(zip(own, point, strict=True)))) for point in points)
    return Part(tuple(own), tuple(passes * value for value in values))


def _work_cycles(works: Mapping[Work, int], at: Setting, chip: Chip) -> float:
    cycles_of = costs_at(at, chip)
    return sum(count * cycles_of(opcode, dict(operands)) for (opcode, operands), count in works.items())


def _transfers(cycles: Mapping[float, float], home: Setting, chip: Chip) -> Callable[[Setting], float]:
    alone = chip.link("LLB", "L1").available_bytes_per_cycle()

    def slowdown(at: Setting, sharers: float) -> float:
        return min(alone, home.llb_way_bytes / sharers) / min(alone, at.llb_way_bytes / sharers)

    return lambda at: sum(n * slowdown(at, sharers) for sharers, n in cycles.items())


@dataclass(frozen=True)
class _Chain:
    """What is on the chain. `works` counts instructions of the matrix and vector engines by opcode and operands;
    `transfer_cycles` is by the number of cores that shared the link."""

    works: Mapping[Work, int]
    scalar_cycles: float
    barriers: int
    further_descriptors: int
    transfer_cycles: Mapping[float, float]
    main_cycles: float
    other_cycles: float


def _chain(timeline: Timeline, program: Program, chip: Chip) -> _Chain:
    works: Counter[Work] = Counter()
    transfers: dict[float, float] = {}
    scalar = main = other = 0.0
    further = 0
    streams = {stream.core: stream.instrs for stream in program.streams}
    barriers = sum(instr.opcode == program.barrier for instr in streams[min(streams)])
    for stretch in critical_path(timeline):
        cycles = stretch.end - stretch.start
        span = timeline.spans[stretch.span]
        instr = streams[span.core][span.index]
        if stretch.cause in ("scalar", "asking"):
            scalar += cycles
        elif stretch.cause in ("matrix", "vector"):
            works[instr.opcode, instr.operands] += 1
        elif stretch.cause == "dma":
            fixed = chip.link(instr.reads[0].memory, instr.writes[0].memory).latency_cycles
            main += cycles - fixed
            other += fixed
            further += len(instr.reads) - 1
        elif stretch.cause == "transfer":
            fixed, sharers = _shared(instr, cycles, chip)
            transfers[sharers] = transfers.get(sharers, 0.0) + cycles - fixed
            other += fixed
        elif stretch.cause != "barrier":
            other += cycles
    return _Chain(works, scalar, barriers, further, transfers, main, other)


def _shared(instr: Instr, cycles: float, chip: Chip) -> tuple[float, float]:
    """Latency of a transfer, and how many cores took part of the link while it moved, to a half. What moved as fast as
    a core can (broadcasts, most of all) counts as alone."""
    link = chip.link(instr.reads[0].memory, instr.writes[0].memory, instr.engine)
    size = sum(flow.size_bytes for flow in timed_op(instr, chip, IssueCost(0)).flows)
    moving = max(cycles - link.latency_cycles, 1.0)
    sharers = round(2 * moving * link.bandwidth_bytes_per_cycle / size) / 2
    shared = sharers * link.available_bytes_per_cycle() > link.bandwidth_bytes_per_cycle
    return link.latency_cycles, sharers if shared else 1.0
