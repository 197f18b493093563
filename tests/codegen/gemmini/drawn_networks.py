"""Drawn quantised networks: chains of convolutions and products with residual additions, all scales one per layer."""

from __future__ import annotations

import numpy as np
import onnx

from tests.codegen.gemmini.quantised_networks import WEIGHT_STEP, QuantisedNetwork

STEPS = (0.02, 0.05, 0.1)
FACTORS = (1, 5, 127, 128, 300, 1000)
"""Whole numbers of units of the sums by which values are added."""


def drawn_network(seed: int) -> onnx.ModelProto:
    """A network of two to six layers; most channels are whole blocks of 16, so that values may stay in the core."""
    random = np.random.default_rng(seed)
    return _images(random, seed) if random.random() < 0.75 else _rows(random, seed)


def _images(random: np.random.Generator, seed: int) -> onnx.ModelProto:
    height, width = (int(extent) for extent in random.integers(5, 24, 2))
    channels, step = int(random.choice([3, 16, 16, 32])), 0.02
    net = QuantisedNetwork((int(random.choice([1, 1, 2])), channels, height, width), seed)
    value = net.rounded("x", step)
    for _ in range(int(random.integers(2, 6))):
        kernel, stride = int(random.choice([1, 1, 3, 3, 5])), int(random.choice([1, 1, 1, 2]))
        dilation = int(random.choice([1, 1, 2])) if stride == 1 else 1
        pad = int(random.choice([0, dilation * (kernel // 2)]))
        reach = dilation * (kernel - 1) + 1
        if min(height, width) + 2 * pad < reach or pad >= reach:
            kernel, stride, dilation, pad = 1, 1, 1, 0
        outputs = int(random.choice([channels, 16, 16, 32, 48, 20]))
        adds = outputs == channels and stride == 1 and 2 * pad == dilation * (kernel - 1) and random.random() < 0.7
        # A value that is added is a whole number of units of the sums, or the core adds it.
        given = step
        if adds and random.random() < 0.8:
            given = step / (WEIGHT_STEP * int(random.choice(FACTORS)))
        source = value if given == step else net.rounded(_activated(net, random, value), given)
        made = net.conv(source, channels, outputs, kernel, stride=stride, pad=pad, dilation=dilation, step=given)
        made = net.node("Add", *random.permutation([made, value]).tolist()) if adds else made
        step = float(random.choice(STEPS))
        height, width = ((extent + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for extent in (height, width))
        value, channels = net.rounded(_activated(net, random, made), step), outputs
    return net.model(net.rounded(net.conv(value, channels, int(random.choice([16, 10])), step=step), 0.5))


def _rows(random: np.random.Generator, seed: int) -> onnx.ModelProto:
    depth, step = int(random.choice([10, 16, 32])), 0.02
    net = QuantisedNetwork((int(random.integers(1, 40)), depth), seed)
    value = net.rounded("x", step)
    for _ in range(int(random.integers(2, 5))):
        columns = int(random.choice([16, 32, 48, 21]))
        made = net.node("MatMul", value, net.weights((depth, columns), WEIGHT_STEP, False, 1))
        step = float(random.choice(STEPS))
        value, depth = net.rounded(_activated(net, random, made), step), columns
    return net.model(net.rounded(net.node("MatMul", value, net.weights((depth, 12), WEIGHT_STEP, False, 1)), 0.5))


def _activated(net: QuantisedNetwork, random: np.random.Generator, value: str) -> str:
    return net.node("Relu", value) if random.random() < 0.6 else value
