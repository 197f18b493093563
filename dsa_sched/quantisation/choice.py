"""Which operators of a prepared network compute on integers, and which values are therefore quantised.

    products   Conv, Gemm, MatMul           read integers; weights are constants or, of MatMul, integers too
    sums       Add of two computed values   read integers, if the sum is to be integers; but what a product makes for
                                            the sum alone is not rounded before
    averages   AveragePool, GlobalAveragePool, and joins (Concat) likewise
    moves      MaxPool, Reshape, Transpose  integers of the same scale in and out, after a value that is computed so

A value is quantised where an integer operator reads it, and not where it is made. So a Relu or a Clip after a
convolution comes before the only rounding, what feeds a norm or a softmax is not rounded at all, and outputs of the
network stay in floating point. Operators that are kept in floating point read nothing that is quantised for them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dsa_sched.quantisation.prepared import constants_of, outputs_of, readers_of
from hw_models.errors import ModelError

PRODUCTS = ("Conv", "Gemm", "MatMul")
SUMS = ("Add",)
AVERAGES = ("AveragePool", "GlobalAveragePool")
JOINS = ("Concat",)
MOVES = ("MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice")
ACTIVATIONS = ("Relu", "Clip")
"""Operators after which a value is rounded, not before."""

LAYERS = (*PRODUCTS, *SUMS, *AVERAGES, *JOINS)
"""Operators that are layers of a report and of a search."""


@dataclass(frozen=True, slots=True)
class QuantisedLayer:
    """An operator that may compute on integers: the name and type of its node, the value that it makes, and `result`,
    that value after the activation that follows it."""

    name: str
    operator: str
    output: str
    result: str


@dataclass(frozen=True, slots=True)
class IntegerChoice:
    """`layers` and `moves` are names of nodes that compute on integers; `values` are quantised, in the order of
    execution; those in one set of `tied` get the same scale."""

    layers: frozenset[str]
    moves: frozenset[str]
    values: tuple[str, ...]
    tied: tuple[frozenset[str], ...] = ()

    @property
    def nodes(self) -> frozenset[str]:
        return self.layers | self.moves


class Choices:
    """What can be chosen in a prepared network."""

    def __init__(self, model: onnx.ModelProto, weights_only: bool = False) -> None:
        self.model, self.weights_only = model, weights_only
        self.constants, self.readers = constants_of(model), readers_of(model)
        self.outputs = outputs_of(model)
        self.producers = {name: node for node in model.graph.node for name in node.output}
        self.places = {name: place for place, name in enumerate(self.producers)}
        self.values = {item.name: item for item in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
        able = (node for node in model.graph.node if self._is_able(node))
        self.layers = tuple(
            QuantisedLayer(node.name, node.op_type, node.output[0], self._result(node.output[0]))
            for node in able
            if node.op_type in (PRODUCTS if weights_only else LAYERS)
        )

    def without(self, kept: Iterable[str]) -> IntegerChoice:
        """The layers that compute on integers if those in `kept` do not: all products, and what only passes integers on
        to others."""
        allowed = {layer.name for layer in self.layers} - set(kept)
        wanted, layers, moves = set[str](), set[str](), set[str]()
        for node in reversed(self.model.graph.node):
            read = any(name in wanted for name in node.output)
            if node.name in allowed and (node.op_type in PRODUCTS or self._is_wanted(node, wanted)):
                layers.add(node.name)
            elif node.op_type in MOVES and read and not self.weights_only and self._moves_integers(node, allowed):
                moves.add(node.name)
            else:
                continue
            wanted.update(self._integer_operands(node))
        return self._choice(frozenset(layers), frozenset(moves), wanted)

    def alone(self, layer: str) -> IntegerChoice:
        """One layer that computes on integers, and no others."""
        node = next(node for node in self.model.graph.node if node.name == layer)
        return self._choice(frozenset([layer]), frozenset(), set(self._integer_operands(node)))

    def _choice(self, layers: frozenset[str], moves: frozenset[str], wanted: set[str]) -> IntegerChoice:
        values = [item.name for item in self.model.graph.input]
        values += [name for node in self.model.graph.node for name in node.output]
        of_type = {node.name: node for node in self.model.graph.node if node.name in layers | moves}
        pairs = [
            {name for name in (*self._integer_operands(node), node.output[0]) if name in wanted}
            for node in of_type.values()
            if node.op_type in (*JOINS, *MOVES)
        ]
        return IntegerChoice(layers, moves, tuple(name for name in values if name in wanted), _united(pairs))

    def _is_able(self, node: onnx.NodeProto) -> bool:
        """Whether a node can compute on integers: float32 operands of the kinds that integer kernels have."""
        operands = self._integer_operands(node)
        if node.domain not in ("", "ai.onnx") or not all(self._is_float(name) for name in (*operands, node.output[0])):
            return False
        match node.op_type:
            case "Conv":
                return self._has_weights(node, (3, 4, 5))
            case "Gemm":
                plain = all(attribute.f == 1.0 for attribute in node.attribute if attribute.name in ("alpha", "beta"))
                plain = plain and not any(attribute.i for attribute in node.attribute if attribute.name == "transA")
                return plain and self._has_weights(node, (2,))
            case "MatMul":
                if node.input[0] in self.constants:
                    return False
                return self._has_weights(node, (2,)) or (node.input[1] in self.producers and not self.weights_only)
            case "Add":
                shapes = {self._shape(name) for name in (*node.input, node.output[0])}
                return len(shapes) == 1 and not any(name in self.constants for name in node.input)
            case "Concat":
                return not any(name in self.constants for name in node.input)
        return node.op_type in AVERAGES

    def _has_weights(self, node: onnx.NodeProto, ranks: tuple[int, ...]) -> bool:
        """Whether weights and bias are constants in float32, and finite."""
        tensors = [self.constants.get(name) for name in node.input[1:] if name]
        found = [tensor for tensor in tensors if tensor is not None and tensor.data_type == TensorProto.FLOAT]
        whole = len(found) == len(tensors) >= 1 and len(found[0].dims) in ranks and prod(found[0].dims) > 0
        if not whole or node.input[0] in self.constants:
            return False
        channels = found[0].dims[channel_axis(node)]
        fits = all(list(bias.dims) == [channels] for bias in found[1:])
        return fits and all(np.isfinite(numpy_helper.to_array(tensor)).all() for tensor in found)

    def _integer_operands(self, node: onnx.NodeProto) -> tuple[str, ...]:
        """The computed operands that an integer operator reads as integers."""
        if self.weights_only:
            return ()
        if node.op_type in ("MatMul", *SUMS, *JOINS):
            beside = self._added_to(node) if node.op_type in SUMS else ""
            return tuple(name for name in node.input if name not in self.constants and name != beside)
        return (node.input[0],) if node.input else ()

    def _added_to(self, node: onnx.NodeProto) -> str:
        """The operand of a sum to which the other one is added before anything is rounded: the last one that a product
        makes for the sum alone; empty where there is none."""
        made = [name for name in node.input if (maker := self.producers.get(name)) and maker.op_type in PRODUCTS]
        alone = [name for name in made if len(self.readers.get(name, [])) == 1 and name not in self.outputs]
        return max(alone, key=lambda name: self.places[name], default="")

    def _is_wanted(self, node: onnx.NodeProto, wanted: set[str]) -> bool:
        """Whether the result of a node, or what an activation makes of it, is quantised."""
        return node.output[0] in wanted or (node.op_type in SUMS and self._result(node.output[0]) in wanted)

    def _moves_integers(self, node: onnx.NodeProto, allowed: set[str]) -> bool:
        """Whether a move comes after a layer that can give integers. A value that a floating-point operator makes is
        better rounded after it was moved."""
        if not self._is_float(node.input[0]) or len(list(filter(None, node.output))) > 1:
            return False
        name = node.input[0]
        while (producer := self.producers.get(name)) is not None:
            if producer.op_type not in (*MOVES, *ACTIVATIONS):
                return producer.name in allowed
            name = producer.input[0]
        return False

    def _result(self, name: str) -> str:
        """A value after the activations that alone read it."""
        while name not in self.outputs and len(readers := self.readers.get(name, [])) == 1:
            if readers[0].op_type not in ACTIVATIONS or readers[0].input[0] != name:
                break
            name = readers[0].output[0]
        return name

    def _is_float(self, name: str) -> bool:
        if name in self.constants:
            return self.constants[name].data_type == TensorProto.FLOAT
        return name in self.values and self.values[name].type.tensor_type.elem_type == TensorProto.FLOAT

    def _shape(self, name: str) -> tuple[int, ...] | None:
        if name not in self.values:
            return None
        return tuple(dim.dim_value for dim in self.values[name].type.tensor_type.shape.dim)


def kept_layers(choices: Choices, source: onnx.ModelProto, wanted: Sequence[str]) -> frozenset[str]:
    """The layers that operator types and names of nodes of the file select, to stay in floating point. Raises
    ModelError for a name that the file does not have."""
    types = {node.op_type for node in source.graph.node}
    names = {node.name for node in source.graph.node}
    for name in wanted:
        if name not in types | names:
            folded = {each.lower(): each for each in sorted(types | names)}
            close = difflib.get_close_matches(name.lower(), folded, n=1)
            raise ModelError(
                f"--keep-float {name}",
                needs="an operator type or the name of a node of the network",
                has="neither",
                change=f"did you mean {folded[close[0]]}?" if close else f"its types are {', '.join(sorted(types))}",
            )
    outputs = {node.output[0] for node in source.graph.node if node.op_type in wanted or node.name in wanted}
    return frozenset(
        layer.name
        for layer in choices.layers
        if layer.operator in wanted or layer.name in wanted or layer.output in outputs
    )


def channel_axis(node: onnx.NodeProto) -> int:
    """The axis of a product's weights that has its output channels."""
    across = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return 0 if node.op_type == "Conv" or across else -1


def _united(pairs: Iterable[set[str]]) -> tuple[frozenset[str], ...]:
    """Sets with common elements put together; those of one element are left out."""
    united: list[set[str]] = []
    for pair in pairs:
        apart = [each for each in united if each.isdisjoint(pair)]
        united = [*apart, pair.union(*(each for each in united if not each.isdisjoint(pair)))]
    return tuple(frozenset(each) for each in united if len(each) > 1)
