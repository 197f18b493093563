"""Makers of recurrent operators, of a few steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fuzz.draft import Attribute, Draft, Maker, Shape

__all__ = ["RECURRENT"]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
NUMBERS: Mapping[str, tuple[float, float]] = {
    "Elu": (0.7, 0.0),
    "HardSigmoid": (0.3, 0.4),
    "LeakyRelu": (0.1, 0.0),
    "ScaledTanh": (0.8, 0.7),
}
"""Activations with alpha and, where it is not zero, beta."""
BOUNDED = ("Sigmoid", "Tanh", "Softsign", "HardSigmoid", "ScaledTanh")
MOST_STEPS, MOST_HIDDEN = 5, 6


def _recurrent(draft: Draft, op_type: str, x: str) -> bool:
    """Everything that ONNX lets a file say, but the second layout, which onnxruntime does not have."""
    shape = draft.shapes[x]
    if len(shape) != 3 or shape[0] > MOST_STEPS:
        return False
    steps, batch, inputs = shape
    hidden, rows = draft.number(1, MOST_HIDDEN), GATES[op_type]
    direction = draft.one_of("forward", "reverse", "bidirectional")
    directions = 2 if direction == "bidirectional" else 1
    rows *= hidden
    operands = [x, draft.weights(directions, rows, inputs, length=inputs)]
    operands += [draft.weights(directions, rows, hidden, length=hidden), ""]
    if draft.flip():
        operands[3] = draft.weights(directions, 2 * rows)
    lengths = np.array([draft.number(1, steps) for _ in range(batch)], np.int32)
    operands.append(draft.constant(lengths) if draft.flip() else "")
    states = 2 if op_type == "LSTM" else 1
    operands += [_state(draft, (directions, batch, hidden)) for _ in range(states)]
    if op_type == "LSTM":
        operands.append(draft.weights(directions, 3 * hidden) if draft.flip() else "")
    while not operands[-1]:
        operands.pop()
    settings = _settings(draft, op_type, directions)
    if direction != "forward" or draft.flip():
        settings["direction"] = direction
    last = (directions, batch, hidden)
    results = [(steps, directions, batch, hidden), *[last] * draft.number(0, states)]
    draft.add(op_type, operands, *results, hidden_size=hidden, **settings)
    return True


def _state(draft: Draft, shape: Shape) -> str:
    """None, a constant, or a value that is computed."""
    fitting = [name for name, found in draft.shapes.items() if found == shape]
    match draft.one_of("none", "constant", "input"):
        case "none":
            return ""
        case "constant":
            return draft.weights(*shape)
        case _:
            return draft.one_of(*fitting) if fitting else draft.input(shape)


def _settings(draft: Draft, op_type: str, directions: int) -> dict[str, Attribute]:
    settings: dict[str, Attribute] = {}
    if draft.flip():
        names = [draft.one_of(*BOUNDED, *NUMBERS) for _ in range(ACTIVATIONS[op_type] * directions)]
        settings["activations"] = names
        alphas = [NUMBERS[name][0] for name in names if name in NUMBERS]
        betas = [NUMBERS[name][1] for name in names if name in NUMBERS and NUMBERS[name][1]]
        settings |= {"activation_alpha": alphas} if alphas else {}
        settings |= {"activation_beta": betas} if betas else {}
    if draft.flip():
        settings["clip"] = draft.one_of(0.5, 2.0)
    if op_type == "LSTM" and draft.flip():
        settings["input_forget"] = draft.number(0, 1)
    if op_type == "GRU" and draft.flip():
        settings["linear_before_reset"] = draft.number(0, 1)
    return settings


RECURRENT: Mapping[str, Maker] = dict.fromkeys(GATES, _recurrent)
