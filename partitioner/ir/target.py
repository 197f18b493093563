"""Requirements of planning on a target, as protocols that the driver fills; no target's own terms appear here.

Any planner asks `AcceptingTarget`; `PlanTarget` adds the tiles of in-order cores, `partitioner.ir.kernels` the kernels
that are whole groups of layers.

`work` describes one tile of one layer: the buffers it needs in each memory, the loads before each of its passes, and
the engine cycles. Planner and lowering call the same function, so that "fits" means the same to both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hw_models.chip import Chip
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box
from partitioner.ir.wants import Wants


@dataclass(frozen=True, slots=True)
class TileBuffer:
    """Local memory that one tile occupies: `part` names a physical sub-buffer of `memory` ("" where any will do).

    A `strided` buffer may be a matrix inside a wider one: its box's outer axes are the rows, the last axis the columns,
    and `lower` takes the bytes from row to row. Others are dense. Data that a pass leaves in a `passing` buffer are not
    read later, so each pass may have another place for it. A buffer used `briefly` is free for the next tile long
    before this one ends: work runs ahead without a second place for it.
    """

    name: str
    memory: str
    part: str
    size_bytes: int
    strided: bool = False
    passing: bool = False
    briefly: bool = False


@dataclass(frozen=True, slots=True)
class TileLoad:
    """The box of a tensor that must lie in `buffer`, densely or with the buffer's pitch, before the pass computes.
    `lower` only reads what was loaded, so a load can be saved where the tensor itself lies there."""

    tensor: str
    box: Box
    buffer: str


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of a tile: loads, then computation. Several passes where a reduction is split."""

    loads: tuple[TileLoad, ...]


@dataclass(frozen=True, slots=True)
class TileWork:
    """One tile of one layer. `output` names the buffer that holds the result after the last pass. The engines' work is
    divided into `steps` that overlap: while one engine is at one of them, another may be at the one before."""

    buffers: tuple[TileBuffer, ...]
    passes: tuple[Pass, ...]
    output: str
    engine_cycles: tuple[tuple[str, float], ...]
    steps: int = 1

    @property
    def local(self) -> str:
        """The memory of the output buffer, to which loads go and from which results come."""
        return next(buffer.memory for buffer in self.buffers if buffer.name == self.output)


class AcceptingTarget(Protocol):
    """Questions of the planners of every kind of target: which operators it accepts, and which of them in one layer."""

    @property
    def name(self) -> str: ...

    @property
    def wants(self) -> Wants:
        """Requirements on its graphs: types, order of axes, operators that stay whole."""

    def accepts(self, graph: Graph, op: Op, constants: Constants, chip: Chip) -> str | None:
        """None when the target can compute `op`, else the sentence that the user reads."""

    def can_fuse_epilogue(self, graph: Graph, layer: tuple[Op, ...], op: Op, operand: str) -> str | None:
        """None when `op` can be applied to a tile of `operand`, which the operators of `layer` have just made, else why
        not."""


@runtime_checkable
class JudgesPrepared(Protocol):
    """A target that prepares operators on integers in the main memory, but not all operators that exist."""

    def refuses_prepared(self, graph: Graph, op: Op, chip: Chip) -> str | None:
        """None when the target can do a prepared operator, else the sentence that the user reads."""


@runtime_checkable
class AddsInRuns(Protocol):
    """A target that adds up long matrix products in runs: each run as one product, then one after the other."""

    def product_runs(self, graph: Graph, op: Op) -> tuple[tuple[int, int], ...]:
        """The runs of a matrix product along the axis that it sums, in order, as (begin, end). They depend on the
        operator alone, and a product with the length of a run is one run."""


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A product of values in floating point by constant weights: `rows` rows of `depth` products for each of `columns`
    columns. A convolution has a row per pixel of its result. `operand_elements` is the number that it reads."""

    operand_elements: int
    rows: int
    depth: int
    columns: int


@dataclass(frozen=True, slots=True)
class WeightPacking:
    """Whether the weights of a product stay int8 in memory, and the `reason` with its numbers."""

    packed: bool
    reason: str


@runtime_checkable
class PacksWeights(Protocol):
    """A target whose cores can make floating-point weights of int8 ones, with a scale per output channel."""

    def packs_weights(self, use: WeightUse, chip: Chip) -> WeightPacking:
        """Whether weights that are int8 in the file stay int8 in memory."""


@runtime_checkable
class KeepsSome(Protocol):
    """A target that leaves only some results in a core's memory, and reads only some operands from there."""

    @property
    def keeps_in(self) -> str:
        """The memory of a core in which values stay."""

    def keeps(
        self, graph: Graph, constants: Constants, maker: Layer, readers: tuple[Layer, ...], chip: Chip
    ) -> str | None:
        """None where the output of `maker` may stay in a core for these readers, else why not, as a sentence."""


@runtime_checkable
class CountsIssue(Protocol):
    """A target that knows what its scalar cores do to start a transfer of the DMA."""

    def dma_start_instructions(self, descriptors: int) -> int:
        """Scalar instructions of a core that starts a chain of descriptors and waits for it, the waiting left out."""


@runtime_checkable
class PlanTarget(AcceptingTarget, Protocol):
    """The planner's view of a target whose kernels are tiles on in-order cores."""

    def granularity(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        """For each axis of the layer's output, the multiple at which cuts lie; 0 means that the axis is never cut. Each
        box that a core computes begins and ends at such a multiple, or ends where the axis does."""

    def whole_axes(self, graph: Graph, layer: Layer) -> tuple[int, ...]:
        """Axes of the layer's output along which a kernel computes whole lines only, as that of a softmax does along
        its axis: no box that a core computes ends inside them. They are never cut either."""

    def work(self, graph: Graph, layer: Layer, box: Box, chip: Chip) -> TileWork:
        """Needs of computing `box` of the layer's output. Defined for every box, whether it fits or not, that is whole
        along `whole_axes`.

        Where the layer's access maps make its images independent (`partitioner.context.image_independence`), a box and
        the same box of other images have the same needs: only the boxes that are read at the result's own image differ,
        by the same number of images. So `work` is called for only one of them, and so is `lower`."""
