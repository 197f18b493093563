"""Seeded inputs with low-frequency content: plane waves of a few cycles, as photographs have, instead of white noise,
which every network averages away so that all outputs look alike.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from hw_models.errors import ModelError

__all__ = ["low_frequency", "seed_of", "seeded_inputs"]

WAVES = 6
MOST_CYCLES = 4.0


def seed_of(*words: object) -> int:
    """A generator seed from words, the same in every process."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, words)).encode()).digest()[:8], "little")


def seeded_inputs(model: onnx.ModelProto, count: int, seed: int) -> list[dict[str, npt.NDArray[np.generic]]]:
    """`count` different inputs for a model with static shapes: name -> array in the model's dtype and ONNX layout.

    Integer inputs get small non-negative numbers. Raises ModelError for a dynamic shape.
    """
    constants = {tensor.name for tensor in model.graph.initializer}
    result: list[dict[str, npt.NDArray[np.generic]]] = []
    for number in range(count):
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        for item in model.graph.input:
            if item.name in constants:
                continue
            shape = tuple(int(dim.dim_value) for dim in item.type.tensor_type.shape.dim)
            if min(shape, default=1) < 1:
                raise ModelError(f"input {item.name}", needs="a static shape", has=str(list(shape)))
            generator = np.random.default_rng(seed_of("input", seed, number, item.name))
            dtype = helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
            if dtype.kind in "iu":
                arrays[item.name] = generator.integers(0, 8, shape).astype(dtype)
            else:
                arrays[item.name] = low_frequency(generator, shape).astype(dtype)
        result.append(arrays)
    return result


def low_frequency(generator: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """About unit variance. From rank 3 on the last two axes are an image, and each image has its own waves."""
    if len(shape) < 3:
        return generator.standard_normal(shape)
    *outer, height, width = shape
    planes = int(np.prod(outer))
    y, x = np.arange(height) / height, np.arange(width) / width
    cycles = generator.uniform(-MOST_CYCLES, MOST_CYCLES, (planes, WAVES, 2))
    phases = generator.uniform(0, 2 * np.pi, (planes, WAVES))
    amplitudes = generator.standard_normal((planes, WAVES)) * np.sqrt(2 / WAVES)
    angle_y = 2 * np.pi * cycles[..., :1] * y + phases[..., None]
    angle_x = 2 * np.pi * cycles[..., 1:] * x
    # cos(a + b) as two outer products: no array of waves x height x width
    even = np.einsum("pw,pwy,pwx->pyx", amplitudes, np.cos(angle_y), np.cos(angle_x))
    odd = np.einsum("pw,pwy,pwx->pyx", amplitudes, np.sin(angle_y), np.sin(angle_x))
    offset = generator.standard_normal((planes, 1, 1)) * 0.5
    return np.asarray(even - odd + offset).reshape(shape)
