"""Calibration: one pass over the network on a seeded batch sets what keeps activations small and alive.

    batch norm                     mean and variance of its input, by channel
    convolution without one        gain and bias by channel, so that the output looks as after a batch norm
    matrix multiplication          bias by channel, one gain for the layer: a batch has too few samples for more

Every statistic is rounded to 8 bits before it is used, so that the last bits of this machine's arithmetic do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from dsa_sched.zoo.evaluation import Doubles, Tensor, evaluate
from dsa_sched.zoo.weights import PASSED_ON

__all__ = ["Aims", "calibrated"]

KEPT_BITS = 8
LEAST_VARIANCE = 1e-3  # of a channel, as a part of the layer's: a nearly constant channel is not blown up
ENOUGH_SAMPLES = 64  # of a channel, for a variance of its own


@dataclass(frozen=True, slots=True)
class Aims:
    """Where values should lie.

    `shift`: mean before a ReLU, in deviations. `residual`: deviation of a branch that is added to its block's input.
    `logits`: deviation of the classifier's outputs.
    """

    shift: float = 0.5
    residual: float = 0.5
    logits: float = 4.0


def calibrated(
    nodes: tuple[onnx.NodeProto, ...], constants: Mapping[str, Tensor], feed: tuple[str, Doubles], aims: Aims
) -> dict[str, Tensor]:
    """The constants after calibration. `feed` is the name of the one real input and a batch of it, [N, C, H, W]."""
    network = _Network(nodes, dict(constants))
    network.aim(aims)
    values = {feed[0]: feed[1]}
    last_use = {operand: position for position, node in enumerate(nodes) for operand in node.input}
    for position, node in enumerate(nodes):
        if node.output[0] in network.passed:
            continue
        values[node.output[0]] = network.step(node, values, aims)
        for operand in node.input:
            if last_use[operand] == position:
                values.pop(operand, None)
    return network.constants


class _Network:
    """The nodes and their constants, which change as calibration moves along."""

    def __init__(self, nodes: tuple[onnx.NodeProto, ...], constants: dict[str, Tensor]) -> None:
        self.constants = constants
        self.passed: dict[str, onnx.NodeProto] = {}  # constants behind an Unsqueeze or Reshape
        self.readers: dict[str, list[str]] = {}
        self.nodes = nodes
        for node in nodes:
            if node.op_type in PASSED_ON and node.input[0] in constants:
                self.passed[node.output[0]] = node
            for operand in node.input:
                self.readers.setdefault(operand, []).append(node.op_type)
        self.classifier = [node.output[0] for node in nodes if node.op_type in ("Conv", "Gemm")][-1]

    def aim(self, aims: Aims) -> None:
        """Move the shifts before every ReLU and shrink the branches before every sum."""
        for node in self.nodes:
            readers = self.readers.get(node.output[0], [])
            if node.op_type == "BatchNormalization" and "Sum" in readers:
                for name in node.input[1:3]:
                    self._scale(name, np.float32(aims.residual))
            if readers == ["Relu"] and node.op_type in ("BatchNormalization", "Add", "Conv", "Gemm"):
                name = self._root(node.input[1 if node.op_type == "Add" else 2])
                self.constants[name] = np.asarray(self.constants[name] + np.float32(aims.shift))

    def step(self, node: onnx.NodeProto, values: Mapping[str, Doubles], aims: Aims) -> Doubles:
        """Calibrate the node's constants on its operands; its output."""
        images = next(iter(values.values())).shape[0]
        operands = [values[name] if name in values else self._constant(name) for name in node.input]
        if node.op_type == "BatchNormalization":
            mean, variance = _statistics(operands[0])
            step = 2.0 ** np.floor(np.log2(np.sqrt(variance)) - KEPT_BITS)
            self.constants[node.input[3]] = operands[3] = (np.round(mean / step) * step).astype(np.float32)
            self.constants[node.input[4]] = operands[4] = variance.astype(np.float32)
        if node.op_type == "Reshape" and operands[1][0] == 1:
            operands[1] = np.concatenate([[images], operands[1][1:]])
        if node.op_type not in ("Conv", "Gemm") or self.readers[node.output[0]] == ["BatchNormalization"]:
            return evaluate(node, operands)
        return self._fit(node, operands, aims.logits if node.output[0] == self.classifier else 1.0)

    def _fit(self, node: onnx.NodeProto, operands: list[Tensor], deviation: float) -> Doubles:
        """Gain and bias of a convolution or matrix multiplication: the output centred, with the given deviation."""
        output = evaluate(node, operands[:2])
        mean, variance = _statistics(output)
        gain = _rounded(deviation / np.sqrt(variance))
        centre = np.round(mean * gain / deviation * 2**KEPT_BITS) / 2**KEPT_BITS * deviation
        self._scale(node.input[1], gain.astype(np.float32))
        name = self._root(node.input[2])
        self.constants[name] = (self.constants[name] * deviation - centre).astype(np.float32)
        axes = (1, -1, *(1,) * (output.ndim - 2))
        return output * gain.reshape(axes) + self.constants[name].reshape(axes)

    def _constant(self, name: str) -> Tensor:
        if name not in self.passed:
            return self.constants[name]
        node = self.passed[name]
        operands = [self.constants[item] for item in node.input]
        if node.op_type == "Reshape":  # in float32: the largest matrices come this way
            return operands[0].reshape(operands[1].tolist())
        return evaluate(node, operands)

    def _root(self, name: str) -> str:
        return self.passed[name].input[0] if name in self.passed else name

    def _scale(self, name: str, gain: Tensor) -> None:
        """Multiply a constant by one factor, or its rows by a factor each."""
        seen, root = self._constant(name), self._root(name)
        rows = gain.reshape(-1, *(1,) * (seen.ndim - 1)) if gain.ndim else gain
        self.constants[root] = np.asarray(seen * rows, np.float32).reshape(self.constants[root].shape)


def _statistics(data: Doubles) -> tuple[Doubles, Doubles]:
    """Mean by channel; variance by channel where there are enough samples, else the layer's. The latter is rounded."""
    axes = (0, *range(2, data.ndim))
    mean, variance = data.mean(axis=axes), data.var(axis=axes)
    samples = data.size // data.shape[1]
    whole = variance.mean()
    if samples < ENOUGH_SAMPLES:
        return mean, _rounded(np.full_like(variance, whole * samples / (samples - 1)))
    return mean, _rounded(np.maximum(variance, whole * LEAST_VARIANCE))


def _rounded(values: Doubles) -> Doubles:
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, KEPT_BITS)), exponent - KEPT_BITS))
