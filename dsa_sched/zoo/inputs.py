"""Seeded inputs with low-frequency content: waves of a few cycles, as photographs have, instead of white noise, which
every network averages away so that all outputs look alike.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from dsa_sched.zoo.evaluation import Doubles, Tensor
from dsa_sched.zoo.meanings.declared_meanings import MaskMeaning, Meaning, Range, declared_meanings, drawn_integers
from dsa_sched.zoo.meanings.inferred_meanings import inferred_meanings, inside_caches
from dsa_sched.zoo.weights import seed_of
from hw_models.errors import ModelError

WAVES = 6
MOST_CYCLES = 4.0
NOISE = 0.05
DEVIATIONS = 3
"""Number of deviations from the middle of a declared range to its ends."""

INTEGERS = 8
"""Upper bound of integers about which nothing is known."""


def seeded_inputs(
    model: onnx.ModelProto, count: int, seed: int, integers: Range | None = None
) -> tuple[dict[str, Tensor], ...]:
    """`count` different sets of inputs: name -> array in the model's dtype and ONNX layout.

    Each array depends on the seed, its set's number and the input's name only. Feature maps of rank 4 get waves, other
    floats normal numbers, integers what the model says about them (`declared_meanings`) or does with them, else small
    non-negative ones, truth values masks. With `integers`, those about which the model itself says nothing are in this
    range. Raises ModelError for a dynamic shape.
    """
    constants = {item.name for item in model.graph.initializer}
    inputs = tuple(item for item in model.graph.input if item.name not in constants)
    said = (_all(inputs, integers) if integers else inferred_meanings(model)) | declared_meanings(model)
    said = inside_caches(model, said)
    return tuple(
        {item.name: _seeded(item, said.get(item.name), seed, number) for item in inputs} for number in range(count)
    )


def _all(inputs: tuple[onnx.ValueInfoProto, ...], meaning: Range) -> dict[str, Meaning]:
    """`meaning` for each of the integers among these inputs."""
    kinds = {item.name: helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type).kind for item in inputs}
    return {name: meaning for name, kind in kinds.items() if kind in "iu"}


def _seeded(item: onnx.ValueInfoProto, meaning: Meaning | None, seed: int, number: int) -> Tensor:
    kind = item.type.tensor_type
    shape = tuple(dim.dim_value for dim in kind.shape.dim)
    if not kind.HasField("shape") or any(not dim.HasField("dim_value") or dim.dim_value < 1 for dim in kind.shape.dim):
        shown = [dim.dim_param or dim.dim_value or "?" for dim in kind.shape.dim]
        raise ModelError(f"input {item.name}", needs="a static shape", has=str(shown).replace("'", ""))
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    generator = np.random.default_rng(seed_of("input", seed, number, item.name))
    if meaning is not None and dtype.kind in "iub":
        return drawn_integers(item.name, meaning, generator, shape).astype(dtype)
    if dtype.kind in "iu":
        return generator.integers(0, INTEGERS, shape).astype(dtype)
    if dtype.kind == "b":
        return drawn_integers(item.name, MaskMeaning(), generator, shape).astype(dtype)
    drawn = low_frequency(generator, shape) if len(shape) == 4 else generator.standard_normal(shape)
    if isinstance(meaning, Range):
        middle, half = (meaning.most + meaning.least) / 2, (meaning.most - meaning.least) / 2
        drawn = middle + half * np.clip(drawn / DEVIATIONS, -1, 1)
    return drawn.astype(dtype)


def low_frequency(generator: np.random.Generator, shape: tuple[int, ...]) -> Doubles:
    """Feature maps [N, C, H, W] of about unit variance: every plane has its own waves, an offset and a little noise."""
    *outer, height, width = shape
    planes = int(np.prod(outer))
    y, x = np.arange(height) / height, np.arange(width) / width
    cycles = generator.uniform(-MOST_CYCLES, MOST_CYCLES, (planes, WAVES, 2))
    phases = generator.uniform(0, 2 * np.pi, (planes, WAVES, 1))
    amplitudes = np.full((planes, WAVES), np.sqrt(1.5 / WAVES))
    along_y, along_x = 2 * np.pi * cycles[..., :1] * y + phases, 2 * np.pi * cycles[..., 1:] * x
    # cos(a + b) as two outer products: no array of waves x height x width
    waves = np.einsum("pw,pwy,pwx->pyx", amplitudes, np.cos(along_y), np.cos(along_x))
    waves -= np.einsum("pw,pwy,pwx->pyx", amplitudes, np.sin(along_y), np.sin(along_x))
    waves += generator.standard_normal((planes, 1, 1)) * 0.5
    return np.asarray(waves.reshape(shape) + NOISE * generator.standard_normal(shape))
