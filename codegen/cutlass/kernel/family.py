"""Family of kernels: it offers candidates for a set of layers, and makes the launches of the chosen one.

Work(graph, layers, chip) --offers--> Kernel(template, parameters, floors) Work, parameters of the plan's kernel
--launches--> Launch, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from codegen.cutlass.kernel.launches import ComputedLaunch, Launch
from hw_models.chip import Chip
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.kernels import Kernel
from partitioner.ir.layers import Layer

Parameters = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class KernelWork:
    """Layers that one kernel is to compute, in execution order, on a chip."""

    graph: Graph
    layers: tuple[Layer, ...]
    chip: Chip

    @property
    def layer(self) -> Layer:
        """The first layer, which is the only one except in fused groups."""
        return self.layers[0]

    @property
    def anchor(self) -> Op:
        return self.layer.anchor(self.graph)

    @property
    def output(self) -> str:
        """Output of the last layer."""
        return self.layers[-1].output

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.graph.by_name[tensor].shape


class Family(Protocol):
    """Kernels made from one template."""

    @property
    def name(self) -> str:
        """Name of the template in plans."""

    def offers(self, work: KernelWork) -> tuple[Kernel, ...]:
        """Candidates; empty where the template cannot compute these layers together."""

    def launches(
        self, work: KernelWork, parameters: Parameters, constants: Constants
    ) -> tuple[Launch | ComputedLaunch, ...]:
        """Launches of the candidate with these parameters, in order. Raises TargetError for parameters that the family
        never offers."""
