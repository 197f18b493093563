"""Rules of element-wise operators, unary and binary. Rules raise Refusal for nodes that cannot be compiled."""

from __future__ import annotations

from dsa_sched.frontend.network.network import Node
from dsa_sched.frontend.network.operation import Refusal, Writer

__all__ = [
    "BINARY_KINDS",
    "UNARY_KINDS",
    "add_binary",
    "batch_norm",
    "binary",
    "clip",
    "formula",
    "hard_sigmoid",
    "leaky_relu",
    "left_over",
    "of_equal_rank",
    "power",
    "scale_shift",
    "unary",
]

UNARY_KINDS = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Reciprocal": "reciprocal",
    "Neg": "neg",
    "Abs": "abs",
    "Erf": "erf",
    "Softplus": "softplus",
    "HardSwish": "hard_swish",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Sign": "sign",
}
BINARY_KINDS = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "max", "Min": "min"}


def unary(writer: Writer, node: Node) -> None:
    writer.add(node, UNARY_KINDS[node.op_type])


def leaky_relu(writer: Writer, node: Node) -> None:
    writer.add(node, "leaky_relu", {"alpha": node.number("alpha", 0.01)})


def hard_sigmoid(writer: Writer, node: Node) -> None:
    writer.add(node, "hard_sigmoid", {"alpha": node.number("alpha", 0.2), "beta": node.number("beta", 0.5)})


def clip(writer: Writer, node: Node) -> None:
    largest = writer.largest(node.outputs[0])
    low = writer.scalar(node, 1, "the lower bound", node.number("min", -largest))
    high = writer.scalar(node, 2, "the upper bound", node.number("max", largest))
    writer.add(node, "clip", {"min": max(low, -largest), "max": min(high, largest)})


def power(writer: Writer, node: Node) -> None:
    """Of the exponents that are no products, roots and reciprocals."""
    exponent = writer.constants.get(node.input(1))
    if exponent is None or exponent.size != 1 or writer.shape(node.inputs[0]) != writer.shape(node.outputs[0]):
        raise Refusal("the exponent must be constant, one number for all elements")
    writer.add(node, "power", {"exponent": float(exponent.reshape(-1)[0])})


def formula(writer: Writer, node: Node) -> None:
    """Our own, of a function that the file spells out in steps."""
    writer.add(node, "formula", {"steps": node.text("steps", "")})


def binary(writer: Writer, node: Node) -> None:
    add_binary(writer, node, BINARY_KINDS[node.op_type], node.inputs)


def add_binary(writer: Writer, node: Node, kind: str, inputs: tuple[str, ...]) -> None:
    writer.add(node, kind, inputs=of_equal_rank(writer, node, inputs))


def of_equal_rank(writer: Writer, node: Node, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Computed operands of lower rank than the result get leading unit axes, so that layouts can be compared axis by
    axis."""
    rank = len(writer.shape(node.outputs[0]))
    operands = []
    for position, name in enumerate(inputs):
        shape = writer.shape(name)
        if name in writer.constants or len(shape) == rank:
            operands.append(name)
            continue
        suffix = f"operand{position}"
        operands.append(writer.intermediate(node, suffix, (1,) * (rank - len(shape)) + shape))
        writer.add(node, "view", inputs=(name,), suffix=suffix)
    return tuple(operands)


def batch_norm(_writer: Writer, _node: Node) -> None:
    raise Refusal("batch normalisation in training mode or with computed statistics")


def left_over(_writer: Writer, _node: Node) -> None:
    raise Refusal("neither a no-op nor constant here")


def scale_shift(writer: Writer, node: Node) -> None:
    writer.add(node, "scale_shift", inputs=node.inputs)
