"""What was published beside the throughput of the configurations: utilisation and throughput by batch, means, and what
the vendor says of its own code.

From the OSDI 2023 paper (see `figures`): figure 16, table 1, the means in abstract and text, the bars of hand-written
code in figure 14. From the vendor: the NeuralScale paper (CARRV 2021) and its reports to ByteMLPerf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["FIGURE_16", "MEANS", "TABLE_1", "VENDOR", "Mean", "VendorFigure"]

FIGURE_16: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "resnet50": {1: (24.5, 19.1), 2: (27.4, 28.6), 4: (44.9, 51.8), 8: (59.1, 77.7), 16: (58.3, 78.6)},
    "bert_base 128": {4: (62.4, 90.8), 8: (76.4, 90.3), 16: (51.1, 82.4)},
}
"""Label -> batch a cluster -> percent of the time in which vector and matrix engines work."""

TABLE_1: Mapping[int, Mapping[str, float]] = {
    2: {"tvm": 138, "full": 138},
    4: {"tvm": 512, "full": 512},
    8: {"full": 4_052, "vendor": 4_048},
    16: {"full": 2_716},
}
"""BERT-base at 128: batch a cluster -> method -> sentences a second. By its own latencies the table's TVM rows are
1,178 and 1,688, those of the full method at 2 and 4 likewise."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over the networks that the paper states: of `over` to `of`, with what its own bars give, both ways."""

    of: str
    over: str
    stated: float
    by_bars: float
    by_bars_geometric: float | None
    fault: str = ""


MEANS = (
    Mean("full", "tvm", 11.15, 9.66, 8.13, "does not follow from the published bars"),
    Mean("full", "astitch", 6.16, 6.14, None),
    Mean("l1", "tvm", 3.67, 3.84, 2.69, "does not follow from the published bars"),
    Mean("ordering", "l1", 2.20, 2.20, None),
    Mean("full", "ordering", 1.72, 1.72, None),
)


@dataclass(frozen=True, slots=True)
class VendorFigure:
    """Items a second by the vendor's own code, `batch` a cluster; `label` of the configuration that it is of, empty
    where none is the same network, length and precision."""

    what: str
    batch: int
    per_second: float
    source: str
    label: str = ""


VENDOR = (
    VendorFigure("ResNet-50", 16, 8.00 * 1_064, "figure 14", "resnet50"),
    VendorFigure("ResNet-50", 16, 8_725.94, "ByteMLPerf", "resnet50"),
    VendorFigure("ResNet-50, int8", 16, 14_442, "CARRV 2021"),
    VendorFigure("BERT-base 128", 8, 7.91 * 512, "figure 14", "bert_base 128"),
    VendorFigure("BERT-base 128", 8, 4_048, "table 1", "bert_base 128"),
    VendorFigure("BERT, length not said", 8, 4_192, "CARRV 2021"),
    VendorFigure("BERT-base 256", 4, 7.87 * 412, "figure 14", "bert_base 256"),
    VendorFigure("BERT-large 384", 2, 4.78 * 36, "figure 14", "bert_large 384"),
    VendorFigure("BERT-base 384", 2, 822.38, "ByteMLPerf"),
    VendorFigure("BERT-base 512", 2, 8.73 * 324, "figure 14", "bert_base 512"),
    VendorFigure("DLRM", 256, 3.67 * 131_000, "figure 14", "dlrm"),
    VendorFigure("MobileNet-v2", 32, 8.45 * 1_416, "figure 14", "mobilenet_v2"),
    VendorFigure("Wide & Deep", 2_048, 2_395_900, "ByteMLPerf"),
)
