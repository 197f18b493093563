"""From a small graph to bits in the memory of the simulated chip, and the two judges of those bits.

graph --make_plan, lower_plan, verify_program, emit, run (poisoned)--> stored bits of every tensor
judges: `emulate` at every position, bit for bit; float64 arithmetic without rounding, roughly
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from benchmarks.lab.programs import lower_plan
from benchmarks.lab.resizing import resized
from codegen.judgement import Sampled
from codegen.neuralscale.target import TARGET
from codegen.target import ClusterFiles
from hw_models.chip import Chip
from hw_models.loading import load_chip
from isched.hazards.verify_program import verify_program
from isched.program.program import Program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.graph import Constants, Graph, Tensor
from partitioner.ir.plan import Plan
from partitioner.planners.levels import planner_of
from partitioner.planners.registry import make_plan

__all__ = ["Compiled", "compile_graph", "small_chip", "stcp920"]

Bits = npt.NDArray[np.unsignedinteger]
"""Bits of fp16 or int8 elements."""
SAMPLES = 4_000


def stcp920() -> Chip:
    return load_chip("stcp920")


def small_chip(
    cores: int = 8,
    data_bytes: int = 1 << 20,
    weights_bytes: int = 1 << 18,
    im_bytes: int = 1 << 18,
    llb_bytes: int = 1 << 23,
    enforced: bool = True,
) -> Chip:
    """The stcp920 with fewer cores and smaller memories; its programs run on the same simulator."""
    parts = {("L1", "data"): data_bytes, ("L1", "weights"): weights_bytes}
    chip = resized(stcp920(), "small", {"LLB": llb_bytes, "IM": im_bytes}, parts)
    memories = tuple(
        memory.model_copy(update={"buffers_enforced": enforced and memory.buffers_enforced}) for memory in chip.memories
    )
    return chip.model_copy(update={"cores_per_cluster": cores, "memories": memories})


@dataclass(frozen=True)
class Compiled:
    """A small graph on its way through the compiler, and what it stores when it runs."""

    graph: Graph
    constants: Constants
    chip: Chip
    plan: Plan
    program: Program

    @cached_property
    def files(self) -> ClusterFiles:
        return TARGET.emit(self.program, self.graph, self.constants)

    def inputs(self, seed: int = 0, scale: float = 1.0) -> dict[str, Bits]:
        """Random inputs in device shape: normally distributed ones of fp16, any of int8."""
        rng = np.random.default_rng(seed)
        return {name: _drawn(self.graph.by_name[name], rng, scale) for name in self.graph.inputs}

    def run(self, inputs: Mapping[str, Bits], seed: int = 0) -> dict[str, Bits]:
        """Every tensor that was stored, in device shape, constants as they lie in memory after the run."""
        place = {p.tensor: (TARGET.address(p.memory, p.offset_bytes), p.size_bytes) for p in self.program.placements}
        stored = [name for name in place if name in self.graph.inputs or self._stored(name)]
        loads = {place[name][0]: inputs[name].tobytes() for name in self.graph.inputs}
        memory = TARGET.run(self.files, loads, tuple(place[name] for name in stored), seed).memory
        return {
            name: np.frombuffer(memory[place[name]], self._bits(name)).reshape(self.graph.by_name[name].shape)
            for name in stored
        }

    def _bits(self, name: str) -> str:
        return f"u{self.graph.by_name[name].item_bytes}"

    def _stored(self, name: str) -> bool:
        """Constants, and values that leave their layer."""
        inside = {
            output
            for group in self.plan.groups
            for layer in group.layers
            for op in layer.ops[:-1]
            for output in self.graph.op_by_name[op].outputs
        }
        return name not in inside

    def expected(self, stored: Mapping[str, Bits]) -> dict[str, tuple[Bits, Bits]]:
        """For the output of each layer: the bits stored and those that `emulate` says, at (up to SAMPLES) positions."""
        result = {}
        for group in self.plan.groups:
            for layer in group.layers:
                shape = self.graph.by_name[layer.output].shape
                points = np.stack(np.unravel_index(_positions(shape), shape), 1).astype(np.int64)
                read = _values_of(self.graph, stored)
                sampled = Sampled(self.graph, self.constants, layer, points, read, lambda _: np.zeros(()), self.chip)
                wanted = TARGET.emulate(sampled)
                result[layer.output] = (stored[layer.output][tuple(points.T)], wanted.view(self._bits(layer.output)))
        return result

    def emulated(self, inputs: Mapping[str, Bits]) -> dict[str, Bits]:
        """Bits of all values that leave a layer, each emulated at every position from those before it."""
        values = dict(inputs)
        read = _values_of(self.graph, values)
        for layer in Context(self.graph, self.constants, self.chip, TARGET).layers:
            shape = self.graph.by_name[layer.output].shape
            points = np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape), 1).astype(np.int64)
            sampled = Sampled(self.graph, self.constants, layer, points, read, lambda _: np.zeros(()), self.chip)
            values[layer.output] = TARGET.emulate(sampled).view(self._bits(layer.output)).reshape(shape)
        return values

    def check_results(self, seed: int = 0, scale: float = 1.0) -> dict[str, Bits]:
        """Run on random inputs; the results, and whatever else was stored, must be what `emulated` says."""
        inputs = self.inputs(seed, scale)
        stored, wanted = self.run(inputs, seed), self.emulated(inputs)
        for name in (name for name in wanted if name in stored):
            np.testing.assert_array_equal(stored[name], wanted[name], err_msg=name)
        assert not [name for name in self.graph.outputs if name not in stored]
        return stored

    def check(self, seed: int = 0, scale: float = 1.0) -> dict[str, Bits]:
        """Run on random inputs; every layer's output must be what `emulate` says, bit for bit."""
        stored = self.run(self.inputs(seed, scale), seed)
        for name, (got, wanted) in self.expected(stored).items():
            np.testing.assert_array_equal(got, wanted, err_msg=name)
        for tensor in self.graph.tensors:
            if tensor.constant:
                array = self.constants[tensor.constant]
                np.testing.assert_array_equal(stored[tensor.name], array.view(self._bits(tensor.name)))
        return stored


def _positions(shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """All positions of a small tensor; of a large one the borders' worth and a random choice."""
    size = int(np.prod(shape))
    if size <= SAMPLES:
        return np.arange(size)
    rng = np.random.default_rng(size)
    ends = np.concatenate([np.arange(SAMPLES // 8), size - 1 - np.arange(SAMPLES // 8)])
    return np.unique(np.concatenate([ends, rng.integers(0, size, SAMPLES * 3 // 4)]))


def compile_graph(
    graph: Graph, constants: Constants, chip: Chip | None = None, isolated: bool = False, level: str = "O0"
) -> Compiled:
    """All stages up to a verified program, on the stcp920 unless told otherwise."""
    described = chip or stcp920()
    plan = make_plan(PlanContext(graph, constants, described, TARGET), planner_of(level))
    program = lower_plan(
        plan, Context(graph, constants, described, TARGET), TARGET.data_base_bytes, isolated, keep_values=True
    )
    verify_program(program, described)
    return Compiled(graph, constants, described, plan, program)


def _values_of(graph: Graph, stored: Mapping[str, Bits]) -> Callable[[str], npt.NDArray[np.generic]]:
    return lambda name: stored[name].view(graph.by_name[name].dtype)


def _drawn(tensor: Tensor, rng: np.random.Generator, scale: float) -> Bits:
    if tensor.dtype == "int8":
        return rng.integers(-128, 128, tensor.shape).astype(np.int8).view(np.uint8)
    return rng.normal(0, scale, tensor.shape).astype(np.float16).view(np.uint16)
