"""A layer by wgmma whose depth is divided among blocks, and a second launch that adds up what they leave.

    72 steps of a tile in 4 parts: 0 to 17, 18 to 35, ... --wgmma_layer--> floats [4, rows, filters]
    floats [4, rows, filters] --sum_parts--> part 0 + part 1 + ..., epilogue --> result

For layers of so few rows and filters that whole tiles leave most cores idle, such as those of one image. Parts are
added up in their order, so equal inputs give equal bits. That is a launch of its own, and not left to the last block
that is done with a tile: the end of a launch orders memory without counters that somebody must have set to zero, all
cores share the work, and how long both launches take follows from kernels that were measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.cutlass.families.fused.fused_family import FusedCosts, FusedFamily
from codegen.cutlass.families.wgmma.layer_tiles import WgmmaTile, split_tiles
from codegen.cutlass.families.wgmma.wgmma_layer import SUMMING_THREADS, UNIT, WgmmaLayer, summing_blocks, wgmma_layer_of
from codegen.cutlass.kernel.family import KernelWork
from codegen.cutlass.kernel.floors import cache_floor, in_a_row, lanes_floor
from codegen.cutlass.kernel.launches import Launch
from partitioner.ir.graph import Constants

MOST_OFFERED = 8
"""Candidates of a layer."""


@dataclass(frozen=True, slots=True)
class _SplitLayer:
    """A layer whose tiles are computed in parts."""

    layer: WgmmaLayer

    def tiles(self) -> tuple[WgmmaTile, ...]:
        return split_tiles(self.layer.shape, self.layer.work.chip)

    def costs(self, tile: WgmmaTile) -> FusedCosts:
        chip, whole = self.layer.work.chip, self.layer.costs(tile)
        moved = tile.parts_bytes(self.layer.shape)
        warps, operations = SUMMING_THREADS // chip.simt.warp_threads, UNIT * tile.parts
        summing = lanes_floor(chip, warps * operations, operations, summing_blocks(self.layer.shape))
        return FusedCosts(
            in_a_row(whole.floors, (cache_floor(chip, moved),)),
            blocks=whole.blocks,
            launches=2,
            finishing=(cache_floor(chip, moved), summing),
        )

    def launch(self, tile: WgmmaTile, constants: Constants) -> tuple[Launch, ...]:
        return self.layer.launch(tile, constants), self.layer.sum_launch(tile)


def _split_layer_of(work: KernelWork) -> _SplitLayer | None:
    layer = wgmma_layer_of(work)
    return _SplitLayer(layer) if layer else None


SPLIT_LAYER = FusedFamily("split_layer", _split_layer_of, MOST_OFFERED, like=("wgmma_layer", "pointwise"))
