"""Measured rates of kinds of kernels: which one counts for a kernel, and what it is expected to take."""

from __future__ import annotations

from pathlib import Path

import pytest

import hw_models
from hw_models.chip import Chip
from hw_models.loading import load_chip, parse_chip
from partitioner.ir.kernels import Kernel, KernelFloor, with_speed

RATES = """
  kernels:
    - {kernel: conv2d, start_us: 3, main: 1, tensor: 2, error: 0.1}
    - {kernel: "conv2d(tile=64x64)", start_us: 1, main: 1.5, shared: 9, error: 0.2}
    - {kernel: lines, start_us: 0, cache: 0.01, error: 0}
"""


def chip() -> Chip:
    """The a100 with rates, which it has not of its own."""
    text = (Path(hw_models.__file__).parent / "chips" / "a100.yaml").read_text(encoding="utf-8")
    return parse_chip(text + RATES, "rated.yaml")


def kernel(template: str, **parameters: int | str) -> Kernel:
    floors = (KernelFloor("HBM", 8e-6), KernelFloor("tensor", 2e-6))
    return Kernel(template, tuple(parameters.items()), launches=2, launch_seconds=1e-6, floors=floors)


@pytest.mark.parametrize(
    ("asked", "seconds", "error"),
    [
        (kernel("conv2d", tile="128x64", aligned=8), 2 * (1 + 3) + 8 + 2 * 2, 0.1),
        (kernel("conv2d", tile="64x64", aligned=8), 2 * (1 + 1) + 1.5 * 8, 0.2),
        (kernel("lines", threads=32), 2 * 1 + 8, 0.0),  # not below its floor
        (kernel("gemm", tile="64x64"), 2 * 1 + 8, 0.0),
    ],
)
def test_the_record_that_names_most_parameters_counts(asked: Kernel, seconds: float, error: float) -> None:
    rated = with_speed(asked, chip())
    assert rated.seconds == pytest.approx(seconds * 1e-6)
    assert rated.error == error
    assert (rated.text, rated.busiest, rated.binding) == (asked.text, asked.busiest, asked.binding)


def test_floors_are_the_times_of_a_chip_without_measurements() -> None:
    assert with_speed(kernel("conv2d"), load_chip("a100")) == kernel("conv2d")


def test_the_gpus_that_were_measured_say_what_is_expected_and_others_what_is_least() -> None:
    for name, measured in (("h200", True), ("h100", True), ("a100", False)):
        assert bool(load_chip(name).simt.kernels) == measured
