"""Results that the chip must have stored: outputs of one layer recomputed at chosen positions, in plain numpy.

    bits of a layer's inputs + positions [S, rank]  -->  bits of its output there [S]

This is the other side of every bit-for-bit comparison, so it shares nothing with the templates or the simulator. It
uses the operator's attributes, the order of operations written in the docstrings below, and the slow arithmetic of
`emulation`. Immediates (a clip's bounds, 1 / taps) are the nearest fp16 number. A NaN is 0x7c01 whatever its payload
was. An int8 value is held as the number that it is, as an fp16 one is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from codegen.judgement import Array, Points, Sampled
from codegen.neuralscale.emulation import arithmetic as chip
from codegen.neuralscale.emulation.arithmetic import Bits, Fp16
from codegen.neuralscale.emulation.attention_reference import attended
from codegen.neuralscale.emulation.curves_reference import EMULATED, divisor, refined
from codegen.neuralscale.emulation.movement_reference import RULES, Rule
from codegen.neuralscale.emulation.tables_reference import looked_up
from codegen.neuralscale.instructions.depthwise_forms import DepthwiseForm, depthwise_form, is_depthwise
from hw_models.chip import Chip
from partitioner.ir.graph import Constants, Graph, Op

Read = Callable[[str], Bits]

WHOLE_REDUCTION = 2_048
"""Largest number of products that one matrix instruction may add; longer reductions are cut into runs of about
RUN_LENGTH."""

WHOLE_MEAN = 256
"""Largest number of pixels of an image whose mean is one dot product."""

RUN_LENGTH = 1_152

WHOLE_EXACT = 8_192
"""Largest number of int8 products that one matrix instruction may add; longer reductions are cut into runs of at most
about as many."""

INTEGER = "int8"
SAMPLES_AT_A_TIME = 1_024


@dataclass(frozen=True, slots=True)
class _Sampled:
    """One operator at sampled positions. `running` holds the value that the layer has just computed there, by name."""

    graph: Graph
    constants: Constants
    op: Op
    points: Points
    read: Read
    running: tuple[str, Fp16] | None
    device: Chip

    def tensor(self, name: str) -> Fp16:
        """A whole input, in device shape."""
        tensor = self.graph.by_name[name]
        bits = chip.bits_of(self.constants[tensor.constant]) if tensor.constant else self.read(name)
        if tensor.dtype == INTEGER:
            return chip.integers_of(bits.reshape(tensor.shape)).astype(np.float64)
        return chip.from_bits(bits.reshape(tensor.shape))

    @property
    def exact(self) -> bool:
        """Whether the operator multiplies integers."""
        return self.graph.by_name[self.op.inputs[0]].dtype == INTEGER

    @property
    def of_integer_weights(self) -> bool:
        """Whether the operator multiplies numbers by weights that are integers with a scale per output channel."""
        return not self.exact and self.graph.by_name[self.op.inputs[1]].dtype == INTEGER

    def weights(self) -> Fp16:
        """The second factor of a product, as numbers; integers with a scale are multiplied by it and rounded."""
        stored = self.tensor(self.op.inputs[1])
        return chip.mul(stored, self.tensor(self.op.inputs[2])) if self.of_integer_weights else stored

    def operand(self, name: str) -> Fp16:
        """An element-wise operand: the element that meets each sampled position, aligned at the last axis."""
        if self.running is not None and name == self.running[0]:
            return self.running[1]
        values = self.tensor(name)
        aligned = self.points[:, self.points.shape[1] - values.ndim :]
        return _at(values, [np.where(extent > 1, i, 0) for i, extent in zip(aligned.T, values.shape, strict=True)])


def emulate(sampled: Sampled) -> Array:
    """Elements of the layer's output at the sampled positions, as the chip stores them.

    The anchor is computed first, then the epilogue in order, each rounded on its own. The chip decides the order of a
    depthwise convolution.
    """
    graph, points = sampled.graph, sampled.points
    if len(points) > SAMPLES_AT_A_TIME:
        chunks = np.array_split(points, -(-len(points) // SAMPLES_AT_A_TIME))
        return np.concatenate([emulate(replace(sampled, points=chunk)) for chunk in chunks])

    def bits(name: str) -> Bits:
        return chip.bits_of(sampled.read(name))

    running: tuple[str, Fp16] | None = None
    for name in sampled.layer.ops:
        op = graph.op_by_name[name]
        found = _Sampled(graph, sampled.constants, op, points, bits, running, sampled.chip)
        running = (op.outputs[0], _OPERATORS.get(op.kind, _elementwise)(found))
    assert running is not None  # a layer has an anchor
    dtype = graph.by_name[sampled.layer.output].dtype
    return running[1].astype(dtype) if dtype == INTEGER else chip.to_bits(running[1]).view(dtype)


def _at(values: Fp16, indices: list[Points]) -> Fp16:
    taken: Fp16 = values[tuple(indices)]
    return taken


def _runs(length: int, products: int) -> tuple[tuple[int, int], ...]:
    """Runs of a reduction over `length` channels of `products` products each, cut where it is longer than
    WHOLE_REDUCTION."""
    total = length * products
    count = 1 if total <= WHOLE_REDUCTION else min(length, -(-total // RUN_LENGTH))
    return tuple(pairwise(length * i // count for i in range(count + 1)))


def _exact_runs(length: int, products: int) -> tuple[tuple[int, int], ...]:
    """Runs of a reduction of integers over `length` channels of `products` products each, cut where it is longer than
    WHOLE_EXACT; each begins at an even channel."""
    pairs, total = -(-length // 2), length * products
    count = 1 if total <= WHOLE_EXACT else min(pairs, -(-total // WHOLE_EXACT))
    return tuple(pairwise([*(2 * (pairs * i // count) for i in range(count)), length]))


def _dot_in_runs(a: Fp16, b: Fp16, cuts: tuple[tuple[int, int], ...]) -> Fp16:
    """a[S, products, length] times b of the same shape: runs of channels are summed separately, then added in order."""
    total: Fp16 | None = None
    for low, high in cuts:
        part = chip.dot(a[:, :, low:high].reshape(len(a), -1), b[:, :, low:high].reshape(len(b), -1))
        total = part if total is None else chip.add(total, part)
    assert total is not None  # there is at least one run
    return total


def _scaled_runs(s: _Sampled, a: Fp16, b: Fp16, cuts: tuple[tuple[int, int], ...]) -> Fp16:
    """Integers a[S, products, length] times b of the same shape: each run of channels is summed as int32, then
    multiplied by the scale of its column and rounded; the results of runs are added in order."""
    scales = s.tensor(s.op.inputs[2])
    scale = scales[0] if scales.size == 1 else scales[s.points[:, -1]]
    total: Fp16 | None = None
    for low, high in cuts:
        left, right = (each[:, :, low:high].reshape(len(each), -1).astype(np.int64) for each in (a, b))
        part = chip.mul(chip.exact_dot(left, right).astype(np.float64), scale)
        total = part if total is None else chip.add(total, part)
    assert total is not None  # there is at least one run
    return total


def _conv(s: _Sampled) -> Fp16:
    """Convolution: k runs over kernel rows, kernel columns, then the input channels of the output's group. Even and odd
    k have an accumulator each, from +0; taps in the padding are multiplied too, as +0. A reduction longer than 2,048
    (and not grouped) is cut into equal runs of channels, each summed by itself and then added in order. The bias comes
    last. The sums of integers are those of `_scaled_runs`, however they are computed."""
    op = s.op
    form = depthwise_form(s.graph, op, s.device) if is_depthwise(s.graph, op) and not s.exact else DepthwiseForm.EACH
    if form is not DepthwiseForm.EACH:
        return _plus_bias(s, _depthwise_blocks(s) if form is DepthwiseForm.BLOCKS else _depthwise_vector(s))
    kernel, strides, dilations, pads = (op.ints(name) for name in ("kernel", "strides", "dilations", "pads"))
    x, weights = s.tensor(op.inputs[0]), s.weights()
    n, y, z, f = s.points.T
    groups = int(op.number("groups"))
    channels = x.shape[3] // groups
    rows = y[:, None] * strides[0] - pads[0] + np.arange(kernel[0]) * dilations[0]
    columns = z[:, None] * strides[1] - pads[1] + np.arange(kernel[1]) * dilations[1]
    inside = _inside(rows, x.shape[1])[:, :, None] & _inside(columns, x.shape[2])[:, None, :]
    per_group = s.graph.by_name[op.outputs[0]].shape[3] // groups
    first = f // per_group * channels
    taps = x[
        n[:, None, None, None],
        np.clip(rows, 0, x.shape[1] - 1)[:, :, None, None],
        np.clip(columns, 0, x.shape[2] - 1)[:, None, :, None],
        first[:, None, None, None] + np.arange(channels),
    ]
    taps = np.where(inside[..., None], taps, 0.0)
    w = np.moveaxis(weights, 3, 0)[f] if groups == 1 else np.moveaxis(weights, 4, 1)[f // per_group, f % per_group]
    products = prod(kernel)
    cuts = _runs(channels, products) if groups == 1 else ((0, channels),)
    shape = (len(f), products, channels)
    if s.exact:
        cuts = _exact_runs(channels, products) if groups == 1 else ((0, channels),)
        return _plus_bias(s, _scaled_runs(s, taps.reshape(shape), w.reshape(shape), cuts))
    return _plus_bias(s, _dot_in_runs(taps.reshape(shape), w.reshape(shape), cuts))


def _depthwise_blocks(s: _Sampled) -> Fp16:
    """Depthwise convolution in blocks: a dense convolution over the block of channels around an output, with zeros off
    the diagonal. k runs over kernel rows, kernel columns, then the channels of the block; products of the other
    channels with zero count."""
    x, weights = s.tensor(s.op.inputs[0]), s.tensor(s.op.inputs[1])
    block, products = s.device.matrix.array_channels, prod(s.op.ints("kernel"))
    total = np.zeros(len(s.points))
    for number in np.unique(s.points[:, 3] // block):
        some = np.flatnonzero(s.points[:, 3] // block == number)
        channels = np.arange(number * block, min(number * block + block, x.shape[3]))
        taps = np.stack([_taps(s, x, channel)[some] for channel in channels], 2)
        own = s.points[some, 3]
        diagonal = np.where(
            channels == own[:, None, None], weights.reshape(len(weights), products)[own][:, :, None], 0.0
        )
        total[some] = chip.dot(taps.reshape(len(some), -1), diagonal.reshape(len(some), -1))
    return total


def _depthwise_vector(s: _Sampled) -> Fp16:
    """Depthwise convolution on the vector engine: from +0, kernel rows, then kernel columns. Each product is rounded
    and added; taps in the padding are left out."""
    own = s.points[:, 3]
    x, weights = s.tensor(s.op.inputs[0]), s.tensor(s.op.inputs[1])
    inside = _taps_inside(s, x)
    total = np.zeros(len(own))
    for tap, value in enumerate(_taps(s, x, own).T):
        product = chip.mul(value, weights.reshape(len(weights), -1)[own, tap])
        total = np.where(inside[:, tap], chip.add(total, product), total)
    return total


def _taps_inside(s: _Sampled, x: Fp16) -> npt.NDArray[np.bool_]:
    """Whether each tap lies in the image, [S, taps]."""
    rows, columns = (_inside(_tap_positions(s, axis), x.shape[axis + 1]) for axis in (0, 1))
    both: npt.NDArray[np.bool_] = (rows[:, :, None] & columns[:, None, :]).reshape(len(s.points), -1)
    return both


def _taps(s: _Sampled, x: Fp16, channel: Points | np.int64) -> Fp16:
    """The input under each tap in one channel (or one channel per sample), +0 in the padding: [S, taps]."""
    rows, columns = (np.clip(_tap_positions(s, axis), 0, x.shape[axis + 1] - 1) for axis in (0, 1))
    channels = np.broadcast_to(channel, len(s.points))
    values = x[s.points[:, 0, None, None], rows[:, :, None], columns[:, None, :], channels[:, None, None]]
    return np.where(_taps_inside(s, x), values.reshape(len(s.points), -1), 0.0)


def _matmul(s: _Sampled) -> Fp16:
    """Matrix product: k runs over the columns of a, with one accumulator each for even and odd k; reductions longer
    than 2,048 are cut as in the convolution. Leading axes broadcast."""
    a, b = s.tensor(s.op.inputs[0]), s.weights()
    *leading, row, column = s.points.T
    rows = _at(a, [*_leading(leading, a), row])
    columns = np.moveaxis(b, -1, -2)[(*_leading(leading, b), column)]
    if s.exact:
        cuts = _exact_runs(a.shape[-1], 1)
        return _plus_bias(s, _scaled_runs(s, rows[:, None, :], columns[:, None, :], cuts))
    cuts = _runs(a.shape[-1], 1)
    return _plus_bias(s, _dot_in_runs(rows[:, None, :], columns[:, None, :], cuts))


def _leading(positions: list[Points], factor: Fp16) -> list[Points]:
    """The leading positions of a factor that meet those of the product, aligned at the last axis; 0 where its extent is
    one."""
    extents = factor.shape[:-2]
    met = positions[len(positions) - len(extents) :]
    return [np.where(extent > 1, i, 0) for i, extent in zip(met, extents, strict=True)]


def _plus_bias(s: _Sampled, total: Fp16) -> Fp16:
    position = 3 if s.exact or s.of_integer_weights else 2
    return chip.add(total, s.tensor(s.op.inputs[position])[s.points[:, -1]]) if len(s.op.inputs) > position else total


def _inside(positions: Points, extent: int) -> npt.NDArray[np.bool_]:
    return (positions >= 0) & (positions < extent)


def _max_pool(s: _Sampled) -> Fp16:
    """Maximum down every column of the window first, then across, over the taps that exist, from -inf."""
    return _windowed(s, s.tensor(s.op.inputs[0]), -np.inf, chip.maximum)


def _average_pool(s: _Sampled) -> Fp16:
    """Average pool. A mean over the whole image is a dot product with 1 / pixels or, for more than WHOLE_MEAN pixels, a
    mean in pieces, with the pixels row by row. Any other is the input times 1 / taps, summed down the columns of the
    window and then across, from +0; where fewer taps count than the window has, it is also multiplied by taps / count.
    """
    op, x = s.op, s.tensor(s.op.inputs[0])
    kernel, pads = op.ints("kernel"), op.ints("pads")
    taps = prod(kernel)
    if kernel == x.shape[1:3] and not any(pads):
        pixels = np.moveaxis(x.reshape(x.shape[0], taps, x.shape[3]), 1, 2)[s.points[:, 0], s.points[:, 3]]
        if taps > WHOLE_MEAN:
            return chip.total(pixels, mean=True)
        return chip.dot(np.broadcast_to(chip.immediate(1.0 / taps), pixels.shape), pixels)
    mean = _windowed(s, chip.mul(x, chip.immediate(1.0 / taps)), 0.0, chip.add)
    counted = np.ones(len(s.points), np.int64)
    for axis in (0, 1):
        margin = (pads[axis], pads[axis + 2]) if op.number("count_include_pad") else (0, 0)
        positions = _tap_positions(s, axis)
        counted *= ((positions >= -margin[0]) & (positions < x.shape[axis + 1] + margin[1])).sum(1)
    factors = np.array([float(chip.immediate(taps / count)) if count else 1.0 for count in counted])
    return np.where((counted == taps) | (counted == 0), mean, chip.mul(mean, factors))


def _tap_positions(s: _Sampled, axis: int) -> Points:
    """Input position of each tap on a spatial axis, including padding: [S, taps]."""
    kernel, strides, dilations, pads = (s.op.ints(name)[axis] for name in ("kernel", "strides", "dilations", "pads"))
    taps: Points = s.points[:, axis + 1, None] * strides - pads + np.arange(kernel) * dilations
    return taps


def _windowed(s: _Sampled, x: Fp16, start: float, combine: Callable[[Fp16, Fp16], Fp16]) -> Fp16:
    n, channel = s.points[:, 0], s.points[:, 3]
    rows, columns = _tap_positions(s, 0), _tap_positions(s, 1)
    result = np.full(len(n), start)
    for column in columns.T:
        down = np.full(len(n), start)
        for row in rows.T:
            value = x[n, np.clip(row, 0, x.shape[1] - 1), np.clip(column, 0, x.shape[2] - 1), channel]
            down = np.where(_inside(row, x.shape[1]), combine(down, value), down)
        result = np.where(_inside(column, x.shape[2]), combine(result, down), result)
    return result


def _softmax(s: _Sampled) -> Fp16:
    """exp(x - max of the line), summed in pieces; the exponential times the refined reciprocal of that sum."""
    x = s.tensor(s.op.inputs[0])
    axis = int(s.op.number("axis")) % x.ndim
    length = x.shape[axis]
    which, back = np.unique(np.delete(s.points, axis, 1), axis=0, return_inverse=True)
    rows = np.moveaxis(x, axis, -1)[tuple(which.T)].reshape(-1, length)
    powers = chip.exp(chip.sub(rows, chip.largest(rows, 1)[:, None]))
    scale = refined(chip.total(powers))
    back = back.reshape(-1)
    return chip.mul(powers[back, s.points[:, axis]], scale[back])


def _concat(s: _Sampled) -> Fp16:
    """Concat: bits are moved, nothing is computed."""
    axis = int(s.op.number("axis")) % s.points.shape[1]
    result = np.zeros(len(s.points))
    start = 0
    for name in s.op.inputs:
        piece = s.tensor(name)
        end = start + piece.shape[axis]
        here = (s.points[:, axis] >= start) & (s.points[:, axis] < end)
        inside = s.points[here].copy()
        inside[:, axis] -= start
        result[here] = _at(piece, list(inside.T))
        start = end
    return result


def _view(s: _Sampled) -> Fp16:
    """View: the elements of the input in unchanged linear order."""
    shape = s.graph.by_name[s.op.outputs[0]].shape
    return _at(s.tensor(s.op.inputs[0]).reshape(-1), [np.ravel_multi_index(tuple(s.points.T), shape)])


def _of_input(rule: Rule) -> Callable[[_Sampled], Fp16]:
    """The rule for an operator of `movement_reference.py`, which takes the whole first input."""
    return lambda s: rule(s.graph, s.op, s.tensor(s.op.inputs[0]), s.points)


def _elementwise(s: _Sampled) -> Fp16:
    """Element-wise operators on the running value, which the layer has just computed; for an anchor it is the first
    operand of the output's shape."""
    op = s.op
    if op.kind == "scale_shift":
        x, scale, shift = (s.operand(name) for name in op.inputs)
        return chip.add(chip.mul(x, scale), shift)
    if op.kind == "lookup":
        return looked_up(op, s.operand(op.inputs[0]))
    if op.kind == "add_scaled":
        x, y = (s.operand(name) for name in op.inputs)
        return chip.add(x, chip.mul(y, chip.immediate(op.number("scale"))))
    if len(op.inputs) == 1:
        return _unary(op, s.operand(op.inputs[0]))
    running = s.running[0] if s.running is not None else _first_full(s)
    other = next((name for name in op.inputs if name != running), running)
    swapped = op.inputs[1] == running != other
    return _binary(s, op.kind, s.operand(running), other, swapped)


def _first_full(s: _Sampled) -> str:
    shape = s.graph.by_name[s.op.outputs[0]].shape
    padded = {name: (1,) * (len(shape) - len(t)) + t for name in s.op.inputs for t in [s.graph.by_name[name].shape]}
    return next(name for name in s.op.inputs if padded[name] == shape)


def _binary(s: _Sampled, kind: str, x: Fp16, other: str, swapped: bool) -> Fp16:
    """`x op other`, where x is the running value. other - x is (-1 * x) + other. x / other is x * (1 / other) by
    `divisor`, but x * fp16(1 / constant) for a constant of one element; other / x is (1 / x) * other."""
    y = s.operand(other)
    tensor = s.graph.by_name[other]
    match kind:
        case "sub":
            return chip.add(chip.mul(x, chip.immediate(-1.0)), y) if swapped else chip.sub(x, y)
        case "div" if swapped:
            return chip.mul(divisor(x), y)
        case "div" if tensor.constant and prod(tensor.shape) == 1:
            value = float(s.tensor(other).reshape(-1)[0])
            return chip.mul(x, chip.immediate(1.0 / value if value else np.copysign(np.inf, value)))
        case "div":
            return chip.mul(x, divisor(y))
    return {"add": chip.add, "mul": chip.mul, "max": chip.maximum, "min": chip.minimum}[kind](x, y)


def _unary(op: Op, x: Fp16) -> Fp16:
    match op.kind:
        case "relu":
            return chip.maximum(x, chip.immediate(0.0))
        case "leaky_relu":
            return chip.leaky_relu(x, chip.immediate(op.number("alpha")), zero_is_scaled=True)
        case "abs":
            return chip.leaky_relu(x, chip.immediate(-1.0), zero_is_scaled=True)
        case "widen":
            return x
        case "narrow":
            return _narrow(
                x, str(op.attribute("rounding")), op.number("centre") if "centre" in dict(op.attributes) else 0.0
            )
        case "neg":
            return chip.mul(x, chip.immediate(-1.0))
        case "clip":
            return _clip(x, op.number("min"), op.number("max"))
        case "hard_sigmoid":
            return _ramp(x, op.number("alpha"), op.number("beta"))
        case kind if kind in EMULATED:
            return EMULATED[kind](op, x)
    raise ValueError(f"no emulation of {op.kind}")


def _narrow(x: Fp16, rounding: str, centre: float) -> Fp16:
    """int8 numbers, truncated toward zero. To round to the nearest integer, with ties up, 1536 is added and subtracted
    first: fp16 numbers are integers there. What is subtracted is less by the integer zero."""
    if rounding == "nearest":
        x = chip.add(chip.add(x, chip.immediate(1536.0)), chip.immediate(centre - 1536.0))
    return chip.narrowed(x).astype(np.float64)


def _clip(x: Fp16, low: float, high: float) -> Fp16:
    return chip.minimum(chip.maximum(x, chip.immediate(low)), chip.immediate(high))


def _ramp(x: Fp16, slope: float, offset: float) -> Fp16:
    """clip(slope * x + offset, 0, 1)"""
    return _clip(chip.add(chip.mul(x, chip.immediate(slope)), chip.immediate(offset)), 0.0, 1.0)


_OPERATORS: Mapping[str, Callable[[_Sampled], Fp16]] = {
    "conv": _conv,
    "matmul": _matmul,
    "attend": lambda s: attended(s.op, [s.tensor(name) for name in s.op.inputs], s.points),
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "softmax": _softmax,
    "concat": _concat,
    "view": _view,
    **{kind: _of_input(rule) for kind, rule in RULES.items()},
}
