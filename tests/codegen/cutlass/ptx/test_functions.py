"""Functions of CUDA's library as nvcc compiles them, against numpy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from codegen.cutlass.emission.nvcc import Compiler
from codegen.cutlass.ptx import GlobalMemory, Module, launch, parameters, parse
from tests.codegen.cutlass.conftest import KERNELS

Array: TypeAlias = NDArray[Any]

erf = np.vectorize(math.erf)

OF_ONE: dict[str, Callable[[Array], Array]] = {
    "exponential": np.exp,
    "logarithm": lambda x: np.log(np.abs(x)),
    "tangent": np.tanh,
    "error": erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "inverse_root": lambda x: 1 / np.sqrt(np.abs(x) + 1e-5),
    "rounded": lambda x: np.trunc(4 * x + np.copysign(0.5, x)),
    "even": lambda x: np.rint(4 * x),
    "clipped": lambda x: np.clip(x, -1, 6),
    "pair_exponential": np.exp,
}
OF_TWO: dict[str, Callable[[Array, Array], Array]] = {
    "power": lambda x, z: np.abs(x) ** z,
    "left_over": np.fmod,
    "whole": lambda x, z: np.trunc(_times(x, 100) / 7) + np.fmod(_times(z, 50), 5),
    "pair_fma": lambda x, z: np.maximum(x * z + x, 0),
    "pair_largest": np.maximum,
    "pair_greater": lambda x, z: (x > z).astype(np.float64),
}
CANCEL = ("gelu", "mish", "logarithm")
"""Where terms of opposite sign make results much smaller than their errors."""


def _times(x: Array, factor: int) -> Array:
    """The whole part of a product in f32."""
    product: Array = x.astype(np.float32) * np.float32(factor)
    return np.trunc(product).astype(np.float64)


@pytest.fixture(scope="module")
def functions(compiler: Compiler) -> Module:
    return parse(compiler.ptx((KERNELS / "functions.cu").read_text(encoding="utf-8"), "80", name="functions.cu"))


def computed(functions: Module, name: str, x: Array, z: Array) -> Array:
    """The kernel's results: one an f32, or one a pair of halves."""
    memory = GlobalMemory()
    places = [memory.allocate(x), memory.allocate(z), memory.allocate(x.nbytes)]
    given = parameters(functions.kernels[name], *places, x.nbytes // 4)
    launch(functions, name, (-(-x.nbytes // 512), 1, 1), (128, 1, 1), given, memory)
    return memory.load(places[2], x.dtype, x.shape).astype(np.float64)


def test_every_kernel_is_tested(functions: Module) -> None:
    assert set(functions.kernels) == {*OF_ONE, *OF_TWO}


@pytest.mark.parametrize("name", [*OF_ONE, *OF_TWO])
def test_a_function(functions: Module, name: str) -> None:
    pairs = name.startswith("pair_")
    kind = np.float16 if pairs else np.float32
    x, z = ((np.random.default_rng(seed).standard_normal(1000) * (1 if pairs else 3)).astype(kind) for seed in (1, 2))
    wide, other = x.astype(np.float64), z.astype(np.float64)
    exact = OF_ONE[name](wide) if name in OF_ONE else OF_TWO[name](wide, other)
    error = np.abs(computed(functions, name, x, z) - exact)
    relative, least = (2.0**-10, 2.0**-25) if pairs else (2.0**-21, 2.0**-40)
    cancelled = np.abs(wide) * 2.0**-22 if name in CANCEL else 0.0
    assert (error <= relative * np.abs(exact) + cancelled + least).all()
