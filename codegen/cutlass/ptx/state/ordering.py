"""Order of accesses to shared memory: a clock for each warp, a stamp for each cell.

Every barrier gives the warps that pass it a new time. `seen[a, b]` is the time up to which warp a knows the work of
warp b. A read of a cell needs its last write to be seen, a write also all reads; else two warps race. Cells are as
large as the kernel's smallest access, so neighbours do not disturb each other.

    stamp[cell], writer[cell]   last write      reads[cell, warp]   each warp's last read
    last_read[cell]             the CTA's time then: no warp's read is later, so most writes need no further check

Cells of an mbarrier are not plain memory: a plain read or write of them is a fault.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from codegen.cutlass.ptx.state.scalars import Array
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault

IN_FLIGHT: Final = (1 << 31) - 1
NEVER: Final = IN_FLIGHT - 1
OBJECT: Final = IN_FLIGHT - 2
OWN: Final = IN_FLIGHT - 3
BARRIERS: Final = 16


class Ordering:
    """Order of accesses in `ctas` CTAs with `warps` warps and `cells` cells each. Warps and cells are numbered through
    all CTAs.

    `proxies` says that reads by matrix products need proxy fences after writes.
    """

    def __init__(self, ctas: int, warps: int, cells: int, cell_bytes: int, *, proxies: bool) -> None:
        self._warps, self._cells, self._cell_bytes = warps, cells, cell_bytes
        self._stamp = np.empty(ctas * cells, np.int32)
        self._writer = np.zeros(ctas * cells, np.uint8)
        self._reads = np.zeros((ctas * cells, warps), np.int32)
        self._last_read = np.zeros(ctas * cells, np.int32)
        self._written_before_fence = np.zeros(ctas * cells if proxies else 0, np.int32)
        self._fences = np.ones(ctas * warps, np.int32)
        self._fenced = np.zeros((ctas * warps if proxies else 0, warps), np.int32)
        self._epoch = np.ones(ctas * warps, np.int32)
        self._time = np.ones(ctas, np.int32)
        self._seen = np.zeros((ctas * warps, warps), np.int32)
        self._local = np.tile(np.arange(warps), ctas)
        self._floor = np.zeros(ctas * warps, np.int32)
        self._board = np.zeros((ctas, BARRIERS, warps), np.int32)
        self.clear()

    def clear(self) -> None:
        """Reset for the next batch of CTAs."""
        self._stamp.fill(NEVER)
        zeros = (self._writer, self._reads, self._last_read, self._written_before_fence, self._seen, self._board)
        for one in (*zeros, self._fenced):
            one.fill(0)
        for one in (self._fences, self._epoch, self._time):
            one.fill(1)
        self._settle(slice(None))

    @property
    def warps(self) -> int:
        """Number of warps of a CTA."""
        return self._warps

    def epochs(self, warps: Array) -> Array:
        """The current time of each of these warps, (n,)."""
        now: Array = self._epoch[warps]
        return now

    def _settle(self, warps: Array | slice) -> None:
        """Update the floor of these warps: own accesses are always seen, and the floor is the time seen of every other
        warp."""
        rows = np.arange(self._epoch.size)[warps]
        self._seen[rows, self._local[rows]] = OWN
        self._floor[rows] = self._seen[rows].min(axis=1)

    # --- accesses; cells (n, k) and warps (n,)

    def read(self, cells: Array, warps: Array) -> None:
        """Record a read. Raises KernelFault for cells that are unwritten, in flight, or written unseen."""
        late = self._stamp[cells] > self._floor[warps][:, None]
        if late.any():
            self._examine(cells, warps, late, "reads", unwritten=False)
        now = self._epoch[warps][:, None]
        self._reads.reshape(-1)[cells * self._warps + self._local[warps][:, None]] = now
        self._last_read[cells] = self._time[warps // self._warps][:, None]

    def write(self, cells: Array, warps: Array, *, flight: bool = False) -> None:
        """Record a write. Raises KernelFault for cells that are in flight, or written or read unseen. With `flight` no
        access may touch the cells until `land`."""
        late = self._stamp[cells] > self._floor[warps][:, None]
        if late.any():
            self._examine(cells, warps, late, "writes", unwritten=True)
        if self._written_before_fence.size or (self._last_read[cells] > self._floor[warps][:, None]).any():
            self._examine_reads(cells, warps)
        self._stamp[cells] = IN_FLIGHT if flight else self._epoch[warps][:, None]
        self._writer[cells] = self._local[warps][:, None]
        if self._written_before_fence.size:
            self._written_before_fence[cells] = self._fences[warps][:, None]
        both = self._writer[cells] != self._local[warps][:, None]
        if both.any():
            i, j = (int(index[0]) for index in np.nonzero(both))
            raise self._race(warps[i], "writes", cells[i, j], int(self._writer[cells[i, j]]), "write")

    def _examine_reads(self, cells: Array, warps: Array) -> None:
        """Check cells of which some were read recently: by warps whose reads are not seen?"""
        unseen = self._reads[cells] > self._seen[warps][:, None, :]
        if unseen.any():
            i, j, other = (int(index[0]) for index in np.nonzero(unseen))
            if self._reads[cells[i, j], other] == IN_FLIGHT:
                raise KernelFault(
                    FaultKind.IN_FLIGHT,
                    (
                        f"warp {self._local[warps[i]]} writes {self._place(cells[i, j])}, which an asynchronous "
                        f"matrix product still reads"
                    ),
                )
            raise self._race(warps[i], "writes", cells[i, j], other, "read")

    def land(self, cells: Array, warps: Array, epochs: Array | None = None, *, proxied: bool = False) -> None:
        """Land a copy in flight, as a write of the current time, or of the times (n,) given; `proxied` for a write
        through the asynchronous proxy, after which its reads need no fence."""
        self._stamp[cells] = (self._epoch[warps] if epochs is None else epochs)[:, None]
        if self._written_before_fence.size:
            self._written_before_fence[cells] = 0 if proxied else self._fences[warps][:, None]

    def write_by_bulk(self, cells: Array, warps: Array) -> None:
        """Record a write through the asynchronous proxy, in flight until `land`: a write before it must be fenced.
        Raises KernelFault."""
        if self._written_before_fence.size and (self._stamp[cells] != OBJECT).all():
            self._examine_fences(cells, warps, "overwritten by a bulk copy")
        self.write(cells, warps, flight=True)

    def read_by_matrix(self, cells: Array, warps: Array) -> None:
        """Record a read through the asynchronous proxy, for which the writer must have fenced since. The cells are in
        flight until `release`. Raises KernelFault for a race."""
        self.read(cells, warps)
        if self._written_before_fence.size:
            self._examine_fences(cells, warps, "read by an asynchronous matrix product")
        self.keep(cells, warps)

    def _examine_fences(self, cells: Array, warps: Array, act: str) -> None:
        """Check whether these cells were written without a fence since."""
        writers = cells // self._cells * self._warps + self._writer[cells]
        unfenced = self._written_before_fence[cells] >= self._fences[writers]
        if unfenced.any():  # not by the writers: by the reader, after it saw the writes?
            unfenced &= self._fenced[warps[:, None], self._writer[cells]] < self._stamp[cells]
        if unfenced.any():
            i, j = (int(index[0]) for index in np.nonzero(unfenced))
            raise KernelFault(
                FaultKind.FENCE,
                (
                    f"{self._place(cells[i, j])}, written by warp {self._writer[cells[i, j]]}, is {act} without "
                    f"fence.proxy.async in between"
                ),
            )

    def keep(self, cells: Array, warps: Array) -> None:
        """Record that a matrix product still reads these cells."""
        self._reads[cells, self._local[warps][:, None]] = IN_FLIGHT

    def release(self, cells: Array, warps: Array) -> None:
        """Record that the matrix product that read these cells is complete."""
        self._reads[cells, self._local[warps][:, None]] = self._epoch[warps][:, None]

    def fence(self, warps: Array) -> None:
        """Record fence.proxy.async of these warps: for their own writes, and for those of others that they see."""
        self._fences[warps] += 1
        if self._fenced.size:
            self._fenced[warps] = self._seen[warps]
            self._fenced[warps, self._local[warps]] = 0

    def _examine(self, cells: Array, warps: Array, late: Array, act: str, *, unwritten: bool) -> None:
        i, j = np.nonzero(late)
        cell, warp = cells[i, j], warps[i]
        stamp, writer = self._stamp[cell], self._writer[cell]
        kept = stamp == OBJECT
        if kept.any():
            k = int(np.flatnonzero(kept)[0])
            raise KernelFault(
                FaultKind.INVALID, f"warp {self._local[warp[k]]} {act} {self._place(cell[k])}, which is an mbarrier"
            )
        flight = stamp == IN_FLIGHT
        if flight.any():
            k = int(np.flatnonzero(flight)[0])
            raise KernelFault(
                FaultKind.IN_FLIGHT,
                (
                    f"warp {self._local[warp[k]]} {act} {self._place(cell[k])}, where a cp.async of warp "
                    f"{writer[k]} lands only at its wait"
                ),
            )
        never = stamp == NEVER
        if never.any() and not unwritten:
            k = int(np.flatnonzero(never)[0])
            raise KernelFault(
                FaultKind.UNINITIALISED,
                f"warp {self._local[warp[k]]} reads {self._place(cell[k])}, which nobody has written",
            )
        bad = ~never & (writer != self._local[warp]) & (self._seen[warp, writer] < stamp)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise self._race(warp[k], act, cell[k], int(writer[k]), "write")

    def _place(self, cell: int) -> str:
        return f"shared memory at offset {int(cell) % self._cells * self._cell_bytes}"

    def _race(self, warp: int, act: str, cell: int, other: int, done: str) -> KernelFault:
        return KernelFault(
            FaultKind.RACE,
            f"warp {self._local[warp]} {act} {self._place(cell)} with no barrier after the {done} by warp {other}",
        )

    # --- barriers

    def all_meet(self, ctas: Array) -> None:
        """Let all running warps of these CTAs pass a barrier together."""
        self._time[ctas] += 1
        warps = (ctas[:, None] * self._warps + np.arange(self._warps)).reshape(-1)
        now = np.repeat(self._time[ctas], self._warps)
        self._seen[warps] = (now - 1)[:, None]
        self._epoch[warps] = now
        self._settle(warps)

    def arrive(self, cta: int, barrier: int, warps: Array) -> None:
        """Record an arrival: the work of these warps (of one CTA) so far is known to every warp that passes the
        barrier."""
        np.maximum(self._board[cta, barrier], self.publish(warps).max(axis=0), out=self._board[cta, barrier])

    def acquire(self, cta: int, barrier: int, warps: Array) -> None:
        """Let these warps pass the barrier."""
        self.learn(warps, self._board[cta, barrier])

    def reset(self, cta: int, barrier: int) -> None:
        """Reset a complete barrier."""
        self._board[cta, barrier] = 0

    def publish(self, warps: Array) -> Array:
        """Knowledge and past work of each of these n warps of one CTA, (n, warps of a CTA), without their work from now
        on."""
        known = self._seen[warps].copy()
        known[np.arange(warps.size), self._local[warps]] = self._epoch[warps]
        cta = int(warps[0]) // self._warps
        self._time[cta] += 1
        self._epoch[warps] = self._time[cta]
        return known

    def learn(self, warps: Array, known: Array) -> None:
        """Give these warps the published knowledge."""
        self._seen[warps] = np.maximum(self._seen[warps], known)
        self._settle(warps)

    # --- mbarriers

    def take(self, cells: Array, warps: Array) -> int:
        """Make an mbarrier of these cells for one warp; return the time. Raises KernelFault for a race."""
        self.write(cells, warps)
        self._stamp[cells] = OBJECT
        return int(self._epoch[warps[0]])

    def give(self, cells: Array, warps: Array) -> None:
        """Turn cells of an mbarrier into plain memory again, as a write of the current time."""
        self._stamp[cells] = self._epoch[warps][:, None]
        self._writer[cells] = self._local[warps][:, None]

    def sees(self, warps: Array, maker: int, born: int, name: str) -> None:
        """Raises KernelFault where one of these warps does not know the work of `maker` at time `born`."""
        blind = (warps != maker) & (self._seen[warps, self._local[maker]] < born)
        if blind.any():
            raise KernelFault(
                FaultKind.RACE,
                f"warp {self._local[warps[blind][0]]} uses {name} with no barrier after warp {self._local[maker]} "
                f"made it",
            )
