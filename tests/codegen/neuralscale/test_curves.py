"""Functions that are formulas on the vector engine: how far from the exact ones, over all halves.

docs/fidelity.md states these errors; a change of a formula that moves one fails here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, erfc, exp, log1p, sqrt, tanh
from pathlib import Path

import numpy as np
import pytest

from codegen.neuralscale.emulation import arithmetic as chip
from codegen.neuralscale.emulation.curves_reference import EMULATED
from codegen.neuralscale.templates.curves import CURVES
from partitioner.ir.graph import Op

ROOT = Path(__file__).resolve().parents[3]

ALL = chip.from_bits(np.arange(1 << 16, dtype=np.uint16))
FINITE = ALL[np.isfinite(ALL)]
Function = Callable[[float], float]


def softplus(x: float) -> float:
    return max(x, 0.0) + log1p(exp(-abs(x)))


def near_gelu(x: float) -> float:
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


FUNCTIONS: dict[str, tuple[str, tuple[tuple[str, str], ...], Function, float]] = {
    "Erf": ("erf", (), erf, 1e-3),
    "Gelu": ("gelu", (("approximate", "none"),), lambda x: 0.5 * x * erfc(-x / sqrt(2)), 3.7e-3),
    "Gelu, tanh": ("gelu", (("approximate", "tanh"),), near_gelu, 3.8e-3),
    "Softplus": ("softplus", (), softplus, 1.3e-3),
    "Mish": ("mish", (), lambda x: x * tanh(softplus(x)), 5.1e-3),
}
"""Operator -> kind, attributes, the function, the largest error: of values below one absolute, of others relative."""


def emulated(kind: str, attributes: tuple[tuple[str, str], ...], x: chip.Halves) -> chip.Halves:
    with np.errstate(all="ignore"):
        return EMULATED[kind](Op("f", kind, ("x",), ("y",), attributes, ()), x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_error_over_all_halves_is_the_stated_one(name: str) -> None:
    kind, attributes, function, stated = FUNCTIONS[name]
    exact = np.array([function(float(x)) for x in FINITE])
    error = np.abs(emulated(kind, attributes, FINITE) - exact) / np.maximum(1, np.abs(exact))
    assert 0.9 * stated < error.max() <= stated
    assert f"| {name} | {stated * 100:.2f} % |" in (ROOT / "docs" / "fidelity.md").read_text("utf-8")


def test_small_values_of_the_error_function_keep_their_precision() -> None:
    small = FINITE[(np.abs(FINITE) > 1e-4)]
    exact = np.array([erf(float(x)) for x in small])
    assert np.max(np.abs(emulated("erf", (), small) / exact - 1)) < 2e-3


@pytest.mark.parametrize("name", FUNCTIONS)
def test_limits_and_nan(name: str) -> None:
    kind, attributes, _, _ = FUNCTIONS[name]
    below, above, nan = emulated(kind, attributes, np.array([-np.inf, np.inf, np.nan]))
    assert np.isnan(nan)
    wanted = {"erf": (-1.0, 1.0), "softplus": (0.0, np.inf)}.get(kind, (np.nan, np.inf))
    np.testing.assert_array_equal((below, above), wanted)


def test_every_formula_is_emulated_and_stated() -> None:
    assert set(CURVES) == set(EMULATED) == {kind for kind, *_ in FUNCTIONS.values()}
