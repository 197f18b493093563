"""Small networks of convolutions in a row as one kernel of a family: executed, and judged against float64.

model --plan_model--> Work --a candidate--> launches --nvcc, executor--> what is stored --the target's bound--> Judged
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.kernel.family import Family, KernelWork
from codegen.cutlass.kernel.launches import Address, Argument, Data, Launch, LayerScratch
from codegen.cutlass.ptx import GlobalMemory, launch, parameters, parse
from codegen.cutlass.reference import JUDGEMENT, emulate
from codegen.judgement import Doubles, Sampled
from dsa_sched.pipeline.driver import plan_model
from dsa_sched.stages.compilation import CompileOptions
from dsa_sched.stages.kernel_stages import PlannedKernels
from partitioner.ir.graph import Constants
from partitioner.ir.kernels import Kernel
from partitioner.planners.levels import O0
from tests.codegen.cutlass.families.networks import Network
from tests.small_models import save

__all__ = ["ACTIVATIONS", "Judged", "convolutions", "drawn_chain", "executed", "judged_chain", "work_of"]

ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish", "")
"""Sigmoid makes of nothing something, so that what lies outside the image has to be made zero behind it."""
Halves = npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Judged:
    """How far the worst element is from the number, as a part of what the bound allows, and the distance of all of
    them from the numbers, over that of the numbers from zero."""

    worst: float
    distance: float


def convolutions(
    shape: tuple[int, int, int, int],
    layers: list[tuple[int, int, int]],
    *,
    summed: str = "",
    activations: tuple[str, ...] = ("Relu", "Relu", "Relu"),
    bias: bool = True,
    seed: int = 0,
) -> onnx.ModelProto:
    """Layers of (filters, kernel, stride), 3x3 padded by one. `summed`: "" for no sum, "x" for the image, "other" for
    another map of the result's shape; an activation follows the sum."""
    net = Network([("x", shape)], seed)
    y, (_, _, height, width) = "x", shape
    for number, (filters, kernel, stride) in enumerate(layers):
        pads = [kernel // 2] * 4
        y = net.conv(y, filters, kernel, strides=[stride, stride], pads=pads, bias=bias)
        height, width = (-(-extent // stride) for extent in (height, width))
        if activations[number] and not (summed and number == len(layers) - 1):
            y = _activated(net, activations[number], y)
    if summed:
        if summed == "other":
            net.inputs.append(("other", (shape[0], layers[-1][0], height, width)))
        y = _activated(net, activations[len(layers) - 1] or "Relu", net.add("Add", y, summed))
    return net.model(y)


def _activated(net: Network, kind: str, y: str) -> str:
    return net.relu6(y) if kind == "Clip" else net.add(kind, y)


def drawn_chain(kernels: tuple[int, ...], seed: int) -> tuple[onnx.ModelProto, random.Random]:
    """A chain of these kernels: a batch of 1 to 3, ragged images, stride 1 or 2 in one 3x3, activations, with and
    without a sum; and the numbers that go on from there."""
    draw = random.Random(f"{kernels} {seed}")
    strided = draw.choice([None, *(number for number, kernel in enumerate(kernels) if kernel == 3)])
    layers = [(8 * draw.randint(1, 12), kernel, 2 if number == strided else 1) for number, kernel in enumerate(kernels)]
    summed = draw.choice(["", "x", "other"])
    shape = (draw.randint(1, 3), 8 * draw.randint(1, 14), draw.randint(1, 21), draw.randint(1, 21))
    if summed == "x":
        layers = [(filters, kernel, 1) for filters, kernel, _ in layers]
        layers[-1] = (shape[1], *layers[-1][1:])
    activations = tuple(draw.choice(ACTIVATIONS) for _ in kernels)
    return convolutions(
        shape, layers, summed=summed, activations=activations, bias=draw.random() < 0.8, seed=seed
    ), draw


def work_of(model: onnx.ModelProto, folder: Path, chip: str) -> tuple[KernelWork, Constants]:
    """All layers of the model, as a planner asks for a kernel for them."""
    planned = plan_model(save(model, folder / "net.onnx"), chip, CompileOptions(O0()))
    assert isinstance(planned, PlannedKernels)
    layers = tuple(layer for group in planned.plan.groups for layer in group.layers)
    return KernelWork(planned.model.graph, layers, planned.context.chip), planned.model.constants


def judged_chain(
    family: Family,
    work: KernelWork,
    constants: Constants,
    kernel: Kernel,
    compiler: Compiler,
    seed: int = 0,
    given: Mapping[str, Halves] | None = None,
) -> Judged:
    """What the candidate stores, every element of it, for inputs that are drawn where they are not `given`. Infinities
    and NaN are as far away as can be."""
    random_values = np.random.default_rng(seed)
    held = {name: random_values.standard_normal(work.shape(name)).astype(np.float16) for name in work.graph.inputs}
    held |= given or {}
    stored = executed(family, work, constants, kernel, compiler, held)
    numbers, allowed = _numbers(work, constants, held)
    apart = np.abs(stored.astype(np.float64) - numbers)
    worst = np.where(np.isfinite(apart), apart / allowed, np.inf).max()
    return Judged(float(worst), float(np.linalg.norm(apart) / np.linalg.norm(numbers)))


def executed(
    family: Family,
    work: KernelWork,
    constants: Constants,
    kernel: Kernel,
    compiler: Compiler,
    held: Mapping[str, Halves],
    order: int = 1,
) -> Halves:
    """What the candidate's launches store for these inputs. `order` is the seed of the order of their blocks."""
    memory, addresses = GlobalMemory(), dict[str | int, int]()

    def passed(argument: Argument) -> int | bytes:
        match argument:
            case Address(name):
                tensor = work.graph.by_name[name]
                content = constants[tensor.constant] if tensor.constant else held.get(name, tensor.size_bytes)
                if name not in addresses:
                    addresses[name] = memory.allocate(
                        content if isinstance(content, int) else content.reshape(-1), name
                    )
                return addresses[name] + argument.plus_bytes
            case LayerScratch(number):
                if number not in addresses:
                    addresses[number] = memory.allocate(argument.size_bytes, f"scratch {number}")
                return addresses[number] + argument.plus_bytes
            case Data(name, content):
                return memory.allocate(np.frombuffer(content, np.uint8), name)
            case tuple():
                return np.array(argument, np.int32).tobytes()
            case int():
                return argument
        raise AssertionError(f"{argument} is not passed by these tests")

    for one in family.launches(work, dict(kernel.parameters), constants):
        assert isinstance(one, Launch)
        module = parse(compiler.ptx(one.source.text, work.chip.isa.removeprefix("sm_"), cutlass=one.source.cutlass))
        block = parameters(module.kernels[one.kernel], *map(passed, one.arguments))
        launch(module, one.kernel, one.grid, one.block, block, memory, order, shared_bytes=one.shared_bytes)
    stored: Halves = memory.load(addresses[work.output], np.float16, work.shape(work.output))
    return stored


def _numbers(work: KernelWork, constants: Constants, held: dict[str, Halves]) -> tuple[Doubles, Doubles]:
    """The output in float64, values between layers rounded as if they were stored, and what the bound allows."""
    values: dict[str, npt.NDArray[np.generic]] = dict(held)
    errors: dict[str, Doubles] = {name: np.zeros(array.shape) for name, array in held.items()}

    def read(name: str) -> npt.NDArray[np.generic]:
        tensor = work.graph.by_name[name]
        return constants[tensor.constant].reshape(tensor.shape) if tensor.constant else values[name]

    def error(name: str) -> Doubles:
        return errors.get(name, np.zeros(work.shape(name)))

    for layer in work.layers:
        shape = work.shape(layer.output)
        points = np.stack(np.unravel_index(np.arange(prod(shape)), shape), 1)
        sampled = Sampled(work.graph, constants, layer, points, read, error, work.chip)
        numbers, allowed = emulate(sampled).astype(np.float64), JUDGEMENT.allowed(sampled)
        rounded = numbers.astype(np.float16)
        values[layer.output] = rounded.reshape(shape)
        errors[layer.output] = (allowed + np.abs(rounded - numbers)).reshape(shape)
    return numbers.reshape(shape), allowed.reshape(shape)
