"""Random moves, reductions and resizes on random chips: bits as numpy or the emulation says, whatever the cuts."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegen.neuralscale.instructions.arithmetic import FP16
from codegen.neuralscale.instructions.builder import MatrixPlace
from codegen.neuralscale.templates.strided import StridedLoop, best_form, matrices, move_form
from hw_models.chip import Chip
from tests.chip_runs import compile_graph, small_chip
from tests.movement_graphs import MovementBuilder

ITEM = FP16.item_bytes

LIMITED = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@st.composite
def chips(draw: st.DrawFn, least_bytes: int = 1 << 12) -> Chip:
    """`least_bytes` of L1 and LLB hold whatever the operator cannot cut."""
    return small_chip(
        cores=draw(st.integers(1, 8)),
        data_bytes=draw(st.sampled_from([least_bytes, 1 << 20])),
        weights_bytes=1 << 12,
        im_bytes=draw(st.sampled_from([1 << 8, 1 << 11, 1 << 18])),
        llb_bytes=draw(st.sampled_from([2 * least_bytes, 1 << 23])),
    )


def shapes(largest: int, axes: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, largest), min_size=1, max_size=axes).map(tuple)


def moved(builder: MovementBuilder, out: str, chip: Chip, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Input and output bits; the emulation has been asked too."""
    stored = compile_graph(*builder.build(out), chip).check(seed)
    return stored["x"], stored[out]


@LIMITED
@given(st.data(), chips(), shapes(8, axes=5))
def test_random_transposes(data: st.DataObject, chip: Chip, shape: tuple[int, ...]) -> None:
    perm = data.draw(st.permutations(range(len(shape))))
    builder = MovementBuilder("transpose")
    x, y = moved(builder, builder.transpose(builder.input("x", *shape), *perm), chip, 1)
    np.testing.assert_array_equal(y, x.transpose(perm))


@LIMITED
@given(st.data(), chips(), shapes(14))
def test_random_slices(data: st.DataObject, chip: Chip, shape: tuple[int, ...]) -> None:
    slices = [
        slice(start, None if (stop := start + step * count) < 0 else stop, step)
        for extent in shape
        for start in [data.draw(st.integers(0, extent - 1))]
        for step in [data.draw(st.sampled_from([1, 1, 2, 3, -1, -2]))]
        for count in [data.draw(st.integers(1, (extent - 1 - start) // step + 1 if step > 0 else start // -step + 1))]
    ]
    wanted = np.empty(shape)[tuple(slices)].shape
    builder = MovementBuilder("slice")
    starts, steps = tuple(s.start for s in slices), tuple(s.step for s in slices)
    x, y = moved(builder, builder.slice(builder.input("x", *shape), starts, steps, wanted), chip, 2)
    np.testing.assert_array_equal(y, x[tuple(slices)])


@LIMITED
@given(st.data(), chips(), shapes(6))
def test_random_pads(data: st.DataObject, chip: Chip, shape: tuple[int, ...]) -> None:
    begins = tuple(data.draw(st.integers(0, 4)) for _ in shape)
    ends = tuple(data.draw(st.integers(0, 4)) for _ in shape)
    builder = MovementBuilder("pad")
    x, y = moved(builder, builder.pad(builder.input("x", *shape), begins, ends, -2.0), chip, 3)
    value = np.float16(-2.0).view(np.uint16)
    np.testing.assert_array_equal(y, np.pad(x, list(zip(begins, ends, strict=True)), constant_values=value))


@LIMITED
@given(st.data(), chips(), shapes(8))
def test_random_takes(data: st.DataObject, chip: Chip, shape: tuple[int, ...]) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    indices = data.draw(st.lists(st.integers(0, shape[axis] - 1), min_size=1, max_size=12))
    builder = MovementBuilder("take")
    x, y = moved(builder, builder.take(builder.input("x", *shape), axis, *indices), chip, 4)
    np.testing.assert_array_equal(y, x.take(indices, axis))


@LIMITED
@given(st.data(), chips(least_bytes=1 << 15), shapes(8))
def test_random_reductions_and_softmax(data: st.DataObject, chip: Chip, shape: tuple[int, ...]) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True).map(sorted))
    kind = data.draw(st.sampled_from(["reduce_sum", "reduce_mean", "reduce_max", "softmax"]))
    builder = MovementBuilder(kind)
    x = builder.input("x", *shape)
    moved(builder, builder.softmax(x, axes[0]) if kind == "softmax" else builder.reduce(kind, x, *axes), chip, 5)


@LIMITED
@given(st.data(), chips())
def test_random_resizes(data: st.DataObject, chip: Chip) -> None:
    before = (1, *(data.draw(st.integers(1, 12)) for _ in range(3)))
    after = (1, *(data.draw(st.integers(1, 25)) for _ in range(2)), before[3])
    mode = data.draw(st.sampled_from(["nearest", "linear"]))
    coordinates = data.draw(st.sampled_from(["asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"]))
    rounding = data.draw(st.sampled_from(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil", "simple"]))
    builder = MovementBuilder("resize")
    moved(builder, builder.resize(builder.input("x", *before), after, mode, coordinates, rounding), chip, 6)


@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_forms_touch_every_element_once(data: st.DataObject, extents: list[int]) -> None:
    """The matrices of a form, taken apart, pair the same addresses as the plain nested loops."""
    perm = data.draw(st.permutations(range(len(extents))))
    into = [ITEM * prod(extents[i + 1 :]) for i in range(len(extents))]
    source_extents = [extents[p] for p in perm]
    out_of = [ITEM * prod(source_extents[perm.index(i) + 1 :]) for i in range(len(extents))]
    flips = [data.draw(st.sampled_from([1, -1])) for _ in extents]
    loops = tuple(StridedLoop(e, (d, f * s)) for e, d, s, f in zip(extents, into, out_of, flips, strict=True))
    points = np.stack(np.unravel_index(np.arange(prod(extents)), extents), 1)
    wanted = {tuple(p @ np.array([loop.steps_bytes for loop in loops])) for p in points}
    base = MatrixPlace("L1", 0, 1, 1, ITEM)
    got = [
        (d.offset_bytes + r * d.pitch_bytes + ITEM * c, a.offset_bytes + r * a.pitch_bytes + ITEM * c)
        for d, a in matrices(best_form(loops, ITEM), (base, base))
        for r in range(d.rows)
        for c in range(d.columns)
    ]
    assert len(got) == prod(extents)
    assert set(got) == wanted
    assert move_form(loops, 1 << 10, ITEM).instructions <= best_form(loops, ITEM).instructions <= prod(extents)
