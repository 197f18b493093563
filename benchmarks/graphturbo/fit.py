"""The fit: which settings of the unpublished numbers agree with the vendor's example and three rows of ResNet-50.

    awaited run under the clock --serial_sum--> SerialSum --every setting of the grid--> seconds --fit--> Fit

With every step awaited a run is one chain of causes (`isched.timing.critical_path`), and the chain stays nearly the
same when the numbers change: a sum over what is on it says what the run takes under any other setting, in no time.
`Fit` has the setting that is nearest to the documented one among those that agree best, and all that agree within a
tolerance: what the three rows cannot tell apart. Whoever uses it checks the sums against the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import fsum

import numpy as np
import numpy.typing as npt

from benchmarks.graphturbo.settings import LIMITS, Setting, chip_of
from codegen.neuralscale.kernels.recost import work_cycles
from hw_models.chip import Chip
from isched.program.program import Instr, Program
from isched.program.timed_ops import Issue, timed_op
from isched.timing.critical_path import critical_path
from isched.timing.timeline import Timeline

__all__ = ["CLOSE", "TOLERANCE", "Fit", "Row", "SerialSum", "fit", "serial_sum"]

TOLERANCE = 0.05
"""A setting is in the range when its error is at most this above the smallest."""

CLOSE = 0.01
"""Settings whose error is at most this above the smallest count as equally good; the nearest to the documented wins."""

Work = tuple[str, tuple[tuple[str, int], ...]]
Errors = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SerialSum:
    """What is on the chain of one awaited run, launch excluded.

    `works` counts instructions of the matrix and vector engines by opcode and operands; `scalar_cycles` are those of
    scalar instructions and questions; `transfer_cycles` is by the number of cores that shared the link; `main_cycles`
    are those in which bytes move from or to the main memory; `other_cycles` do not change with the setting.
    """

    items: int
    launches: int
    at: Setting
    works: Mapping[Work, int]
    scalar_cycles: float
    barriers: int
    further_descriptors: int
    transfer_cycles: Mapping[float, float]
    main_cycles: float
    other_cycles: float

    def cycles(self, setting: Setting, chip: Chip) -> float:
        """Launches included."""
        return fsum(term(self.at.changed(_only(setting, names))) for names, term in self._terms(chip))

    def grid_cycles(self, chip: Chip) -> npt.NDArray[np.float64]:
        """For every setting of the grid, an axis a number in the order of `LIMITS`."""
        total = np.zeros([len(limit.values) for limit in LIMITS.values()])
        for names, term in self._terms(chip):
            own = [name for name in LIMITS if name in names]
            points = product(*(LIMITS[name].values for name in own))
            values = [term(self.at.changed(dict(zip(own, point, strict=True)))) for point in points]
            shape = [len(LIMITS[name].values) if name in own else 1 for name in LIMITS]
            total = total + np.array(values).reshape(shape)
        return total

    def _terms(self, chip: Chip) -> tuple[tuple[tuple[str, ...], Callable[[Setting], float]], ...]:
        """Parts of the sum, each with the numbers that it depends on."""
        matrix = {work: count for work, count in self.works.items() if work[0] in ("memul.mm", "meconv.mm")}
        vector = {work: count for work, count in self.works.items() if work not in matrix}
        return (
            (("fill_cycles", "row_cycles", "array_pixels"), lambda at: _work_cycles(matrix, chip_of(at, chip))),
            (("vector_elements",), lambda at: _work_cycles(vector, chip_of(at, chip))),
            (("launch_cycles",), lambda at: self.launches * at.launch_cycles),
            (("sync_cycles",), lambda at: self.barriers * at.sync_cycles),
            (("descriptor_cycles",), lambda at: self.further_descriptors * at.descriptor_cycles),
            (("scalar_cycles",), lambda at: self.scalar_cycles * at.scalar_cycles / self.at.scalar_cycles),
            (("llb_way_bytes",), self._transfers(chip)),
            (("ddr_bytes",), lambda at: self.main_cycles * self.at.ddr_bytes / at.ddr_bytes + self.other_cycles),
        )

    def _transfers(self, chip: Chip) -> Callable[[Setting], float]:
        alone = chip.link("LLB", "L1").available_bytes_per_cycle()

        def slowdown(at: Setting, sharers: float) -> float:
            return min(alone, self.at.llb_way_bytes / sharers) / min(alone, at.llb_way_bytes / sharers)

        return lambda at: sum(n * slowdown(at, sharers) for sharers, n in self.transfer_cycles.items())


def _only(setting: Setting, names: Sequence[str]) -> dict[str, float]:
    return {name: getattr(setting, name) for name in names}


def _work_cycles(works: Mapping[Work, int], chip: Chip) -> float:
    return sum(count * work_cycles(opcode, dict(operands), chip) for (opcode, operands), count in works.items())


def serial_sum(
    timeline: Timeline, program: Program, setting: Setting, chip: Chip, items: int, launches: int
) -> SerialSum:
    """The chain of an awaited run of `program`, made for `chip` with `setting`, which works off `items`."""
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
    return SerialSum(items, launches, setting, works, scalar, barriers, further, transfers, main, other)


def _shared(instr: Instr, cycles: float, chip: Chip) -> tuple[float, float]:
    """Latency of a transfer, and how many cores took part of the link while it moved, to a half. What moved as fast as
    a core can (broadcasts, most of all) counts as alone."""
    link = chip.link(instr.reads[0].memory, instr.writes[0].memory, instr.engine)
    size = sum(flow.size_bytes for flow in timed_op(instr, chip, Issue(0)).flows)
    moving = max(cycles - link.latency_cycles, 1.0)
    sharers = round(2 * moving * link.bandwidth_bytes_per_cycle / size) / 2
    shared = sharers * link.available_bytes_per_cycle() > link.bandwidth_bytes_per_cycle
    return link.latency_cycles, sharers if shared else 1.0


@dataclass(frozen=True)
class Row:
    """One row that the fit sees, or one that it predicts."""

    run: SerialSum
    published_per_second: float


@dataclass(frozen=True)
class Fit:
    """`errors` of all settings of the grid: the root of the mean square of ln(predicted / published) over the rows."""

    chip: Chip
    documented: Setting
    errors: Errors

    @cached_property
    def best_error(self) -> float:
        return float(self.errors.min())

    @cached_property
    def chosen(self) -> Setting:
        """The nearest to the documented one among the best: Euclid's distance, every axis of length 1. So several
        numbers that change a little come before one that goes to its limit."""
        close = np.argwhere(self.errors <= self.best_error + CLOSE)
        home = [limit.values.index(getattr(self.documented, name)) for name, limit in LIMITS.items()]
        sizes = [len(limit.values) - 1 for limit in LIMITS.values()]
        steps = np.linalg.norm((close - np.array(home)) / np.array(sizes), axis=1)
        # Of settings as near as each other, the one with the smaller error, then the first of the grid.
        order = sorted(range(len(close)), key=lambda n: (round(steps[n], 6), self.errors[tuple(close[n])], n))
        return self._setting(close[order[0]])

    @property
    def chosen_error(self) -> float:
        point = (limit.values.index(getattr(self.chosen, name)) for name, limit in LIMITS.items())
        return float(self.errors[tuple(point)])

    @cached_property
    def within(self) -> npt.NDArray[np.bool_]:
        """Which settings of the grid are in the range."""
        return self.errors <= self.best_error + TOLERANCE

    def values_within(self, name: str) -> tuple[float, float]:
        """Smallest and largest value of a number in the range."""
        axis = list(LIMITS).index(name)
        values = [LIMITS[name].values[n] for n in sorted({point[axis] for point in np.argwhere(self.within)})]
        return min(values), max(values)

    def interval(self, run: SerialSum) -> tuple[float, float]:
        """Fewest and most items a second of a run over the range, on all clusters."""
        cycles = run.grid_cycles(self.chip)[self.within]
        rate = run.items * self.chip.clusters * self.chip.clock_hz
        return float(rate / cycles.max()), float(rate / cycles.min())

    def ends(self, run: SerialSum) -> tuple[Setting, Setting]:
        """The settings of the range under which a run is slowest and fastest."""
        cycles = run.grid_cycles(self.chip)
        slow = np.where(self.within, cycles, -np.inf).argmax()
        fast = np.where(self.within, cycles, np.inf).argmin()
        return self._setting(np.unravel_index(slow, cycles.shape)), self._setting(np.unravel_index(fast, cycles.shape))

    def _setting(self, point: Iterable[np.intp]) -> Setting:
        chosen = {name: limit.values[n] for (name, limit), n in zip(LIMITS.items(), point, strict=True)}
        return self.documented.changed(chosen)


def fit(rows: Sequence[Row], chip: Chip, documented: Setting) -> Fit:
    """Every setting of the grid against the rows; the vendor's example holds by construction (`chip_of`)."""
    squares = np.zeros(())
    for row in rows:
        rate = row.run.items * chip.clusters * chip.clock_hz / row.run.grid_cycles(chip)
        squares = squares + np.log(rate / row.published_per_second) ** 2
    return Fit(chip, documented, np.sqrt(squares / len(rows)))
