"""Makers of operators along whole axes (softmax, reductions, norms) and of matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tests.fuzz.draft import Attribute, Draft, Maker, Shape, with_extent
from tests.fuzz.draw_elementwise import away_from_zero

__all__ = ["AXES"]

REDUCTIONS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
)
SUMS = ("ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
LONGEST_SUM = 64
LONGEST_CONSTANT_SIDE = 20


def _softmax(draft: Draft, op_type: str, x: str) -> bool:
    """Until operator set 12, all axes from the one named are one; only one of them may have more than one element."""
    shape = draft.shapes[x]
    rank, axis = len(shape), draft.axis(shape)
    if draft.opset >= 13:
        if axis == rank - 1 and draft.flip():
            draft.add(op_type, [x], shape)
        else:
            draft.add(op_type, [x], shape, axis=draft.signed(axis, rank))
        return True
    lone = [a for a in range(rank) if sum(extent > 1 for extent in shape[a:]) <= 1]
    axis = draft.one_of(*lone)
    if axis == 1 and draft.flip():
        draft.add(op_type, [x], shape)
    else:
        draft.add(op_type, [x], shape, axis=draft.signed(axis, rank))
    return True


def _reduce(draft: Draft, op_type: str, x: str) -> bool:
    """Some axes, or all by naming none; reduced axes stay or go, but for the last."""
    if op_type == "ReduceLogSum":
        x = away_from_zero(draft, x)
    shape = draft.shapes[x]
    rank, axes = len(shape), draft.axes(shape)
    every = draft.number(0, 7) == 0 or (prod(shape) <= LONGEST_SUM and draft.number(0, 3) == 0)
    axes = tuple(range(rank)) if every else axes
    if op_type in SUMS and prod(shape[a] for a in axes) > LONGEST_SUM:
        return False
    lost = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    keep = 1 if not lost or draft.keep else draft.number(0, 1)
    settings: dict[str, Attribute] = {"keepdims": keep} if not keep or draft.flip() else {}
    since = 13 if op_type == "ReduceSum" else 18
    if draft.opset >= since and draft.flip():
        settings["noop_with_empty_axes"] = draft.number(0, 1)
    inputs: list[str] = []
    if not every:
        inputs, named = draft.listed("axes", [draft.signed(axis, rank) for axis in axes], since)
        settings |= named
    result = kept if keep else lost
    if every and settings.get("noop_with_empty_axes", 0):
        if op_type not in ("ReduceMean", "ReduceSum", "ReduceMax"):
            return False  # the others would still compute each element by itself, which the frontend refuses
        result = shape
    draft.add(op_type, [x, *inputs], result, **settings)
    return True


def _layer_norm(draft: Draft, op_type: str, x: str) -> bool:
    """Trailing axes; the mean and the inverse deviation are outputs too, at times."""
    shape = draft.shapes[x]
    rank, axis = len(shape), draft.axis(shape)
    wide = shape[axis:]
    settings: dict[str, Attribute] = {}
    if axis != rank - 1 or draft.flip():
        settings["axis"] = draft.signed(axis, rank)
    if draft.flip():
        settings["epsilon"] = draft.one_of(1e-3, 1e-2)
    if draft.flip():
        settings["stash_type"] = 1
    inputs = [x, draft.weights(*wide)]
    results = [shape]
    if op_type == "LayerNormalization":
        inputs += [draft.weights(*wide)] if draft.flip() else []
        less = tuple(1 if a >= axis else extent for a, extent in enumerate(shape))
        results += [less] * draft.one_of(0, 0, 1, 2)
    draft.add(op_type, inputs, *results, **settings)
    return True


def _instance_norm(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if len(shape) < 3:
        return False
    settings: dict[str, Attribute] = {"epsilon": draft.one_of(1e-3, 1e-2)} if draft.flip() else {}
    draft.add(op_type, [x, draft.weights(shape[1]), draft.weights(shape[1])], shape, **settings)
    return True


def _lp_norm(draft: Draft, op_type: str, x: str) -> bool:
    """Lines over the sum of magnitudes, or over the root of the sum of squares."""
    shape = draft.shapes[x]
    settings: dict[str, Attribute] = {"p": draft.one_of(1, 2)} if draft.flip() else {}
    axis = draft.axis(shape)
    if axis != len(shape) - 1 or draft.flip():
        settings["axis"] = draft.signed(axis, len(shape))
    draft.add(op_type, [x], shape, **settings)
    return True


def _matmul(draft: Draft, op_type: str, x: str) -> bool:
    """A constant or a computed factor, on either side, with or without leading axes."""
    shape = draft.shapes[x]
    if len(shape) < 2:
        return False
    *lead, rows, length = shape
    columns = length if draft.keep else draft.number(1, LONGEST_CONSTANT_SIDE)
    match draft.one_of("right", "left", "value", "turned"):
        case "right":
            front = draft.one_of((), tuple(lead), tuple(1 for _ in lead))
            w = draft.weights(*front, length, columns, length=length)
            draft.add(op_type, [x, w], (*lead, rows, columns))
        case "left":
            w = draft.weights(columns, rows, length=rows)
            draft.add(op_type, [w, x], (*lead, columns, length))
        case "value":
            factors = [
                name
                for name, found in draft.shapes.items()
                if len(found) >= 2 and found[-2] == length and found[:-2] in ((), tuple(lead))
            ]
            if not factors:
                return False
            other = draft.one_of(*factors)
            draft.add(op_type, [x, other], (*lead, rows, draft.shapes[other][-1]))
        case _:
            perm = (*range(len(lead)), len(lead) + 1, len(lead))
            turned = draft.add("Transpose", [x], (*lead, length, rows), perm=perm)
            draft.add(op_type, [x, turned], (*lead, rows, rows))
    return True


def _einsum(draft: Draft, op_type: str, x: str) -> bool:
    """Axes in another order, one of them summed perhaps; or a product with weights along one axis."""
    shape = draft.shapes[x]
    labels = "abcde"[: len(shape)]
    axis = draft.axis(shape)
    others = [label for label in labels if label != labels[axis]]
    if draft.flip():
        extent = shape[axis] if draft.keep else draft.number(1, LONGEST_CONSTANT_SIDE)
        w = draft.weights(shape[axis], extent, length=shape[axis])
        result = labels.replace(labels[axis], "z")
        draft.add(op_type, [x, w], with_extent(shape, axis, extent), equation=f"{labels},{labels[axis]}z->{result}")
        return True
    kept = others if len(others) > 0 and not draft.keep else list(labels)
    shift = draft.number(0, len(kept) - 1)
    kept = kept[shift:] + kept[:shift]
    scaled = draft.add("Mul", [x, draft.number_constant(1 / shape[axis])], shape) if len(kept) < len(labels) else x
    draft.add(
        op_type, [scaled], tuple(shape[labels.index(label)] for label in kept), equation=f"{labels}->{''.join(kept)}"
    )
    return True


def _gemm(draft: Draft, op_type: str, x: str) -> bool:
    """As first factor, or as second; the third operand in any shape that is broadcast to the result."""
    shape = draft.shapes[x]
    if len(shape) != 2:
        return False
    across, turned, alpha = draft.number(0, 1), draft.number(0, 1), draft.one_of(1.0, 0.5)
    rows, length = shape[::-1] if turned else shape
    columns = draft.one_of(rows, draft.number(1, LONGEST_CONSTANT_SIDE))
    second = (columns, length) if across else (length, columns)
    partners = [name for name, found in draft.shapes.items() if found == second]
    match draft.one_of("constant", "value", "second"):
        case "value" if partners:
            factors, alpha = [x, draft.one_of(*partners)], 1.0
        case "second":
            length, columns = shape[::-1] if across else shape
            rows = draft.one_of(columns, draft.number(1, LONGEST_CONSTANT_SIDE))
            left = draft.weights(*((length, rows) if turned else (rows, length)), length=length)
            factors, alpha = [left, x], 1.0
        case _:
            factors = [x, draft.weights(*second, length=length)]
    added, beta = _third(draft, rows, columns)
    settings: dict[str, Attribute] = {"alpha": alpha, "beta": beta, "transA": turned, "transB": across}
    defaults: dict[str, Attribute] = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    written = {name: value for name, value in settings.items() if value != defaults[name] or draft.flip()}
    draft.add(op_type, [*factors, *added], (rows, columns), **written)
    return True


def _third(draft: Draft, rows: int, columns: int) -> tuple[list[str], float]:
    """The third operand of Gemm and a factor for it, which is 1 for other than a bias over the columns."""
    beta = draft.one_of(1.0, 0.5)
    shapes: tuple[Shape, ...] = ((), (1,), (columns,), (1, columns), (1, 1), (rows, 1), (rows, columns))
    match draft.one_of("none", "constant", "constant", "value"):
        case "none" if draft.opset >= 11:
            return [], 1.0
        case "value" if fitting := [name for name, found in draft.shapes.items() if found in shapes]:
            return [draft.one_of(*fitting)], 1.0
        case _:
            shape = draft.one_of(*shapes)
            return [draft.weights(*shape)], 1.0 if rows > 1 and shape[:1] == (rows,) and len(shape) == 2 else beta


AXES: Mapping[str, Maker] = {
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(REDUCTIONS, _reduce),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_norm),
    "InstanceNormalization": _instance_norm,
    "LpNormalization": _lp_norm,
    "MatMul": _matmul,
    "Einsum": _einsum,
    "Gemm": _gemm,
}
