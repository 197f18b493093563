"""Small graphs with operators that move data, reduce axes, normalise across channels or resize, maps written out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from partitioner.ir.access import Access, Full, Grouped, Index, Linear, Scaled
from partitioner.ir.graph import Attribute, Axis
from tests.small_graphs import GraphBuilder, axis

__all__ = ["MovementBuilder"]


class MovementBuilder(GraphBuilder):
    """Every method appends one operator and returns the name of the value it made."""

    def transpose(self, x: str, *perm: int) -> str:
        shape = tuple(self.shape(x)[p] for p in perm)
        read: list[Index] = [Linear()] * len(perm)
        for i, p in enumerate(perm):
            read[p] = axis(f"i{i}")
        return self._moved("transpose", x, shape, tuple(read), (("perm", perm),))

    def slice(self, x: str, starts: tuple[int, ...], steps: tuple[int, ...], shape: tuple[int, ...]) -> str:
        read = tuple(axis(f"i{i}", step, start) for i, (start, step) in enumerate(zip(starts, steps, strict=True)))
        return self._moved("slice", x, shape, read, (("starts", starts), ("steps", steps)))

    def pad(self, x: str, begins: tuple[int, ...], ends: tuple[int, ...], value: float = 0.0) -> str:
        shape = tuple(b + extent + e for b, extent, e in zip(begins, self.shape(x), ends, strict=True))
        read = tuple(axis(f"i{i}", 1, -begin) for i, begin in enumerate(begins))
        return self._moved("pad", x, shape, read, (("begins", begins), ("ends", ends), ("value", value)))

    def take(self, x: str, over: int, *indices: int) -> str:
        shape = (*self.shape(x)[:over], len(indices), *self.shape(x)[over + 1 :])
        read = tuple(Full() if i == over else axis(f"i{i}") for i in range(len(shape)))
        return self._moved("take", x, shape, read, (("axis", over), ("indices", indices)))

    def reduce(self, kind: str, x: str, *axes: int, attributes: tuple[tuple[str, Attribute], ...] = ()) -> str:
        extents = self.shape(x)
        shape = tuple(1 if i in axes else extent for i, extent in enumerate(extents))
        read = tuple(axis(f"k{i}" if i in axes else f"i{i}") for i in range(len(shape)))
        reduced = tuple(Axis(f"k{i}", extents[i], True) for i in axes)
        return self._moved(kind, x, shape, read, (("axes", axes), *attributes), reduced)

    def lookup(self, x: str, table: npt.NDArray[np.float64]) -> str:
        """The entry of a table of 65,536 halves by the bits of each element."""
        name = self.constant(f"table{len(self.ops)}", table)
        shape = self.shape(x)
        domain = self._axes(shape)
        reads = [Access(x, tuple(axis(a.name) for a in domain)), Access(name, (Full(),))]
        return self._op(f"lookup{len(self.ops)}", "lookup", [x, name], domain, domain, reads)

    def normalise(self, x: str, *axes: int, attributes: tuple[tuple[str, Attribute], ...]) -> str:
        shape = self.shape(x)
        read = tuple(Full() if i in axes else axis(f"i{i}") for i in range(len(shape)))
        return self._moved("normalise", x, shape, read, (("axes", axes), *attributes))

    def attend(self, q: str, *parts: str, heads: int = 1, groups: int = 1, scale: float = 0.25, count: int = 1) -> str:
        """Heads side by side or apart; `count` parts of k, v and perhaps a mask, which has four axes,
        (item, head, row, key)."""
        each = len(parts) // count
        queries, v = self.shape(q), self.shape(parts[1])
        size = queries[3] if len(queries) == 4 else queries[2] // heads
        width = v[3] if len(v) == 4 else v[2] // groups
        shape = (queries[0], queries[-2], heads * width)
        domain = self._axes(shape)
        shared = heads // groups * width
        met: tuple[Index, ...] = (axis("i0"), Grouped("i2", width, 1), axis("i1"), Full())

        def rows(name: str, wanted: Index, columns: int, elements: int, inside: str) -> Access:
            if len(self.shape(name)) == 4:
                return Access(name, (axis("i0"), Grouped("i2", columns, 1), wanted, axis(inside)))
            return Access(name, (axis("i0"), wanted, Grouped("i2", columns, elements, inside)))

        def read(position: int, name: str) -> Access:
            if position % each == 2:
                indices = zip(met, self.shape(name), strict=True)
                return Access(name, tuple(i if e > 1 else Linear() for i, e in indices))
            return rows(name, Full(), shared, *((size, "k"), (width, "j"))[position % each])

        reads = [
            rows(q, axis("i1"), width, size, "k"),
            *(read(position, name) for position, name in enumerate(parts)),
        ]
        inner = (Axis("k", size, True), Axis("j", width, True))
        attributes = (("heads", heads), ("groups", groups), ("parts", count), ("scale", scale))
        name = f"attend{len(self.ops)}"
        return self._op(name, "attend", (q, *parts), (*domain, *inner), domain, reads, attributes)

    def lrn(self, x: str, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> str:
        shape = self.shape(x)
        window = axis(f"i{len(shape) - 1}", 1, -((size - 1) // 2), ("k", 1))
        read = (*(axis(f"i{i}") for i in range(len(shape) - 1)), window)
        attributes = (("size", size), ("alpha", alpha), ("beta", beta), ("bias", bias))
        return self._moved("lrn", x, shape, read, attributes, (Axis("k", size, True),))

    def resize(
        self,
        x: str,
        shape: tuple[int, ...],
        mode: str = "nearest",
        coordinates: str = "half_pixel",
        rounding: str = "round_prefer_floor",
    ) -> str:
        read: list[Index] = []
        for i, (extent, wanted) in enumerate(zip(self.shape(x), shape, strict=True)):
            ratio = Fraction(extent, wanted)
            scaled = Scaled(f"i{i}", ratio.numerator, ratio.denominator, -2, 2)
            read.append(axis(f"i{i}") if extent == wanted else scaled)
        attributes = (("mode", mode), ("coordinates", coordinates), ("rounding", rounding))
        return self._moved("resize", x, shape, tuple(read), attributes)

    def product(self, a: str, b: str) -> str:
        """A matrix product whose leading axes broadcast."""
        left, right = self.shape(a), self.shape(b)
        leading = np.broadcast_shapes(left[:-2], right[:-2])
        domain = self._axes((*leading, left[-2], right[-1]))
        rank, depth = len(domain), axis("k")
        met = {
            name: tuple(
                axis(f"i{rank - 2 - len(extents) + i}") if extent > 1 else Linear() for i, extent in enumerate(extents)
            )
            for name, extents in ((a, left[:-2]), (b, right[:-2]))
        }
        reads = (
            Access(a, (*met[a], axis(domain[-2].name), depth)),
            Access(b, (*met[b], depth, axis(domain[-1].name))),
        )
        inner = Axis("k", left[-1], True)
        return self._op(f"matmul{len(self.ops)}", "matmul", (a, b), (*domain, inner), domain, reads)

    def _moved(
        self,
        kind: str,
        x: str,
        shape: tuple[int, ...],
        read: tuple[Index, ...],
        attributes: tuple[tuple[str, Attribute], ...],
        reduced: tuple[Axis, ...] = (),
    ) -> str:
        domain = self._axes(shape)
        return self._op(
            f"{kind}{len(self.ops)}", kind, (x,), (*domain, *reduced), domain, (Access(x, read),), attributes
        )
