"""Transposes that move the last axis, in tiles through shared memory.

    perm (0, 3, 1, 2) of N x H x W x C  --axes that stay together are one-->  perm (0, 2, 1): N times C x (H W)

Where one of the two fastest axes is short, tiles gain nothing: lines of the input are then as short as one read of a
thread, and `movement` computes the transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from codegen.cutlass.kernel.epilogues import chain_of, dims
from codegen.cutlass.kernel.family import KernelWork, Parameters
from codegen.cutlass.kernel.floors import launch_seconds, main_floor, stored_bytes
from codegen.cutlass.kernel.launches import Address, Launch, Source
from codegen.cutlass.sources import filled, source_text
from hw_models.errors import TargetError
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel

TILE, THREADS, SHARED_BYTES = 32, 256, 2 * 32 * 33
SHORTEST = 16
"""Least extent of an axis: from here on a tile is more than half full."""
MOST_OTHERS = 4


@dataclass(frozen=True, slots=True)
class TransposeTiling:
    """A tile of `columns` neighbours of the input, whose places in the output are `column_stride` apart, and `rows`
    neighbours of the output, `row_stride` apart in the input; `others` are further axes: extent, stride of input and
    output."""

    rows: int
    columns: int
    row_stride: int
    column_stride: int
    others: tuple[tuple[int, int, int], ...]

    @property
    def blocks(self) -> int:
        return -(-self.rows // TILE) * -(-self.columns // TILE) * prod(extent for extent, _, _ in self.others)


def tiling_of(shape: tuple[int, ...], perm: tuple[int, ...]) -> TransposeTiling | None:
    """The tiling of a transpose of an input of this shape; None where tiles gain nothing."""
    runs = _together([axis for axis in perm if shape[axis] > 1])
    axes = []
    written = 1
    for run in reversed(runs):
        extent = prod(shape[axis] for axis in run)
        axes.append((extent, prod(shape[run[-1] + 1 :]), written))
        written *= extent
    if not axes or axes[0][1] == 1:
        return None
    rows, columns = axes[0], next(axis for axis in axes if axis[1] == 1)
    others = tuple(axis for axis in reversed(axes) if axis not in (rows, columns))
    if min(rows[0], columns[0]) < SHORTEST or len(others) > MOST_OTHERS:
        return None
    return TransposeTiling(rows[0], columns[0], rows[1], columns[2], others)


def _together(perm: list[int]) -> list[list[int]]:
    """Axes of the output in runs that are runs of the input, too."""
    runs: list[list[int]] = []
    for axis in perm:
        if runs and runs[-1][-1] == axis - 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


@dataclass(frozen=True, slots=True)
class TransposeFamily:
    """Tiled transposes: one template, without parameters."""

    name: str = "transpose"

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        if len(work.layers) > 1 or work.anchor.kind != "transpose" or (tiling := _tiling(work)) is None:
            return ()
        return (
            Kernel(
                self.name,
                resources=(("shared_bytes", SHARED_BYTES), ("threads", THREADS)),
                launch_seconds=launch_seconds(work.chip),
                floors=(main_floor(work.chip, stored_bytes(work)),),
                blocks=(tiling.blocks,),
            ),
        )

    def launches(self, work: KernelWork, parameters: Parameters, constants: Constants) -> tuple[Launch, ...]:
        """Raises TargetError for a transpose that gains nothing from tiles."""
        del parameters, constants
        tiling, shape = _tiling(work), work.shape(work.output)
        if tiling is None:
            raise TargetError(f"kernel {self.name} for {work.layer.name}", needs="two axes that are long", has="none")
        ops = [work.graph.op_by_name[name] for name in work.layer.ops]
        chain = chain_of(work.graph, ops[1:], ops[0].outputs[0])
        name = "_".join(dict.fromkeys(op.kind for op in ops))[:100]
        head = f"constexpr int RANK = {len(shape)}, V = 1;\n"
        text = filled("transpose.cu", NAME=name, PARAMETERS=chain.declarations, EPILOGUE=chain.statements)
        padded = ((1, 0, 0),) * (MOST_OTHERS - len(tiling.others)) + tiling.others
        arguments = (
            Address(work.output, written=True),
            Address(work.anchor.inputs[0]),
            tiling.rows,
            tiling.columns,
            tiling.row_stride,
            tiling.column_stride,
            *(dims(tuple(axis[of] for axis in padded)) for of in range(3)),
            dims(shape),
            *chain.arguments,
        )
        source = Source(f"tiled_{name}", source_text("common.cuh") + head + text)
        return (Launch(source, name, (tiling.blocks, 1, 1), (THREADS, 1, 1), arguments),)


def _tiling(work: KernelWork) -> TransposeTiling | None:
    return tiling_of(work.shape(work.anchor.inputs[0]), work.anchor.ints("perm"))


TRANSPOSE = TransposeFamily()
