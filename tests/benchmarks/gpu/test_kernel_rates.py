"""Rates of kinds of kernels from times: numbers that were put in come out, and the lines are those of a chip file."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import hw_models
from benchmarks.gpu.bench import Row
from benchmarks.gpu.kernel_rates import (
    ROLES,
    SAMPLES,
    Sample,
    beyond_us,
    fitted_rates,
    lines_of,
    main,
    row_of,
    samples_of,
)
from benchmarks.gpu.store import Program
from hw_models.loading import load_chip
from hw_models.parts import KernelRate

Times = tuple[float, float, float, float, float]


def drawn(kernel: str, start_us: float, times: Times, count: int, seed: int = 0) -> list[Sample]:
    """Samples off by at most one part in twenty."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        floors = tuple(draw.uniform(0.2, 20.0) for _ in ROLES)
        took = start_us + sum(many * us for many, us in zip(times, floors, strict=True))
        found.append(Sample(kernel, floors, took * draw.uniform(0.95, 1.05)))
    return found


def test_a_start_and_times_of_floors_come_out_as_they_were_put_in() -> None:
    (rate,) = fitted_rates(drawn("pointwise", 2.0, (1.0, 0.5, 0.0, 2.0, 0.0), 300), launch_us=0.5, more_us=0.25)
    assert (rate.kernel, rate.samples) == ("pointwise", 300)
    assert rate.start_us == pytest.approx(2.0 - 0.5 + 0.25, abs=0.5)
    assert rate.times == pytest.approx((1.0, 0.5, 0.0, 2.0, 0.0), abs=0.06)
    assert 0.005 < rate.error < 0.05


def test_tiles_are_kinds_of_their_own_where_enough_kernels_have_them() -> None:
    fast, slow = (1.0, 0.0, 0.0, 1.0, 0.0), (1.0, 0.0, 0.0, 2.0, 0.0)
    samples = [
        *drawn("conv2d(tile=64x64, aligned=8)", 3.0, fast, 60),
        *drawn("conv2d(tile=128x64, aligned=8)", 3.0, slow, 60),
        *drawn("conv2d(tile=64x128, aligned=8)", 3.0, slow, 2),
    ]
    found = {rate.kernel: rate for rate in fitted_rates(samples, 0.0, 0.0)}
    assert set(found) == {"conv2d", "conv2d(tile=64x64)", "conv2d(tile=128x64)"}
    tensor = ROLES.index("tensor")
    assert found["conv2d(tile=128x64)"].times[tensor] > 1.6 * found["conv2d(tile=64x64)"].times[tensor]


def test_every_launch_of_a_kernel_has_a_start() -> None:
    kernels = [*drawn("split_layer", 2.0, (1.0, 0.0, 0.0, 2.0, 0.0), 100)]
    several = [replace(each, launches=2, took_us=each.took_us + 2.0) for each in kernels]
    row = row_of([*kernels, *several], launch_us=0.5, more_us=0.0)
    (line,) = lines_of([row])
    assert float(line.partition("start_us: ")[2].partition(",")[0]) == pytest.approx(1.5, abs=0.5)


def test_nothing_is_negative_and_what_samples_do_not_tell_apart_stays_plain() -> None:
    samples = [Sample("lines", (us, us, 0.0, 0.0, 0.0), us) for us in (1.0, 2.0, 4.0, 8.0)]
    (rate,) = fitted_rates(samples, launch_us=0.5, more_us=0.0)
    assert min(rate.start_us, *rate.times) >= 0
    assert rate.times[0] == pytest.approx(rate.times[1], abs=1e-6)
    assert rate.times[2:] == (0.0, 0.0, 0.0) or min(rate.times[2:]) >= 0


def program(kernels: dict[str, Any], group: str = "") -> Program:
    entry = {"network": "net", "batch": 1, "level": "O0", "chip": "h200", "reuses": True, "group": group}
    return Program({**entry, "kernels": kernels})


def test_samples_are_kernels_with_the_floors_of_the_pack() -> None:
    floors = {"HBM": 1e-3, "L2": 2e-3}
    kernels = {
        "a": {"kernel": "lines", "launches": 1, "floors_ms": floors},
        "b": {"kernel": "split_layer", "launches": 2, "floors_ms": floors},
    }
    roles = dict(zip(ROLES, ("HBM", "L2", "shared", "tensor", "simt"), strict=True))
    rows: list[Row] = [{"key": program(kernels).key, "groups": {name: {"warm_ms": 4e-3} for name in kernels}}]
    wanted = Sample("lines", (1.0, 2.0, 0.0, 0.0, 0.0), 4.0)
    assert list(samples_of([program(kernels)], rows, [], roles)) == [
        wanted,
        replace(wanted, kernel="split_layer", launches=2),
    ]
    forced: list[Row] = [{"key": program(kernels).key, "warm_ms": 4e-3}, {"key": "none", "error": "x"}]
    assert list(samples_of([program(kernels, "a")], [], forced, roles)) == [wanted]


def test_launches_of_a_network_may_take_longer_than_in_a_row() -> None:
    group = {"launches": 2, "warm_ms": 4e-3}
    kernels: list[Row] = [{"key": "a", "groups": {"g": group, "h": {**group, "launches": 1}}}, {"key": "b"}]
    assert beyond_us(kernels, [{"key": "a", "median_ms": 11e-3}]) == pytest.approx(1.0)
    assert beyond_us(kernels, []) == 0.0


def test_lines_are_read_as_records_of_a_chip_file() -> None:
    samples = drawn("conv2d(tile=64x64, aligned=8)", 3.0, (1.0, 0.0, 0.0, 2.0, 0.0), 30)
    lines = lines_of([{"key": "other"}, row_of(samples[:10], 0.4, 0.1), row_of(samples[10:], 0.6, 0.1)])
    read = [KernelRate.model_validate(line) for line in yaml.safe_load("\n".join(lines))]
    assert [rate.kernel for rate in read] == ["conv2d", "conv2d(tile=64x64)"]
    whole = list(fitted_rates(samples, 0.5, 0.1))
    assert read[1].tensor == pytest.approx(whole[1].times[ROLES.index("tensor")], abs=0.01)
    assert read[1].start_us == pytest.approx(whole[1].start_us, abs=0.01)


@pytest.mark.parametrize("chip", ["h100", "h200"])
def test_the_lines_of_the_chip_files_are_those_of_the_samples(chip: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    text = (Path(hw_models.__file__).parent / "chips" / f"{chip}.yaml").read_text(encoding="utf-8")
    assert text.partition("  kernels:\n")[2] == said
    assert said.count("\n") == len(load_chip(chip).simt.kernels) > 20


def test_a_file_without_samples_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.json")]) == 1
    assert "none.json: needs a file" in capsys.readouterr().err
    assert SAMPLES.is_file()
