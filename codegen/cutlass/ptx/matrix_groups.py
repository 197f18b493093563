"""wgmma in flight: sums that land where they are waited for, and the shared memory that is read until then.

A product is computed when it is issued, from what memory holds then; its registers become poison, a further product of
the same registers goes on from what is in flight. `wait_group n` lands all but the n newest groups of each warp.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from codegen.cutlass.ptx.active import Active
from codegen.cutlass.ptx.scalars import Array
from codegen.cutlass.ptx.shared_memory import SharedMemory

__all__ = ["MatrixGroups", "Sums"]


@dataclass(slots=True)
class Sums:
    """One tuple of registers: `values` (warps, 16, n) f32, which warps have them in flight, and in which group."""

    registers: list[Array]
    values: Array
    flying: Array
    groups: Array


@dataclass(slots=True)
class _Reading:
    """Cells (n, k) of shared memory that warps (n,) read in a group each."""

    cells: Array
    warps: Array
    groups: Array


@dataclass(slots=True)
class MatrixGroups:
    """Of `warps` warps."""

    warps: int
    shared: SharedMemory
    committed: Array = field(init=False)
    sums: dict[tuple[str, ...], Sums] = field(default_factory=dict)
    _readings: list[_Reading] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.committed = np.zeros(self.warps, np.int64)

    def clear(self) -> None:
        """For the next batch of CTAs."""
        self.committed.fill(0)
        self._readings.clear()
        for sums in self.sums.values():
            sums.flying.fill(False)

    def of(self, names: tuple[str, ...], registers: list[Array], columns: int) -> Sums:
        """The sums held in these registers."""
        if names not in self.sums:
            values = np.zeros((self.warps, 16, columns), np.float32)
            self.sums[names] = Sums(registers, values, np.zeros(self.warps, np.bool_), np.zeros(self.warps, np.int64))
        return self.sums[names]

    def reads(self, cells: Array, warps: Array) -> None:
        """A product reads these cells until it is waited for. Raises Fault."""
        self.shared.order.read_by_matrix(cells, warps)
        self._readings.append(_Reading(cells, warps, self.committed[warps]))

    def commit(self, active: Active) -> None:
        """Closes the group of each active warp."""
        self.committed[active.whole_warps] += 1

    def landed(self, active: Active, newest: int) -> list[tuple[Sums, Array]]:
        """What lands at `wait_group newest`: sums and the warps of which; the shared memory read is free again."""
        warps = active.whole_warps
        here = np.zeros(self.warps, np.bool_)
        here[warps] = True
        found = []
        for sums in self.sums.values():
            due = sums.flying & here & (sums.groups < self.committed - newest)
            if due.any():
                sums.flying &= ~due
                found.append((sums, np.flatnonzero(due)))
        left = []
        for reading in self._readings:
            due = here[reading.warps] & (reading.groups < self.committed[reading.warps] - newest)
            if due.any():
                self.shared.order.release(reading.cells[due], reading.warps[due])
            if not due.all():
                left.append(_Reading(reading.cells[~due], reading.warps[~due], reading.groups[~due]))
        for reading in left:
            self.shared.order.keep(reading.cells, reading.warps)
        self._readings = left
        return found
