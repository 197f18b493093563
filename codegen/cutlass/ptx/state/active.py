"""Sets of the threads that execute an instruction.

A batch of CTAs is one long line of threads, CTA after CTA, each padded to whole warps; a register is an array over that
line. `Active` is a set of threads as a mask; where it holds all threads that still run, arithmetic ignores the mask,
since registers of finished threads are never read.
"""

from __future__ import annotations

import numpy as np

from codegen.cutlass.ptx.state.scalars import Array
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault

WARP = 32


class Active:
    """A set of threads: `mask` covers all threads of the batch. `whole` says that it holds every running thread, `full`
    that it holds every thread."""

    __slots__ = ("_lanes", "_live", "_warps", "full", "mask", "whole")

    def __init__(self, mask: Array, live: Array) -> None:
        self.mask = mask
        self._live = live
        self.whole = bool(np.array_equal(mask, live))
        self.full = self.whole and bool(mask.all())
        self._lanes: Array | None = None
        self._warps: Array | None = None

    @property
    def lanes(self) -> Array:
        """Numbers of the active threads, in ascending order."""
        if self._lanes is None:
            self._lanes = np.flatnonzero(self.mask)
        return self._lanes

    def where(self, predicate: Array, negated: bool) -> Active:
        """The active threads for which the predicate holds."""
        return Active(self.mask & ~predicate if negated else self.mask & predicate, self._live)

    def pick(self, values: Array) -> Array:
        """`values` of the active threads, one after the other."""
        return values if self.full else values[self.lanes]

    def put(self, target: Array, values: Array) -> None:
        """Write `values`, one per active thread, into a register."""
        if self.full:
            np.copyto(target, values, casting="unsafe")
        else:
            target[self.lanes] = values

    @property
    def warps(self) -> Array:
        """Numbers of the active warps. Raises KernelFault where a warp is only partly active."""
        if self._warps is None:
            by_warp = self.mask.reshape(-1, WARP)
            touched = by_warp.any(axis=1)
            parted = touched & (by_warp != self._live.reshape(-1, WARP)).any(axis=1)
            if parted.any():
                warp = int(np.flatnonzero(parted)[0])
                there, running = int(by_warp[warp].sum()), int(self._live.reshape(-1, WARP)[warp].sum())
                raise KernelFault(
                    FaultKind.DIVERGENCE,
                    f"{there} of the {running} running threads of a warp execute this; all must, or none",
                )
            self._warps = np.flatnonzero(touched)
        return self._warps

    @property
    def whole_warps(self) -> Array:
        """Numbers of the active warps, where all 32 threads of each must run, as matrix instructions need. Raises
        KernelFault where a warp has only some of its threads here."""
        warps = self.warps
        if not self.full and not self.mask.reshape(-1, WARP)[warps].all():
            raise KernelFault(
                FaultKind.DIVERGENCE, "threads of a warp have finished or do not execute this; all 32 must"
            )
        return warps
