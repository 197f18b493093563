"""The networks of IOS: operators of one or more kernels, with the shapes of what they make.

JSON --schema--> Network --tasks--> TaskGraph, --onnx_file--> ONNX, --gpu--> Problem
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from dsa_sched.placement.model.task_graph import ENDS
from hw_models.errors import ModelError

__all__ = ["Kernel", "Network", "Operator", "Shape", "Slice", "verify_network"]

Shape = tuple[int, int, int]
"""Channels, height, width: the batch is no part of a network."""

MOST_ELEMENTS = 1 << 31
"""Of one value or one kernel's weights."""

MOST_MACS = 1 << 44
"""Of one kernel."""

REDUCED = {"max": False, "avg": False, "global_max": True, "global_avg": True}
"""Kinds of pooling, and whether they leave one element a channel."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Channels of what a node makes: `first` up to `last`, without it."""

    node: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One computation. `kind` is conv, relu, identity or a kind of pooling; `inputs` are terms, which are concatenated,
    of slices, which are added."""

    name: str
    kind: str
    inputs: tuple[tuple[Slice, ...], ...]
    output_shape: Shape
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    groups: int = 1
    relu: bool = False

    @property
    def input_channels(self) -> int:
        return sum(term[0].last - term[0].first for term in self.inputs)

    @property
    def weights(self) -> int:
        """Elements, biases included."""
        if self.kind != "conv":
            return 0
        return self.output_shape[0] * (self.input_channels // self.groups * prod(self.kernel) + 1)

    @property
    def macs(self) -> int:
        """Multiplications of one image."""
        if self.kind != "conv":
            return 0
        return prod(self.output_shape) * (self.input_channels // self.groups) * prod(self.kernel)


@dataclass(frozen=True, slots=True)
class Operator:
    """What is scheduled: one kernel, or several in a row whose last one makes what others read under its name."""

    name: str
    kernels: tuple[Kernel, ...]
    output_shape: Shape


@dataclass(frozen=True)
class Network:
    """Operators in topological order; the last one makes the result. `parts` are places of operators: what is searched
    one after the other."""

    name: str
    input_name: str
    input_shape: Shape
    operators: tuple[Operator, ...]
    parts: tuple[tuple[int, ...], ...]

    @cached_property
    def number(self) -> dict[str, int]:
        """Operator name -> its place."""
        return {operator.name: place for place, operator in enumerate(self.operators)}

    @cached_property
    def shape(self) -> dict[str, Shape]:
        """Of the input and everything that a kernel or an operator makes."""
        made = {kernel.name: kernel.output_shape for operator in self.operators for kernel in operator.kernels}
        own = {operator.name: operator.output_shape for operator in self.operators}
        return {self.input_name: self.input_shape, **made, **own}

    @cached_property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """Of each operator, whose results it reads: other operators or the input, each once."""
        found = []
        for operator in self.operators:
            own = {kernel.name for kernel in operator.kernels}
            names = (part.node for kernel in operator.kernels for term in kernel.inputs for part in term)
            found.append(tuple(dict.fromkeys(name for name in names if name not in own)))
        return tuple(found)


def verify_network(network: Network) -> None:
    """Unique names, inputs that are made before they are read, shapes that agree. Raises ModelError."""
    _verify_names(network)
    if prod(network.input_shape) > MOST_ELEMENTS:
        raise ModelError(f"input {network.input_name}", needs=f"at most {MOST_ELEMENTS} elements")
    shape = {network.input_name: network.input_shape}
    for operator in network.operators:
        for kernel in operator.kernels:
            _verify_kernel(kernel, shape)
            shape[kernel.name] = kernel.output_shape
        for kernel in operator.kernels:
            del shape[kernel.name]
        shape[operator.name] = operator.kernels[-1].output_shape
        if shape[operator.name] != operator.output_shape:
            raise ModelError(
                f"node {operator.name}", needs=f"output shape {shape[operator.name]}", has=str(operator.output_shape)
            )
    if sorted(place for part in network.parts for place in part) != list(range(len(network.operators))):
        raise ModelError(f"parts of {network.name}", needs="every node once")


def _verify_names(network: Network) -> None:
    """An operator of one kernel has its name; else all names differ."""
    seen = {network.input_name, *ENDS}
    for operator in network.operators:
        names = [kernel.name for kernel in operator.kernels]
        names += [] if names == [operator.name] else [operator.name]
        for name in names:
            if name in seen:
                raise ModelError(f"node {name}", needs="a name of its own")
            seen.add(name)


def _verify_kernel(kernel: Kernel, shape: dict[str, Shape]) -> None:
    who = f"node {kernel.name}"
    for part in (part for term in kernel.inputs for part in term):
        if part.node not in shape:
            raise ModelError(who, needs="inputs that are made before it", has=part.node)
        if not 0 <= part.first < part.last <= shape[part.node][0]:
            raise ModelError(who, needs=f"channels of the {shape[part.node][0]} of {part.node}", has=str(part))
    spatial = {shape[part.node][1:] for term in kernel.inputs for part in term}
    if len(spatial) > 1 or any(len({part.last - part.first for part in term}) > 1 for term in kernel.inputs):
        raise ModelError(who, needs="inputs of one shape")
    if kernel.input_channels % kernel.groups or kernel.output_shape[0] % kernel.groups:
        raise ModelError(who, needs=f"channels in {kernel.groups} groups")
    made = _made(kernel, *spatial)
    if made != kernel.output_shape:
        raise ModelError(who, needs=f"output shape {made}", has=str(kernel.output_shape))
    if max(prod(made), kernel.weights) > MOST_ELEMENTS or kernel.macs > MOST_MACS:
        raise ModelError(who, needs=f"at most {MOST_ELEMENTS} elements and {MOST_MACS} multiplications")


def _made(kernel: Kernel, spatial: tuple[int, int]) -> Shape:
    """The shape that a kernel makes of an input with this height and width."""
    if kernel.kind == "conv" or kernel.kind in REDUCED:
        channels = kernel.output_shape[0] if kernel.kind == "conv" else kernel.input_channels
        if REDUCED.get(kernel.kind):
            return channels, 1, 1
        windows = zip(spatial, kernel.kernel, kernel.stride, kernel.padding, strict=True)
        height, width = ((size + 2 * pad - window) // step + 1 for size, window, step, pad in windows)
        return channels, height, width
    return kernel.input_channels, *spatial
