"""Positions of a window's taps in a feature map [N, spatial..., C], for any number of spatial axes.

positions [P, 1 + spatial] of results  -->  elements [P, taps, channels] under the window, and flags of those in the map
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.cutlass.reference.evaluated import Evaluated, Stored
from codegen.judgement import Points
from partitioner.ir.graph import Op

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WindowAttributes:
    """Attributes of a convolution or a pool, one entry per spatial axis; `pads` has all begins, then all ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    def positions(self, points: Points) -> Points:
        """Position of each tap in the map, [P, taps, spatial], for results at [P, 1 + spatial, ...]."""
        spatial = len(self.kernel)
        tap = np.stack(np.unravel_index(np.arange(self.taps), self.kernel), 1)
        corner = points[:, 1 : 1 + spatial] * np.array(self.strides) - np.array(self.pads[:spatial])
        return np.asarray(corner[:, None, :] + tap * np.array(self.dilations), np.int64)

    def inside(self, points: Points, extents: tuple[int, ...], padding: bool = False) -> Flags:
        """Flags of the taps that are in the map or, with `padding`, in the padded map: [P, taps]."""
        spatial = len(self.kernel)
        begins, ends = (np.array(self.pads) if padding else np.zeros(2 * spatial, np.int64)).reshape(2, spatial)
        places = self.positions(points)
        return np.asarray(np.all((places >= -begins) & (places < np.array(extents) + ends), -1))

    def gather(self, x: Stored, points: Points, channels: Points, outside: float) -> Evaluated:
        """Elements under the taps in `channels` [P or 1, channels], as [P, taps, channels]; `outside` in the
        padding."""
        extents = x.values.shape[1:-1]
        places = np.clip(self.positions(points), 0, np.array(extents) - 1)
        found = x.at(points[:, 0, None, None], *np.moveaxis(places, -1, 0)[..., None], channels[:, None, :])
        inside = self.inside(points, extents)[..., None]
        return Evaluated(np.where(inside, found.numbers, outside), np.where(inside, found.error, 0.0))


def window_of(op: Op) -> WindowAttributes:
    return WindowAttributes(op.ints("kernel"), op.ints("strides"), op.ints("dilations"), op.ints("pads"))
