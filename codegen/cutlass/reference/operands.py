"""One operator of a layer at sampled positions, and the elements of its operands there.

points [S, rank] of the result  -->  elements of an operand there, in float64, and their errors
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codegen.cutlass.reference.evaluated import Evaluated, Stored
from codegen.judgement import Points, Sampled
from partitioner.ir.graph import Op


@dataclass(frozen=True, slots=True)
class RuleInputs:
    """Inputs of a rule. `running` is the value that the layer has just computed at the points, by name: it is not
    rounded to a stored type, and is read only at the points."""

    sampled: Sampled
    op: Op
    running: tuple[str, Evaluated] | None
    outputs_first: bool

    @property
    def points(self) -> Points:
        return self.sampled.points

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result, on the device."""
        return self.sampled.graph.by_name[self.op.outputs[0]].shape

    def tensor(self, position: int = 0) -> Stored:
        """A whole input, in device shape."""
        name = self.op.inputs[position]
        tensor = self.sampled.graph.by_name[name]
        if tensor.constant:
            return Stored(self.sampled.constants[tensor.constant].reshape(tensor.shape))
        errors = self.sampled.errors(name).reshape(tensor.shape)
        return Stored(self.sampled.read(name).reshape(tensor.shape), errors if errors.any() else None)

    def operand(self, position: int = 0) -> Evaluated:
        """The elements of an input that meet the points, aligned at the last axis; axes of one are broadcast."""
        if self.running is not None and self.op.inputs[position] == self.running[0]:
            return self.running[1]
        stored = self.tensor(position)
        return stored.at(*aligned(self.points, stored.values.shape))

    def vector(self, position: int) -> Evaluated:
        """Elements of an input that has one per channel, for the channels of the points (the last axis)."""
        return self.tensor(position).at(self.points[:, -1])


Rule = Callable[[RuleInputs], Evaluated]
"""Rule of an operator: its results at the points, [S]."""


def aligned(points: Points, shape: tuple[int, ...]) -> tuple[Points, ...]:
    """Positions in a tensor of shape `shape`, which is broadcast to the points' and aligned with it at the last
    axis."""
    met = points[:, points.shape[1] - len(shape) :]
    return tuple(np.where(extent > 1, i, 0) for i, extent in zip(met.T, shape, strict=True))
