"""Which values leave the range of the stored type: of inputs that are given, or of all that the file allows.

    file + x.npz  --onnxruntime, every value-->  sentences, worst operators first
    file          --intervals from constants and declared ranges-->  what is certain without inputs

An interval is tight where inputs exist that reach both its ends: for functions of one operand, operands that share no
input, and sums. Only tight intervals are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import erf, exp, inf, isfinite, log, prod, sqrt, tanh
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dsa_sched.verification.inputs import given_inputs
from dsa_sched.verification.onnx_reference import OnnxReference
from dsa_sched.verification.value_ranges import TypeLimits, limits_of, mask_values, range_sentences
from dsa_sched.zoo.meanings.declared_meanings import Range, declared_meanings
from partitioner.ir.operators import Trait, onnx_names

SHOWN = 5
"""Number of operators that are named; the rest are counted."""


def ranges_of_feeds(
    source: onnx.ModelProto, files: Sequence[Path], dtype: str, computed: frozenset[str]
) -> tuple[str, ...]:
    """Sentences about inputs in .npz files and the values that follow from them; `computed` are those of the file's
    values that the compiler computes. Raises UserError for files that hold no such inputs."""
    given = given_inputs(source, files)
    reference = OnnxReference(source)
    values = tuple(reference.values(feed) for feed in given.feeds)
    return (*given.warnings, *range_sentences(source, values, dtype, True, computed))


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval of a value: every element is from `least` to `most`; `tight` where inputs exist for which elements are
    at either end. `roots` are the inputs that it depends on.
    """

    least: float
    most: float
    tight: bool = True
    roots: frozenset[str] = frozenset()

    @property
    def size(self) -> float:
        return max(abs(self.least), abs(self.most))


ANY = Interval(-inf, inf, False)

RISING: Mapping[str, Callable[[float], float]] = {
    "Erf": erf,
    "Exp": lambda x: exp(min(x, 700.0)),
    "Floor": lambda x: float(np.floor(x)),
    "Ceil": lambda x: float(np.ceil(x)),
    "Log": lambda x: log(x) if x > 0 else -inf,
    "Relu": lambda x: max(x, 0.0),
    "Sigmoid": lambda x: 1 / (1 + exp(-x)) if x > -700 else 0.0,
    "Softplus": lambda x: log(1 + exp(x)) if x < 700 else x,
    "Sqrt": lambda x: sqrt(x) if x > 0 else 0.0,
    "Tanh": tanh,
}
"""Increasing functions, by operator."""

SAME = onnx_names(Trait.BETWEEN, Trait.VIEW, Trait.MOVES, Trait.SPLITS, Trait.GATHERS)
"""Operators whose results lie between the numbers that they read, and reach these."""


def ranges_of_any(source: onnx.ModelProto, dtype: str) -> tuple[str, ...]:
    """Sentences about values that leave the range for inputs which the file allows, or for all of them."""
    limits, masked = limits_of(dtype), mask_values(source, limits_of(dtype))
    found = [
        sentence
        for name, (operator, interval) in _intervals(source).items()
        if name not in masked and (sentence := _said(f"{operator} {name}", interval, limits))
    ]
    more = (f"{len(found) - SHOWN} more operators have such values",) if len(found) > SHOWN else ()
    return (*found[:SHOWN], *more)


def _said(who: str, interval: Interval, limits: TypeLimits) -> str:
    if not interval.tight or not interval.roots or interval.size == 0 or not isfinite(interval.size):
        return ""
    if interval.size > limits.largest:
        return (
            f"{who}: values reach {interval.size:.3g} for inputs that the file allows, beyond {limits.largest:g}, the "
            f"largest of {limits.name}"
        )
    if interval.size < limits.smallest_normal:
        return (
            f"{who}: values are at most {interval.size:.3g}, below {limits.smallest_normal:.3g}, the smallest normal "
            f"of {limits.name}"
        )
    return ""


def _intervals(source: onnx.ModelProto) -> dict[str, tuple[str, Interval]]:
    """(operator, interval) of what each node computes."""
    known = {tensor.name: _of_array(tensor) for tensor in source.graph.initializer}
    declared = declared_meanings(source)
    for item in source.graph.input:
        if item.name not in known:
            meaning = declared.get(item.name)
            ends = Interval(meaning.least, meaning.most) if isinstance(meaning, Range) else Interval(-inf, inf)
            known[item.name] = replace(ends, roots=frozenset([item.name]))
    shapes = _shapes(source)
    found = {}
    for node in source.graph.node:
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            known[node.output[0]] = ANY if value is None else _of_array(value)
            continue
        interval = _of_node(node, known, shapes)
        for name in node.output:
            known[name] = interval
            found[name] = (node.op_type, interval)
    return found


def _of_array(tensor: onnx.TensorProto) -> Interval:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or not prod(tensor.dims):
        return ANY
    array = numpy_helper.to_array(tensor)
    if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        return ANY
    return Interval(float(array.min()), float(array.max()))


def _shapes(source: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    items = [*source.graph.input, *source.graph.value_info, *source.graph.output]
    shapes = {item.name: tuple(dim.dim_value for dim in item.type.tensor_type.shape.dim) for item in items}
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in source.graph.initializer}


def _of_node(node: onnx.NodeProto, known: Mapping[str, Interval], shapes: Mapping[str, tuple[int, ...]]) -> Interval:
    reads = [known.get(name, ANY) for name in node.input if name]
    if not reads:
        return ANY
    first, roots = reads[0], frozenset().union(*(each.roots for each in reads))
    kind = node.op_type
    if kind in SAME:
        return first
    if kind in RISING:
        return replace(first, least=RISING[kind](first.least), most=RISING[kind](first.most), tight=first.tight)
    match kind:
        case "Softmax":
            return Interval(0.0, 1.0, False, roots)
        case "Neg":
            return replace(first, least=-first.most, most=-first.least)
        case "Abs":
            inside = first.least <= 0 <= first.most
            ends = sorted((abs(first.least), abs(first.most)))
            return replace(first, least=0.0 if inside else ends[0], most=ends[1])
        case "Clip":
            return _clipped(node, first, reads)
        case "Mul" if node.input[0] == node.input[1]:
            return _power(first, 2)
        case "Pow" if len(reads) == 2 and reads[1].least == reads[1].most and not reads[1].roots:
            return _power(first, reads[1].least)
        case "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" if len(reads) == 2:
            return _of_two(kind, first, reads[1])
        case "ReduceSum":
            return _summed(node, first, shapes)
    return replace(ANY, roots=roots)


def _clipped(node: onnx.NodeProto, first: Interval, reads: Sequence[Interval]) -> Interval:
    bounds = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    least, most = float(bounds.get("min", -inf)), float(bounds.get("max", inf))
    names = [name for name in node.input if name]
    if len(node.input) > 1 and node.input[1]:
        least = reads[names.index(node.input[1])].least
    if len(node.input) > 2 and node.input[2]:
        most = reads[names.index(node.input[2])].most
    return replace(first, least=min(max(first.least, least), most), most=min(max(first.most, least), most))


def _power(first: Interval, exponent: float) -> Interval:
    if exponent not in (2.0, 4.0):
        return replace(ANY, roots=first.roots)
    ends = sorted((abs(first.least) ** exponent, abs(first.most) ** exponent))
    return replace(first, least=0.0 if first.least <= 0 <= first.most else ends[0], most=ends[1])


def _of_two(kind: str, first: Interval, other: Interval) -> Interval:
    """Interval of a function of two operands, tight where they have no input in common."""
    if kind == "Div" and other.least <= 0 <= other.most:
        return replace(ANY, roots=first.roots | other.roots)
    pairs = [(a, b) for a in (first.least, first.most) for b in (other.least, other.most)]
    ways: Mapping[str, Callable[[float, float], float]] = {
        "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Max": max, "Min": min,
        "Mul": lambda a, b: 0.0 if 0 in (a, b) else a * b, "Div": lambda a, b: a / b if isfinite(b) else 0.0,
    }  # fmt: skip
    made = [ways[kind](a, b) for a, b in pairs]
    tight = first.tight and other.tight and not first.roots & other.roots
    if any(np.isnan(made)):
        return replace(ANY, roots=first.roots | other.roots)
    return Interval(min(made), max(made), tight, first.roots | other.roots)


def _summed(node: onnx.NodeProto, first: Interval, shapes: Mapping[str, tuple[int, ...]]) -> Interval:
    shape, result = shapes.get(node.input[0]), shapes.get(node.output[0])
    if not shape or not result or 0 in (*shape, *result):
        return replace(ANY, roots=first.roots)
    count = prod(shape) // max(1, prod(result))
    return replace(first, least=first.least * count, most=first.most * count)
