"""Hidden values in chunks: every weight once, partial sums in the order in which the whole product adds them up."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.lab.programs import lower_plan
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from isched.hazards.verify_program import verify_program
from partitioner.context.plan_context import Context
from partitioner.cost.traffic import plan_traffic
from partitioner.fusion.hidden_chunks import ChunkPart, in_chunks
from partitioner.ir.graph import Constants, Graph, verify_graph
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import FOR_CONSTANTS_AHEAD, FOR_SCHEDULING, MoveLayout
from partitioner.planners.levels import Streamed, planner_of
from partitioner.planners.registry import make_plan
from tests.chip_runs import Bits, Compiled, small_chip, stcp920
from tests.small_graphs import GraphBuilder

CORES = 8
HIDDEN = 2_400
"""Three runs of 800 products."""


def block(items: int, rows: int, width: int, hidden: int, bias: bool = True, kind: str = "gelu") -> GraphBuilder:
    b = GraphBuilder("block", rows)
    x = b.elementwise("relu", b.input("x", items, rows, width))
    attributes = (("approximate", "none"),) if kind == "gelu" else ()
    inner = b.elementwise(kind, b.matmul(x, b.normal(width, hidden, scale=0.1), bias), attributes=attributes)
    b.elementwise("add", b.matmul(inner, b.normal(hidden, width, scale=0.05), bias), x)
    return b


def built(
    items: int, rows: int, width: int, hidden: int, bias: bool = True, kind: str = "gelu"
) -> tuple[Graph, Constants]:
    b = block(items, rows, width, hidden, bias, kind)
    return b.build(b.ops[-1].outputs[0])


def stored(graph: Graph, constants: Constants, chip: Chip, level: str) -> dict[str, Bits]:
    ctx = Context(graph, constants, chip, TARGET)
    plan = make_plan(ctx, planner_of(level))
    program = lower_plan(plan, ctx, TARGET.data_base_bytes)
    verify_program(program, chip)
    made = Compiled(graph, constants, chip, plan, program)
    return made.run(made.inputs(seed=3), seed=5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["gelu", "relu"])
@pytest.mark.commit
def test_numbers_are_those_of_the_whole_product(bias: bool, kind: str) -> None:
    graph, constants = built(4, 6, 48, HIDDEN, bias=bias, kind=kind)
    chip = small_chip(4, data_bytes=96 << 10, llb_bytes=1 << 18)
    chunked = in_chunks(graph, constants, TARGET, room_bytes=0)
    assert chunked is not None
    (output,) = graph.outputs
    whole = stored(graph, constants, chip, "O0")[output]
    for level in ("O0", "streamed"):
        assert (stored(chunked.graph, chunked.constants, chip, level)[output] == whole).all()


def test_every_chunk_is_a_run_of_the_target_and_constants_are_parts_of_those_before() -> None:
    graph, constants = built(1, 4, 48, HIDDEN)
    chunked = in_chunks(graph, constants, TARGET, room_bytes=0)
    assert chunked is not None
    verify_graph(chunked.graph)
    wide, narrow = (op for op in graph.ops if op.kind == "matmul")
    runs = TARGET.product_runs(graph, narrow)
    assert runs == ((0, 800), (800, 1600), (1600, 2400))
    cut = {wide.inputs[1]: 1, wide.inputs[2]: 0, narrow.inputs[1]: 0}
    assert chunked.parts == {
        f"{whole}::{number}": ChunkPart(whole, axis, *run)
        for whole, axis in cut.items()
        for number, run in enumerate(runs)
    }
    for name, part in chunked.parts.items():
        whole = constants[graph.by_name[part.whole].constant].reshape(graph.by_name[part.whole].shape)
        expected = np.take(whole, range(part.low, part.high), part.axis)
        assert (chunked.constants[chunked.graph.by_name[name].constant] == expected).all()
    assert not {wide.name, narrow.name} & {op.name for op in chunked.graph.ops}
    assert sum(op.macs for op in chunked.graph.ops) == sum(op.macs for op in graph.ops)


@pytest.mark.parametrize(
    ("rows", "hidden", "room_bytes", "why"),
    [
        (4, 2_048, 0, "one run adds up all of it"),
        (4, HIDDEN, 4 * (HIDDEN + 2 * 48) * 2, "there is room for what the block reads and makes, too"),
    ],
)
def test_what_stays_whole(rows: int, hidden: int, room_bytes: int, why: str) -> None:
    assert in_chunks(*built(1, rows, 48, hidden), TARGET, room_bytes) is None, why


def test_a_block_without_room_is_in_chunks_though_its_hidden_values_have_room() -> None:
    assert in_chunks(*built(1, 4, 48, HIDDEN), TARGET, 4 * (HIDDEN + 2 * 48) * 2 - 1) is not None


def test_a_value_that_others_read_or_that_leaves_stays_whole() -> None:
    b = block(1, 4, 48, HIDDEN)
    inner = next(op.outputs[0] for op in b.ops if op.kind == "gelu")
    assert in_chunks(*b.build(b.ops[-1].outputs[0], inner), TARGET, 0) is None
    b = block(1, 4, 48, HIDDEN)
    more = b.elementwise("relu", inner)
    assert in_chunks(*b.build(b.ops[-2].outputs[0], more), TARGET, 0) is None


def test_a_target_that_does_not_say_how_it_adds_up_keeps_products_whole() -> None:
    assert in_chunks(*built(1, 4, 48, HIDDEN), object(), 0) is None


@pytest.mark.commit
def test_weights_come_once_where_whole_hidden_values_let_them_come_twice() -> None:
    """197 rows a core, as in ViT-B/16: all hidden values are 9.2 MiB, the cores have 8 MiB."""
    graph, constants = built(CORES, 197, 768, 3_072)
    chunked = in_chunks(graph, constants, TARGET, CORES << 20)
    assert chunked is not None
    reads = []
    for each in ((graph, constants), (chunked.graph, chunked.constants)):
        ctx = Context(*each, stcp920(), TARGET)
        plan = make_plan(ctx, Streamed())
        loaded = plan_traffic(plan, lay_out(plan, ctx, FOR_SCHEDULING), ctx).loaded_bytes
        reads.append(sum(size for name, size in loaded.items() if ctx.graph.by_name[name].constant))
    once = sum(t.size_bytes for t in graph.tensors if t.constant)
    assert reads[0] > 1.9 * once
    assert reads[1] == once


def test_constants_have_a_region_beside_values_packed_low_and_come_in_small_rounds() -> None:
    graph, constants = built(CORES, 197, 768, 3_072)
    chunked = in_chunks(graph, constants, TARGET, CORES << 20)
    assert chunked is not None
    ctx = Context(chunked.graph, chunked.constants, small_chip(llb_bytes=6 << 20), TARGET)
    plan = make_plan(ctx, Streamed())
    layout = lay_out(plan, ctx, FOR_CONSTANTS_AHEAD)
    entries = [entry for step in layout.steps if not isinstance(step, MoveLayout) for entry in step]
    products = [entry for entry in entries if entry.layer.anchor(ctx.graph).macs]
    ((low, size),) = {entry.staging for entry in products[1:-1]}
    capacity = ctx.chip.memory("LLB").size_bytes
    assert low + size == capacity
    assert capacity // 8 <= size < capacity // 4
    kept = [(entry.layer.output, entry.destination) for entry in entries if entry.destination is not None]
    ends = [p.offset_bytes + layout.size_bytes(name, p) for name, p in kept if p.memory == "LLB"]
    assert ends
    assert max(ends) <= low
    staged = {stage.size_bytes for entry in products[1:-1] for _, stage in entry.rounds}
    assert max(staged) <= size // 8
