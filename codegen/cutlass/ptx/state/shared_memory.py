"""Shared memory of a batch of CTAs: bytes, bounds, and the order of accesses.

Addresses are 32-bit offsets in a window that begins at 1024, so that a null pointer is outside of it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from codegen.cutlass.ptx.state.ordering import Ordering
from codegen.cutlass.ptx.state.scalars import POISON, Array
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault

SHARED_BASE: Final = 1024
ROUND: Final = 1024


class SharedMemory:
    """Shared memory with `size_bytes` for each of `ctas` CTAs with `warps` warps; the size of every access is a
    multiple of `cell_bytes`."""

    def __init__(self, ctas: int, warps: int, size_bytes: int, cell_bytes: int, *, proxies: bool) -> None:
        self.size_bytes = size_bytes
        self._pitch = -(-max(size_bytes, 16) // ROUND) * ROUND
        self._cell = cell_bytes
        self.data = np.full(ctas * self._pitch, POISON, np.uint8)
        self.order = Ordering(ctas, warps, self._pitch // cell_bytes, cell_bytes, proxies=proxies)
        self._start = np.repeat(np.arange(ctas) * self._pitch, warps * 32)

    def clear(self) -> None:
        """Reset for the next batch of CTAs."""
        self.data.fill(POISON)
        self.order.clear()

    def start_of_warps(self, warps: Array) -> Array:
        """Start of the memory of each warp's CTA in `data`."""
        starts: Array = self._start[warps * 32]
        return starts

    def places(self, addresses: Array, lanes: Array, width: int, act: str) -> Array:
        """Places in `data` of `width` bytes at the addresses of these threads. Raises KernelFault."""
        offsets: Array = addresses.astype(np.int64) - SHARED_BASE
        return self.check(offsets, width, act) + self._start[lanes]

    def offset(self, place: int) -> int:
        """Offset of a place of `data` in its CTA's memory."""
        return place % self._pitch

    def check(self, offsets: Array, width: int, act: str) -> Array:
        """Offsets from the window's start, unchanged. Raises KernelFault for offsets outside of it and for misaligned
        ones."""
        bad = (offsets < 0) | (offsets > self.size_bytes - width)
        if bad.any():
            worst = int(offsets[bad].reshape(-1)[0])
            raise KernelFault(
                FaultKind.OUT_OF_BOUNDS,
                f"{act} {width} bytes at offset {worst} of {self.size_bytes} bytes of shared memory",
            )
        if int(np.bitwise_or.reduce(offsets, axis=None, initial=0)) & width - 1:
            worst = int(offsets[(offsets & width - 1) != 0].reshape(-1)[0])
            raise KernelFault(FaultKind.MISALIGNED, f"{act} {width} bytes at offset {worst} of shared memory")
        return offsets

    def cells(self, places: Array, width: int) -> Array:
        """The cells of `width` bytes at n places, (n, k)."""
        first = places // self._cell
        if width == self._cell:
            return first[:, None]
        cells: Array = first[:, None] + np.arange(width // self._cell)
        return cells

    def gather_lanes(self, addresses: Array, lanes: Array, dtype: np.dtype[Any], count: int) -> Array:
        """Elements (n, count) at the addresses of these threads."""
        width = dtype.itemsize * count
        places = self.places(addresses, lanes, width, "reads")
        self.order.read(self.cells(places, width), lanes >> 5)
        rows: Array = self.data.view(dtype).reshape(-1, count)[places // width]
        return rows

    def scatter_lanes(self, addresses: Array, lanes: Array, rows: Array) -> None:
        """Write (n, count) elements at the addresses of these threads."""
        width = rows.dtype.itemsize * rows.shape[1]
        places = self.places(addresses, lanes, width, "writes")
        self.order.write(self.cells(places, width), lanes >> 5)
        self.data.view(rows.dtype).reshape(-1, rows.shape[1])[places // width] = rows
