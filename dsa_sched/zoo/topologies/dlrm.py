"""DLRM: what somebody clicks, from numbers and from the rows of 26 tables.

    13 numbers --MLP--> row \
                             27 rows --all products of two--> 351 numbers, the first row --MLP--> one number from 0 to 1
    26 indices --tables--> rows /

After Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems" (2019), with
the layers that MLPerf gives it for Criteo's terabyte: 13-512-256-128 and 479-1024-1024-512-256-1, rows of 128. Tables
have the rows of that data set, at most 100,000 (`--max-ind-range` of the authors' program), of 188 million.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx

from dsa_sched.zoo.meanings.declared_meanings import Indices
from dsa_sched.zoo.topologies.node_builder import topologies
from dsa_sched.zoo.topologies.sequence_builder import SequenceBuilder

NUMBERS = 13
MOST_ROWS = 100_000
CRITEO_ROWS = (
    39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10,
    2208, 11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36,
)  # fmt: skip
"""Number of rows of each table, as in MLPerf's reference."""
TABLE_GAIN = 0.25
SCORE_GAIN = 2.0


@dataclass(frozen=True, slots=True)
class _Shape:
    """`rows` of every table; widths of the layers below (the last is that of a row) and above the products."""

    name: str
    rows: tuple[int, ...]
    below: tuple[int, ...]
    above: tuple[int, ...]


FULL = _Shape("dlrm", tuple(min(rows, MOST_ROWS) for rows in CRITEO_ROWS), (512, 256, 128), (1024, 1024, 512, 256, 1))
"""26 tables of 921,165 rows together, 2.4 million weights in products."""
MINI = _Shape("dlrm-mini", (50, 3, 40, 30, 20, 4), (32, 16, 8), (32, 16, 1))
"""Six tables of few rows of 8 numbers."""


def _topology(shape: _Shape) -> onnx.ModelProto:
    net = SequenceBuilder(shape.name)
    numbers = net.input("dense", (1, NUMBERS))
    indices = net.integer_input("sparse", (1, len(shape.rows)), Indices(shape.rows))
    width = shape.below[-1]
    first = _layers(net, "below", numbers, (NUMBERS, *shape.below))
    rows = [net.node("Unsqueeze", "below.row", [first, net.integers(1)])]
    for number, extent in enumerate(shape.rows):
        name = f"table{number}"
        chosen = net.node("Gather", f"{name}.index", [indices, net.index(number)], axis=1)
        table = net.weight(f"{name}.weight", extent, width, gain=TABLE_GAIN)
        row = net.node("Gather", name, [table, chosen], axis=0)
        rows.append(net.node("Unsqueeze", f"{name}.row", [row, net.integers(1)]))
    pairs = _products(net, rows)
    inside = width + len(rows) * (len(rows) - 1) // 2
    joined = net.node("Concat", "joined", [first, pairs], axis=1)
    score = _layers(net, "above", joined, (inside, *shape.above), last=True)
    return net.build(net.node("Sigmoid", "clicked", [score]))


def _layers(net: SequenceBuilder, name: str, x: str, widths: tuple[int, ...], last: bool = False) -> str:
    """Products, each followed by a ReLU, except the last of the network."""
    for number, (inside, outside) in enumerate(pairwise(widths)):
        final = last and number == len(widths) - 2
        x = net.dense(f"{name}{number}", x, inside, outside, SCORE_GAIN if final else 1.0)
        x = x if final else net.node("Relu", f"{name}{number}.relu", [x])
    return x


def _products(net: SequenceBuilder, rows: list[str]) -> str:
    """Products of every row with every one before it."""
    count = len(rows)
    stack = net.node("Concat", "rows", rows, axis=1)
    square = net.node("MatMul", "products", [stack, net.transpose("rows.columns", stack, 0, 2, 1)])
    later, earlier = np.tril_indices(count, -1)
    chosen = net.constant("pairs.indices", (count * later + earlier).astype(np.int64))
    return net.node("Gather", "pairs", [net.node("Flatten", "products.flat", [square]), chosen], axis=1)


NETWORKS = topologies(_topology, FULL, MINI)
