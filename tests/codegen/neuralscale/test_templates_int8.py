"""Layers of int8 on the simulated chip: what is stored is what the emulation and a plain formula say, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegen.neuralscale.instructions.depthwise_forms import DepthwiseForm, depthwise_form
from codegen.neuralscale.target import TARGET
from dsa_sched.frontend import Model
from dsa_sched.pipeline import driver
from dsa_sched.stages.compilation import CompileOptions
from hw_models.chip import Chip
from hw_models.errors import ModelError
from hw_models.parts import MatrixEngine, VectorEngine
from partitioner.ir.graph import Constants, Graph
from partitioner.ir.quantisation import Quantisation
from tests.chip_runs import Compiled, compile_graph, small_chip, stcp920
from tests.exact_integers import as_numbers, evaluate_exactly, rounded
from tests.movement_graphs import MovementBuilder
from tests.small_graphs import Pads
from tests.tile_samples import SAMPLES, sample_chip

LEVELS = ("O0", "O1", "O2", "O3", "streamed")
LIMITED = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def judge(compiled: Compiled, seed: int = 0) -> dict[str, np.ndarray]:
    """Results of a run on random inputs, which must be those of the emulation and of the formulas."""
    graph = compiled.graph
    stored = compiled.check_results(seed)
    given = {name: as_numbers(graph, name, bits) for name, bits in compiled.inputs(seed).items()}
    wanted = evaluate_exactly(graph, compiled.constants, given)
    for name in graph.outputs:
        np.testing.assert_array_equal(as_numbers(graph, name, stored[name]), wanted[name], err_msg=name)
    return stored


def factors(b: MovementBuilder, products: int, *shape: int) -> str:
    """Scales that bring sums of this many products of int8 to a range of about a hundred."""
    unit = 100.0 / (5_500.0 * products**0.5)
    return b.constant(f"factors{len(b.tensors)}", b.rng.uniform(0.5 * unit, unit, shape))


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
    scales: int = 0  # 0 for one per channel


CASES = {
    "3x3": Case((1, 14, 14, 16), 32),
    "no bias, one scale": Case((1, 8, 8, 16), 32, bias=False, scales=1),
    "one scale": Case((1, 8, 8, 16), 32, scales=1),
    "stride 2, odd extents": Case((1, 15, 13, 16), 24, stride=2),
    "1x1 in a batch of 2, channels that do not divide": Case((2, 7, 9, 40), 70, (1, 1), pads=(0, 0, 0, 0)),
    "asymmetric padding": Case((1, 11, 10, 8), 16, pads=(0, 1, 2, 0)),
    "dilation 2": Case((1, 13, 17, 8), 16, pads=(2, 2, 2, 2), dilation=2),
    "stride larger than the kernel": Case((2, 23, 24, 8), 16, (2, 2), stride=3, pads=(0, 0, 0, 0)),
    "1x3": Case((1, 9, 9, 12), 12, (1, 3), pads=(0, 1, 0, 1)),
    "two channels of each": Case((1, 9, 9, 2), 2),
    "wide image": Case((1, 5, 1500, 6), 8),
    "four groups": Case((2, 9, 9, 24), 40, groups=4),
    "groups cut inside and across by the cores": Case((1, 4, 4, 12), 108, groups=2),
    "depthwise": Case((2, 9, 9, 24), 24, groups=24),
    "depthwise, wide": Case((1, 28, 28, 96), 96, groups=96),
    "depthwise, stride 2, 5x5": Case((1, 11, 11, 70), 70, (5, 5), 2, (2, 2, 2, 2), groups=70, scales=1),
    "reduction of 8,190, whole": Case((2, 3, 2, 8190), 66, (1, 1), pads=(0, 0, 0, 0)),
}


@pytest.mark.spread(12)
@pytest.mark.parametrize("narrow", [False, True], ids=["to fp16", "to int8"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_convolution(case: Case, narrow: bool) -> None:
    b = MovementBuilder("convolution")
    x = b.input("x", *case.shape, dtype="int8")
    factor = factors(b, case.kernel[0] * case.kernel[1] * case.shape[3] // case.groups, case.scales or case.channels)
    how = (case.channels, case.kernel, case.stride, case.pads, case.bias, case.dilation, case.groups)
    y = b.conv(x, *how, factor=factor)
    judge(compile_graph(*b.build(b.narrow(y) if narrow else y)))


def test_depthwise_forms() -> None:
    """One by one, and in blocks; the vector engine has no exact sums."""
    found = set()
    for rows, channels in ((28, 96), (9, 24)):
        b = MovementBuilder("depthwise")
        x = b.input("x", 1, rows, rows, channels, dtype="int8")
        y = b.conv(x, channels, groups=channels, factor=factors(b, 9, channels))
        compiled = compile_graph(*b.build(b.narrow(y)))
        found.add(depthwise_form(compiled.graph, compiled.graph.ops[0], compiled.chip))
    assert found == {DepthwiseForm.EACH, DepthwiseForm.BLOCKS}


@pytest.mark.parametrize("scales", [0, 1], ids=["a scale per column", "one scale"])
@pytest.mark.parametrize(
    ("shape", "columns"), [((1, 50), 76), ((3, 50), 76), ((40, 8), 2), ((2, 3, 17, 40), 18), ((97, 300), 128)]
)
def test_product_with_a_constant(shape: tuple[int, ...], columns: int, scales: int) -> None:
    b = MovementBuilder("gemm")
    x = b.input("x", *shape, dtype="int8")
    y = b.matmul(x, b.integers(shape[-1], columns), factor=factors(b, shape[-1], scales or columns))
    judge(compile_graph(*b.build(y)))


@pytest.mark.parametrize("shape", [(17, 40), (2, 3, 17, 40), (8, 1, 6)])
def test_product_of_two_computed_values(shape: tuple[int, ...]) -> None:
    b = MovementBuilder("product")
    a = b.input("a", *shape, dtype="int8")
    c = b.input("b", *shape[:-2], shape[-1], 18, dtype="int8")
    y = b.matmul(a, c, bias=False, factor=factors(b, shape[-1], 18))
    judge(compile_graph(*b.build(b.narrow(y))))


@pytest.mark.parametrize("narrow", [False, True], ids=["to fp16", "to int8"])
@pytest.mark.parametrize("scales", [1, 6], ids=["one scale", "a scale per column"])
def test_long_reductions_are_scaled_run_by_run(scales: int, narrow: bool) -> None:
    """20,000 products make three runs, whose scaled sums are added in order, then the bias."""
    b = MovementBuilder("long")
    x = b.input("x", 3, 20_000, dtype="int8")
    weights, factor = b.integers(20_000, 6), factors(b, 20_000, scales)
    y = b.matmul(x, weights, factor=factor)
    graph, constants = b.build(b.narrow(y, "truncate") if narrow else y)
    compiled = compile_graph(graph, constants)
    stored = compiled.check_results()
    w, f, bias = (constants[graph.by_name[name].constant].astype(float) for name in graph.ops[0].inputs[1:])
    numbers, total = as_numbers(graph, "x", compiled.inputs()["x"]), None
    for low, high in ((0, 6666), (6666, 13332), (13332, 20_000)):
        part = rounded((numbers[:, low:high] @ w[low:high]) * f)
        total = part if total is None else rounded(total + part)
    wanted = rounded(total + bias)
    got = as_numbers(graph, graph.outputs[0], stored[graph.outputs[0]])
    np.testing.assert_array_equal(got, np.clip(np.trunc(wanted), -128, 127) if narrow else wanted)


@pytest.mark.parametrize("scales", [1, 8])
def test_scales_below_the_normal_numbers(scales: int) -> None:
    """Scales of 2^-15 to 2^-24 are exact; products round in steps of 2^-24 where they are as small."""
    b = MovementBuilder("small")
    x = b.input("x", 1, 5, 5, 16, dtype="int8")
    factor = b.constant("factor", 2.0 ** -np.linspace(24, 15, scales).round() * 1.0)
    judge(compile_graph(*b.build(b.conv(x, 8, bias=False, factor=factor))))


def test_one_scale_is_multiplied_by_the_matrix_engine() -> None:
    """Then the vector engine has one pass less, and the sums in IM are fp16."""
    found = {}
    for scales in (1, 8):
        b = MovementBuilder("scales")
        y = b.conv(b.input("x", 1, 5, 5, 16, dtype="int8"), 8, bias=False, factor=factors(b, 144, scales))
        y = b.matmul(b.view(b.narrow(y), 1, 200), b.integers(200, 8), bias=False, factor=factors(b, 200, scales))
        compiled = compile_graph(*b.build(y), chip=small_chip(1))
        instrs = compiled.program.streams[0].instrs
        found[scales] = [instr.opcode for instr in instrs if instr.engine == "matrix" or ".x32." in instr.opcode]
        judge(compiled)
    assert found[1] == ["meconv.hf.x8.mm", "memul.hf.x8.mm"]
    assert found[8] == ["meconv.x8.mm", "veemul.x32.mv", "memul.x8.mm", "veemul.x32.mv"]


def test_sums_beyond_fp16_are_scaled_first() -> None:
    b = MovementBuilder("large")
    x = b.input("x", 2, 4000, dtype="int8")
    y = b.matmul(
        x, b.constant("w", np.full((4000, 4), 127), "int8"), bias=False, factor=b.constant("f", np.array([0.5]))
    )
    stored = judge(compile_graph(*b.build(y)))
    assert np.isinf(stored[y].view(np.float16)).any()


SPECIAL = (0.5, -0.5, 1.5, -1.5, 2.4999, -2.5, 126.5, 127.5, 128.0, -128.5, -129.0, 511.5, -511.5, 65504.0, -65504.0)


@pytest.mark.parametrize(("rounding", "centre"), [("nearest", 0), ("nearest", -128), ("nearest", 7), ("truncate", 0)])
@pytest.mark.parametrize("after", [False, True], ids=["alone", "after another operator"])
def test_narrow(rounding: str, centre: int, after: bool) -> None:
    """To the nearest integer with ties up, plus the integer zero, or toward zero; beyond int8 to its ends, NaN to 0."""
    b = MovementBuilder("narrow")
    x = b.input("x", 2, 500)
    y = b.narrow(b.elementwise("mul", x, b.constant("c", np.array([1.0]))) if after else x, rounding, centre)
    compiled = compile_graph(*b.build(y))
    numbers = np.random.default_rng(1).uniform(-140, 140, (2, 500)).astype(np.float16)
    numbers[0, :18] = (*SPECIAL, np.nan, np.inf, -np.inf)
    stored = compiled.run({"x": numbers.view(np.uint16)})
    np.testing.assert_array_equal(stored[y], compiled.emulated({"x": numbers.view(np.uint16)})[y])
    wide = np.nan_to_num(numbers.astype(np.float64), nan=0.0, posinf=1e6, neginf=-1e6)
    wide = np.clip(wide, -3000, 3000)  # as good as without end
    integers = np.trunc(wide) if rounding == "truncate" else rounded(rounded(wide + 1536.0) + (centre - 1536.0))
    integers = np.where(np.isnan(numbers), 0, np.clip(integers, -128, 127))
    np.testing.assert_array_equal(stored[y].view(np.int8), np.trunc(integers))


def test_only_rounded_numbers_are_shifted() -> None:
    b = MovementBuilder("narrow")
    y = b.narrow(b.input("x", 2, 8), "truncate", 3)
    assert "a centre is added to rounded numbers alone" in refused(b, y)


def test_quantise_and_dequantise() -> None:
    """fp16 -> int8 -> fp16 keeps values to half a step; tensors say what their integers mean."""
    b = MovementBuilder("quantised")
    x = b.input("x", 1, 9, 7, 6)
    q = b.narrow(
        b.elementwise(
            "add", b.elementwise("mul", x, b.constant("c", np.array([20.0]))), b.constant("z", np.array([3.0]))
        )
    )
    position = next(i for i, tensor in enumerate(b.tensors) if tensor.name == q)
    tensor = b.tensors[position]
    b.tensors[position] = type(tensor)(
        tensor.name, tensor.shape, "int8", tensor.axes, "int8", "", Quantisation((0.05,), (3,))
    )
    centred = b.elementwise("add", b.widen(q), b.constant("y", np.array([-3.0])))
    y = b.elementwise("mul", centred, b.constant("d", np.array([0.05])))
    compiled = compile_graph(*b.build(y))
    stored = judge(compiled)
    assert [layer.ops for group in compiled.plan.groups for layer in group.layers] == [
        ("mul0", "add1", "narrow2"),
        ("widen3", "add4", "mul5"),
    ]
    given, back = (bits.view(np.float16).astype(float) for bits in (stored["x"], stored[y]))
    assert np.abs(given - back).max() < 0.027


def quantised_block(b: MovementBuilder, x: str, channels: int) -> str:
    """A residual block: conv, relu, conv, sum with the input, relu."""
    inner = b.conv(x, channels, factor=factors(b, 9 * b.shape(x)[3], channels))
    inner = b.narrow(b.elementwise("clip", inner, attributes=(("min", 0.0), ("max", 127.0))), "truncate")
    outer = b.conv(inner, b.shape(x)[3], factor=factors(b, 9 * channels, b.shape(x)[3]))
    return b.narrow(b.elementwise("relu", b.add_scaled(outer, x, 0.37)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.commit
def test_residual_blocks_at_every_level(level: str) -> None:
    b = MovementBuilder("blocks")
    x = b.input("x", 2, 9, 9, 24, dtype="int8")
    y = quantised_block(b, quantised_block(b, x, 40), 36)
    pooled = b.narrow(b.pool("max_pool", b.widen(y), (3, 3), 2), "truncate")
    compiled = compile_graph(*b.build(pooled), level=level)
    layers = [layer.ops for group in compiled.plan.groups for layer in group.layers]
    assert ("conv0", "clip1", "narrow2") in layers
    assert ("conv3", "add_scaled4", "relu5", "narrow6") in layers
    judge(compiled)


@pytest.mark.parametrize("level", ["O0", "O2", "O3"])
@pytest.mark.commit
def test_tiles_cut_along_every_axis(level: str) -> None:
    """Memories so small that images, rows, columns and channels are cut; the last axis always at even places."""
    b = MovementBuilder("tiles")
    x = b.input("x", 2, 10, 34, 38, dtype="int8")
    y = quantised_block(b, x, 70)
    chip = small_chip(cores=3, data_bytes=6 << 10, weights_bytes=12 << 10, im_bytes=2 << 10, llb_bytes=1 << 19)
    judge(compile_graph(*b.build(y), chip=chip, level=level))


@pytest.mark.parametrize("level", ["O0", "O2", "O3"])
def test_readers_at_odd_places(level: str) -> None:
    """A slice of channels 1 to 6 of a converted value, and a pool whose channels are cut at odd places."""
    b = MovementBuilder("odd")
    x = b.input("x", 1, 6, 6, 10, dtype="int8")
    wide = b.elementwise("relu", b.conv(x, 14, factor=factors(b, 90, 14)))
    part = b.slice(wide, (0, 0, 0, 1), (1, 1, 1, 1), (1, 6, 6, 5))
    pooled = b.pool("max_pool", b.widen(x), (2, 2), 2)
    uneven = b.slice(pooled, (0, 1, 0, 3), (1, 1, 1, 2), (1, 2, 3, 4))
    judge(compile_graph(*b.build(part, b.narrow(uneven, "truncate")), level=level))


@pytest.mark.spread(36)
@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "lookup"])  # whose table is of no function
@pytest.mark.commit
def test_every_layer_may_end_in_int8(name: str) -> None:
    """Values are converted in a tile of their own, whatever the anchor; a width that is odd is refused."""
    b = MovementBuilder(name)
    last = SAMPLES[name](b)
    if b.dtype(last) == "int8":
        return
    made = b.build(b.narrow(last, "truncate"))
    if b.shape(last)[-1] % 2:
        with pytest.raises(ModelError, match="moved in units of 2 bytes"):
            compile_graph(*made)
        return
    compiled = compile_graph(*made, chip=sample_chip(name))
    layers = [layer.ops for group in compiled.plan.groups for layer in group.layers]
    assert len(layers[-1]) > 1
    compiled.check_results(scale=4.0)


def test_views_of_int8() -> None:
    b = MovementBuilder("views")
    x = b.input("x", 2, 4, 4, 6, dtype="int8")
    y = b.narrow(b.conv(x, 8, factor=factors(b, 54, 8)))
    judge(
        compile_graph(
            *b.build(b.matmul(b.view(y, 2, 128), b.integers(128, 10), factor=factors(b, 128, 10))), level="O3"
        )
    )


def refused(b: MovementBuilder, *outputs: str) -> str:
    with pytest.raises(ModelError) as error:
        compile_graph(*b.build(*outputs))
    return str(error.value)


def test_refusals() -> None:
    b = MovementBuilder("odd")
    y = b.conv(b.input("x", 1, 5, 5, 3, dtype="int8"), 8, factor=factors(b, 27, 8))
    assert "x has 3 elements along an axis that is moved in units of 2 bytes; pad it" in refused(b, y)
    b = MovementBuilder("odd groups")
    y = b.conv(b.input("x", 1, 5, 5, 6, dtype="int8"), 8, groups=2, factor=factors(b, 27, 8))
    assert "conv0.w" not in refused(b, y)
    b = MovementBuilder("relu")
    y = b.elementwise("relu", b.input("x", 1, 4, dtype="int8"))
    assert "x is int8; here relu takes float16" in refused(b, y)
    b = MovementBuilder("types")
    y = b.matmul(b.input("x", 4, 4, dtype="int8"), b.normal(4, 4), factor=factors(b, 4, 4))
    assert "is float16; here matmul takes int8" in refused(b, y)
    b = MovementBuilder("scale")
    y = b.matmul(b.input("x", 4, 4, dtype="int8"), b.integers(4, 4), bias=False, factor=b.input("s", 1))
    assert "s has shape [1]; a scale has one element per column, or is a constant of one" in refused(b, y)
    b = MovementBuilder("no scale")
    y = b.matmul(b.input("x", 4, 4, dtype="int8"), b.integers(4, 4), bias=False)
    assert "its integer sums have no scale, which is the third operand" in refused(b, y)
    b = MovementBuilder("weights alone")
    y = b.matmul(b.input("x", 4, 4), b.integers(4, 4), bias=False)
    assert "its int8 weights have no scale, which is the third operand" in refused(b, y)
    b = MovementBuilder("several matrices")
    y = b.matmul(b.input("x", 2, 4, 4), b.integers(2, 4, 4), bias=False, factor=factors(b, 4, 4))
    assert "is int8; here matmul takes float16" in refused(b, y)
    b = MovementBuilder("two outputs a channel")
    y = b.conv(b.input("x", 1, 5, 5, 6, dtype="int8"), 12, groups=6, factor=factors(b, 9, 12))
    assert "has 1 elements along an axis that is moved in units of 2 bytes" in refused(b, y)
    b = MovementBuilder("broadcast")
    y = b.add_scaled(b.input("x", 4, 4), b.input("y", 4, dtype="int8"), 1.0)
    assert "y is broadcast; both operands of add_scaled must have one shape" in refused(b, y)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("vector", "int8"), ("vector", "int32"), ("matrix", "int8")], ids=lambda part: part
)
def test_chips_without_a_rate_are_refused(kind: str, dtype: str) -> None:
    """They still compute fp16."""
    chip = stcp920()
    engines = tuple(
        engine.model_copy(update={"rates": tuple(rate for rate in engine.rates if rate.dtype != dtype)})
        if engine.kind == kind and isinstance(engine, MatrixEngine | VectorEngine)
        else engine
        for engine in chip.engines
    )
    chip = chip.model_copy(update={"engines": engines})
    b = MovementBuilder("rates")
    y = b.conv(b.input("x", 1, 5, 5, 4, dtype="int8"), 4, factor=factors(b, 36, 4))
    with pytest.raises(ModelError, match=f"engine {kind} of stcp920 has no rate for {dtype}"):
        compile_graph(*b.build(b.narrow(y)), chip=chip)
    b = MovementBuilder("fp16")
    compile_graph(*b.build(b.elementwise("relu", b.conv(b.input("x", 1, 5, 5, 4), 4))), chip=chip).check()


@st.composite
def chips(draw: st.DrawFn) -> Chip:
    return small_chip(
        cores=draw(st.integers(1, 8)),
        data_bytes=draw(st.sampled_from([1 << 13, 1 << 20])),
        weights_bytes=draw(st.sampled_from([1 << 13, 1 << 18])),
        im_bytes=draw(st.sampled_from([1 << 11, 1 << 18])),
        llb_bytes=draw(st.sampled_from([1 << 16, 1 << 23])),
    )


@st.composite
def mixed_graphs(draw: st.DrawFn) -> tuple[Graph, Constants]:
    """A few layers one after the other, from int8 or fp16 to either, with residual sums where shapes meet."""
    b = MovementBuilder("mixed", seed=draw(st.integers(0, 99)))
    shape = (draw(st.integers(1, 2)), draw(st.integers(3, 9)), draw(st.integers(3, 9)), 2 * draw(st.integers(1, 9)))
    kept: list[str] = []
    value = b.input("x", *shape, dtype=draw(st.sampled_from(["int8", "float16"])))
    for _ in range(draw(st.integers(1, 4))):
        if b.dtype(value) == "int8":
            kept.append(value)
            value = draw(_from_integers(b, value))
        else:
            value = draw(_from_numbers(b, value, kept))
    return b.build(value)


def _from_integers(b: MovementBuilder, x: str) -> st.SearchStrategy[str]:
    channels = b.shape(x)[3]

    @st.composite
    def made(draw: st.DrawFn) -> str:
        kind = draw(st.sampled_from(["conv", "conv", "pointwise", "depthwise", "widen"]))
        if kind == "widen":
            return b.widen(x)
        bias, one = draw(st.booleans()), draw(st.booleans())
        if kind == "depthwise":
            factor = factors(b, 9, 1 if one else channels)
            return b.conv(x, channels, stride=draw(st.integers(1, 2)), groups=channels, bias=bias, factor=factor)
        out = draw(st.sampled_from([channels, 2 * draw(st.integers(1, 20))]))
        taps = 9 if kind == "conv" else 1
        factor = factors(b, taps * channels, 1 if one else out)
        if kind == "pointwise":
            return b.conv(x, out, (1, 1), pads=(0, 0, 0, 0), bias=bias, factor=factor)
        return b.conv(x, out, stride=draw(st.integers(1, 2)), bias=bias, factor=factor)

    return made()


def _from_numbers(b: MovementBuilder, x: str, kept: Sequence[str]) -> st.SearchStrategy[str]:
    @st.composite
    def made(draw: st.DrawFn) -> str:
        value = x
        alike = [name for name in kept if b.shape(name) == b.shape(x)]
        if residual := draw(st.sampled_from(["", *alike])):
            value = b.add_scaled(value, residual, draw(st.floats(-2, 2)))
        match draw(st.sampled_from(["", "relu", "clip", "mul", "pool"])):
            case "relu":
                value = b.elementwise("relu", value)
            case "clip":
                value = b.elementwise("clip", value, attributes=(("min", -100.0), ("max", 90.5)))
            case "mul":
                value = b.elementwise("mul", value, b.constant(f"c{len(b.ops)}", np.array([1.7])))
            case "pool" if min(b.shape(value)[1:3]) >= 2:
                value = b.pool("max_pool", value, (2, 2), draw(st.integers(1, 2)))
            case _:
                pass
        rounding = draw(st.sampled_from(["nearest", "truncate"]))
        return b.narrow(value, rounding, draw(st.integers(-128, 127)) if rounding == "nearest" else 0)

    return made()


@LIMITED
@given(mixed_graphs(), chips(), st.sampled_from(LEVELS), st.integers(0, 9))
def test_random_mixed_graphs(made: tuple[Graph, Constants], chip: Chip, level: str, seed: int) -> None:
    judge(compile_graph(*made, chip=chip, level=level), seed)


@settings(LIMITED, max_examples=3)
@given(mixed_graphs(), st.integers(0, 9))
def test_random_mixed_graphs_at_level_auto(made: tuple[Graph, Constants], seed: int) -> None:
    graph, constants = made
    model = Model(graph, dict(constants), onnx.ModelProto(), (), "")
    found = driver.compile_graph(model, stcp920(), TARGET, CompileOptions(effort="fast", jobs=1))
    judge(Compiled(graph, constants, stcp920(), found.plan, found.program), seed)
