"""Seeded weights, by the operators that read them, before calibration.

    network name, constant name, role, shape  -->  float32 array, the same bits on every machine

Drawn from the generator's raw uniform numbers: the normal distribution's tails depend on the machine's exp and log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import Enum

import numpy as np
import numpy.typing as npt
import onnx

Floats = npt.NDArray[np.float32]

SPREAD = np.float32(0.2)
PASSED_ON = ("Unsqueeze", "Reshape")  # some files put these between a constant and its reader
SEEN_BY_OTHERS = ("Transpose",)  # of a constant that another node reads as it is


class ConstantRole(Enum):
    """Effect of a constant on the value that it meets."""

    WEIGHT = "weight"
    MATRIX = "matrix"
    RECURRENT = "recurrent"
    TABLE = "table"
    FACTOR = "factor"
    SHIFT = "shift"
    MEAN = "mean"
    VARIANCE = "variance"


_ROLES = {
    ("Conv", 1): ConstantRole.WEIGHT,
    ("Conv", 2): ConstantRole.SHIFT,
    ("Gemm", 1): ConstantRole.WEIGHT,
    ("Gemm", 2): ConstantRole.SHIFT,
    ("BatchNormalization", 1): ConstantRole.FACTOR,
    ("BatchNormalization", 2): ConstantRole.SHIFT,
    ("BatchNormalization", 3): ConstantRole.MEAN,
    ("BatchNormalization", 4): ConstantRole.VARIANCE,
    ("Mul", 1): ConstantRole.FACTOR,
    ("Add", 1): ConstantRole.SHIFT,
    ("LayerNormalization", 1): ConstantRole.FACTOR,
    ("LayerNormalization", 2): ConstantRole.SHIFT,
    ("RMSNormalization", 1): ConstantRole.FACTOR,
    ("MatMul", 1): ConstantRole.MATRIX,
    ("LSTM", 1): ConstantRole.RECURRENT,
    ("LSTM", 2): ConstantRole.RECURRENT,
    ("LSTM", 3): ConstantRole.SHIFT,
    ("GRU", 1): ConstantRole.RECURRENT,
    ("GRU", 2): ConstantRole.RECURRENT,
    ("GRU", 3): ConstantRole.SHIFT,
    ("Gather", 0): ConstantRole.TABLE,
    ("Slice", 0): ConstantRole.TABLE,
    ("Expand", 0): ConstantRole.TABLE,
}


def seed_of(*words: object) -> int:
    """Seed of a generator from words, the same in every process."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, words)).encode()).digest()[:16], "little")


def roles(nodes: Iterable[onnx.NodeProto], constants: Mapping[str, tuple[int, ...]]) -> dict[str, ConstantRole]:
    """The role of every constant, by name, also through nodes that only reshape it."""
    origin = {name: name for name in constants}
    result: dict[str, ConstantRole] = {}
    for node in nodes:
        if node.op_type in PASSED_ON and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
            continue
        for position, operand in enumerate(node.input):
            if operand in origin and node.op_type not in SEEN_BY_OTHERS:
                result[origin[operand]] = _ROLES[node.op_type, position]
    return result


def drawn(network: str, constant: str, role: ConstantRole, shape: tuple[int, ...]) -> Floats:
    """Weights with He's variance (2 over the inputs of one output), which a ReLU halves again; half of it in MatMul
    and recurrences; rows of tables of unit variance; factors about 1, shifts about 0.
    """
    generator = np.random.default_rng(seed_of(network, constant))
    match role:
        case ConstantRole.WEIGHT:
            return _bell(generator, shape) * np.float32(np.sqrt(2 / np.prod(shape[1:])))
        case ConstantRole.MATRIX:  # [..., inputs, outputs]
            return _bell(generator, shape) * np.float32(np.sqrt(1 / shape[-2]))
        case ConstantRole.RECURRENT:  # [directions, gates x states, inputs]
            return _bell(generator, shape) * np.float32(np.sqrt(1 / shape[-1]))
        case ConstantRole.TABLE:
            return _bell(generator, shape)
        case ConstantRole.FACTOR:
            return np.float32(1) + SPREAD * (2 * generator.random(shape, np.float32) - 1)
        case ConstantRole.SHIFT:
            return SPREAD * (2 * generator.random(shape, np.float32) - 1)
        case ConstantRole.MEAN:
            return np.zeros(shape, np.float32)
        case ConstantRole.VARIANCE:
            return np.ones(shape, np.float32)


def _bell(generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Zero mean, unit variance, triangular density: the sum of two uniform numbers."""
    result = generator.random(shape, np.float32)
    result += generator.random(shape, np.float32)
    result -= np.float32(1)
    result *= np.float32(np.sqrt(6))
    return result
