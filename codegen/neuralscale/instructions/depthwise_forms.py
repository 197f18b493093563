"""Forms of a depthwise convolution (one input and one output channel per group), and the form that a layer takes.

In: the operator and the chip. Out: a form, and the engine cycles of a tile in each form. The choice sees the layer's
shape and never a tile, and the blocks below are counted from the layer's first channel, so that the bits that a layer
stores do not depend on how it is tiled. Templates and the reference arithmetic ask the same function.

    each      one `meconv` per channel: k is the tap
    blocks    one `meconv` for each `array_channels` channels, against a matrix that has the taps on its diagonal
    vector    a product and a sum per tap on the vector engine, one row of outputs at a time

On the stcp920 blocks win where a core's share has many pixels, the vector engine where it has few (544 channels of 7 x
7 over eight cores: 1,463 cycles against 1,613 in blocks and 2,868 one by one), and one `meconv` per channel where a
core has only a channel or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, prod

from codegen.neuralscale.instructions.arithmetic import (
    TRANSFER_UNIT_BYTES,
    Arithmetic,
    arithmetic_of,
    conversion_cycles,
)
from hw_models.chip import Chip
from partitioner.ir.graph import Graph, Op


class DepthwiseForm(Enum):
    """The ways to compute a depthwise convolution."""

    EACH = "each"
    BLOCKS = "blocks"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class BlockPart:
    """The outputs [low, high) of one block of `size` channels from `first`; low and high count from `first`.

    `fresh` says that the matrix in which it is built (two alternate) does not have the zeros of this layout yet.
    """

    first: int
    size: int
    low: int
    high: int
    fresh: bool

    @property
    def columns(self) -> int:
        return self.high - self.low


def block_parts(channels: tuple[int, int], total: int, block: int) -> tuple[BlockPart, ...]:
    """The blocks, of `block` channels counted from 0 to `total`, that a range of output channels touches."""
    parts: list[BlockPart] = []
    for first in range(channels[0] // block * block, channels[1], block):
        size = min(block, total - first)
        low, high = max(0, channels[0] - first), min(size, channels[1] - first)
        before = parts[-2] if len(parts) > 1 else None
        fresh = before is None or (before.size, before.low, before.high) != (size, low, high)
        parts.append(BlockPart(first, size, low, high, fresh))
    return tuple(parts)


def is_depthwise(graph: Graph, op: Op) -> bool:
    if op.kind != "conv":
        return False
    groups = int(op.number("groups"))
    return groups > 1 and groups == graph.by_name[op.inputs[0]].shape[-1] == graph.by_name[op.outputs[0]].shape[-1]


def form_cycles(
    chip: Chip,
    arithmetic: Arithmetic,
    form: DepthwiseForm,
    taps: int,
    pixels: tuple[int, int, int],
    channels: tuple[int, int],
    total: int,
) -> tuple[tuple[str, float], ...]:
    """Engine cycles of outputs of `pixels` (images, rows, columns) and a range of the layer's `total` channels.

    The matrices of the block form and the weight rows of the vector form are built for each tile, and counted.
    """
    images, rows, columns = pixels
    count = channels[1] - channels[0]
    if form is DepthwiseForm.EACH:
        return (("matrix", images * count * arithmetic.matrix_cycles(chip, rows * columns, 1, taps)),)
    if form is DepthwiseForm.VECTOR:
        line = arithmetic.vector_cycles(chip, columns * count, 2 * taps)
        build = arithmetic.vector_cycles(chip, count, taps) + arithmetic.vector_cycles(chip, prod(pixels) * count)
        return (("vector", build + images * rows * line),)
    matrix = vector = 0.0
    for part in block_parts(channels, total, chip.matrix.array_channels):
        matrix += images * arithmetic.matrix_cycles(chip, rows * columns, part.columns, taps * part.size)
        units = taps * part.size * part.columns * arithmetic.operand_bytes // TRANSFER_UNIT_BYTES
        vector += arithmetic.vector_cycles(chip, units) if part.fresh else 0.0
        vector += (conversion_cycles if arithmetic.exact else arithmetic.vector_cycles)(chip, part.columns, taps)
    if arithmetic.exact:
        vector += conversion_cycles(chip, taps * count)
    return (("matrix", matrix), ("vector", vector))


def depthwise_form(graph: Graph, op: Op, chip: Chip) -> DepthwiseForm:
    """The form whose slowest core finishes first, with one image divided over the cores of a cluster by rows and
    channels. Ties go to the form that is listed first.

    Blocks are offered only where two of their matrices fill at most half of the part of L1 that holds weights.
    """
    _, rows, columns, total = graph.by_name[op.outputs[0]].shape
    taps = prod(op.ints("kernel"))
    cores, arithmetic = chip.cores_per_cluster, arithmetic_of(graph, op)
    block = chip.matrix.array_channels
    unit = block if total >= 2 * block else 1  # as the planner cuts channels
    shares = [
        (ceil(rows / r), min(total, unit * ceil(total / (unit * (cores // r))))) for r in range(1, min(rows, cores) + 1)
    ]

    def cycles(form: DepthwiseForm) -> float:
        return min(_sum(form_cycles(chip, arithmetic, form, taps, (1, y, columns), (0, c), total)) for y, c in shares)

    blocks_fit = _blocks_fit(chip, taps * arithmetic.operand_bytes)
    absent = {
        DepthwiseForm.EACH: False,
        DepthwiseForm.BLOCKS: not blocks_fit,
        DepthwiseForm.VECTOR: arithmetic.exact,  # the vector engine has no exact sums
    }
    offered = [form for form in DepthwiseForm if not absent[form]]
    return min(offered, key=cycles)


def _sum(cycles: Sequence[tuple[str, float]]) -> float:
    return sum(amount for _, amount in cycles)


def _blocks_fit(chip: Chip, taps_bytes: int) -> bool:
    matrix_bytes = taps_bytes * chip.matrix.array_channels**2
    memory = next(memory for memory in chip.memories if memory.name == "L1")
    part_bytes = next((part.size_bytes for part in memory.buffers if part.name == "weights"), memory.size_bytes)
    return 4 * matrix_bytes <= part_bytes
