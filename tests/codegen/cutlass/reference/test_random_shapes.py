"""Operators of random shapes and settings: a float64 evaluation that shares nothing is the numbers, a kernel in fp32
is allowed, and some points are the same as all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.cutlass.reference import REFERENCE, sums
from partitioner.ir.graph import Attribute
from tests.codegen.cutlass.reference.fed_layers import FRONTEND, Fed, by_hand, evaluated
from tests.codegen.cutlass.reference.single_precision import Careless, single
from tests.dsa_sched.frontend.numpy_graph import evaluate

Halves = npt.NDArray[np.float16]

FEW = settings(max_examples=60, deadline=None)


def halves(seed: int, *shape: int) -> Halves:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def check(found: Fed, seed: int) -> None:
    (op,), (layer,) = found.graph.ops, found.layers
    operands = [found.values[name].astype(np.float64) for name in op.inputs]
    ours, sampled = evaluated(found, layer), found.sampled(layer)
    assert np.allclose(ours.numbers, evaluate(found.graph, op, operands)[0], rtol=1e-9, atol=1e-11)
    kernel = Careless(np.random.default_rng(seed)).layer(
        found.graph, [op], {name: single(value) for name, value in found.values.items()}
    )
    apart = np.abs(kernel.astype(np.float16).astype(np.float64).reshape(-1) - ours.numbers.reshape(-1))
    assert (apart <= FRONTEND.allowed(sampled)).all()
    some = found.sampled(layer, 7)
    few = FRONTEND.evaluate(some)
    where = tuple(some.points.T)
    assert np.allclose(few.numbers, ours.numbers[where], rtol=1e-12, atol=1e-13)
    assert np.allclose(few.error, ours.error[where], rtol=1e-9, atol=1e-15)


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Attribute]]:
    """Extents of a map of one to three axes and of the result, and the window; it is no larger than the padded map, and
    no tap's worth of padding wider than the kernel."""
    extents, out, settings_ = [], [], []
    for _ in range(draw(st.integers(1, 3))):
        kernel, stride, dilation = (draw(st.integers(1, 3)) for _ in range(3))
        begin, end = (draw(st.integers(0, kernel - 1)) for _ in range(2))
        span = (kernel - 1) * dilation + 1
        extent = draw(st.integers(max(span - begin - end, 1), span + 4))
        extents.append(extent)
        out.append((extent + begin + end - span) // stride + 1)
        settings_.append((kernel, stride, dilation, begin, end))
    kernels, strides, dilations, begins, ends = zip(*settings_, strict=True)
    pads = (*begins, *ends)
    window: dict[str, Attribute] = {"kernel": kernels, "strides": strides, "dilations": dilations, "pads": pads}
    return tuple(extents), tuple(out), window


@FEW
@given(windows(), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_convolutions(
    window: tuple[tuple[int, ...], tuple[int, ...], dict[str, Attribute]],
    batch: int,
    groups: int,
    inputs: int,
    outputs: int,
    bias: bool,
) -> None:
    extents, out, attributes = window
    kernel = attributes["kernel"]
    assert isinstance(kernel, tuple)
    shape = (*(int(k) for k in kernel), inputs, outputs)
    weights = halves(1, *((groups,) if groups > 1 else ()), *shape)
    operands = [halves(0, batch, *extents, groups * inputs), weights, *([halves(2, groups * outputs)] if bias else [])]
    found = by_hand("conv", operands, (batch, *out, groups * outputs), **attributes, groups=groups)
    check(found, groups)
    # The other order of weights is the same numbers.
    first = 1 if groups > 1 else 0
    turned = by_hand(
        "conv", [operands[0], np.moveaxis(weights, -1, first).copy(), *operands[2:]], found.graph.by_name["y"].shape,
        **attributes, groups=groups,
    )  # fmt: skip
    ours, other = (r.evaluate(f.sampled(f.layers[0])) for r, f in ((FRONTEND, found), (REFERENCE, turned)))
    assert np.array_equal(ours.numbers, other.numbers)
    assert np.array_equal(ours.error, other.error)


@FEW
@given(windows(), st.integers(1, 2), st.integers(1, 5), st.booleans(), st.sampled_from(["max_pool", "average_pool"]))
def test_pools(
    window: tuple[tuple[int, ...], tuple[int, ...], dict[str, Attribute]],
    batch: int,
    channels: int,
    counted: bool,
    kind: str,
) -> None:
    extents, out, attributes = window
    if kind == "average_pool":
        attributes = {**attributes, "count_include_pad": int(counted)}
    found = by_hand(kind, [halves(0, batch, *extents, channels)], (batch, *out, channels), **attributes)
    if kind == "max_pool" or counted or not np.isnan(_means(found)).any():
        check(found, batch)


def _means(found: Fed) -> npt.NDArray[np.float64]:
    """NaN where no tap of a dilated window is in the map."""
    with np.errstate(invalid="ignore"):
        return evaluate(found.graph, found.graph.ops[0], [found.values["x0"].astype(np.float64)])[0]


@FEW
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), max_size=3),
    st.integers(1, 6),
    st.integers(1, 40),
    st.integers(1, 6),
    st.booleans(),
)
def test_matrix_products(axes: list[tuple[int, int]], rows: int, depth: int, columns: int, bias: bool) -> None:
    """Leading axes of one in one of the factors or in none."""
    leading = tuple(extent for extent, _ in axes)
    left, right = (tuple(1 if narrow == side else extent for extent, narrow in axes) for side in (1, 2))
    operands = [halves(0, *left, rows, depth), halves(1, *right, depth, columns), halves(2, columns)]
    broadcast = np.broadcast_shapes(left, right)
    assert len(broadcast) == len(leading)
    check(by_hand("matmul", operands[: 3 if bias else 2], (*broadcast, rows, columns)), rows)


@FEW
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(0, 3),
    st.sampled_from(["softmax", "reduce_sum", "reduce_mean", "reduce_max", "layer_norm", "rms_norm"]),
)
def test_lines(shape: list[int], start: int, kind: str) -> None:
    """Of one axis, or of all from one on."""
    start %= len(shape)
    axes = tuple(range(start, len(shape)))
    x = halves(0, *shape)
    if kind == "softmax":
        check(by_hand(kind, [x], x.shape, axis=start), start)
    elif kind.startswith("reduce"):
        check(by_hand(kind, [x], tuple(1 if axis in axes else n for axis, n in enumerate(shape)), axes=axes), start)
    else:
        vectors = [halves(i + 1, *shape[start:]) for i in range(2 if kind == "layer_norm" else 1)]
        check(by_hand(kind, [x, *vectors], x.shape, axes=axes, epsilon=1e-3), start)


@FEW
@given(
    st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 20), st.integers(1, 40), st.integers(1, 9),
    st.integers(1, 5), st.sampled_from(["all", "later", "masked"]),
)  # fmt: skip
def test_attention(
    items: int, groups: int, shared: int, rows: int, keys: int, size: int, width: int, sees: str
) -> None:
    heads = groups * shared
    shapes = ((rows, heads * size), (keys, groups * size), (keys, groups * width))
    operands = [halves(number, items, *shape) for number, shape in enumerate(shapes)]
    operands += [halves(3, items, 1, rows, keys)] if sees == "masked" else []
    attributes: dict[str, Attribute] = {"heads": heads, "groups": groups, "parts": 1, "scale": 0.7}
    attributes |= {"first_sees": 2} if sees == "later" else {}
    check(by_hand("attend", operands, (items, rows, heads * width), **attributes), rows)


@pytest.mark.parametrize("elements", [1, 50, 3000])
def test_pieces_are_the_whole(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    window: dict[str, Attribute] = {"kernel": (3, 2), "strides": (1, 2), "dilations": (1, 1), "pads": (1, 0, 1, 1)}
    convolution = by_hand("conv", [halves(0, 2, 6, 5, 4), halves(1, 3, 2, 4, 6)], (2, 6, 3, 6), **window, groups=1)
    pool = by_hand("max_pool", [halves(0, 2, 6, 5, 4)], (2, 6, 3, 4), **window)
    softmax = by_hand("softmax", [halves(0, 30, 20)], (30, 20), axis=1)
    attention = by_hand(
        "attend", [halves(seed, 2, 30, 8) for seed in range(3)], (2, 30, 8), heads=2, groups=2, parts=1, scale=1.0
    )
    cases = (convolution, pool, softmax, attention)
    whole = [evaluated(found, found.layers[0]) for found in cases]
    monkeypatch.setattr(sums, "ELEMENTS_AT_A_TIME", elements)
    for found, wanted in zip(cases, whole, strict=True):
        ours = evaluated(found, found.layers[0])
        assert np.allclose(ours.numbers, wanted.numbers, rtol=1e-12, atol=1e-13)
        assert np.allclose(ours.error, wanted.error, rtol=1e-9, atol=0)
