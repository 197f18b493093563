"""Depthwise convolutions in each of their forms: every output bit is what the reference says, and roughly right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from codegen.neuralscale.instructions.arithmetic import FP16
from codegen.neuralscale.instructions.depthwise_forms import DepthwiseForm, block_parts, depthwise_form, form_cycles
from codegen.neuralscale.target import TARGET
from codegen.neuralscale.templates import depthwise
from hw_models.chip import Chip
from tests.chip_runs import Compiled, compile_graph, small_chip, stcp920
from tests.float_model import evaluate, relative_error
from tests.small_graphs import GraphBuilder, Pads


@dataclass(frozen=True)
class Case:
    shape: tuple[int, int, int, int]
    kernel: tuple[int, int] = (3, 3)
    stride: int = 1
    pads: Pads = (1, 1, 1, 1)
    dilation: int = 1
    bias: bool = True


CASES = {
    "64 channels": Case((1, 9, 10, 64)),
    "37 channels in a batch of 2, stride 2": Case((2, 9, 9, 37), stride=2),
    "5 channels, dilation 2": Case((1, 11, 9, 5), dilation=2, pads=(2, 2, 2, 2)),
    "asymmetric padding, no bias": Case((1, 8, 7, 33), pads=(0, 1, 2, 0), bias=False),
    "2x5": Case((1, 6, 9, 40), (2, 5), pads=(0, 2, 1, 2)),
    "cut by channels inside blocks": Case((2, 4, 4, 101)),
    "kernel larger than the image": Case((1, 2, 3, 40), (5, 5), pads=(2, 2, 2, 2)),
}


# Cycles that an instruction takes to start on the matrix and on the vector engine, so that each form costs least.
STARTS = {DepthwiseForm.EACH: (0.0, 1e4), DepthwiseForm.BLOCKS: (1e7, 1.5e6), DepthwiseForm.VECTOR: (1e7, 0.0)}


def chip_for(form: DepthwiseForm, chip: Chip) -> Chip:
    """The chip with such latencies that `form` costs least."""
    starts = STARTS[form]
    matrix = chip.matrix.model_copy(update={"start_latency_cycles": starts[0]})
    vector = chip.vector.model_copy(update={"start_latency_cycles": starts[1]})
    engines = tuple(
        matrix if engine.kind == "matrix" else vector if engine.kind == "vector" else engine for engine in chip.engines
    )
    return chip.model_copy(update={"engines": engines})


def compiled(case: Case, chip: Chip) -> Compiled:
    builder = GraphBuilder("depthwise")
    channels = case.shape[3]
    x = builder.input("x", *case.shape)
    y = builder.conv(x, channels, case.kernel, case.stride, case.pads, case.bias, case.dilation, channels)
    return compile_graph(*builder.build(builder.elementwise("relu", y)), chip)


def form_of(done: Compiled) -> DepthwiseForm:
    return depthwise_form(done.graph, done.graph.ops[0], done.chip)


@pytest.mark.parametrize("form", DepthwiseForm)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.commit
def test_every_form_stores_the_bits_of_the_reference(case: Case, form: DepthwiseForm) -> None:
    done = compiled(case, chip_for(form, small_chip(2)))
    assert form_of(done) is form
    stored = done.check()
    values = evaluate(done.graph, done.constants, done.inputs())
    (name,) = done.graph.outputs
    assert relative_error(stored[name].view("float16"), values[name]) < 3e-3


@pytest.mark.parametrize("form", DepthwiseForm)
def test_a_small_chip_cuts_the_layer_and_stores_the_same_bits(form: DepthwiseForm) -> None:
    """Tiles that begin inside blocks: what is stored does not depend on them."""
    case = Case((1, 12, 12, 70))
    large = compiled(case, chip_for(form, small_chip(2)))
    small = compiled(case, chip_for(form, small_chip(2, 1 << 14, 1 << 17, 1 << 13)))
    assert form_of(small) is form_of(large) is form
    (name,) = large.graph.outputs
    np.testing.assert_array_equal(small.check()[name], large.check()[name])


@pytest.mark.parametrize("form", DepthwiseForm)
def test_an_infinity_spoils_its_block_where_blocks_are_used(form: DepthwiseForm) -> None:
    done = compiled(Case((1, 5, 5, 70)), chip_for(form, small_chip(2)))
    inputs = done.inputs()
    inputs["x"][0, 2, 2, 3] = 0x7C00
    stored = done.run(inputs)
    ((got, wanted),) = done.expected(stored).values()
    np.testing.assert_array_equal(got, wanted)
    conv = got.reshape(5, 5, 70)[2, 2].view(np.float16)
    assert np.isnan(conv[4:32]).all() == (form is DepthwiseForm.BLOCKS)
    assert np.isfinite(conv[32:]).all()


@pytest.mark.parametrize(
    ("shape", "form"),
    [
        ((1, 56, 56, 64), DepthwiseForm.BLOCKS),
        ((1, 7, 7, 544), DepthwiseForm.VECTOR),
        ((1, 9, 9, 8), DepthwiseForm.EACH),
    ],
    ids=["many pixels a core", "few pixels a core", "a channel a core"],
)
def test_the_stcp920_takes_the_cheapest_form(
    shape: tuple[int, int, int, int], form: DepthwiseForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The busiest core of the layer as compiled has fewest engine cycles in the form that is chosen."""
    chosen = compiled(Case(shape), stcp920())
    assert form_of(chosen) is form
    cycles = {form: busiest(chosen)}
    for other in set(DepthwiseForm) - {form}:
        monkeypatch.setattr(depthwise, "depthwise_form", lambda *_, other=other: other)
        cycles[other] = busiest(compiled(Case(shape), stcp920()))
    assert min(cycles, key=cycles.__getitem__) is form, cycles


def busiest(done: Compiled) -> float:
    return max(
        sum(instr.cycles for instr in stream.instrs if instr.engine in ("matrix", "vector"))
        for stream in done.program.streams
    )


def test_blocks_are_not_offered_where_their_matrices_do_not_fit() -> None:
    chip = chip_for(DepthwiseForm.BLOCKS, small_chip(weights_bytes=1 << 15))
    assert form_of(compiled(Case((1, 9, 9, 64)), chip)) is not DepthwiseForm.BLOCKS


def test_the_cycles_of_the_work_are_those_of_the_instructions() -> None:
    """Without borders (taps that the vector form skips) planned and issued cycles of the anchor are the same."""
    case = Case((1, 10, 10, 70), pads=(0, 0, 0, 0), bias=False)
    for form in DepthwiseForm:
        done = compiled(case, chip_for(form, small_chip(1)))
        (stream,) = done.program.streams
        instrs = [instr for instr in stream.instrs if instr.source == "conv0"]
        planned = dict.fromkeys(("matrix", "vector"), 0.0)
        for engine, cycles in form_cycles(done.chip, FP16, form, 9, (1, 8, 8), (0, 70), 70):
            planned[engine] += cycles
        for engine, cycles in planned.items():
            assert sum(i.cycles for i in instrs if i.engine == engine) == cycles, (form, engine)


def test_blocks_are_counted_from_the_first_channel_of_the_layer() -> None:
    parts = block_parts((30, 101), 101, 32)
    assert [(p.first, p.size, p.low, p.high) for p in parts] == [
        (0, 32, 30, 32),
        (32, 32, 0, 32),
        (64, 32, 0, 32),
        (96, 5, 0, 5),
    ]
    assert [p.fresh for p in parts] == [True, True, True, True]
    assert [p.fresh for p in block_parts((0, 128), 128, 32)] == [True, True, False, False]


def test_no_form_changes_what_is_accepted() -> None:
    builder = GraphBuilder("accepted")
    y = builder.conv(builder.input("x", 1, 8, 8, 4), 4, groups=4)
    graph, constants = builder.build(y)
    assert TARGET.accepts(graph, graph.ops[0], constants, stcp920()) is None
