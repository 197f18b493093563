"""Makers of operators that work element by element, of normalisation by constants, and of changes of type.

Roots, quotients, exponentials and functions by tables get operands of a range where they are defined and half precision
can hold the result. What jumps (a rounding, a sign) reads an input, which is the same number for chip and reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tests.fuzz.draft import FLOAT, Attribute, Draft, Maker, Shape

__all__ = ["ELEMENTWISE", "TABLED", "add_binary", "add_unary", "away_from_zero"]

UNARY: Mapping[str, Mapping[str, tuple[float | str, ...]]] = {
    **{
        name: {}
        for name in (
            "Relu",
            "Sigmoid",
            "Tanh",
            "Neg",
            "Abs",
            "HardSwish",
            "Softsign",
            "Identity",
            "Erf",
            "Mish",
            "Softplus",
        )
    },
    "LeakyRelu": {"alpha": (0.125, 0.5)},
    "HardSigmoid": {"alpha": (0.125, 0.5), "beta": (0.25, 0.75)},
    "Elu": {"alpha": (0.5, 2.0)},
    "Shrink": {"lambd": (0.25, 1.0), "bias": (0.0, 0.25)},
    "Selu": {"alpha": (0.5, 1.5), "gamma": (0.75, 1.25)},
    "Celu": {"alpha": (0.5, 2.0)},
    "Swish": {"alpha": (0.5, 1.75)},
    "Gelu": {"approximate": ("tanh", "none")},
}
"""Attributes and the values drawn besides the default."""

BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
BOUNDED = ("Sin", "Cos", "Atan", "Sinh", "Cosh", "Asinh")
"""Of numbers between -3 and 3."""
INSIDE = ("Tan", "Asin", "Acos", "Atanh")
"""Of numbers between -1/2 and 1/2."""
JUMPING = ("Floor", "Ceil", "Round", "Sign")
TABLED = frozenset(
    ["Log", "LogSoftmax", "ReduceLogSum", "ReduceLogSumExp", "Pow", "Acosh", *BOUNDED, *INSIDE, *JUMPING]
)
"""Operators that a chip may look up in a table, or do so for a part of it."""
EXPONENTS = (1.0, 2.0, 3.0, 0.5, -0.5, -1.0, 1.75, -1.5)
SMALLEST = 0.25


def add_unary(draft: Draft, op_type: str, x: str) -> str:
    settings: dict[str, Attribute] = {
        name: draft.one_of(*values) for name, values in UNARY[op_type].items() if draft.flip()
    }
    return draft.add(op_type, [x], draft.shapes[x], **settings)


def _unary(draft: Draft, op_type: str, x: str) -> bool:
    add_unary(draft, op_type, x)
    return True


def _bounded(draft: Draft, x: str) -> str:
    """At most 3 and at least -3."""
    if draft.opset < 11:
        return draft.add("Clip", [x], draft.shapes[x], min=-3.0, max=3.0)
    return draft.add("Clip", [x, draft.number_constant(-3.0), draft.number_constant(3.0)], draft.shapes[x])


def away_from_zero(draft: Draft, x: str) -> str:
    """At least SMALLEST."""
    shape = draft.shapes[x]
    match draft.one_of("abs", "square", "sigmoid", "exp"):
        case "abs":
            y = draft.add("Abs", [x], shape)
        case "square":
            y = draft.add("Mul", [x, x], shape)
        case "sigmoid":
            y = draft.add("Sigmoid", [x], shape)
        case _:
            y = draft.add("Exp", [_bounded(draft, x)], shape)
    return draft.add("Add", [y, draft.number_constant(SMALLEST)], shape)


def _of_positive(draft: Draft, op_type: str, x: str) -> bool:
    draft.add(op_type, [away_from_zero(draft, x)], draft.shapes[x])
    return True


def _exp(draft: Draft, op_type: str, x: str) -> bool:
    draft.add(op_type, [_bounded(draft, x)], draft.shapes[x])
    return True


def _tabled(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if op_type in BOUNDED:
        x = _bounded(draft, x)
    elif op_type in INSIDE:
        x = draft.add("Mul", [draft.add("Tanh", [x], shape), draft.number_constant(0.5)], shape)
    else:
        x = draft.add("Add", [draft.add("Abs", [x], shape), draft.number_constant(1.5)], shape)
    draft.add(op_type, [x], shape)
    return True


def _jumping(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    y = draft.add(op_type, [draft.input(shape)], shape)
    draft.add(draft.one_of("Add", "Mul"), [x, y] if draft.flip() else [y, x], shape)
    return True


def _power(draft: Draft, op_type: str, x: str) -> bool:
    exponent = draft.one_of(*EXPONENTS)
    base = x if exponent in (1.0, 2.0, 3.0) else away_from_zero(draft, x)
    draft.add(op_type, [base, draft.number_constant(exponent, *draft.one_of((), (1,)))], draft.shapes[x])
    return True


def _clip(draft: Draft, op_type: str, x: str) -> bool:
    low, high = draft.one_of(-0.5, 0.0, -2.0), draft.one_of(1.25, 6.0)
    given = draft.one_of(("min", "max"), ("min",), ("max",))
    if draft.opset < 11:
        limits = {"min": low, "max": high}
        draft.add(op_type, [x], draft.shapes[x], **{name: limits[name] for name in given})
        return True
    bounds = [draft.number_constant(low) if "min" in given else ""]
    bounds += [draft.number_constant(high)] if "max" in given else []
    draft.add(op_type, [x, *bounds], draft.shapes[x])
    return True


def _other_operand(draft: Draft, shape: Shape, positive: bool) -> str:
    """A value, a constant or a new input that has the shape or is broadcast to it."""
    met = tuple(extent if draft.flip() else 1 for extent in shape)[draft.number(0, len(shape)) :]
    match draft.one_of("value", "value", "value", "constant", "input"):
        case "value":
            fitting = [
                name
                for name, found in draft.shapes.items()
                if len(found) <= len(shape) and all(a in (1, b) for a, b in zip(found[::-1], shape[::-1], strict=False))
            ]
            other = draft.one_of(*fitting)
        case "input":
            other = draft.input(met or (1,))
        case _:
            return (draft.positive if positive else draft.weights)(*met)
    return away_from_zero(draft, other) if positive else other


def add_binary(draft: Draft, op_type: str, x: str, other: str = "") -> str:
    """The operands in either order; one of them has the shape of the result."""
    shape = draft.shapes[x]
    if op_type == "Div":
        top, bottom = (x, other) if draft.flip() else (other or x, x)
        under = away_from_zero(draft, bottom) if bottom else _other_operand(draft, shape, positive=True)
        return draft.add(op_type, [top, under], shape)
    other = other or _other_operand(draft, shape, positive=False)
    return draft.add(op_type, [x, other] if draft.flip() else [other, x], shape)


def _binary(draft: Draft, op_type: str, x: str) -> bool:
    add_binary(draft, op_type, x)
    return True


def _many(draft: Draft, op_type: str, x: str) -> bool:
    """One to four operands; the first or the second has the shape of the result."""
    operands = [x, *(_other_operand(draft, draft.shapes[x], positive=False) for _ in range(draft.number(0, 3)))]
    if len(operands) > 1 and draft.flip():
        operands[:2] = operands[1::-1]
    draft.add(op_type, operands, draft.shapes[x])
    return True


def _extremum(draft: Draft, op_type: str, x: str) -> bool:
    return draft.one_of(_binary, _many)(draft, op_type, x)


def _prelu(draft: Draft, op_type: str, x: str) -> bool:
    """One slope, one a channel, or as many as a value has."""
    shape = draft.shapes[x]
    channels = (shape[1], *(1,) * (len(shape) - 2)) if len(shape) > 1 else (1,)
    match draft.one_of("one", "channel", "full", "value"):
        case "one":
            slope = draft.weights(1)
        case "channel":
            slope = draft.weights(*channels)
        case "full":
            slope = draft.weights(*shape)
        case _:
            slope = draft.one_of(*draft.like(shape))
    draft.add(op_type, [x, slope], shape)
    return True


def _batch_norm(draft: Draft, op_type: str, x: str) -> bool:
    shape = draft.shapes[x]
    if len(shape) < 2:
        return False
    channels = shape[1]
    settings: dict[str, Attribute] = {}
    if draft.flip():
        settings["epsilon"] = draft.one_of(1e-3, 1e-5)
    if draft.flip():
        settings["momentum"] = 0.75
    if draft.opset >= 14 and draft.flip():
        settings["training_mode"] = 0
    scale = draft.one_of(draft.positive, draft.weights)(channels)
    parameters = [scale, draft.weights(channels), draft.weights(channels), draft.positive(channels)]
    draft.add(op_type, [x, *parameters], shape, **settings)
    return True


def _dropout(draft: Draft, op_type: str, x: str) -> bool:
    settings: dict[str, Attribute] = {}
    inputs = [x]
    if draft.opset < 12:
        settings = {"ratio": 0.25} if draft.flip() else {}
    elif draft.flip():
        inputs.append(draft.number_constant(0.25))
        inputs += [draft.constant(np.array(False))] if draft.flip() else []
        settings = {"seed": 3} if draft.flip() else {}
    draft.add(op_type, inputs, draft.shapes[x], **settings)
    return True


def _cast(draft: Draft, op_type: str, x: str) -> bool:
    """To another type of numbers, perhaps computing there, and back; both ways by the same operator."""
    shape, wide = draft.shapes[x], draft.one_of(int(TensorProto.FLOAT16), int(TensorProto.DOUBLE), FLOAT)

    def cast_to(name: str, dtype: int) -> str:
        if op_type == "CastLike":
            like = draft.constant(np.ones(1, onnx.helper.tensor_dtype_to_np_dtype(dtype)))
            inputs, settings = [name, like], {}
        else:
            inputs, settings = [name], {"to": dtype}
        if dtype == FLOAT:
            return draft.add(op_type, inputs, shape, **cast(dict[str, Attribute], settings))
        return draft.add_other(op_type, inputs, shape, dtype, **cast(dict[str, Attribute], settings))

    y = cast_to(x, wide)
    if wide != FLOAT:
        for inner in draft.one_of((), ("Neg",), ("Abs", "Neg")):
            y = draft.add_other(inner, [y], shape, wide)
        cast_to(y, FLOAT)
    return True


def _constant(draft: Draft, op_type: str, x: str) -> bool:
    """An operand that the file has as a node."""
    length = draft.shapes[x][-1]
    values = draft.normal(length)
    forms: dict[str, Attribute] = {"value": numpy_helper.from_array(values)}
    if draft.opset >= 12:
        forms |= {"value_float": 0.75, "value_floats": values.tolist()}
    name = draft.one_of(*forms)
    other = draft.add_constant(op_type, [], **{name: forms[name]})
    draft.add(draft.one_of("Add", "Mul", "Max"), [x, other], draft.shapes[x])
    return True


ELEMENTWISE: Mapping[str, Maker] = {
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(("Sqrt", "Reciprocal", "Log"), _of_positive),
    **dict.fromkeys((*BOUNDED, *INSIDE, "Acosh"), _tabled),
    **dict.fromkeys(JUMPING, _jumping),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _binary),
    **dict.fromkeys(("Max", "Min"), _extremum),
    **dict.fromkeys(("Sum", "Mean"), _many),
    "Exp": _exp,
    "Pow": _power,
    "Clip": _clip,
    "PRelu": _prelu,
    "BatchNormalization": _batch_norm,
    "Dropout": _dropout,
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    "Constant": _constant,
}
