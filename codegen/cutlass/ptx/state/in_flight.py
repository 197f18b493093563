"""Work in flight: copies of cp.async and sums of wgmma, which land at the instruction that waits for them.

issue: the source is read, the destination becomes poison that no access may touch
commit_group: the work that the thread has issued so far is its next group
wait_group n: all but the thread's n newest groups land;  wait_all: everything does
land_until: the copies that an mbarrier waits for land (mbarriers.py says when)
issue_bulk, land_bulk: a bulk copy, which no group waits for, only an mbarrier

A product of wgmma is computed when it is issued, from the memory of that time. Its registers become poison, its shared
memory counts as being read until it lands, and a further product of the same registers continues from the sums in
flight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from codegen.cutlass.ptx.state.active import Active
from codegen.cutlass.ptx.state.scalars import POISON, Array
from codegen.cutlass.ptx.state.shared_memory import SharedMemory


@dataclass(slots=True)
class Sums:
    """The sums of one tuple of registers: `values` (warps, 16, n) f32, the warps that have them in flight, and their
    groups."""

    registers: list[Array]
    values: Array
    flying: Array
    groups: Array


@dataclass(slots=True)
class _Reading:
    """Cells (n, k) of shared memory that warps (n,) read, with the group of each."""

    cells: Array
    warps: Array
    groups: Array


@dataclass(slots=True)
class MatrixGroups:
    """Groups of wgmma of `warps` warps."""

    warps: int
    shared: SharedMemory
    committed: Array = field(init=False)
    sums: dict[tuple[str, ...], Sums] = field(default_factory=dict)
    _readings: list[_Reading] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.committed = np.zeros(self.warps, np.int64)

    def clear(self) -> None:
        """Reset for the next batch of CTAs."""
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
        """Record that a product reads these cells until it is waited for. Raises KernelFault."""
        self.shared.order.read_by_matrix(cells, warps)
        self._readings.append(_Reading(cells, warps, self.committed[warps]))

    def commit(self, active: Active) -> None:
        """Close the group of each active warp."""
        self.committed[active.whole_warps] += 1

    def landed(self, active: Active, newest: int) -> list[tuple[Sums, Array]]:
        """Results of `wait_group newest`: the sums that land, and for which warps; the shared memory that was read is
        free again."""
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


@dataclass(slots=True)
class _Flight:
    """Copies of one instruction: threads, places in shared memory, bytes (n, width), and the group and time of each."""

    lanes: Array
    places: Array
    rows: Array
    groups: Array
    epochs: Array
    serial: int


@dataclass(frozen=True, slots=True)
class BulkFlight:
    """A bulk copy in units of 16 bytes: thread, places in shared memory, bytes (n, 16), and time, of each unit."""

    lanes: Array
    places: Array
    rows: Array
    epochs: Array


class AsyncCopies:
    """The copies in flight of `threads` threads."""

    def __init__(self, threads: int, shared: SharedMemory) -> None:
        self._shared = shared
        self._committed = np.zeros(threads, np.int64)
        self._flights: list[_Flight] = []
        self.issued = 0

    def clear(self) -> None:
        """Reset for the next batch of CTAs."""
        self._committed.fill(0)
        self._flights.clear()

    def issue(self, addresses: Array, lanes: Array, rows: Array) -> None:
        """Issue copies of `rows` (n, width) of uint8 to n shared addresses. Raises KernelFault."""
        width = rows.shape[1]
        places = self._shared.places(addresses, lanes, width, "copies")
        self._shared.order.write(self._shared.cells(places, width), lanes >> 5, flight=True)
        self._shared.data.reshape(-1, width)[places // width] = POISON
        self.issued += 1
        epochs = self._shared.order.epochs(lanes >> 5)
        self._flights.append(_Flight(lanes, places, rows, self._committed[lanes], epochs, self.issued))

    def commit(self, active: Active) -> None:
        """Close the group of each active thread."""
        self._committed[active.mask] += 1

    def wait(self, active: Active, newest: int | None) -> None:
        """Land all but the `newest` groups of each active thread; with None, also copies that are in no group yet."""

        def due(flight: _Flight) -> Array:
            named = active.mask[flight.lanes]
            return named if newest is None else named & (flight.groups < self._committed[flight.lanes] - newest)

        self._land_all(due, issued=False)

    def issue_bulk(self, address: int, lane: int, rows: Array) -> BulkFlight:
        """Issue a bulk copy of `rows` (n, 16) of uint8 by one thread; it lands by `land_bulk`. Raises KernelFault."""
        lanes = np.full(rows.shape[0], lane)
        addresses = address + 16 * np.arange(rows.shape[0])
        places = self._shared.places(addresses, lanes, 16, "a bulk copy writes")
        self._shared.order.write_by_bulk(self._shared.cells(places, 16), lanes >> 5)
        self._shared.data.reshape(-1, 16)[places // 16] = POISON
        return BulkFlight(lanes, places, rows, self._shared.order.epochs(lanes >> 5))

    def land_bulk(self, flight: BulkFlight) -> None:
        """Land a bulk copy, as a write of the time of issue."""
        self._shared.data.reshape(-1, 16)[flight.places // 16] = flight.rows
        cells = self._shared.cells(flight.places, 16)
        self._shared.order.land(cells, flight.lanes >> 5, flight.epochs, proxied=True)

    def land_until(self, lanes: Array, serial: int) -> None:
        """Land the copies that these threads issued up to `serial` (of `issued`), as writes of the time of issue."""
        chosen = np.zeros(self._committed.size, np.bool_)
        chosen[lanes] = True
        self._land_all(lambda flight: chosen[flight.lanes] & (flight.serial <= serial), issued=True)

    def _land_all(self, due: Callable[[_Flight], Array], *, issued: bool) -> None:
        """Land the copies that are `due`, as writes of the time of issue if `issued`, else of now."""
        left: list[_Flight] = []
        for flight in self._flights:
            lands = due(flight)
            if lands.any():
                part = flight if lands.all() else _part(flight, lands)
                self._land(part, part.epochs if issued else None)
            if not lands.all():
                left.append(_part(flight, ~lands) if lands.any() else flight)
        self._flights = left

    def _land(self, flight: _Flight, epochs: Array | None = None) -> None:
        width = flight.rows.shape[1]
        words = np.dtype(f"u{min(width, 8)}")
        target = self._shared.data.view(words).reshape(-1, width // words.itemsize)
        target[flight.places // width] = np.ascontiguousarray(flight.rows).view(words)
        self._shared.order.land(self._shared.cells(flight.places, width), flight.lanes >> 5, epochs)


def _part(flight: _Flight, chosen: Array) -> _Flight:
    return _Flight(
        flight.lanes[chosen], flight.places[chosen], flight.rows[chosen], flight.groups[chosen],
        flight.epochs[chosen], flight.serial,
    )  # fmt: skip
