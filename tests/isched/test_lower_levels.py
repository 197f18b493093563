"""Plans of every level run on the simulated chip and store the same bits as O0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from isched.hazards.verify_program import verify_program
from partitioner.context.plan_context import Context, PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.plan import Plan, parse_plan
from partitioner.planners.levels import planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import Compiled, small_chip
from tests.small_graphs import GraphBuilder

Built = tuple[Graph, Constants]


def residual(batch: int = 1, size: int = 8) -> Built:
    """Two residual blocks; the sum of the first is read twice."""
    b = GraphBuilder("residual")
    x = b.elementwise("relu", b.conv(b.input("x", batch, size, size, 16), 32))
    for _ in range(2):
        inner = b.elementwise("relu", b.conv(x, 32))
        x = b.elementwise("relu", b.elementwise("add", b.conv(inner, 32), x))
    return b.build(b.conv(x, 8, (1, 1), pads=(0, 0, 0, 0)))


def diamond(batch: int = 1, size: int = 8) -> Built:
    """Two branches of one value meet; one of them is of another depth and a strided path follows."""
    b = GraphBuilder("diamond")
    x = b.conv(b.input("x", batch, size, size, 8), 16)
    left = b.elementwise("relu", b.conv(x, 24, (1, 1), pads=(0, 0, 0, 0)))
    right = b.conv(b.elementwise("relu", b.conv(x, 16)), 24)
    return b.build(b.conv(b.elementwise("add", left, right), 16, stride=2))


def joined(batch: int = 1, size: int = 9) -> Built:
    """Branches concatenated along the channels, one of them a pooled one; the first is read again at the end."""
    b = GraphBuilder("joined")
    x = b.elementwise("relu", b.conv(b.input("x", batch, size, size, 16), 16))
    pooled = b.pool("max_pool", x, (3, 3), pads=(1, 1, 1, 1))
    both = b.concat(3, b.conv(x, 16), pooled, x)
    return b.build(b.conv(both, 16, (1, 1), pads=(0, 0, 0, 0)), b.elementwise("sigmoid", x))


def viewed(batch: int = 1, size: int = 6) -> Built:
    """Feature map, view, products, view and an output under the name of a view."""
    b = GraphBuilder("viewed")
    x = b.elementwise("relu", b.conv(b.input("x", batch, size, size, 16), 16))
    rows = b.view(x, batch, size * size, 16)
    products = b.matmul(rows, b.normal(16, 24, scale=0.25))
    back = b.view(products, batch, size, size, 24)
    y = b.conv(back, 8)
    flat = b.view(y, batch, size * size * 8)
    return b.build(b.softmax(flat), b.view(b.elementwise("tanh", back), batch, size * size * 24))


def several_outputs(batch: int = 1, size: int = 8) -> Built:
    """An output of the network that is read on, two more, and one that is the input's neighbour."""
    b = GraphBuilder("outputs")
    x = b.conv(b.input("x", batch, size, size, 16), 16)
    y = b.elementwise("relu", x)
    z = b.conv(y, 16)
    return b.build(
        y, b.elementwise("add", z, b.input("more", batch, size, size, 16)), b.pool("average_pool", z, (2, 2), 2)
    )


def pyramid(batch: int = 1, size: int = 16) -> Built:
    """Falling feature maps, then a classifier."""
    b = GraphBuilder("pyramid")
    x = b.conv(b.input("x", batch, size, size, 8), 16, stride=2)
    x = b.pool("max_pool", b.elementwise("relu", x), (2, 2), 2)
    x = b.elementwise("relu", b.conv(x, 64))
    x = b.pool("average_pool", x, (size // 4, size // 4))
    return b.build(b.matmul(b.view(x, batch, 64), b.normal(64, 40, scale=0.125)))


def cheap(batch: int = 1, size: int = 8) -> Built:
    """Mostly operators that only move and map data, with two readers and windows between them, and a convolution."""
    b = GraphBuilder("cheap")
    x = b.input("x", batch, size, size, 16)
    left = b.elementwise("sigmoid", x)
    right = b.pool("average_pool", left, (3, 3), pads=(1, 1, 1, 1))
    y = b.elementwise("mul", left, b.elementwise("tanh", right))
    z = b.conv(y, 16)
    both = b.concat(3, b.elementwise("add", z, y), z)
    pooled = b.pool("max_pool", both, (2, 2), 2)
    flat = b.view(pooled, batch, size * size * 8)
    return b.build(b.elementwise("exp", b.softmax(flat)), b.elementwise("relu", right))


GRAPHS: tuple[Callable[[int], Built], ...] = (residual, diamond, joined, viewed, several_outputs, pyramid, cheap)
CHIPS = {
    "full": small_chip(),
    "two cores": small_chip(cores=2, data_bytes=20 << 10, weights_bytes=16 << 10),
    "small local": small_chip(data_bytes=5 << 10, weights_bytes=8 << 10, im_bytes=16 << 10, llb_bytes=24 << 10),
    "small shared": small_chip(data_bytes=12 << 10, llb_bytes=12 << 10),
    "one pool": small_chip(cores=3, data_bytes=8 << 10, weights_bytes=4 << 10, enforced=False),
}
CASES = [(name, batch) for name in CHIPS for batch in (1, 4) if batch == 1 or name in ("full", "small local")]


def stored_outputs(graph: Graph, constants: Constants, chip: Chip, plan: Plan, seed: int = 0) -> list[bytes]:
    """The bits of the outputs of the network after a run on random inputs and poisoned memories."""
    program = lower_plan(plan, Context(graph, constants, chip, TARGET), TARGET.data_base_bytes)
    verify_program(program, chip)
    compiled = Compiled(graph, constants, chip, plan, program)
    place = {p.tensor: (TARGET.address(p.memory, p.offset_bytes), p.size_bytes) for p in program.placements}
    inputs = compiled.inputs(seed)
    loads = {place[name][0]: inputs[name].tobytes() for name in graph.inputs}
    memory = TARGET.run(compiled.files, loads, tuple(place[name] for name in graph.outputs), seed).memory
    return [memory[place[name]] for name in graph.outputs]


@pytest.mark.spread(6)
@pytest.mark.parametrize(("name", "batch"), CASES)
@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__)
@pytest.mark.commit
def test_every_level_stores_what_o0_stores(build: Callable[[int], Built], name: str, batch: int) -> None:
    (graph, constants), chip = build(batch), CHIPS[name]
    wanted = stored_outputs(graph, constants, chip, make_plan(PlanContext(graph, constants, chip, TARGET)))
    for level in ("O1", "O2", "astitch"):
        plan = make_plan(PlanContext(graph, constants, chip, TARGET), planner_of(level))
        assert parse_plan(str(plan)) == plan
        for output, got, bits in zip(graph.outputs, stored_outputs(graph, constants, chip, plan), wanted, strict=True):
            np.testing.assert_array_equal(
                np.frombuffer(got, np.uint16), np.frombuffer(bits, np.uint16), err_msg=f"{level} {output}"
            )


def test_the_cases_use_all_scopes_and_moves() -> None:
    """What the runs above compare is worth something only if values do wait in every memory."""
    seen = set()
    for name in ("full", "small local"):
        for build in (residual, viewed, cheap):
            graph, constants = build()
            for level in ("O1", "O2"):
                plan = make_plan(PlanContext(graph, constants, CHIPS[name], TARGET), planner_of(level))
                seen |= {(level, step.kind, step.scope) for step in plan.steps}
    assert seen >= {("O1", "run", "LLB"), ("O1", "view", "LLB"), ("O2", "run", "L1"), ("O2", "run", "LLB")}
    assert seen >= {("O2", "view", "L1"), ("O2", "redistribute", "L1"), ("O2", "run", "DDR")}
