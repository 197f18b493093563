"""Calibration: one pass on a seeded batch, which sets the constants that keep activations small and alive.

    batch norm                     mean and variance of its input, by channel
    convolution without one        gain and bias by channel, so that the output looks as after a batch norm
    matrix multiplication          weights that ignore the mean input, one gain for the layer, bias by channel

Every statistic is rounded to 8 bits before use, so that the last bits of a machine's arithmetic do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from dsa_sched.zoo.evaluation import Doubles, Tensor, evaluate
from dsa_sched.zoo.weights import PASSED_ON, Floats

KEPT_BITS = 8
LEAST_VARIANCE = 1e-3  # of a channel, as a part of the layer's: a nearly constant channel is not blown up
CLASSIFIER_PULL = 4.0  # of the last matrix multiplication towards what differs between images
ENOUGH_SAMPLES = 64  # of a channel, for a variance of its own
RECTIFIERS = {"Relu", "Clip"}
SHIFT_POSITION = {"BatchNormalization": 2, "Add": 1, "Conv": 2, "Gemm": 2}


@dataclass(frozen=True, slots=True)
class Aims:
    """Targets for the distribution of values.

    `shift`: mean before a ReLU, in deviations. `residual`: deviation of a branch that is added to its block's input.
    `bounded`: deviation after a batch norm before a Clip; the mean is then `bounded` times `shift`, so that a ReLU6 has
    values at both bounds.
    `gate`: deviation before a sigmoid that alone reads it. Gates depend on the whole map; wide ones make large
    maps larger and small ones smaller, block by block.
    `classifier_shift`: the `shift` of the last weighted layer, where a ReLU follows it. `logits`: its deviation.

    A random network with zero shifts and full branches is chaotic: what a rounding error changes grows from layer to
    layer, faster than what the input changes. Noise of 1 in every layer, relative, arrives at the logits of ResNet-50
    as 99 (relative to the distance between two inputs) with shift 0.5 and equal branches, as 9 with these aims.
    """

    shift: float = 1.0
    residual: float = 0.25
    bounded: float = 2.0
    gate: float = 0.125
    classifier_shift: float = -1.0
    logits: float = 4.0


def calibrated(
    nodes: tuple[onnx.NodeProto, ...],
    floats: Mapping[str, Floats],
    kept: Mapping[str, Tensor],
    feed: tuple[str, Doubles],
    aims: Aims,
) -> dict[str, Floats]:
    """The float constants after calibration. `feed` is the name of the one real input and a batch [N, C, H, W]."""
    network = _Network(nodes, dict(floats), kept)
    network.move_shifts(aims)
    values = {feed[0]: feed[1]}
    last_use = {operand: position for position, node in enumerate(nodes) for operand in node.input}
    for position, node in enumerate(nodes):
        if node.output[0] in network.passed:
            continue
        values[node.output[0]] = network.step(node, values, aims)
        for operand in node.input:
            if last_use[operand] == position:
                values.pop(operand, None)
    return network.floats


class _Network:
    """The nodes and their constants, which change as calibration moves along."""

    def __init__(
        self, nodes: tuple[onnx.NodeProto, ...], floats: dict[str, Floats], kept: Mapping[str, Tensor]
    ) -> None:
        self.nodes = nodes
        self.floats = floats
        self.kept = kept
        self.passed: dict[str, onnx.NodeProto] = {}  # constants after an Unsqueeze or Reshape
        self.readers: dict[str, list[str]] = {}
        for node in nodes:
            if node.op_type in PASSED_ON and node.input[0] in floats:
                self.passed[node.output[0]] = node
            for operand in node.input:
                self.readers.setdefault(operand, []).append(node.op_type)
        self.classifier = [node.output[0] for node in nodes if node.op_type in ("Conv", "Gemm")][-1]

    def move_shifts(self, aims: Aims) -> None:
        """Raise the shifts before every ReLU, shrink the branches before every sum, widen the inputs of a Clip."""
        branches = self._branches()
        for node in self.nodes:
            result = node.output[0]
            if node.op_type == "BatchNormalization" and result in branches:
                for name in node.input[1:3]:
                    self.floats[name] = self.floats[name] * np.float32(aims.residual)
            if node.op_type in SHIFT_POSITION and not RECTIFIERS.isdisjoint(self.readers.get(result, ())):
                name = self._root(node.input[SHIFT_POSITION[node.op_type]])
                shift = aims.classifier_shift if result == self.classifier else aims.shift
                self.floats[name] = self.floats[name] + np.float32(shift)
            if node.op_type == "BatchNormalization" and "Clip" in self.readers.get(result, ()):
                for name in node.input[1:3]:
                    self.floats[name] = self.floats[name] * np.float32(aims.bounded)

    def _branches(self) -> set[str]:
        """Values that are added to a block's input. Files with Sum put that second; an Add of two computed values, as
        PyTorch's exporter writes it, has it on either side: nothing but the sum reads the branch."""
        first = {node.input[0] for node in self.nodes if node.op_type == "Sum"}
        constants = self.floats.keys() | self.passed.keys() | self.kept.keys()
        adds = [node for node in self.nodes if node.op_type == "Add" and constants.isdisjoint(node.input)]
        return first | {name for node in adds for name in node.input if self.readers[name] == ["Add"]}

    def step(self, node: onnx.NodeProto, values: Mapping[str, Doubles], aims: Aims) -> Doubles:
        """Calibrate the node's constants on its operands; its output."""
        if node.op_type == "BatchNormalization":
            self._fit_statistics(node, values[node.input[0]])
        operands = [values[name] if name in values else self._constant(name) for name in node.input]
        if node.op_type == "Reshape" and operands[1][0] == 1:  # written for one image
            operands[1] = np.concatenate([operands[0].shape[:1], operands[1][1:]])
        normalised = self.readers.get(node.output[0]) == ["BatchNormalization"]
        if node.op_type not in ("Conv", "Gemm") or len(operands) < 3 or normalised:
            return evaluate(node, operands)
        return self._fit(node, operands, self._deviation(node.output[0], aims))

    def _deviation(self, value: str, aims: Aims) -> float:
        if value == self.classifier:
            return aims.logits
        return aims.gate if self.readers.get(value) == ["Sigmoid"] else 1.0

    def _fit_statistics(self, node: onnx.NodeProto, data: Doubles) -> None:
        mean, variance = _statistics(data)
        step = 2.0 ** np.floor(np.log2(np.sqrt(variance)) - KEPT_BITS)
        self.floats[node.input[3]] = (np.round(mean / step) * step).astype(np.float32)
        self.floats[node.input[4]] = variance.astype(np.float32)

    def _fit(self, node: onnx.NodeProto, operands: list[Tensor], deviation: float) -> Doubles:
        """Gain and bias of a convolution or matrix multiplication: the output centred, with the given deviation."""
        if node.op_type == "Gemm" or operands[0].shape[2:] == (1, 1):
            pull = CLASSIFIER_PULL if node.output[0] == self.classifier else 0.0
            operands[1] = self._direct(node, np.asarray(operands[0], np.float64), pull)
        output = evaluate(node, operands[:2])
        mean, variance = _statistics(output)
        gain = _rounded(deviation / np.sqrt(variance))
        step = deviation / 2**KEPT_BITS
        self._scale_rows(node.input[1], gain.astype(np.float32))
        name = self._root(node.input[2])
        bias = self.floats[name] * deviation - np.round(mean * gain / step) * step
        self.floats[name] = bias.astype(np.float32)
        axes = (1, -1, *(1,) * (output.ndim - 2))
        return np.asarray(output * gain.reshape(axes) + self.floats[name].reshape(axes))

    def _direct(self, node: onnx.NodeProto, data: Doubles, pull: float) -> Tensor:
        """Weights [outputs, inputs, ...] that see what differs between inputs and not their mean, as trained ones do.

        Each row gets `pull` times its own length along the differences between the images of the batch, mixed by its
        first weights, and loses its component along the mean. Random weights alone cancel most of what they sum, and a
        bias would cancel the rest, so that no fp16 precision would be left. Returns them as the node sees them.
        """
        seen = self._constant(node.input[1])
        weights = np.asarray(seen.reshape(seen.shape[0], -1), np.float32)
        mean = _rounded(data.mean(axis=0, keepdims=True))
        if pull:
            weights = _pulled(weights, (data - mean).reshape(len(data), -1), pull)
        response = evaluate(node, [mean, weights.reshape(seen.shape)]).ravel()
        along = _rounded(response / np.square(mean).sum()).astype(np.float32)
        weights = weights - along[:, None] * mean.astype(np.float32).reshape(1, -1)
        root = self._root(node.input[1])
        self.floats[root] = weights.reshape(self.floats[root].shape)
        return self._constant(node.input[1])

    def _constant(self, name: str) -> Tensor:
        """The constant as its reader sees it; an operand left out is empty."""
        if not name:
            return np.zeros(0)
        if name not in self.passed:
            return self.floats[name] if name in self.floats else self.kept[name]
        node = self.passed[name]
        value = evaluate(node, [self.floats[node.input[0]], *(self.kept[item] for item in node.input[1:])])
        return value.astype(np.float32)

    def _root(self, name: str) -> str:
        return self.passed[name].input[0] if name in self.passed else name

    def _scale_rows(self, name: str, gain: Floats) -> None:
        """Multiply the weights of every output by its gain. Reshape and Unsqueeze keep their order."""
        root = self.floats[self._root(name)]
        self.floats[self._root(name)] = (root.reshape(gain.size, -1) * gain[:, None]).reshape(root.shape)


def _pulled(weights: Floats, differences: Doubles, pull: float) -> Floats:
    """Products computed one by one, not as a matrix product, whose last bits depend on the machine."""
    images, length = differences.shape
    directions = _rounded(differences / np.sqrt(np.sum(differences**2, axis=1, keepdims=True)))
    result = weights.astype(np.float64)
    for image in range(images):
        result += pull * np.sqrt(length / images) * weights[:, image, None] * directions[image]
    return result.astype(np.float32)


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
