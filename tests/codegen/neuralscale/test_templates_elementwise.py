"""Element-wise operators, broadcasts, concatenations and views on the simulated chip."""

from __future__ import annotations

import numpy as np
import pytest

from partitioner.ir.graph import Attribute
from tests.chip_runs import compile_graph
from tests.float_model import evaluate, relative_error
from tests.small_graphs import GraphBuilder

FULL = (2, 5, 7, 13)
BROADCASTS = [
    FULL,
    (13,),
    (1,),
    (1, 1, 1, 13),
    (2, 1, 1, 13),
    (2, 5, 7, 1),
    (2, 5, 1, 1),
    (2, 1, 1, 1),
    (5, 7, 13),
    (1, 5, 1, 13),
    (2, 1, 7, 1),
    (7, 1),
    (1, 5, 1, 1),
]
UNARY: list[tuple[str, tuple[tuple[str, Attribute], ...], float]] = [
    ("relu", (), 1e-6),
    ("neg", (), 1e-6),
    ("abs", (), 1e-6),
    ("clip", (("min", -0.3), ("max", 0.7)), 1e-3),
    ("leaky_relu", (("alpha", 0.1),), 1e-3),
    ("hard_sigmoid", (("alpha", 0.2), ("beta", 0.5)), 1e-3),
    ("hard_swish", (), 2e-3),
    ("exp", (), 3e-3),
    ("sigmoid", (), 3e-3),
    ("tanh", (), 5e-3),
    ("erf", (), 2e-3),
    ("gelu", (("approximate", "none"),), 3e-3),
    ("gelu", (("approximate", "tanh"),), 3e-3),
    ("swish", (("alpha", 1.0),), 3e-3),
    ("swish", (("alpha", -1.702),), 3e-3),
    ("elu", (("alpha", 0.7),), 1e-3),
    ("selu", (("alpha", 1.67), ("gamma", 1.05)), 1e-3),
    ("celu", (("alpha", 2.0),), 1e-3),
    ("softplus", (), 2e-3),
    ("mish", (), 4e-3),
]


@pytest.mark.parametrize(("kind", "attributes", "tolerance"), UNARY, ids=[kind for kind, _, _ in UNARY])
@pytest.mark.commit
def test_unary(kind: str, attributes: tuple[tuple[str, Attribute], ...], tolerance: float) -> None:
    """As a kernel of its own, and in the epilogue of another operator."""
    builder = GraphBuilder("unary")
    x = builder.input("x", *FULL)
    alone = builder.elementwise(kind, x, attributes=attributes)
    fused = builder.elementwise(kind, builder.elementwise("add", x, x), attributes=attributes)
    compiled = compile_graph(*builder.build(alone, fused))
    assert len(compiled.plan.groups) == 2
    stored = compiled.check()
    values = evaluate(compiled.graph, compiled.constants, compiled.inputs())
    for name in (alone, fused):
        assert relative_error(stored[name].view("float16"), values[name]) < tolerance


def test_square_root_and_reciprocal() -> None:
    builder = GraphBuilder("roots")
    x = builder.elementwise("abs", builder.input("x", 3, 50))
    outputs = [builder.elementwise(kind, x) for kind in ("sqrt", "reciprocal")]
    compiled = compile_graph(*builder.build(*outputs))
    stored = compiled.check()
    values = evaluate(compiled.graph, compiled.constants, compiled.inputs())
    for name in outputs:
        assert relative_error(stored[name].view("float16"), values[name]) < 3e-3


@pytest.mark.spread(22)
@pytest.mark.parametrize("shape", BROADCASTS, ids=str)
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "max", "min"])
@pytest.mark.commit
def test_binary_with_the_other_operand_on_either_side(kind: str, shape: tuple[int, ...]) -> None:
    builder = GraphBuilder("binary")
    x, y = builder.input("x", *FULL), builder.input("y", *shape)
    outputs = (builder.elementwise(kind, x, y), builder.elementwise(kind, y, x))
    compiled = compile_graph(*builder.build(*outputs))
    stored = compiled.check()
    values = evaluate(compiled.graph, compiled.constants, compiled.inputs())
    for name in outputs:
        assert relative_error(stored[name].view("float16"), values[name]) < 1e-3


@pytest.mark.parametrize("shape", [FULL, (13,), (2, 5, 7, 1)], ids=str)
def test_division(shape: tuple[int, ...]) -> None:
    builder = GraphBuilder("division")
    x, y = builder.input("x", *FULL), builder.elementwise("exp", builder.input("y", *shape))
    outputs = (builder.elementwise("div", x, y), builder.elementwise("div", y, builder.elementwise("exp", x)))
    compile_graph(*builder.build(*outputs)).check()


@pytest.mark.parametrize("value", [0.3, -2.0, 0.0, 1e-7])
def test_constant_of_one_element(value: float) -> None:
    builder = GraphBuilder("immediate")
    x = builder.input("x", *FULL)
    k = builder.constant("k", np.array([value]))
    kinds = ("add", "sub", "mul", "max", "min", "div")
    outputs = [builder.elementwise(kind, *operands) for kind in kinds for operands in ((x, k), (k, x))]
    compile_graph(*builder.build(*outputs)).check()


def test_maximum_of_zeros_of_both_signs() -> None:
    """max(+0, -0) is the operand that is not running, whatever the form of the instruction."""
    builder = GraphBuilder("zeros")
    x, y = builder.input("x", 4, 6), builder.input("y", 4, 6)
    outputs = (builder.elementwise("max", x, y), builder.elementwise("max", y, x), builder.elementwise("min", x, y))
    compiled = compile_graph(*builder.build(*outputs))
    signs = np.random.default_rng(0).integers(0, 2, (2, 4, 6)).astype(np.uint16) << 15
    stored = compiled.run({"x": signs[0], "y": signs[1]})
    for got, wanted in compiled.expected(stored).values():
        np.testing.assert_array_equal(got, wanted)


def test_scale_shift_alone_and_in_an_epilogue() -> None:
    builder = GraphBuilder("scale")
    x = builder.input("x", 1, 6, 6, 8)
    y = builder.elementwise("relu", builder.scale_shift(x))
    z = builder.scale_shift(builder.conv(x, 16))
    compile_graph(*builder.build(y, z)).check()


def test_scale_shift_of_a_single_channel() -> None:
    """Its constants have one element each, which go into the instructions."""
    builder = GraphBuilder("scale")
    x = builder.input("x", 2, 6, 6, 1)
    y = builder.elementwise("relu", builder.scale_shift(x))
    z = builder.scale_shift(builder.conv(x, 1))
    compile_graph(*builder.build(y, z)).check()


def test_the_same_operand_twice() -> None:
    builder = GraphBuilder("twice")
    x = builder.elementwise("exp", builder.input("x", 3, 40))
    compile_graph(*builder.build(*(builder.elementwise(kind, x, x) for kind in ("add", "sub", "mul", "div")))).check()


@pytest.mark.parametrize(
    ("axis", "extents"), [(3, (13, 20, 1)), (1, (5, 3)), (2, (7, 1, 1)), (0, (1, 2)), (3, (64, 64)), (-1, (4, 4))]
)
def test_concat_of_unequal_parts(axis: int, extents: tuple[int, ...]) -> None:
    builder = GraphBuilder("concat")
    pieces = []
    for position, extent in enumerate(extents):
        shape = list(FULL)
        shape[axis] = extent
        pieces.append(builder.input(f"x{position}", *shape))
    y = builder.concat(axis, *pieces)
    z = builder.elementwise("relu", builder.concat(axis, *reversed(pieces)))
    compiled = compile_graph(*builder.build(y, z))
    stored = compiled.check()
    np.testing.assert_array_equal(stored[y], np.concatenate([stored[piece] for piece in pieces], axis))


def test_the_same_tensor_concatenated_twice() -> None:
    builder = GraphBuilder("concat")
    x = builder.input("x", 1, 4, 4, 5)
    compile_graph(*builder.build(builder.concat(3, x, x))).check()


def test_views_are_other_names_for_the_same_bytes() -> None:
    builder = GraphBuilder("views")
    x = builder.input("x", 2, 4, 4, 8)
    flat = builder.view(builder.conv(x, 16), 2, 256)
    y = builder.matmul(flat, builder.normal(256, 10, scale=0.1))
    again = builder.view(builder.view(y, 10, 2), 20)
    compiled = compile_graph(*builder.build(builder.elementwise("relu", again), flat))
    compiled.check()
    place = compiled.program.placement
    assert place[flat].kind == "alias"
    assert place[again].offset_bytes == place[y].offset_bytes


def test_inputs_that_are_outputs_of_nothing_but_a_view() -> None:
    builder = GraphBuilder("view of an input")
    x = builder.view(builder.input("x", 4, 6), 24)
    compile_graph(*builder.build(builder.elementwise("neg", x))).check()


def test_roots_and_quotients_that_are_no_numbers_are_none_here_either() -> None:
    """Division by zero, roots of negative numbers: NaN and infinities where numpy has them, finite values elsewhere."""
    special = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan, 300.0], np.float16)
    x, y = (np.array(half, np.float16) for half in np.meshgrid(special, [*special[special != 0].tolist(), 0.0]))
    builder = GraphBuilder("special")
    a, b = builder.input("a", *x.shape), builder.input("b", *x.shape)
    zero, minus = builder.constant("zero", np.array([0.0])), builder.constant("minus", np.array([-0.0]))
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = {
            builder.elementwise("div", a, b): x / y,
            builder.elementwise("div", zero, b): 0 / y,
            builder.elementwise("div", a, zero): x / np.float16(0),
            builder.elementwise("div", a, minus): x / np.float16(-0.0),
            builder.elementwise("reciprocal", b): 1 / y,
            builder.elementwise("sqrt", a): np.sqrt(x),
            builder.elementwise("sqrt", builder.elementwise("abs", a)): np.sqrt(np.abs(x)),
            builder.elementwise("reciprocal", builder.elementwise("sqrt", b)): 1 / np.sqrt(y),
        }
    compiled = compile_graph(*builder.build(*quotients))
    stored = compiled.run({"a": x.view(np.uint16), "b": y.view(np.uint16)})
    for name, (got, emulated) in compiled.expected(stored).items():
        np.testing.assert_array_equal(got, emulated, err_msg=name)
    for name, wanted in quotients.items():
        np.testing.assert_allclose(stored[name].view(np.float16), wanted, rtol=8e-3, atol=0, err_msg=name)
