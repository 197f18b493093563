"""The fit: which settings of the unpublished numbers agree with the vendor's example and three rows of ResNet-50.

    Sums of the rows, what was published --every setting of the grid--> errors --> Fit

`Fit` has the setting that is nearest to the favourable one among those that agree best, and all that agree within a
tolerance: what the three rows cannot tell apart. A number is not identified where each of its values fits as well as
any other, as long as the other numbers may change. Whoever uses it checks the sums against the clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from benchmarks.graphturbo.settings import LIMITS, Setting
from benchmarks.graphturbo.sums import GRID, Sums
from hw_models.chip import Chip

__all__ = ["CLOSE", "TOLERANCE", "Fit", "fit"]

TOLERANCE = 0.05
"""A setting is in the range when its error is at most this above the smallest."""

CLOSE = 0.01
"""Settings whose error is at most this above the smallest count as equally good; the nearest to the favourable wins."""

Errors = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """`errors` of all settings of the grid: the root of the mean square of ln(predicted / published) over the rows."""

    chip: Chip
    home: Setting
    errors: Errors

    @cached_property
    def best_error(self) -> float:
        return float(self.errors.min())

    @cached_property
    def home_error(self) -> float:
        """Of the favourable setting."""
        return float(self.errors[self._point(self.home)])

    @cached_property
    def chosen(self) -> Setting:
        """The nearest to the favourable one among the best: Euclid's distance, every axis of length 1. So several
        numbers that change a little come before one that goes to its limit."""
        close = np.argwhere(self.errors <= self.best_error + CLOSE)
        steps = np.linalg.norm((close - np.array(self._point(self.home))) / np.array([n - 1 for n in GRID]), axis=1)
        # Of settings as near as each other, the one with the smaller error, then the first of the grid.
        errors = self.errors[tuple(close.T)]
        return self._setting(close[np.lexsort((errors, np.round(steps, 6)))[0]])

    @property
    def chosen_error(self) -> float:
        return float(self.errors[self._point(self.chosen)])

    @cached_property
    def within(self) -> npt.NDArray[np.bool_]:
        """Which settings of the grid are in the range."""
        return self.errors <= self.best_error + TOLERANCE

    @cached_property
    def digest(self) -> str:
        """The same for equal fits: of the settings in the range."""
        text = repr((tuple(LIMITS.items()), self.chosen)).encode()
        return hashlib.sha256(text + np.packbits(self.within).tobytes()).hexdigest()[:16]

    def values_within(self, name: str) -> tuple[float, float]:
        """Smallest and largest value of a number in the range."""
        values = [value for value, there in zip(LIMITS[name].values, self._by_value(self.within, name), strict=True)
                  if there.any()]  # fmt: skip
        return min(values), max(values)

    def best_by_value(self, name: str) -> tuple[float, ...]:
        """The smallest error that each value of a number allows, the other numbers free."""
        return tuple(float(errors.min()) for errors in self._by_value(self.errors, name))

    def unidentified(self) -> tuple[str, ...]:
        """Numbers whose every value fits as well as the best."""
        return tuple(name for name in LIMITS if max(self.best_by_value(name)) <= self.best_error + CLOSE)

    def error_with_only(self, names: Iterable[str]) -> float:
        """The smallest error where only these numbers leave their favourable values."""
        moved = set(names)
        home = self._point(self.home)
        index = tuple(slice(None) if name in moved else n for name, n in zip(LIMITS, home, strict=True))
        return float(self.errors[index].min())

    def interval(self, sums: Sums) -> tuple[float, float]:
        """Fewest and most items a second of a run over the range, on all clusters."""
        cycles = sums.grid_cycles()[self.within]
        rate = sums.items * self.chip.clusters * self.chip.clock_hz
        return float(rate / cycles.max()), float(rate / cycles.min())

    def ends(self, sums: Sums) -> tuple[Setting, Setting]:
        """The settings of the range under which a run is slowest and fastest."""
        cycles = sums.grid_cycles()
        slow = np.where(self.within, cycles, -np.inf).argmax()
        fast = np.where(self.within, cycles, np.inf).argmin()
        return self._setting(np.unravel_index(slow, cycles.shape)), self._setting(np.unravel_index(fast, cycles.shape))

    def _by_value(self, grid: npt.NDArray[np.generic], name: str) -> list[npt.NDArray[np.generic]]:
        axis = list(LIMITS).index(name)
        return [np.take(grid, n, axis=axis) for n in range(GRID[axis])]

    def _point(self, setting: Setting) -> tuple[int, ...]:
        return tuple(limit.values.index(getattr(setting, name)) for name, limit in LIMITS.items())

    def _setting(self, point: Iterable[np.intp]) -> Setting:
        return self.home.changed(
            {name: limit.values[n] for (name, limit), n in zip(LIMITS.items(), point, strict=True)}
        )


def fit(rows: Sequence[tuple[Sums, float]], chip: Chip, home: Setting) -> Fit:
    """Every setting of the grid against rows, each with the items a second that were published; the vendor's example
    holds by construction (`chip_of`)."""
    squares = np.zeros(GRID)
    for sums, published in rows:
        rate = sums.items * chip.clusters * chip.clock_hz / sums.grid_cycles()
        squares += np.log(rate / published) ** 2
    return Fit(chip, home, np.sqrt(squares / len(rows)))
