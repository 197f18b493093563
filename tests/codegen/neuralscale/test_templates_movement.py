"""Templates that move data, reduce axes, normalise across channels or resize: bits as emulated, values as numpy's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from hw_models.chip import Chip
from hw_models.errors import ModelError
from partitioner.ir.steps import RunStep
from tests.chip_runs import compile_graph, small_chip
from tests.float_model import relative_error
from tests.movement_graphs import MovementBuilder

Values = npt.NDArray[np.float64]
Make = Callable[[MovementBuilder, str], str]
Meaning = Callable[[Values], Values]


def tiny_chip() -> Chip:
    """Three cores and memories of a few KiB: rounds, tiles, uneven pieces."""
    return small_chip(cores=3, data_bytes=1 << 13, weights_bytes=1 << 12, im_bytes=1 << 11, llb_bytes=1 << 15)


def outcome(
    make: Make, shape: tuple[int, ...], chip: Chip | None, scale: float = 1.0, seed: int = 0
) -> tuple[npt.NDArray[np.float16], Values]:
    """Stored output (checked bit for bit against the emulation) and the input as float64."""
    builder = MovementBuilder("movement")
    out = make(builder, builder.input("x", *shape))
    stored = compile_graph(*builder.build(out), chip).check(seed, scale)
    return stored[out].view(np.float16), stored["x"].view(np.float16).astype(np.float64)


MOVES: dict[str, tuple[tuple[int, ...], Make, Meaning]] = {
    "flatten order": ((2, 7, 9, 20), lambda b, x: b.transpose(x, 0, 3, 1, 2), lambda x: x.transpose(0, 3, 1, 2)),
    "channels last": ((2, 20, 7, 9), lambda b, x: b.transpose(x, 0, 2, 3, 1), lambda x: x.transpose(0, 2, 3, 1)),
    "channel shuffle": ((1, 13, 11, 3, 8), lambda b, x: b.transpose(x, 0, 1, 2, 4, 3), lambda x: x.swapaxes(3, 4)),
    "matrix": ((83, 61), lambda b, x: b.transpose(x, 1, 0), lambda x: x.T),
    "heads": ((1, 17, 4, 16), lambda b, x: b.transpose(x, 0, 2, 1, 3), lambda x: x.transpose(0, 2, 1, 3)),
    "reversed axes": ((5, 6, 7, 8), lambda b, x: b.transpose(x, 3, 2, 1, 0), lambda x: x.transpose(3, 2, 1, 0)),
    "crop": (
        (1, 12, 13, 10),
        lambda b, x: b.slice(x, (0, 2, 3, 1), (1, 1, 1, 1), (1, 7, 9, 8)),
        lambda x: x[:, 2:9, 3:12, 1:9],
    ),
    "steps": (
        (1, 15, 17, 8),
        lambda b, x: b.slice(x, (0, 1, 2, 1), (1, 2, 3, 3), (1, 7, 5, 3)),
        lambda x: x[:, 1::2, 2::3, 1::3],
    ),
    "backward": (
        (1, 15, 5, 8),
        lambda b, x: b.slice(x, (0, 14, 4, 7), (1, -2, -1, -3), (1, 8, 5, 3)),
        lambda x: x[:, ::-2, ::-1, ::-3],
    ),
    "pad": (
        (1, 9, 11, 5),
        lambda b, x: b.pad(x, (0, 2, 1, 0), (0, 3, 1, 4), -1.5),
        lambda x: np.pad(x, ((0, 0), (2, 3), (1, 1), (0, 4)), constant_values=-1.5),
    ),
    "pad and crop": (
        (1, 9, 11, 5),
        lambda b, x: b.pad(x, (0, -2, 1, 0), (0, 3, -3, 0)),
        lambda x: np.pad(x[:, 2:, :-3], ((0, 0), (0, 3), (1, 0), (0, 0))),
    ),
    "mostly padding": (
        (2, 3),
        lambda b, x: b.pad(x, (40, 5), (30, 3), 7.0),
        lambda x: np.pad(x, ((40, 30), (5, 3)), constant_values=7.0),
    ),
    "take rows": (
        (12, 40),
        lambda b, x: b.take(x, 0, 3, 3, 5, 7, 9, 0, 11, 10, 9),
        lambda x: x[[3, 3, 5, 7, 9, 0, 11, 10, 9]],
    ),
    "take channels": ((1, 5, 6, 9), lambda b, x: b.take(x, 3, 8, 0, 4, 4), lambda x: x[..., [8, 0, 4, 4]]),
    "take one": ((3, 12, 40), lambda b, x: b.take(x, 1, 6), lambda x: x[:, [6]]),
}


@pytest.mark.parametrize("tiny", [False, True], ids=["stcp920", "tiny"])
@pytest.mark.parametrize("name", MOVES)
def test_moves_are_exact(name: str, tiny: bool) -> None:
    shape, make, meaning = MOVES[name]
    got, x = outcome(make, shape, tiny_chip() if tiny else None)
    np.testing.assert_array_equal(got.astype(np.float64), meaning(x))


REDUCTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "rows": ((9, 300), (1,)),
    "images": ((3, 13, 7, 19), (1, 2)),
    "channels": ((1, 13, 7, 37), (3,)),
    "first and last": ((5, 6, 70), (0, 2)),
    "every other": ((3, 4, 5, 6), (0, 2)),
    "all": ((5, 6, 17), (0, 1, 2)),
    "single elements": ((4, 1, 6), (1,)),
}
MEANINGS: dict[str, Callable[[Values, tuple[int, ...]], Values]] = {
    "reduce_sum": lambda x, axes: np.asarray(x.sum(axes, keepdims=True)),
    "reduce_mean": lambda x, axes: np.asarray(x.mean(axes, keepdims=True)),
    "reduce_max": lambda x, axes: np.asarray(x.max(axes, keepdims=True)),
    "reduce_nearest": lambda x, axes: nearest_to_zero(x, axes),
    "reduce_power": lambda x, axes: power(np.abs(x).max(axes, keepdims=True)),
    "reduce_power centred": lambda x, axes: power(np.abs(x - nearest_to_zero(x, axes)).max(axes, keepdims=True)),
}


def nearest_to_zero(x: Values, axes: tuple[int, ...]) -> Values:
    low, high = x.min(axes, keepdims=True), x.max(axes, keepdims=True)
    return np.asarray(np.clip(np.zeros_like(low), low, high))


def power(largest: Values) -> Values:
    held = np.maximum(largest.astype(np.float16).astype(np.float64), 2.0**-9)
    return np.asarray(64 / 2 ** np.ceil(np.log2(held)))


def reduction(builder: MovementBuilder, kind: str, x: str, axes: tuple[int, ...]) -> str:
    name, *centred = kind.split()
    attributes: tuple[tuple[str, int], ...] = (("centred", len(centred)),) if name == "reduce_power" else ()
    return builder.reduce(name, x, *axes, attributes=attributes)


@pytest.mark.spread(14)
@pytest.mark.parametrize("kind", MEANINGS)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, kind: str) -> None:
    shape, axes = REDUCTIONS[name]
    stored = []
    for chip in (None, tiny_chip()):
        got, x = outcome(lambda b, v: reduction(b, kind, v, axes), shape, chip)
        wanted = MEANINGS[kind](x, axes)
        assert relative_error(got, wanted) < 2e-2
        stored.append(got)
    np.testing.assert_array_equal(stored[0], stored[1])


def bits_of(kind: str, lines: npt.NDArray[np.uint16]) -> npt.NDArray[np.float16]:
    """The last axis of these bits, reduced on the simulated chip and checked against the emulation."""
    builder = MovementBuilder("lines")
    compiled = compile_graph(*builder.build(reduction(builder, kind, builder.input("x", *lines.shape), (1,))))
    stored = compiled.run({"x": lines})
    for got, wanted in compiled.expected(stored).values():
        np.testing.assert_array_equal(got, wanted)
    return stored[compiled.graph.outputs[0]].view(np.float16)[:, 0]


@pytest.mark.parametrize("kind", ["reduce_power", "reduce_power centred"])
def test_the_power_of_every_finite_value_is_exact(kind: str) -> None:
    """Lines [x, 0] of every half of either sign."""
    values = np.concatenate([np.arange(0x7C00, dtype=np.uint16), np.arange(0x8000, 0xFC00, dtype=np.uint16)])
    magnitude = np.abs(values.view(np.float16).astype(np.float64))
    got = bits_of(kind, np.stack([values, np.zeros_like(values)], 1))
    np.testing.assert_array_equal(got, power(magnitude))


def test_lines_with_values_that_are_not_finite() -> None:
    lines = np.array([[np.inf, 1], [-np.inf, 1], [np.inf, -np.inf], [np.nan, 1], [np.inf, np.inf]], np.float16)
    nearest = bits_of("reduce_nearest", lines.view(np.uint16))
    np.testing.assert_array_equal(nearest, np.array([1, 0, 0, np.nan, np.inf], np.float16))
    np.testing.assert_array_equal(bits_of("reduce_power", lines.view(np.uint16))[:3], [2.0**-10] * 3)
    centred = bits_of("reduce_power centred", lines.view(np.uint16))
    np.testing.assert_array_equal(centred, np.array([2.0**-10] * 3 + [np.nan] * 2, np.float16))


@pytest.mark.parametrize("kind", ["reduce_sum", "reduce_mean"])
@pytest.mark.parametrize("length", [4_096, 4_097, 9_001, pytest.param(50_176, marks=pytest.mark.nightly)])
def test_long_lines_of_equal_elements_keep_their_digits(kind: str, length: int) -> None:
    """The worst case of adding one by one: all sums of an octave are rounded the same way."""
    value = np.float16(0.9 if kind == "reduce_mean" else 1.23)
    got = bits_of(kind, np.full((2, length), value).view(np.uint16))
    wanted = np.full(2, float(value) * (1 if kind == "reduce_mean" else length))
    assert relative_error(got, wanted) < 1e-2


def test_mean_of_large_and_of_small_values_keeps_its_digits() -> None:
    """Sums of 4,096 values of this size overflow fp16; the values divided by 4,096 at once would vanish."""
    for scale, floor in ((1e4, 0.0), (1e-3, 1e-3)):
        builder = MovementBuilder("means")
        x = builder.input("x", 8, 4096)
        compiled = compile_graph(*builder.build(builder.reduce("reduce_mean", x, 1)))
        values = (np.abs(np.random.default_rng(1).normal(0, scale, (8, 4096))) + floor).astype(np.float16)
        stored = compiled.run({"x": values.view(np.uint16)})
        got = stored[compiled.graph.outputs[0]].view(np.float16)
        assert relative_error(got, values.astype(np.float64).mean(1, keepdims=True)) < 1e-2


@pytest.mark.parametrize(
    ("size", "channels", "alpha", "beta", "bias"),
    [
        (5, 24, 1e-4, 0.75, 1.0),
        (4, 7, 0.5, 0.5, 2.0),
        (3, 2, 1.0, 1.0, 1.0),
        (9, 5, 0.2, 1.75, 1.0),
        (1, 8, 0.1, 0.25, 1.0),
    ],
)
def test_lrn(size: int, channels: int, alpha: float, beta: float, bias: float) -> None:
    before, after = (size - 1) // 2, size // 2
    stored = []
    for chip in (None, tiny_chip()):
        got, x = outcome(lambda b, v: b.lrn(v, size, alpha, beta, bias), (1, 9, 11, channels), chip, scale=8.0)
        squares = np.pad(x * x, ((0, 0), (0, 0), (0, 0), (before, after)))
        window = sum(squares[..., i : i + channels] for i in range(size))
        assert relative_error(got, x / (bias + alpha / size * window) ** beta) < 1e-2
        stored.append(got)
    np.testing.assert_array_equal(stored[0], stored[1])


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 40, 7), 1), ((2, 5, 9, 6), 1), ((30, 4), 0), ((2, 5, 9, 6), 2), ((1, 3, 300, 2), 2)]
)
def test_softmax_over_an_axis_that_is_not_the_innermost(shape: tuple[int, ...], axis: int) -> None:
    stored = []
    for chip in (None, tiny_chip()):
        got, x = outcome(lambda b, v: b.softmax(v, axis), shape, chip, scale=4.0)
        powers = np.exp(x - x.max(axis, keepdims=True))
        assert relative_error(got, np.asarray(powers / powers.sum(axis, keepdims=True))) < 5e-3
        stored.append(got)
    np.testing.assert_array_equal(stored[0], stored[1])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 5, 40), (1, 40, 19)),
        ((1, 5, 40), (3, 40, 19)),
        ((5, 40), (3, 40, 19)),
        ((2, 1, 5, 40), (3, 40, 9)),
        ((2, 3, 5, 40), (2, 1, 40, 9)),
        ((4, 5, 40), (1, 1, 40, 9)),
        ((2, 3, 5, 40), (40, 9)),
    ],
    ids=str,
)
def test_products_broadcast_their_leading_axes(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    for chip in (None, tiny_chip()):
        builder = MovementBuilder("products")
        out = builder.product(builder.input("a", *a), builder.input("b", *b))
        stored = compile_graph(*builder.build(out), chip).check()
        left, right = (stored[name].view(np.float16).astype(np.float64) for name in ("a", "b"))
        assert relative_error(stored[out].view(np.float16), left @ right) < 5e-3


def test_lrn_of_an_odd_power_is_refused() -> None:
    builder = MovementBuilder("power")
    out = builder.lrn(builder.input("x", 1, 4, 4, 8), 5, beta=0.6)
    with pytest.raises(ModelError, match=r"beta 0\.6; it must be a positive multiple of 1/4"):
        compile_graph(*builder.build(out))


def test_take_beyond_the_axis_is_refused() -> None:
    builder = MovementBuilder("beyond")
    out = builder.take(builder.input("x", 4, 8), 0, 1, 4)
    with pytest.raises(ModelError, match="an index outside the 4 elements of its axis"):
        compile_graph(*builder.build(out))


@pytest.mark.spread(14)
@pytest.mark.parametrize("wanted", [(14, 18), (10, 6), (3, 4), (21, 27), (1, 9)])
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.commit
def test_resize(mode: str, coordinates: str, wanted: tuple[int, int]) -> None:
    stored = []
    for chip in (None, tiny_chip()):
        got, x = outcome(lambda b, v: b.resize(v, (1, *wanted, 5), mode, coordinates, "floor"), (1, 7, 9, 5), chip)
        expected = x
        for axis in (1, 2):
            expected = resized(expected, axis, wanted[axis - 1], mode, coordinates)
        assert relative_error(got, expected) < (0.0 if mode == "nearest" else 2e-3) + 1e-12
        stored.append(got)
    np.testing.assert_array_equal(stored[0], stored[1])


def resized(x: Values, axis: int, wanted: int, mode: str, coordinates: str) -> Values:
    """One axis by ONNX's definition, coordinates in fp32; nearest rounds down."""
    extent, i, one = x.shape[axis], np.arange(wanted).astype(np.float32), np.float32
    match coordinates:
        case "asymmetric":
            place = i / (one(wanted) / one(extent))
        case "align_corners":
            place = i * one(extent - 1) / one(max(1, wanted - 1))
        case _:
            half_pixel = wanted > 1 or coordinates == "half_pixel"
            place = (i + one(0.5)) / (one(wanted) / one(extent)) - one(0.5) if half_pixel else i
    place = np.clip(place, 0, extent - 1)
    low = np.floor(place).astype(int)
    if mode == "nearest":
        return np.asarray(np.take(x, low, axis))
    shape = [1] * x.ndim
    shape[axis] = wanted
    upper = (place - low).reshape(shape).astype(np.float64)
    above = np.minimum(low + 1, extent - 1)
    return np.asarray(np.take(x, low, axis) * (1 - upper) + np.take(x, above, axis) * upper)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_roundings_of_the_nearest(rounding: str) -> None:
    """Four elements become ten: the coordinates 0.5 and 2.5 are exactly between two elements."""
    got, x = outcome(lambda b, v: b.resize(v, (1, 4, 10, 3), "nearest", "half_pixel", rounding), (1, 4, 4, 3), None)
    place = np.clip((np.arange(10) + 0.5) * 0.4 - 0.5, 0, 3)
    nearest = {
        "round_prefer_floor": np.ceil(np.round(place - 0.5, 9)),
        "round_prefer_ceil": np.floor(np.round(place + 0.5, 9)),
        "floor": np.floor(np.round(place, 9)),
        "ceil": np.ceil(np.round(place, 9)),
    }[rounding].astype(int)
    np.testing.assert_array_equal(got.astype(np.float64), x[:, :, nearest])


def test_epilogues_work_on_moved_data() -> None:
    """An element-wise operator behind each template runs in place on its tile."""
    builder = MovementBuilder("epilogue")
    x = builder.input("x", 1, 8, 9, 12)
    moved = builder.elementwise("relu", builder.transpose(x, 0, 2, 1, 3))
    small = builder.elementwise("hard_swish", builder.reduce("reduce_mean", moved, 1, 2))
    large = builder.elementwise("add", builder.resize(moved, (1, 18, 16, 12), "linear"), small)
    for chip in (None, tiny_chip()):
        compile_graph(*builder.build(large), chip).check()


def test_a_transpose_is_cut_along_outer_axes() -> None:
    """Cutting the groups of a channel shuffle would move pieces of a few bytes."""
    builder = MovementBuilder("shuffle")
    out = builder.transpose(builder.input("x", 1, 14, 14, 4, 68), 0, 1, 2, 4, 3)
    (step,) = compile_graph(*builder.build(out)).plan.steps
    assert isinstance(step, RunStep)
    assert step.binding.pieces[3:] == (1, 1)


@pytest.mark.parametrize("name", ["flatten order", "channel shuffle"])
def test_a_transpose_takes_few_instructions(name: str) -> None:
    """One-element moves would take thousands."""
    shape, make, _ = MOVES[name]
    builder = MovementBuilder("few")
    program = compile_graph(*builder.build(make(builder, builder.input("x", *shape)))).program
    assert sum(i.engine in ("vector", "matrix") for stream in program.streams for i in stream.instrs) < 200
