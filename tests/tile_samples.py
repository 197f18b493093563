"""One small layer, or a few, for each template and form of the NeuralScale target, to be lowered tile by tile.

    SAMPLES["conv, residual"]() --> graph and constants of one layer: conv -> add -> relu

Used by tests that hold for every template: what a tile writes, and that buffers with a pitch give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from codegen.neuralscale.target import TARGET
from hw_models.chip import Chip
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Attribute, Constants, Graph
from partitioner.ir.layers import Layer
from partitioner.ir.regions import Box, full_box
from partitioner.planners.registry import make_plan
from tests.chip_runs import stcp920
from tests.movement_graphs import MovementBuilder

__all__ = ["SAMPLES", "boxes_of", "layers_of", "sample_chip"]

Sample = Callable[[MovementBuilder], str]
Attributes = tuple[tuple[str, Attribute], ...]
IMAGE = (2, 6, 7, 12)
VECTOR_DEPTHWISE, EACH_DEPTHWISE, BLOCK_DEPTHWISE = (f"depthwise, {form}" for form in ("vector", "each", "blocks"))
EACH_INTEGERS, BLOCK_INTEGERS = (f"depthwise of int8, {form}" for form in ("each", "blocks"))


def _conv(b: MovementBuilder) -> str:
    return b.conv(b.input("x", *IMAGE), 18, stride=2)


def _conv_residual(b: MovementBuilder) -> str:
    x = b.input("x", *IMAGE)
    return b.elementwise("relu", b.elementwise("add", b.conv(x, 12), b.input("r", *IMAGE)))


def _conv_runs(b: MovementBuilder) -> str:
    return b.elementwise("hard_swish", b.conv(b.input("x", 1, 2, 2, 1100), 9))


def _conv_groups(b: MovementBuilder) -> str:
    return b.elementwise("sigmoid", b.conv(b.input("x", *IMAGE), 18, groups=3))


def _depthwise(channels: int) -> Sample:
    def sample(b: MovementBuilder) -> str:
        return b.elementwise("relu", b.conv(b.input("x", 2, 5, 6, channels), channels, stride=1, groups=channels))

    return sample


def _factors(b: MovementBuilder, *shape: int) -> str:
    return b.constant(f"factors{len(b.ops)}", b.rng.uniform(1e-3, 1e-2, shape))


def _conv_integers(b: MovementBuilder) -> str:
    x = b.input("x", *IMAGE, dtype="int8")
    return b.narrow(b.elementwise("relu", b.conv(x, 18, stride=2, factor=_factors(b, 18))))


def _conv_integers_runs(b: MovementBuilder) -> str:
    return b.narrow(b.conv(b.input("x", 1, 2, 2, 1100, dtype="int8"), 10, factor=_factors(b, 10)), "truncate")


def _conv_integers_groups(b: MovementBuilder) -> str:
    return b.conv(b.input("x", *IMAGE, dtype="int8"), 18, groups=3, factor=_factors(b, 1))


def _conv_to_integers(b: MovementBuilder) -> str:
    return b.narrow(b.conv(b.input("x", *IMAGE), 18))


def _depthwise_integers(channels: int) -> Sample:
    def sample(b: MovementBuilder) -> str:
        x = b.input("x", 2, 5, 6, channels, dtype="int8")
        return b.narrow(b.conv(x, channels, groups=channels, factor=_factors(b, channels)), "truncate")

    return sample


def _matmul_integers(b: MovementBuilder) -> str:
    y = b.matmul(b.input("x", 3, 5, 14, dtype="int8"), b.integers(14, 10), factor=_factors(b, 10))
    return b.narrow(b.add_scaled(y, b.input("r", 3, 5, 10, dtype="int8"), 0.3))


def _matmul_integers_batch(b: MovementBuilder) -> str:
    x, y = b.input("x", 3, 5, 14, dtype="int8"), b.input("y", 3, 14, 10, dtype="int8")
    return b.matmul(x, y, factor=_factors(b, 1), bias=False)


def _add_scaled(b: MovementBuilder) -> str:
    return b.add_scaled(b.input("x", *IMAGE), b.input("y", *IMAGE, dtype="int8"), -0.7)


def _matmul(b: MovementBuilder) -> str:
    return b.elementwise("tanh", b.matmul(b.input("x", 3, 5, 14), b.normal(14, 10)))


def _matmul_batch(b: MovementBuilder) -> str:
    return b.product(b.input("x", 3, 5, 14), b.input("y", 3, 14, 10))


def _matmul_runs(b: MovementBuilder) -> str:
    return b.matmul(b.input("x", 2, 9100), b.normal(9100, 4, scale=0.01))


def _pool(kind: str, kernel: tuple[int, int], stride: int, pads: tuple[int, int, int, int]) -> Sample:
    def sample(b: MovementBuilder) -> str:
        return b.elementwise("relu", b.pool(kind, b.input("x", *IMAGE), kernel, stride, pads))

    return sample


def _unary(kind: str, *attributes: tuple[str, Attribute]) -> Sample:
    def sample(b: MovementBuilder) -> str:
        return b.elementwise(
            kind, b.elementwise(kind, b.input("x", 3, 4, 6), attributes=attributes), attributes=attributes
        )

    return sample


def _binary(kind: str, swapped: bool, *shape: int) -> Sample:
    """The anchor and an operator of the epilogue, each with an operand of `shape`."""

    def sample(b: MovementBuilder) -> str:
        x = b.input("x", *IMAGE)
        for name in ("y", "z"):
            y = b.input(name, *shape)
            x = b.elementwise(kind, *((y, x) if swapped else (x, y)))
        return x

    return sample


def _immediate(b: MovementBuilder) -> str:
    x, k = b.input("x", 3, 4, 6), b.constant("k", np.array([0.3]))
    for kind in ("sub", "div", "mul"):
        x = b.elementwise(kind, k, b.elementwise(kind, x, k))
    return x


def _twice(b: MovementBuilder) -> str:
    x = b.input("x", 3, 4, 6)
    return b.elementwise("mul", x, x)


def _scale_shift(b: MovementBuilder) -> str:
    return b.scale_shift(b.scale_shift(b.input("x", *IMAGE)))


def _concat(axis: int) -> Sample:
    def sample(b: MovementBuilder) -> str:
        shapes = (tuple(extent + k * (i == axis) for i, extent in enumerate((2, 3, 4, 6))) for k in range(3))
        return b.elementwise("relu", b.concat(axis, *(b.input(f"x{k}", *shape) for k, shape in enumerate(shapes))))

    return sample


def _softmax(axis: int) -> Sample:
    return lambda b: b.softmax(b.input("x", 3, 4, 6), axis)


def _reduce(kind: str, *axes: int, attributes: Attributes = ()) -> Sample:
    return lambda b: b.elementwise("relu", b.reduce(kind, b.input("x", *IMAGE), *axes, attributes=attributes))


def _lookup(b: MovementBuilder) -> str:
    """Fp16 whose table turns their sign."""
    table = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return b.elementwise("relu", b.lookup(b.input("x", 3, 4, 6), -table.astype(np.float64)))


def _normalise(*axes: int, attributes: Attributes) -> Sample:
    return lambda b: b.elementwise("relu", b.normalise(b.input("x", *IMAGE), *axes, attributes=attributes))


def _attend(heads: int, groups: int, *mask: int) -> Sample:
    """Of two items, 5 rows and 7 keys; heads of 4 and 3 elements."""

    def sample(b: MovementBuilder) -> str:
        q, k, v = b.input("q", 2, 5, 4 * heads), b.input("k", 2, 7, 4 * groups), b.input("v", 2, 7, 3 * groups)
        masks = (b.input("m", *mask),) if mask else ()
        return b.elementwise("relu", b.attend(q, k, v, *masks, heads=heads, groups=groups))

    return sample


def _attend_long(b: MovementBuilder) -> str:
    q, k, v = b.input("q", 1, 3, 8), b.input("k", 1, 1100, 8), b.input("v", 1, 1100, 8)
    return b.attend(q, k, v, b.input("m", 1, 1, 1, 1100), heads=2, groups=2)


def _attend_parts(heads: int, groups: int, past: int, new: int) -> Sample:
    """Of two items and 5 rows; heads are apart but those of new keys. Heads of 4 and 3 elements."""

    def sample(b: MovementBuilder) -> str:
        q, k, v = b.input("q", 2, heads, 5, 4), b.input("k", 2, new, 4 * groups), b.input("v", 2, groups, new, 3)
        parts = (b.input("pk", 2, groups, past, 4), b.input("pv", 2, groups, past, 3), b.input("pm", 2, 1, 1, past))
        made = b.attend(q, *parts, k, v, b.input("m", 1, 1, 5, new), heads=heads, groups=groups, count=2)
        return b.elementwise("relu", made)

    return sample


def _lrn(b: MovementBuilder) -> str:
    return b.lrn(b.input("x", *IMAGE), 5)


def _resize(mode: str, *shape: int) -> Sample:
    return lambda b: b.elementwise("relu", b.resize(b.input("x", *IMAGE), shape, mode))


SAMPLES: Mapping[str, Sample] = {
    "conv": _conv,
    "conv, residual": _conv_residual,
    "conv, reduction in runs": _conv_runs,
    "conv, groups": _conv_groups,
    EACH_DEPTHWISE: _depthwise(9),
    BLOCK_DEPTHWISE: _depthwise(40),
    VECTOR_DEPTHWISE: _depthwise(40),
    "matmul": _matmul,
    "matmul, batch": _matmul_batch,
    "matmul, reduction in runs": _matmul_runs,
    "conv of int8": _conv_integers,
    "conv of int8, reduction in runs": _conv_integers_runs,
    "conv of int8, groups": _conv_integers_groups,
    "conv to int8": _conv_to_integers,
    EACH_INTEGERS: _depthwise_integers(10),
    BLOCK_INTEGERS: _depthwise_integers(40),
    "matmul of int8": _matmul_integers,
    "matmul of int8, batch": _matmul_integers_batch,
    "widen": lambda b: b.widen(b.input("x", *IMAGE, dtype="int8")),
    "narrow": lambda b: b.narrow(b.input("x", *IMAGE)),
    "narrow, truncated": lambda b: b.narrow(b.input("x", *IMAGE), "truncate"),
    "add_scaled": _add_scaled,
    "max_pool to int8": lambda b: b.narrow(b.pool("max_pool", b.input("x", *IMAGE), (3, 3), 2), "truncate"),
    "max_pool": _pool("max_pool", (3, 3), 2, (1, 1, 1, 1)),
    "max_pool, stride 1": _pool("max_pool", (2, 3), 1, (0, 1, 0, 1)),
    "average_pool": _pool("average_pool", (3, 2), 2, (1, 0, 1, 0)),
    "average_pool of many pixels": lambda b: b.elementwise(
        "relu", b.pool("average_pool", b.input("x", 1, 17, 16, 12), (17, 16), 1)
    ),
    "average_pool of whole images": _pool("average_pool", (6, 7), 1, (0, 0, 0, 0)),
    "leaky_relu": _unary("leaky_relu", ("alpha", 0.1)),
    "clip": _unary("clip", ("min", -0.3), ("max", 0.7)),
    "hard_sigmoid": _unary("hard_sigmoid", ("alpha", 0.2), ("beta", 0.5)),
    "gelu": _unary("gelu", ("approximate", "none")),
    "gelu by a hyperbolic tangent": _unary("gelu", ("approximate", "tanh")),
    "swish": _unary("swish", ("alpha", 1.0)),
    "swish of a factor": _unary("swish", ("alpha", 1.702)),
    "elu": _unary("elu", ("alpha", 1.0)),
    "selu": _unary("selu", ("alpha", 1.67), ("gamma", 1.05)),
    "celu": _unary("celu", ("alpha", 0.5)),
    **{
        kind: _unary(kind)
        for kind in ("relu", "neg", "abs", "exp", "sqrt", "reciprocal", "sigmoid", "tanh", "hard_swish", "erf")
    },
    **{kind: _unary(kind) for kind in ("softplus", "mish")},
    **{kind: _binary(kind, False, *IMAGE) for kind in ("add", "sub", "mul", "div", "max", "min")},
    "sub, swapped": _binary("sub", True, *IMAGE),
    "div, swapped": _binary("div", True, *IMAGE),
    **{
        f"mul by {shape}": _binary("mul", False, *shape)
        for shape in ((12,), (2, 1, 1, 12), (2, 6, 7, 1), (2, 1, 7, 1), (1, 6, 1, 12), (6, 7, 12), (2, 1, 1, 1), (7, 1))
    },
    "div by a channel": _binary("div", False, 2, 1, 1, 12),
    "immediate": _immediate,
    "twice": _twice,
    "scale_shift": _scale_shift,
    **{f"concat of axis {axis}": _concat(axis) for axis in range(4)},
    "softmax": _softmax(-1),
    "softmax of axis 1": _softmax(1),
    "softmax of axis 0": _softmax(0),
    "lookup": _lookup,
    "normalise": _normalise(3, attributes=(("centred", 1), ("epsilon", 1e-5))),
    "normalise of rows": _normalise(1, 2, attributes=(("centred", 1), ("epsilon", 0.0))),
    "normalise, not centred": _normalise(2, 3, attributes=(("centred", 0), ("epsilon", 1.0))),
    "attend": _attend(3, 3),
    "attend, one head": _attend(1, 1),
    "attend, shared heads": _attend(6, 2, 2, 1, 1, 7),
    "attend, mask of rows": _attend(3, 3, 1, 1, 5, 7),
    "attend, mask of heads": _attend(4, 2, 2, 4, 5, 7),
    "attend, several runs": _attend_long,
    "attend, two parts": _attend_parts(4, 2, 9, 5),
    "attend, two parts of several runs": _attend_parts(2, 2, 1_000, 7),
    "transpose": lambda b: b.transpose(b.input("x", *IMAGE), 0, 3, 1, 2),
    "transpose, last axis kept": lambda b: b.transpose(b.input("x", *IMAGE), 0, 2, 1, 3),
    "slice": lambda b: b.elementwise("relu", b.slice(b.input("x", *IMAGE), (0, 1, 0, 2), (1, 2, 1, 3), (2, 2, 5, 3))),
    "pad": lambda b: b.pad(b.input("x", *IMAGE), (0, 1, 2, 3), (0, 0, 1, 2), 1.5),
    "take": lambda b: b.take(b.input("x", *IMAGE), 3, 5, 1, 2, 3, 11, 0, 0),
    "take of rows": lambda b: b.take(b.input("x", *IMAGE), 1, 5, 1, 2, 3),
    "reduce_sum": _reduce("reduce_sum", 3),
    "reduce_sum of rows": _reduce("reduce_sum", 1),
    "reduce_max": _reduce("reduce_max", 1, 2),
    "reduce_max of two runs": _reduce("reduce_max", 0, 2),
    "reduce_nearest": _reduce("reduce_nearest", 1, 2),
    "reduce_nearest of rows": _reduce("reduce_nearest", 3),
    "reduce_power": _reduce("reduce_power", 1, 2, attributes=(("centred", 0),)),
    "reduce_power of two runs": _reduce("reduce_power", 0, 2, attributes=(("centred", 1),)),
    "reduce_mean": _reduce("reduce_mean", 1, 2),
    "reduce_mean of two runs": _reduce("reduce_mean", 1, 3),
    "lrn": _lrn,
    "resize, nearest": _resize("nearest", 2, 12, 14, 12),
    "resize, linear": _resize("linear", 2, 9, 14, 12),
    "resize of channels": _resize("nearest", 2, 6, 7, 24),
}


def layers_of(name: str, chip: Chip) -> Iterator[tuple[Graph, Constants, Layer]]:
    """The layers of a sample, each with its graph."""
    builder = MovementBuilder(name)
    graph, constants = builder.build(SAMPLES[name](builder))
    for group in make_plan(PlanContext(graph, constants, chip, TARGET)).groups:
        for layer in group.layers:
            yield graph, constants, layer


def boxes_of(graph: Graph, layer: Layer) -> Iterator[Box]:
    """Tiles of a layer's output: all of it, and one that leaves out something at either end of each axis."""
    whole = full_box(graph.by_name[layer.output].shape)
    yield whole
    cuts = TARGET.granularity(graph, layer)
    integers = any(graph.by_name[name].dtype == "int8" for name in (*layer.inputs(graph), layer.output))
    steps = (cut if integers else 1 for cut in cuts)
    inner = tuple(
        (step, high - step) if cut and high > 4 else (high // 2, high) if cut else (low, high)
        for (low, high), cut, step in zip(whole, cuts, steps, strict=True)
    )
    if inner != whole:
        yield inner


def sample_chip(name: str) -> Chip:
    """The stcp920, with latencies that make the named form of a depthwise convolution the cheapest."""
    each, blocks = (0.0, 1e4), (1e7, 1.5e6)
    starts = {
        VECTOR_DEPTHWISE: (1e7, 0.0),
        **dict.fromkeys((EACH_DEPTHWISE, EACH_INTEGERS), each),
        **dict.fromkeys((BLOCK_DEPTHWISE, BLOCK_INTEGERS), blocks),
    }.get(name)
    chip = stcp920()
    if starts is None:
        return chip
    by_kind = dict(zip(("matrix", "vector"), starts, strict=True))
    engines = tuple(
        engine.model_copy(update={"start_latency_cycles": by_kind[engine.kind]}) if engine.kind in by_kind else engine
        for engine in chip.engines
    )
    return chip.model_copy(update={"engines": engines})
