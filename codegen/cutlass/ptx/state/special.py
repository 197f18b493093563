"""Special registers of a batch of CTAs, and the mask of its existing threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen.cutlass.ptx.state.active import WARP
from codegen.cutlass.ptx.state.layout import SymbolLayout
from codegen.cutlass.ptx.state.scalars import Array

AXES = "xyz"


@dataclass(frozen=True, slots=True)
class Geometry:
    """CTAs of the grid and threads of a CTA, each by x, y, z."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def threads(self) -> int:
        """Number of threads of a CTA."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Number of warps of a CTA; the last one may be incomplete."""
        return -(-self.threads // WARP)

    @property
    def ctas(self) -> int:
        """Number of CTAs of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


class Special:
    """Special registers of a batch. `registers` holds uint32 values by name, one per thread or one for all; those of
    CTAs change from batch to batch."""

    def __init__(self, geometry: Geometry, ctas: int, layout: SymbolLayout) -> None:
        self._geometry = geometry
        pitch = geometry.warps * WARP
        thread = np.arange(pitch)
        lane = thread % WARP
        place = (thread % geometry.block[0], thread // geometry.block[0] % geometry.block[1],
                 thread // (geometry.block[0] * geometry.block[1]))  # fmt: skip
        by_thread: dict[str, Array] = {f"%tid.{axis}": place[k] for k, axis in enumerate(AXES)}
        by_thread |= {"%laneid": lane, "%warpid": thread // WARP}
        by_thread |= {
            "%lanemask_eq": 1 << lane,
            "%lanemask_lt": (1 << lane) - 1,
            "%lanemask_le": (2 << lane) - 1,
            "%lanemask_gt": 0xFFFF_FFFF & ~((2 << lane) - 1),
            "%lanemask_ge": 0xFFFF_FFFF & ~((1 << lane) - 1),
        }
        one = {f"%ntid.{axis}": geometry.block[k] for k, axis in enumerate(AXES)}
        one |= {f"%nctaid.{axis}": geometry.grid[k] for k, axis in enumerate(AXES)}
        one |= {
            "WARP_SZ": WARP,
            "%nwarpid": geometry.warps,
            "%dynamic_smem_size": layout.dynamic_bytes,
            "%total_smem_size": layout.shared_bytes,
            "%cluster_ctarank": 0,
            "%cluster_nctarank": 1,
        }
        one |= {f"%cluster_ctaid.{axis}": 0 for axis in AXES} | {f"%cluster_nctaid.{axis}": 1 for axis in AXES}
        registers = {name: np.tile(values.astype(np.uint32), ctas) for name, values in by_thread.items()}
        registers |= {name: np.array([value], np.uint32) for name, value in one.items()}
        self._ctaid = [np.zeros(pitch * ctas, np.uint32) for _ in AXES]
        registers |= {f"%ctaid.{axis}": self._ctaid[k] for k, axis in enumerate(AXES)}
        self.registers: Mapping[str, Array] = registers

    def place(self, numbers: Sequence[int], live: Array) -> None:
        """Give the batch the CTAs of these linear numbers, and mark their threads in `live`."""
        pitch = self._geometry.warps * WARP
        grid = self._geometry.grid
        live.fill(False)
        for cta, number in enumerate(numbers):
            own = slice(cta * pitch, (cta + 1) * pitch)
            at = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
            for k, values in enumerate(self._ctaid):
                values[own] = at[k]
            live[cta * pitch : cta * pitch + self._geometry.threads] = True
