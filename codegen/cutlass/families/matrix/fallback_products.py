"""Matrix products on the CUDA cores, of any extents and strides, for products that the tensor cores' kernel cannot
compute.

product.cu: 64 x 64 of a result by a block, operands through shared memory as floats, fp32 sums
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from codegen.cutlass.kernel.epilogues import broadcast_strides, chain_of, dims
from codegen.cutlass.kernel.family import KernelWork, Parameters
from codegen.cutlass.kernel.floors import arithmetic_floor, cache_floor, launch_seconds, main_floor, stored_bytes
from codegen.cutlass.kernel.launches import Address, Launch, Source
from codegen.cutlass.sources import filled, source_text
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel

TILE, DEPTH, THREADS = 64, 16, 256
"""Tile extent, depth of a step and threads of a block, as in `product.cu`."""


@dataclass(frozen=True, slots=True)
class FallbackProductFamily:
    """One kernel for all shapes."""

    name: str = "product"

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        if len(work.layers) > 1 or work.anchor.kind != "matmul":
            return ()
        chip, shape = work.chip, work.shape(work.output)
        depth = work.shape(work.anchor.inputs[0])[-1]
        grid = _grid(shape)
        macs = TILE * TILE * -(-depth // DEPTH) * DEPTH
        read = 2 * depth * prod(shape[:-2]) * (grid[1] * shape[-2] + grid[0] * shape[-1])
        return (
            Kernel(
                self.name,
                (),
                (*(1,) * (len(shape) - 2), TILE, TILE),
                (("shared_bytes", 4 * DEPTH * (2 * TILE + 1)), ("threads", THREADS)),
                launch_seconds=launch_seconds(chip),
                floors=(
                    main_floor(chip, stored_bytes(work)),
                    arithmetic_floor(chip, chip.lanes.name, macs, grid, chip.lanes.elements_per_cycle("float32")),
                    cache_floor(chip, read),
                ),
            ),
        )

    def launches(self, work: KernelWork, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        del parameters, constants
        graph, op = work.graph, work.anchor
        a, b, shape = work.shape(op.inputs[0]), work.shape(op.inputs[1]), work.shape(op.outputs[0])
        chain = chain_of(graph, [graph.op_by_name[name] for name in work.layer.ops[1:]], op.outputs[0])
        head = f"constexpr int RANK = {len(shape)}, V = 1;\n"
        text = (
            source_text("common.cuh")
            + head
            + filled("product.cu", PARAMETERS=chain.declarations, EPILOGUE=chain.statements)
        )
        arguments = (
            Address(work.output, written=True),
            Address(op.inputs[0]),
            Address(op.inputs[1]),
            Address(op.inputs[2]) if len(op.inputs) > 2 else 0,
            *shape[-2:],
            a[-1],
            dims(shape),
            dims(_steps(a, shape)),
            dims(_steps(b, shape)),
        )
        grid = (prod(_grid(shape)), 1, 1)
        return (Launch(Source("product", text), "product", grid, (THREADS, 1, 1), (*arguments, *chain.arguments)),)


def _grid(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Grid of blocks: down, across, and one layer per matrix."""
    return -(-shape[-2] // TILE), -(-shape[-1] // TILE), prod(shape[:-2])


def _steps(factor: tuple[int, ...], result: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from one matrix to the next along each axis before the last two."""
    matrix = prod(factor[-2:])
    return tuple(matrix * step for step in broadcast_strides(factor[:-2], result[:-2]))


FALLBACK_PRODUCT = FallbackProductFamily()
