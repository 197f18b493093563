"""A careless but honest kernel in fp32: sums one by one in an order of the moment, functions by others, bits too many.

    operands (fp32)  -->  the result in fp32, not rounded to halves

Each elementary function is off by up to two units more than numpy's, each exponential multiplies by log2(e) first. The
reference's error must cover all of it. Nothing is shared with the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, prod

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Graph, Op
from tests.dsa_sched.frontend.numpy_graph import evaluate, windows

Singles = npt.NDArray[np.float32]

ONE, TWO, HALF = np.float32(1), np.float32(2), np.float32(0.5)


def single(x: npt.ArrayLike) -> Singles:
    return np.asarray(x, np.float32)


@dataclass(frozen=True)
class Careless:
    random: np.random.Generator

    def layer(self, graph: Graph, ops: Sequence[Op], read: dict[str, Singles]) -> Singles:
        """The operators one after the other, nothing rounded to halves between."""
        values = dict(read)
        for op in ops:
            shape = graph.by_name[op.outputs[0]].shape
            values[op.outputs[0]] = single(self.compute(graph, op, [values[name] for name in op.inputs], shape))
        return values[ops[-1].outputs[0]]

    def compute(self, graph: Graph, op: Op, x: list[Singles], shape: tuple[int, ...]) -> npt.NDArray[np.floating]:
        method = getattr(self, op.kind, None)
        if method is not None:
            return np.asarray(method(op, x, shape))
        return evaluate(graph, op, x)[0]  # type: ignore[arg-type]  # the same in whatever type the operands have

    # Steps

    def noisy(self, y: npt.ArrayLike) -> Singles:
        units = self.random.uniform(-2, 2, np.shape(y)) * 2.0**-23
        return single(np.asarray(y, np.float64) * (1 + units))

    def sum(self, x: Singles) -> Singles:
        """Along the last axis, one by one."""
        order = self.random.permutation(x.shape[-1])
        return np.add.accumulate(x[..., order], axis=-1, dtype=np.float32)[..., -1]

    def exp_of(self, x: Singles) -> Singles:
        return self.noisy(np.exp2(single(x * single(np.log2(np.e)))))

    def over(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Singles:
        return self.noisy(single(x) / single(y))

    # Sums

    def conv(self, op: Op, x: list[Singles], shape: tuple[int, ...]) -> Singles:
        groups, length = int(op.number("groups")), prod(op.ints("kernel"))
        taps = windows(op, x[0], 0.0, shape)  # type: ignore[arg-type]
        weights = (x[1][None] if groups == 1 else x[1]).reshape(groups, length, -1, shape[-1] // groups)
        parts = []
        for part, weight in zip(np.split(single(taps), groups, axis=-1), weights, strict=True):
            rows = np.moveaxis(part, 0, -2).reshape(*part.shape[1:-1], 1, -1)
            parts.append(self.sum(rows * weight.reshape(-1, weight.shape[-1]).T))
        result = np.concatenate(parts, -1)
        return result + x[2] if len(x) > 2 else result

    def matmul(self, _op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        result = self.sum(x[0][..., :, None, :] * np.swapaxes(x[1], -1, -2)[..., None, :, :])
        return result + x[2] if len(x) > 2 else result

    def average_pool(self, op: Op, x: list[Singles], shape: tuple[int, ...]) -> Singles:
        counted = windows(op, np.ones(x[0].shape), float(op.number("count_include_pad")), shape).sum(axis=0)
        taps = single(windows(op, x[0], 0.0, shape))  # type: ignore[arg-type]
        return single(self.sum(np.moveaxis(taps, 0, -1)) * self.over(1, counted))

    def _lines(self, op: Op, x: Singles) -> tuple[Singles, tuple[int, ...], tuple[int, ...]]:
        """Reduced axes as the last one; the shape that it has otherwise, and the shape with them reduced."""
        axes = op.ints("axes")
        moved = np.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))
        kept = moved.shape[: x.ndim - len(axes)]
        return moved.reshape(*kept, -1), axes, tuple(1 if i in axes else n for i, n in enumerate(x.shape))

    def reduce_sum(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        lines, _, reduced = self._lines(op, x[0])
        return self.sum(lines).reshape(reduced)

    def reduce_mean(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        lines, _, reduced = self._lines(op, x[0])
        return (self.sum(lines) * self.over(1, lines.shape[-1])).reshape(reduced)

    def layer_norm(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        lines, _, reduced = self._lines(op, x[0])
        centred = x[0] - (self.sum(lines) * self.over(1, lines.shape[-1])).reshape(reduced)
        return self._normed(op, centred, x)

    def rms_norm(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self._normed(op, x[0], x)

    def _normed(self, op: Op, centred: Singles, x: list[Singles]) -> Singles:
        lines, _, reduced = self._lines(op, centred)
        power = (self.sum(lines * lines) * self.over(1, lines.shape[-1])).reshape(reduced)
        inverse = self.noisy(1 / np.sqrt(power + single(op.number("epsilon"))))
        result = centred * inverse * x[1]
        return result + x[2] if len(x) > 2 else result

    def softmax(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        """Arguments scaled before the largest is taken off."""
        axis = int(op.number("axis"))
        lines = np.moveaxis(x[0], axis, -1) * single(np.log2(np.e))
        powers = self.noisy(np.exp2(lines - lines.max(-1, keepdims=True)))
        return np.moveaxis(powers * self.over(1, self.sum(powers))[..., None], -1, axis)

    def attend(self, op: Op, x: list[Singles], shape: tuple[int, ...]) -> Singles:
        """Heads side by side. Sixteen keys at a time, weights as halves, what was summed made smaller each time."""
        heads, groups = int(op.number("heads")), int(op.number("groups"))
        q, k, v = (each.reshape(*each.shape[:2], count, -1).swapaxes(1, 2)
                   for each, count in zip(x, (heads, groups, groups), strict=False))  # fmt: skip
        k, v = (np.repeat(each, heads // groups, 1) for each in (k, v))
        scores = self.sum(q[:, :, :, None] * k[:, :, None]) * single(op.number("scale")) * single(np.log2(np.e))
        scores = scores + x[3] * single(np.log2(np.e)) if len(x) > 3 else scores
        if "first_sees" in dict(op.attributes):
            seen = np.arange(k.shape[2]) < np.arange(q.shape[2])[:, None] + int(op.number("first_sees"))
            scores = np.where(seen, scores, single(-np.inf))
        largest = np.full((*scores.shape[:3], 1), -np.inf, np.float32)
        total, result = np.zeros_like(largest), np.zeros((*scores.shape[:3], v.shape[3]), np.float32)
        for first in range(0, k.shape[2], 16):
            here = scores[..., first : first + 16]
            now = np.maximum(largest, here.max(-1, keepdims=True))
            powers, shrunk = self.noisy(np.exp2(here - now)), self.noisy(np.exp2(largest - now))
            halves = single(powers.astype(np.float16))
            result = result * shrunk + self.sum(halves[..., None, :] * v[:, :, None, first : first + 16].swapaxes(3, 4))
            total, largest = total * shrunk + self.sum(powers)[..., None], now
        return (result * self.over(1, total)).swapaxes(1, 2).reshape(shape)

    def lrn(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        size, last = int(op.number("size")), x[0].shape[-1]
        padded = np.pad(x[0] * x[0], [(0, 0)] * (x[0].ndim - 1) + [((size - 1) // 2, size // 2)])
        sums = self.sum(np.stack([padded[..., i : i + last] for i in range(size)], -1))
        u = single(op.number("bias")) + single(op.number("alpha") / size) * sums
        return x[0] * self.noisy(np.exp2(single(-op.number("beta")) * self.noisy(np.log2(u))))

    # Functions

    def exp(self, _op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self.exp_of(x[0])

    def sigmoid(self, _op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self.over(1, ONE + self.exp_of(-x[0]))

    def tanh(self, _op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self._tanh(x[0])

    def _tanh(self, x: Singles) -> Singles:
        return ONE - self.over(2, ONE + self.exp_of(TWO * x))

    def gelu(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        if op.attribute("approximate") == "tanh":
            inner = self._tanh(single(np.sqrt(2 / np.pi)) * (x[0] + single(0.044715) * x[0] * x[0] * x[0]))
        else:
            inner = self.noisy(np.vectorize(erf, otypes=[np.float64])(x[0] * single(np.sqrt(0.5))))
        return HALF * x[0] * (ONE + inner)

    def swish(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self.over(x[0], ONE + self.exp_of(-single(op.number("alpha")) * x[0]))

    def _bent(self, x: Singles, alpha: float, rate: float) -> Singles:
        below = self.exp_of(self.over(np.minimum(x, 0), rate)) - ONE
        return np.maximum(x, single(0)) + single(alpha) * below

    def elu(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self._bent(x[0], op.number("alpha"), 1.0)

    def celu(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self._bent(x[0], op.number("alpha"), op.number("alpha"))

    def selu(self, op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return single(op.number("gamma")) * self._bent(x[0], op.number("alpha"), 1.0)

    def softsign(self, _op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self.over(x[0], ONE + np.abs(x[0]))

    def div(self, _op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return single(x[0] * self.over(1, x[1]))

    def reciprocal(self, _op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self.over(1, x[0])

    def sqrt(self, _op: Op, x: list[Singles], _shape: tuple[int, ...]) -> Singles:
        return self.noisy(np.sqrt(x[0]))
