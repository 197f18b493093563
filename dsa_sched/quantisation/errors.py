"""How far a quantised network is from the one in floating point: per layer, and at its outputs.

    source, quantised network, input sets  -->  LayerError per layer, OutputError per output, over all inputs

A layer's error is that of its value in the quantised network, after its activation and its rounding, with all errors
that come from the layers before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log10, sqrt

import numpy as np
import onnx
from onnx import numpy_helper

from dsa_sched.quantisation.choice import IntegerChoice, QuantisedLayer
from dsa_sched.quantisation.prepared import constants_of
from dsa_sched.quantisation.quantiser import DEQUANTISE, QUANTISE
from dsa_sched.quantisation.ranges import InputSets
from dsa_sched.quantisation.sessions import AnyArray, NetworkSession
from hw_models.errors import ModelError

LEAST, MOST = -128, 127
"""Range of int8."""


@dataclass(frozen=True, slots=True)
class Distance:
    """Sums of squares, over all elements and inputs, of a value's error and of the value in floating point."""

    error: float = 0.0
    signal: float = 0.0

    def plus(self, value: AnyArray, reference: AnyArray) -> Distance:
        """With one more pair of arrays. Between equal infinities the error is NaN."""
        wide = reference.astype(np.float64)
        with np.errstate(invalid="ignore"):
            difference = value.astype(np.float64) - wide
        return Distance(self.error + float(np.vdot(difference, difference)), self.signal + float(np.vdot(wide, wide)))

    @property
    def relative(self) -> float:
        """L2 norm of the error over that of the value; inf where the value is zero and the error is not."""
        if self.signal == 0.0:
            return inf if self.error > 0 else 0.0
        return sqrt(self.error / self.signal)

    @property
    def snr_db(self) -> float:
        """Signal-to-noise ratio in decibels; inf without an error."""
        if self.error == 0.0:
            return inf
        return 10 * log10(self.signal / self.error) if self.signal > 0 else -inf


@dataclass(frozen=True, slots=True)
class LayerError:
    """One layer. `in_float` says that it stays in floating point. `scale` and `saturated`, the share of its elements
    beyond the range of int8, are None where its value is not quantised."""

    name: str
    operator: str
    value: str
    in_float: bool
    relative_l2: float
    snr_db: float
    scale: float | None
    saturated: float | None


@dataclass(frozen=True, slots=True)
class OutputError:
    """One output of the network."""

    name: str
    relative_l2: float
    snr_db: float


@dataclass(frozen=True, slots=True)
class _Rounding:
    """How a value is quantised: the name of the number before, and the scale."""

    before: str
    scale: np.float32


@dataclass(slots=True)
class _Sums:
    """What has been seen of one layer's value."""

    distance: Distance = field(default_factory=Distance)
    beyond: int = 0
    elements: int = 0


def measured(
    source: onnx.ModelProto,
    quantised: onnx.ModelProto,
    layers: Sequence[QuantisedLayer],
    choice: IntegerChoice,
    inputs: InputSets,
    say: Callable[[str], None],
) -> tuple[tuple[LayerError, ...], tuple[OutputError, ...]]:
    """Errors of layers and outputs. Raises ModelError where onnxruntime refuses the network or the inputs."""
    roundings = _roundings(quantised)
    outputs = float_outputs(source)
    read = {
        layer.name: roundings[layer.result].before if layer.result in roundings else layer.result for layer in layers
    }
    reference = NetworkSession(source, [*(layer.result for layer in layers), *outputs])
    session = NetworkSession(quantised, [*read.values(), *outputs])
    sums = {layer.name: _Sums() for layer in layers}
    ends = dict.fromkeys(outputs, Distance())
    for number, each in enumerate(inputs, 1):
        say(f"measuring errors, input {number} of {len(inputs)}")
        wanted, got = reference.run(each), session.run(each)
        for layer in layers:
            _add(sums[layer.name], got[read[layer.name]], wanted[layer.result], roundings.get(layer.result))
        ends = {name: distance.plus(got[name], wanted[name]) for name, distance in ends.items()}
    found = (_layer_error(layer, sums[layer.name], roundings.get(layer.result), choice) for layer in layers)
    return tuple(found), tuple(OutputError(name, d.relative, d.snr_db) for name, d in ends.items())


class OutputErrors:
    """The error at the outputs of many versions of a network, over the same inputs. The outputs of the network in
    floating point are kept."""

    def __init__(self, source: onnx.ModelProto, inputs: InputSets) -> None:
        self.names, self.inputs = float_outputs(source), inputs
        session = NetworkSession(source, self.names)
        self._wanted: tuple[Mapping[str, AnyArray], ...] = tuple(session.run(each) for each in inputs)

    def of(self, model: onnx.ModelProto) -> float:
        """The relative L2 error of the output that is worst."""
        session = NetworkSession(model, self.names)
        ends = dict.fromkeys(self.names, Distance())
        for each, wanted in zip(self.inputs, self._wanted, strict=True):
            got = session.run(each)
            ends = {name: distance.plus(got[name], wanted[name]) for name, distance in ends.items()}
        return max(distance.relative for distance in ends.values())


def float_outputs(model: onnx.ModelProto) -> tuple[str, ...]:
    """Outputs in floating point. Raises ModelError where there are none."""
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    names = tuple(item.name for item in model.graph.output if item.type.tensor_type.elem_type in floats)
    if not names:
        who = model.graph.name or "model"
        raise ModelError(
            who, needs="an output in floating point, at which errors can be measured", has="integers alone"
        )
    return names


def _add(sums: _Sums, value: AnyArray, reference: AnyArray, rounding: _Rounding | None) -> None:
    if rounding is not None:
        units = np.rint(value.astype(np.float32) / rounding.scale)
        inside = np.clip(units, LEAST, MOST)
        sums.beyond += int(np.count_nonzero(units != inside))
        sums.elements += units.size
        value = inside * rounding.scale
    sums.distance = sums.distance.plus(value, reference)


def _layer_error(layer: QuantisedLayer, sums: _Sums, rounding: _Rounding | None, choice: IntegerChoice) -> LayerError:
    return LayerError(
        layer.name,
        layer.operator,
        layer.result,
        layer.name not in choice.layers,
        sums.distance.relative,
        sums.distance.snr_db,
        float(rounding.scale) if rounding is not None else None,
        sums.beyond / max(1, sums.elements) if rounding is not None else None,
    )


def _roundings(model: onnx.ModelProto) -> dict[str, _Rounding]:
    """Value -> how it is quantised, also under the name that it has afterwards as an output."""
    constants = constants_of(model)
    quantised = {node.output[0]: node for node in model.graph.node if node.op_type == QUANTISE}
    found = {}
    for node in quantised.values():
        scale = np.float32(numpy_helper.to_array(constants[node.input[1]]).reshape(-1)[0])
        found[node.input[0]] = _Rounding(node.input[0], scale)
    for node in model.graph.node:
        if node.op_type == DEQUANTISE and node.input[0] in quantised:
            found[node.output[0]] = found[quantised[node.input[0]].input[0]]
    return found
