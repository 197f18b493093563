"""What was published: throughput by variant, tensors by memory, compile seconds, matrix utilisation by stage.

All of it is from Zhao et al., "Effectively Scheduling Computational Graphs of Deep Neural Networks toward Their
Domain-Specific Accelerators", OSDI 2023: batches and the throughput of the TVM plan from table 2, speedups over it
from figures 14 (AStitch) and 15 (bar heights, read to 0.01), tensors from table 3, seconds from table 4, utilisation
from figure 17. Half precision, four clusters. Adding a network is adding a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CONFIGURATIONS", "Configuration"]

Counts = tuple[int, int, int]


@dataclass(frozen=True)
class Configuration:
    """One column of the published tables.

    `network` is a name that `dsa-sched models` lists. `tvm_batch` is what a cluster takes at a time under the TVM plan,
    `batch` under all others. `speedups` are over the TVM plan, by variant; `tensors` are counts in DDR, LLB and L1, by
    method; `compile_seconds` are by variant; `matrix_percent` is how much of the time the matrix engines work in each
    stage under the full method, stages called by the pixels of their outputs.
    """

    name: str
    network: str
    tvm_batch: int
    batch: int
    tvm_per_second: float
    speedups: Mapping[str, float]
    tensors: Mapping[str, Counts] = field(default_factory=dict)
    compile_seconds: Mapping[str, float] = field(default_factory=dict)
    matrix_percent: Mapping[str, float] = field(default_factory=dict)
    not_explained: Mapping[str, str] = field(default_factory=dict)
    """Variant -> why no model can reach the figure; it enters no fit."""

    def batch_of(self, variant: str) -> int:
        """Items that a cluster takes at a time."""
        return self.tvm_batch if variant == "tvm" else self.batch

    def per_second(self, variant: str) -> float | None:
        """Published items a second; None where there is no figure."""
        if variant == "tvm":
            return self.tvm_per_second
        speedup = self.speedups.get(variant)
        return None if speedup is None else speedup * self.tvm_per_second


CONFIGURATIONS = (
    Configuration(
        name="A",
        network="resnet50",
        tvm_batch=2,
        batch=16,
        tvm_per_second=1_064,
        speedups={"astitch": 0.67, "llb": 0.73, "l1": 1.12, "ordering": 4.29, "full": 7.97},
        tensors={"TVM": (58, 0, 0), "vendor": (1, 11, 291), "GraphTurbo": (1, 11, 284)},
        compile_seconds={"tvm": 102, "astitch": 66, "full": 139},
        matrix_percent={"56x56": 83.5, "28x28": 83.8, "14x14": 79.1, "7x7": 62.8},
        not_explained={
            "llb": "below the TVM plan, although what goes to the DDR passes through the LLB anyway: the LLB plan "
            "moves a part of the same bytes"
        },
    ),
    Configuration(
        name="I",
        network="densenet121",
        tvm_batch=4,
        batch=8,
        tvm_per_second=456,
        speedups={"astitch": 2.17, "llb": 1.82, "l1": 2.53, "ordering": 10.69, "full": 18.22},
        tensors={"TVM": (247, 0, 0), "GraphTurbo": (0, 3, 389)},
        compile_seconds={"tvm": 173, "astitch": 129, "full": 189},
    ),
)
