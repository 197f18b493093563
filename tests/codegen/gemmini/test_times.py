"""Times: a program and its machine code have one clock, whose numbers are those of the chip file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from codegen.gemmini.emit.core_code import counted_code
from codegen.gemmini.emit.executable import end_code, start_code
from codegen.gemmini.isa.operations import ACCUMULATE, ACCUMULATOR, FULL_WIDTH, GARBAGE
from codegen.gemmini.isa.table import CODEC
from codegen.gemmini.streams.streams import Item, Loop, looped, once
from codegen.gemmini.target import TARGET
from codegen.gemmini.timing.issue import issue_costs
from codegen.gemmini.timing.issued_loops import IssuedLoop, loop_work
from codegen.gemmini.timing.trace import trace
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import CompileOptions, Lowered
from hw_models.errors import TargetError
from hw_models.loading import load_chip
from isched.bounds.lower_bounds import stream_bounds
from isched.program.timed_ops import TimedOp, timed_streams
from isched.timing.cycle_model import time_streams
from partitioner.planners.levels import O0
from tests.codegen.gemmini.test_machine import IN, OUT, executable, ran
from tests.codegen.gemmini.test_networks import NETWORKS
from tests.codegen.gemmini.test_transformers import attention, line, rows_of_a_table
from tests.small_models import save

CHIP = load_chip("gemmini")
LATENCY = 100


CLOCKED: dict[str, Callable[[], onnx.ModelProto]] = {
    **{
        name: NETWORKS[name]
        for name in ("odd extents", "a scale per channel", "residual", "separable", "largest of a long image")
    },
    "attention": attention,
    "norms": lambda: line("LayerNormalization", (3, 5, 24), 24),
    "rows of a table": rows_of_a_table,
}


@pytest.mark.parametrize("name", CLOCKED)
def test_a_program_and_its_machine_code_have_one_clock(name: str, tmp_path: Path) -> None:
    """Worked out from the streams of the program, and from the bytes alone."""
    (part,) = compile_clusters(save(CLOCKED[name](), tmp_path / "net.onnx"), "gemmini", CompileOptions(O0()))
    assert isinstance(part.made, Lowered)
    program = part.made.program
    own = timed_streams(program, CHIP, issue_costs(program, CHIP))
    read = TARGET.trace(part.files.files[part.files.executable], 1, CHIP)
    cycles = time_streams(own, CHIP).cycles
    assert cycles == time_streams(read, CHIP).cycles
    assert 0.5 * cycles < stream_bounds(own, CHIP).cycles <= cycles
    said = [(op.opcode, op.unit, op.cycles, op.flows, op.issue.entries, op.source) for op in own[0].ops]
    found = [(op.opcode, op.unit, op.cycles, op.flows, op.issue.entries, op.source) for op in read[0].ops]
    assert [each[:5] for each in said] == [each[:5] for each in found[:-1]]  # the last one waits before the end


def stream_ops(*items: Item) -> tuple[TimedOp, ...]:
    """The ops of machine code, without the wait at its end."""
    text = [*start_code(), *counted_code(items).instructions, *end_code()]
    (stream,) = trace(executable(text), 1, CHIP)
    return stream.ops[:-1]


def moves(count: int, **fields: int) -> Item:
    return Loop(count, (looped("mvin", ({"dram": 64, "row": 16},), dram=IN, row=0, **fields),))


CONFIG = once("config_ld", state=0, pixels_per_row=1, block_rows=16, scale=1.0, stride=64)


def test_moving_in_takes_requests_in_flight() -> None:
    """Rows of 64 bytes are one request each, of which 16 are in flight; each takes the latency."""
    config, moved = stream_ops(CONFIG, moves(5, columns=64, rows=16))
    assert (config.opcode, config.cycles, config.unit) == ("config_ld", 1, "load")
    beats = 5 * 16 * 4
    assert (moved.unit, moved.moved_bytes, moved.issue.entries) == ("load", 5 * 16 * 64, 5)
    assert moved.cycles + beats == LATENCY + 5 * 16 * LATENCY / 16
    assert [(flow.link, flow.size_bytes) for flow in moved.flows] == [("dram_to_scratchpad", beats * 16)]


def test_rows_of_zeros_and_repeated_rows_take_no_requests() -> None:
    zeros = once("mvin", dram=0, row=0, columns=16, rows=16)
    assert [op.cycles for op in stream_ops(zeros)] == [16]
    repeated = once("config_ld", state=2, pixels_per_row=1, scale=1.0)
    bias = once("mvin3", dram=IN, row=ACCUMULATOR, columns=16, rows=16)
    moved = stream_ops(repeated, bias)[-1]
    assert (moved.moved_bytes, moved.flows[0].link) == (64, "dram_to_accumulator")
    assert ran((repeated, bias), bytes(64)).loaded_bytes == 64


def test_a_block_takes_its_rows_and_at_least_four_cycles() -> None:
    def block(rows: int, depth: int) -> float:
        to = ACCUMULATOR + ACCUMULATE
        preload = looped("preload", ({},), b_row=100, b_columns=16, b_rows=depth, c_row=to, c_columns=16, c_rows=rows)
        compute = looped("compute_preloaded", ({},), a_row=0, a_columns=depth, a_rows=rows, d_row=GARBAGE)
        config = once("config_ex", weight_stationary=1, a_stride=1, c_stride=1)
        return stream_ops(config, Loop(10, (preload, compute)))[-1].cycles

    start = CHIP.matrix.start_latency_cycles
    assert [block(16, 3), block(3, 9), block(2, 3)] == [start + 160, start + 90, start + 40]


def test_the_core_may_be_slower_than_what_it_asks_for() -> None:
    slow = IssuedLoop("compute", 10, 500.0, array_cycles=40)
    assert loop_work(slow, CHIP).cycles == CHIP.matrix.start_latency_cycles + 500 + 9


def test_pools_and_sums_on_the_way_out() -> None:
    pool = once("config_st", stride=16, scale=1.0, pool_stride=2, pool_size=2, pool_width=4, pool_out_rows=4,
                pool_out_columns=4, pool_in_rows=8, pool_in_columns=8)  # fmt: skip
    (pooled,) = stream_ops(pool, once("mvout", dram=OUT, row=ACCUMULATOR, columns=16, rows=16))
    assert (pooled.moved_bytes, pooled.reads[0].size_bytes) == (256, 64 * 64)
    out = once("mvout", dram=OUT, row=ACCUMULATOR + FULL_WIDTH, columns=16, rows=16)
    (full,) = stream_ops(once("config_st", stride=64, scale=1.0), out)
    assert full.moved_bytes == 1024


def test_executed_instructions_are_counted_as_they_run() -> None:
    """Of loops in loops, of streams with and without constants in registers, and of branches over a long way."""
    body = tuple(looped("mvin", ({"row": 1}, {}), dram=0, row=n, columns=4, rows=1) for n in range(9))
    far = tuple(once("mvin", dram=0, row=n, columns=4, rows=1) for n in range(3))
    for items in ((Loop(3, (Loop(4, body),)),), (Loop(5, (Loop(7, body), Loop(2, body))),), far):
        code = counted_code(items)
        result = ran(items)
        assert result.fault == ""
        scalar = sum(number for name, number in code.executed.items() if CODEC.row(name).extension != "Gemmini")
        handler = next(n for n, each in enumerate(start_code()) if each.mnemonic == "jal")
        assert result.counts["scalar"] == scalar + handler + 1 + len(end_code()) - 1
        assert result.counts["mvin"] == code.executed["mvin"]


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(TargetError, match="needs a static 64-bit executable for this chip"):
        trace(b"no", 1, CHIP)
    loops = executable([*start_code(), *counted_code((once("config_norm"),)).instructions, *end_code()])
    with pytest.raises(TargetError, match="this is not simulated"):
        trace(loops, 1, CHIP)
