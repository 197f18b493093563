"""One step of a recurrent operator, in one direction: states before it --> states after it, as nodes of ONNX.

    p[t] [B, G H], h [B, H]  -->  p[t] + h * R'  -->  gates, each [B, H]  -->  h, c

The equations are ONNX's. A state that is zero has an empty name, and its products are left out. Activations are names
and numbers in attributes:

    activations=[Sigmoid, ScaledTanh], activation_alpha=[0.5], activation_beta=[2]  -->  Sigmoid(x), 0.5 * Tanh(2 x)

The lists of numbers belong, in order, to those activations that have such a number; one that has a default may be left
out at their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.traced import TracedArray


@dataclass(frozen=True, slots=True)
class Activation:
    """`alpha` and `beta` are zero where the function has none."""

    function: str
    alpha: float = 0.0
    beta: float = 0.0


PLAIN = ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign")
ALPHA: Mapping[str, float | None] = {
    "Affine": None,
    "Elu": 1.0,
    "HardSigmoid": 0.2,
    "LeakyRelu": 0.01,
    "ScaledTanh": None,
    "ThresholdedRelu": 1.0,
}
BETA: Mapping[str, float | None] = {"Affine": None, "HardSigmoid": 0.5, "ScaledTanh": None}
"""Functions that have a number `beta`, with its default; None where ONNX has none."""

NAMES = {name.lower(): name for name in (*PLAIN, *ALPHA)}


def activations_of(node: Node, defaults: Sequence[str], directions: int) -> tuple[Activation, ...] | str:
    """Activations of all directions, or the reason for none: `defaults` are the functions of one direction."""
    given = node.setting("activations", ())
    names = tuple(map(str, given)) if isinstance(given, tuple) else ()
    names = names or (*defaults,) * directions
    if len(names) != len(defaults) * directions:
        return f"{len(names)} activations, where {len(defaults) * directions} are needed"
    if unknown := [name for name in names if name.lower() not in NAMES]:
        return f"activation {unknown[0]}; ONNX has {', '.join(sorted(NAMES.values()))}"
    alphas, betas = ([*_numbers(node, name)] for name in ("activation_alpha", "activation_beta"))
    found = []
    for name in (NAMES[name.lower()] for name in names):
        numbers = []
        for table, listed, attribute in ((ALPHA, alphas, "activation_alpha"), (BETA, betas, "activation_beta")):
            value = listed.pop(0) if name in table and listed else table.get(name, 0.0)
            if value is None:
                return f"activation {name} needs a number in {attribute}"
            numbers.append(value)
        found.append(Activation(name, *numbers))
    return tuple(found)


def _numbers(node: Node, name: str) -> tuple[float, ...]:
    value = node.setting(name, ())
    return tuple(float(v) for v in value if isinstance(v, (int, float))) if isinstance(value, tuple) else ()


def activate(chain: Chain, activation: Activation, x: str, suffix: str) -> str:
    """The function of x, as nodes of ONNX; the last of them is named after `suffix`."""
    name, alpha, beta = activation.function, activation.alpha, activation.beta
    match name:
        case "Affine":
            x = chain.add("Mul", x, chain.number(alpha), suffix=f"{suffix}::scaled")
            return chain.add("Add", x, chain.number(beta), suffix=suffix)
        case "ScaledTanh":
            x = chain.add("Mul", x, chain.number(beta), suffix=f"{suffix}::scaled")
            x = chain.add("Tanh", x, suffix=f"{suffix}::tanh")
            return chain.add("Mul", x, chain.number(alpha), suffix=suffix)
        case "HardSigmoid":
            return chain.add(name, x, settings=(("alpha", alpha), ("beta", beta)), suffix=suffix)
        case "Elu" | "LeakyRelu" | "ThresholdedRelu":
            return chain.add(name, x, settings=(("alpha", alpha),), suffix=suffix)
    return chain.add(name, x, suffix=suffix)


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """The values handed from step to step, [B, H] each; an empty name is zero. Only an LSTM has a cell."""

    hidden: str = ""
    cell: str = ""


@dataclass(frozen=True, slots=True)
class Gates:
    """Gates that one product computes: those of the inputs at all times, and the weights and bias for the state."""

    inputs: str
    weights: str
    bias: str
    count: int


@dataclass(frozen=True, slots=True)
class RecurrentDirection:
    """Data that the steps of one direction share. `time_axis` is that of the inputs; `gates` is the number of gates
    with weights, in the file's order.
    """

    chain: Chain
    node: Node
    name: str
    index: int
    gates: int
    time_axis: int
    activations: tuple[Activation, ...]

    @property
    def hidden(self) -> int:
        return self.chain.shape(self.node.inputs[2])[2]

    @property
    def batch(self) -> int:
        return self.chain.shape(self.node.inputs[0])[1 - self.time_axis]

    def product(self, gates: Sequence[int], *, apart: bool = False) -> Gates:
        """The inputs' part of some gates at all times, with both biases; with `apart`, the state's bias by itself."""
        weights = [self._weights(position, gates) for position in (1, 2)]
        biases = [self._bias(gates, parts) for parts in ((0,), (1,))] if apart else [self._bias(gates, (0, 1)), ""]
        x = self.node.inputs[0]
        shape = (*self.chain.shape(x)[:2], len(gates) * self.hidden)
        operands = [name for name in (x, weights[0], biases[0]) if name]
        suffix = f"{self.name}::inputs{'' if len(gates) == self.gates else gates[0]}"
        return Gates(self.chain.add("MatMul", *operands, shape=shape, suffix=suffix), weights[1], biases[1], len(gates))

    def inputs_at(self, gates: Gates, time: int) -> str:
        """The inputs' part at one time, [B, gates * H]."""
        suffix = f"{gates.inputs.removeprefix(self.chain.stem + '::')}{time}"
        piece = self.chain.part(gates.inputs, self.time_axis, time, time + 1, suffix)
        return self.chain.add("Reshape", piece, shape=(self.batch, gates.count * self.hidden), suffix=f"{suffix}::rows")

    def recurrent(self, gates: Gates, hidden: str, suffix: str) -> str:
        """The state's part, [B, gates * H]; of a constant state it is constant."""
        state, weights = self.chain.traced(hidden), self.chain.traced(gates.weights)
        if state is not None and weights is not None:
            product, bias = state.product(weights), self.chain.traced(gates.bias)
            return self.chain.store(product if bias is None else product + bias)
        operands = [name for name in (hidden, gates.weights, gates.bias) if name]
        return self.chain.add("MatMul", *operands, shape=(self.batch, gates.count * self.hidden), suffix=suffix)

    def gate(self, values: str, place: int, count: int, suffix: str) -> str:
        """Gate number `place` of `count` that lie side by side."""
        if count == 1:
            return values
        return self.chain.part(values, 1, place * self.hidden, (place + 1) * self.hidden, suffix)

    def activated(self, x: str, which: int, suffix: str) -> str:
        """One of the direction's activations, of values clamped to the bounds of `clip`."""
        clip = self.node.number("clip", 0.0)
        if clip > 0:
            x = self.chain.add("Clip", x, settings=(("max", clip), ("min", -clip)), suffix=f"{suffix}::clipped")
        return activate(self.chain, self.activations[which], x, suffix)

    def peephole(self, place: int, cell: str, x: str, suffix: str) -> str:
        """x plus the cell times the peephole weights of one gate."""
        name = self.node.input(7)
        if not name or not cell:
            return x
        row, known = self.index * 3 + place, self.chain.traced(cell)
        peephole = self.chain.network.traced(name).reshape(-1, self.hidden).take((row,)).reshape(self.hidden)
        weights = self.chain.store(peephole)
        if known is not None:  # the state before the first step
            seen = self.chain.store(known * peephole)
        else:
            seen = self.chain.add("Mul", cell, weights, suffix=f"{suffix}::seen")
        return self.chain.add("Add", x, seen, suffix=f"{suffix}::peephole")

    def _weights(self, position: int, gates: Sequence[int]) -> str:
        """W or R of some gates, transposed: [I or H, gates * H]."""
        weights = self.chain.network.traced(self.node.inputs[position])
        width, rows = weights.shape[2], [self.index * self.gates + gate for gate in gates]
        own = weights.reshape(-1, self.hidden, width).take(rows)
        return self.chain.store(own.reshape(len(gates) * self.hidden, width).transpose(1, 0))

    def _bias(self, gates: Sequence[int], parts: Sequence[int]) -> str:
        """The sum of the inputs' bias (0) and the state's (1), of some gates; empty where the node has none."""
        name = self.node.input(3)
        if not name:
            return ""
        table, length = self.chain.network.traced(name).reshape(-1, self.hidden), len(gates) * self.hidden
        rows = ([(2 * self.index + part) * self.gates + gate for gate in gates] for part in parts)
        return self.chain.store(reduce(add, (table.take(own).reshape(length) for own in rows), TracedArray.of(0.0)))


Step = Callable[[int, RecurrentState, str], RecurrentState]
"""Function from time, states before and a name prefix to the states after."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Number of gates with weights, default activations of a direction, and the function that writes a direction's
    products for all times and then its steps.
    """

    gates: int
    activations: tuple[str, ...]
    step: Callable[[RecurrentDirection], Step]


def _rnn(d: RecurrentDirection) -> Step:
    """h = f(p + h * R')"""
    gates = d.product((0,))

    def step(time: int, state: RecurrentState, at: str) -> RecurrentState:
        return RecurrentState(d.activated(_sums(d, gates, time, state.hidden, at), 0, f"{at}::hidden"))

    return step


def _sums(d: RecurrentDirection, gates: Gates, time: int, hidden: str, at: str) -> str:
    """Sum of what the inputs and the state give to the gates."""
    inputs = d.inputs_at(gates, time)
    if not hidden:
        return inputs
    return d.chain.add("Add", d.recurrent(gates, hidden, f"{at}::product"), inputs, suffix=f"{at}::gates")


def _lstm(d: RecurrentDirection) -> Step:
    """c = f(z_f) * c + f(z_i) * g(z_c)    h = f(z_o) * h(c)    the file's order is i, o, f, c"""
    gates = d.product((0, 1, 2, 3))
    coupled = d.node.integer("input_forget", 0)
    add = d.chain.add

    def step(time: int, state: RecurrentState, at: str) -> RecurrentState:
        sums = _sums(d, gates, time, state.hidden, at)

        def gate(place: int, name: str, cell: str, peephole: int) -> str:
            x = d.peephole(peephole, cell, d.gate(sums, place, 4, f"{at}::{name}::part"), f"{at}::{name}")
            return d.activated(x, 0, f"{at}::{name}")

        entering = gate(0, "input", state.cell, 0)
        kept = ""
        if state.cell and coupled:
            forgetting = add("Sub", d.chain.number(1.0), entering, suffix=f"{at}::forget")
            kept = add("Mul", forgetting, state.cell, suffix=f"{at}::kept")
        elif state.cell:
            kept = add("Mul", gate(2, "forget", state.cell, 2), state.cell, suffix=f"{at}::kept")
        candidate = d.activated(d.gate(sums, 3, 4, f"{at}::candidate::part"), 1, f"{at}::candidate")
        cell = add("Mul", candidate, entering, suffix=f"{at}::entered")
        cell = add("Add", cell, kept, suffix=f"{at}::cell") if kept else cell
        leaving = gate(1, "output", cell, 1)
        shown = activate(d.chain, d.activations[2], cell, f"{at}::shown")
        return RecurrentState(add("Mul", shown, leaving, suffix=f"{at}::hidden"), cell)

    return step


def _gru(d: RecurrentDirection) -> Step:
    """h = h + (1 - z) * (n - h)    n = g(p_h + (r * h) * R_h'); linear before reset: g(p_h + r * (h * R_h' + b_h))"""
    linear = bool(d.node.integer("linear_before_reset", 0))
    both, last = d.product((0, 1)), d.product((2,), apart=linear)
    add = d.chain.add

    def step(time: int, state: RecurrentState, at: str) -> RecurrentState:
        sums, h = _sums(d, both, time, state.hidden, at), state.hidden
        entering = _complement(d, d.gate(sums, 0, 2, f"{at}::update::part"), f"{at}::update")
        inputs, reset = d.inputs_at(last, time), ""
        if h or (linear and last.bias):
            reset = d.activated(d.gate(sums, 1, 2, f"{at}::reset::part"), 0, f"{at}::reset")
        if h and not linear:
            product = d.recurrent(last, add("Mul", reset, h, suffix=f"{at}::remembered"), f"{at}::recalled")
            inputs = add("Add", product, inputs, suffix=f"{at}::sum")
        elif reset:
            product = d.recurrent(last, h, f"{at}::recalled") if h else last.bias
            inputs = add("Add", add("Mul", product, reset, suffix=f"{at}::remembered"), inputs, suffix=f"{at}::sum")
        candidate = d.activated(inputs, 1, f"{at}::candidate")
        if not h:
            return RecurrentState(add("Mul", candidate, entering, suffix=f"{at}::hidden"))
        moved = add("Mul", add("Sub", candidate, h, suffix=f"{at}::apart"), entering, suffix=f"{at}::moved")
        return RecurrentState(add("Add", moved, h, suffix=f"{at}::hidden"))

    return step


def _complement(d: RecurrentDirection, x: str, suffix: str) -> str:
    """1 - f(x); of a Sigmoid that of -x, which is no difference and so as exact next to zero as elsewhere."""
    if d.activations[0].function == "Sigmoid":
        return d.activated(d.chain.add("Neg", x, suffix=f"{suffix}::negative"), 0, suffix)
    return d.chain.add("Sub", d.chain.number(1.0), d.activated(x, 0, f"{suffix}::kept"), suffix=suffix)


CELLS: Mapping[str, Cell] = {
    "LSTM": Cell(4, ("Sigmoid", "Tanh", "Tanh"), _lstm),
    "GRU": Cell(3, ("Sigmoid", "Tanh"), _gru),
    "RNN": Cell(1, ("Tanh",), _rnn),
}
