"""What was published of each configuration: throughput by variant, tensors by memory, compile seconds, utilisation.

All of it is from Zhao et al., "Effectively Scheduling Computational Graphs of Deep Neural Networks toward Their
Domain-Specific Accelerators", OSDI 2023: batches and the throughput of the TVM plan from table 2, speedups over it
from figures 14 (AStitch) and 15 (bar heights, read to 0.01), tensors from table 3, seconds from table 4, utilisation
from figure 17. Half precision, four clusters. Adding a network is adding a row. Goals are ours, by the chip's bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import onnx

from dsa_sched.zoo.topologies.bert import bert_base_topology, bert_large_topology
from dsa_sched.zoo.topologies.conformer import conformer_m_topology
from dsa_sched.zoo.topologies.vit import vit_b16_384_topology, vit_b16_topology

__all__ = ["ALL", "AUTO_ALONE", "CONFIGURATIONS", "Configuration", "Counts", "Layers"]

Counts = tuple[int, int, int]

ALL = ("tvm", "astitch", "llb", "l1", "ordering", "full", "auto")
AUTO_ALONE = ("full", "auto")
TEXTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class Layers:
    """A network of equal layers: how many it has, and what makes one of any number."""

    count: int
    topology: Callable[[int], onnx.ModelProto]


@dataclass(frozen=True)
class Configuration:
    """One column of the published tables, called `label` here and `name` there; two may be of one network.

    `network` is a name that `dsa-sched models` lists, `length` that of texts, 0 for what has no texts. `tvm_batch` is
    what a cluster takes at a time under the TVM plan, `batch` under all others. `speedups` are over the TVM plan, by
    variant; `tensors` are counts in DDR, LLB and L1, by method; `compile_seconds` are by variant; `matrix_percent` is
    how much of the time the matrix engines work in each stage under the full method, stages called by the pixels of
    their outputs. `goal_per_second` is what level auto is to reach.
    """

    name: str
    network: str
    tvm_batch: int
    batch: int
    tvm_per_second: float
    speedups: Mapping[str, float]
    length: int = 0
    goal_per_second: float | None = None
    layers: Layers | None = None
    variants: tuple[str, ...] = ALL
    tensors: Mapping[str, Counts] = field(default_factory=dict)
    compile_seconds: Mapping[str, float] = field(default_factory=dict)
    matrix_percent: Mapping[str, float] = field(default_factory=dict)
    not_explained: Mapping[str, str] = field(default_factory=dict)
    """Variant -> why no model can reach the figure; it enters no fit."""

    @property
    def label(self) -> str:
        """The network as it was compiled."""
        return f"{self.network} {self.length}" if self.length else self.network

    def batch_of(self, variant: str) -> int:
        """Items that a cluster takes at a time."""
        return self.tvm_batch if variant == "tvm" else self.batch

    @property
    def tvm_kernels(self) -> int | None:
        """Of the published TVM plan: each stores one tensor. None where no count is published."""
        return self.tensors["TVM"][0] if "TVM" in self.tensors else None

    def shapes(self, batch: int) -> Mapping[str, tuple[int, ...]]:
        """Of inputs that the network's file leaves open."""
        return dict.fromkeys(TEXTS, (batch, self.length)) if self.length else {}

    def per_second(self, variant: str) -> float | None:
        """Published items a second; None where there is no figure."""
        if variant == "tvm":
            return self.tvm_per_second
        speedup = self.speedups.get(variant)
        return None if speedup is None else speedup * self.tvm_per_second


def _seconds(tvm: float, astitch: float, full: float) -> Mapping[str, float]:
    return {"tvm": tvm, "astitch": astitch, "full": full}


def _speedups(astitch: float | None, llb: float, l1: float, ordering: float, full: float) -> Mapping[str, float]:
    found = {"llb": llb, "l1": l1, "ordering": ordering, "full": full}
    return found if astitch is None else {"astitch": astitch} | found


def _tensors(tvm: int, vendor: Counts | None, ours: Counts) -> Mapping[str, Counts]:
    found = {"TVM": (tvm, 0, 0), "GraphTurbo": ours}
    return found if vendor is None else found | {"vendor": vendor}


BASE = Layers(12, bert_base_topology)
LARGE = Layers(24, bert_large_topology)

CONFIGURATIONS = (
    Configuration(
        name="A",
        network="resnet50",
        tvm_batch=2,
        batch=16,
        tvm_per_second=1_064,
        speedups=_speedups(0.67, 0.73, 1.12, 4.29, 7.97),
        goal_per_second=10_485,
        variants=(*ALL[:-1], "beyond", "auto"),
        tensors=_tensors(58, (1, 11, 291), (1, 11, 284)),
        compile_seconds=_seconds(102, 66, 139),
        matrix_percent=MappingProxyType({"56x56": 83.5, "28x28": 83.8, "14x14": 79.1, "7x7": 62.8}),
        not_explained={
            "llb": "below the TVM plan, although what goes to the DDR passes through the LLB anyway: the LLB plan "
            "moves a part of the same bytes"
        },
    ),
    Configuration(
        name="B",
        network="bert_base",
        length=128,
        tvm_batch=4,
        batch=8,
        tvm_per_second=512,
        speedups=_speedups(2.32, 1.63, 3.46, 3.46, 7.91),
        goal_per_second=4_052,
        layers=BASE,
        tensors=_tensors(242, (2, 0, 304), (1, 0, 305)),
        compile_seconds=_seconds(159, 128, 199),
    ),
    Configuration(
        name="C",
        network="bert_base",
        length=256,
        tvm_batch=2,
        batch=4,
        tvm_per_second=412,
        speedups=_speedups(1.29, 1.01, 2.23, 3.33, 6.51),
        goal_per_second=2_050,
        layers=BASE,
        tensors=_tensors(242, (2, 25, 401), (1, 110, 240)),
        compile_seconds=_seconds(170, 136, 224),
    ),
    Configuration(
        name="D",
        network="bert_large",
        length=384,
        tvm_batch=1,
        batch=2,
        tvm_per_second=36,
        speedups=_speedups(3.11, 2.56, 3.78, 3.89, 7.78),
        goal_per_second=280,
        layers=LARGE,
        tensors=_tensors(515, (2, 49, 968), (1, 75, 967)),
        compile_seconds=_seconds(312, 290, 699),
    ),
    Configuration(
        name="E",
        network="bert_base",
        length=512,
        tvm_batch=1,
        batch=2,
        tvm_per_second=324,
        speedups=_speedups(1.04, 1.11, 1.54, 3.95, 7.25),
        goal_per_second=1_000,
        layers=BASE,
        tensors=_tensors(242, (2, 25, 474), (1, 76, 337)),
        compile_seconds=_seconds(171, 143, 282),
    ),
    Configuration(
        name="table 1",
        network="bert_base",
        length=128,
        tvm_batch=4,
        batch=16,
        tvm_per_second=512,
        speedups={"full": 2_716 / 512},
        goal_per_second=4_500,
        layers=BASE,
        variants=AUTO_ALONE,
    ),
    Configuration(
        name="F",
        network="dlrm",
        tvm_batch=64,
        batch=256,
        tvm_per_second=131_000,
        speedups=_speedups(1.82, 0.85, 3.00, 3.00, 3.67),
        goal_per_second=1_000_000,
        tensors=_tensors(76, (1, 0, 75), (0, 0, 76)),
        compile_seconds=_seconds(25, 22, 23),
    ),
    Configuration(
        name="G",
        network="mobilenet_v2",
        tvm_batch=2,
        batch=32,
        tvm_per_second=1_416,
        speedups=_speedups(0.62, 1.06, 1.11, 5.28, 8.28),
        goal_per_second=25_000,
        tensors=_tensors(56, (1, 7, 619), (0, 3, 608)),
        compile_seconds=_seconds(74, 57, 248),
    ),
    Configuration(
        name="H",
        network="vit_b16",
        tvm_batch=4,
        batch=8,
        tvm_per_second=40,
        speedups=_speedups(None, 0.70, 16.90, 16.90, 25.00),
        goal_per_second=2_400,
        layers=Layers(12, vit_b16_topology),
        tensors=_tensors(214, None, (24, 60, 340)),
        compile_seconds=_seconds(189, 146, 340),
        not_explained={"tvm": "40 images a second are 1 % of the peak of the chip (35 GFLOP an image)"},
    ),
    Configuration(
        name="H",
        network="vit_b16_384",
        tvm_batch=4,
        batch=8,
        tvm_per_second=40,
        speedups=_speedups(None, 0.70, 16.90, 16.90, 25.00),
        goal_per_second=850,
        layers=Layers(12, vit_b16_384_topology),
        tensors=_tensors(214, None, (24, 60, 340)),
        compile_seconds=_seconds(189, 146, 340),
        not_explained={"tvm": "as at 224 pixels; which of the two was measured is not said"},
    ),
    Configuration(
        name="I",
        network="densenet121",
        tvm_batch=4,
        batch=8,
        tvm_per_second=456,
        speedups=_speedups(2.17, 1.82, 2.53, 10.69, 18.22),
        goal_per_second=12_659,
        variants=(*ALL[:-1], "beyond", "auto"),
        tensors=_tensors(247, None, (0, 3, 389)),
        compile_seconds=_seconds(173, 129, 189),
    ),
    Configuration(
        name="J",
        network="conformer_m",
        tvm_batch=1,
        batch=3,
        tvm_per_second=184,
        speedups=_speedups(2.37, 2.57, 2.76, 2.98, 3.96),
        goal_per_second=2_000,
        layers=Layers(16, conformer_m_topology),
        tensors=_tensors(1_054, None, (4, 813, 250)),
        compile_seconds=_seconds(382, 238, 296),
    ),
)
"""Goals of A and I are what level auto's best candidate reached before transformers were worked on."""
