"""Loops that the accelerator unrolls itself: against numpy, against the instructions that they stand for, their faults,
their times, and layers that become loops.

The programs of `drawn_loops` leave equal bytes on the generator's functional model; see docs/gemmini.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from codegen.gemmini.emit.core_code import stream_code
from codegen.gemmini.emit.executable import end_code, start_code
from codegen.gemmini.isa.convolution_loops import ConvolutionLoop
from codegen.gemmini.isa.geometry import DEFAULT, ArrayGeometry
from codegen.gemmini.isa.matrix_loops import MatrixLoop
from codegen.gemmini.isa.unrolled import AcceleratorLoop
from codegen.gemmini.kernels.accelerator_loops import loop_items
from codegen.gemmini.simulator.machine import simulate
from codegen.gemmini.streams.streams import Do, Item, once
from codegen.gemmini.target import TARGET
from codegen.gemmini.timing.issue import loop_cycles
from dsa_sched.pipeline.driver import compile_clusters
from dsa_sched.stages.compilation import CompileOptions, Lowered
from dsa_sched.verification.verify import VerifyOptions, verify_model
from hw_models.loading import load_chip
from isched.timing.cycle_model import time_program, time_streams
from partitioner.planners.levels import O0, O3
from tests.codegen.gemmini.drawn_convolutions import drawn_convolutions
from tests.codegen.gemmini.drawn_loops import DrawnLoops, drawn_loops
from tests.codegen.gemmini.quantised_networks import convolution, product, residual
from tests.codegen.gemmini.test_machine import IN, OUT, executable, named, ran
from tests.small_models import save

CHIP = load_chip("gemmini")


@pytest.mark.parametrize("seed", range(8))
def test_loops_leave_what_numpy_and_single_instructions_leave(seed: int) -> None:
    drawn = drawn_loops(seed)
    for program in (drawn.executable, drawn.explicit):
        holds(program, drawn)


def holds(program: bytes, drawn: DrawnLoops) -> None:
    result = simulate(program, drawn.loads)
    assert result.fault == ""
    assert {start: result.read(start, len(data)) for start, data in drawn.results.items()} == drawn.results


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(8, 60))])
def test_loops_over_convolutions_leave_what_numpy_leaves(seed: int) -> None:
    drawn = drawn_convolutions(seed)
    holds(drawn.executable, drawn)


def items(loop: AcceleratorLoop) -> tuple[Item, ...]:
    return loop_items(loop, DEFAULT)


A_BYTES = bytes(range(256)) * 4
SETTINGS = (
    once("config_ex", weight_stationary=1, a_stride=1, c_stride=1),
    *(once("config_ld", state=state, pixels_per_row=1, block_rows=16, scale=1.0, stride=20) for state in (0, 1)),
    once("config_ld", state=2, pixels_per_row=1, block_rows=16, scale=1.0),
    once("config_st", stride=20, scale=0.001),
)
LOOP = MatrixLoop(20, 20, 20, IN, IN + 512, 0, OUT, 20, 20, 0, 20, 1, 1)


def field(**values: int) -> tuple[Item, ...]:
    """A loop with other fields of its last instruction, by itself."""
    *settings, last = LOOP.operations(16)
    return (*items(LOOP)[: len(settings)], once(last[0], **{**last[1], **values}))


def bounds(**values: int) -> tuple[Item, ...]:
    first, *_ = LOOP.operations(16)
    return (once(first[0], **{**first[1], **values}), *items(LOOP)[1:])


FAULTS = {
    "only the loop": (items(LOOP)[-1:], "strides were not all set since the loop before"),
    "no new settings": ((*items(LOOP), *items(LOOP)[-1:]), "were not all set since the loop before"),
    "one setting missing": (items(LOOP)[1:], "were not all set since the loop before"),
    "no blocks": (bounds(k=0), "the fields contradict each other"),
    "nothing of the last block": (bounds(pad_j=16), "the fields contradict each other"),
    "half a scratchpad": (bounds(i=4, j=4, k=65), "its blocks fill more than half of the scratchpad or of the accumul"),
    "half an accumulator": (bounds(i=11, j=3, k=1), "its blocks fill more than half"),
    "a third half": (field(a_half=3), "the fields contradict each other"),
    "two transposes": (field(transpose_a=1, transpose_b=1), "the fields contradict each other"),
    "norms": (field(activation=2), "this is not simulated"),
    "factors that nobody brought": (items(replace(LOOP, a=0)), "local row 0 has elements that were not"),
    "sums that nobody made": (items(replace(LOOP, accumulates=True)), "local row 0 has elements that were"),
    "outputs stationary": ((once("config_ex", a_stride=1, c_stride=1), *items(LOOP)), "contradict each other"),
    "bytes that nobody wrote": (items(replace(LOOP, b=IN + 1000)), "were not written"),
    "outside": (items(replace(LOOP, a=0x1000)), "0x1000 is not memory"),
    "a result in place of a factor": (items(replace(LOOP, c=IN)), "were moved out, and no fence has waited"),
    "a result that is read again": (
        (*items(LOOP), *items(replace(LOOP, a=OUT, c=OUT + 1024, a_half=2))),
        "were moved out, and no fence has waited",
    ),
}  # fmt: skip


CONVOLUTION = ConvolutionLoop(
    weights=IN + 512, output=OUT, bias=IN, input=IN, in_rows=6, in_columns=6, in_channels=4, out_rows=4, out_columns=4,
    out_channels=8, in_stride=4, weight_stride=8, out_stride=8, rows=4, columns=4, part_channels=8, kernel=3,
    kernel_rows=3, kernel_columns=3, kernel_channels=4, a_half=1, b_half=2,
)  # fmt: skip
LATER = replace(CONVOLUTION, output=OUT + 1024)
CONVOLUTION_FAULTS = {
    "only the loop": (items(CONVOLUTION)[-1:], "were not all set since the loop before"),
    "one setting missing": (items(CONVOLUTION)[1:], "were not all set since the loop before"),
    "no rows": (items(replace(CONVOLUTION, rows=0)), "the fields contradict each other"),
    "no half": (items(replace(CONVOLUTION, a_half=0)), "the fields contradict each other"),
    "more padding than patch": (items(replace(CONVOLUTION, top=9)), "the fields contradict each other"),
    "thinned out with taps": (items(replace(CONVOLUTION, stride=2, downsample=1)), "contradict each other"),
    "half a scratchpad": (items(replace(CONVOLUTION, kernel_channels=1600)), "fill more than half of the scratchpad"),
    "half an accumulator": (items(replace(CONVOLUTION, part_channels=600)), "fill more than half of the scratchpad"),
    "a kernel turned round": (items(replace(CONVOLUTION, rotated=1)), "this is not simulated"),
    "nothing added": (items(replace(CONVOLUTION, bias=0)), "something must be added once before each time"),
    "added twice": (
        (*items(replace(CONVOLUTION, output=0)), *items(CONVOLUTION)), "something must be added once before each time"
    ),
    "a patch that nobody brought": (items(replace(CONVOLUTION, input=0)), "has elements that were not written"),
    "weights that nobody brought": (items(replace(CONVOLUTION, weights=0)), "has elements that were not written"),
    "bytes that nobody wrote": (items(replace(CONVOLUTION, input=IN + 1000)), "were not written"),
    "outside": (items(replace(CONVOLUTION, weights=0x1000)), "0x1000 is not memory"),
    "a result in place of the input": (items(replace(CONVOLUTION, output=IN)), "were moved out, and no fence has"),
    "a result that is read again": (
        (*items(CONVOLUTION), *items(replace(LATER, input=OUT))), "were moved out, and no fence has waited"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTION_FAULTS)
def test_a_fault_of_a_loop_over_a_convolution_names_it(name: str) -> None:
    faulty, said = CONVOLUTION_FAULTS[name]
    result = ran((*SETTINGS, *faulty), A_BYTES)
    assert said in result.fault
    assert result.fault.startswith(f"pc {result.pc:#x}, loop_conv_ws ")


@pytest.mark.parametrize(
    "loop",
    [replace(CONVOLUTION, rows=2000, columns=1, kernel_rows=2000, kernel_columns=1, kernel_channels=1),
     MatrixLoop(1448, 1448, 724, IN, IN, 0, OUT, 724, 1448, 0, 1448, 1, 1)],
)  # fmt: skip
def test_a_program_for_a_larger_array_may_not_ask_for_any_number_of_products(loop: AcceleratorLoop) -> None:
    """All of its instructions would be made at once."""
    larger = ArrayGeometry(4, 1 << 20, 1 << 20)
    code = [*start_code(), *stream_code((*SETTINGS, *loop_items(loop, larger))), *end_code()]
    assert "more products of blocks than are simulated" in simulate(executable(code, [named(larger)]), {}).fault


def test_a_loop_over_a_convolution_runs() -> None:
    """What each of its faults is one step away from."""
    assert ran((*SETTINGS, *items(CONVOLUTION), *items(LATER)), A_BYTES).fault == ""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_loop_names_it(name: str) -> None:
    faulty, said = FAULTS[name]
    result = ran((*SETTINGS, *faulty), A_BYTES)
    assert said in result.fault
    assert result.fault.startswith(f"pc {result.pc:#x}, loop_ws ")


def test_unknown_bits_of_a_loop_are_refused() -> None:
    do = items(LOOP)[-1]
    assert isinstance(do, Do)
    unknown = replace(do, second=replace(do.second, value=do.second.value | 1 << 9))
    assert "this is not simulated" in ran((*SETTINGS, *items(LOOP)[:-1], unknown), A_BYTES).fault


def test_a_loop_adds_two_matrices() -> None:
    """Each is scaled and bounded as it is moved in, then their sum is."""
    a, b = np.random.default_rng(3).integers(-128, 128, (2, 20, 20)).astype(np.int8)
    settings = [once("config_ld", state=state, shrunk=1, pixels_per_row=1, block_rows=16, scale=scale, stride=20)
                for state, scale in ((0, 0.5), (1, 1.5))]  # fmt: skip
    loop = MatrixLoop(20, 20, 16, IN, IN + 400, 0, OUT, 20, 20, 0, 20, 1, 1)
    *rest, last = loop.operations(16)
    sums = (*items(loop)[: len(rest)], once(last[0], **{**last[1], "addition": 1}))
    out = once("config_st", stride=20, scale=0.75, activation=1)
    result = ran((*SETTINGS, *settings, out, *sums), a.tobytes() + b.tobytes())
    assert result.fault == ""
    parts = [np.clip(np.rint(x.astype(np.float32) * np.float32(s)), -128, 127) for x, s in ((a, 0.5), (b, 1.5))]
    total = np.clip(np.rint(sum(parts) * np.float32(0.75)), 0, 127).astype(np.int8)
    assert result.read(OUT, 400) == total.tobytes()


def timed(loops: tuple[MatrixLoop, ...], settings: tuple[Item, ...] = SETTINGS) -> float:
    """Cycles of machine code, by the cycle model."""
    code = [*start_code(), *stream_code((*settings, *(item for loop in loops for item in items(loop)))),
            *end_code()]  # fmt: skip
    return time_streams(TARGET.trace(executable(code), 1, CHIP), CHIP).cycles


def test_the_loads_of_a_loop_run_while_the_one_before_it_computes() -> None:
    """Two loops take less than twice what one takes, by what the shorter of loading and computing takes."""
    loop = MatrixLoop(128, 64, 512, IN, IN + (1 << 16), 0, OUT, 512, 64, 0, 64, 1, 1)
    other = replace(loop, a=IN + (1 << 18), b=IN + (1 << 20), c=OUT + (1 << 21), a_half=2, b_half=2)
    load, array, _ = loop_cycles(loop, CHIP)
    saved = 2 * timed((loop,)) - timed((loop, other))
    assert 0.9 * min(load, array) < saved < load + array


def test_loops_in_the_same_half_wait_for_each_other() -> None:
    loop = MatrixLoop(128, 64, 512, IN, IN + (1 << 16), 0, OUT, 512, 64, 0, 64, 1, 1)
    other = replace(loop, a=IN + (1 << 18), b=IN + (1 << 20), c=OUT + (1 << 21))
    apart = timed((loop, replace(other, a_half=2, b_half=2)))
    load, array, _ = loop_cycles(loop, CHIP)
    assert timed((loop, other)) - apart > 0.9 * min(load, array)


BECOMES_LOOPS: dict[str, tuple[str, Callable[[], onnx.ModelProto]]] = {
    "one tap": ("loop_ws", lambda: convolution(24, 28, 64, 64)),
    "taps": ("loop_conv_ws", lambda: convolution(20, 19, 40, 64, kernel=3, pad=1)),
    "every second pixel": ("loop_conv_ws", lambda: convolution(29, 27, 64, 64, stride=2)),
    "few channels": ("loop_conv_ws", lambda: convolution(40, 44, 3, 32, kernel=7, pad=3, stride=2)),
}


@pytest.mark.parametrize("name", BECOMES_LOOPS)
def test_a_layer_becomes_loops_where_these_are_faster(name: str, tmp_path: Path) -> None:
    loop, model = BECOMES_LOOPS[name]
    path = save(model(), tmp_path / "net.onnx")
    (part,) = compile_clusters(path, "gemmini", CompileOptions(O0()))
    assert isinstance(part.made, Lowered)
    program = part.made.program
    (decision,) = program.decisions
    assert decision.verdict.endswith(f"by {loop}")
    assert "cycles by the cycle model; " in decision.reason
    opcodes = [instr.opcode for instr in program.streams[0].instrs if instr.source == decision.subject]
    assert {"loop.load", "loop.compute", "loop.store"} <= set(opcodes)
    assert "compute" not in opcodes
    read = TARGET.trace(part.files.files[part.files.executable], 1, CHIP)
    assert time_streams(read, CHIP).cycles == time_program(program, CHIP, TARGET).cycles


@pytest.mark.parametrize("extents", [(1, 16, 16), (40, 20, 300)])
def test_the_form_of_a_layer_is_the_faster_one(extents: tuple[int, int, int], tmp_path: Path) -> None:
    """By the two numbers of the decision, which are those of each form alone."""
    (part,) = compile_clusters(save(product(*extents), tmp_path / "net.onnx"), "gemmini", CompileOptions(O0()))
    assert isinstance(part.made, Lowered)
    (decision,) = part.made.program.decisions
    cycles = [float(number.replace(",", "")) for number in re.findall(r"([\d,]*\d)(?: cycles|;|$)", decision.reason)]
    assert len(cycles) >= 2
    assert cycles[0] == min(cycles)


LOOPED: dict[str, Callable[[], onnx.ModelProto]] = {
    "bias": lambda: convolution(24, 24, 64, 80),
    "odd extents": lambda: product(330, 200, 217, relu=True),
    "no bias": lambda: convolution(20, 21, 33, 90),
    "deep": lambda: product(100, 2100, 70),
    "a value that is added": residual,
    "images and taps": lambda: convolution(14, 9, 48, 40, kernel=3, pad=1),
    "few channels": lambda: convolution(37, 33, 3, 24, kernel=5, pad=2, stride=2),
    "every second pixel": lambda: convolution(23, 17, 40, 80, stride=2),
    "taps apart": lambda: convolution(20, 18, 24, 72, kernel=3, pad=2, dilation=2),
    "deep taps": lambda: convolution(7, 7, 300, 70, kernel=3, pad=1),
}


@pytest.mark.parametrize("name", LOOPED)
@pytest.mark.parametrize("chip", ["gemmini", "gemmini_32"])
def test_layers_of_loops_hold(name: str, chip: str, tmp_path: Path) -> None:
    path = save(LOOPED[name](), tmp_path / "net.onnx")
    for level in (O0(), O3()):
        report = verify_model(path, chip, CompileOptions(level), VerifyOptions(samples=64))
        assert report.failures == ()
