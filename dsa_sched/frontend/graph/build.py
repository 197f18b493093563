"""The graph: operators with device layouts and access maps, constants in device order and in the wanted types.

    Operations (ONNX axes)  -->  Graph (device axes) + constants by content hash + warnings

Where two layouts meet, there is a `transpose` operator named `<node>::layout`; no data move is hidden. A
reshape is a `view` when every element stays at its linear place. A flattened feature map that only matrix products read
stays a view too: the rows of their constant factors are permuted instead, and the flattened tensor, no longer
comparable with the file's value of that name, says so by having no `axes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

import numpy as np
import numpy.typing as npt
import onnx

from dsa_sched.frontend.graph.constant_losses import (
    Loss,
    bounding_constants,
    chosen_by_rules,
    loss_sentences,
    masking_constants,
)
from dsa_sched.frontend.graph.layout import Axes, assign_layouts, channels_last, keeps_order, row_major
from dsa_sched.frontend.graph.operator_stages import PlacedOperand, device_stages, head_size
from dsa_sched.frontend.network.network import Array, Network, Value
from dsa_sched.frontend.network.operation import Operation, Operations
from dsa_sched.frontend.network.terms import Term
from dsa_sched.frontend.rules.operators import operations_of
from hw_models.errors import ModelError
from partitioner.ir.graph import DTYPE_BYTES, Attribute, Graph, Op, Tensor, content_hash, verify_graph
from partitioner.ir.wants import Wants, WeightOrder


@dataclass(frozen=True, slots=True)
class Built:
    """A graph, its constants by content hash, and what the user should know about them; `terms` says how each constant
    tensor follows from the file, except for rounding to its dtype.
    """

    graph: Graph
    constants: dict[str, Array]
    warnings: tuple[str, ...]
    terms: dict[str, Term]


def build_graph(network: Network, wants: Wants) -> Built:
    """The graph as a target wants it. Raises RefusedNodes with every node that has no rule."""
    operations = operations_of(network, wants)
    constants = frozenset(operations.constants)
    layouts = assign_layouts(operations.operations, network.inputs, operations.values, constants, wants.feature_maps)
    builder = _Builder(operations, layouts, frozenset(network.outputs), wants, network.numbers)
    for name in network.raw:
        builder.declare_integers(name, network.values[name])
    prepared = tuple(builder.prepared(op, network.values) for op in network.prepared)
    for name in network.inputs:
        if name not in builder.ready:
            builder.declare(name)
    for name in dict.fromkeys(network.outputs):
        if name in network.constants:
            builder.constant_output(name)
    for operation in operations.operations:
        builder.append(operation)
    concluded = tuple(builder.concluded(op, network.values) for op in network.concluded)
    inputs = tuple(builder.ready.get(name, name) for name in network.inputs)
    graph = Graph(
        network.name,
        inputs,
        builder.network_outputs(network, concluded),
        tuple(builder.ops),
        tuple(builder.tensors.values()),
        prepared,
        network.raw,
        concluded,
        network.answers,
    )
    verify_graph(graph)
    masks = masking_constants(operations.operations, constants, frozenset(network.outputs))
    largest = float(np.finfo(wants.dtype("float32")).max)
    bounds = bounding_constants(operations.operations, constants)
    losses = loss_sentences(tuple(builder.losses.values()), masks, bounds, largest)
    return Built(graph, builder.store, (*_precision(graph), *losses), builder.terms)


def _precision(graph: Graph) -> tuple[str, ...]:
    """One warning for all values that are computed in a narrower type than the user may expect."""
    computed = [tensor for tensor in graph.tensors if tensor.source_dtype == "float64" and not tensor.constant]
    wide = [tensor.name for tensor in computed if tensor.dtype != "float64"]
    if not wide:
        return ()
    dtypes = " and ".join(sorted({tensor.dtype for tensor in computed} - {"float64"}))
    named = ", ".join(wide[:3]) + (f" and {len(wide) - 3} more" if len(wide) > 3 else "")
    verb = "are" if len(wide) > 1 else "is"
    return (f"{graph.name}: {named} {verb} float64 and computed in {dtypes}, the device's type",)


@dataclass(slots=True)
class _Builder:
    source: Operations
    layouts: dict[str, Axes]
    graph_outputs: frozenset[str]
    wants: Wants
    numbers: frozenset[str] = frozenset()
    """Values of integer types in the file that are numbers on the device."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    store: dict[str, Array] = field(default_factory=dict)
    losses: dict[tuple[str, str], Loss] = field(default_factory=dict)
    """Losses by operator and constant."""
    terms: dict[str, Term] = field(default_factory=dict)
    row_orders: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Flattened value -> for each of its device columns, the column in the file's order."""
    relaid: dict[tuple[str, Axes], PlacedOperand] = field(default_factory=dict)
    ready: dict[str, str] = field(default_factory=dict)
    """Prepared value -> its tensor."""

    # Values

    def placed(self, name: str) -> PlacedOperand:
        return PlacedOperand(name, self.source.values[name].shape, self.layouts[name])

    def declare(self, name: str, comparable: bool = True) -> PlacedOperand:
        """The tensor of a computed value of the file."""
        value, placed = self.source.values[name], self.placed(name)
        return self._declare(placed, value, placed.axes if comparable else ())

    def _declare(self, placed: PlacedOperand, value: Value, axes: Axes) -> PlacedOperand:
        source = _file_dtype(value)
        dtype = self.wants.dtype("float32" if placed.name in self.numbers else source)
        self.tensors[placed.name] = Tensor(placed.name, placed.device_shape, dtype, axes, source)
        return placed

    def declare_integers(self, name: str, value: Value) -> None:
        """Declare an integer value as int32 in the order of the file."""
        axes = row_major(len(value.shape))
        self.tensors[name] = Tensor(name, value.shape, "int32", axes, _file_dtype(value))

    def prepared(self, op: Op, values: Mapping[str, Value]) -> Op:
        """An operator of the preparation with its constants. A result that the network reads in another layout than
        the file's is transposed there."""
        operands = []
        for name in op.inputs:
            if name in self.source.constants:
                floats = self.source.constants[name].dtype.kind in "fV"
                dtype = self.wants.dtype("float32") if floats else "int32"
                operands.append(self.plain_constant(name, op.name, dtype).name)
            else:
                operands.append(name)
        (result,) = op.outputs
        if result not in self.layouts:
            self.declare_integers(result, values[result])
            self.ready[result] = result
            return replace(op, inputs=tuple(operands))
        placed = self.placed(result)
        natural = PlacedOperand(result, placed.shape, row_major(len(placed.shape)))
        if placed.axes != natural.axes:
            natural = replace(natural, name=f"{result}::row_major")
            self.relaid[result, natural.axes] = natural
        self._declare(natural, self.source.values[result], natural.axes)
        if placed.axes != natural.axes:
            self._declare(placed, self.source.values[result], placed.axes)
            self.transpose(f"{op.name}::layout", natural, placed, natural.axes, "")
        self.ready[result] = natural.name
        return replace(op, inputs=tuple(operands), outputs=(natural.name,))

    def concluded(self, op: Op, values: Mapping[str, Value]) -> Op:
        """An operator of the conclusion, which reads computed numbers in the order of the file."""
        (result,) = op.outputs
        operands = []
        for name in op.inputs:
            if name in self.source.constants:
                floats = self.source.constants[name].dtype.kind in "fV"
                dtype = self.wants.dtype("float32") if floats else "int32"
                operands.append(self.plain_constant(name, op.name, dtype).name)
            elif name in self.tensors and self.tensors[name].dtype == "int32":
                operands.append(name)
            else:
                operands.append(self.with_axes(op.name, name, row_major(len(self.source.values[name].shape))).name)
        if op.kind == "assign":
            self.tensors[result] = replace(self.tensors[operands[0]], name=result)
        else:
            self.declare_integers(result, values[result])
        return replace(op, inputs=tuple(operands))

    def network_outputs(self, network: Network, concluded: tuple[Op, ...]) -> tuple[str, ...]:
        """Values that layers have to leave in the main memory: outputs, and those that concluded operators read."""
        made = {output for op in self.ops for output in op.outputs}
        read = (name for op in concluded for name in op.inputs if name in made)
        ends = (name for name in network.outputs if not network.answers or name in network.answers)
        return tuple(dict.fromkeys((*ends, *read))) if network.answers else network.outputs

    def constant_output(self, name: str) -> None:
        """Store a constant that is an output of the network, in the order and type of the file. Called before any
        operator takes the name for an arrangement of its own. Raises ModelError for a constant that no device can hold.
        """
        array = self.source.constants[name]
        if not array.size or self.wants.dtype(str(array.dtype)) not in DTYPE_BYTES:
            raise ModelError(
                f"output {name}",
                needs=f"elements, of a floating-point type or of {', '.join(DTYPE_BYTES)}",
                has=f"a constant of {array.dtype} {list(array.shape)}",
                change="leave it out of the outputs: it is in the file already",
            )
        self.plain_constant(name, f"output {name}", self.wants.dtype(str(array.dtype)))
        self.tensors[name] = replace(self.tensors[name], source_dtype=str(array.dtype))

    def dtype(self, op: Operation) -> str:
        """The type in which an operator computes, and in which its floating-point constants are stored."""
        (first, *_) = op.outputs
        return self.wants.dtype("float32" if first in self.numbers else _file_dtype(self.source.values[first]))

    def constant(
        self,
        name: str,
        layer: str,
        arrange: Callable[[Array], Array],
        axes: Axes,
        say: Callable[[Term], Term],
        dtype: str,
    ) -> str:
        """Store a constant in the device order that `arrange` makes and `say` declares; with the type `dtype` if it is
        floating-point. Returns the tensor's name, which is unique for each content.
        """
        array = self.source.constants[name]
        stored, saturated = _on_device(array, dtype)
        if not chosen_by_rules(array, self.source.term(name)):
            self.losses.setdefault((layer, name), Loss.of(layer, name, array, stored, saturated))
        data = np.asarray(arrange(stored), order="C")
        key = content_hash(data)
        unique, count = name, 1
        while unique in self.tensors and self.tensors[unique].constant != key:
            count += 1
            unique = f"{name}::{count}"
        self.store[key] = data
        source = "float32" if array.dtype == np.float64 else str(array.dtype)
        self.tensors.setdefault(unique, Tensor(unique, data.shape, str(data.dtype), axes, source, key))
        self.terms.setdefault(unique, say(self.source.term(name)))
        return unique

    def plain_constant(self, name: str, layer: str, dtype: str) -> PlacedOperand:
        """A constant in the order of the file."""
        shape = tuple(self.source.constants[name].shape)
        axes = row_major(len(shape))
        return PlacedOperand(
            self.constant(name, layer, lambda array: array, axes, lambda term: term, dtype), shape, axes
        )

    def plain_operand(self, op: Operation, name: str) -> PlacedOperand:
        """A constant or a computed value in the order of the file."""
        if name in self.source.constants:
            return self.plain_constant(name, op.name, self.dtype(op))
        return self.with_axes(op.name, name, row_major(len(self.source.values[name].shape)))

    def with_axes(self, node: str, name: str, axes: Axes) -> PlacedOperand:
        """The value in the layout wanted: itself, or the result of a transpose that is added here."""
        placed = self.placed(name)
        if placed.axes == axes:
            return placed
        if (name, axes) not in self.relaid:
            result = PlacedOperand(f"{name}::{_layout_name(axes)}", placed.shape, axes)
            self._declare(result, self.source.values[name], axes)
            self.transpose(f"{node}::layout", placed, result, row_major(len(axes)), "")
            self.relaid[name, axes] = result
        return self.relaid[name, axes]

    # Operators

    def add(
        self,
        operation: Operation,
        inputs: Sequence[PlacedOperand],
        outputs: Sequence[PlacedOperand],
        attributes: tuple[tuple[str, Attribute], ...] = (),
        macs: int = 0,
    ) -> None:
        try:
            stages = device_stages(operation, inputs, outputs)
        except ModelError as error:
            who = f"{operation.source} {operation.name}"
            raise ModelError(who, needs=error.needs, has=error.has, change=error.change) from error
        name, count = operation.name, 1
        while name in self.names:
            count += 1
            name = f"{operation.name}{count}"
        self.names.add(name)
        self.ops.append(
            Op(
                name,
                operation.kind,
                tuple(operand.name for operand in inputs),
                tuple(result.name for result in outputs),
                attributes,
                stages,
                macs,
                operation.source,
            )
        )

    def transpose(self, name: str, source: PlacedOperand, result: PlacedOperand, perm: Axes, origin: str) -> None:
        """Axis i of the result's ONNX value is axis perm[i] of the source's; a view where only unit axes move."""
        device = tuple(source.axes.index(perm[axis]) for axis in result.axes)
        wide = [axis for axis in device if source.device_shape[axis] > 1]
        kind = "view" if wide == sorted(wide) else "transpose"
        operation = Operation(name, kind, (source.name,), (result.name,), (("perm", perm),), origin)
        self.add(operation, (source,), (result,), (("perm", device),) if kind == "transpose" else ())

    def append(self, op: Operation) -> None:
        """Append one operation with everything that it needs around it."""
        match op.kind:
            case "conv":
                self._conv(op)
            case "matmul":
                self._matmul(op)
            case "view":
                self._view(op)
            case "transpose":
                self.transpose(
                    op.name, self.placed(op.inputs[0]), self.declare(op.outputs[0]), op.ints("perm"), op.source
                )
            case "scale_shift":
                self._scale_shift(op)
            case "gather":
                self._row_major(op)
            case "attend":
                each = (len(op.inputs) - 1) // op.integer("parts")
                keys = sum(self.source.values[name].shape[-2] for name in op.inputs[1::each])
                q, result = (self.source.values[name].shape for name in (op.inputs[0], op.outputs[0]))
                columns = op.integer("heads") * head_size(op, q) + result[-1]
                self._row_major(op, keys * prod(result[:-1]) * columns)
            case _:
                self._agnostic(op)

    def _conv(self, op: Operation) -> None:
        x, y = self.placed(op.inputs[0]), self.declare(op.outputs[0])
        weights = self.source.constants[op.inputs[1]]
        groups = 1 if self.wants.group_channels else op.integer("groups")
        axes = weight_axes(weights.ndim, self.wants.weights)
        said = partial(_weights_term, weights.shape, groups, axes)
        arrange = partial(device_weights, groups=groups, axes=axes)
        name = self.constant(op.inputs[1], op.name, arrange, axes if groups == 1 else (), said, self.dtype(op))
        operands = [x, PlacedOperand(name, weights.shape, axes, groups)]
        operands += self._vectors(op, weights.shape[0])
        macs = prod(y.shape) * prod(weights.shape[1:])
        self.add(op, operands, (y,), op.attributes, macs)

    def _vectors(self, op: Operation, extent: int) -> list[PlacedOperand]:
        """Operands from the third on, with one element per channel; the scale of a product of integers may be one
        number for all."""
        result, channels = [], extent
        of_integers = op.inputs[0] in self.tensors and self.tensors[op.inputs[0]].dtype == "int8"
        for position, name in enumerate(op.inputs[2:]):
            extent = 1 if of_integers and not position and self.source.constants[name].size == 1 else channels
            stored = self.constant(
                name,
                op.name,
                partial(_spread_vector, extent),
                (0,),
                partial(_spread_vector_term, extent),
                self.dtype(op),
            )
            result.append(PlacedOperand(stored, (extent,), (0,)))
        return result

    def _scale_shift(self, op: Operation) -> None:
        x = self.placed(op.inputs[0])
        scale = self.plain_constant(op.inputs[1], op.name, self.dtype(op))
        operands = [x, scale, *self._vectors(op, x.shape[1])]
        self.add(op, operands, (self.declare(op.outputs[0]),))

    def _matmul(self, op: Operation) -> None:
        operands = []
        for position, name in enumerate(op.inputs[:2]):
            order = self.row_orders.get(op.inputs[0]) if position == 1 else None
            if order is None or name not in self.source.constants:
                operands.append(self.plain_operand(op, name))
            else:
                rows = tuple(order.tolist())
                said = partial(Term.take, order=rows)
                stored = self.constant(name, op.name, _rows(order), (), said, self.dtype(op))
                operands.append(PlacedOperand(stored, self.source.constants[name].shape, (0, 1)))
        shape = self.source.values[op.outputs[0]].shape
        operands += self._vectors(op, shape[-1])
        macs = prod(shape) * operands[0].shape[-1]
        self._add_row_major(op, operands, (), macs)

    def _row_major(self, op: Operation, macs: int = 0) -> None:
        self._add_row_major(op, [self.plain_operand(op, name) for name in op.inputs], op.attributes, macs)

    def _add_row_major(
        self, op: Operation, operands: Sequence[PlacedOperand], attributes: tuple[tuple[str, Attribute], ...], macs: int
    ) -> None:
        """The result row-major; a transpose follows where its readers want another layout."""
        y = self.declare(op.outputs[0])
        natural = row_major(len(y.shape))
        if y.axes == natural:
            self.add(op, operands, (y,), attributes, macs)
            return
        del self.tensors[y.name]
        result = PlacedOperand(f"{y.name}::row_major", y.shape, natural)
        self._declare(result, self.source.values[y.name], natural)
        self.relaid[y.name, natural] = result  # for readers that want it so
        self.add(op, operands, (result,), attributes, macs)
        self._declare(y, self.source.values[y.name], y.axes)
        self.transpose(f"{op.name}::layout", result, y, natural, "")

    def _agnostic(self, op: Operation) -> None:
        """Operators that work in any layout; constant operands follow the result's."""
        outputs = [self.declare(name) for name in op.outputs]
        axes = outputs[0].axes
        operands = []
        for name in op.inputs:
            if name in self.source.constants:
                shape = tuple(self.source.constants[name].shape)
                padded = (1,) * (len(axes) - len(shape)) + shape
                own = axes if len(shape) == len(axes) else ()
                said = partial(_spread_term, padded, axes)
                stored = self.constant(name, op.name, _spread(padded, axes), own, said, self.dtype(op))
                operands.append(PlacedOperand(stored, padded, axes))
            else:
                operands.append(self.placed(name))
        self.add(op, operands, outputs, tuple(_device_attribute(item, axes) for item in op.attributes))

    def _view(self, op: Operation) -> None:
        x, y = self.placed(op.inputs[0]), self.placed(op.outputs[0])
        if keeps_order(x.shape, x.axes, y.shape, y.axes):
            self.add(op, (x,), (self.declare(y.name),))
        elif (order := self._row_order(x, y)) is not None:
            self.row_orders[y.name] = order
            self.add(op, (x,), (self.declare(y.name, comparable=False),))
        else:
            plain = self.with_axes(op.name, x.name, row_major(len(x.shape)))
            self._add_row_major(op, (plain,), (), 0)

    def _row_order(self, x: PlacedOperand, y: PlacedOperand) -> npt.NDArray[np.int64] | None:
        """Columns of a flattened map in device order, where every reader is a matrix product with a constant factor."""
        readers = [op for op in self.source.operations if y.name in op.inputs]
        products = all(
            op.kind == "matmul" and op.inputs[0] == y.name and self._constant_matrix(op.inputs[1]) for op in readers
        )
        flat = len(y.shape) == 2 and x.shape[:1] == y.shape[:1] and x.axes[0] == 0
        if not (readers and products and flat) or y.name in self.graph_outputs:
            return None
        columns = np.arange(y.shape[1], dtype=np.int64).reshape(x.shape[1:])
        return columns.transpose([axis - 1 for axis in x.axes[1:]]).reshape(-1)

    def _constant_matrix(self, name: str) -> bool:
        return name in self.source.constants and self.source.constants[name].ndim == 2


def _spread_vector(extent: int, array: Array) -> Array:
    return np.broadcast_to(array.reshape(-1), (extent,))


def _spread_vector_term(extent: int, term: Term) -> Term:
    return term.reshape(-1).broadcast(extent)


def _rows(order: npt.NDArray[np.int64]) -> Callable[[Array], Array]:
    return lambda array: array[order]


def _spread(shape: tuple[int, ...], axes: Axes) -> Callable[[Array], Array]:
    return lambda array: array.reshape(shape).transpose(axes)


def _spread_term(shape: tuple[int, ...], axes: Axes, term: Term) -> Term:
    return term.reshape(*shape).transpose(*axes)


def _weights_term(shape: tuple[int, ...], groups: int, axes: Axes, term: Term) -> Term:
    """Term of the weights as `device_weights` arranges them."""
    if groups == 1:
        return term.transpose(*axes)
    return term.reshape(groups, shape[0] // groups, *shape[1:]).transpose(0, *(axis + 1 for axis in axes))


def weight_axes(rank: int, order: WeightOrder) -> Axes:
    """ONNX (Cout, Cin, kernel...) -> (kernel..., Cin, Cout) or (Cout, kernel..., Cin)."""
    kernel = range(2, rank)
    return (*kernel, 1, 0) if order == "outputs_last" else (0, *kernel, 1)


def device_weights(weights: Array, groups: int, axes: Axes) -> Array:
    """ONNX (Cout, Cin / groups, kernel...) in the order of `axes`; groups are arranged separately, in sequence."""
    if groups == 1:
        return weights.transpose(axes)
    split = weights.reshape(groups, weights.shape[0] // groups, *weights.shape[1:])
    return split.transpose((0, *(axis + 1 for axis in axes)))


def _device_attribute(item: tuple[str, Attribute], axes: Axes) -> tuple[str, Attribute]:
    """Attributes that name axes, or have one entry for each axis, in device order."""
    match item:
        case ("axis", int(axis)):
            return "axis", axes.index(axis)
        case ("axes", tuple(listed)):
            return "axes", tuple(sorted(axes.index(int(axis)) for axis in listed))
        case ("starts" | "steps" | "begins" | "ends" as name, tuple(listed)):
            return name, tuple(int(listed[axis]) for axis in axes)
        case ("scales", tuple(listed)):
            return "scales", tuple(float(listed[axis]) for axis in axes)
    return item


def _file_dtype(value: Value) -> str:
    """Type in the file."""
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.dtype)))


def _on_device(array: Array, dtype: str) -> tuple[Array, int]:
    """(`dtype` by rounding to nearest even, how many elements saturated: infinities stay); integers as they are."""
    if array.dtype.kind not in "fV":
        return array, 0
    with np.errstate(over="ignore"):
        data: npt.NDArray[np.floating] = np.asarray(array.astype(dtype))  # of a constant without axes, too
    beyond = np.isinf(data) & ~np.isinf(array)
    saturated = int(np.count_nonzero(beyond))
    if saturated:
        data[beyond] = np.copysign(np.finfo(data.dtype).max, data[beyond])
    return data, saturated


def _layout_name(axes: Axes) -> str:
    if axes == row_major(len(axes)):
        return "row_major"
    return "channels_last" if axes == channels_last(len(axes)) else "layout" + "".join(map(str, axes))
