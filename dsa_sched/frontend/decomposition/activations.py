"""Activations of recurrent operators: names and numbers in attributes, and the nodes that replace them.

    activations=[Sigmoid, ScaledTanh], activation_alpha=[0.5], activation_beta=[2]  -->  Sigmoid(x), 0.5 * Tanh(2 x)

The lists of numbers belong, in order, to those activations that have such a number; one that has a default may be left
out at their ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsa_sched.frontend.network.chain import Chain
from dsa_sched.frontend.network.network import Node


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
        return f"{len(names)} activations for {directions} of {len(defaults)} each"
    if unknown := [name for name in names if name.lower() not in NAMES]:
        return f"activation {unknown[0]}; ONNX has {', '.join(sorted(NAMES.values()))}"
    alphas, betas = ([*_numbers(node, name)] for name in ("activation_alpha", "activation_beta"))
    found = []
    for name in (NAMES[name.lower()] for name in names):
        numbers = []
        for table, listed, attribute in ((ALPHA, alphas, "activation_alpha"), (BETA, betas, "activation_beta")):
            value = listed.pop(0) if name in table and listed else table.get(name, 0.0)
            if value is None:
                return f"activation {name} without a number for it in {attribute}"
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
