"""Operators that make each element from one of each operand: rows of padding stay where they are.

scores + mask, mask -10000 at rows of padding  -->  rows of padding that a softmax does not see
columns <= places of rows                      -->  truth values that are false after a diagonal
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from dsa_sched.frontend.padding.case import Case, Shape, one_stale
from dsa_sched.frontend.padding.linear import LinearNumber
from dsa_sched.frontend.padding.values import HIDING, PLAIN, Beyond, Extent, Meets, Number, Padded, Region, moved

Operand = float | None
"""The number of an operand in a region, None where it is not known."""


def elementwise(case: Case) -> tuple[Padded, ...]:
    """The rule."""
    operands, shapes = _aligned(case)
    number, compared = _number(case, operands), dict[Region, float]()
    if number is None and _compares_numbers(case, operands):
        compared = dict(_compared(case, operands))
    elif number is None:
        for position in range(case.count):
            case.read(position)
    extents = _extents(operands, shapes)
    facts = {region: found for region in _regions(operands) if (found := _fact(case, operands, region)) is not None}
    stale = one_stale(operands)
    if stale is not None and case.node.op_type == "Identity":
        stale = operands[0].stale
    return (case.settled(Padded(extents, facts | compared, number, stale, _uniform(case, operands))),)


def _aligned(case: Case) -> tuple[list[Padded], list[Shape]]:
    """The operands that there are with their dimensions at those of the result, and their shapes with as many."""
    rank = len(case.result()[1])
    found, shapes = list[Padded](), list[Shape]()
    for position in filter(case.has, range(case.count)):
        shape = case.shape(position)
        before = rank - len(shape)
        found.append(moved(case.value(position), {dim: dim + before for dim in range(len(shape))}))
        shapes.append((1,) * before + shape)
    return found, shapes


def _extents(operands: Sequence[Padded], shapes: Sequence[Shape]) -> dict[int, Extent]:
    found: dict[int, Extent] = {}
    for value in operands:
        for dim, extent in value.extents.items():
            if found.setdefault(dim, extent) != extent:
                raise Meets("rows meet other rows")
    for value, shape in zip(operands, shapes, strict=True):
        if any(dim not in value.extents and shape[dim] != 1 for dim in found):
            raise Meets("rows meet other rows")
    return found


def _regions(operands: Sequence[Padded]) -> Iterator[Region]:
    return iter(dict.fromkeys(region for value in operands for region in value.facts))


def _fact(case: Case, operands: Sequence[Padded], region: Region) -> Operand:
    """The number that the operator makes in a region."""
    found = computed(case.node.op_type, [value.facts.get(region, value.uniform) for value in operands], case)
    whole = case.sizes.networks[1].values[case.node.outputs[0]].dtype in INTEGERS
    return float(int(found)) if whole and found is not None and np.isfinite(found) else found


def _uniform(case: Case, operands: Sequence[Padded]) -> Operand:
    numbers = [value.uniform for value in operands]
    return None if None in numbers else computed(case.node.op_type, numbers, case)


def computed(op_type: str, operands: Sequence[Operand], case: Case | None = None) -> Operand:
    """The number that an operator makes of numbers, if it is known and for some also where one is not."""
    if op_type == "Where" and len(operands) == 3:
        return None if operands[0] is None else operands[1 if operands[0] else 2]
    if op_type == "Cast" and case is not None:
        return _cast(case, operands[0])
    if None not in operands:
        function = FUNCTIONS.get(op_type)
        with np.errstate(all="ignore"):
            return None if function is None else float(function(*operands))
    known = [number for number in operands if number is not None]
    match op_type:
        case "Add" | "Sum" if any(number <= HIDING for number in known):
            return -inf
        case "Mul" | "And" if 0.0 in known:
            return 0.0
        case "Or" if any(known):
            return 1.0
        case "Sub" if (operands[0] or 0.0) <= HIDING or (operands[1] or 0.0) >= -HIDING:
            return -inf
    return None


def _cast(case: Case, number: Operand) -> Operand:
    if number is None:
        return None
    to = int(case.node.integer("to", 1))
    if to == BOOL:
        return float(bool(number))
    return float(int(number)) if to in INTEGERS and np.isfinite(number) else number


BOOL = 9
INTEGERS = (2, 3, 4, 5, 6, 7, 12, 13)
"""Element types of ONNX."""

FUNCTIONS: Mapping[str, Callable[..., float | bool]] = {
    "Identity": lambda x: x,
    "Dropout": lambda x: x,
    "Neg": np.negative,
    "Abs": np.abs,
    "Relu": lambda x: max(x, 0.0),
    "Exp": np.exp,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
    "Not": lambda x: not x,
    "Add": np.add,
    "Sum": lambda *numbers: sum(numbers),
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": max,
    "Min": min,
    "And": lambda x, y: bool(x) and bool(y),
    "Or": lambda x, y: bool(x) or bool(y),
    "Xor": lambda x, y: bool(x) != bool(y),
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}
"""Operators whose results are worked out where all operands are known."""


# Integers


def _number(case: Case, operands: Sequence[Padded]) -> Number | None:
    """The integer that sums and differences of integers are."""
    numbers = [value.number for value in operands]
    if not numbers or any(number is None for number in numbers):
        return None
    first, second = numbers[0], numbers[-1]
    assert first is not None
    assert second is not None
    match case.node.op_type:
        case "Identity":
            return first
        case "Cast" if int(case.node.integer("to", 1)) in INTEGERS:
            return first
        case "Add" if first.along is None or second.along is None:
            return Number(first.base + second.base, second.along if first.along is None else first.along)
        case "Sub" if second.along is None:
            return Number(first.base - second.base, first.along)
        case "Mul":
            for one, other in ((first, second), (second, first)):
                if one.along is None and one.base.is_constant and (other.along is None or one.base.constant == 1):
                    return Number(other.base.times(one.base.constant), other.along)
    return None


@dataclass(frozen=True, slots=True)
class _Comparison:
    """For columns against rows: what is true after a diagonal, and how far that is from where they are equal."""

    hidden: float
    beyond: int


COMPARISONS = {
    "LessOrEqual": _Comparison(0.0, 0),
    "Less": _Comparison(0.0, -1),
    "Greater": _Comparison(1.0, 0),
    "GreaterOrEqual": _Comparison(1.0, -1),
}
MIRRORED = {
    "LessOrEqual": "GreaterOrEqual",
    "Less": "Greater",
    "Greater": "Less",
    "GreaterOrEqual": "LessOrEqual",
}


def _compares_numbers(case: Case, operands: Sequence[Padded]) -> bool:
    known = len(operands) == 2 and all(value.number is not None for value in operands)
    return known and case.node.op_type in (*COMPARISONS, "Equal")


def _compared(case: Case, operands: Sequence[Padded]) -> Iterator[tuple[Region, float]]:
    """Truth values after a diagonal where columns are compared with places of rows, or with one place for all rows."""
    first, second = (value.number or Number(LinearNumber()) for value in operands)
    case.counting.require_same(first.base - second.base, case.node.name)
    op_type = case.node.op_type
    for columns, rows, of_columns, of_rows, kind in (
        (first, second, operands[0], operands[1], op_type),
        (second, first, operands[1], operands[0], MIRRORED.get(op_type, "")),
    ):
        if kind not in COMPARISONS or columns.along is None or columns.along == rows.along:
            continue
        plain = rows.along is None or of_rows.extents.get(rows.along, PLAIN) == PLAIN
        if plain and columns.along not in of_columns.extents:
            found = COMPARISONS[kind]
            begin = rows.base - columns.base + LinearNumber(found.beyond)
            yield Beyond(rows.along, columns.along, begin), found.hidden
