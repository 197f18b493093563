"""The unroller of the accelerator's own loops: what it keeps from one loop to the next, and loops that it refuses.

settings as they came last --LoopUnroller.parts--> instructions of each part, or a status that says why not
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from codegen.gemmini.isa import convolution_loops, matrix_loops
from codegen.gemmini.isa.convolution_loops import ConvolutionLoop, convolution_loop
from codegen.gemmini.isa.geometry import ArrayGeometry
from codegen.gemmini.isa.matrix_loops import MatrixLoop, matrix_loop
from codegen.gemmini.isa.operations import FUNCTIONS, decoded
from codegen.gemmini.isa.unrolled import AcceleratorLoop, Instructions, LoopPlaces, Part, unrolled
from codegen.gemmini.simulator import core
from codegen.gemmini.simulator.status import (
    BAD_CONFIG,
    LOOP_SUMS_APART,
    LOOP_TOO_LARGE,
    LOOP_TOO_LONG,
    LOOP_UNSET,
    NOT_SIMULATED,
    RUNNING,
)

_WORD = (1 << 64) - 1
_NORMS, _KNOWN_BITS = (2, 4), 0b111
"""Of `loop_ws`: activations that are norms, and known bits of its second operand."""

MOST_PRODUCTS = 1 << 21
"""Products of blocks of one loop, at most: all of its instructions are held at once. None on the two builds that have
chip files has as many."""


@dataclass(slots=True)
class LoopUnroller:
    """What one loop leaves to the next one: the places of products, halves of the accumulator for products and for
    convolutions, and whether something was added for sums of a convolution that have not left yet."""

    geometry: ArrayGeometry
    products: LoopPlaces = field(default_factory=LoopPlaces)
    convolution_sums: int = 0
    begun: bool = False

    def parts(
        self, number: int, config: npt.NDArray[np.int64], out_scale: float, poison: bool
    ) -> Mapping[Part, Instructions] | int:
        """Parts of the loop that the function of that number asks for, in order, or why there is none, as a status.
        What is configured has operands of the loop's own instructions; these are as good as forgotten then."""
        kind = matrix_loops if number == core.LOOP else convolution_loops
        numbers = [FUNCTIONS[name] for name in (*kind.SETTINGS, kind.LOOP)]
        asked = sum(1 << each for each in numbers)
        if poison and config[core.LOOP_SET] & asked != asked:
            return LOOP_UNSET
        config[core.LOOP_SET] &= ~asked
        words = [[int(config[core.LOOP_WORDS + 2 * each + place]) & _WORD for place in (0, 1)] for each in numbers]
        operations = [decoded(each, *pair) for each, pair in zip(numbers, words, strict=True)]
        found = [each for each in operations if each is not None]
        if not config[core.STATIONARY]:
            return BAD_CONFIG
        if number != core.LOOP:
            return self._convolution(convolution_loop(found, out_scale))
        fields = {name: int(value) for each in found for name, value in each.fields}
        if fields["activation"] in _NORMS or words[-1][1] & ~_KNOWN_BITS:
            return NOT_SIMULATED
        if any(fields[f"pad_{name}"] >= self.geometry.dim or not fields[name] for name in "ijk"):
            return BAD_CONFIG
        return self._product(matrix_loop(found, self.geometry.dim))

    def _product(self, loop: MatrixLoop) -> Mapping[Part, Instructions] | int:
        if 3 in (loop.a_half, loop.b_half) or (loop.turned_a and loop.turned_b):
            return BAD_CONFIG
        if (status := self._size_refused(loop)) != RUNNING:
            return status
        made = unrolled(loop, self.geometry, self.products)
        sums = 1 - self.products.sums if loop.c else self.products.sums
        self.products = LoopPlaces(1 - self.products.place, sums)
        return made

    def _convolution(self, loop: ConvolutionLoop) -> Mapping[Part, Instructions] | int:
        if (status := _convolution_refused(loop) or self._size_refused(loop)) != RUNNING:
            return status
        if bool(loop.bias) == self.begun:  # the generator's models differ in the half of the accumulator
            return LOOP_SUMS_APART
        made = unrolled(loop, self.geometry, LoopPlaces(sums=self.convolution_sums))
        self.begun = not loop.output
        self.convolution_sums = 1 - self.convolution_sums if loop.output else self.convolution_sums
        return made

    def _size_refused(self, loop: AcceleratorLoop) -> int:
        if not loop.fits(self.geometry):
            return LOOP_TOO_LARGE
        return LOOP_TOO_LONG if loop.products(self.geometry.dim) > MOST_PRODUCTS else RUNNING


def _convolution_refused(loop: ConvolutionLoop) -> int:
    """Why a loop over a convolution is not carried out, as a status; RUNNING where it is. Of training, nothing is."""
    training = (loop.rotated, loop.output_1203, loop.weights_1203, loop.weights_0132, loop.input_3120,
                loop.input_dilated)  # fmt: skip
    if any(training) or loop.activation > 1:
        return NOT_SIMULATED
    extents = (loop.part_images, loop.rows, loop.columns, loop.part_channels, loop.kernel_rows, loop.kernel_columns,
               loop.kernel_channels, loop.stride, loop.dilation)  # fmt: skip
    one_tap = loop.kernel_rows == loop.kernel_columns == 1 and loop.stride == 2
    padded = loop.top or loop.bottom or loop.left or loop.right
    contradicts = (
        not all(extents)
        or not {loop.a_half, loop.b_half} <= {1, 2}  # without a half, the generator's models differ
        or min(loop.own_pixels) < 0
        or (loop.downsample and (padded or not one_tap))
    )
    return BAD_CONFIG if contradicts else RUNNING
