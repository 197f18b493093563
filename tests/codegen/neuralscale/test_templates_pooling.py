"""Pooling on the simulated chip, bit for bit against the reference and roughly against float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.chip_runs import compile_graph
from tests.float_model import evaluate, relative_error
from tests.small_graphs import GraphBuilder, Pads


@dataclass(frozen=True)
class Case:
    shape: tuple[int, int, int, int]
    kernel: tuple[int, int]
    stride: int = 1
    pads: Pads = (0, 0, 0, 0)
    counted: bool = False
    dilation: int = 1


CASES = {
    "3x3 stride 2, padded": Case((2, 13, 11, 20), (3, 3), 2, (1, 1, 1, 1)),
    "3x3 stride 2, padding counted": Case((2, 13, 11, 20), (3, 3), 2, (1, 1, 1, 1), True),
    "asymmetric, dilated": Case((1, 13, 11, 20), (3, 2), 1, (0, 1, 2, 0), False, 2),
    "stride larger than the window": Case((2, 11, 11, 20), (2, 2), 3),
    "whole image": Case((2, 7, 7, 70), (7, 7)),
    "whole image of many pixels": Case((2, 17, 19, 40), (17, 19)),
    "whole image in levels": Case((1, 67, 71, 5), (67, 71)),
    "whole image, not square": Case((1, 5, 12, 33), (5, 12)),
    "one pixel window": Case((1, 5, 5, 8), (1, 1), 2),
    "one column window": Case((1, 9, 5, 8), (5, 1), 2, (2, 0, 2, 0)),
    "wide image": Case((1, 4, 900, 5), (3, 3), 2, (1, 1, 1, 1)),
}


@pytest.mark.parametrize("kind", ["max_pool", "average_pool"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_pooling(case: Case, kind: str) -> None:
    builder = GraphBuilder("pooling")
    x = builder.input("x", *case.shape)
    y = builder.pool(kind, x, case.kernel, case.stride, case.pads, case.counted, case.dilation)
    compiled = compile_graph(*builder.build(y))
    stored = compiled.check()
    values = evaluate(compiled.graph, compiled.constants, compiled.inputs())
    assert relative_error(stored[y].view("float16"), values[y]) < (1e-9 if kind == "max_pool" else 5e-3)


def test_padding_does_not_win_a_maximum_of_negative_values() -> None:
    builder = GraphBuilder("negative")
    y = builder.pool("max_pool", builder.input("x", 1, 6, 6, 8), (3, 3), 2, (1, 1, 1, 1))
    compiled = compile_graph(*builder.build(y))
    inputs = {"x": compiled.inputs()["x"] | np.uint16(0x8000)}
    stored = compiled.run(inputs)
    assert (stored[y].view(np.float16) < 0).all()
    values = evaluate(compiled.graph, compiled.constants, inputs)
    np.testing.assert_array_equal(stored[y].view(np.float16), values[y])


def test_a_mean_of_large_values_does_not_overflow() -> None:
    builder = GraphBuilder("large")
    x = builder.input("x", 1, 8, 8, 4)
    y, z = builder.pool("average_pool", x, (3, 3)), builder.pool("average_pool", x, (8, 8))
    compiled = compile_graph(*builder.build(y, z))
    inputs = {"x": np.full((1, 8, 8, 4), 60_000.0, np.float16).view(np.uint16)}
    stored = compiled.run(inputs)
    for name in (y, z):
        np.testing.assert_allclose(stored[name].view(np.float16).astype(float), 60_000.0, rtol=5e-3)


def test_a_pool_has_an_epilogue() -> None:
    builder = GraphBuilder("epilogue")
    x = builder.input("x", 2, 9, 9, 8)
    y = builder.elementwise("mul", builder.pool("average_pool", x, (3, 3), 2), builder.normal(8))
    z = builder.elementwise("relu", builder.pool("average_pool", x, (9, 9)))
    compile_graph(*builder.build(y, z)).check()


@pytest.mark.parametrize("pixels", [(16, 16), (16, 17), (30, 30), (95, 94), (150, 150)], ids=str)
@pytest.mark.parametrize("value", [0.9, 1.24, 3e-3])
@pytest.mark.commit
def test_means_of_equal_pixels_keep_their_digits(pixels: tuple[int, int], value: float) -> None:
    """The worst case of adding one by one: every sum of an octave is rounded the same way."""
    builder = GraphBuilder("means")
    x = builder.input("x", 1, *pixels, 3)
    compiled = compile_graph(*builder.build(builder.pool("average_pool", x, pixels)))
    image = np.full((1, *pixels, 3), value, np.float16)
    stored = compiled.run({"x": image.view(np.uint16)})
    for got, wanted in compiled.expected(stored).values():
        np.testing.assert_array_equal(got, wanted)
    mean = stored[compiled.graph.outputs[0]].view(np.float16)
    assert relative_error(mean, image[:, :1, :1].astype(np.float64)) < 1e-2
