"""Which values of the reference the device's type cannot hold, by the operators of the file that compute them.

    all values of the reference + fp16  -->  "ReduceSum s2: 1 of 1 values are beyond 65504, the largest 1.58e+05"

A value that leaves the range between two operators that keep it (a sum of squares before its root) is the compiler's to
avoid. Results and operands of products by weights are numbers that the file itself names: where these leave the range,
no other order of computing helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from partitioner.ir.operators import REARRANGING, Trait, onnx_names

Array = npt.NDArray[np.generic]
Values = Mapping[str, Array]

PRODUCTS = onnx_names(Trait.PRODUCTS, Trait.RECURRENT) | {"BatchNormalization"}
"""Operators whose results and operands are the file's own numbers, however they are computed."""

DIFFERENCES = frozenset(["LogSoftmax", "Softmax"])
"""Operators whose operands are too: only their differences count, and an infinity has none."""

CARRY_MASKS = onnx_names(*REARRANGING) | {"Add", "Cast", "Max", "Min", "Mul", "Sub", "Where"}
FLOATS = frozenset([onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE])

SHOWN = 5
"""Number of operators that are named; the rest are counted."""


@dataclass(frozen=True, slots=True)
class TypeLimits:
    """The largest number of a type, its smallest normal one, and half the smallest of all, which becomes zero."""

    dtype: str
    largest: float
    smallest_normal: float
    becomes_zero: float

    @property
    def name(self) -> str:
        return self.dtype.replace("float", "fp")


def limits_of(dtype: str) -> TypeLimits:
    kind = np.finfo(dtype)
    return TypeLimits(dtype, float(kind.max), float(kind.smallest_normal), float(kind.smallest_subnormal) / 2)


@dataclass(frozen=True, slots=True)
class Lost:
    """A value of an operator of the file that loses elements, over all inputs together. Of `elements`, `beyond` are
    larger than the largest number, and `tiny` are smaller than the smallest normal one though not zero; `largest` is
    the largest finite magnitude, `of_tiny` the largest of the tiny ones; with `all_tiny`, no element is larger.
    """

    operator: str
    value: str
    elements: int
    beyond: int
    tiny: int
    largest: float
    of_tiny: float

    @property
    def all_tiny(self) -> bool:
        return self.tiny > 0 and self.of_tiny == self.largest

    def beyond_text(self, limits: TypeLimits) -> str:
        """Text about how far the value is beyond the range."""
        verb, reach = ("is", "it reaches") if self.beyond == 1 else ("are", "they reach")
        return (
            f"{self.operator} {self.value}: {self.beyond} of {self.elements} values {verb} beyond {limits.largest:g}, "
            f"the largest of {limits.name}; {reach} {self.largest:.3g}"
        )

    def tiny_text(self, limits: TypeLimits) -> str:
        """Text about what becomes of its small elements."""
        zero = self.of_tiny <= limits.becomes_zero
        what = (
            "become zero" if zero else f"are below {limits.smallest_normal:.3g}, the smallest normal of {limits.name}"
        )
        return (
            f"{self.operator} {self.value}: all {self.tiny} values that are not zero {what}, the largest is "
            f"{self.of_tiny:.3g}"
        )


def lost_values(source: onnx.ModelProto, exact: Sequence[Values], limits: TypeLimits) -> tuple[Lost, ...]:
    """Values that lose anything, in the order of the file, the inputs first."""
    constants = {tensor.name for tensor in source.graph.initializer}
    names = [(name, "input") for name in (item.name for item in source.graph.input) if name not in constants]
    names += [(name, node.op_type) for node in source.graph.node if node.op_type != "Constant" for name in node.output]
    masked = mask_values(source, limits)
    found = (
        _lost(name, operator, exact, limits) for name, operator in names if name in exact[0] and name not in masked
    )
    return tuple(lost for lost in found if lost is not None)


def mask_values(source: onnx.ModelProto, limits: TypeLimits) -> frozenset[str]:
    """Values that hold numbers of a mask: constants beyond the range, values chosen or computed from them, and scores
    to which they are added.
    """
    masks = {tensor.name for tensor in source.graph.initializer if _is_mask(tensor, limits)}
    for node in source.graph.node:
        if node.op_type == "Constant":
            if any(a.type == onnx.AttributeProto.TENSOR and _is_mask(a.t, limits) for a in node.attribute):
                masks.update(node.output)
        elif node.op_type in CARRY_MASKS and masks.intersection(node.input):
            masks.update(node.output)
    return frozenset(masks)


def _is_mask(tensor: onnx.TensorProto, limits: TypeLimits) -> bool:
    if tensor.data_type not in FLOATS or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False
    array = numpy_helper.to_array(tensor).astype(np.float64)
    return bool(array.size) and bool((array <= -limits.largest).any())


def _lost(name: str, operator: str, exact: Sequence[Values], limits: TypeLimits) -> Lost | None:
    arrays = [values[name] for values in exact if name in values]
    if any(array.dtype.kind not in "f" for array in arrays) or not sum(array.size for array in arrays):
        return None
    beyond = tiny = 0
    largest = of_tiny = 0.0
    for array in arrays:
        sizes = np.abs(array.reshape(-1))
        sizes = sizes[np.isfinite(sizes)]
        if not sizes.size:
            continue
        largest = max(largest, float(sizes.max()))
        beyond += int(np.count_nonzero(sizes > limits.largest))
        small = sizes[(sizes < limits.smallest_normal) & (sizes > 0)]
        tiny += small.size
        of_tiny = max(of_tiny, float(small.max(initial=0)))
    if not beyond and not tiny:
        return None
    return Lost(operator, name, sum(array.size for array in arrays), beyond, tiny, largest, of_tiny)


def range_sentences(
    source: onnx.ModelProto,
    exact: Sequence[Values],
    dtype: str,
    inputs: bool = False,
    computed: frozenset[str] | None = None,
) -> tuple[str, ...]:
    """Sentences about what a type loses of the values for these inputs: the worst few operators, and how many more
    there are; with `inputs`, about the inputs too. Values with small elements are named only if no element is larger:
    next to larger ones they are zero to within rounding. `computed` are the file's values that the compiler computes;
    about others it is said that a rule put another form in their place.
    """
    limits = limits_of(dtype)
    lost = [each for each in lost_values(source, exact, limits) if inputs or each.operator != "input"]
    far = sorted((each for each in lost if each.beyond), key=lambda each: -each.largest)
    low = sorted((each for each in lost if each.all_tiny), key=lambda each: each.of_tiny)
    said = [each.beyond_text(limits) + _otherwise(each, computed) for each in far[:SHOWN]]
    said += [each.tiny_text(limits) + _otherwise(each, computed) for each in low[:SHOWN]]
    rest = max(0, len(far) - SHOWN), max(0, len(low) - SHOWN)
    if rest[0]:
        said.append(f"{rest[0]} more operators have values beyond {limits.largest:g}")
    if rest[1]:
        said.append(f"{rest[1]} more operators have only values below {limits.smallest_normal:.3g}")
    return tuple(said)


def _otherwise(lost: Lost, computed: frozenset[str] | None) -> str:
    replaced = computed is not None and lost.operator != "input" and lost.value not in computed
    return " (the compiler computes it in another form, without this value)" if replaced else ""


def beyond_at_products(
    source: onnx.ModelProto, lost: Sequence[Lost], limits: TypeLimits, ends: frozenset[str] = frozenset()
) -> str:
    """Reason why nothing can be said about inputs for which the file's own numbers leave the range: a clause about the
    first of them; empty if only values in between leave it. `ends` are outputs of the network.
    """
    named = set(ends) | {item.name for item in source.graph.input}
    for node in source.graph.node:
        if node.op_type in PRODUCTS:
            named.update((*node.input, *node.output))
        elif node.op_type in DIFFERENCES:
            named.update(node.input)
    for each in lost:
        if each.value in named and each.beyond:
            return f"values of {each.value} ({each.operator}) reach {each.largest:.3g}, beyond {limits.name}"
        if each.value in named and each.all_tiny:
            return (
                f"values of {each.value} ({each.operator}) are at most {each.of_tiny:.3g}, below the smallest normal "
                f"number of {limits.name}"
            )
    return ""
