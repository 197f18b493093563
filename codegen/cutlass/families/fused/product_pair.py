"""Two matrix products as one kernel: values between them are made and used in blocks of columns, and never stored.

    a [rows, in] x [in, between] -> operators -> x [between, out] (+ r)   -->   one launch

A block of threads computes some rows and all columns; sums of the second product stay in registers from block to block.
Weights are constants, which are emitted with their depth contiguous. Every block reads all of them, so the kernel pays
for narrow results or few rows, as its floors say. Intermediate values are rounded as if they were stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.cutlass.families.fused.chained_layers import stays_inside
from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily, plane_source
from codegen.cutlass.families.fused.product_pair_tiles import PairShape, PairTile, pair_tiles
from codegen.cutlass.families.matrix.products import Product, product_of
from codegen.cutlass.families.matrix.tensor_epilogues import TensorEpilogue, device_functions, epilogue_of
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor, main_floor, shared_floor, stored_bytes
from codegen.cutlass.kernel.launches import Address, Data, Launch, Place, Source, bias_of
from partitioner.ir.graph import Constants, Graph, Op


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both products and the operators after each."""

    work: KernelWork
    first: Op
    second: Op
    shape: PairShape
    between: TensorEpilogue
    end: TensorEpilogue

    def tiles(self) -> tuple[PairTile, ...]:
        return pair_tiles(self.shape, self.work.chip)

    def costs(self, tile: PairTile) -> FusedCosts:
        chip, shape, blocks = self.work.chip, tile.shape, tile.blocks
        weights = shape.between * (shape.depth + shape.columns + 1) + shape.columns
        rate = chip.tensor.macs_per_cycle(tile.instruction, "float16")
        floors = (
            main_floor(chip, stored_bytes(self.work)),
            arithmetic_floor(chip, "tensor", tile.macs, (blocks,), rate),
            shared_floor(chip, tile.moved_bytes, blocks),
            cache_floor(chip, 2 * (shape.rows * shape.depth + blocks * weights)),
        )
        return FusedCosts(floors, blocks=(blocks,))

    def launch(self, tile: PairTile, constants: Constants) -> Launch:
        a = Address(self.first.inputs[0])
        arguments = (
            a,
            *_operands(self.work.graph, self.first, constants),
            *_operands(self.work.graph, self.second, constants),
            Address(self.end.source) if self.end.source else a,
            Address(self.work.output, written=True),
            self.shape.rows,
        )
        grid, block = (tile.blocks, 1, 1), (tile.threads, 1, 1)
        return Launch(_source(self, tile), "product_pair", grid, block, arguments, tile.shared_bytes)


def _pair_of(work: KernelWork) -> _Pair | None:
    """The layers in the form that the template takes; None for others."""
    graph, layers = work.graph, work.layers
    if len(layers) != 2 or any(layer.anchor(graph).kind != "matmul" for layer in layers):
        return None
    first, second = (layer.anchor(graph) for layer in layers)
    made = layers[0].output
    if second.inputs[0] != made or made in second.inputs[1:] or not stays_inside(graph, layers[0], second):
        return None
    products = [product_of(KernelWork(graph, (layer,), work.chip)) for layer in layers]
    between, end = (epilogue_of(graph, layer) for layer in layers)
    if between.source or not all(_plain(product) for product in products) or products[0].rows != products[1].rows:
        return None
    shape = PairShape(products[0].rows, products[0].depth, products[1].depth, products[1].columns)
    return _Pair(work, first, second, shape, between, end)


def _plain(product: Product) -> bool:
    """Whether the product is one matrix by one of constants, with extents that can be read eight at a time."""
    single = not product.batch and product.constant_b and not product.constant_a
    return single and product.depth % 8 == 0 and product.columns % 8 == 0


def _operands(graph: Graph, op: Op, constants: Constants) -> tuple[Place, Place]:
    """Weights with their depth contiguous, and bias; a bias of zeros where there is none."""
    tensor = graph.by_name[op.inputs[1]]
    assert tensor.constant  # `_plain`
    depth, columns = tensor.shape[-2:]
    turned = np.ascontiguousarray(constants[tensor.constant].reshape(depth, columns).T)
    weights = Data(f"{tensor.name} depth last", turned.tobytes())
    return weights, bias_of(op, columns)


def _source(pair: _Pair, tile: PairTile) -> Source:
    return plane_source(
        "product_pair",
        tile.instruction,
        IN=pair.shape.depth,
        BETWEEN=pair.shape.between,
        OUT=pair.shape.columns,
        ROWS=tile.rows,
        BLOCK=tile.block,
        COLUMNS=tile.columns,
        WARPS=tile.warps,
        DOWN=tile.down,
        DEPTH=tile.depth,
        STAGES=tile.stages,
        SHARERS=tile.sharers(pair.work.chip),
        OPERATORS=device_functions(
            after_first=pair.between.before, before_sum=pair.end.before, after_sum=pair.end.after
        ),
        SOURCE=bool(pair.end.source),
        SHARED=tile.shared_bytes,
    )


PRODUCT_PAIR = FusedFamily("product_pair", _pair_of)
