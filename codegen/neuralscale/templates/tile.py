"""A tile's boxes as matrices.

A tile of the output is a matrix in L1: one row for each position of its outer axes, one column per channel. It and
other buffers that a template declares strided may have a pitch; a tensor that stays in L1 is written and read in its
place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from codegen.neuralscale.instructions.arithmetic import Arithmetic, arithmetic_of
from codegen.neuralscale.instructions.builder import InstructionBuilder, MatrixPlace
from hw_models.chip import Chip
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, box_shape, box_size, input_boxes
from partitioner.ir.target import TileLoad, TileWork

DATA = "data"
WEIGHTS = "weights"
OUTPUT = "output"
RUNNING = "running"
"""The buffer of a layer's values before they are converted to the type of its output."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile to lower: its box, its `work`, the place and layout of its buffers, and the constants for immediates.

    Raises ValueError for a pitch of a buffer that has none, or one in which rows would overlap.
    """

    graph: Graph
    constants: Constants
    layer: Layer
    box: Box
    work: TileWork
    offsets_bytes: Mapping[str, int]
    chip: Chip
    pitches_bytes: Mapping[str, int]

    def __post_init__(self) -> None:
        strided = {buffer.name for buffer in self.work.buffers if buffer.strided}
        loads = [(load.buffer, load.tensor, load.box) for step in self.work.passes for load in step.loads]
        stored = (*loads, (OUTPUT, self.layer.output, self.box))
        for buffer, pitch in self.pitches_bytes.items():
            row = max((stored_bytes(self.graph, t, box[-1:]) for name, t, box in stored if name == buffer), default=0)
            if buffer not in strided or pitch < row or pitch % self.item_bytes(buffer):
                raise ValueError(
                    f"{self.layer.name}: {buffer} cannot have a pitch of {pitch} bytes, its rows have {row}"
                )

    @property
    def issue(self) -> InstructionBuilder:
        return InstructionBuilder(self.chip, self.layer.name, self.arithmetic)

    @property
    def arithmetic(self) -> Arithmetic:
        return arithmetic_of(self.graph, self.layer.anchor(self.graph))

    def item_bytes(self, buffer: str) -> int:
        """Bytes of an element of a buffer: those of the tensor that it holds, else those of the computation's type."""
        if buffer == OUTPUT:
            return self.graph.by_name[self.layer.output].item_bytes
        loads = (load for step in self.work.passes for load in step.loads)
        tensor = next((load.tensor for load in loads if load.buffer == buffer), None)
        return self.graph.by_name[tensor].item_bytes if tensor else self.arithmetic.item_bytes

    def matrix(self, buffer: str, rows: int, columns: int) -> MatrixPlace:
        """A matrix at the start of a buffer, with the buffer's pitch where it has one."""
        return self._at(buffer, rows, columns, self.item_bytes(buffer))

    def operand(self, buffer: str, rows: int, columns: int) -> MatrixPlace:
        """A matrix of elements that the matrix engine multiplies, at the start of a buffer."""
        return self._at(buffer, rows, columns, self.arithmetic.operand_bytes)

    def sums(self, buffer: str, rows: int, columns: int) -> MatrixPlace:
        """A matrix of the matrix engine's sums, at the start of a buffer."""
        return self._at(buffer, rows, columns, self.arithmetic.sum_bytes)

    def _at(self, buffer: str, rows: int, columns: int, item_bytes: int) -> MatrixPlace:
        memory = next(b.memory for b in self.work.buffers if b.name == buffer)
        pitch = self.pitches_bytes.get(buffer, 0)
        return MatrixPlace(memory, self.offsets_bytes[buffer], rows, columns, item_bytes, pitch)

    def scratch(self, rows: int, columns: int, number: int = 0) -> MatrixPlace:
        """One of the dense scratch tiles that `finish_buffers` keeps for the operators of the layer."""
        first = self.matrix("scratch", rows, columns)
        return replace(first, offset_bytes=first.offset_bytes + number * first.item_bytes * box_size(self.box))

    @property
    def output(self) -> MatrixPlace:
        """The place of the tile's values while they are computed. Outer axes are rows, the last axis is columns."""
        return self._whole(self.running)

    @property
    def running(self) -> str:
        """The buffer of `output`: that of the result, or another one where values are converted at the end."""
        return RUNNING if any(buffer.name == RUNNING for buffer in self.work.buffers) else OUTPUT

    @property
    def result(self) -> MatrixPlace:
        """The tile's place in the result, laid out as `output`."""
        return self._whole(OUTPUT)

    def _whole(self, buffer: str) -> MatrixPlace:
        shape = box_shape(self.box)
        return self.matrix(buffer, prod(shape[:-1]), shape[-1] if shape else 1)


def load_bytes(graph: Graph, load: TileLoad) -> int:
    """Bytes of a load."""
    return stored_bytes(graph, load.tensor, load.box)


def stored_bytes(graph: Graph, tensor: str, box: Box) -> int:
    """Bytes of a box of a tensor, as it is loaded or stored."""
    return box_size(box) * graph.by_name[tensor].item_bytes


def window_problem(op: Op) -> str | None:
    """Why no template takes the sliding window of `op`: not two axes, or padding that is negative or a whole window;
    None where one does."""
    kernel, pads = op.ints("kernel"), op.ints("pads")
    if len(kernel) != 2:
        return f"a window over {len(kernel)} axes; the templates take images of two"
    if min(pads) < 0:
        return f"negative padding {list(pads)}"
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, op.ints("dilations"), strict=True))
    if any(pad >= size for pad, size in zip(pads, 2 * reach, strict=True)):
        return f"padding {list(pads)} as large as the window's reach {list(reach)}: some outputs would have no input"
    return None


def window_region(graph: Graph, op: Op, box: Box) -> Box:
    """The input pixels that the windows of `box` read. Whole rows of outputs take whole rows of input, so that they are
    one run of bytes even where a stride leaves the last columns unread."""
    images, rows, columns, channels = input_boxes(graph, op, {op.outputs[0]: box})[op.inputs[0]]
    if box[2] == (0, graph.by_name[op.outputs[0]].shape[2]):
        columns = (0, graph.by_name[op.inputs[0]].shape[2])
    return images, rows, columns, channels
