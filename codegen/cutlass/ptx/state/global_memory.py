"""Global memory: allocations in one arena of bytes, with gaps between them that no access may touch.

    allocate(bytes or array) -> address;  the executor's gather and scatter check every access against its allocation

Unwritten memory is poison. Equal orders of allocation give equal addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike

from codegen.cutlass.ptx.state.scalars import POISON, Array
from codegen.cutlass.ptx.text.errors import FaultKind, KernelFault, PtxError, PtxLimits

BASE: Final = 0x7F00_0000_0000
GRANULE: Final = 256
SHIFT: Final = 8
LEAST_GAP: Final = 4 << 10
MOST_GAP: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ArenaRange:
    """A range of the arena: `size_bytes` from `offset_bytes`."""

    name: str
    offset_bytes: int
    size_bytes: int


class GlobalMemory:
    """A device's memory. Allocations are never freed: make another memory instead."""

    def __init__(self, limits: PtxLimits | None = None) -> None:
        self._limits = limits or PtxLimits()
        self._arena = np.full(1 << 16, POISON, np.uint8)
        self._ends = np.zeros(self._arena.size // GRANULE, np.int64)
        self._used = GRANULE
        self._allocations: list[ArenaRange] = []
        self._variables: dict[tuple[int, str], int] = {}
        self._owners: list[object] = []

    def allocate(self, what: int | Array, name: str = "") -> int:
        """Allocate this many bytes (poison), or a copy of an array; return the address, aligned to 256 bytes. Raises
        PtxError where the arena has no room."""
        data = None if isinstance(what, int) else np.ascontiguousarray(what).reshape(-1).view(np.uint8)
        size = what if isinstance(what, int) else int(what.nbytes)
        if size < 0 or self._used + size > self._limits.max_global_bytes:
            raise PtxError(
                f"{size} bytes more than {self._used} of {self._limits.max_global_bytes} bytes of global memory"
            )
        start = self._used
        gap = min(max(size, LEAST_GAP), MOST_GAP)  # so that a stride that is too long seldom meets the next allocation
        room = (-(-max(size, 1) // GRANULE) + -(-gap // GRANULE)) * GRANULE
        self._grow(start + room)
        self._ends[start >> SHIFT : start + size + GRANULE - 1 >> SHIFT] = start + size
        if data is not None:
            self._arena[start : start + size] = data
        self._used = start + room
        self._allocations.append(ArenaRange(name or f"allocation {len(self._allocations)}", start, size))
        return BASE + start

    def _grow(self, needed: int) -> None:
        if needed <= self._arena.size:
            return
        size = max(needed + GRANULE, 2 * self._arena.size)
        size = -(-size // GRANULE) * GRANULE
        arena = np.full(size, POISON, np.uint8)
        arena[: self._used] = self._arena[: self._used]
        ends = np.zeros(size // GRANULE, np.int64)
        ends[: self._ends.size] = self._ends
        self._arena, self._ends = arena, ends

    def variable(self, owner: object, name: str, make: Callable[[], Array]) -> int:
        """The address of a module's variable, which is made once per module."""
        key = (id(owner), name)
        if key not in self._variables:
            self._owners.append(owner)  # an id is valid while its object lives
            self._variables[key] = self.allocate(make(), name)
        return self._variables[key]

    def load(self, address: int, dtype: DTypeLike, shape: tuple[int, ...]) -> Array:
        """A copy of an array that lies at `address`. Raises PtxError where it is not in one allocation."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        start = self._inside(address, size)
        return self._arena[start : start + size].copy().view(kind).reshape(shape)

    def store(self, address: int, values: Array) -> None:
        """Write an array at `address`. Raises PtxError where it is not in one allocation."""
        start = self._inside(address, values.nbytes)
        self._arena[start : start + values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)

    def _inside(self, address: int, size: int) -> int:
        start = address - BASE
        for one in self._allocations:
            if one.offset_bytes <= start and start + size <= one.offset_bytes + one.size_bytes:
                return start
        raise PtxError(f"{size} bytes at {address:#x} are outside of all allocations")

    def gather(self, addresses: Array, dtype: np.dtype[Any], count: int) -> Array:
        """(n, count) elements at n addresses (uint64). Raises KernelFault."""
        offsets = self._offsets(addresses, dtype.itemsize * count, "reads")
        rows: Array = self._arena.view(dtype).reshape(-1, count)
        found: Array = rows[offsets // (dtype.itemsize * count)]
        return found

    def scatter(self, addresses: Array, rows: Array) -> None:
        """Write (n, count) elements at n addresses. Raises KernelFault."""
        width = rows.dtype.itemsize * rows.shape[1]
        offsets = self._offsets(addresses, width, "writes")
        self._arena.view(rows.dtype).reshape(-1, rows.shape[1])[offsets // width] = rows

    def _offsets(self, addresses: Array, width: int, act: str) -> Array:
        offsets: Array = (addresses - np.uint64(BASE)).view(np.int64)
        bad = (offsets < 0) | (offsets >= self._used)
        if not bad.any():
            bad = offsets + width > self._ends[offsets >> SHIFT]
        if bad.any():
            raise self._outside(int(addresses[np.flatnonzero(bad)[0]]), width, act)
        if int(np.bitwise_or.reduce(offsets, initial=0)) & width - 1:
            address = int(addresses[np.flatnonzero(offsets & width - 1)[0]])
            raise KernelFault(FaultKind.MISALIGNED, f"{act} {width} bytes at {address:#x}")
        return offsets

    def _outside(self, address: int, width: int, act: str) -> KernelFault:
        start = address - BASE
        near = [one for one in self._allocations if one.offset_bytes <= start]
        before = near[-1] if near else None
        text = f"{act} {width} bytes at {address:#x} in global memory"
        if before is not None and start < before.offset_bytes + before.size_bytes + (1 << 20):
            text += f", {start - before.offset_bytes} bytes into {before.name} of {before.size_bytes} bytes"
        return KernelFault(FaultKind.OUT_OF_BOUNDS, text)
