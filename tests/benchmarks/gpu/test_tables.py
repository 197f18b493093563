"""Tables of what a GPU would have measured: what stands beside what."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import kernel_times, network_times, rates, streams
from benchmarks.gpu.bench import spread


def measured(median_ms: float) -> dict[str, Any]:
    return {"median_ms": median_ms, "quartiles_ms": [median_ms - 0.1, median_ms + 0.1], "least_ms": median_ms - 0.2}


def cells(lines: list[str], start: str) -> list[str]:
    (found,) = [line for line in lines if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_networks_stand_beside_pytorch_and_the_floor() -> None:
    head = {"network": "net", "batch": 8, "chip": "h200"}
    rows: list[dict[str, Any]] = [
        {"key": "1", **head, "what": "O0", "floor_ms": 1.5, **measured(2)},
        {"key": "2", **head, "what": "O3", "floor_ms": 1.0, **measured(1.25)},
        {"key": "3", **head, "what": "torch", **measured(3), "without_graph": measured(4)},
        {"key": "4", **head, "what": "torch.compile", **measured(2.5), "compile_seconds": 60},
        {"key": "other torch", "skipped": "PyTorch with a GPU is not there"},
    ]
    lines = network_times.lines(rows)
    found = cells(lines, "net (h200)")
    assert [cell.split(" ")[0] for cell in found[1:]] == [
        "8", "1.0000", "2.0000", "1.2500", "3.0000", "4.0000", "2.5000", "not", "2.00",
    ]  # fmt: skip
    assert lines[-1] == "other torch: PyTorch with a GPU is not there"


def test_stages_stand_beside_the_sequential_ones_of_the_same_kernels() -> None:
    rows: list[dict[str, Any]] = [
        {"key": "net sequential", "method": "sequential", **measured(3)},
        {"key": "net ios", "method": "ios", **measured(2)},
        {"key": "net sequential torch", "method": "sequential", **measured(8)},
        {"key": "net ios torch", "method": "ios", **measured(4)},
    ]
    lines = streams.lines(rows)
    assert [cells(lines, key)[4] for key in ("net ios", "net ios torch")] == ["1.50", "2.00"]
    assert streams.wrong({"same_bits": False})


def test_kernels_far_from_their_floors_are_counted() -> None:
    groups = {
        name: {"warm_ms": ms, "cold_ms": 2 * ms, "floor_ms": 1.0, "over_floor": ms, "over_cold_floor": 1.5 * ms,
               "binds": "HBM", "kernel": name}
        for name, ms in (("fine", 1.5), ("slow", 3.0), ("impossible", 0.5))
    }  # fmt: skip
    assert cells(kernel_times.lines([{"key": "net", "groups": groups}]), "net")[1:] == [
        "3", "5.0000", "10.0000", "3.0000", "1", "1",
    ]  # fmt: skip


def test_rates_are_said_as_the_chip_file_says_them() -> None:
    rows: list[dict[str, Any]] = [
        {"key": "L2", "what": "L2", "per_second": 5e12, "clock_hz": 2e9, "file": 5120.0},
        {"key": "launch", "what": "launch", "per_second": 4e5, "clock_hz": 2e9, "file": 2.0},
        {"key": "mma", "what": "mma"},
    ]
    lines = rates.lines(rows)
    assert cells(lines, "L2") == ["L2", "5e+12 B/s", "5120.0 a cycle", "2500.0 a cycle"]
    assert cells(lines, "launch") == ["launch", "2.50 us", "2.0 us", "launch_us: 2.50"]
    assert cells(lines, "mma")[1] == "not measured"


def test_medians_and_quartiles() -> None:
    assert spread((1.0, 2.0, 3.0, 4.0, 10.0)) == {"median_ms": 3.0, "quartiles_ms": [1.5, 7.0], "least_ms": 1.0}
