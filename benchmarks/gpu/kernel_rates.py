"""Rates of kinds of kernels, from times of single kernels: what the chip file's `simt.kernels` should say.

    rows of steps kernels and order --(floor, time) by kind--> start_us, efficiency, error --> lines of YAML

A kind is a template, with the parameter that sets its speed where enough kernels differ by it (`SPLIT`). Each kind's
times are fitted by a start and the floor over an efficiency of at most 1, by least squares of the relative error. What
a launch of a network takes beyond the same launch in a row of its own is added to every start: `beyond_us`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.gpu.bench import Row
from benchmarks.gpu.synthetic import Array

__all__ = ["Rate", "Sample", "beyond_us", "fitted_rates", "samples_of", "yaml_lines"]

SPLIT: Mapping[str, str] = {
    "conv2d": "tile",
    "gemm": "tile",
    "convolution_chain": "by",
    "product_pair": "instruction",
    "inverted_residual": "weights",
}
"""By template the parameter that divides it into kinds."""
FEWEST, WIDE = 6, 4
"""Samples of a kind of its own, and how many times the least of their floors the largest is."""
SHARE = 0.8
"""Of the samples whose error is at most `error`."""


@dataclass(frozen=True)
class Sample:
    """One kernel of one launch that was timed: microseconds of its floor, where it ran, and of a launch in a row."""

    kernel: str
    floor_us: float
    took_us: float


@dataclass(frozen=True)
class Rate:
    """One line of the chip file, and how many samples it comes from."""

    kernel: str
    start_us: float
    efficiency: float
    error: float
    samples: int


def samples_of(kernels: Iterable[Row], candidates: Iterable[Row]) -> list[Sample]:
    """Of the rows of step `kernels`, and those of step `order`; kernels of several launches are left out."""
    found = []
    for row in kernels:
        for group in row.get("groups", {}).values():
            if group["launches"] == 1 and "warm_ms" in group:
                found.append(Sample(group["kernel"], 1e3 * group["floor_ms"], 1e3 * group["warm_ms"]))
    for row in candidates:
        if row.get("launches") == 1 and "warm_ms" in row:
            found.append(Sample(row["kernel"], 1e3 * row["warm_floor_ms"], 1e3 * row["warm_ms"]))
    return found


def beyond_us(kernels: Iterable[Row], networks: Iterable[Row]) -> float:
    """What a launch of a network takes beyond one of a row of equal launches: the median of networks, at least 0."""
    times = {row["key"]: 1e3 * row["median_ms"] for row in networks if "median_ms" in row}
    shares = []
    for row in kernels:
        groups = list(row.get("groups", {}).values())
        if row["key"] in times and groups and "warm_ms" in groups[0]:
            apart = times[row["key"]] - sum(1e3 * group["warm_ms"] for group in groups)
            shares.append(apart / sum(group["launches"] for group in groups))
    return max(0.0, median(shares)) if shares else 0.0


def fitted_rates(samples: Sequence[Sample], launch_us: float, more_us: float) -> Iterator[Rate]:
    """By template, and by kind where there are enough samples, in alphabetical order. `launch_us` is that of the chip
    file, which starts do not contain; `more_us` is added to each."""
    by_kind: dict[str, list[Sample]] = {}
    for sample in samples:
        template, parameters = _read(sample.kernel)
        by_kind.setdefault(template, []).append(sample)
        if SPLIT.get(template) in parameters:
            name = SPLIT[template]
            by_kind.setdefault(f"{template}({name}={parameters[name]})", []).append(sample)
    for kind, own in sorted(by_kind.items()):
        floors = [sample.floor_us for sample in own]
        if "(" not in kind or (len(own) >= FEWEST and max(floors) >= WIDE * min(floors)):
            yield _fitted(kind, own, launch_us, more_us)


def _read(kernel: str) -> tuple[str, dict[str, str]]:
    """Template and parameters of `template(name=value, ...)`; this file is read where there is only NumPy."""
    template, _, named = kernel.rstrip(")").partition("(")
    return template, dict(pair.split("=", 1) for pair in named.split(", ") if pair)  # type: ignore[misc]


def _fitted(kind: str, samples: Sequence[Sample], launch_us: float, more_us: float) -> Rate:
    floors = np.array([sample.floor_us for sample in samples])
    took = np.array([sample.took_us for sample in samples])
    start, slower = _not_negative(np.stack([1 / took, floors / took], axis=1), 1 - floors / took)
    expected = start + (1 + slower) * floors
    error = float(np.quantile(np.abs(expected / took - 1), SHARE))
    return Rate(kind, max(0.0, start - launch_us + more_us), 1 / (1 + slower), error, len(samples))


def _not_negative(factors: Array, wanted: Array) -> tuple[float, float]:
    """Two numbers, none negative, whose products with `factors` are nearest to `wanted`: the best of the solutions with
    both, one or none of them."""
    best, found = float(wanted @ wanted), np.zeros(2)
    for used in ([0, 1], [0], [1]):
        numbers = np.zeros(2)
        numbers[used] = np.linalg.lstsq(factors[:, used], wanted, rcond=None)[0]
        left = factors @ numbers - wanted
        if (numbers >= 0).all() and float(left @ left) < best:
            best, found = float(left @ left), numbers
    return float(found[0]), float(found[1])


def yaml_lines(rates: Iterable[Rate]) -> Iterator[str]:
    """As they stand in a chip file."""
    for rate in rates:
        kernel = f'"{rate.kernel}"' if "(" in rate.kernel else rate.kernel
        yield (
            f"    - {{kernel: {kernel}, start_us: {rate.start_us:.2f}, efficiency: {rate.efficiency:.2f}, "
            f"error: {rate.error:.2f}}}  # of {rate.samples} kernels"
        )
