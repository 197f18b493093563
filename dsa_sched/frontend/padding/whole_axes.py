"""Operators that read whole dimensions, or windows of them: softmax, sums, norms, running sums, convolutions, LSTM.

Rules raise Meets where a real row would read a row of padding that no known number hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from dsa_sched.frontend.padding.case import Case
from dsa_sched.frontend.padding.values import HIDING, PLAIN, Beyond, Extent, Meets, Padded, Region, Rest

ALL_ROWS = "it reads all rows, those of padding too, and no mask hides them"


def softmax(case: Case) -> tuple[Padded, ...]:
    """Softmax, LogSoftmax and Hardmax along one dimension, or along all from one on before operator set 13."""
    value, rank = case.read(0), len(case.shape(0))
    old = case.sizes.networks[1].opset < 13
    axis = case.axis(1 if old else -1)
    facts: dict[Region, float] = {}
    for dim in range(axis, rank) if old else (axis,):
        if dim in value.extents:
            if not value.hides(dim):
                raise Meets(ALL_ROWS)
            facts[Rest(dim)] = 0.0
        for region, number in value.facts.items():
            if isinstance(region, Beyond) and region.columns == dim and number <= HIDING:
                facts[region] = 0.0
        if value.stale is not None and value.stale.dim == dim:
            raise Meets("it reads a cache's rows of padding, which nothing hides")
    return (Padded(value.extents, facts if case.node.op_type == "Softmax" else {}, stale=value.stale),)


ZERO = ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare")
NEUTRAL = {**dict.fromkeys(ZERO, 0.0), "ReduceMax": -inf, "ReduceMin": inf}
"""Numbers that change nothing of what an operator makes of all others."""


def reduce(case: Case) -> tuple[Padded, ...]:
    """Reductions of all kinds, ArgMax and ArgMin."""
    value, rank = case.read(0), len(case.shape(0))
    op_type = case.node.op_type
    if op_type in ("ArgMax", "ArgMin"):
        axes: Sequence[int] = (case.axis(0),)
    else:
        axes = case.node.integers("axes", ()) or (case.fixed(1) if case.has(1) else ())
        if not axes and not case.node.integer("noop_with_empty_axes", 0):
            axes = range(rank)
    gone = {axis % rank for axis in axes}
    for dim in gone & {*value.extents}:
        if op_type not in NEUTRAL or value.facts.get(Rest(dim)) != NEUTRAL[op_type]:
            raise Meets(ALL_ROWS)
    if value.stale is not None and value.stale.dim in gone:
        raise Meets("it reads a cache's rows of padding, which nothing hides")
    kept = [dim for dim in range(rank) if dim not in gone]
    keeps = bool(case.node.integer("keepdims", 1))
    to = {dim: dim if keeps else place for place, dim in enumerate(kept)}
    extents = {to[dim]: extent for dim, extent in value.extents.items() if dim in to}
    stale = value.stale and replace(value.stale, dim=to[value.stale.dim])
    return (Padded(extents, stale=stale),)


def normalised(case: Case) -> tuple[Padded, ...]:
    """LayerNormalization, RMSNormalization: statistics over all dimensions from one on."""
    value = case.read(0)
    for dim in range(case.axis(-1), len(case.shape(0))):
        if dim in value.extents:
            raise Meets("its statistics are over all rows, those of padding too")
    for position in range(1, case.count):
        case.plain(position)
    return (Padded(value.extents),) * len(case.node.outputs)


def over_features(case: Case) -> tuple[Padded, ...]:
    """Statistics of each item over its channels and places: only items may be rows."""
    value = case.read(0)
    for position in range(1, case.count):
        case.plain(position)
    if any(dim != 0 for dim in value.extents) or value.stale is not None:
        raise Meets("its statistics are over all rows, those of padding too")
    return (Padded(value.extents),) * len(case.node.outputs)


def batch_norm(case: Case) -> tuple[Padded, ...]:
    """A scale and a shift of each channel."""
    if case.node.integer("training_mode", 0):
        raise Meets("its statistics are over all rows, those of padding too")
    value = case.read(0)
    if 1 in value.extents:
        raise Meets("it has a scale for each row")
    for position in range(1, case.count):
        case.plain(position)
    return (Padded(value.extents, stale=value.stale),)


def running_sum(case: Case) -> tuple[Padded, ...]:
    """A sum of the rows before: those of padding come last."""
    value = case.read(0)
    axis = case.fixed(1)[0] % len(case.shape(0))
    backward = bool(case.node.integer("reverse", 0))
    if axis in value.extents and backward and value.facts.get(Rest(axis)) != 0:
        raise Meets("it sums from the last row on, which is padding")
    if axis in value.extents and (value.extents[axis].outer, value.extents[axis].inner) != (1, 1):
        raise Meets("it sums over rows of several items")
    if value.stale is not None and value.stale.dim == axis:
        raise Meets("it sums over a cache's rows of padding")
    return (Padded(value.extents, stale=value.stale),)


def chosen(case: Case) -> tuple[Padded, ...]:
    """TopK along a dimension without rows."""
    value = case.read(0)
    axis = case.axis(-1)
    if axis in value.extents or (value.stale is not None and value.stale.dim == axis):
        raise Meets(ALL_ROWS)
    return (Padded(value.extents),) * len(case.node.outputs)


def windows(case: Case) -> tuple[Padded, ...]:
    """Convolutions and pools: each place reads a window, which must end with its own row, unless padding is zeros."""
    value, rank = case.read(0), len(case.shape(0))
    for position in range(1, case.count):
        case.plain(position)
    if value.stale is not None or 1 in value.extents:
        raise Meets("it sums over rows of padding")
    extents = {dim: extent for dim, extent in value.extents.items() if dim == 0}
    for dim in (dim for dim in value.extents if dim > 1):
        extents[dim] = _window(case, value, dim, rank - 2)
    return (Padded(extents),)


def _window(case: Case, value: Padded, dim: int, count: int) -> Extent:
    place = dim - 2
    pads = case.node.integers("pads", (0,) * (2 * count))
    step = case.node.integers("strides", (1,) * count)[place]
    zeros = value.facts.get(Rest(dim)) == 0 and case.node.op_type == "Conv"
    automatic = case.node.text("auto_pad", "NOTSET")
    if automatic not in ("NOTSET", "VALID", "SAME_LOWER" if zeros else "VALID"):
        raise Meets("its windows reach into rows of padding")
    if case.node.op_type == "ConvTranspose" or step != 1 or value.extents[dim] != PLAIN:
        raise Meets("its windows reach into rows of padding")
    if pads[place + count] and not zeros:
        raise Meets("its windows reach into rows of padding")
    more = case.result()[1][dim] - case.sizes.rows[1]
    extent = Extent(more=more)
    if not case.sizes.fits(extent, tuple(shape[dim] for shape in case.result())):
        raise Meets("its windows reach into rows of padding")
    return extent


def recurrent(case: Case) -> tuple[Padded, ...]:
    """LSTM, GRU, RNN: forward in time, without the states after the last step; or items that do not meet."""
    value = case.read(0)
    time, item = (1, 0) if case.node.integer("layout", 0) else (0, 1)
    if value.stale is not None or 2 in value.extents:
        raise Meets("it sums over rows of padding")
    ends = [bool(name) and _is_read(case, name) for name in (*case.node.outputs, "", "")[1:3]]
    if time in value.extents:
        if case.node.text("direction", "forward") != "forward":
            raise Meets("it goes backward from the last row, which is padding")
        if any(ends) or case.has(4):
            raise Meets("its last state is that after rows of padding")
    for position in range(1, case.count):
        own = case.read(position)
        if own.extents and not (item in value.extents and position >= 4):
            raise Meets("its weights have rows of padding")
    by_item = bool(case.node.integer("layout", 0))
    places = {time: 1, item: 0} if by_item else {time: 0, item: 2}
    found = Padded({places[dim]: extent for dim, extent in value.extents.items()})
    states = Padded({dim: extent for dim, extent in value.extents.items() if dim == item})
    return (found, states, states)[: len(case.node.outputs)]


def _is_read(case: Case, name: str) -> bool:
    network = case.sizes.networks[1]
    return name in network.readers or name in network.outputs


def items_alone(case: Case) -> tuple[Padded, ...]:
    """Operators that are known to leave items apart, and nothing else of rows."""
    for position in range(case.count):
        if case.has(position):
            value = case.read(position)
            if value.stale is not None or any(dim != 0 for dim in value.extents) or (position and value.extents):
                raise Meets("what it does to rows of padding is not known")
    return (Padded(case.read(0).extents),) * len(case.node.outputs)
