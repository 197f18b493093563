"""Shapes of matrix products: the matrices that are multiplied with each other, and the distances between them.

[8, 12, 197, 64] x [8, 12, 64, 197]  -->  96 products of 197 x 64 by 64 x 197
[4, 50, 256] x [256, 1000]           -->  one product of 200 x 256 by 256 x 1000
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from codegen.cutlass.kernel.epilogues import broadcast_strides
from codegen.cutlass.kernel.family import KernelWork

WIDEST = 8
"""Largest number of fp16 elements that a thread reads at a time."""


@dataclass(frozen=True, slots=True)
class BatchAxis:
    """An axis of `extent` products, whose factors are `step_a` and `step_b` matrices apart; a step is 0 where a factor
    is shared."""

    extent: int
    step_a: int
    step_b: int


@dataclass(frozen=True, slots=True)
class Product:
    """A product [rows, depth] x [depth, columns] for each position of `batch`, the last axis fastest; no axis has
    extent 1.

    `matrices_a` and `matrices_b` are the numbers of matrices of the factors."""

    rows: int
    columns: int
    depth: int
    batch: tuple[BatchAxis, ...]
    matrices_a: int
    matrices_b: int
    constant_a: bool
    constant_b: bool

    @property
    def batches(self) -> int:
        return prod(axis.extent for axis in self.batch)

    @property
    def read_depth(self) -> int:
        """Depth as read by a kernel that reads neighbours together: an odd one is padded with zeros."""
        return self.depth if self.depth % 2 == 0 else padded(self.depth)

    @property
    def pitch_b(self) -> int:
        """Elements from one row of B to the next, as such a kernel reads them: padding constants costs nothing."""
        odd = self.columns % 2 == 1
        return padded(self.columns) if odd or self.constant_b else self.columns

    @property
    def pads_a(self) -> bool:
        return self.read_depth != self.depth

    @property
    def pads_b(self) -> bool:
        return (self.read_depth, self.pitch_b) != (self.depth, self.columns)

    @property
    def aligned_a(self) -> int:
        """Elements of a row of A that are read at a time: 8, 4 or 2."""
        return gcd(self.read_depth, WIDEST)

    @property
    def aligned_b(self) -> int:
        """Elements of a row of B that are read at a time: 8, 4 or 2."""
        return gcd(self.pitch_b, WIDEST)


def padded(extent: int) -> int:
    """The next multiple of the elements that are read at a time."""
    return -(-extent // WIDEST) * WIDEST


def product_of(work: KernelWork) -> Product:
    """The product that the anchor of a layer computes."""
    op = work.anchor
    a, b, y = (work.shape(name) for name in (*op.inputs[:2], op.outputs[0]))
    tensors = work.graph.by_name
    batch = _merged(y[:-2], _steps(a, y), _steps(b, y))
    rows, matrices = y[-2], prod(a[:-2])
    if batch and (batch[-1].step_a, batch[-1].step_b) == (1, 0):  # their rows follow each other
        *outer, last = batch
        rows, matrices = rows * last.extent, matrices // last.extent
        batch = tuple(BatchAxis(axis.extent, axis.step_a // last.extent, axis.step_b) for axis in outer)
    return Product(
        rows=rows,
        columns=y[-1],
        depth=a[-1],
        batch=batch,
        matrices_a=matrices,
        matrices_b=prod(b[:-2]),
        constant_a=bool(tensors[op.inputs[0]].constant),
        constant_b=bool(tensors[op.inputs[1]].constant),
    )


def _steps(factor: tuple[int, ...], result: tuple[int, ...]) -> tuple[int, ...]:
    """Matrices from one position to the next along each axis before the last two."""
    return broadcast_strides(factor[:-2], result[:-2])


def _merged(extents: tuple[int, ...], steps_a: tuple[int, ...], steps_b: tuple[int, ...]) -> tuple[BatchAxis, ...]:
    """The axes without those of extent 1, and with neighbours joined where one continues where the other ends."""
    axes: list[BatchAxis] = []
    for axis in map(BatchAxis, extents, steps_a, steps_b):
        if axis.extent == 1:
            continue
        outer = axes[-1] if axes else None
        if outer and (outer.step_a, outer.step_b) == (axis.extent * axis.step_a, axis.extent * axis.step_b):
            axes[-1] = BatchAxis(outer.extent * axis.extent, axis.step_a, axis.step_b)
        else:
            axes.append(axis)
    return tuple(axes)
