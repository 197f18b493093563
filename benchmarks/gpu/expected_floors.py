"""What fusing was expected to bring on an H200, worked out by hand before kernels and their floors were written.

    at 4.3 TB/s, an L2 of 7 TB/s, 700 TFLOP/s by wgmma and 480 by mma.sync, 1.5 us a launch --> layers / fused

Where there are two numbers for a batch, the first is with the rate of `wgmma` and the second with that of `mma.sync`;
the chip file has the same rate for both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["EXPECTED", "Compared", "Expected", "compared"]

Range = tuple[float, float]


@dataclass(frozen=True)
class Expected:
    """One kernel a layer over `group` fused, "" for a whole subject as level O3 has it; by batch."""

    subject: str
    group: str
    ratios: Mapping[int, tuple[Range, ...]]


@dataclass(frozen=True)
class Compared:
    """`found` is by the chip file; `differences` are from the nearest number of each range."""

    expected: Expected
    batch: int
    found: float
    differences: tuple[float, ...]


def _exactly(*ratios: float) -> tuple[Range, ...]:
    return tuple((ratio, ratio) for ratio in ratios)


BELOW: tuple[Range, ...] = ((0.0, 1.0),)
BLOCK = "conv1,conv2,conv3"
EXPECTED = (
    Expected("resnet18_tailor", "", {
        64: ((1.13, 1.15), (1.06, 1.08)), 128: _exactly(1.15, 1.08), 256: ((1.13, 1.15), (1.06, 1.08)),
        512: ((1.13, 1.15), (1.06, 1.08)),
    }),
    Expected("bottleneck1", BLOCK,
             {1: _exactly(1.4), 8: _exactly(1.5, 1.6), 32: _exactly(1.8, 1.6), 128: _exactly(2.0, 1.7)}),
    Expected("bottleneck2", "conv2,conv3",
             {1: _exactly(1.2), 8: _exactly(0.9), 32: _exactly(1.3, 1.15), 128: _exactly(1.3, 1.2)}),
    Expected("bottleneck3", BLOCK, dict.fromkeys((1, 8, 32, 128), BELOW)),
    Expected("bottleneck4", BLOCK, dict.fromkeys((1, 8, 32, 128), BELOW)),
    Expected("inverted16", BLOCK, {1: _exactly(3.2), 8: _exactly(5.5), 32: _exactly(9.0), 128: _exactly(10.0)}),
    Expected("inverted24", BLOCK, {1: _exactly(2.8), 8: _exactly(3.5), 32: _exactly(5.0), 128: _exactly(5.5)}),
    Expected("inverted64", BLOCK, {1: _exactly(1.5), 8: _exactly(1.6), 32: _exactly(2.2), 128: _exactly(3.3)}),
    Expected("inverted160", BLOCK, {1: _exactly(1.0), 8: _exactly(1.1), 32: _exactly(1.2), 128: _exactly(1.5)}),
    Expected("mobilenet_v2", "", {1: _exactly(1.45), 8: _exactly(1.7), 32: _exactly(2.4), 128: _exactly(3.2)}),
    Expected("resnet50", "", {1: _exactly(1.05), 8: _exactly(1.05), 32: _exactly(1.1), 128: _exactly(1.15)}),
)  # fmt: skip


def compared(rows: Iterable[Mapping[str, Any]], chip: str = "h200") -> list[Compared]:
    """Beside rows of `study_rows`; expectations without a row are left out."""
    known: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["chip"] == chip:
            known.setdefault((row["subject"], row["batch"]), []).append(row)
    found = []
    for expected in EXPECTED:
        for batch, ranges in expected.ratios.items():
            fused = _row_of(known.get((expected.subject, batch), []), expected.group)
            if fused is not None:
                ratio = float(fused["layers_over_it"])
                apart = tuple(ratio - min(max(ratio, low), high) for low, high in ranges)
                found.append(Compared(expected, batch, ratio, apart))
    return found


def _row_of(rows: Iterable[Mapping[str, Any]], group: str) -> Mapping[str, Any] | None:
    """That of level O3 where it has the group, or else the one that is forced to."""
    ours = [row for row in rows if row["way"] == "ours" and (not group or group in row["fused"])]
    forced = [row for row in rows if group and row["way"].startswith(f"forced {group}:")]
    return next(iter((*ours, *sorted(forced, key=lambda row: float(row["floor_ms"])))), None)
