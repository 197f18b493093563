"""Small memories force rounds, tiles and channel cuts; fewer cores force other bindings. No output bit may change.

Depthwise convolutions are the exception: their order of summation is chosen for the chip, so they are held to the
reference on every chip, and not to the bits of another chip.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from hw_models.chip import Chip
from hw_models.errors import DoesNotFit
from isched.program.program import Program
from partitioner.ir.graph import Constants, Graph
from tests.chip_runs import compile_graph, small_chip
from tests.small_graphs import GraphBuilder

KIB = 1024
Make = Callable[[], tuple[Graph, Constants]]
CHIPS = {
    "one core": small_chip(cores=1),
    "three cores, 32 KiB": small_chip(3, 32 * KIB, 8 * KIB, 8 * KIB, 256 * KIB),
    "eight cores, 16 KiB": small_chip(8, 16 * KIB, 8 * KIB, 4 * KIB, 64 * KIB),
    "five cores, one L1 pool": small_chip(5, 24 * KIB, 16 * KIB, 4 * KIB, 64 * KIB, enforced=False),
}


def convolutions() -> tuple[Graph, Constants]:
    builder = GraphBuilder("convolutions")
    x = builder.input("x", 2, 15, 13, 16)
    outputs = [
        builder.conv(x, 40),
        builder.conv(x, 24, stride=2),
        builder.conv(x, 70, kernel=(1, 1), pads=(0, 0, 0, 0)),
        builder.conv(x, 8, pads=(0, 1, 2, 0)),
        builder.conv(x, 8, pads=(2, 2, 2, 2), dilation=2),
        builder.conv(x, 32, groups=4),
        builder.conv(x, 96, groups=2),
    ]
    return builder.build(*outputs)


def wide() -> tuple[Graph, Constants]:
    builder = GraphBuilder("wide")
    x = builder.input("x", 1, 5, 1501, 6)
    outputs = [
        builder.conv(x, 8),
        builder.conv(x, 8, (3, 5), 2, (1, 0, 1, 3)),
        builder.conv(x, 8, (1, 1), 3, (0, 0, 0, 0)),
        builder.conv(x, 6, (3, 3), 1, (2, 2, 2, 2), dilation=2, groups=3),
        builder.pool("max_pool", x, (3, 3), 2, (1, 1, 1, 1)),
        builder.pool("average_pool", x, (3, 4), 1, (1, 2, 1, 0)),
        builder.pool("average_pool", x, (2, 2), 3, (0, 0, 0, 0), counted=True),
    ]
    return builder.build(*outputs)


def residual() -> tuple[Graph, Constants]:
    builder = GraphBuilder("residual")
    x = builder.input("x", 1, 28, 28, 16)
    first = builder.elementwise("relu", builder.conv(x, 16))
    second = builder.elementwise("add", first, builder.conv(first, 16))
    shortcut = builder.conv(x, 16, (1, 1), pads=(0, 0, 0, 0))
    return builder.build(builder.elementwise("relu", builder.elementwise("add", builder.conv(second, 16), shortcut)))


def pools() -> tuple[Graph, Constants]:
    builder = GraphBuilder("pools")
    x = builder.input("x", 2, 29, 31, 20)
    outputs = [
        builder.pool("max_pool", x, (3, 3), 2, (1, 1, 1, 1)),
        builder.pool("average_pool", x, (3, 3), 1, (1, 1, 1, 1)),
        builder.pool("average_pool", x, (29, 31)),
    ]
    return builder.build(*outputs)


def long_reductions() -> tuple[Graph, Constants]:
    builder = GraphBuilder("long")
    x, y = builder.input("x", 1, 3, 3, 1100), builder.input("y", 10, 9500)
    return builder.build(builder.conv(x, 8), builder.matmul(y, builder.normal(9500, 20, scale=0.01)))


def rows_and_pieces() -> tuple[Graph, Constants]:
    builder = GraphBuilder("rows")
    x, a = builder.input("x", 50, 1000), builder.input("a", 2, 25, 17, 13)
    b, c = builder.input("b", 2, 25, 17, 20), builder.input("c", 2, 13, 17, 13)
    product = builder.matmul(builder.input("p", 2, 3, 17, 40), builder.input("q", 2, 3, 40, 19), bias=False)
    spread = builder.elementwise("mul", a, builder.input("r", 2, 1, 1, 13))
    mirrored = builder.elementwise("sub", builder.input("s", 1, 25, 1, 1), a)
    return builder.build(
        builder.softmax(x), builder.concat(3, a, b, a), builder.concat(1, a, c), product, spread, mirrored
    )


def depthwise() -> tuple[Graph, Constants]:
    builder = GraphBuilder("depthwise")
    x, y = builder.input("x", 2, 15, 13, 16), builder.input("y", 1, 23, 7, 90)
    return builder.build(
        builder.conv(x, 16, groups=16),
        builder.conv(x, 16, (5, 5), 2, (2, 2, 2, 2), groups=16),
        builder.conv(y, 90, groups=90),
    )


GRAPHS = [convolutions, residual, pools, rows_and_pieces]
LARGE_GRAPHS = [pytest.param(make, marks=pytest.mark.nightly) for make in (wide, long_reductions)]


@pytest.mark.spread(2)
@pytest.mark.parametrize("make", [*GRAPHS, *LARGE_GRAPHS], ids=lambda make: str(make.__name__))
@pytest.mark.commit
def test_the_same_bits_on_every_chip(make: Make) -> None:
    graph, constants = make()
    big = compile_graph(graph, constants).check()
    for chip in CHIPS.values():
        small = compile_graph(graph, constants, chip).check()
        for name in graph.outputs:
            np.testing.assert_array_equal(small[name], big[name], err_msg=name)


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS.keys())
def test_depthwise_on_every_chip(chip: Chip) -> None:
    compile_graph(*depthwise(), chip).check()


def test_small_memories_really_cut() -> None:
    """The comparison above would mean little if the small chips ran the same instructions."""
    big, small = (compile_graph(*wide(), chip).program for chip in (None, CHIPS["eight cores, 16 KiB"]))
    rounds, tiles = zip(
        *((count(program, "sync"), count(program, "mov.l1.llb")) for program in (big, small)), strict=True
    )
    assert rounds[1] > 3 * rounds[0]
    assert tiles[1] > 3 * tiles[0]


def count(program: Program, opcode: str) -> int:
    return sum(instr.opcode == opcode for stream in program.streams for instr in stream.instrs)


@pytest.mark.parametrize("make", [residual, pools], ids=lambda make: str(make.__name__))
def test_results_do_not_depend_on_the_seed_of_the_simulator(make: Make) -> None:
    graph, constants = make()
    compiled = compile_graph(graph, constants, CHIPS["three cores, 32 KiB"])
    inputs = compiled.inputs()
    runs = [compiled.run(inputs, seed) for seed in (0, 1, 7)]
    for name in graph.outputs:
        for other in runs[1:]:
            np.testing.assert_array_equal(runs[0][name], other[name])


chips = st.builds(
    small_chip,
    cores=st.integers(1, 8),
    data_bytes=st.sampled_from([4, 6, 16, 64, 1024]).map(lambda kib: kib * KIB),
    weights_bytes=st.sampled_from([2, 8, 256]).map(lambda kib: kib * KIB),
    im_bytes=st.sampled_from([1, 4, 256]).map(lambda kib: kib * KIB),
    llb_bytes=st.sampled_from([24, 64, 8192]).map(lambda kib: kib * KIB),
    enforced=st.booleans(),
)


@st.composite
def layers(draw: st.DrawFn) -> tuple[Graph, Constants]:
    """One random layer with an element-wise operator or two behind it."""
    builder = GraphBuilder("random", draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(["conv", "grouped", "max_pool", "average_pool", "matmul", "concat", "softmax", "add"]))
    batch, height, width = draw(st.integers(1, 3)), draw(st.integers(1, 19)), draw(st.integers(1, 19))
    channels = draw(st.integers(1, 40))
    groups = draw(st.integers(2, 5)) if kind == "grouped" else 1
    x = builder.input("x", batch, height, width, channels * groups)
    dilation = draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, max(1, min(4, (extent - 1) // dilation + 1)))) for extent in (height, width))
    most = [dilation * (k - 1) for k in kernel]
    pads = tuple(draw(st.integers(0, bound)) for bound in (*most, *most))
    stride = draw(st.integers(1, 3))
    window = ((kernel[0], kernel[1]), stride, (pads[0], pads[1], pads[2], pads[3]))
    match kind:
        case "conv" | "grouped":
            outputs = draw(st.integers(1, 70)) if groups == 1 else groups * draw(st.integers(1, 8))
            y = builder.conv(x, outputs, *window, draw(st.booleans()), dilation, groups)
        case "max_pool" | "average_pool":
            y = builder.pool(kind, x, *window, draw(st.booleans()), dilation)
        case "matmul":
            y = builder.matmul(x, builder.normal(channels, draw(st.integers(1, 60)), scale=0.3), draw(st.booleans()))
        case "concat":
            axis = draw(st.integers(0, 3))
            shape = [batch, height, width, channels]
            shape[axis] = draw(st.integers(1, 9))
            y = builder.concat(axis, x, builder.input("y", *shape), x)
        case "softmax":
            y = builder.softmax(x)
        case _:
            y = builder.elementwise("add", x, x)
    if draw(st.booleans()):
        shape = [extent if draw(st.booleans()) else 1 for extent in builder.shape(y)]
        y = builder.elementwise(draw(st.sampled_from(["add", "sub", "mul"])), y, builder.input("other", *shape))
    if draw(st.booleans()):
        y = builder.elementwise(draw(st.sampled_from(["relu", "hard_swish", "neg"])), y) if kind != "add" else y
    return builder.build(y)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(layer=layers(), chip=chips, seed=st.integers(0, 1 << 30))
@pytest.mark.commit
def test_random_layers_on_random_chips(layer: tuple[Graph, Constants], chip: Chip, seed: int) -> None:
    """Whatever fits is right to the bit; whatever does not fit says so with numbers that add up."""
    excess_bytes: int | None = None
    try:
        compile_graph(*layer, chip).check(seed)
    except DoesNotFit as refusal:
        excess_bytes = refusal.infeasible.missing_bytes
    event("runs" if excess_bytes is None else "does not fit")
    assert excess_bytes is None or excess_bytes > 0
