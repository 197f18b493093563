"""Loops of the accelerator's own over a part of a convolution: what one does, and the instructions that ask for it.

    result part [images, rows, columns, channels] = patch (*) weights [kernel rows, columns, channels in, out] + bias
        --loop_conv_ws--> mvin, preload, compute, mvout

The patch lies from the start of a half of the scratchpad on, as blocks of channels of pixels, padding included; weights
lie before the end of one; sums take halves of the accumulator in turn. The unroller counts a patch of `rows` times
`stride` rows and the kernel's reach less one: with a stride of two, one row and column more than are read.

Source: the generator's README, its unroller and its functional model, restated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegen.gemmini.isa.geometry import ArrayGeometry
from codegen.gemmini.isa.matrix_loops import MOVED_BYTES
from codegen.gemmini.isa.operations import Decoded, operation

SETTINGS = tuple(f"loop_conv_ws_config_{number}" for number in range(1, 7))
LOOP = "loop_conv_ws"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionLoop:
    """A loop, by the fields of its instructions: extents of whole tensors (`batch`, `in_...`, `out_...`, `kernel` for
    columns of the weights), of the part that is computed (`part_images`, `rows`, `columns`, `part_channels`, and with
    a pool `part_rows`, `part_columns` of the result), of the part of the kernel, padding of the part's patch. Strides
    are elements from one pixel or input channel to the next. Addresses are those of the main memory; 0 for what is not
    moved: it is in its half already, or sums stay. A half is 1 or 2."""

    weights: int
    output: int
    bias: int
    input: int
    in_rows: int
    in_columns: int
    in_channels: int
    out_rows: int
    out_columns: int
    out_channels: int
    in_stride: int
    weight_stride: int
    out_stride: int
    rows: int
    columns: int
    part_channels: int
    kernel: int
    kernel_rows: int
    kernel_columns: int
    kernel_channels: int
    a_half: int
    b_half: int
    batch: int = 1
    part_images: int = 1
    stride: int = 1
    dilation: int = 1
    padding: int = 0
    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0
    no_bias: int = 0
    pixels_per_row: int = 1
    downsample: int = 0
    depthwise: int = 0
    activation: int = 0
    no_pool: int = 1
    pool_size: int = 0
    pool_stride: int = 0
    pool_padding: int = 0
    pool_out_rows: int = 0
    pool_out_columns: int = 0
    part_rows: int = 0
    part_columns: int = 0
    pool_top: int = 0
    pool_left: int = 0
    pool_bottom: int = 0
    pool_right: int = 0
    rotated: int = 0
    output_1203: int = 0
    weights_1203: int = 0
    weights_0132: int = 0
    input_3120: int = 0
    input_dilated: int = 0
    out_scale: float = 1.0
    """The scale of what moves out, which is set before and stays: it is no field of a loop."""

    def anywhere(self) -> ConvolutionLoop:
        """A loop that moves as much, between other places."""
        addresses = {name: min(getattr(self, name), 1) for name in ("weights", "output", "bias", "input")}
        return replace(self, **addresses, a_half=1, b_half=1)

    @property
    def pixels(self) -> int:
        """Pixels side by side in a row of the patch."""
        return max(1, self.pixels_per_row)

    @property
    def thinning(self) -> int:
        """2 where only every other row and column of the patch is moved, else 1."""
        return 2 if self.downsample else 1

    @property
    def patch(self) -> tuple[int, int]:
        """Rows and columns of the patch as the unroller counts them, padding included."""
        rows, columns = ((taps - 1) * self.dilation + 1 for taps in (self.kernel_rows, self.kernel_columns))
        return self.rows * self.stride + rows - 1, self.columns * self.stride + columns - 1

    @property
    def own_pixels(self) -> tuple[int, int]:
        """Rows and columns of the patch without padding."""
        rows, columns = self.patch
        return rows - self.top - self.bottom, columns - self.left - self.right

    @property
    def patch_rows_held(self) -> int:
        """Rows of the scratchpad that an image's patch takes for one block of channels."""
        rows, columns = self.patch
        return rows // self.thinning * (columns // self.thinning)

    @property
    def weight_block_rows(self) -> int:
        """Rows of the scratchpad that the weights of a block of output channels take."""
        return self.kernel_rows * self.kernel_columns * self.kernel_channels

    def input_rows(self, dim: int) -> int:
        """Rows of the scratchpad for the patch."""
        return -(-self.kernel_channels // dim) * self.part_images * self.patch_rows_held

    def weight_rows(self, dim: int) -> int:
        """Rows of the scratchpad for the weights."""
        return -(-self.part_channels // dim) * self.weight_block_rows

    def sums_rows(self, dim: int) -> int:
        """Rows of the accumulator."""
        return -(-self.part_channels // dim) * self.part_images * self.rows * self.columns

    def products(self, dim: int) -> int:
        """Products of blocks."""
        deep = self.kernel_rows * -(-self.kernel_columns // self.pixels) * -(-self.kernel_channels // dim)
        return -(-self.part_channels // dim) * deep * self.part_images * self.rows * -(-self.columns // dim)

    def input_row(self, geometry: ArrayGeometry) -> int:
        """The scratchpad's row where the patch begins."""
        return (self.a_half - 1) * (geometry.local_rows // 2)

    def weight_row(self, geometry: ArrayGeometry) -> int:
        """The scratchpad's row where the weights begin."""
        return self.b_half * (geometry.local_rows // 2) - self.weight_rows(geometry.dim)

    def fits(self, geometry: ArrayGeometry) -> bool:
        """Whether patch and weights fit in half of the scratchpad, and the sums in half of the accumulator."""
        dim = geometry.dim
        held = self.input_rows(dim) + self.weight_rows(dim)
        return held <= geometry.local_rows // 2 and self.sums_rows(dim) <= geometry.accumulator_rows // 2

    @staticmethod
    def channels_at_once(dim: int, item_bytes: int, channels: int) -> int:
        """Channels that one instruction moves."""
        return min(channels, dim * max(1, MOVED_BYTES // (dim * item_bytes)))

    def operations(self, dim: int = 0) -> tuple[tuple[str, dict[str, float]], ...]:
        """Mnemonics and fields, in the order in which they are issued, whatever the array's width: all is set anew for
        every loop, since the accelerator has two places, each with settings of its own."""
        del dim
        return tuple(
            (name, {bits.name: getattr(self, bits.name) for bits in (*found.first, *found.second)})
            for name, found in ((name, operation(name)) for name in (*SETTINGS, LOOP))
        )


def convolution_loop(operations: Sequence[Decoded], out_scale: float = 1.0) -> ConvolutionLoop:
    """The loop that operations ask for: the converse of `ConvolutionLoop.operations`."""
    fields = {name: int(value) for each in operations for name, value in each.fields}
    return ConvolutionLoop(**fields, out_scale=out_scale)
