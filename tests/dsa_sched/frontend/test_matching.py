"""Patterns of nodes: what they match, what they capture, and what they leave alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from dsa_sched.frontend.network.matching import Captured, Pattern, either, matches, number, op, value
from dsa_sched.frontend.network.network import Network, Node, Value

X, Y, C = value("x"), value("y"), number(name="c")
SWISH = op("Mul", X, op("Sigmoid", op("Mul", X, C)))


def network(*nodes: tuple[str, str], outputs: tuple[str, ...] = ()) -> Network:
    """`("Mul", "a b -> c")` for each node; `half` and `wide` are constants, `a` and `b` inputs, all of two elements."""
    made = [
        Node(f"n{place}", op_type, tuple(text.split(" -> ")[0].split()), (text.split(" -> ")[1],))
        for place, (op_type, text) in enumerate(nodes)
    ]
    constants = {"half": np.array(0.5, np.float32), "wide": np.full((1, 1, 1), 0.5, np.float32)}
    names = ("a", "b", *(node.outputs[0] for node in made))
    values = {name: Value((2,), onnx.TensorProto.FLOAT) for name in names}
    return Network("small", tuple(made), constants, values, ("a", "b"), outputs or (made[-1].outputs[0],), 18)


def first(pattern: Pattern, found: Network) -> Captured | None:
    return next(matches(found, pattern, found.nodes[-1].outputs[0]), None)


@pytest.mark.parametrize("factors", ["a half", "half a"])
@pytest.mark.parametrize("product", ["a s", "s a"])
def test_factors_are_in_any_order(factors: str, product: str) -> None:
    found = first(SWISH, network(("Mul", f"{factors} -> m"), ("Sigmoid", "m -> s"), ("Mul", f"{product} -> r")))
    assert found is not None
    assert (found.values, found.numbers) == ({"x": "a"}, {"c": 0.5})
    assert [node.name for node in found.nodes] == ["n2", "n1", "n0"]


def test_a_name_stands_for_one_value() -> None:
    assert first(SWISH, network(("Mul", "b half -> m"), ("Sigmoid", "m -> s"), ("Mul", "a s -> r"))) is None


def test_operands_of_a_difference_keep_their_order() -> None:
    assert first(op("Sub", X, op("Neg", Y)), network(("Neg", "b -> n"), ("Sub", "n a -> r"))) is None


def test_a_number_that_adds_axes_is_none() -> None:
    assert first(op("Mul", X, C), network(("Mul", "a half -> r"))) is not None
    wide = network(("Mul", "a wide -> r"))
    values = {**wide.values, "r": Value((1, 1, 2), onnx.TensorProto.FLOAT)}
    assert first(op("Mul", X, C), Network("wide", wide.nodes, wide.constants, values, ("a",), ("r",), 18)) is None


def test_numbers_have_bounds_and_alternatives_an_order() -> None:
    pattern = either(op("Mul", X, number(low=0.75)), op("Mul", X, number(high=0.75, name="small")), op("Mul", X, C))
    found = first(pattern, network(("Mul", "a half -> r")))
    assert found is not None
    assert found.numbers == {"small": 0.5}


def test_computed_values_are_no_constants() -> None:
    small = network(("Mul", "a half -> r"))
    assert [found.values for found in matches(small, op("Mul", X, value("k", computed=False)), "r")] == [
        {"x": "a", "k": "half"}
    ]
    assert first(op("Mul", X, value("k")), small) is None


def test_a_match_is_closed_if_nothing_else_reads_what_lies_between() -> None:
    pattern = op("Exp", op("Neg", X))
    chain = (("Neg", "a -> n"), ("Exp", "n -> r"))
    for nodes, outputs, closed in (
        (chain, ("r",), True),
        (chain, ("r", "n"), False),
        ((chain[0], ("Relu", "n -> other"), chain[1]), ("r",), False),
    ):
        small = network(*nodes, outputs=outputs)
        found = first(pattern, small)
        assert found is not None
        assert found.is_closed(small) == closed
