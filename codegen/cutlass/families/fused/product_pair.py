"""Two matrix products as one kernel: values between them are made and used in blocks of columns, and never stored.

    a [rows, in] x [in, between] -> operators -> x [between, out] (+ r)   -->   one launch

A block of threads computes some rows and all columns; sums of the second product stay in registers from block to block.
Weights are constants, which are emitted with their depth contiguous. Every block reads all of them, so the kernel pays
for narrow results or few rows, as its floors say. Intermediate values are rounded as if they were stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.cutlass.families.fused.chained_layers import epilogue_of, stays_inside
from codegen.cutlass.families.fused.product_pair_tiles import PairShape, PairTile, pair_tiles
from codegen.cutlass.families.matrix.products import Product, product_of
from codegen.cutlass.families.matrix.tensor_epilogues import TensorEpilogue, statements
from codegen.cutlass.kernel.family import KernelWork, Parameters, offered_with
from codegen.cutlass.kernel.floors import (
    arithmetic_floor,
    cache_floor,
    launch_seconds,
    main_floor,
    shared_floor,
    stored_bytes,
)
from codegen.cutlass.kernel.launches import Address, Data, Launch, Place, Source
from codegen.cutlass.sources import filled, source_text
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import Kernel


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both products and the operators after each."""

    first: Op
    second: Op
    shape: PairShape
    between: TensorEpilogue
    end: TensorEpilogue


@dataclass(frozen=True, slots=True)
class ProductPairFamily:
    """product_pair.cu."""

    name: str = "product_pair"

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        pair = _pair_of(work)
        if pair is None:
            return ()
        return tuple(_candidate(self.name, work, tile) for tile in pair_tiles(pair.shape, work.chip))

    def launches(self, work: KernelWork, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        """Raises TargetError for parameters that were not offered."""
        pair = _pair_of(work)
        tiles = pair_tiles(pair.shape, work.chip) if pair else ()
        tile = offered_with(parameters, self.name, tiles, _parameters)
        assert pair is not None  # it has tiles
        a = Address(pair.first.inputs[0])
        arguments = (
            a,
            *_operands(work.graph, pair.first, constants),
            *_operands(work.graph, pair.second, constants),
            Address(pair.end.source) if pair.end.source else a,
            Address(work.output, written=True),
            pair.shape.rows,
        )
        source, threads = _source(pair, tile, work), (tile.threads, 1, 1)
        return (Launch(source, self.name, (tile.blocks, 1, 1), threads, arguments, tile.shared_bytes),)


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
    return _Pair(first, second, shape, between, end)


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
    bias = Address(op.inputs[2]) if len(op.inputs) > 2 else Data(f"{op.name} no bias", bytes(2 * columns))
    return weights, bias


def _parameters(tile: PairTile) -> tuple[tuple[str, int | str], ...]:
    return (("rows", tile.rows), ("between", tile.block), ("instruction", tile.instruction))


def _candidate(name: str, work: KernelWork, tile: PairTile) -> Kernel:
    chip, shape, blocks = work.chip, tile.shape, tile.blocks
    weights = shape.between * (shape.depth + shape.columns + 1) + shape.columns
    rate = chip.tensor.macs_per_cycle(tile.instruction, "float16")
    return Kernel(
        name,
        _parameters(tile),
        (),
        (("shared_bytes", tile.shared_bytes), ("threads", tile.threads), ("registers", tile.registers(chip))),
        1,
        launch_seconds(chip),
        (
            main_floor(chip, stored_bytes(work)),
            arithmetic_floor(chip, "tensor", tile.macs, (blocks,), rate),
            shared_floor(chip, tile.moved_bytes, blocks),
            cache_floor(chip, 2 * (shape.rows * shape.depth + blocks * weights)),
        ),
        (blocks,),
    )


def _source(pair: _Pair, tile: PairTile, work: KernelWork) -> Source:
    grouped = tile.instruction == "wgmma"
    text = (
        source_text("common.cuh")
        + source_text("primitives.cuh")
        + source_text("planes.cuh")
        + (source_text("planes_wgmma.cuh") if grouped else "")
        + filled(
            "product_pair.cu",
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
            GROUPED="true" if grouped else "false",
            MULTIPLY="multiply_planes_group" if grouped else "multiply_planes",
            SHARERS=tile.sharers(work.chip),
            AFTER_FIRST=statements(pair.between.before),
            BEFORE_SUM=statements(pair.end.before),
            AFTER_SUM=statements(pair.end.after),
            SOURCE="true" if pair.end.source else "false",
            SHARED=tile.shared_bytes,
        )
    )
    return Source("product_pair", text)


PRODUCT_PAIR = ProductPairFamily()
