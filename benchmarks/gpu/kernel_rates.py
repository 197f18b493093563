"""Rates of kinds of kernels, from times of single kernels: `python benchmarks/gpu/kernel_rates.py [FILE...]`.

    rows of steps kernels and order, floors of the pack --by kind--> start, times of each floor, error --> lines of YAML

Prints what the chip file's `simt.kernels` should say by the samples in these files: gpu_fit.json of runs of `make gpu`,
or by default those of which the lines of h200.yaml are made, benchmarks/results/gpu_samples.json.

A kind is a template, with the parameter that sets its speed where enough kernels differ by it (`SPLIT`). The times of
each are fitted by a start of each launch and a sum of its floors, each any number of times, none negative, by least
squares of the relative error. A sum, because what one unit does overlaps little with what another does in kernels that
wait for each step of theirs; the largest floor alone explains less. Kinds start from the numbers of their template.
What a launch of a network takes beyond the same launch in a row of its own is added to every start (`beyond_us`).

This file is read where there is only NumPy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the package that is not installed

import numpy as np

from benchmarks.gpu.bench import Row
from benchmarks.gpu.store import Program, read_list
from benchmarks.gpu.synthetic import Array
from hw_models.errors import FileError

__all__ = ["ROLES", "SAMPLES", "Rate", "Sample", "beyond_us", "fitted_rates", "lines_of", "row_of", "samples_of"]

SAMPLES = Path(__file__).resolve().parents[1] / "results" / "gpu_samples.json"
"""Of which the lines of h200.yaml are made."""

ROLES = ("main", "cache", "shared", "tensor", "lanes")
"""Memories and units as the chip file's records name them."""
SPLIT: Mapping[str, str] = {
    "conv2d": "tile",
    "gemm": "tile",
    "wgmma_layer": "tile",
    "split_layer": "tile",
    "norm_product": "tile",
    "attention": "by",
    "convolution_chain": "by",
    "product_pair": "instruction",
    "inverted_residual": "weights",
}
"""By template the parameter that divides it into kinds."""
FEWEST = 6
"""Samples of a kind of its own."""
PLAIN, PLAIN_SAMPLES = np.array([2.0, 1.0, 1.0, 1.0, 1.0, 1.0]), 1.0
"""A start in microseconds and times of floors that are expected of a template before anything is known of it, and how
many samples that is worth."""
LEAST_SHARE = 0.045
"""Of the time of a sample, that a floor is. At 0.05 transposes have no part of the L2, half of them off by 0.28 and not
0.05; at 0.04 element-wise kernels, which memory binds, go by their arithmetic."""
WHOLE_SAMPLES = 6.0
"""So many samples are the numbers of its template worth for a kind."""
SHARE = 0.5
"""Of the samples whose error is at most `error`: so a fused kernel has to promise as much more."""


@dataclass(frozen=True)
class Sample:
    """One kernel that was timed in a row: microseconds of its floors where it ran, by role, and of it."""

    kernel: str
    floors_us: tuple[float, ...]
    took_us: float
    launches: int = 1


@dataclass(frozen=True)
class Rate:
    """One line of the chip file, and how many samples it comes from; `times` are by role."""

    kernel: str
    start_us: float
    times: tuple[float, ...]
    error: float
    samples: int


def samples_of(
    programs: Iterable[Program], kernels: Iterable[Row], candidates: Iterable[Row], roles: Mapping[str, str]
) -> Iterator[Sample]:
    """Of the rows of step `kernels`, and those of step `order`. `programs` are those of the pack, and `roles` has the
    chip's memory or unit of each role."""
    groups = {row["key"]: row.get("groups", {}) for row in kernels}
    forced = {row["key"]: row for row in candidates}
    for program in programs:
        rows = groups.get(program.key, {})
        if program.group and "warm_ms" in forced.get(program.key, {}):
            rows = {program.group: forced[program.key]}
        for name, row in rows.items():
            kernel = program.kernels[name]
            if "warm_ms" in row:
                floors = tuple(1e3 * kernel["floors_ms"].get(roles[role], 0.0) for role in ROLES)
                yield Sample(kernel["kernel"], floors, 1e3 * row["warm_ms"], kernel["launches"])


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


def fitted_rates(samples: Iterable[Sample], launch_us: float, more_us: float) -> Iterator[Rate]:
    """By template, and by kind where there are enough samples, in alphabetical order. `launch_us` is that of the chip
    file, which starts do not contain; `more_us` is added to each."""
    by_kind: dict[str, list[Sample]] = {}
    for sample in samples:
        template, parameters = _read(sample.kernel)
        by_kind.setdefault(template, []).append(sample)
        if SPLIT.get(template) in parameters:
            name = SPLIT[template]
            by_kind.setdefault(f"{template}({name}={parameters[name]})", []).append(sample)
    whole = {kind: _numbers(own, PLAIN, PLAIN_SAMPLES) for kind, own in by_kind.items() if "(" not in kind}
    for kind, own in sorted(by_kind.items()):
        if "(" not in kind:
            yield _rate(kind, own, whole[kind], launch_us, more_us)
        elif len(own) >= FEWEST:
            numbers = _numbers(own, whole[kind.partition("(")[0]], WHOLE_SAMPLES)
            yield _rate(kind, own, numbers, launch_us, more_us)


def _read(kernel: str) -> tuple[str, dict[str, str]]:
    """Template and parameters of `template(name=value, ...)`."""
    template, _, named = kernel.rstrip(")").partition("(")
    return template, dict(pair.split("=", 1) for pair in named.split(", ") if pair)


def _terms(samples: Sequence[Sample]) -> tuple[Array, Array]:
    """Launches and the floors, one row per sample, and the times."""
    terms = np.array([(float(sample.launches), *sample.floors_us) for sample in samples])
    return terms, np.array([sample.took_us for sample in samples])


def _numbers(samples: Sequence[Sample], expected: Array, worth: float) -> Array:
    """Start and times of each floor. What samples do not tell apart stays near what was `expected`, which counts as
    much as so many samples; a floor that is no part worth mentioning of any sample stays as expected."""
    terms, took = _terms(samples)
    shares = terms / took[:, None]
    felt = shares.max(axis=0) >= LEAST_SHARE
    rest = 1 - shares[:, ~felt] @ expected[~felt]
    held = np.diag(np.sqrt(worth * (shares[:, felt] ** 2).mean(axis=0)))
    numbers = np.where(shares.max(axis=0) > 0, expected, 0.0)
    numbers[felt] = _not_negative(np.vstack([shares[:, felt], held]), np.concatenate([rest, held @ expected[felt]]))
    return numbers


def _rate(kind: str, samples: Sequence[Sample], numbers: Array, launch_us: float, more_us: float) -> Rate:
    terms, took = _terms(samples)
    error = float(np.quantile(np.abs(terms @ numbers / took - 1), SHARE))
    start, *times = (float(number) for number in numbers)
    return Rate(kind, max(0.0, start - launch_us + more_us), tuple(times), error, len(samples))


def _not_negative(terms: Array, wanted: Array) -> Array:
    """Numbers, none negative, whose products with `terms` sum up nearest to `wanted`: the best solution with some of
    the terms, all sets of which are tried."""
    count = terms.shape[1]
    best, found = float(wanted @ wanted), np.zeros(count)
    for size in range(1, count + 1):
        for used in map(list, combinations(range(count), size)):
            numbers = np.zeros(count)
            numbers[used] = np.linalg.lstsq(terms[:, used], wanted, rcond=None)[0]
            left = terms @ numbers - wanted
            if (numbers >= 0).all() and float(left @ left) < best * (1 - 1e-9):
                best, found = float(left @ left), numbers
    return found


def _yaml_lines(rates: Iterable[Rate]) -> Iterator[str]:
    """As they stand in a chip file."""
    for rate in rates:
        kernel = f'"{rate.kernel}"' if "(" in rate.kernel else rate.kernel
        times = "".join(f"{role}: {many:.2f}, " for role, many in zip(ROLES, rate.times, strict=True) if many >= 0.005)
        yield (
            f"    - {{kernel: {kernel}, start_us: {rate.start_us:.2f}, {times}error: {rate.error:.2f}}}"
            f"  # of {rate.samples} kernels"
        )


def row_of(samples: Iterable[Sample], launch_us: float, more_us: float) -> Row:
    """Samples as a row of results, short enough to be kept: kernel, floors by role, time, launches if several."""

    def short(number: float) -> float:
        return float(f"{number:.4g}")

    def row(each: Sample) -> list[object]:
        several = [each.launches] if each.launches > 1 else []
        return [each.kernel, list(map(short, each.floors_us)), short(each.took_us), *several]

    kept = [row(each) for each in samples]
    return {"launch_us": short(launch_us), "beyond_us": short(more_us), "samples": sorted(kept)}


def lines_of(rows: Sequence[Row]) -> list[str]:
    """What rows with samples say together; launches are the median of theirs."""
    known = [row for row in rows if row.get("samples")]
    samples = [
        Sample(kernel, tuple(floors), took, *launches)
        for row in known
        for kernel, floors, took, *launches in row["samples"]
    ]
    launch_us, more_us = (median(row[name] for row in known) if known else 0.0 for name in ("launch_us", "beyond_us"))
    return list(_yaml_lines(fitted_rates(samples, launch_us, more_us)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Rates of kinds of kernels, as a chip file takes them.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help=f"with samples (default {SAMPLES.name})")
    try:
        rows = [row for file in parser.parse_args(arguments).files or [SAMPLES] for row in read_list(file, "rows")]
        print("\n".join(lines_of(rows) or ["no samples"]))
    except FileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
