"""Measured rates of kinds of kernels: which one counts for a kernel, and what it is expected to take."""

from __future__ import annotations

import pytest

from hw_models.loading import load_chip
from hw_models.parts import KernelRate
from partitioner.ir.kernels import Kernel, KernelFloor, with_rate

RATES = (
    KernelRate(kernel="conv2d", start_us=3.0, efficiency=0.5, error=0.1),
    KernelRate(kernel="conv2d(tile=64x64)", start_us=1.0, efficiency=0.25, error=0.2),
    KernelRate(kernel="lines", start_us=0.0, efficiency=1.0, error=0.0),
)


def kernel(template: str, **parameters: int | str) -> Kernel:
    floors = (KernelFloor("main", 8e-6), KernelFloor("tensor", 2e-6))
    return Kernel(template, tuple(parameters.items()), launches=2, launch_seconds=1e-6, floors=floors)


@pytest.mark.parametrize(
    ("asked", "seconds", "error"),
    [
        (kernel("conv2d", tile="128x64", aligned=8), 2 * (1 + 3) + 8 / 0.5, 0.1),
        (kernel("conv2d", tile="64x64", aligned=8), 2 * (1 + 1) + 8 / 0.25, 0.2),
        (kernel("gemm", tile="64x64"), 2 * 1 + 8, 0.0),
    ],
)
def test_the_record_that_names_most_parameters_counts(asked: Kernel, seconds: float, error: float) -> None:
    rated = with_rate(asked, RATES)
    assert rated.seconds == pytest.approx(seconds * 1e-6)
    assert rated.error == error
    assert (rated.text, rated.busiest, rated.binding) == (asked.text, asked.busiest, asked.binding)


def test_floors_are_the_times_of_a_chip_without_measurements() -> None:
    assert load_chip("h100").simt.kernels == ()
    assert with_rate(kernel("conv2d"), ()).seconds == pytest.approx(10e-6)
