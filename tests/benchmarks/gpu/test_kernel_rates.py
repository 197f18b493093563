"""Rates of kinds of kernels from times: numbers that were put in come out, and the lines are those of a chip file."""

from __future__ import annotations

import random

import pytest
import yaml

from benchmarks.gpu.bench import Row
from benchmarks.gpu.kernel_rates import Sample, beyond_us, fitted_rates, samples_of, yaml_lines
from hw_models.parts import KernelRate


def drawn(kernel: str, start_us: float, efficiency: float, count: int, seed: int = 0) -> list[Sample]:
    """Samples off by at most one part in twenty."""
    draw = random.Random(seed)
    floors = [draw.uniform(0.2, 20.0) for _ in range(count)]
    return [Sample(kernel, us, (start_us + us / efficiency) * draw.uniform(0.95, 1.05)) for us in floors]


def test_a_start_and_an_efficiency_come_out_as_they_were_put_in() -> None:
    (rate,) = fitted_rates(drawn("pointwise", 2.0, 0.5, 200), launch_us=0.5, more_us=0.25)
    assert (rate.kernel, rate.samples) == ("pointwise", 200)
    assert rate.start_us == pytest.approx(2.0 - 0.5 + 0.25, abs=0.15)
    assert rate.efficiency == pytest.approx(0.5, rel=0.05)
    assert 0.01 < rate.error < 0.05


def test_tiles_are_kinds_of_their_own_where_enough_kernels_have_them() -> None:
    samples = [
        *drawn("conv2d(tile=64x64, aligned=8)", 3.0, 0.6, 30),
        *drawn("conv2d(tile=128x64, aligned=8)", 3.0, 0.3, 30),
        *drawn("conv2d(tile=64x128, aligned=8)", 3.0, 0.3, 2),
    ]
    found = {rate.kernel: rate for rate in fitted_rates(samples, 0.0, 0.0)}
    assert set(found) == {"conv2d", "conv2d(tile=64x64)", "conv2d(tile=128x64)"}
    assert found["conv2d(tile=64x64)"].efficiency > 1.8 * found["conv2d(tile=128x64)"].efficiency


def test_no_kernel_is_faster_than_its_floor_and_no_start_is_negative() -> None:
    samples = [Sample("lines", us, 0.9 * us) for us in (1.0, 2.0, 4.0, 8.0)]
    (rate,) = fitted_rates(samples, launch_us=0.5, more_us=0.0)
    assert (rate.start_us, rate.efficiency) == (0.0, 1.0)


def test_launches_of_a_network_may_take_longer_than_in_a_row() -> None:
    group = {"kernel": "lines", "launches": 2, "floor_ms": 1e-3, "warm_ms": 4e-3}
    kernels: list[Row] = [
        {"key": "a", "groups": {"g": group, "h": {**group, "launches": 1}}},
        {"key": "b", "error": "x"},
    ]
    assert beyond_us(kernels, [{"key": "a", "median_ms": 11e-3}]) == pytest.approx(1.0)
    assert beyond_us(kernels, []) == 0.0
    candidate: Row = {"kernel": "gemm(tile=64x64)", "launches": 1, "warm_floor_ms": 2e-3, "warm_ms": 5e-3}
    assert samples_of(kernels, [candidate, {"key": "c", "error": "x"}]) == [
        Sample("lines", 1.0, 4.0),
        Sample("gemm(tile=64x64)", 2.0, 5.0),
    ]


def test_lines_are_read_as_records_of_a_chip_file() -> None:
    rates = list(fitted_rates(drawn("conv2d(tile=64x64, aligned=8)", 3.0, 0.6, 30), 0.5, 0.0))
    read = [KernelRate.model_validate(line) for line in yaml.safe_load("\n".join(yaml_lines(rates)))]
    assert [rate.kernel for rate in read] == ["conv2d", "conv2d(tile=64x64)"]
