"""Judgement of a target's results: exact, or within a bound, as verification may require.

    Exact()          every run leaves the bits that `emulate` gives
    Bound(allowed)   `emulate` gives the numbers, and `allowed` the largest distance of a stored one

A target that does not promise the order of its sums, such as one with atomics or with an order chosen at run time,
gives a bound. So does one whose arithmetic no one has written down bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from partitioner.ir.graph import Constants, Graph
from partitioner.ir.layers import Layer

if TYPE_CHECKING:  # judging needs no chip files, and nothing to read them
    from hw_models.chip import Chip

Array = npt.NDArray[np.generic]
Doubles = npt.NDArray[np.float64]
Points = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BitExact:
    """Judgement that every run leaves the same bits, those of `emulate`."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Positions `points`, [S, rank] along device axes, of a layer's output. `read(name)` gives an input in device shape
    and type, `errors(name)` the largest distance of each of its elements from what the layer read: zero for stored
    values, more where the value stays on the chip and was itself emulated."""

    graph: Graph
    constants: Constants
    layer: Layer
    points: Points
    read: Callable[[str], Array]
    errors: Callable[[str], Doubles]
    chip: Chip


@dataclass(frozen=True, slots=True)
class Bound:
    """Judgement that runs may differ. `allowed` gives, for each position, the largest difference of a stored element
    from the number of `emulate`, which is then not rounded to the stored type; it includes the errors of inputs."""

    allowed: Callable[[Sampled], Doubles]


Judgement = BitExact | Bound

EXACT = BitExact()


def rounded_sum_error(values: Doubles, magnitudes: Doubles, terms: int, *, stored: str, summed: str) -> Doubles:
    """Largest error of sums that are kept in the type `summed`, in any order, and stored as `stored`.

    `values` are the sums and `magnitudes` those of the absolute values of their `terms`. Storing rounds by half a step;
    each addition rounds the sum so far, also by half a step, and products add as much:

        |stored - value| <= u |value| + least / 2 + terms * 2 v * magnitude

    with u and v half the distance from 1 to the next number of `stored` and `summed`. For fp16 summed in fp32 the bound
    is 2^-11 |value| + 2^-25 + terms * 2^-23 magnitude.
    """
    rounding, sums = np.finfo(stored), np.finfo(summed)
    unit, least = float(rounding.eps) / 2, float(rounding.smallest_subnormal) / 2
    return np.asarray(unit * np.abs(values) + least + terms * float(sums.eps) * magnitudes)
