"""Location of the matrix of a wgmma descriptor in shared memory.

    64-bit descriptor: start >> 4 (bits 0-13), leading offset >> 4 (16-29), stride offset >> 4 (32-45), base (49-51),
    swizzle (62-63: 0 none, 1 of 128 bytes, 2 of 64, 3 of 32)

Matrices are read in units of 16 bytes. K-major: a unit is 8 numbers along K of one row; MN-major: 8 rows at one K. A
swizzle exchanges units within the 128 (64, 32) bytes of a row by the bits 7-9 (7-8, 7) of the address itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from codegen.cutlass.ptx.errors import FaultKind, KernelFault
from codegen.cutlass.ptx.scalars import Array

UNITS_OF: Final = {0: 1, 1: 8, 2: 4, 3: 2}
"""Number of units in a row of each swizzle."""

K: Final = 16


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A decoded descriptor, in bytes; `swizzle` is the code."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @staticmethod
    def decode(bits: int) -> Descriptor:
        """Decode a descriptor. Raises KernelFault for a base offset, which the executor lacks."""
        if bits >> 49 & 7:
            raise KernelFault(
                FaultKind.INVALID, f"descriptor {bits:#x} has a base offset: matrices are aligned to 1024 bytes here"
            )
        return Descriptor((bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, bits >> 62)


def units(descriptor: Descriptor, rows: int, *, k_major: bool) -> Array:
    """Addresses of the units of a matrix of `rows` x 16 fp16 numbers: (rows, 2) if K-major, (rows / 8, 16) if
    MN-major."""
    wide = UNITS_OF[descriptor.swizzle]
    if k_major:
        row, unit = np.arange(rows)[:, None], np.arange(K // 8)[None, :]
        across = descriptor.leading if descriptor.swizzle == 0 else 16
        offsets = row // 8 * descriptor.stride + row % 8 * 16 * wide + unit * across
    else:
        unit, k = np.arange(rows // 8)[:, None], np.arange(K)[None, :]
        far, down = descriptor.leading, descriptor.stride
        if descriptor.swizzle == 0:
            far, down = down, far
        offsets = unit % wide * 16 + unit // wide * far + k % 8 * 16 * wide + k // 8 * down
    addresses: Array = descriptor.start + offsets
    swizzled: Array = addresses ^ (addresses >> 7 & wide - 1) << 4
    return swizzled
