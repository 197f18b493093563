"""Where weights that are int8 in the file stay int8 up to the cores, though they meet fp16 values: where bytes bind.

    WeightUse(operand_elements, rows, depth, columns), chip  -->  WeightPacking(packed, reason)

Weights come from the main memory as int8 or as fp16. Then the cores multiply and, from int8, make fp16 weights first,
again for each tile of rows: cores share the columns as far as each has as many as the matrix array, and a tile reads
operands that fill half of a core's memory for data. int8 has to be faster both where loading overlaps with the work of
the cores, and where it does not; there the scale, one more operand, makes them wait too.
"""

from __future__ import annotations

from math import ceil

from codegen.neuralscale.emit.memory_names import LOCAL, MAIN, STAGING
from codegen.neuralscale.instructions.arithmetic import FP16, INT8, TRANSFER_UNIT_BYTES, conversion_cycles
from codegen.neuralscale.templates.tile import DATA
from hw_models import cost
from hw_models.chip import Chip
from partitioner.ir.target import WeightPacking, WeightUse

TILE_SHARE = 2
"""A tile of the operand takes one of this many parts of the memory for data: the next one arrives meanwhile."""


def weight_packing(use: WeightUse, chip: Chip) -> WeightPacking:
    """Whether int8 weights stay int8 for one use of them, by price."""
    if use.columns % TRANSFER_UNIT_BYTES:
        return WeightPacking(False, f"{use.columns:,} columns; int8 is moved in units of {TRANSFER_UNIT_BYTES} bytes")
    if INT8.operands not in {rate.dtype for rate in chip.vector.rates}:
        return WeightPacking(False, f"engine {chip.vector.name} of {chip.name} has no rate for {INT8.operands}")
    weights, times = use.depth * use.columns, _conversions(use, chip)
    own = ceil(weights / chip.cores_per_cluster)
    converted = times * (conversion_cycles(chip, own) + FP16.vector_cycles(chip, own))
    multiplied = FP16.matrix_cycles(chip, use.rows, use.columns, use.depth) / chip.cores_per_cluster
    small, large = (cost.dma_cycles(chip, MAIN, STAGING, weights * each.operand_bytes) for each in (INT8, FP16))
    scale_bytes = use.columns * FP16.item_bytes
    waited = cost.dma_cycles(chip, MAIN, STAGING, scale_bytes) + cost.transfer_cycles(chip, STAGING, LOCAL, scale_bytes)
    hidden = max(small, multiplied + converted), max(large, multiplied)
    shown = small + waited + multiplied + converted, large + multiplied
    reason = (
        f"{hidden[0]:,.0f} cycles from int8 and {hidden[1]:,.0f} from fp16 where loading overlaps with the work of the "
        f"cores, {shown[0]:,.0f} and {shown[1]:,.0f} where not: loading {small:,.0f} or {large:,.0f}, the scale "
        f"{waited:,.0f}, converting {converted:,.0f}, multiplying {use.rows:,} rows {multiplied:,.0f}"
    )
    return WeightPacking(hidden[0] < hidden[1] and shown[0] < shown[1], reason)


def _conversions(use: WeightUse, chip: Chip) -> int:
    """Number of times that each weight is converted, by all cores together."""
    shares = min(chip.cores_per_cluster, ceil(use.columns / chip.matrix.array_channels))
    local = chip.memory(LOCAL)
    data_bytes = next((buffer.size_bytes for buffer in local.buffers if buffer.name == DATA), local.size_bytes)
    tiles = ceil(use.operand_elements * FP16.operand_bytes / (data_bytes // TILE_SHARE))
    return max(tiles, ceil(chip.cores_per_cluster / shares))
