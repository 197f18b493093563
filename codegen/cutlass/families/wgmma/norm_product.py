"""A norm of rows and the product of its result by constants as one kernel by wgmma: the norm's result is never stored.

    LayerNorm(x; g, b) W + c  =  (x W' - mean(x) 1 W') / deviation(x) + (b W + c)    W' = g W, rounded
    RMSNorm(x; g) W + c       =   x W' / root(x) + c

Scales go into the weights, shifts into the bias, as the kernel is emitted. Its products are of x as it is stored, while
the threads that multiply find mean and deviation of each row from the same tiles in shared memory. Every block does so
for the rows of its tiles, which its floors count. Several products of one norm are launches one after the other.

It is as exact as a norm that is stored. The sums of W' as it is rounded take off the mean exactly, so a weight's error
counts by x - mean(x), as that of a stored norm does. Each column of W' has a power of two of its own, so that no weight
that counts is below fp16. The rounding of sums of rows far from zero is that which a mean of them has, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily
from codegen.cutlass.families.wgmma.layer_tiles import WgmmaTile
from codegen.cutlass.families.wgmma.wgmma_layer import (
    RowNorm,
    WgmmaLayer,
    packed_filters,
    wgmma_layer_of,
)
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import in_a_row, main_floor, stored_bytes
from codegen.cutlass.kernel.launches import Data, Launch
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer

Doubles = npt.NDArray[np.float64]

MOST_PRODUCTS = 3
"""Largest number of products of one norm."""
LEAST_EPSILON = 2.0**-126
"""Smallest epsilon: rows of equal elements are divided by its root."""


@dataclass(frozen=True, slots=True)
class _NormProduct:
    """The norm, and the layers that multiply its result, each by a launch of its own."""

    work: KernelWork
    norm: Op
    layers: tuple[WgmmaLayer, ...]

    @property
    def _rows(self) -> RowNorm:
        return RowNorm(self.norm.kind == "layer_norm", self.norm.number("epsilon"))

    def tiles(self) -> tuple[WgmmaTile, ...]:
        return max(self.layers, key=lambda layer: layer.shape.filters).tiles()

    def costs(self, tile: WgmmaTile) -> FusedCosts:
        chip, shapes = self.work.chip, [layer.shape for layer in self.layers]
        each = [tile.floors(shape, chip, normalised=True) for shape in shapes]
        floors = (main_floor(chip, stored_bytes(self.work)), *in_a_row(*each))
        return FusedCosts(floors, (), (max(tile.blocks(shape, chip) for shape in shapes),), len(shapes))

    def launch(self, tile: WgmmaTile, constants: Constants) -> tuple[Launch, ...]:
        return tuple(self._launch_of(layer, tile, constants) for layer in self.layers)

    def _launch_of(self, layer: WgmmaLayer, tile: WgmmaTile, constants: Constants) -> Launch:
        graph, product = self.work.graph, layer.work.anchor
        scale, shift = (_vector(graph, constants, self.norm, number) for number in (1, 2))
        bias = _vector(graph, constants, product, 2)
        folded = fold(layer.filters(constants)[:, 0], scale, shift, bias)
        if not folded.finite:
            needs, has = f"finite constants, also of {product.name}, to be multiplied", "infinities or NaN"
            raise TargetError(f"operator {self.norm.name}", needs=needs, has=has, change="compile at level O0")
        filters = packed_filters(folded.weights[:, None], tile.columns)
        return layer.launch_on(
            self.norm.inputs[0],
            Data(f"{product.name} after {self.norm.name} by steps of {tile.name}", filters),
            Data(f"{product.name} after {self.norm.name}, numbers by {tile.columns}", folded.by_tiles(tile.columns)),
            tile,
            self._rows,
        )


@dataclass(frozen=True, slots=True)
class FoldedWeights:
    """`weights` [filters, channels] with a norm's scale in them, in fp16 and each filter divided by a power of two, and
    `columns`, fp32 [3, filters]: these powers, the sums of the weights as they are, and biases."""

    weights: npt.NDArray[np.float16]
    columns: npt.NDArray[np.float32]

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.columns).all() and np.isfinite(self.weights).all())

    def by_tiles(self, columns: int) -> bytes:
        """`columns` as the kernel reads them, [tiles, 3, columns]; filters that there are not are zeros."""
        count = self.columns.shape[1]
        padded = np.pad(self.columns, ((0, 0), (0, -count % columns)))
        return padded.reshape(3, -1, columns).transpose(1, 0, 2).tobytes()


def fold(
    filters: npt.NDArray[np.generic], scale: Doubles | None, shift: Doubles | None, bias: Doubles | None
) -> FoldedWeights:
    """Filters [filters, channels] after a norm with this scale and shift [channels], with their own bias [filters]."""
    given = filters.astype(np.float64)
    with np.errstate(invalid="ignore"):
        scaled = given if scale is None else given * scale
    _, exponents = np.frexp(np.abs(scaled).max(1))
    powers = np.ldexp(1.0, exponents)
    biases = np.zeros(len(given)) if bias is None else bias
    with np.errstate(invalid="ignore"):
        weights = (scaled / powers[:, None]).astype(np.float16)
        sums = weights.sum(1, dtype=np.float64)
        biases = biases if shift is None else biases + given @ shift
    return FoldedWeights(weights, np.stack((powers, sums, biases)).astype(np.float32))


def _vector(graph: Graph, constants: Constants, op: Op, position: int) -> Doubles | None:
    """A constant operand; None where the operator has none there."""
    if position >= len(op.inputs):
        return None
    given = constants[graph.by_name[op.inputs[position]].constant]
    return np.asarray(given, np.float64).reshape(-1)


def _norm_product_of(work: KernelWork) -> _NormProduct | None:
    """The layers in the form that the template takes; None for others. Nothing but the products may need the norm, and
    none of them another one."""
    if not 2 <= len(work.layers) <= 1 + MOST_PRODUCTS:
        return None
    graph, (first, *readers) = work.graph, work.layers
    norm, products = first.anchor(graph), [reader.anchor(graph) for reader in readers]
    if len(first.ops) > 1 or not _of_rows(work, norm) or first.output in graph.outputs:
        return None
    if {op.name for op in graph.consumers[first.output]} != {op.name for op in products}:
        return None
    if any(op.inputs[0] != first.output or first.output in op.inputs[1:] for op in products):
        return None
    made = {reader.output for reader in readers}
    if any(made & set(reader.inputs(graph)) for reader in readers):
        return None
    layers = [_multiplied(work, reader) for reader in readers]
    found = tuple(layer for layer in layers if layer)
    return _NormProduct(work, norm, found) if len(found) == len(readers) else None


def _of_rows(work: KernelWork, norm: Op) -> bool:
    """Whether an operator is a norm along the last axis, with constants for all elements."""
    if norm.kind not in ("layer_norm", "rms_norm") or norm.number("epsilon") < LEAST_EPSILON:
        return False
    shape = work.shape(norm.inputs[0])
    vectors = [work.graph.by_name[name] for name in norm.inputs[1:]]
    last = tuple(axis % len(shape) for axis in norm.ints("axes")) == (len(shape) - 1,)
    return last and all(vector.constant and prod(vector.shape) == shape[-1] for vector in vectors)


def _multiplied(work: KernelWork, layer: Layer) -> WgmmaLayer | None:
    """The layer, if it multiplies rows as they lie in memory by constants, and adds constants."""
    found = wgmma_layer_of(KernelWork(work.graph, (layer,), work.chip))
    if found is None or found.shape.taps > 1 or not found.geometry.pointwise:
        return None
    biases = found.work.anchor.inputs[2:]
    return found if all(work.graph.by_name[name].constant for name in biases) else None


NORM_PRODUCT = FusedFamily("norm_product", _norm_product_of, like=("wgmma_layer",))
