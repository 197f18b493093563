"""The processor's side of a network: groups computed from values as they are stored, results stored likewise.

PyTorch in single precision, rounded where a group stores; in the rehearsal the reference in float64
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.judged import whole_value
from benchmarks.gpu.synthetic import Array
from benchmarks.gpu.torch_network import TorchNetwork
from benchmarks.gpu.unfolded import Unfolded

__all__ = ["ByReference", "ByTorch", "Processor", "opened_processor"]


class Processor(Protocol):
    """Computes groups, in order, from `values` by name, and gives what they make."""

    @property
    def name(self) -> str: ...

    def compute(self, groups: Sequence[str], values: Mapping[str, Array]) -> dict[str, Array]: ...


def opened_processor(made: Unfolded, bench: Bench) -> Processor | None:
    """None where there is no PyTorch. Raises Unknown for an operator that its side does not know."""
    if bench.rehearse:
        return ByReference(made)
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return ByTorch(made, torch) if bench.torch else None


@dataclass(frozen=True)
class ByReference:
    """Every element in float64, by the reference that judges too."""

    made: Unfolded
    name: str = "reference in float64"

    def compute(self, groups: Sequence[str], values: Mapping[str, Array]) -> dict[str, Array]:
        known, found = dict(values), {}
        for name in groups:
            group = self.made.plan.group_by_name[name]
            for output, value in whole_value(self.made.graph, self.made.constants, group, known).items():
                known[output] = found[output] = value
        return found


@dataclass
class ByTorch:
    """PyTorch on the processor."""

    made: Unfolded
    torch: Any
    name: str = "PyTorch in float32"
    network: TorchNetwork = field(init=False)

    def __post_init__(self) -> None:
        self.network = TorchNetwork(self.torch, self.made.graph, self.made.constants, "cpu", self.torch.float32)

    def compute(self, groups: Sequence[str], values: Mapping[str, Array]) -> dict[str, Array]:
        graph, found = self.made.graph, dict[str, Array]()
        held = dict(self.network.held)

        def value(name: str) -> Any:
            if name not in held:
                if name in values:
                    held[name] = self.network.tensor(values[name])
                else:
                    operation(name)
            return held[name]

        def operation(name: str) -> None:
            op = graph.producer[name]
            for operand in op.inputs:
                value(operand)
            held[name] = self.network.compute(op, held)

        with self.torch.inference_mode():
            for name in groups:
                group = self.made.plan.group_by_name[name]
                for op in (op for layer in group.layers for op in layer.ops):
                    operation(graph.op_by_name[op].outputs[0])
                for output in group.outputs(graph):
                    tensor = graph.by_name[output]
                    array = held[output].contiguous().numpy().astype(tensor.dtype).reshape(tensor.shape)
                    found[output] = array
                    held[output] = self.network.tensor(array)  # as it is stored, for the next group
        return found
