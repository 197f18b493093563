"""Convolutions on the simulated chip: every output bit is what the reference says, and the value roughly right."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.chip_runs import compile_graph
from tests.float_model import evaluate, relative_error
from tests.small_graphs import GraphBuilder, Pads


@dataclass(frozen=True)
class Case:
    shape: tuple[int, int, int, int]
    channels: int
    kernel: tuple[int, int] = (3, 3)
    stride: int = 1
    pads: Pads = (1, 1, 1, 1)
    bias: bool = True
    dilation: int = 1
    groups: int = 1
    tolerance: float = 3e-3


CASES = {
    "3x3": Case((1, 14, 14, 16), 32),
    "no bias": Case((1, 8, 8, 16), 32, bias=False),
    "stride 2, odd extents": Case((1, 15, 13, 16), 24, stride=2),
    "1x1 in a batch of 2, channels that do not divide": Case((2, 7, 9, 40), 70, (1, 1), pads=(0, 0, 0, 0)),
    "asymmetric padding": Case((1, 11, 10, 8), 16, pads=(0, 1, 2, 0)),
    "dilation 2": Case((1, 13, 17, 8), 16, pads=(2, 2, 2, 2), dilation=2),
    "stride larger than the kernel": Case((2, 23, 23, 8), 16, (1, 1), stride=3, pads=(0, 0, 0, 0)),
    "stride larger than the kernel, unread columns": Case((2, 23, 24, 8), 16, (2, 2), stride=3, pads=(0, 0, 0, 0)),
    "7x7 of 3 channels, as a first layer": Case((1, 31, 31, 3), 20, (7, 7), stride=2, pads=(3, 3, 3, 3)),
    "1x3": Case((1, 9, 9, 12), 12, (1, 3), pads=(0, 1, 0, 1)),
    "5x1": Case((1, 9, 9, 12), 12, (5, 1), pads=(2, 0, 2, 0)),
    "odd channels": Case((1, 9, 9, 7), 101),
    "one pixel": Case((1, 1, 1, 64), 40, (1, 1), pads=(0, 0, 0, 0)),
    "one output channel": Case((3, 5, 5, 8), 1),
    "image smaller than the padded kernel": Case((1, 2, 2, 8), 16, (5, 5), pads=(2, 2, 2, 2)),
    "wide image": Case((1, 5, 1500, 6), 8),
    "more rows than cores": Case((1, 67, 5, 4), 8),
    "three groups": Case((2, 9, 9, 24), 36, groups=3),
    "groups cut inside and across by the cores": Case((1, 4, 4, 12), 110, groups=2),
    "depthwise": Case((2, 9, 9, 24), 24, groups=24),
    "depthwise, two outputs a channel": Case((1, 9, 9, 8), 16, groups=8),
    "depthwise, stride 2": Case((1, 9, 9, 16), 16, groups=16, stride=2),
    "reduction of 2,048, whole": Case((3, 3, 2, 2048), 72, (1, 1), pads=(0, 0, 0, 0), tolerance=1e-2),
    "reduction of 2,058, split in 2": Case((2, 4, 4, 42), 70, (7, 7), pads=(3, 3, 3, 3), tolerance=6e-3),
    "reduction of 9,900, split in 9": Case((1, 3, 3, 1100), 16, tolerance=5e-3),
    "1x1, images as one": Case((20, 3, 3, 24), 33, (1, 1), pads=(0, 0, 0, 0)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_convolution(case: Case) -> None:
    builder = GraphBuilder("convolution")
    x = builder.input("x", *case.shape)
    y = builder.conv(x, case.channels, case.kernel, case.stride, case.pads, case.bias, case.dilation, case.groups)
    compiled = compile_graph(*builder.build(y))
    stored = compiled.check()
    values = evaluate(compiled.graph, compiled.constants, compiled.inputs())
    assert relative_error(stored[y].view("float16"), values[y]) < case.tolerance


def test_epilogues_and_two_readers() -> None:
    """conv + relu, then residual adds with the running value as first and as second operand."""
    builder = GraphBuilder("residual")
    x = builder.input("x", 1, 28, 28, 16)
    first = builder.elementwise("relu", builder.conv(x, 16))
    right = builder.elementwise("add", first, builder.conv(first, 16))
    left = builder.elementwise("add", builder.conv(right, 16), first)
    difference = builder.elementwise("relu", builder.elementwise("sub", right, builder.conv(left, 16)))
    compiled = compile_graph(*builder.build(difference, left))
    assert [layer.ops for group in compiled.plan.groups for layer in group.layers] == [
        ("conv0", "relu1"),
        ("conv2", "add3"),
        ("conv4", "add5"),
        ("conv6", "sub7", "relu8"),
    ]
    stored = compiled.check()
    values = evaluate(compiled.graph, compiled.constants, compiled.inputs())
    assert relative_error(stored[difference].view("float16"), values[difference]) < 5e-3


def test_infinities_and_denormals_go_through() -> None:
    builder = GraphBuilder("overflow")
    y = builder.conv(builder.input("x", 1, 6, 6, 8), 8)
    compiled = compile_graph(*builder.build(y))
    inputs = compiled.inputs()
    inputs["x"][0, 2, 2, :] = 0x7BFF
    inputs["x"][0, 4, 4, :] = 0x0003
    inputs["x"][0, 0, 0, 0] = 0x7C00
    stored = compiled.run(inputs)
    ((got, wanted),) = compiled.expected(stored).values()
    assert (got == wanted).all()
    assert ((got & 0x7C00) == 0x7C00).any()


def test_what_the_matrix_engine_cannot_do_is_refused_by_operator() -> None:
    builder = GraphBuilder("refused")
    x = builder.input("x", 1, 8, 8, 4)
    builder.conv(x, 4, (1, 1), pads=(1, 1, 1, 1))
    y = builder.conv(x, 4, (3, 3), pads=(3, 3, 3, 3))
    with pytest.raises(Exception, match=r"conv0 .*as large as the window's reach(.|\n)*conv1"):
        compile_graph(*builder.build(y))
