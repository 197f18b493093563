"""Layouts as text: what is printed is read back, equal; what is damaged is refused by its line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.lab.readers.layouts import parse_layout
from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from hw_models.errors import UserError
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.text import TextError
from partitioner.memory.memory_plan import lay_out
from partitioner.memory.memory_plan_types import FOR_CONSTANTS_AHEAD, FOR_SCHEDULING, PLAIN, Layout, LayoutOptions
from partitioner.planners.levels import LEVELS, planner_of
from partitioner.planners.registry import make_plan
from partitioner.verification.verify_layout import verify_layout
from tests.chip_runs import small_chip
from tests.group_plans import one_group
from tests.partition_graphs import chips, graphs
from tests.small_graphs import GraphBuilder


def chain() -> Layout:
    """Two convolutions on two cores, the first one's output exchanged between them."""
    builder = GraphBuilder("chain")
    x = builder.conv(builder.input("x", 1, 8, 8, 16), 16)
    graph, constants = builder.build(builder.conv(x, 16))
    chip = small_chip(cores=2)
    plan = one_group(graph, constants, chip, {}, (1, 2, 1, 1), ("conv0.out",))
    return lay_out(plan, PlanContext(graph, constants, chip, TARGET))


TEXT = """\
layout rounds_ahead=false buffers_apart=false in_main=[] local="L1" part="data" staging="LLB"
  elements bytes=2 tensors=["conv0.b", "conv0.out", "conv0.w", "conv1.b", "conv1.out", "conv1.w", "x"]
  main tensors=["conv1.out"]
  peak memory="L1" bytes=1280
  peak memory="LLB" bytes=2048
  step number=0 group="all" instance=0
    layer name="conv0" slot=0 ops=["conv0"] output="conv0.out" cores=[0, 1] boxes=["[0:1, 0:4, 0:8, 0:16]", \
"[0:1, 4:8, 0:8, 0:16]"] room=[["L1", "data", "1280+1047296"]] staging="0+8388608"
      here core=0 tensor="conv0.out" place="L1@0+1280 [0:1, 0:5, 0:8, 0:16]"
      here core=1 tensor="conv0.out" place="L1@0+1280 [0:1, 3:8, 0:8, 0:16]"
      source tensor="x" places=["DDR@0+2048 [0:1, 0:8, 0:8, 0:16]"]
      exchange place="LLB@0+2048 [0:1, 0:8, 0:8, 0:16]"
      round boxes=["[0:1, 0:4, 0:8, 0:16]", "[0:1, 4:8, 0:8, 0:16]"] in=[["conv0.w", "+0+4608 [0:3, 0:3, 0:16, \
0:16]"], ["conv0.b", "+4608+32 [0:16]"], ["x", "+4640+2048 [0:1, 0:8, 0:8, 0:16]"]] out=[] loaded_bytes=6688 \
size_bytes=6688
    layer name="conv1" slot=2 ops=["conv1"] output="conv1.out" cores=[0, 1] boxes=["[0:1, 0:4, 0:8, 0:16]", \
"[0:1, 4:8, 0:8, 0:16]"] room=[["L1", "data", "1280+1047296"]] staging="0+8388608"
      here core=0 tensor="conv0.out" place="L1@0+1280 [0:1, 0:5, 0:8, 0:16]"
      here core=1 tensor="conv0.out" place="L1@0+1280 [0:1, 3:8, 0:8, 0:16]"
      destination place="DDR@0+2048 [0:1, 0:8, 0:8, 0:16]"
      round boxes=["[0:1, 0:4, 0:8, 0:16]", "[0:1, 4:8, 0:8, 0:16]"] in=[["conv1.w", "+0+4608 [0:3, 0:3, 0:16, \
0:16]"], ["conv1.b", "+4608+32 [0:16]"]] out=[["conv1.out", "+4640+1024 [0:1, 0:4, 0:8, 0:16]"], ["conv1.out", \
"+5664+1024 [0:1, 4:8, 0:8, 0:16]"]] loaded_bytes=4640 size_bytes=6688
"""


def test_a_layout_reads_like_this() -> None:
    assert str(chain()) == TEXT
    assert parse_layout(TEXT) == chain()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(3), chips(), st.sampled_from(LEVELS), st.sampled_from((PLAIN, FOR_SCHEDULING, FOR_CONSTANTS_AHEAD)))
def test_layouts_are_read_back_and_verified(
    network: tuple[Graph, Constants], chip: Chip, level: str, options: LayoutOptions
) -> None:
    graph, constants = network
    ctx = PlanContext(graph, constants, chip, TARGET)
    try:
        plan = make_plan(ctx, planner_of(level))
        layout = lay_out(plan, ctx, options)
    except UserError:
        assume(False)
        raise
    assert parse_layout(str(layout)) == layout
    verify_layout(layout, plan, ctx)


def test_names_may_hold_what_the_form_uses_itself() -> None:
    """Memories and tensors are named by strangers."""
    text = TEXT.replace('"LLB"', '"L@1+2 [0:1]"').replace("LLB@", "L@1+2 [0:1]@").replace("conv0.out", 'a@0+\\"1 [3:4]')
    layout = parse_layout(text)
    assert layout.staging == "L@1+2 [0:1]"
    assert parse_layout(str(layout)) == layout


def test_options_are_part_of_the_text() -> None:
    layout = replace(chain(), options=LayoutOptions(True, False, ("x", "y")))
    assert parse_layout(str(layout)) == layout != chain()
    ahead = replace(chain(), options=FOR_CONSTANTS_AHEAD)
    assert parse_layout(str(ahead)) == ahead != replace(chain(), options=FOR_SCHEDULING)


DAMAGED = {
    "no header": ("layout rounds", "elements rounds", "line 1: needs a complete elements line"),
    "another tag": ("  peak memory", "  peek memory", "line 4: needs layout, a step, a layer or .*; has peek"),
    "a size that does not follow": ("L1@0+1280", "L1@0+1281", r"line 8: .*1281 bytes for .* of conv0.out, .* 1280"),
    "no place": ("L1@0+1280", "L1 at 0", "line 8: needs a complete here line; has .*no place"),
    "no box": ("+2048 [0:1, 0:8, 0:8, 0:16]", "+2048 [0:1, 0:8, 0:8, 0:16", "no place"),
    "a box backwards": ("0:5, 0:8", "5:0, 0:8", "ends before it begins"),
    "a number too long": ("L1@0+1280", f"L1@{'9' * 5000}+1280", "no number of at most 18 digits"),
    "a core that is not there": ("here core=1", "here core=7", "line 9: needs a complete here line; has KeyError"),
    "a tensor without a size": ('tensor="conv0.out" place', 'tensor="q" place', "KeyError\\('q'\\)"),
    "steps out of order": ("step number=0", "step number=1", "line 6: .*number 1 of step 0"),
    "a layer before a step": ("  step number=0", "  # step", "line 7: needs a complete layer line"),
    "a flag that is none": ("rounds_ahead=false", "rounds_ahead=0", "true or false, not 0"),
    "too many axes": ("0:5, 0:8, 0:16", ", ".join(["0:1"] * 70), "more than 64 axes"),
    "a number of 5000 digits": ("slot=0", f"slot={'9' * 5000}", "line 7: needs a JSON value for slot"),
}  # fmt: skip


@pytest.mark.parametrize(("there", "damage", "said"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_line_is_named(there: str, damage: str, said: str) -> None:
    assert there in TEXT
    with pytest.raises(TextError, match=said):
        parse_layout(TEXT.replace(there, damage, 1))


@pytest.mark.parametrize("number", range(len(TEXT.splitlines())))
def test_a_text_that_is_cut_off_anywhere_is_refused_or_another_layout(number: int) -> None:
    """Nothing but TextError, and nothing that is taken for the whole."""
    short = "\n".join(TEXT.splitlines()[:number])
    with suppress(TextError):
        assert parse_layout(short) != chain()
