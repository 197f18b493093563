"""Stages of a network by PyTorch's kernels, on PyTorch's streams, in one CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.bench import Bench, Row, spread
from benchmarks.gpu.network_times import captured_times, drawn_tensors, torch_with_gpu
from benchmarks.gpu.store import Program
from benchmarks.gpu.torch_network import TorchNetwork
from benchmarks.gpu.torch_operators import Unknown
from benchmarks.gpu.unfolded import unfolded

__all__ = ["StagedTorch", "torch_staged"]

Stages = Sequence[Sequence[Sequence[str]]]


class StagedTorch:
    """Callable as the network. All values live until the end, so that no stream takes another's memory."""

    def __init__(
        self, network: TorchNetwork, stages: Stages, ops: dict[str, list[str]], streams: Sequence[Any]
    ) -> None:
        self._network = network
        self._stages = stages
        self._ops = ops
        self._streams = streams
        self.values: dict[str, Any] = {}

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        graph, cuda = self._network.graph, self._network.torch.cuda
        self.values = {**self._network.held, **dict(zip(graph.inputs, inputs, strict=True))}
        for stage in self._stages:
            main = cuda.current_stream()
            lanes = [main, *self._streams[: len(stage) - 1]]
            for lane in lanes[1:]:
                lane.wait_stream(main)
            for lane, groups in zip(lanes, stage, strict=True):
                with cuda.stream(lane):
                    for group in groups:
                        for op in self._ops[group]:
                            self._compute(op)
            for lane in lanes[1:]:
                main.wait_stream(lane)
        return tuple(self._value(name) for name in graph.outputs)

    def _compute(self, name: str) -> None:
        op = self._network.graph.op_by_name[name]
        for operand in op.inputs:
            self._value(operand)
        self.values[op.outputs[0]] = self._network.compute(op, self.values)

    def _value(self, name: str) -> Any:
        """A view belongs to no group: it is made where it is read."""
        if name not in self.values:
            self._compute(self._network.graph.producer[name].name)
        return self.values[name]


def torch_staged(bench: Bench, program: Program, method: str) -> Row:
    torch = torch_with_gpu(bench)
    if torch is None:
        return {"skipped": "the rehearsal has no GPU" if bench.rehearse else "PyTorch with a GPU is not there"}
    stages = program.entry["stages"][method]
    ops = {name: list(kernel["ops"]) for name, kernel in program.kernels.items()}
    with unfolded(bench.pack, program) as made:
        try:
            network = TorchNetwork(torch, made.graph, made.constants, "cuda", torch.float16)
            streams = [torch.cuda.Stream() for _ in range(max(map(len, stages)) - 1)]
            staged = StagedTorch(network, stages, ops, streams)
            inputs = drawn_tensors(made, network)
            with torch.inference_mode():
                times = captured_times(torch, staged, inputs, bench.repeats)
        except Unknown as error:
            return {"skipped": str(error)}
    return {"method": method, "stages": len(stages), "streams": max(map(len, stages)), **spread(times)}
