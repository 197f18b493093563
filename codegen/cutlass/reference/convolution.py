"""Convolutions: sums over the kernel and the input channels of a group, and a bias.

Taps in the padding are multiplied as zeros, as kernels of implicit products do: times an infinite weight they are NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen.cutlass.reference.evaluated import Evaluated, Stored
from codegen.cutlass.reference.operands import RuleInputs
from codegen.cutlass.reference.sums import sums_of_products
from codegen.cutlass.reference.windows import WindowAttributes, window_of
from codegen.judgement import Points


def convolution(asked: RuleInputs) -> Evaluated:
    """A row is what lies under the kernel, in the channels of a group; a column the weights of an output channel."""
    x, shape, points = asked.tensor(0), asked.shape, asked.points
    groups = int(asked.op.number("groups"))
    weights = _Weights(asked.tensor(1), groups, asked.outputs_first)
    channel, extents = points[:, -1], (*shape[:-1], groups)
    group = channel // (shape[-1] // groups)
    number = np.ravel_multi_index((*points[:, :-1].T, group), extents)
    length = window_of(asked.op).taps * x.values.shape[-1] // groups

    def rows(numbers: Points) -> Evaluated:
        *places, of_group = np.unravel_index(numbers, extents)
        return _patches(x, window_of(asked.op), np.stack(places, 1), of_group, x.values.shape[-1] // groups)

    bias = asked.vector(2) if len(asked.op.inputs) > 2 else None
    return sums_of_products(rows, weights.columns, number, channel, length, bias)


def _patches(x: Stored, window: WindowAttributes, places: Points, group: Points, channels: int) -> Evaluated:
    """[P, taps times channels of the group]"""
    chosen = group[:, None] * channels + np.arange(channels)
    found = window.gather(x, places, chosen, 0.0)
    return Evaluated(found.numbers.reshape(len(places), -1), found.error.reshape(len(places), -1))


@dataclass(frozen=True, slots=True)
class _Weights:
    """In one of two orders, the groups before them where there are several:

    outputs first    Cout, kernel..., Cin / groups
    outputs last     kernel..., Cin / groups, Cout
    """

    stored: Stored
    groups: int
    outputs_first: bool

    def columns(self, channel: Points) -> Evaluated:
        """[F, taps times channels of a group] of output channels."""
        rank = self.stored.values.ndim
        first = 1 if self.groups > 1 else 0
        stored = self.stored
        if not self.outputs_first:
            stored = stored.moved((*range(first), rank - 1, *range(first, rank - 1)))
        each = stored.values.shape[first]
        found = stored.at(channel // each, channel % each) if self.groups > 1 else stored.at(channel)
        return Evaluated(found.numbers.reshape(len(channel), -1), found.error.reshape(len(channel), -1))
