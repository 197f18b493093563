"""Matrix products and softmax on the simulated chip."""

from __future__ import annotations

import numpy as np
import pytest

from hw_models.errors import ModelError
from tests.chip_runs import Compiled, compile_graph, small_chip
from tests.float_model import evaluate, relative_error
from tests.small_graphs import GraphBuilder


def judge(compiled: Compiled, tolerance: float, scale: float = 1.0) -> None:
    """Bit for bit against the reference, roughly against float64."""
    stored = compiled.check(scale=scale)
    values = evaluate(compiled.graph, compiled.constants, compiled.inputs(scale=scale))
    for name in compiled.graph.outputs:
        assert relative_error(stored[name].view("float16"), values[name]) < tolerance


@pytest.mark.parametrize(
    ("shape", "columns"),
    [((1, 50), 77), ((3, 50), 77), ((40, 8), 1), ((2, 3, 17, 40), 19), ((9, 2048), 100), ((1, 1), 1)],
)
def test_product_with_a_constant(shape: tuple[int, ...], columns: int) -> None:
    builder = GraphBuilder("gemm")
    x = builder.input("x", *shape)
    y = builder.matmul(x, builder.normal(shape[-1], columns, scale=shape[-1] ** -0.5))
    judge(compile_graph(*builder.build(y)), 1e-2)


@pytest.mark.parametrize(
    ("shape", "columns"),
    [((1, 1, 16), 50_257), ((2, 3, 9), 33_000), ((1, 2, 40_000), 8)],
    ids=["words", "wide", "long"],
)
def test_rows_beyond_what_a_stride_says(shape: tuple[int, ...], columns: int) -> None:
    """Scores of every word of a vocabulary, behind leading axes."""
    builder = GraphBuilder("scores")
    x = builder.input("x", *shape)
    y = builder.matmul(x, builder.normal(shape[-1], columns, scale=shape[-1] ** -0.5))
    judge(compile_graph(*builder.build(y)), 1e-2)


def test_several_matrices_of_such_rows_are_refused() -> None:
    builder = GraphBuilder("products")
    a, b = builder.input("a", 2, 1, 4), builder.input("b", 2, 4, 33_000)
    with pytest.raises(ModelError, match="rows longer than 32,767 elements of several matrices"):
        compile_graph(*builder.build(builder.matmul(a, b, bias=False)))


@pytest.mark.parametrize("rest", [1, 17, 32])
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows_behind_the_last_whole_tile_are_computed_as_columns(rest: int, bias: bool) -> None:
    """64 rows by 32 columns are a tile of the array: 128 columns of few more rows are two tiles turned, four not."""
    builder = GraphBuilder("rows")
    x = builder.input("x", 1, 64 + rest, 300)
    y = builder.elementwise("relu", builder.matmul(x, builder.normal(300, 128, scale=0.05), bias=bias))
    compiled = compile_graph(*builder.build(y), chip=small_chip(1))
    opcodes = [instr.opcode for instr in compiled.program.streams[0].instrs if instr.engine == "matrix"]
    assert opcodes.count("memul.ts.mm") == opcodes.count("memul.mm") == opcodes.count("metr.m") // 2 > 0
    judge(compiled, 1e-2)


@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (97, 128), (65, 32), (17, 128)])
def test_others_are_not(rows: int, columns: int) -> None:
    """No rows behind a whole tile; more than it has columns; as many tiles turned as not; no whole tile before them."""
    builder = GraphBuilder("rows")
    y = builder.matmul(builder.input("x", 1, rows, 300), builder.normal(300, columns, scale=0.05))
    compiled = compile_graph(*builder.build(y), chip=small_chip(1))
    assert {i.opcode for i in compiled.program.streams[0].instrs if i.engine == "matrix"} == {"memul.mm"}
    judge(compiled, 1e-2)


def test_turned_products_add_up_what_is_no_number_in_the_same_order() -> None:
    builder = GraphBuilder("rows")
    y = builder.matmul(builder.input("x", 1, 80, 96), builder.normal(96, 64))
    compiled = compile_graph(*builder.build(y), chip=small_chip(1))
    values = np.random.default_rng(5).standard_normal((1, 80, 96)).astype(np.float16)
    values[0, 66, 3], values[0, 67, 5:7], values[0, 70] = np.nan, (np.inf, -np.inf), 0
    values[0, 72] *= 2000
    stored = compiled.run({"x": values.view(np.uint16)})
    for got, wanted in compiled.expected(stored).values():
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("shape", [(17, 40), (2, 3, 17, 40), (8, 1, 5)])
def test_product_of_two_computed_values(shape: tuple[int, ...]) -> None:
    builder = GraphBuilder("product")
    a, b = builder.input("a", *shape), builder.input("b", *shape[:-2], shape[-1], 19)
    judge(compile_graph(*builder.build(builder.matmul(a, b, bias=False))), 5e-3)


def test_a_long_reduction_is_split() -> None:
    builder = GraphBuilder("long")
    x = builder.input("x", 2, 5, 9500)
    y = builder.elementwise("relu", builder.matmul(x, builder.normal(9500, 20, scale=0.01)))
    judge(compile_graph(*builder.build(y)), 1e-2)


@pytest.mark.parametrize(
    ("shape", "axis"), [((5, 1000), -1), ((2, 3, 7, 13), 3), ((2, 30, 1, 1), 1), ((4, 1), -1), ((1, 2), 1)]
)
def test_softmax(shape: tuple[int, ...], axis: int) -> None:
    builder = GraphBuilder("softmax")
    y = builder.softmax(builder.input("x", *shape), axis)
    compiled = compile_graph(*builder.build(y))
    judge(compiled, 5e-3)
    judge(compiled, 5e-3, scale=20.0)


def test_softmax_rows_sum_to_one() -> None:
    builder = GraphBuilder("softmax")
    y = builder.softmax(builder.input("x", 16, 3000))
    stored = compile_graph(*builder.build(y)).check()
    np.testing.assert_allclose(stored[y].view(np.float16).astype(float).sum(1), 1.0, atol=2e-2)
