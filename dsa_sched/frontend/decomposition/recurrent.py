"""LSTM, GRU and RNN of a static length, unrolled: one matrix product for the inputs of all times, then step by step.

    LSTM(x [T, B, I])  -->  p = x * W' + b  [T, B, 4 H]
                            z = p[t] + h * R'     i, o, f, g = Sigmoid, Sigmoid, Sigmoid, Tanh of its quarters
                            c = f * c + i * g     h = o * Tanh(c)                                   for each time
                            Y = Concat(h of each time)

The weights are constants of the file, transposed once and read by every step. Added nodes are named after the node, its
direction and the time: `lstm::forward7::cell`. A state that begins with zero needs no product in its first step. Rows
of a batch that end early keep their state and give zeros; there is no step for which all have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from dsa_sched.frontend.decomposition.recurrent_cells import (
    CELLS,
    RecurrentDirection,
    RecurrentState,
    Step,
    activations_of,
)
from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.draft import rewritten
from dsa_sched.frontend.network.network import Network, Node
from dsa_sched.frontend.network.operation import Refusal, Writer
from dsa_sched.frontend.network.shapes import shape_text
from dsa_sched.frontend.network.terms import number
from dsa_sched.frontend.network.traced import TracedArray

RECURRENT = tuple(CELLS)
MOST_STEPS = 4096
"""Largest number of steps of a node, both directions together: each step is a handful of operators."""

Lengths = npt.NDArray[np.int64]

NAMES: Mapping[str, tuple[str, ...]] = {
    "forward": ("forward",),
    "reverse": ("reverse",),
    "bidirectional": ("forward", "reverse"),
}


def unroll_recurrent(network: Network, whole: frozenset[str] = frozenset()) -> Network:
    """Unroll all recurrent nodes except those that a target wants `whole`; others that cannot be are refused later."""

    def write(chain: Chain, node: Node) -> bool:
        unrolled = node.op_type in CELLS and node.op_type not in whole and not _why_not(network, node)
        if unrolled:
            _unroll(chain, node)
        return unrolled

    return rewritten(network, write)


def refuse_recurrent(writer: Writer, node: Node) -> None:
    """The rule of nodes that are left. Raises Refusal."""
    raise Refusal(_why_not(writer.network, node) or "a target that wants it whole cannot have it")


def _why_not(network: Network, node: Node) -> str:
    """Why a node cannot be unrolled; empty where it can."""
    known = network.values.keys() | network.constants.keys()
    inferred = known.issuperset(filter(None, (*node.inputs, *node.outputs)))  # for known directions and three axes only
    if not inferred or node.text("direction", "forward") not in NAMES:
        return "the shape of an operand is not static; give every input's shape with --shape"
    for position, what in ((1, "W"), (2, "R"), (3, "B"), (7, "P")):
        if node.input(position) and node.input(position) not in network.constants:
            return f"the weights {what} are computed at run time; they must be constant"
    if node.input(4) and node.input(4) not in network.constants:
        return "sequence_lens is computed at run time; it must be constant, or left out where all are of full length"
    return _wrong_shape(network, node) or _wrong_setting(network, node)


def _wrong_setting(network: Network, node: Node) -> str:
    """Text about an attribute or a length that ONNX does not define, or that cannot be unrolled; else empty."""
    directions = len(NAMES[node.text("direction", "forward")])
    steps = network.shape(node.inputs[0])[_time_axis(node)]
    lengths = network.constants.get(node.input(4))
    if lengths is not None and not all(1 <= int(length) <= steps for length in lengths.reshape(-1)):
        return f"sequence_lens {lengths.reshape(-1).tolist()}; each is 1 to {steps}"
    if steps * directions > MOST_STEPS:
        return f"{steps * directions} steps; at most {MOST_STEPS} are unrolled"
    found = activations_of(node, CELLS[node.op_type].activations, directions)
    return found if isinstance(found, str) else ""


def _wrong_shape(network: Network, node: Node) -> str:
    """Which operand has not the shape that the others ask for; ONNX's checker compares none of them."""
    x, recurrent = (network.shape(node.inputs[position]) for position in (0, 2))
    directions, hidden = len(NAMES[node.text("direction", "forward")]), recurrent[-1] if recurrent else 0
    rows = CELLS[node.op_type].gates * hidden
    batch = x[1 - _time_axis(node)]
    state = (batch, directions, hidden) if _time_axis(node) else (directions, batch, hidden)
    wanted = {
        "W": (directions, rows, x[2]),
        "R": (directions, rows, hidden),
        "B": (directions, 2 * rows),
        "sequence_lens": (batch,),
        "initial_h": state,
        "initial_c": state,
        "P": (directions, 3 * hidden),
    }
    for name, (what, shape) in zip(node.inputs[1:], wanted.items(), strict=False):
        if name and network.shape(name) != shape:
            return f"{what} is {shape_text(network.shape(name))}, where {shape_text(shape)} is needed"
    if node.integer("hidden_size", hidden) != hidden:
        return f"hidden_size {node.integer('hidden_size', hidden)}, where R has {hidden}"
    return ""


def _time_axis(node: Node) -> int:
    return 1 if node.integer("layout", 0) else 0


def _unroll(chain: Chain, node: Node) -> None:
    """Write all directions, then the outputs that the node names."""
    cell, axis = CELLS[node.op_type], _time_axis(node)
    names = NAMES[node.text("direction", "forward")]
    activations = activations_of(node, cell.activations, len(names))
    assert not isinstance(activations, str)  # _why_not
    steps, each = chain.shape(node.inputs[0])[axis], len(cell.activations)
    lengths = _lengths(chain, node, steps)
    shown, last = [], []
    for index, name in enumerate(names):
        own = activations[index * each : (index + 1) * each]
        direction = RecurrentDirection(chain, node, name, index, cell.gates, axis, own)
        times = range(int(lengths.max()))
        hidden, state = _run(direction, cell.step(direction), times[::-1] if name == "reverse" else times, lengths)
        shown.append(hidden)
        last.append(state)
    y, y_h, y_c = (*node.outputs, "", "", "")[:3]
    if y:
        _sequence(chain, y, [hidden[time] for time in range(int(lengths.max())) for hidden in shown], axis)
    if y_h:
        _states(chain, y_h, [state.hidden for state in last], axis, "Y_h")
    if y_c:
        _states(chain, y_c, [state.cell for state in last], axis, "Y_c")


def _lengths(chain: Chain, node: Node, steps: int) -> Lengths:
    """Number of steps of each row of the batch."""
    batch = chain.shape(node.inputs[0])[1 - _time_axis(node)]
    given = chain.network.constants.get(node.input(4))
    return np.full(batch, steps) if given is None else given.reshape(-1).astype(np.int64)


def _run(
    direction: RecurrentDirection, step: Step, times: range, lengths: Lengths
) -> tuple[dict[int, str], RecurrentState]:
    """Write all steps: the results by time, and the last state. Rows that have ended keep the state before."""
    chain, node = direction.chain, direction.node
    state = RecurrentState(_initial(direction, 5), _initial(direction, 6))
    shown: dict[int, str] = {}
    for time in times:
        at = f"{direction.name}{time}"
        before, state = state, step(time, state, at)
        shown[time] = state.hidden
        if (lengths > time).all():
            continue
        longer = chain.network.term(node.input(4)).reshape(-1, 1) - number(time + 0.5)
        bound = np.where(lengths[:, None] > time, inf, -inf)
        chosen = RowChoice(chain, TracedArray(bound, longer * number(inf)))
        shown[time] = chosen.of(state.hidden, "", f"{at}::given")
        hidden = chosen.of(state.hidden, before.hidden, f"{at}::held")
        state = RecurrentState(hidden, chosen.of(state.cell, before.cell, f"{at}::held_cell") if state.cell else "")
    return shown, state


@dataclass(frozen=True, slots=True)
class RowChoice:
    """A choice by row between two values [B, H]: infinities that are chosen stay, those that are not leave no trace.
    `bound` is infinity where the first is chosen, and minus infinity elsewhere.
    """

    chain: Chain
    bound: TracedArray

    def of(self, a: str, b: str, suffix: str) -> str:
        """a in the rows of which the bound is infinity, elsewhere b, or zero where that has no name."""
        chain, known = self.chain, self.chain.traced(b) if b else TracedArray.of(0.0)
        kept = chain.add("Min", a, chain.store(self.bound), suffix=f"{suffix}::now")
        if known is not None:
            other = chain.store(known.least(-self.bound))
        else:
            other = chain.add("Min", b, chain.store(-self.bound), suffix=f"{suffix}::before")
        return chain.add("Max", kept, other, suffix=suffix)


def _initial(direction: RecurrentDirection, position: int) -> str:
    """A state before the first step, [B, H]; empty where it is zero."""
    chain, name = direction.chain, direction.node.input(position)
    shape = (direction.batch, direction.hidden)
    constant = chain.network.constants.get(name)
    if not name or (constant is not None and not constant.any()):
        return ""
    axis = direction.time_axis  # that of the directions in a state, too
    if constant is not None:
        by_direction = chain.network.traced(name).transpose(*((1, 0, 2) if axis else (0, 1, 2)))
        return chain.store(by_direction.take((direction.index,)).reshape(*shape))
    suffix = f"{direction.name}::initial{position - 5}"
    if chain.shape(name)[axis] > 1:
        name = chain.part(name, axis, direction.index, direction.index + 1, f"{suffix}::own")
    return chain.add("Reshape", name, shape=shape, suffix=suffix)


def _sequence(chain: Chain, output: str, pieces: Sequence[str], axis: int) -> None:
    """Write the results of all steps, times before directions, followed by zeros where all rows have ended."""
    shape = chain.network.shape(output)
    x = _side_by_side(chain, pieces, axis, "shown")
    if missing := shape[axis] * shape[axis + 1] - len(pieces):
        wide, ends = [*chain.shape(x)], [0, 0, 0]
        wide[axis], ends[axis] = wide[axis] + missing, missing
        x = chain.add("Pad", x, shape=tuple(wide), settings=(("pads", (0, 0, 0, *ends)),), suffix="padded")
    chain.add("Reshape", x, shape=shape, output=output, suffix="Y")


def _states(chain: Chain, output: str, pieces: Sequence[str], axis: int, suffix: str) -> None:
    """The last states of all directions."""
    x = _side_by_side(chain, pieces, axis, f"{suffix}::each")
    chain.add("Reshape", x, shape=chain.network.shape(output), output=output, suffix=suffix)


def _side_by_side(chain: Chain, pieces: Sequence[str], axis: int, suffix: str) -> str:
    """Values [B, H] along a new axis before or after that of the batch."""
    batch, hidden = chain.shape(pieces[0])
    each = (batch, 1, hidden) if axis else (1, batch, hidden)
    views = [chain.add("Reshape", x, shape=each, suffix=f"{suffix}::{n}") for n, x in enumerate(pieces)]
    if len(views) == 1:
        return views[0]
    return chain.concatenated(*views, axis=axis, suffix=suffix)
