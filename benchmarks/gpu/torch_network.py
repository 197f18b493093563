"""A compiled network's graph in PyTorch: what it is compared with, from the same graph, weights and inputs.

Values have device shapes, channels last; a convolution sees its map as PyTorch's `channels_last`, so nothing is copied.
Everything is float16 on a GPU. An operator that is missing is refused by name, and the comparison left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu.synthetic import Array
from benchmarks.gpu.torch_operators import KINDS, Asked, Tensor, Unknown
from partitioner.ir.graph import Graph, Op

__all__ = ["TorchNetwork"]


@dataclass
class TorchNetwork:
    """Callable on tensors of the network's inputs in device shape; gives its outputs. `torch` is the module."""

    torch: Any
    graph: Graph
    constants: Mapping[str, Array]
    device: str
    dtype: Any = None
    held: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises Unknown, naming the operator."""
        for op in self.graph.ops:
            if op.kind not in KINDS:
                raise Unknown(f"operator {op.name}: PyTorch's side knows no {op.kind}")
        self.weights = {op.inputs[1] for op in self.graph.ops if op.kind == "conv"}
        for tensor in self.graph.tensors:
            if tensor.constant:
                self.held[tensor.name] = self._constant(tensor.name)

    def _constant(self, name: str) -> Tensor:
        tensor = self.graph.by_name[name]
        value = self.tensor(self.constants[tensor.constant].reshape(tensor.shape))
        if name in self.weights:
            value = _filters(value, self._op_of(name))
        return value

    def _op_of(self, weights: str) -> Op:
        return next(op for op in self.graph.ops if op.kind == "conv" and op.inputs[1] == weights)

    def tensor(self, array: Array) -> Tensor:
        """On the device, floats in the network's type."""
        value = self.torch.from_numpy(array.copy()).to(self.device)
        return value.to(self.dtype) if self.dtype is not None and value.is_floating_point() else value

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = {**self.held, **dict(zip(self.graph.inputs, inputs, strict=True))}
        left = {name: len(readers) for name, readers in self.graph.consumers.items()}
        for op in self.graph.ops:
            values[op.outputs[0]] = self.compute(op, values)
            for name in dict.fromkeys(op.inputs):
                left[name] -= 1
                if not left[name] and name not in self.graph.outputs and name not in self.held:
                    del values[name]  # as PyTorch frees what nothing holds
        return tuple(values[name] for name in self.graph.outputs)

    def compute(self, op: Op, values: Mapping[str, Tensor]) -> Tensor:
        """What an operator makes of values by name."""
        return KINDS[op.kind](Asked(self.torch, self.graph, op, values))


def _filters(value: Tensor, op: Op) -> Tensor:
    """(Cout, kernel..., Cin) or (G, Cout / G, kernel..., Cin / G) as PyTorch has them, in the memory it likes."""
    if op.number("groups") > 1:
        value = value.reshape(-1, *value.shape[2:])
    return value.movedim(-1, 1)
