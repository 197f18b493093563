"""Element-wise operators on the core: a chain of steps in float32 that one loop carries out for each element.

mul, narrow of x  -->  Elements(constants (1 / scale, bounds), sources (x), steps (multiply, larger, smaller), int8)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from codegen.gemmini.kernels.functions import FUNCTIONS
from codegen.gemmini.kernels.loops import BoxLoop, broadcast_steps, merged, start_of
from codegen.gemmini.streams.float_registers import float_registers
from codegen.gemmini.streams.streams import Elements, Item, Operand, nested
from isched.program.target import PlacedArray
from partitioner.ir.graph import Constants, Graph, Op
from partitioner.ir.regions import Box

LOW, HIGH = -128.0, 127.0
ElementPlace = tuple[str, Operand]
Placed = tuple[str, int, Sequence[int]]
"""Type, address and steps along the axes of a source or a result."""

MOST_REGISTERS = 30
"""Floating-point registers that one chain may use; what makes its first value needs two more."""

MOST_SOURCES = 8
"""Tensors that one chain may read."""

BINARY: Mapping[str, str] = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide",
                             "max": "larger", "min": "smaller"}  # fmt: skip
KINDS = frozenset({*BINARY, "add_scaled", "narrow", "widen", "relu", "clip", *FUNCTIONS})


@dataclass(slots=True)
class ElementChain:
    """A chain that is being made. Values are names of tensors, of which some are steps' results."""

    graph: Graph
    constants: Constants
    numbers: list[float] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    steps: list[tuple[str, object, object]] = field(default_factory=list)
    value: dict[str, object] = field(default_factory=dict)
    """What stands for a tensor: ("constant" | "source" | "step", number)."""

    rounding: str = "nearest"

    def number(self, value: float) -> object:
        value = float(np.float32(value))
        if value not in self.numbers:
            self.numbers.append(value)
        return ("constant", self.numbers.index(value))

    def source(self, name: str) -> object:
        if name not in self.sources:
            self.sources.append(name)
        return ("source", self.sources.index(name))

    def operand(self, name: str) -> object:
        if name in self.value:
            return self.value[name]
        tensor = self.graph.by_name[name]
        if tensor.constant and int(np.prod(tensor.shape)) == 1:
            return self.number(float(self.constants[tensor.constant].reshape(-1)[0]))
        return self.source(name)

    def step(self, kind: str, left: object, right: object) -> object:
        self.steps.append((kind, left, right))
        return ("step", len(self.steps) - 1)

    def apply(self, op: Op) -> None:
        """Add one operator."""
        first = self.operand(op.inputs[0])
        match op.kind:
            case "widen":
                made = first
            case "relu":
                made = self.step("larger", first, self.number(0.0))
            case "clip":
                made = first
                for name, kind in (("min", "larger"), ("max", "smaller")):
                    if abs(op.number(name)) <= float(np.finfo(np.float32).max):
                        made = self.step(kind, made, self.number(op.number(name)))
            case "narrow":
                self.rounding = str(dict(op.attributes)["rounding"])
                centre = dict(op.attributes).get("centre", 0)
                if centre:  # a zero point, which is added after rounding
                    first = self.step("add", self.step("nearest", first, first), self.number(op.number("centre")))
                bounded = self.step("larger", first, self.number(LOW))
                made = self.step("smaller", bounded, self.number(HIGH))
            case "add_scaled":
                other = self.operand(op.inputs[1])
                made = self.step("add", first, self.step("multiply", other, self.number(op.number("scale"))))
            case kind if kind in FUNCTIONS:
                made = FUNCTIONS[kind](self, first, op)
            case _:
                made = self.step(BINARY[op.kind], first, self.operand(op.inputs[1]))
        self.value[op.outputs[0]] = made

    @property
    def registers(self) -> int:
        """Floating-point registers that the chain needs."""
        return 1 + max(float_registers(len(self.numbers), len(self.sources), self._numbered()), default=-1)

    def elements(self, sources: Sequence[tuple[str, Operand]], result: tuple[str, Operand]) -> Elements:
        """The steps with the places of their sources and of the result."""
        steps = self._numbered() or [("larger", len(self.numbers), len(self.numbers))]
        bits = tuple(int(np.float32(number).view(np.uint32)) for number in self.numbers)
        return Elements(bits, tuple(sources), tuple(steps), result, self.rounding)

    def _numbered(self) -> list[tuple[str, int, int]]:
        """The steps with numbers of values."""
        before = {"constant": 0, "source": len(self.numbers), "step": len(self.numbers) + len(self.sources)}
        return [(kind, _number(before, left), _number(before, right)) for kind, left, right in self.steps]


def _number(before: Mapping[str, int], value: object) -> int:
    assert isinstance(value, tuple)
    return before[value[0]] + int(value[1])


def chain_of(
    graph: Graph, constants: Constants, ops: Sequence[Op], held: Mapping[str, str] | None = None
) -> ElementChain:
    """The chain of some element-wise operators; `held` tensors are sources under other names."""
    chain = ElementChain(graph, constants)
    for tensor, name in (held or {}).items():
        chain.value[tensor] = chain.source(name)
    for op in ops:
        chain.apply(op)
    return chain


def element_stream(
    chain: ElementChain, graph: Graph, box: Box, places: Mapping[str, tuple[str, int, Sequence[int]]], result: str,
    to: PlacedArray, base: int,
) -> tuple[Item, ...]:  # fmt: skip
    """Loops of a chain over a box of its result. `places` has type, address and steps along the axes of each source."""
    item_bytes = graph.by_name[result].item_bytes
    shape = [high - low for low, high in to.box]
    address = base + to.offset_bytes + start_of(shape, item_bytes, box)
    all_places = [*(places[name] for name in chain.sources),
                  (graph.by_name[result].dtype, address, broadcast_steps(shape, item_bytes, len(box)))]  # fmt: skip
    return element_loops([high - low for low, high in box], chain.elements, all_places)


def element_loops(
    counts: Sequence[int], make: Callable[[Sequence[ElementPlace], ElementPlace], Elements], places: Sequence[Placed]
) -> tuple[Item, ...]:
    """Loops over axes of these counts. `places` are those of the sources and of the result, last; `make` makes the
    element of them."""
    axes = [
        BoxLoop(count, tuple((str(number), place[2][position]) for number, place in enumerate(places)))
        for position, count in enumerate(counts)
    ]
    loops = merged(axes)
    operands = [
        (dtype, Operand(start, tuple(loop.step(str(number)) for loop in loops)))
        for number, (dtype, start, _) in enumerate(places)
    ]
    return nested([loop.count for loop in loops], (make(operands[:-1], operands[-1]),))


def source_place(graph: Graph, name: str, at: PlacedArray, box: Box, base: int) -> tuple[str, int, tuple[int, ...]]:
    """Type, address and steps of a source that has the shape of the box's tensor, or is repeated along some axes."""
    tensor = graph.by_name[name]
    item_bytes, shape = tensor.item_bytes, [high - low for low, high in at.box]
    steps = broadcast_steps(shape, item_bytes, len(box))
    start = sum(low * step for (low, _), step in zip(box, steps, strict=True))
    return tensor.dtype, base + at.offset_bytes + start, steps
