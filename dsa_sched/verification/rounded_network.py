"""Effect of rounding to the chip's dtype on the reference itself: the floor below which no error says anything.

    original ModelProto  -->  the same network, each value off by what storing it and summing in that type costs

Inputs and the constants of arithmetic are rounded. What a node computes is moved, up or down by its own last bits, by
the root mean square of its rounding errors: one where the result is stored, and those of the sum on the way. A sum of K
terms is kept in that type while it grows. Given its end s and the sum q of the squares of its terms, the sums on the
way have the mean square s^2/3 + q/6 (a random walk from 0 to s). Each is rounded by a relative error of at most u (of
fp16 2^-11), with root mean square u/sqrt(6), because steps are wide relative to the smaller numbers between two powers
of two. Terms of means and sums along axes are neighbours and alike, so that their sums do not walk at random: there the
sum of absolute values takes the place of s. Nothing here knows how our compiler computes.

With values to `cut` at, a node reads these as given, so each stretch between them is off by its own errors alone, like
layers that run by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from partitioner.ir.operators import REARRANGING, Trait, onnx_names

Array = npt.NDArray[np.generic]
Values = Mapping[str, Array]

LONGEST_SUM = 2_048
"""Largest number of terms that count in a sum: whoever sums more in fp16 must sum in parts."""

LONGEST_AVERAGE = 256
"""Largest number of terms that count in a mean or a sum along axes: this many equal terms still add up to within 1 % in
fp16, so longer ones are summed in pieces by whoever wants to keep that.
"""

STEPS_INSIDE = 8
"""Roundings in an operator that is composed of others (softmax, norms). They are the same wherever the argument is the
same, so they add up and do not cancel.
"""

ROUNDINGS_OF_SUMS = 4.0
"""Independent roundings of a sum of products of integers: of its factor, of their product, of the bias and of its sum
with that."""

EXACT = onnx_names(Trait.EXACT, *REARRANGING)
"""Operators whose results are among the numbers that they read."""

FUNCTIONS = onnx_names(Trait.FUNCTION)
"""Functions of one operand, which a device can round correctly: how it computes them is no law of rounding."""

FLUSHED = frozenset(["Softmax"])
"""Other functions that may flush results below the smallest normal number to zero."""

FROM_ONE = onnx_names(Trait.FROM_ONE)
"""Functions whose results are differences of numbers about one, and only as exact near zero as those numbers."""

SCALED = FROM_ONE - {"LogSoftmax"}
"""Functions of `FROM_ONE` that multiply by their second operand, one number per channel."""

ONE_ROUNDING = onnx_names(Trait.ONE_ROUNDING)
PRODUCTS = frozenset(["Conv", "Gemm", "MatMul"])
"""Sums of products whose number of terms `length` knows."""
RECURRENT = onnx_names(Trait.RECURRENT)
STORED_A_STEP = 8
"""Numbers that a recurrent network rounds per element of its state and step: gates, products, sums."""

AVERAGES = onnx_names(Trait.AVERAGES)
ARITHMETIC = PRODUCTS | ONE_ROUNDING | EXACT
"""Operators whose constants are data, not shapes or scales."""

JUMPS = onnx_names(Trait.JUMPS)
"""Functions that jump: if rounding may move the operand across the jump, either side is right."""

JUMP_DEVIATIONS = 4.0
"""Distance from a jump, in root mean squares of its rounding, within which an operand may be on the other side."""

PATTERN = 1.0386219
"""Any number with many digits: a value times this lies anywhere between two numbers of fp16."""


def given(name: str) -> str:
    return f"{name}::given"


def narrowed(array: Array, stored: str) -> Array:
    """The numbers rounded to the type `stored`, in the array's own type; numbers beyond its range stay, because
    overflow is no rounding.
    """
    if array.dtype.kind != "f" or array.dtype == np.dtype(stored):
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(stored).astype(array.dtype)
    return np.where(np.isfinite(narrow), narrow, array)


class RoundedNetwork:
    """The network rounded to the floating-point type `stored`, while it is written. `unit` is the largest relative
    error of rounding to a normal number of that type, `smallest_step` half the distance of those below, `largest` the
    largest number."""

    def __init__(self, source: onnx.ModelProto, exact: Values, cut: frozenset[str], stored: str) -> None:
        self.source, self.exact, self.cut, self.stored = source, exact, cut, stored
        self.unit = float(np.finfo(stored).eps) / 2
        self.largest = float(np.finfo(stored).max)
        self.smallest_normal = float(np.finfo(stored).smallest_normal)
        self.smallest_step = float(np.finfo(stored).smallest_subnormal) / 2
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, onnx.ValueInfoProto] = {}
        self.extra: dict[str, onnx.TensorProto] = {}
        self.plain: set[str] = set()
        """Names of results before they are moved."""
        self.initializers = {tensor.name: tensor for tensor in source.graph.initializer}
        self.dequantised = {node.output[0] for node in source.graph.node if node.op_type == "DequantizeLinear"}
        self.varying = {item.name for item in source.graph.input if item.name not in self.initializers}

    def model(self, wanted: frozenset[str]) -> tuple[onnx.ModelProto, dict[str, str]]:
        """The network, and for each wanted value the name of the rounded one."""
        graph = self.source.graph
        for item in graph.input:
            if item.name not in self.initializers:
                self.inputs[item.name] = item
        for node in graph.node:
            self.append(node)
        names = {name: self.rounded(name) for name in sorted(wanted) if name in self.varying}
        kept = _needed(self.nodes, set(names.values()))
        read = {name for node in kept for name in node.input} | set(names.values())
        made = helper.make_graph(
            kept,
            "rounded",
            [item for name, item in self.inputs.items() if name in read],
            [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names.values())],
            [t for name, t in (self.initializers | self.extra).items() if name in read],
        )
        version = max(4, self.source.ir_version)
        return helper.make_model(made, opset_imports=self.source.opset_import, ir_version=version), names

    def floating(self, name: str) -> bool:
        return name in self.exact and self.exact[name].dtype.kind == "f"

    def rounded(self, name: str) -> str:
        """The name of the value that replaces the file's value `name` here."""
        return f"{name}::rounded" if name in self.varying and name not in self.inputs else name

    def append(self, node: onnx.NodeProto) -> None:
        if not any(name in self.varying for name in node.input):
            self.nodes.append(node)
            return
        if node.op_type in ("Shape", "Size"):  # what they make does not vary, but what they read has another name here
            self.nodes.append(helper.make_node(
                node.op_type, [self.rounded(name) for name in node.input], node.output,
                **{a.name: helper.get_attribute_value(a) for a in node.attribute},
            ))  # fmt: skip
            return
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.input[:], copy.output[:]
        copy.input.extend(self.operand(node, name) for name in node.input)
        self.varying.update(filter(None, node.output))
        if node.op_type in JUMPS and self.floating(node.input[0]):
            self.jump(node, copy)
            return
        for name in node.output:
            plain = not self.floating(name) or node.op_type in EXACT
            copy.output.append(self.rounded(name) if name and plain else f"{name}::plain" if name else "")
        self.nodes.append(copy)
        for name in node.output:
            if name and self.floating(name) and node.op_type not in EXACT:
                self.move(copy, name)

    def operand(self, node: onnx.NodeProto, name: str) -> str:
        """A value at a cut as it is given, a constant of arithmetic rounded."""
        if name in self.varying:
            if name not in self.cut or not self.floating(name) or name in self.inputs:
                return self.rounded(name)
            array = self.exact[name]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            self.inputs[given(name)] = helper.make_tensor_value_info(given(name), kind, array.shape)
            return given(name)
        tensor = self.initializers.get(name)
        if tensor is None or node.op_type not in ARITHMETIC or node.op_type == "BatchNormalization":
            return name
        rounded = f"{name}::narrowed"
        if rounded not in self.extra:
            array = numpy_helper.to_array(tensor)
            self.extra[rounded] = numpy_helper.from_array(np.asarray(narrowed(array, self.stored)), rounded)
        return rounded

    def file_operands(self, node: onnx.NodeProto) -> list[str]:
        """The factors of a product, by their names in the file."""
        ends = ("::rounded", "::given", "::narrowed")
        return [next((name.removesuffix(end) for end in ends if name.endswith(end)), name) for name in node.input[:2]]

    def move(self, node: onnx.NodeProto, name: str) -> None:
        """`name` rounded: the plain result, up or down by the root mean square of its rounding errors."""
        dtype = self.kind(name)
        self.plain.add(f"{name}::plain")
        plain = self.wide(f"{name}::plain", dtype)
        inside: float = 1 if node.op_type in ONE_ROUNDING | FUNCTIONS | PRODUCTS | AVERAGES else STEPS_INSIDE**2
        of_integers = node.op_type in PRODUCTS and self.dequantised.issuperset(self.file_operands(node))
        if of_integers:  # sums of integers are exact
            inside = ROUNDINGS_OF_SUMS
        if node.op_type in RECURRENT:
            inside = self.recurrent(node)
        # Beyond the range, as masks are, nothing is said of rounding, and squares would leave the wider type's too.
        ends = [self.scalar(end, dtype) for end in (-self.largest, self.largest)]
        held = self.op("Min", name, self.op("Max", name, plain, ends[0]), ends[1])
        energy = self.product(inside, self.op("Mul", name, held, held), dtype)
        if node.op_type in FROM_ONE:
            energy = self.op("Add", name, energy, self.product(inside, self.one(node, name), dtype))
        elif node.op_type in PRODUCTS and not of_integers:
            energy = self.op("Add", name, energy, self.products_on_the_way(node, name))
        elif node.op_type in AVERAGES:
            energy = self.op("Add", name, energy, self.averages_on_the_way(node, name))
        elif node.op_type == "BatchNormalization" and len(node.input) == 5:
            energy = self.op("Add", name, energy, self.product_and_shift(node, name))
        size = self.op("Sqrt", name, self.product(self.unit**2 / 6, energy, dtype))
        step = self.scalar(self.smallest_step / sqrt(3), dtype)
        if node.op_type in ONE_ROUNDING | FUNCTIONS:  # zero is exact, as one less one of a mask is
            other = self.op("Cast", name, plain, to=onnx.TensorProto.BOOL)
            step = self.op("Mul", name, self.op("Cast", name, other, to=helper.np_dtype_to_tensor_dtype(dtype)), step)
        size = self.op("Add", name, size, step)
        if node.op_type in FUNCTIONS | FLUSHED:
            size = self.op("Add", name, size, self.flushed(plain, name, dtype))
        if node.op_type == "Softmax" and (share := self.flushed_share(node, name, plain, dtype)):
            size = self.op("Add", name, size, self.op("Mul", name, plain, share))
        moved = self.op("Add", name, plain, self.op("Mul", name, size, self.sign(name)))
        back = helper.np_dtype_to_tensor_dtype(self.exact[name].dtype)
        self.nodes.append(helper.make_node("Cast", [moved], [self.rounded(name)], to=back))

    def flushed(self, plain: str, name: str, dtype: np.dtype[Any]) -> str:
        """The sizes of results below the smallest normal number: a function may make zero of them."""
        sizes = self.op("Abs", name, plain)
        below = self.op("Less", name, sizes, self.scalar(self.smallest_normal, dtype))
        return self.op("Mul", name, sizes, self.op("Cast", name, below, to=helper.np_dtype_to_tensor_dtype(dtype)))

    def flushed_share(self, node: onnx.NodeProto, name: str, plain: str, dtype: np.dtype[Any]) -> str:
        """Share of a Softmax's sum that is missing because exponentials below the smallest normal number, relative to
        the largest element, become zero; empty for the Softmax over several axes of old operator sets.
        """
        opset = next((item.version for item in self.source.opset_import if not item.domain), 1)
        rank = len(self.exact[name].shape)
        axis = next((int(a.i) for a in node.attribute if a.name == "axis"), -1 if opset >= 13 else 1) % rank
        if opset < 13 and axis != rank - 1:
            return ""
        by_input = [self.whole(axis)]
        if opset >= 18:
            largest = self.op("ReduceMax", name, plain, *by_input, keepdims=1)
        else:
            largest = self.op("ReduceMax", name, plain, axes=[axis], keepdims=1)
        below = self.op("Less", name, plain, self.product(self.smallest_normal, largest, dtype))
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        lost = self.op("Mul", name, plain, self.op("Cast", name, below, to=kind))
        if opset >= 13:
            return self.op("ReduceSum", name, lost, *by_input, keepdims=1)
        return self.op("ReduceSum", name, lost, axes=[axis], keepdims=1)

    def jump(self, node: onnx.NodeProto, copy: onnx.NodeProto) -> None:
        """A function that jumps, of its operand and of numbers on both sides that rounding may make of it: the result
        that is another one, where one is. An operand that is exactly at the jump stays there."""
        name, read, x = node.output[0], node.input[0], copy.input[0]
        dtype = self.exact[read].dtype
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        size = self.product(2 * self.unit, self.op("Abs", name, x), dtype)
        size = self.op("Add", name, size, self.scalar(self.smallest_step, dtype))
        if x == self.rounded(read) and f"{read}::plain" in self.plain:
            moved = self.op("Abs", name, self.op("Sub", name, x, f"{read}::plain"))
            size = self.op("Add", name, size, self.product(JUMP_DEVIATIONS, moved, dtype))
        sides = [x, self.op("Add", name, x, size), self.op("Sub", name, x, size)]
        made = []
        for number, side in enumerate(sides):
            again = onnx.NodeProto()
            again.CopyFrom(copy)
            again.name, again.input[0] = f"{node.name}::side{number}", side
            again.output.append(f"{name}::side{number}")
            self.nodes.append(again)
            floats = self.exact[name].dtype.kind == "f"
            made.append(again.output[0] if floats else self.op("Cast", name, again.output[0], to=kind))
        plain, up, down = made
        far = [self.op("Abs", name, self.op("Sub", name, side, plain)) for side in (up, down)]
        other = self.op("Where", name, self.op("Less", name, *far), down, up)
        jumped = self.op("Less", name, self.product(2.0, size, dtype), self.op("Max", name, *far))
        exact = self.op("Equal", name, x, self.place_of_jump(copy, plain, dtype))
        free = self.op("And", name, jumped, self.op("Not", name, exact))
        result = self.op("Where", name, free, other, plain)
        back = helper.np_dtype_to_tensor_dtype(self.exact[name].dtype)
        self.nodes.append(helper.make_node("Cast", [result], [self.rounded(name)], to=back))

    def place_of_jump(self, node: onnx.NodeProto, plain: str, dtype: np.dtype[Any]) -> str:
        """Place where a function jumps: its other operand, a number of its own, or integers, which it keeps."""
        numbers = {a.name: float(a.f) for a in node.attribute if a.type == onnx.AttributeProto.FLOAT}
        match node.op_type:
            case "ThresholdedRelu":
                return self.scalar(numbers.get("alpha", 1.0), dtype)
            case "Shrink":
                return self.scalar(numbers.get("lambd", 0.5), dtype)
            case "Sign":
                return self.scalar(0.0, dtype)
            case "Ceil" | "Floor" | "Round":
                return plain
        return str(node.input[1])

    def one(self, node: onnx.NodeProto, name: str) -> str:
        """Square of the numbers of which a function of FROM_ONE is a difference: ones, times the scale for a norm."""
        dtype, shape = self.kind(name), self.exact[name].shape
        scale = node.input[1] if node.op_type in SCALED else ""
        if not scale or (node.op_type != "LayerNormalization" and self.shape(scale) != shape[1:2]):
            return self.scalar(1.0, dtype)
        wide = self.wide(scale, dtype)
        if node.op_type != "LayerNormalization":
            wide = self.op("Reshape", name, wide, self.whole(-1, *(1,) * (len(shape) - 2)))
        return self.op("Mul", name, wide, wide)

    def recurrent(self, node: onnx.NodeProto) -> float:
        """Number of independent roundings that reach the state after all steps if nothing is forgotten: in each step
        those of the stored numbers, and of the sum of the products.
        """
        steps, *_ = self.shape(node.input[0])
        products = min(LONGEST_SUM, self.shape(node.input[1])[-1] + self.shape(node.input[2])[-1])
        return steps * (STORED_A_STEP + products / 6)

    def kind(self, name: str) -> np.dtype[Any]:
        """The type in which errors of a value are computed: its own, but wider than fp16."""
        return np.result_type(self.exact[name].dtype, np.float32)

    def wide(self, operand: str, dtype: np.dtype[Any]) -> str:
        return self.op("Cast", operand, operand, to=helper.np_dtype_to_tensor_dtype(dtype))

    def products_on_the_way(self, node: onnx.NodeProto, name: str) -> str:
        """K (s^2/3 + q/6); the bias is no part of s."""
        dtype, length = self.kind(name), self.length(node)
        none = [self.zeros(self.exact[name].dtype, 1)] if node.op_type == "Gemm" else []  # needed before opset 11
        biased = len(node.input) > 2
        total = (
            self.again(node, name, "sum", [*node.input[:2], *none], dtype)
            if biased
            else self.wide(f"{name}::plain", dtype)
        )
        squares = [self.op("Mul", name, operand, operand) for operand in node.input[:2]]
        energy = self.again(node, name, "squares", [*squares, *none], dtype)
        return self.op(
            "Add",
            name,
            self.product(length / 3, self.op("Mul", name, total, total), dtype),
            self.product(length / 6, energy, dtype),
        )

    def product_and_shift(self, node: onnx.NodeProto, name: str) -> str:
        """A batch norm is x times a number plus a number: both may be larger than the result."""
        dtype, (x, scale, _, _, variance) = self.kind(name), node.input
        zeros = self.zeros(self.exact[name].dtype, *self.shape(scale))
        product = self.again(node, name, "product", [x, scale, zeros, zeros, variance], dtype)
        shift = self.op("Sub", name, self.wide(f"{name}::plain", dtype), product)
        squares = [self.op("Mul", name, part, part) for part in (product, shift)]
        return self.op("Add", name, *squares)

    def averages_on_the_way(self, node: onnx.NodeProto, name: str) -> str:
        dtype = self.kind(name)
        sizes = self.op("Abs", name, node.input[0])
        total = self.again(node, name, "absolute", [sizes, *node.input[1:]], dtype)
        length = min(LONGEST_AVERAGE, self.length(node))
        return self.product(length / 3, self.op("Mul", name, total, total), dtype)

    def length(self, node: onnx.NodeProto) -> int:
        """Terms of a sum, for one element of the result."""
        first, result = (self.shape(name) for name in (node.input[0], node.output[0]))
        if node.op_type == "Conv":
            return min(LONGEST_SUM, prod(self.shape(node.input[1])[1:]))
        if node.op_type == "AveragePool":
            window = next(a.ints for a in node.attribute if a.name == "kernel_shape")
            return min(LONGEST_SUM, prod(int(extent) for extent in window))
        if node.op_type == "Gemm":
            across = any(a.name == "transA" and a.i for a in node.attribute)
            return min(LONGEST_SUM, first[0 if across else 1])
        if node.op_type == "MatMul":
            return min(LONGEST_SUM, first[-1])
        return min(LONGEST_SUM, max(1, prod(first) // max(1, prod(result))))

    def shape(self, name: str) -> tuple[int, ...]:
        plain = name.rsplit("::", 1)[0] if name not in self.exact else name
        if plain in self.exact:
            return self.exact[plain].shape
        tensor = self.initializers.get(plain) or self.initializers[name]
        return tuple(tensor.dims)

    def sign(self, name: str) -> str:
        """Plus or minus one by the last bits of the plain value, whatever type it is stored in; one of them for all
        where they go `together`, which is that number, else 0."""
        dtype = self.kind(name)
        together = f"together::{dtype}"
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        self.inputs[together] = helper.make_tensor_value_info(together, kind, [])
        turned = self.op("Mul", name, self.wide(f"{name}::plain", dtype), self.scalar(PATTERN, dtype))
        half = self.op("Cast", name, self.op("Cast", name, turned, to=onnx.TensorProto.FLOAT16), to=kind)
        below = self.op("Cast", name, self.op("Less", name, half, turned), to=kind)
        sign = self.op("Sub", name, self.scalar(1.0, dtype), self.product(2.0, below, dtype))
        apart = self.op("Sub", name, self.scalar(1.0, dtype), self.op("Abs", name, together))
        return self.op("Add", name, self.op("Mul", name, sign, apart), together)

    def again(self, node: onnx.NodeProto, name: str, what: str, operands: list[str], dtype: np.dtype[Any]) -> str:
        """The node once more on other operands; its result in this type."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.input[:], copy.output[:]
        copy.name = f"{node.name}::{what}"
        copy.input.extend(operands)
        copy.output.append(f"{name}::{what}")
        for attribute in copy.attribute:
            if what == "squares" and attribute.name == "alpha":
                attribute.f *= attribute.f
        self.nodes.append(copy)
        return self.wide(f"{name}::{what}", dtype)

    def op(self, op_type: str, name: str, *operands: str, **attributes: Any) -> str:
        result = f"{name}::step{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, operands, [result], **attributes))
        return result

    def product(self, factor: float, operand: str, dtype: np.dtype[Any]) -> str:
        return operand if factor == 1 else self.op("Mul", operand, operand, self.scalar(factor, dtype))

    def zeros(self, dtype: np.dtype[Any], extent: int) -> str:
        name = f"zeros::{extent}::{dtype}"
        self.extra[name] = numpy_helper.from_array(np.zeros(extent, dtype), name)
        return name

    def whole(self, *numbers: int) -> str:
        name = f"whole::{numbers}"
        self.extra[name] = numpy_helper.from_array(np.array(numbers, np.int64), name)
        return name

    def scalar(self, value: float, dtype: np.dtype[Any]) -> str:
        name = f"{value!r}::{dtype}"
        self.extra[name] = numpy_helper.from_array(np.array(value, dtype), name)
        return name


def _needed(nodes: list[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]
