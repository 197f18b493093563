"""Counting machine instructions gives as many as making them, whatever the registers hold."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.neuralscale.emit.expansion import Body
from isched.program.program import Instr
from tests.chip_runs import compile_graph, stcp920
from tests.small_graphs import GraphBuilder


@cache
def instructions() -> tuple[Instr, ...]:
    """Of all engines, with broadcasts, scalars, fills and chains of the DMA; none that waits."""
    b = GraphBuilder("forms")
    x = b.input("x", 2, 9, 9, 16)
    y = b.elementwise("sigmoid", b.elementwise("add", b.conv(x, 16, groups=2), x))
    y = b.softmax(b.view(b.pool("average_pool", y, (3, 3), 2, (1, 1, 1, 1)), 2, 5 * 5 * 16))
    program = compile_graph(*b.build(y), stcp920()).program
    instrs = [instr for stream in program.streams for instr in stream.instrs if not instr.awaits]
    copy = next(instr for instr in instrs if instr.opcode == "mov.l1.llb")
    broadcast = Instr("transfer", "pld", (*copy.operands, ("mte_coremap", 0xFF)), copy.reads, copy.writes)
    return (*dict.fromkeys(instrs), broadcast)


@given(st.data(), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_counting_gives_as_many_as_making(data: st.DataObject, cluster: int) -> None:
    counted, made = Body(cluster), Body(cluster)
    for instr in data.draw(st.lists(st.sampled_from(instructions()), max_size=40)):
        assert counted.count(instr) == len(made.expand(instr))
        assert counted.csrs == made.csrs
