"""The quantised network, by onnxruntime's quantiser: QuantizeLinear and DequantizeLinear around chosen operators.

    Conv(x, w, b) -> Relu -> y   -->   x -> Q -> DQ \\
                                       int8 w -> DQ -> Conv -> Relu -> y, which is quantised where it is read
                                       int32 b -> DQ /

Activations are int8 with the zero point 0 and scales so that the largest magnitude is 127; weights are int8 with one
scale per output channel, or one per layer; biases are int32 in units of both scales.

With symmetric activations onnxruntime keeps a Relu or Clip after a convolution (whose zero point would otherwise do its
work) and quantises before and after it. That is a second rounding, and one that wastes the integers that the activation
removes. Here the outputs of all layers are left to those that read them (its option
OpTypesToExcludeOutputQuantization), activations are not among its nodes to quantise, and values that only move are
(ForceQuantizeNoInputCheck, because it would otherwise ask for their operands too early). So each value is rounded at
most once between two layers, after its activation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from dsa_sched.quantisation.choice import (
    ACTIVATIONS,
    LAYERS,
    MOVES,
    PRODUCTS,
    SUMS,
    IntegerChoice,
    channel_axis,
)
from dsa_sched.quantisation.prepared import constants_of
from dsa_sched.quantisation.ranges import ValueRange

QUANTISE, DEQUANTISE = "QuantizeLinear", "DequantizeLinear"

MOST = 127
"""Integer of the largest magnitude."""

LEAST_UNITS = 16
"""Least whole number of units for which the scale of weights is made larger, by one part in so many at most."""

INFERRED = ("onnx.infer", "onnxruntime.quant")
"""The metadata by which onnxruntime's quantiser sees that types of values are declared."""


def quantised(
    prepared: onnx.ModelProto,
    choice: IntegerChoice,
    ranges: Mapping[str, ValueRange],
    weights_only: bool = False,
    per_layer: bool = False,
) -> onnx.ModelProto:
    """A prepared network with the layers of a choice quantised; `ranges` has those of its values. With `weights_only`,
    weights alone are integers, with a DequantizeLinear after them; with `per_layer`, all weights of a layer have one
    scale."""
    model = onnx.ModelProto()
    model.CopyFrom(prepared)
    if not choice.nodes:
        return model
    _separate_weights(model, choice)
    made = {node.output[0]: node for node in model.graph.node}
    layers, constants = choice.layers if weights_only else frozenset(), constants_of(model)
    weights = {
        node.name: numpy_helper.to_array(constants[node.input[1]]) for node in made.values() if node.name in layers
    }
    model.metadata_props.add(key=INFERRED[0], value=INFERRED[1])
    quantiser = _quantiser(model, choice, ranges, weights_only, per_layer)
    quantiser.quantize_model()
    quantiser.model.topological_sort()
    result = onnx.ModelProto()
    result.CopyFrom(quantiser.model.model)
    _order_as_before(result, [node.name for node in model.graph.node])
    kept = [item for item in result.metadata_props if (item.key, item.value) != INFERRED]
    del result.metadata_props[:]
    result.metadata_props.extend(kept)
    _give_numbers_back(result, choice, made)
    _round_scales(result, weights)
    return result


def _quantiser(
    model: onnx.ModelProto,
    choice: IntegerChoice,
    ranges: Mapping[str, ValueRange],
    weights_only: bool,
    per_layer: bool,
) -> Any:
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    class Quantiser(QDQQuantizer):  # type: ignore[misc]
        """onnxruntime's, which can leave activations as they are."""

        def quantize_activation_tensor(self, name: str) -> None:
            if not weights_only and name in values:
                super().quantize_activation_tensor(name)

    nodes, values = [node for node in model.graph.node if node.name in choice.nodes], frozenset(choice.values)
    data = {
        name: TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))
        for name, (low, high) in ranges.items()
    }
    return Quantiser(
        model,
        not per_layer,
        False,
        QuantType.QInt8,
        QuantType.QInt8,
        TensorsData(CalibrationMethod.MinMax, data),
        [node.name for node in nodes],
        [],
        sorted({node.op_type for node in nodes}),
        {
            "TensorQuantOverrides": _whole_scales(model, choice, ranges) if per_layer and not weights_only else {},
            "ActivationSymmetric": True,
            "WeightSymmetric": True,
            "ForceQuantizeNoInputCheck": True,
            "OpTypesToExcludeOutputQuantization": [*LAYERS],
            "QDQOpTypePerChannelSupportToAxis": {"MatMul": -1},
            "QuantizeBias": not weights_only,
        },
    )


def _order_as_before(model: onnx.ModelProto, names: Sequence[str]) -> None:
    """Put the nodes of these names into this order again, each right after what it needs; the rest follows."""
    nodes = list(model.graph.node)
    made = {output: node for node in nodes for output in node.output}
    by_name = {node.name: node for node in nodes}
    waiting = [by_name[name] for name in reversed(names) if name in by_name]
    waiting[:0] = [node for node in reversed(nodes) if node.name not in set(names)]
    done: set[int] = set()
    order: list[onnx.NodeProto] = []
    while waiting:
        needed = [made[name] for name in waiting[-1].input if name in made and id(made[name]) not in done]
        if needed:
            waiting += reversed(needed)
            continue
        node = waiting.pop()
        if id(node) not in done:
            done.add(id(node))
            order.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in order]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _whole_scales(
    model: onnx.ModelProto, choice: IntegerChoice, ranges: Mapping[str, ValueRange]
) -> dict[str, list[dict[str, npt.NDArray[Any]]]]:
    """Scales of weights, a little larger than necessary, of products to which a quantised value is added before
    anything is rounded: the value's scale is then a whole number of units of the product's sums, and an array of
    integers can add it."""
    made = {node.output[0]: node for node in model.graph.node}
    constants = constants_of(model)
    scales: dict[str, list[dict[str, npt.NDArray[Any]]]] = {}
    for node in model.graph.node:
        if node.op_type not in SUMS or node.name not in choice.layers:
            continue
        for product, value in (node.input, reversed(node.input)):
            maker = made.get(product)
            if maker is None or product in choice.values or maker.name not in choice.layers:
                continue
            if maker.op_type not in PRODUCTS or maker.input[1] not in constants or value not in choice.values:
                continue
            weights = numpy_helper.to_array(constants[maker.input[1]])
            given, added = (max(map(abs, ranges[name])) / MOST for name in (maker.input[0], value))
            least = float(np.abs(weights).max()) / MOST * given
            units = int(added / least) if least > 0 else 0
            if units >= LEAST_UNITS:
                scale = np.array(added / given / units, np.float32)
                given_to: dict[str, npt.NDArray[Any]] = {"scale": scale, "zero_point": np.array(0, np.int8)}
                scales.setdefault(maker.input[1], [given_to])
    return scales


def _separate_weights(model: onnx.ModelProto, choice: IntegerChoice) -> None:
    """Give weights of their own to operators that stay in floating point, where integer ones read the same, and to
    products whose channels lie on another axis."""
    products = [node for node in model.graph.node if node.name in choice.layers and node.op_type in PRODUCTS]
    constants, names = constants_of(model), {node.name for node in products}
    axes = {name: channel_axis(node) for node in reversed(products) for name in node.input if name in constants}
    copies: dict[tuple[str, int | None], str] = {}
    for node in model.graph.node:
        axis = channel_axis(node) if node.name in names else None
        for place, name in enumerate(node.input):
            if axes.get(name, axis) == axis:
                continue
            if (name, axis) not in copies:
                copies[name, axis] = f"{name}_{'float' if axis is None else 'turned'}"
                model.graph.initializer.add().CopyFrom(constants[name])
                model.graph.initializer[-1].name = copies[name, axis]
            node.input[place] = copies[name, axis]


def _round_scales(model: onnx.ModelProto, weights: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Replace scales of weights by fp16 numbers, where these are normal ones, and quantise the weights again: integers
    times their scale, rounded to fp16, are then the same whoever multiplies. `weights` has those of each layer."""
    made, constants = {node.output[0]: node for node in model.graph.node}, constants_of(model)
    for node in model.graph.node:
        if node.name not in weights:
            continue
        dequantise = made[node.input[1]]
        integers, scale = (constants[name] for name in dequantise.input[:2])
        exact = numpy_helper.to_array(scale)
        with np.errstate(over="ignore"):
            rounded = exact.astype(np.float16).astype(np.float32)
        limits = np.finfo(np.float16)
        rounded = np.where((rounded < limits.smallest_normal) | (rounded > limits.max), exact, rounded)
        axis = next((each.i for each in dequantise.attribute if each.name == "axis"), 1)
        numbers = weights[node.name]
        spread = np.moveaxis(np.broadcast_to(rounded, np.moveaxis(numbers, axis, -1).shape), -1, axis)
        again = np.clip(np.rint(numbers / spread), -127, 127).astype(np.int8)
        integers.CopyFrom(numpy_helper.from_array(again, integers.name))
        scale.CopyFrom(numpy_helper.from_array(rounded.astype(np.float32), scale.name))


def _give_numbers_back(model: onnx.ModelProto, choice: IntegerChoice, made: Mapping[str, onnx.NodeProto]) -> None:
    """Let operators in floating point read a value itself, not what is left of it after its rounding, where one of them
    made it. After a layer the rounding can be part of the layer only if nothing else reads its value before."""
    rounded = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == QUANTISE}
    before = {
        node.output[0]: rounded[node.input[0]]
        for node in model.graph.node
        if node.op_type == DEQUANTISE and node.input[0] in rounded
    }
    for node in model.graph.node:
        if node.name in choice.nodes or node.op_type == QUANTISE:
            continue
        for place, name in enumerate(node.input):
            origin = before.get(name)
            if origin is not None and origin in made and made[origin].op_type not in (*LAYERS, *MOVES, *ACTIVATIONS):
                node.input[place] = origin
